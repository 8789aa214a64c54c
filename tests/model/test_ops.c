/* Every op on a device, forward and backward, against the float64 reference: that is how a kernel is trusted. Kernels
 * are called directly, through ups_op_call, and given only what the op's description promises them.
 *
 *   test_ops            checks all ops in float32, bf16 and fp16, gradients overwritten and accumulated
 *   test_ops kernels    leaves out what checks the reference, for processors that are emulated
 *   test_ops perf [OP] [THREADS]  times those whose name holds OP at the reference operator's shapes instead
 *
 * Tolerances, relative to the largest element of what is compared: float32 1e-5 (sums of up to 1,500 terms with a
 * rounding error of 6e-8 each, random signs); bf16 1e-2 and fp16 1.25e-3 (their own rounding errors are 4e-3 and 5e-4;
 * inputs are rounded before both sides see them, so that only intermediate and final roundings differ).
 *
 * UPS_CPU names the instruction set whose kernels are meant. Where it does not run, all is skipped: the program would
 * choose lesser kernels, and test them under a wrong name. */
#include "base/arena.h"
#include "base/half.h"
#include "base/random.h"
#include "base/system/threads.h"
#include "model/cpu/device.h"
#include "model/device.h"
#include "model/devices/devices.h"
#include "model/update_channel.h"
#include "tests/base/skipping.h"
#include "tests/model/claims.h"
#include "tests/model/op_cases.h"
#include "tests/model/reference/reference.h"
#include <math.h>

static const ups_dtype computes[] = {UPS_F32, UPS_BF16, UPS_F16};
static const double tolerances[] = {[UPS_F32] = 1e-5, [UPS_BF16] = 1e-2, [UPS_F16] = 1.25e-3};
static const double tf32_tolerance = 2.5e-3; /* as many bits as fp16, but they may be cut off */
enum { COMPUTES = sizeof computes / sizeof *computes };

static ups_device *device;
static ups_update_channel *channel; /* on it */

enum { SEED = 11, ITEM = 5 };

static void give(const ups_update_input *input) {
    ok(ups_update_give(channel, input, &failure));
}

/* What stands in the update by now. */
static ups_update take(void) {
    ups_update update;
    ok(ups_update_take(channel, &failure));
    ok(ups_update_read(channel, &update, &failure));
    return update;
}

static ups_status open_device(const char *name, int threads, ups_error *error) {
    UPS_TRY(ups_device_open(&(ups_device_options){.name = name, .threads = threads}, &device, error));
    UPS_TRY(ups_update_open(device, &channel, error));
    return ups_update_give(channel, &(ups_update_input){.seed = SEED, .item = ITEM}, error);
}

static void close_device(void) {
    ups_update_close(channel);
    ups_device_close(device);
}

/* A tensor on the device beside its values in float64. */
typedef struct twin {
    ups_tensor tensor;
    double *values;
} twin;

static ups_dtype dtype_of(operand_kind kind, ups_dtype compute) {
    switch (kind) {
    case COMPUTE:
        return compute;
    case INDEX:
        return UPS_I32;
    case HALF:
        return UPS_F16;
    default:
        return UPS_F32;
    }
}

static void *device_memory(size_t bytes) {
    void *memory = NULL;
    ok(device->class->allocate(device, bytes, &memory, &failure));
    return memory;
}

