/* A residual and the norm of its sum run in one pass where the device can: not a bit is different from the two run by
 * themselves, whatever reads the sum, and whoever else gives it a gradient. Of a hidden layer and the linear that reads
 * it the second's gradient becomes the first's without being made: the hidden bias alone may be summed in another
 * order. */
#include "model/differentiate.h"
#include "model/ops.h"
#include "tests/model/claims.h"
#include "tests/model/step_models.h"

enum { BATCH = 3, TOKENS = 5, DEPTH = 2 /* blocks */ };

typedef struct kind {
    ups_dtype compute;
    int64_t width;
    float drop_path;
    bool rms, bare; /* bare: gains and biases are absent */
    bool half;      /* the stream is in the compute dtype */
} kind;

static ups_value norm_of(ups_graph *g, const kind *k, ups_value x, int index) {
    ups_graph_scope(g, "norm.%d", index);
    ups_value gain = ups_graph_parameter(g, "gain", UPS_SHAPE(k->width), small);
    if (k->rms) return ups_rms_norm(g, x, gain);
    ups_value bias = k->bare ? UPS_NO_VALUE : ups_graph_parameter(g, "bias", UPS_SHAPE(k->width), small);
    return ups_layer_norm(g, x, k->bare ? UPS_NO_VALUE : gain, bias, false);
}

static ups_value linear_of(ups_graph *g, ups_value x, int64_t width, const char *name, bool output_f32) {
    ups_graph_scope(g, "%s", name);
    ups_value weight = ups_graph_parameter(g, "weight", UPS_SHAPE(width, ups_shape_last(ups_graph_info(g, x)->shape)),
                                           (ups_init){.kind = UPS_INIT_NORMAL, .scale = 0.1f});
    return ups_linear(g, x, weight, UPS_NO_VALUE, output_f32);
}

static ups_value branch_of(ups_graph *g, const kind *k, ups_value x, int index) {
    char name[32];
    snprintf(name, sizeof name, "branch.%d", index);
    return linear_of(g, x, k->width, name, false);
}

/* A stream of residuals as blocks have it, two a block. The first adds to what has no gradient. The second adds data,
 * and its input is read again at the end, so that it adds to a gradient. The last adds data to what nothing reads after
 * it: it hands its gradient on for nothing, and its norm's backward runs alone. */
static model stream(const kind *k, bool unpaired) {
    model m = begin(k->compute);
    ups_graph *g = m.graph;
    g->unpaired = unpaired;
    ups_shape shape = UPS_SHAPE(BATCH, TOKENS, k->width);
    ups_value x = ups_graph_input(g, "x", UPS_F32, shape), given = ups_graph_input(g, "given", UPS_F32, shape);
    if (k->half) x = ups_cast(g, x, k->compute);
    ups_value sum = ups_residual(g, x, linear_of(g, x, k->width, "first", false), UPS_NO_VALUE, k->drop_path, 0);
    ups_value normed = norm_of(g, k, sum, 0), early = sum;
    sum = ups_residual(g, sum, given, UPS_NO_VALUE, 0, 1);
    normed = ups_add(g, normed, norm_of(g, k, sum, 1));
    for (int i = 0; i < 2 * DEPTH; i++) {
        if (i % 2 == 0) ups_graph_begin_block(g);
        sum = ups_residual(g, sum, branch_of(g, k, normed, i), UPS_NO_VALUE, k->drop_path, 2 + (uint32_t)i);
        normed = norm_of(g, k, sum, 2 + i);
        if (i % 2 == 1) ups_graph_end_block(g);
    }
    sum = ups_residual(g, sum, given, UPS_NO_VALUE, 0, 2 + 2 * DEPTH);
    normed = ups_add(g, normed, norm_of(g, k, sum, 2 + 2 * DEPTH));
    sum = ups_add(g, sum, early);
    ups_value y = ups_add(g, linear_of(g, normed, k->width, "last", true), sum);
    m.loss = mean_square(g, y, ups_graph_input(g, "target", UPS_F32, shape));
    ups_graph_differentiate(g, m.loss);
    ready(&m);
    upload_random(&m, "x", 0);
    upload_random(&m, "given", 1);
    upload_random(&m, "target", 2);
    return m;
}

