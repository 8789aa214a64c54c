/* Every op on a device, forward and backward, against the float64 reference, and what moves weights (update_kernels.c):
 * that is how a kernel is trusted. Users run it as `ups test-ops`, which sets what is said by the environment:
 * UPS_TEST_DEVICE (cpu, where it is not set), UPS_TEST_OPS=NAME,NAME for some ops alone, UPS_TEST_SEED=N for other
 * drawn shapes, UPS_TEST_JSON for one object on standard output and all else on standard error. The exit code is 0
 * where all is right, 1 where something is not, 2 where what is asked for makes no sense.
 *
 *   test_ops            checks all ops in float32, bf16 and fp16, gradients overwritten and accumulated
 *   test_ops kernels    runs all ops and compares none: for emulated processors, which refuse an instruction, and
 *                       sanitizers, which refuse a read or write; what is computed is the same elsewhere
 *   test_ops instructions  the same without what multiplies much, whose instructions smaller cases have, too
 *   test_ops values     all of `test_ops` but what `test_ops bits` does
 *   test_ops bits       compares results of one thread with those of three, or of one order of a card's with another
 *   test_ops perf [OP] [THREADS]  times those whose name holds OP at the reference operator's shapes instead
 *   test_ops attention BATCH HEADS TOKENS HEAD_SIZE  times attention in float32 and bf16, forward and
 *                       backward
 *   test_ops linear ROWS IN OUT  times linear and linear with GELU in float32 and bf16, forward and
 *                       backward
 *   test_ops muon COUNT ROWS COLUMNS  times a step of Muon over so many matrices
 *
 * Tolerances, relative to the largest element of what is compared: float32 1e-5 (sums of up to 1,500 terms with a
 * rounding error of 6e-8 each, random signs); bf16 1e-2 and fp16 1.25e-3 (their own rounding errors are 4e-3 and 5e-4;
 * inputs are rounded before both sides see them, so that only intermediate and final roundings differ).
 *
 * Shapes are those of a list, and drawn ones (random_cases.h).
 *
 * UPS_CPU names the instruction set whose kernels are meant. Where it does not run, all is skipped: the program would
 * choose lesser kernels, and test them under a wrong name. UPS_TEST_ONCE_MORE, beside a run without it, skips what is
 * the same with any kernels, and the best ones by their name, which the other run chooses. */
#include "base/random.h"
#include "base/system/cpu_features.h"
#include "model/cpu/device.h"
#include "tests/base/skipping.h"
#include "tests/model/claims.h"
#include "tests/model/op_fixture.h"
#include "tests/model/op_speed.h"
#include "tests/model/op_tally.h"
#include "tests/model/random_cases.h"
#include "tests/model/update_kernels.h"
#include <math.h>

static const ups_dtype computes[] = {UPS_F32, UPS_BF16, UPS_F16};
static const double tolerances[] = {[UPS_F32] = 1e-5, [UPS_BF16] = 1e-2, [UPS_F16] = 1.25e-3};
static const double tf32_tolerance = 2.5e-3; /* as many bits as fp16, but they may be cut off */
static const double attention_looser = 1.5;  /* a card rounds normalised rows, as PyTorch does */
static const double on_tiles_looser = 2.0;   /* so do tiles, and probabilities; gradients of gains sum all of that */
static const double fp8_tolerance = 0.1; /* operands of three and two bits behind the first one; test_fp8 is exact */
enum { COMPUTES = sizeof computes / sizeof *computes };

static bool brief;           /* `test_ops instructions` */
static bool repeated = true; /* and with themselves; not by `test_ops values` */

static bool on_cpu(void) {
    return strcmp(device->class->name, "cpu") == 0;
}

/* Largest error, relative to the largest element that was expected, and where it is. NaN, which no tolerance is above,
 * where an element of either is NaN, or an expected one infinite. */