/* Rounds `values` to the tensor's dtype, in place, and uploads them. */
static void upload(twin *t) {
    size_t count = (size_t)ups_shape_elements(t->tensor.shape), bytes = count * ups_dtype_size(t->tensor.dtype);
    float *single = malloc(count * sizeof *single + 1);
    int32_t *host = malloc(bytes + 1);
    for (size_t i = 0; i < count; i++) single[i] = (float)t->values[i];
    if (t->tensor.dtype == UPS_BF16) {
        ups_f32_to_bf16(single, (ups_bf16 *)host, count);
        ups_bf16_to_f32((ups_bf16 *)host, single, count);
    } else if (t->tensor.dtype == UPS_F16) {
        ups_f32_to_f16(single, (ups_f16 *)host, count);
        ups_f16_to_f32((ups_f16 *)host, single, count);
    } else if (t->tensor.dtype == UPS_I32) {
        for (size_t i = 0; i < count; i++) host[i] = (int32_t)single[i];
    } else {
        memcpy(host, single, bytes);
    }
    for (size_t i = 0; i < count; i++) t->values[i] = (double)single[i];
    ok(device->class->upload(device, t->tensor.data, host, bytes, &failure));
    ok(device->class->synchronize(device, &failure));
    free(single);
    free(host);
}

static twin twin_create(const operand *o, ups_dtype compute, uint32_t stream) {
    twin t = {{.dtype = dtype_of(o->kind, compute), .shape = o->shape}, NULL};
    if (o->kind == ABSENT) return (twin){0};
    size_t count = (size_t)ups_shape_elements(o->shape);
    t.tensor.data = device_memory(count * ups_dtype_size(t.tensor.dtype));
    t.values = calloc(count, sizeof *t.values);
    ups_random random = ups_random_stream(7, UPS_RANDOM_TEST, stream);
    for (size_t i = 0; i < count; i++) {
        if (o->kind == INDEX)
            t.values[i] = (double)ups_random_below(random, i, (uint64_t)o->bound);
        else
            t.values[i] = (o->spread > 0.0f ? (double)o->spread : 1.0) * ups_random_normal(random, i);
    }
    upload(&t);
    return t;
}

static void twin_destroy(twin *t) {
    if (t->tensor.data) device->class->release(device, t->tensor.data);
    free(t->values);
}

static void download(const ups_tensor *tensor, double *values) {
    size_t count = (size_t)ups_shape_elements(tensor->shape), bytes = count * ups_dtype_size(tensor->dtype);
    void *host = malloc(bytes + 1);
    float *single = malloc(count * sizeof *single + 1);
    ok(device->class->download(device, host, tensor->data, bytes, &failure));
    if (tensor->dtype == UPS_BF16)
        ups_bf16_to_f32(host, single, count);
    else if (tensor->dtype == UPS_F16)
        ups_f16_to_f32(host, single, count);
    else
        memcpy(single, host, bytes);
    for (size_t i = 0; i < count; i++) values[i] = (double)single[i];
    free(host);
    free(single);
}

/* One case in one dtype: its tensors, and the reference over the same values. */
typedef struct fixture {
    const op_case *c;
    ups_dtype compute;
    ups_kernel kernel;
    twin inputs[UPS_MAX_INPUTS], output, output_gradient, gradients[UPS_MAX_INPUTS];
    ups_op_call call;
    ups_reference reference;
    void *workspace;
} fixture;

static bool wants_gradient(const op_case *c, int input) {
    operand_kind kind = c->inputs[input].kind;
    return (ups_op_describe(c->kind)->gradient_inputs >> input & 1) && kind != ABSENT && kind != INDEX && kind != HALF;
}

static void fixture_destroy(fixture *f) {
    for (int i = 0; i < f->c->input_count; i++) {
        twin_destroy(&f->inputs[i]);
        twin_destroy(&f->gradients[i]);
    }
    twin_destroy(&f->output);
    twin_destroy(&f->output_gradient);
    for (int i = 0; i < UPS_MAX_SAVED; i++) {
        if (f->c->saved[i].rank > 0) device->class->release(device, f->call.saved[i].data);
    }
    if (f->kernel.release) f->kernel.release(f->kernel.state);
    if (f->workspace) device->class->release(device, f->workspace);
}