/* Pairs of the schedule, forward and backward. */
static void count_pairs(const ups_graph *graph, int pairs[3]) {
    ups_schedule schedule;
    ok(ups_schedule_create(graph, &schedule, &failure));
    memset(pairs, 0, 3 * sizeof *pairs);
    for (int32_t at = 0; at < schedule.count; at++)
        pairs[schedule.entries[at].action] += schedule.entries[at].with_next;
    ups_schedule_destroy(&schedule);
}

static void compare(const kind *k) {
    model pairs = stream(k, false), alone = stream(k, true);
    size_t bytes = sizeof(float) * (size_t)ups_parameters_elements(pairs.parameters);
    int counts[3];
    count_pairs(alone.graph, counts);
    assert_int_equal(counts[UPS_FORWARD] + counts[UPS_BACKWARD] + counts[UPS_RECOMPUTE], 0);
    count_pairs(pairs.graph, counts);
    assert_int_equal(counts[UPS_FORWARD], 3 + 2 * DEPTH);
    assert_int_equal(counts[UPS_BACKWARD], 3 + 2 * DEPTH);
    assert_int_equal(counts[UPS_RECOMPUTE], checkpointing == UPS_CHECKPOINTING_NONE ? 0 : DEPTH);
    float *values = values_of(&pairs);
    upload_values(&alone, values);
    settings how = train;
    for (int run_again = 0; run_again < 2; run_again++) {
        how.accumulate = run_again;
        how.item = (uint64_t)run_again;
        run(&pairs, how);
        run(&alone, how);
        float *got = gradients_of(&pairs), *expected = gradients_of(&alone);
        assert_true(loss_of(&pairs) == loss_of(&alone));
        assert_memory_equal(got, expected, bytes);
        free(got);
        free(expected);
    }
    free(values);
    end(pairs);
    end(alone);
}

static void compare_all(const kind *kinds, int count) {
    for (int i = 0; i < count; i++) {
        for (checkpointing = UPS_CHECKPOINTING_NONE; checkpointing <= UPS_CHECKPOINTING_BLOCK; checkpointing++)
            compare(&kinds[i]);
    }
    checkpointing = UPS_CHECKPOINTING_NONE;
}

CLAIM(a_pair_gives_the_bits_of_its_two_ops) {
    const kind kinds[] = {{.compute = UPS_F32, .width = 48},
                          {.compute = UPS_F32, .width = 48, .drop_path = 0.5f},
                          {.compute = UPS_F32, .width = 40, .rms = true},
                          {.compute = UPS_BF16, .width = 64, .drop_path = 0.5f},
                          {.compute = UPS_BF16, .width = 64, .bare = true},
                          {.compute = UPS_F16, .width = 96},
                          {.compute = UPS_BF16, .width = 64, .drop_path = 0.5f, .half = true},
                          {.compute = UPS_F16, .width = 48, .rms = true, .half = true}};
    compare_all(kinds, sizeof kinds / sizeof *kinds);
}

CLAIM(so_it_does_for_widths_that_do_not_fit_vectors_or_registers) {
    const kind kinds[] = {{.compute = UPS_F32, .width = 7, .drop_path = 0.5f},
                          {.compute = UPS_F32, .width = 99, .drop_path = 0.5f},
                          {.compute = UPS_BF16, .width = 131, .rms = true},
                          {.compute = UPS_BF16, .width = 384, .drop_path = 0.5f},
                          {.compute = UPS_BF16, .width = 384, .drop_path = 0.5f, .half = true},
                          {.compute = UPS_BF16, .width = 1032, .half = true},
                          {.compute = UPS_F32, .width = 1032}};
    compare_all(kinds, sizeof kinds / sizeof *kinds);
}