static double worst_error(const double *found, const double *expected, int64_t count, int64_t *at) {
    double largest = 1e-30, worst = 0.0;
    *at = 0;
    for (int64_t i = 0; i < count; i++) {
        const double error = fabs(found[i] - expected[i]);
        largest = fmax(largest, fabs(expected[i]));
        if (!(error <= worst) && !isnan(worst)) worst = error, *at = i;
    }
    return worst / largest;
}

/* Gradients of the gains of queries and keys, summed over all tokens, on a processor's tiles. */
static bool sums_on_tiles(const fixture *f, const char *what) {
    return f->c->kind == UPS_OP_ATTENTION && f->compute == UPS_BF16 && on_cpu() &&
           strcmp(ups_cpu_instruction_set(), "amx") == 0 &&
           (strstr(what, "gradient of input 2") || strstr(what, "gradient of input 3"));
}

static void compare(const fixture *f, const char *what, const double *expected, const ups_tensor *tensor) {
    int64_t count = ups_shape_elements(tensor->shape), worst_at;
    double *values = malloc((size_t)count * sizeof *values);
    download(tensor, values);
    const double error = worst_error(values, expected, count, &worst_at), actual = values[worst_at];
    bool tf32 = f->c->attributes.tf32 && f->compute == UPS_F32 && !on_cpu();
    double tolerance = tf32 ? tf32_tolerance : tolerances[f->compute];
    if (f->c->attributes.fp8 && !on_cpu()) tolerance = fp8_tolerance;
    if (f->c->kind == UPS_OP_ATTENTION && f->compute != UPS_F32 && !on_cpu()) tolerance *= attention_looser;
    if (sums_on_tiles(f, what)) tolerance *= on_tiles_looser;
    if (f->c->looser > 0.0f) tolerance *= (double)f->c->looser;
    free(values);
    tally_result(f->c->kind, error / tolerance);
    if (error <= tolerance) return;
    fail_msg("%s, %s, %s: element %lld is %.9g; %.9g was expected (error %.2e of the largest element, %.2e allowed)",
             f->c->name, ups_dtype_name(f->compute), what, (long long)worst_at, actual, expected[worst_at], error,
             tolerance);
}

/* The output and, `times` times, the gradients of one forward pass, which both come from. They are added to what is
 * there where `added` says so; the first time random numbers are there, the second time what the first left. */
static void check_case(const op_case *c, ups_dtype compute, int times, const bool added[]) {
    double *before[UPS_MAX_INPUTS] = {NULL}, *gradients[UPS_MAX_INPUTS] = {NULL};
    fixture f;
    if (!fixture_create(&f, c, compute)) return;
    run_forward(&f);
    ups_reference_forward(&f.reference);
    compare(&f, "output", f.reference.output, &f.call.output);
    prepare_backward_call(&f);
    for (int i = 0; i < c->input_count; i++) {
        if (!wants_gradient(c, i)) continue;
        const size_t count = (size_t)ups_shape_elements(c->inputs[i].shape);
        give_gradient(&f, i, 200 + (uint32_t)i);
        before[i] = f.gradients[i].values;
        f.gradients[i].values = gradients[i] = f.reference.input_gradients[i] = calloc(count, sizeof(double));
    }
    ups_reference_backward(&f.reference);
    for (int time = 0; time < times; time++) {
        for (int i = 0; i < c->input_count; i++) f.call.accumulate[i] = added[time] && wants_gradient(c, i);
        run_backward(&f);
        for (int i = 0; i < c->input_count; i++) {
            char what[64];
            if (!wants_gradient(c, i)) continue;
            snprintf(what, sizeof what, "gradient of input %d%s", i, added[time] ? ", accumulated" : "");
            for (int64_t at = 0; added[time] && at < ups_shape_elements(c->inputs[i].shape); at++)
                before[i][at] += gradients[i][at];
            compare(&f, what, added[time] ? before[i] : gradients[i], &f.gradients[i].tensor);
        }
    }
    for (int i = 0; i < c->input_count; i++) free(before[i]);
    fixture_destroy(&f);
}