/* False: the device has no kernel for this op, which the claim below says once. */
static bool fixture_create(fixture *f, const op_case *c, ups_dtype compute) {
    *f = (fixture){.c = c, .compute = compute};
    f->call = (ups_op_call){.kind = c->kind,
                            .attributes = &c->attributes,
                            .input_count = c->input_count,
                            .training = c->training,
                            .update = ups_update_memory(channel)};
    f->reference = (ups_reference){c->kind, &c->attributes, c->input_count, .training = c->training, .seed = SEED};
    f->reference.step = ITEM;
    for (int i = 0; i < c->input_count; i++) {
        f->inputs[i] = twin_create(&c->inputs[i], compute, (uint32_t)i + 1);
        f->call.inputs[i] = f->inputs[i].tensor;
        f->reference.shapes[i] = f->inputs[i].tensor.shape;
        f->reference.inputs[i] = f->inputs[i].values;
    }
    f->output = twin_create(&c->output, compute, 100);
    f->output_gradient = twin_create(&c->output, compute, 101);
    f->call.output = f->output.tensor;
    f->reference.output_shape = c->output.shape;
    f->reference.output = f->output.values;
    f->reference.output_gradient = f->output_gradient.values;
    for (int i = 0; i < UPS_MAX_SAVED && c->saved[i].rank > 0; i++) {
        ups_dtype dtype = ups_op_describe(c->kind)->saved_like_output ? f->output.tensor.dtype : UPS_F32;
        size_t bytes = (size_t)ups_shape_elements(c->saved[i]) * ups_dtype_size(dtype);
        f->call.saved[i] = (ups_tensor){.data = device_memory(bytes), .dtype = dtype, .shape = c->saved[i]};
    }
    ups_op_call shapes = f->call;
    for (int i = 0; i < c->input_count; i++) shapes.inputs[i].data = NULL;
    shapes.output.data = NULL;
    for (int i = 0; i < UPS_MAX_SAVED; i++) shapes.saved[i].data = NULL;
    ok(device->class->kernel(device, &shapes, true, &f->kernel, &failure));
    f->call.state = f->kernel.state;
    f->workspace = f->call.workspace = device_memory(f->kernel.workspace_bytes);
    if (f->kernel.forward) return true;
    fixture_destroy(f);
    return false;
}

static void run_forward(fixture *f) {
    if (f->kernel.forward(device, &f->call, &failure) != UPS_OK) fail_msg("%s: %s", f->c->name, failure.message);
}

/* What backward is promised, and no more: the rest is absent. */
static void prepare_backward_call(fixture *f) {
    const ups_op_description *description = ups_op_describe(f->c->kind);
    for (int i = 0; i < f->c->input_count; i++) {
        if (!(ups_op_backward_inputs(f->c->kind, description->gradient_inputs) >> i & 1)) f->call.inputs[i].data = NULL;
    }
    if (!description->backward_output) f->call.output.data = NULL;
    f->call.output_gradient = f->output_gradient.tensor;
}

static void run_backward(fixture *f) {
    if (f->kernel.backward(device, &f->call, &failure) != UPS_OK) fail_msg("%s: %s", f->c->name, failure.message);
}

static bool on_cpu(void) {
    return strcmp(device->class->name, "cpu") == 0;
}

static void compare(const fixture *f, const char *what, const double *expected, const ups_tensor *tensor) {
    int64_t count = ups_shape_elements(tensor->shape), worst_at = 0;
    double *values = malloc((size_t)count * sizeof *values), largest = 1e-30, worst = 0.0;
    download(tensor, values);
    for (int64_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs(expected[i]));
        double error = fabs(values[i] - expected[i]);
        if (!(error <= worst)) worst = error, worst_at = i;
    }
    bool tf32 = f->c->attributes.tf32 && f->compute == UPS_F32 && !on_cpu();
    double tolerance = tf32 ? tf32_tolerance : tolerances[f->compute];
    if (f->c->looser > 0.0f) tolerance *= (double)f->c->looser;
    double actual = values[worst_at];
    free(values);
    if (worst <= tolerance * largest) return;
    fail_msg("%s, %s, %s: element %lld is %.9g; %.9g was expected (error %.2e of the largest element, %.2e allowed)",
             f->c->name, ups_dtype_name(f->compute), what, (long long)worst_at, actual, expected[worst_at],
             worst / largest, tolerance);
}