/* ---- hidden layers -------------------------------------------------------------------------------------------------
 */

typedef struct hidden_kind {
    ups_dtype compute;
    int64_t rows, width, hidden;
    bool bare; /* without biases */
} hidden_kind;

static ups_value biased(ups_graph *g, ups_value x, int64_t width, const char *name, int index, bool bare) {
    const int64_t features = ups_shape_last(ups_graph_info(g, x)->shape);
    ups_graph_scope(g, "%s.%d", name, index);
    ups_value weight = ups_graph_parameter(g, "weight", UPS_SHAPE(width, features),
                                           (ups_init){.kind = UPS_INIT_NORMAL, .scale = 0.05f});
    return ups_linear(g, x, weight, bare ? UPS_NO_VALUE : ups_graph_parameter(g, "bias", UPS_SHAPE(width), small),
                      false);
}

/* Two hidden layers, a block each, and a third one whose values something else reads, too. */
static model hidden_layers(const hidden_kind *k, bool unpaired) {
    model m = begin(k->compute);
    ups_graph *g = m.graph;
    g->unpaired = unpaired;
    ups_shape shape = UPS_SHAPE(k->rows, k->width);
    ups_value x = linear_of(g, ups_graph_input(g, "x", UPS_F32, shape), k->width, "in", false);
    for (int i = 0; i < 2; i++) {
        ups_graph_begin_block(g);
        x = ups_add(g, x,
                    biased(g, ups_gelu(g, biased(g, x, k->hidden, "up", i, k->bare)), k->width, "down", i, k->bare));
        ups_graph_end_block(g);
    }
    ups_value read_twice = ups_gelu(g, biased(g, x, k->width, "up", 2, k->bare));
    x = ups_add(g, biased(g, read_twice, k->width, "down", 2, k->bare), read_twice);
    m.loss = mean_square(g, linear_of(g, x, k->width, "out", true), ups_graph_input(g, "target", UPS_F32, shape));
    ups_graph_differentiate(g, m.loss);
    ready(&m);
    upload_random(&m, "x", 0);
    upload_random(&m, "target", 1);
    return m;
}

static void compare_gradients(const model *m, const float *got, const float *expected) {
    for (int32_t i = 0; i < ups_parameters_count(m->parameters); i++) {
        const ups_parameter *p = ups_parameters_get(m->parameters, i);
        const float *a = got + p->offset, *b = expected + p->offset;
        if (strncmp(p->name, "up.", 3) == 0 && strstr(p->name, "bias"))
            assert_true(difference(a, b, p->elements) < 1e-5);
        else
            assert_memory_equal(a, b, (size_t)p->elements * sizeof *a);
    }
}

static void compare_hidden(const hidden_kind *k) {
    model pairs = hidden_layers(k, false), alone = hidden_layers(k, true);
    const bool fused = checkpointing != UPS_CHECKPOINTING_CHEAP; /* a linear and its GELU */
    int counts[3];
    count_pairs(pairs.graph, counts);
    assert_int_equal(counts[UPS_FORWARD], 0);
    assert_int_equal(counts[UPS_BACKWARD], k->compute != UPS_F32 && fused ? 2 : 0);
    float *values = values_of(&pairs);
    upload_values(&alone, values);
    settings how = train;
    for (int run_again = 0; run_again < 2; run_again++) {
        how.accumulate = run_again;
        run(&pairs, how);
        run(&alone, how);
        float *got = gradients_of(&pairs), *expected = gradients_of(&alone);
        assert_true(loss_of(&pairs) == loss_of(&alone));
        compare_gradients(&pairs, got, expected);
        free(got);
        free(expected);
    }
    free(values);
    end(pairs);
    end(alone);
}