CLAIM(a_nan_is_an_error_wherever_it_stands_and_so_is_infinity) {
    enum { COUNT = 7 };
    static const double expected[COUNT] = {1, -2, 3, -4, 5, -6, 8};
    for (int place = 0; place < COUNT; place++) {
        double values[COUNT], wanted[COUNT];
        int64_t at;
        memcpy(values, expected, sizeof values);
        values[2] += 0.5;
        assert_true(worst_error(values, expected, COUNT, &at) == 0.0625 && at == 2);
        values[place] = NAN;
        assert_true(isnan(worst_error(values, expected, COUNT, &at)) && at == place);
        assert_true(isnan(worst_error(expected, values, COUNT, &at)) && at == place);
        values[place] = INFINITY;
        assert_true(isinf(worst_error(values, expected, COUNT, &at)) && at == place);
        memcpy(wanted, expected, sizeof wanted);
        wanted[place] = INFINITY; /* of which any error is a small part */
        assert_true(isnan(worst_error(expected, wanted, COUNT, &at)));
    }
}

/* In FP8 an op is what a card may lack. */
CLAIM(every_op_has_a_kernel) {
    for (int i = 0; i < op_case_count; i++) {
        fixture f;
        if (op_cases[i].attributes.fp8) continue;
        if (!fixture_create(&f, &op_cases[i], UPS_F32))
            fail_msg("the device '%s' has no kernel for %s", device->class->name, ups_op_name(op_cases[i].kind));
        fixture_destroy(&f);
    }
}

static bool is_named(ups_op_kind kind, const char *name, size_t length) {
    const char *own = ups_op_name(kind);
    return strlen(own) == length && strncmp(name, own, length) == 0;
}

/* UPS_TEST_OPS=NAME,NAME... leaves the others out. */
static bool kind_is_meant(ups_op_kind kind) {
    const char *only = getenv("UPS_TEST_OPS");
    for (const char *at = only; at; at = strchr(at, ','), at += at != NULL) {
        if (is_named(kind, at, strcspn(at, ","))) return true;
    }
    return !only;
}

static bool is_meant(const op_case *c) {
    return kind_is_meant(c->kind);
}

/* A name that is no op's would leave all out, and nothing would be found wrong. */
static bool names_ops_alone(const char *only) {
    for (const char *at = only; at; at = strchr(at, ','), at += at != NULL) {
        const int length = (int)strcspn(at, ",");
        int kind = 0;
        while (kind < UPS_OP_COUNT && !is_named((ups_op_kind)kind, at, (size_t)length)) kind++;
        if (kind < UPS_OP_COUNT) continue;
        fprintf(stderr, "UPS_TEST_OPS: '%.*s' is not an op; model/op.h lists them\n", length, at);
        return false;
    }
    return true;
}

/* Gradients are added to what is there, and then overwrite that. */
CLAIM(every_op_and_its_gradients_are_those_of_the_reference) {
    skip_where_nothing_is_compared();
    for (int i = 0; i < op_case_count; i++) {
        for (int k = 0; k < COMPUTES && is_meant(&op_cases[i]); k++)
            check_case(&op_cases[i], computes[k], 2, (const bool[]){true, false});
    }
}

/* UPS_TEST_SEED=N draws other shapes. */
CLAIM(ops_of_drawn_shapes_compute_what_the_reference_does) {
    const char *seed = getenv("UPS_TEST_SEED");
    skip_where_nothing_is_compared();
    for (int i = 0; i < RANDOM_CASES; i++) {
        random_case drawn;
        random_case_draw(seed ? strtoull(seed, NULL, 10) : 1, i, &drawn);
        for (int k = 0; k < COMPUTES && is_meant(&drawn.c); k++) {
            const bool added = i % 2 != 0;
            check_case(&drawn.c, computes[k], 1, &added);
        }
    }
}