static void check_forward(const op_case *c, ups_dtype compute) {
    fixture f;
    if (!fixture_create(&f, c, compute)) return;
    run_forward(&f);
    ups_reference_forward(&f.reference);
    compare(&f, "output", f.reference.output, &f.call.output);
    fixture_destroy(&f);
}

/* A gradient for input `i`: that of a parameter is float32 whatever its copy for compute is. */
static void give_gradient(fixture *f, int i, uint32_t stream) {
    operand o = f->c->inputs[i];
    if ((ups_op_describe(f->c->kind)->compute_inputs >> i & 1)) o.kind = STREAM;
    f->gradients[i] = twin_create(&o, f->compute, stream);
    f->call.input_gradients[i] = f->gradients[i].tensor;
}

static void check_backward(const op_case *c, ups_dtype compute, bool accumulate) {
    fixture f;
    if (!fixture_create(&f, c, compute)) return;
    run_forward(&f);
    prepare_backward_call(&f);
    for (int i = 0; i < c->input_count; i++) {
        if (!wants_gradient(c, i)) continue;
        give_gradient(&f, i, 200 + (uint32_t)i);
        f.call.accumulate[i] = accumulate;
        if (!accumulate)
            memset(f.gradients[i].values, 0, (size_t)ups_shape_elements(c->inputs[i].shape) * sizeof(double));
        f.reference.input_gradients[i] = f.gradients[i].values;
    }
    run_backward(&f);
    ups_reference_backward(&f.reference);
    for (int i = 0; i < c->input_count; i++) {
        char what[64];
        snprintf(what, sizeof what, "gradient of input %d%s", i, accumulate ? ", accumulated" : "");
        if (wants_gradient(c, i)) compare(&f, what, f.gradients[i].values, &f.gradients[i].tensor);
    }
    fixture_destroy(&f);
}

/* The CPU has them all. Another device may have fewer; what it lacks is told. */
CLAIM(every_op_has_a_kernel) {
    bool lacks[UPS_OP_COUNT] = {false};
    char names[1000] = "";
    for (int i = 0; i < op_case_count; i++) {
        fixture f;
        if (lacks[op_cases[i].kind]) continue;
        lacks[op_cases[i].kind] = !fixture_create(&f, &op_cases[i], UPS_F32);
        if (!lacks[op_cases[i].kind]) fixture_destroy(&f);
    }
    for (int kind = 0; kind < UPS_OP_COUNT; kind++) {
        size_t length = strlen(names);
        if (lacks[kind]) snprintf(names + length, sizeof names - length, " %s", ups_op_name(kind));
    }
    if (!names[0]) return;
    if (on_cpu()) fail_msg("the CPU has no kernel for%s", names);
    skip_because("the device '%s' has no kernel for%s", device->class->name, names);
}

CLAIM(every_op_computes_what_the_reference_does) {
    for (int i = 0; i < op_case_count; i++) {
        for (int k = 0; k < COMPUTES; k++) check_forward(&op_cases[i], computes[k]);
    }
}

CLAIM(every_gradient_is_that_of_the_reference) {
    for (int i = 0; i < op_case_count; i++) {
        for (int k = 0; k < COMPUTES; k++) check_backward(&op_cases[i], computes[k], false);
    }
}

CLAIM(gradients_add_to_what_is_there_when_told_to) {
    for (int i = 0; i < op_case_count; i++) {
        for (int k = 0; k < COMPUTES; k++) check_backward(&op_cases[i], computes[k], true);
    }
}