CLAIM(a_hidden_layer_and_what_reads_it_give_the_bits_of_the_two) {
    const hidden_kind kinds[] = {{.compute = UPS_BF16,
                                  .rows = 130,
                                  .width = 256,
                                  .hidden = 512}, /* a card of 9.0 has a kernel for both at once */
                                 {.compute = UPS_F16, .rows = 129, .width = 256, .hidden = 384, .bare = true},
                                 {.compute = UPS_BF16, .rows = 12, .width = 24, .hidden = 40},
                                 {.compute = UPS_F32, .rows = 12, .width = 24, .hidden = 40}};
    for (int i = 0; i < 4; i++) {
        for (checkpointing = UPS_CHECKPOINTING_NONE; checkpointing <= UPS_CHECKPOINTING_BLOCK; checkpointing++)
            compare_hidden(&kinds[i]);
    }
    checkpointing = UPS_CHECKPOINTING_NONE;
}

/* In a profile a pair's time is its second op's. */
CLAIM(a_device_that_has_a_kernel_for_a_hidden_layer_and_what_reads_it_runs_it) {
    enum { ROWS = 130, WIDTH = 256, HIDDEN = 512 };
    model m = begin(UPS_BF16);
    ups_graph *g = m.graph;
    ups_shape shape = UPS_SHAPE(ROWS, WIDTH);
    ups_value x = linear_of(g, ups_graph_input(g, "x", UPS_F32, shape), WIDTH, "in", false);
    x = biased(g, ups_gelu(g, biased(g, x, HIDDEN, "up", 0, false)), WIDTH, "down", 0, false);
    m.loss = mean_square(g, linear_of(g, x, WIDTH, "out", true), ups_graph_input(g, "target", UPS_F32, shape));
    ups_graph_differentiate(g, m.loss);
    ready(&m);
    upload_random(&m, "x", 0);
    upload_random(&m, "target", 1);
    const ups_tensor hidden = {.dtype = UPS_BF16, .shape = UPS_SHAPE(ROWS, HIDDEN)};
    const ups_tensor rows = {.dtype = UPS_BF16, .shape = shape};
    const ups_tensor weight = {.dtype = UPS_BF16, .shape = UPS_SHAPE(WIDTH, HIDDEN)};
    const ups_op_attributes attributes = {0};
    const ups_op_call call = {.kind = UPS_OP_LINEAR,
                              .attributes = &attributes,
                              .input_count = 3,
                              .inputs = {hidden, weight},
                              .output = rows,
                              .output_gradient = rows,
                              .input_gradients = {hidden},
                              .paired = true};
    ups_kernel kernel;
    ok(device->class->kernel(device, &call, true, &kernel, &failure));
    ups_step_profile_enable(m.step, true);
    run(&m, train);
    ups_step_profile profile = {0};
    ups_step_profile_add(m.step, &profile);
    assert_int_equal(profile.of[UPS_OP_LINEAR_GELU].backward > 0, !kernel.pair_backward);
    assert_true(profile.of[UPS_OP_LINEAR_GELU].forward > 0 && profile.of[UPS_OP_LINEAR].backward > 0);
    const char *wanted = getenv("UPS_CUDA_PRODUCTS"); /* which a card of 9.0 can do, and the emulated one is told to */
    if (wanted && strcmp(wanted, "stationary") == 0 && strcmp(device->class->name, "cuda") == 0)
        assert_non_null(kernel.pair_backward);
    if (kernel.release) kernel.release(kernel.state);
    end(m);
}