/* The gradient of one input, the others not wanted, from what backward is then promised. */
static void check_gradient_alone(const op_case *c, int i) {
    fixture f;
    char what[64];
    if (!fixture_create(&f, c, UPS_F32)) return;
    run_forward(&f);
    ups_reference_forward(&f.reference);
    prepare_backward_call_for(&f, 1u << i);
    give_gradient(&f, i, 200);
    double *const before = f.gradients[i].values, *const gradient = calloc(
                                                      (size_t)ups_shape_elements(c->inputs[i].shape), sizeof *gradient);
    f.gradients[i].values = f.reference.input_gradients[i] = gradient;
    ups_reference_backward(&f.reference);
    run_backward(&f);
    snprintf(what, sizeof what, "gradient of input %d alone", i);
    compare(&f, what, gradient, &f.gradients[i].tensor);
    free(before);
    fixture_destroy(&f);
}

CLAIM(a_gradient_that_alone_is_wanted_is_that_of_the_reference_by_what_it_is_promised) {
    enum { CASES = 2 }; /* of a kind */
    int cases[UPS_OP_COUNT] = {0};
    skip_where_nothing_is_compared();
    for (int n = 0; n < op_case_count; n++) {
        const op_case *c = &op_cases[n];
        int wanted = 0;
        for (int i = 0; i < c->input_count; i++) wanted += wants_gradient(c, i);
        if (wanted < 2 || !is_meant(c) || cases[c->kind]++ >= CASES) continue;
        for (int i = 0; i < c->input_count; i++)
            if (wants_gradient(c, i)) check_gradient_alone(c, i);
    }
}

/* A device may lack a kernel, and a list a case; one that came to nothing is no success. */
CLAIM(every_op_that_is_meant_was_compared_with_the_reference) {
    skip_where_nothing_is_compared();
    for (int kind = 0; kind < UPS_OP_COUNT; kind++) {
        if (kind_is_meant((ups_op_kind)kind) && tally_results((ups_op_kind)kind) == 0)
            fail_msg("nothing of the op '%s' was compared", ups_op_name((ups_op_kind)kind));
    }
}

static double forward_error(fixture *f) {
    int64_t count = ups_shape_elements(f->call.output.shape), at;
    double *values = malloc((size_t)count * sizeof *values);
    run_forward(f);
    ups_reference_forward(&f->reference);
    download(&f->call.output, values);
    const double error = worst_error(values, f->reference.output, count, &at);
    free(values);
    return error;
}

/* A card may round. Its library may choose not to for small products, if that is faster; the emulated one always does.
 */
CLAIM(operands_are_rounded_to_tf32_on_the_emulated_card_and_never_on_the_cpu) {
    skip_where_nothing_is_compared();
    const bool emulated = getenv("SIMT_ORDER") != NULL;
    int found = 0;
    for (int i = 0; i < op_case_count; i++) {
        fixture f;
        if (!op_cases[i].attributes.tf32 || !fixture_create(&f, &op_cases[i], UPS_F32)) continue;
        const double error = forward_error(&f);
        const bool rounds = !on_cpu() && emulated;
        if (!(error <= (on_cpu() ? tolerances[UPS_F32] : tf32_tolerance)) ||
            (rounds && !(error > 2.0 * tolerances[UPS_F32])))
            fail_msg("%s on %s: an error of %.2e", op_cases[i].name, device->class->name, error);
        fixture_destroy(&f);
        found++;
    }
    assert_true(found > 0);
}

/* Of a single key, which weighs 1 whatever its score is: y and dv are v and dy. Scores are some millions, of which a
 * product that is rounded on its way to the exponential would leave a part of 1. */