/* Largest error of the output, relative to its largest element. */
static double forward_error(fixture *f) {
    int64_t count = ups_shape_elements(f->call.output.shape);
    double *values = malloc((size_t)count * sizeof *values), worst = 0.0, largest = 0.0;
    run_forward(f);
    ups_reference_forward(&f->reference);
    download(&f->call.output, values);
    for (int64_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs(f->reference.output[i]));
        worst = fmax(worst, fabs(values[i] - f->reference.output[i]));
    }
    free(values);
    return worst / largest;
}

CLAIM(operands_are_rounded_to_tf32_on_a_card_alone) {
    int found = 0;
    for (int i = 0; i < op_case_count; i++) {
        fixture f;
        if (!op_cases[i].attributes.tf32 || !fixture_create(&f, &op_cases[i], UPS_F32)) continue;
        double error = forward_error(&f);
        if (on_cpu() ? !(error <= tolerances[UPS_F32]) : !(error > 2.0 * tolerances[UPS_F32]))
            fail_msg("%s on %s: an error of %.2e", op_cases[i].name, device->class->name, error);
        fixture_destroy(&f);
        found++;
    }
    assert_true(found > 0);
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

/* All results of a case, one behind the other. */
static void *results_of(const op_case *c, ups_dtype compute, size_t *total) {
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
    void *results = results_of(c, compute, total);
    close_device();
    return results;
}

CLAIM(results_have_the_same_bits_on_any_number_of_threads) {
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

/* `rested`: steps of a run that did not move these weights, before those that do. */
static void check_adamw(ups_dtype compute, int64_t rested) {
    enum { COUNT = 5003, STEPS = 3, SET = 2 };
    float *buffers[5];
    double w[COUNT], m[COUNT] = {0}, v[COUNT] = {0}, ema[COUNT];
    uint16_t *copy = device_memory(COUNT * sizeof *copy), host_copy[COUNT];
    float host[COUNT], values[COUNT];
    for (int i = 0; i < 5; i++) buffers[i] = device_memory(sizeof host);
    ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, 1), 1.0f, host, COUNT);
    for (int i = 0; i < COUNT; i++) w[i] = ema[i] = (double)host[i];
    device->class->upload(device, buffers[0], host, sizeof host, &failure);
    device->class->upload(device, buffers[4], host, sizeof host, &failure);
    const ups_range halves[] = {{0, COUNT / 2, 0}, {COUNT / 2, COUNT - COUNT / 2, COUNT / 2}};
    ups_range *ranges = device_memory(sizeof halves);
    device->class->upload(device, ranges, halves, sizeof halves, &failure);
    /* Gradients that carry a loss scale of 2 are halved. */
    ok(ups_update_restore(channel, &(ups_update_state){.loss_scale = 2}, &failure));
    for (int64_t step = 1; step <= STEPS; step++) {
        ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, 1 + (uint32_t)step), 0.01f, host, COUNT);
        device->class->upload(device, buffers[1], host, sizeof host, &failure);
        ups_update *update = ups_update_memory(channel);
        ups_optimizer_call call = {.ranges = ranges,
                                   .range_count = 2,
                                   .range_elements = COUNT,
                                   .values = buffers[0],
                                   .gradients = buffers[1],
                                   .moments = {buffers[2], buffers[3]},
                                   .update = update};
        call.ema = buffers[4];
        call.compute = copy;
        call.compute_dtype = compute;
        call.beta1 = 0.9f, call.beta2 = 0.95f, call.epsilon = 1e-8f;
        call.weight_decay = 0.1f, call.ema_decay = 0.99f;
        call.set = SET;
        ups_update_input input = {.step = step - 1 + rested, .learning_rate = 1e-2f};
        ups_update_rules rules = {.trained = {[SET] = true}};
        give(&input);
        ok(device->class->decide(device, &rules, update, &failure));
        ok(device->class->optimize(device, &call, &failure));
        for (int i = 0; i < COUNT; i++) {
            double g = 0.5 * (double)host[i], b1 = (double)call.beta1, b2 = (double)call.beta2;
            m[i] = b1 * m[i] + (1 - b1) * g;
            v[i] = b2 * v[i] + (1 - b2) * g * g;
            double m_hat = m[i] / (1 - pow(b1, (double)step)), v_hat = v[i] / (1 - pow(b2, (double)step));
            w[i] -= (double)input.learning_rate *
                    (m_hat / (sqrt(v_hat) + (double)call.epsilon) + (double)call.weight_decay * w[i]);
            double decay = fmin((double)call.ema_decay, (double)step / (double)(9 + step));
            ema[i] = decay * ema[i] + (1 - decay) * w[i];
        }
    }
    device->class->download(device, values, buffers[0], sizeof values, &failure);
    device->class->download(device, host, buffers[4], sizeof host, &failure);
    device->class->download(device, host_copy, copy, sizeof host_copy, &failure);
    for (int i = 0; i < COUNT; i++) {
        float rounded;
        (compute == UPS_F16 ? ups_f16_to_f32 : ups_bf16_to_f32)(&host_copy[i], &rounded, 1);
        assert_true(fabs((double)values[i] - w[i]) < 1e-6 * (1.0 + fabs(w[i])));
        assert_true(fabs((double)host[i] - ema[i]) < 1e-6 * (1.0 + fabs(ema[i])));
        assert_true(fabs((double)rounded - w[i]) < (compute == UPS_F16 ? 5e-4 : 4e-3) * fabs(w[i]) + 1e-6);
    }
    for (int i = 0; i < 5; i++) device->class->release(device, buffers[i]);
    device->class->release(device, copy);
    device->class->release(device, ranges);
    ok(ups_update_restore(channel, &(ups_update_state){.loss_scale = 1}, &failure));
}