/* In a profile a pair's time is its norm's. */
CLAIM(a_device_that_has_pairs_runs_them) {
    const kind k = {.compute = UPS_F32, .width = 64};
    for (int unpaired = 0; unpaired < 2; unpaired++) {
        model m = stream(&k, unpaired);
        ups_kernel kernel;
        const ups_tensor rows = {.dtype = UPS_F32, .shape = UPS_SHAPE(BATCH, TOKENS, k.width)};
        const ups_op_attributes attributes = {.epsilon = 1e-5f};
        const ups_op_call call = {
            .kind = UPS_OP_LAYER_NORM, .attributes = &attributes, .input_count = 3, .inputs = {rows}, .output = rows};
        ok(device->class->kernel(device, &call, false, &kernel, &failure));
        ups_step_profile_enable(m.step, true);
        run(&m, train);
        ups_step_profile profile = {0};
        ups_step_profile_add(m.step, &profile);
        assert_int_equal(profile.of[UPS_OP_RESIDUAL].forward > 0, unpaired || !kernel.pair_forward);
        assert_int_equal(profile.of[UPS_OP_RESIDUAL].backward > 0, unpaired || !kernel.pair_backward);
        assert_true(profile.of[UPS_OP_LAYER_NORM].forward > 0 && profile.of[UPS_OP_LAYER_NORM].backward > 0);
        if (kernel.release) kernel.release(kernel.state);
        end(m);
    }
}

/* A residual with a gate, one whose sum something else reads first, or whose sum is read by another shape. */
CLAIM(what_is_no_pair_runs_by_itself) {
    model m = begin(UPS_F32);
    ups_graph *g = m.graph;
    const kind k = {.compute = UPS_F32, .width = 16};
    ups_shape shape = UPS_SHAPE(BATCH, TOKENS, k.width);
    ups_value x = ups_graph_input(g, "x", UPS_F32, shape);
    ups_value gate = ups_graph_input(g, "gate", UPS_F32, UPS_SHAPE(BATCH, k.width));
    ups_value gated = ups_residual(g, x, linear_of(g, x, k.width, "branch", false), gate, 0, 0);
    ups_value normed = norm_of(g, &k, gated, 0);
    ups_value sum = ups_residual(g, gated, normed, UPS_NO_VALUE, 0, 1);
    ups_value between = ups_silu(g, sum);
    ups_value y = ups_add(g, norm_of(g, &k, sum, 1), between);
    ups_value flat = ups_residual(g, y, x, UPS_NO_VALUE, 0, 2); /* read by another shape */
    y = norm_of(g, &(kind){.width = TOKENS * k.width}, ups_graph_reshape(g, flat, UPS_SHAPE(BATCH, TOKENS * k.width)),
                2);
    m.loss = mean_square(g, y, ups_graph_input(g, "target", UPS_F32, UPS_SHAPE(BATCH, TOKENS * k.width)));
    ups_graph_differentiate(g, m.loss);
    int counts[3];
    count_pairs(g, counts);
    assert_int_equal(counts[UPS_FORWARD], 0);
    assert_int_equal(counts[UPS_BACKWARD], 0);
    end(m);
}

CLAIM(a_sum_in_half_precision_makes_one_too) {
    model m = begin(UPS_BF16);
    ups_graph *g = m.graph;
    const kind k = {.compute = UPS_BF16, .width = 16};
    ups_shape shape = UPS_SHAPE(BATCH, TOKENS, k.width);
    ups_value x = linear_of(g, ups_graph_input(g, "x", UPS_F32, shape), k.width, "in", false);
    ups_value sum = ups_residual(g, x, linear_of(g, x, k.width, "branch", false), UPS_NO_VALUE, 0, 0);
    assert_int_equal(ups_graph_info(g, sum)->dtype, UPS_BF16);
    m.loss = mean_square(g, linear_of(g, norm_of(g, &k, sum, 0), k.width, "out", true),
                         ups_graph_input(g, "target", UPS_F32, shape));
    ups_graph_differentiate(g, m.loss);
    int counts[3];
    count_pairs(g, counts);
    assert_int_equal(counts[UPS_FORWARD], 1);
    end(m);
}

int main(void) {
    return run_claims(open_device, close_device, NULL);
}