CLAIM(attention_to_one_key_hands_its_value_on_however_large_the_score_is) {
    enum { SAMPLES = 40, WIDTH = 32, FEATURES = 2 * WIDTH };
    const operand gain = {.kind = VECTOR, .shape = UPS_SHAPE(WIDTH), .spread = 1000.0f};
    const op_case one = {
        .name = "attention to one key",
        .kind = UPS_OP_ATTENTION,
        .attributes = {.heads = 2, .epsilon = 1e-6f},
        .input_count = 4,
        .inputs = {{.kind = COMPUTE, .shape = UPS_SHAPE(SAMPLES, 1, 3 * FEATURES)}, {.kind = ABSENT}, gain, gain},
        .output = {.kind = COMPUTE, .shape = UPS_SHAPE(SAMPLES, 1, FEATURES)},
        .saved = {UPS_SHAPE(SAMPLES, 2, 1), UPS_SHAPE(SAMPLES, 2, 2)}};
    if (!on_cpu()) skip();
    for (int k = 0; k < COMPUTES; k++) {
        static double y[SAMPLES * FEATURES], dx[3 * SAMPLES * FEATURES];
        fixture f;
        if (!fixture_create(&f, &one, computes[k])) continue;
        run_forward(&f);
        download(&f.call.output, y);
        prepare_backward_call(&f);
        give_gradient(&f, 0, 90);
        run_backward(&f);
        download(&f.gradients[0].tensor, dx);
        for (int i = 0; i < SAMPLES * FEATURES; i++) {
            const int v = i / FEATURES * 3 * FEATURES + 2 * FEATURES + i % FEATURES;
            assert_true(fabs(y[i] - f.inputs[0].values[v]) <= 0.01 * fabs(f.inputs[0].values[v]));
            assert_true(fabs(dx[v] - f.output_gradient.values[i]) <= 0.01 * fabs(f.output_gradient.values[i]));
        }
        fixture_destroy(&f);
    }
}

/* A NaN in a query, whatever its bits are, reaches that query's output and all gradients of its head; training stops by
 * them. There are more keys than are worked on at once. */
CLAIM(a_nan_reaches_all_that_attention_makes_of_it) {
    enum { TOKENS = 130, WIDTH = 24, FEATURES = 2 * WIDTH, ROW = 3 * FEATURES, TOKEN = 7 };
    static const uint32_t bits[] = {0x7fc00000, 0xffc00000, 0x7fffffff, 0xffffffff, 0x7fc00001, 0x7f800001};
    const op_case poisoned = {.name = "attention to NaN",
                              .kind = UPS_OP_ATTENTION,
                              .attributes = {.heads = 2, .epsilon = 1e-6f},
                              .input_count = 1,
                              .inputs = {{.kind = COMPUTE, .shape = UPS_SHAPE(1, TOKENS, ROW)}},
                              .output = {.kind = COMPUTE, .shape = UPS_SHAPE(1, TOKENS, FEATURES)},
                              .saved = {UPS_SHAPE(1, 2, TOKENS)}};
    if (!on_cpu()) skip();
    for (size_t b = 0; b < sizeof bits / sizeof *bits; b++) {
        static double y[TOKENS * FEATURES], dx[TOKENS * ROW];
        fixture f;
        assert_true(fixture_create(&f, &poisoned, UPS_F32));
        memcpy((float *)f.call.inputs[0].data + TOKEN * ROW + 3, &bits[b], sizeof bits[b]);
        run_forward(&f);
        download(&f.call.output, y);
        prepare_backward_call(&f);
        give_gradient(&f, 0, 90);
        run_backward(&f);
        download(&f.gradients[0].tensor, dx);
        for (int i = 0; i < TOKENS * FEATURES; i++) {
            const bool first_head = i % FEATURES < WIDTH;
            assert_int_equal(isnan(y[i]), first_head && i / FEATURES == TOKEN);
            for (int part = 1; part < 3; part++) { /* of keys and values; of queries that one alone */
                const double d = dx[i / FEATURES * ROW + part * FEATURES + i % FEATURES];
                assert_int_equal(isnan(d), first_head);
            }
            assert_int_equal(isnan(dx[i / FEATURES * ROW + i % FEATURES]), first_head && i / FEATURES == TOKEN);
        }
        fixture_destroy(&f);
    }
}

CLAIM(every_kind_of_the_list_has_a_case) {
    for (int kind = 0; kind < UPS_OP_COUNT; kind++) {
        bool found = false;
        for (int i = 0; i < op_case_count; i++) found |= (int)op_cases[i].kind == kind;
        if (!found) fail_msg("op '%s' has no case", ups_op_name(kind));
    }
}