CLAIM(adamw_follows_the_paper) {
    check_adamw(UPS_BF16, 0);
    check_adamw(UPS_BF16, 40);
    check_adamw(UPS_F16, 0);
}

CLAIM(the_norm_counts_what_is_not_finite) {
    enum { COUNT = 100003 };
    float *host = malloc(COUNT * sizeof *host), *x = device_memory(COUNT * sizeof *x);
    double expected = 0.0;
    ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, 9), 3.0f, host, COUNT);
    for (int i = 0; i < COUNT; i++) expected += (double)host[i] * (double)host[i];
    device->class->upload(device, x, host, COUNT * sizeof *x, &failure);
    ok(device->class->norm(device, x, COUNT, ups_update_memory(channel), &failure));
    ups_update_result found = take().result;
    assert_int_equal(found.non_finite, 0);
    assert_true(fabs(found.squared_norm - expected) < 1e-12 * expected);
    host[5] = NAN, host[70000] = -INFINITY, host[COUNT - 1] = INFINITY;
    device->class->upload(device, x, host, COUNT * sizeof *x, &failure);
    ok(device->class->norm(device, x, COUNT, ups_update_memory(channel), &failure));
    assert_int_equal(take().result.non_finite, 3);
    device->class->release(device, x);
    free(host);
}