/* d(sum of output * weights)/d(element), by central differences of the reference's own forward. */
static double finite_difference(const ups_reference *r, int input, int64_t element) {
    const double h = 1e-5;
    double *x = r->inputs[input] + element, original = *x, sums[2] = {0.0, 0.0};
    for (int side = 0; side < 2; side++) {
        *x = original + (side ? h : -h);
        ups_reference_forward(r);
        for (int64_t i = 0; i < ups_shape_elements(r->output_shape); i++)
            sums[side] += r->output[i] * r->output_gradient[i];
    }
    *x = original;
    return (sums[1] - sums[0]) / (2.0 * h);
}

CLAIM(the_references_own_gradients_agree_with_finite_differences) {
    enum { ELEMENTS = 4 };
    skip_where_nothing_is_compared();
    if (!on_cpu()) skip_because("the reference is the same beside any device");
    if (getenv("UPS_TEST_ONCE_MORE")) skip_because("the reference is the same beside any kernels");
    for (int c = 0; c < op_case_count; c++) {
        if (op_cases[c].kind == UPS_OP_ROUND_F16) continue; /* its gradient passes what it computes by */
        fixture f;
        if (!fixture_create(&f, &op_cases[c], UPS_F32)) continue;
        for (int i = 0; i < op_cases[c].input_count; i++) {
            if (!wants_gradient(&op_cases[c], i)) continue;
            int64_t count = ups_shape_elements(op_cases[c].inputs[i].shape);
            f.gradients[i].values = calloc((size_t)count, sizeof(double));
            f.reference.input_gradients[i] = f.gradients[i].values;
        }
        ups_reference_backward(&f.reference);
        for (int i = 0; i < op_cases[c].input_count; i++) {
            if (!wants_gradient(&op_cases[c], i)) continue;
            ups_random random = ups_random_stream(3, UPS_RANDOM_TEST, (uint32_t)(300 + i));
            for (uint64_t n = 0; n < ELEMENTS; n++) {
                int64_t count = ups_shape_elements(op_cases[c].inputs[i].shape);
                int64_t element = (int64_t)ups_random_below(random, n, (uint64_t)count);
                double expected = finite_difference(&f.reference, i, element);
                double actual = f.reference.input_gradients[i][element];
                if (fabs(actual - expected) <= 1e-6 * fmax(1.0, fabs(expected))) continue;
                fail_msg("%s: the reference's gradient of input %d at %lld is %.9g; finite differences give %.9g",
                         op_cases[c].name, i, (long long)element, actual, expected);
            }
        }
        fixture_destroy(&f);
    }
}

static void *copy_of(const ups_tensor *tensor, size_t *bytes) {
    *bytes = (size_t)ups_shape_elements(tensor->shape) * ups_dtype_size(tensor->dtype);
    void *host = malloc(*bytes + 1);
    ok(device->class->download(device, host, tensor->data, *bytes, &failure));
    return host;
}

/* All results of a case, one behind the other; with `twice` gradients are added to themselves. */
static void *results_of(const op_case *c, ups_dtype compute, bool twice, size_t *total) {
    fixture f;
    *total = 0;
    if (!fixture_create(&f, c, compute)) return calloc(1, 1);
    run_forward(&f);
    ups_tensor results[UPS_MAX_INPUTS + 1] = {f.call.output};
    int count = 1;
    for (int i = 0; i < c->input_count; i++) {
        if (!wants_gradient(c, i)) continue;
        f.gradients[i] = twin_create(&c->inputs[i], UPS_F32, 200);
        results[count++] = f.gradients[i].tensor;
        f.call.input_gradients[i] = f.gradients[i].tensor;
        if (!(ups_op_describe(c->kind)->compute_inputs >> i & 1))
            f.call.input_gradients[i].dtype = results[count - 1].dtype = f.inputs[i].tensor.dtype;
    }
    prepare_backward_call(&f);
    run_backward(&f);
    for (int i = 0; i < c->input_count; i++) f.call.accumulate[i] = twice && wants_gradient(c, i);
    if (twice) run_backward(&f);
    char *all = NULL;
    *total = 0;
    for (int i = 0; i < count; i++) {
        size_t bytes;
        void *host = copy_of(&results[i], &bytes);
        all = realloc(all, *total + bytes + 1);
        memcpy(all + *total, host, bytes);
        *total += bytes;
        free(host);
    }
    fixture_destroy(&f);
    return all;
}

static void *results_on(int threads, const op_case *c, ups_dtype compute, size_t *total) {
    const char *name = getenv("UPS_TEST_DEVICE");
    ok(open_device(name ? name : "cpu", threads, &failure));
    void *results = results_of(c, compute, false, total);
    close_device();
    return results;
}

/* Of linear layers and attention, which take nearly all of an emulated processor's time. */
static bool multiplies_much(const op_case *c) {
    const ups_shape *x = &c->inputs[0].shape, *other = &c->inputs[1].shape;
    const int64_t keys = other->rank == 3 ? other->size[1] : x->size[1];
    double products = 0;
    if (c->kind == UPS_OP_LINEAR || c->kind == UPS_OP_LINEAR_GELU)
        products = (double)ups_shape_elements(*x) * (double)other->size[0];
    if (c->kind == UPS_OP_ATTENTION) products = 2.0 * (double)ups_shape_elements(c->output.shape) * (double)keys;
    return products > 4e6;
}

/* What `test_ops kernels` is for: every kernel forward, backward, and backward once more to be added. */
CLAIM(every_kernel_runs) {
    for (int i = 0; i < op_case_count; i++) {
        if (brief && multiplies_much(&op_cases[i])) continue;
        for (int k = 0; k < COMPUTES && is_meant(&op_cases[i]); k++) {
            size_t bytes;
            void *results = results_of(&op_cases[i], computes[k], true, &bytes);
            if (bytes == 0 && on_cpu()) fail_msg("%s: no results", op_cases[i].name);
            free(results);
        }
    }
}

CLAIM(results_have_the_same_bits_on_any_number_of_threads) {
    const char *order = getenv("SIMT_ORDER"); /* of the emulated device, which has no threads to be told of */
    if (order && strcmp(order, "random") != 0) skip_because("it would do the same twice in this order");
    if (!repeated) skip_because("`test_ops bits` compares them");
    skip_where_nothing_is_compared();
    ups_device *const before = device;
    ups_update_channel *const before_channel = channel;
    for (int i = 0; i < op_case_count; i++) {
        for (int k = 0; k < COMPUTES; k++) {
            ups_dtype compute = computes[k];
            size_t one_bytes, three_bytes;
            void *one = results_on(1, &op_cases[i], compute, &one_bytes);
            void *three = results_on(3, &op_cases[i], compute, &three_bytes);
            if (memcmp(one, three, one_bytes) != 0) {
                fail_msg("%s, %s: one thread and three differ", op_cases[i].name, ups_dtype_name(compute));
            }
            free(one);
            free(three);
        }
    }
    device = before;
    channel = before_channel;
}

static int not_run_here(const char *wanted) {
    static const char *const known[] = {"amx", "avx512_bf16", "avx512", "avx2", "baseline"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(wanted, known[i]) != 0) continue;
        printf("SKIPPED: kernels for %s do not run on this processor, or this kernel does not permit it\n", wanted);
        return UPS_SKIPPED_EXIT;
    }
    fprintf(stderr, "UPS_CPU=%s: no such instruction set\n", wanted);
    return 1;
}

/* Whether no better kernels run here, which are then those of `test_ops` by itself. */
static bool is_best_here(const char *set) {
    if (ups_runs_amx_bf16()) return strcmp(set, "amx") == 0;
    if (ups_runs_avx512_bf16()) return strcmp(set, "avx512_bf16") == 0;
    if (ups_runs_x86_64_v4()) return strcmp(set, "avx512") == 0;
    return strcmp(set, ups_runs_x86_64_v3() ? "avx2" : "baseline") == 0;
}