CLAIM(losses_are_added_by_task_and_by_loss) {
    enum { WINDOWS = 300, TERMS = 5, TASKS = 7, ROUNDS = 2 };
    static const int loss_of[TERMS] = {0, 3, 3, 0, UPS_UPDATE_MAX_LOSSES - 1};
    ups_update *update = ups_update_memory(channel);
    ups_losses_call call = {.term_count = TERMS, .windows = WINDOWS, .update = update};
    double by_task[TASKS] = {0}, by_loss[UPS_UPDATE_MAX_LOSSES] = {0};
    int64_t windows[TASKS] = {0};
    float *terms[TERMS], host[WINDOWS];
    int32_t *tasks = device_memory(WINDOWS * sizeof *tasks), host_tasks[WINDOWS];
    for (int i = 0; i < WINDOWS; i++) {
        host_tasks[i] = (int32_t)ups_random_below(ups_random_stream(1, UPS_RANDOM_TEST, 20), (uint64_t)i, TASKS);
        windows[host_tasks[i]] += ROUNDS;
    }
    ok(device->class->upload(device, tasks, host_tasks, sizeof host_tasks, &failure));
    for (int term = 0; term < TERMS; term++) {
        call.weights[term] = 0.25f * (float)(term + 1);
        call.loss_of[term] = loss_of[term];
        call.terms[term] = terms[term] = device_memory(sizeof host);
        ups_random_fill_uniform(ups_random_stream(1, UPS_RANDOM_TEST, 21 + (uint32_t)term), 0, 1, host, WINDOWS);
        for (int i = 0; i < WINDOWS; i++) {
            double value = ROUNDS * (double)call.weights[term] * (double)host[i];
            by_task[host_tasks[i]] += value;
            by_loss[loss_of[term]] += value;
        }
        ok(device->class->upload(device, terms[term], host, sizeof host, &failure));
        ok(device->class->synchronize(device, &failure));
    }
    call.tasks = tasks;
    give(&(ups_update_input){.micro_batch = 0});
    for (int round = 0; round < ROUNDS; round++) ok(device->class->add_losses(device, &call, &failure));
    ups_update_result found = take().result;
    for (int task = 0; task < TASKS; task++) {
        assert_int_equal(found.windows[task], windows[task]);
        assert_true(fabs(found.loss[task] - by_task[task]) < 1e-6 * by_task[task]);
    }
    for (int loss = 0; loss < UPS_UPDATE_MAX_LOSSES; loss++) {
        assert_int_equal(found.part_windows[loss], by_loss[loss] > 0 ? ROUNDS * WINDOWS : 0);
        assert_true(fabs(found.part[loss] - by_loss[loss]) <= 1e-6 * by_loss[loss]);
    }
    assert_int_equal(found.bad_micro_batch, 0);
    host[WINDOWS - 1] = INFINITY;
    ok(device->class->upload(device, terms[1], host, sizeof host, &failure));
    give(&(ups_update_input){.micro_batch = 2});
    for (int round = 0; round < ROUNDS; round++) ok(device->class->add_losses(device, &call, &failure));
    assert_int_equal(take().result.bad_micro_batch, 3);
    for (int term = 0; term < TERMS; term++) device->class->release(device, terms[term]);
    device->class->release(device, tasks);
}

static double multiplications(const op_case *c) {
    if (c->kind == UPS_OP_LINEAR || c->kind == UPS_OP_LINEAR_GELU) {
        return 2.0 * (double)ups_shape_rows(c->inputs[0].shape) * (double)ups_shape_elements(c->inputs[1].shape);
    }
    if (c->kind == UPS_OP_ATTENTION)
        return 4.0 * (double)ups_shape_elements(c->output.shape) * (double)c->output.shape.size[1];
    return 0.0;
}

static double bytes_of(const ups_tensor *tensor) {
    if (!tensor->data) return 0.0;
    return (double)ups_shape_elements(tensor->shape) * (double)ups_dtype_size(tensor->dtype);
}

/* The fastest of some runs: other work on the machine only adds. */
static double fastest(fixture *f, void (*run)(fixture *)) {
    enum { RUNS = 30 };
    double best = 1e9;
    for (int i = 0; i < RUNS; i++) {
        double start = ups_now();
        run(f);
        device->class->synchronize(device, &failure);
        best = fmin(best, ups_now() - start);
    }
    return best;
}

static void print_speed(const char *name, ups_dtype compute, const char *way, double seconds, double flop,
                        double bytes) {
    printf("%-20s %-9s %-9s %9.1f us", name, ups_dtype_name(compute), way, seconds * 1e6);
    if (flop > 0.0)
        printf(" %9.1f GFLOP/s\n", flop / seconds * 1e-9);
    else
        printf(" %9.1f GB/s\n", bytes / seconds * 1e-9);
}