/* Claims, those of update_kernels.c behind the others, and what they found; with `json` theirs is standard error. */
static int check_claims(bool json) {
    const int output = json ? dup(STDOUT_FILENO) : -1;
    if (json) dup2(STDERR_FILENO, STDOUT_FILENO);
    enter_update_claims(enter_claim);
    const int failed = run_claims(NULL, NULL, NULL);
    if (compared) tally_print();
    fflush(stdout);
    if (json) {
        dup2(output, STDOUT_FILENO);
        close(output);
        tally_print_json(device->class->name, failed);
    }
    return failed == 0 ? 0 : 1;
}

static bool asks_for(int argc, char **argv, const char *mode) {
    return argc > 1 && strcmp(argv[1], mode) == 0;
}

/* Whether what is asked for has the sizes that it is timed at; says what they are. */
static bool has_its_sizes(int argc, char **argv) {
    enum { BEFORE = 2 /* the program and the mode */ };
    static const struct {
        const char *mode, *sizes;
        int count;
    } timed[] = {{"attention", "BATCH HEADS TOKENS HEAD_SIZE", 4},
                 {"linear", "ROWS IN OUT", 3},
                 {"muon", "COUNT ROWS COLUMNS", 3}};
    for (size_t i = 0; i < sizeof timed / sizeof *timed; i++) {
        if (!asks_for(argc, argv, timed[i].mode)) continue;
        bool all = argc == BEFORE + timed[i].count;
        for (int k = BEFORE; k < argc; k++) all = all && atoi(argv[k]) > 0;
        if (!all) fprintf(stderr, "test_ops %s %s\n", timed[i].mode, timed[i].sizes);
        return all;
    }
    return true;
}

int main(int argc, char **argv) {
    const char *name = getenv("UPS_TEST_DEVICE"), *wanted = getenv("UPS_CPU");
    const bool cpu = !name || strcmp(name, "cpu") == 0, json = getenv("UPS_TEST_JSON") != NULL;
    if (cpu && wanted && *wanted && strcmp(wanted, ups_cpu_instruction_set()) != 0) return not_run_here(wanted);
    if (cpu && wanted && getenv("UPS_TEST_ONCE_MORE") && is_best_here(wanted)) {
        printf("SKIPPED: kernels for %s are chosen here, and tested by the run that names none\n", wanted);
        return UPS_SKIPPED_EXIT;
    }
    if (!has_its_sizes(argc, argv)) return 2;
    if (!names_ops_alone(getenv("UPS_TEST_OPS"))) return 2;
    brief = asks_for(argc, argv, "instructions");
    compared = !brief && !asks_for(argc, argv, "kernels");
    if (compared) cmocka_set_skip_filter("every_kernel_runs"); /* they all do */
    repeated = !asks_for(argc, argv, "values");
    if (asks_for(argc, argv, "bits")) cmocka_set_test_filter("*_same_bits_*");
    if (compared && getenv("UPS_TEST_OPS")) cmocka_set_test_filter("*_the_reference*");
    const bool perf = asks_for(argc, argv, "perf");
    if (open_device(name ? name : "cpu", perf && argc > 3 ? atoi(argv[3]) : 0, &failure) != UPS_OK) {
        fprintf(stderr, "%s\n", failure.message);
        return 1;
    }
    if (!json)
        printf("device %s%s%s\n", device->class->name, cpu ? ", kernels for " : "",
               cpu ? ups_cpu_instruction_set() : "");
    int result = 0;
    if (perf)
        measure_ops(argc > 2 ? argv[2] : NULL);
    else if (asks_for(argc, argv, "attention"))
        measure_attention(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), atoi(argv[5]));
    else if (asks_for(argc, argv, "linear"))
        measure_linear(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
    else if (asks_for(argc, argv, "muon"))
        measure_muon(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
    else
        result = check_claims(json);
    close_device();
    return result;
}