static void measure(const op_case *c, ups_dtype compute) {
    fixture f;
    if (!fixture_create(&f, c, compute)) return;
    double bytes = bytes_of(&f.call.output), flop = multiplications(c);
    for (int i = 0; i < c->input_count; i++) bytes += bytes_of(&f.call.inputs[i]);
    print_speed(c->name, compute, "forward", fastest(&f, run_forward), flop, bytes);
    prepare_backward_call(&f);
    bytes = bytes_of(&f.call.output_gradient);
    for (int i = 0; i < c->input_count; i++) {
        if (!wants_gradient(c, i)) continue;
        give_gradient(&f, i, 200);
        bytes += bytes_of(&f.call.inputs[i]) + bytes_of(&f.gradients[i].tensor);
    }
    double factor = c->kind == UPS_OP_ATTENTION ? 2.5 : 2.0;
    print_speed(c->name, compute, "backward", fastest(&f, run_backward), factor * flop, bytes);
    fixture_destroy(&f);
}

static void measure_adamw(void) {
    enum { COUNT = 21400000 };
    const ups_range all = {0, COUNT, 0};
    ups_range *ranges = device_memory(sizeof all);
    device->class->upload(device, ranges, &all, sizeof all, &failure);
    ups_optimizer_call call = {
        .ranges = ranges, .range_count = 1, .range_elements = COUNT, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f};
    ups_update_rules rules = {.trained = {true}};
    call.weight_decay = 0.03f;
    call.update = ups_update_memory(channel);
    float **buffers[] = {&call.values, &call.gradients, &call.moments[0], &call.moments[1]};
    for (int i = 0; i < 4; i++) *buffers[i] = device_memory(COUNT * sizeof(float));
    call.compute = device_memory(COUNT * sizeof *call.compute);
    call.compute_dtype = UPS_BF16;
    double best = 1e9;
    for (int64_t step = 0; step < 9; step++) {
        give(&(ups_update_input){.step = step, .learning_rate = 1e-3f});
        double start = ups_now();
        device->class->decide(device, &rules, ups_update_memory(channel), &failure);
        device->class->optimize(device, &call, &failure);
        device->class->synchronize(device, &failure);
        best = fmin(best, ups_now() - start);
    }
    print_speed("adamw, 21.4 M", UPS_F32, "", best, 0.0, 30.0 * COUNT);
    for (int i = 0; i < 4; i++) device->class->release(device, *buffers[i]);
    device->class->release(device, call.compute);
    device->class->release(device, ranges);
}

static int perf(const char *only) {
    for (size_t i = 0; i < (size_t)op_perf_case_count; i++) {
        if (only && !strstr(op_perf_cases[i].name, only)) continue;
        for (int k = 0; k < COMPUTES; k++) measure(&op_perf_cases[i], computes[k]);
    }
    if (!only || strstr("adamw", only)) measure_adamw();
    return 0;
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

int main(int argc, char **argv) {
    const char *name = getenv("UPS_TEST_DEVICE"), *wanted = getenv("UPS_CPU");
    if (!name && wanted && *wanted && strcmp(wanted, ups_cpu_instruction_set()) != 0) return not_run_here(wanted);
    if (argc > 1 && strcmp(argv[1], "kernels") == 0) cmocka_set_skip_filter("the_references_own_*");
    if (open_device(name ? name : "cpu", argc > 3 ? atoi(argv[3]) : 0, &failure) != UPS_OK) {
        fprintf(stderr, "%s\n", failure.message);
        return 1;
    }
    if (name)
        printf("device %s\n", name);
    else
        printf("device cpu, kernels for %s\n", ups_cpu_instruction_set());
    int result =
        argc > 1 && strcmp(argv[1], "perf") == 0 ? perf(argc > 2 ? argv[2] : NULL) : run_claims(NULL, NULL, NULL);
    close_device();
    return result;
}
