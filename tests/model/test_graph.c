/* The graph while it is built and differentiated: names, dtypes, which values need gradients, what is refused. */
#include "model/differentiate.h"
#include "model/fuse.h"
#include "model/ops.h"
#include "tests/model/claims.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const ups_init ones = {.kind = UPS_INIT_ONES};

typedef struct fixture {
    ups_parameters *parameters;
    ups_graph *graph;
} fixture;

static fixture begin(ups_dtype compute) {
    fixture f = {.parameters = ups_parameters_create()};
    f.graph = ups_graph_create(f.parameters, compute);
    return f;
}

static void end(fixture f) {
    ups_graph_destroy(f.graph);
    ups_parameters_destroy(f.parameters);
}

static ups_dtype dtype(const ups_graph *g, ups_value v) {
    return ups_graph_info(g, v)->dtype;
}

static bool needs(const ups_graph *g, ups_value v) {
    return ups_graph_info(g, v)->needs_gradient;
}

static ups_value weight(ups_graph *g, const char *name, int64_t outputs, int64_t inputs) {
    return ups_graph_parameter(g, name, UPS_SHAPE(outputs, inputs), ones);
}

static ups_value mean_square(ups_graph *g, ups_value x, ups_value target) {
    ups_value loss = ups_loss_mse(g, x, target);
    return ups_weighted_sum(g, &loss, (float[]){1}, 1);
}

CLAIM(a_parameter_built_twice_is_one_value) {
    fixture f = begin(UPS_F32);
    ups_graph_scope(f.graph, "core.%d", 3);
    ups_value a = weight(f.graph, "up", 4, 4);
    ups_graph_scope(f.graph, "core");
    ups_value other = weight(f.graph, "up", 4, 4);
    ups_graph_scope(f.graph, "core.3");
    assert_int_equal(weight(f.graph, "up", 4, 4), a);
    assert_int_not_equal(other, a);
    assert_string_equal(ups_graph_info(f.graph, a)->name, "core.3.up");
    assert_int_equal(ups_parameters_count(f.parameters), 2);

    ups_graph *second = ups_graph_create(f.parameters, UPS_F32);
    ups_graph_scope(second, "core.3");
    ups_value shared = weight(second, "up", 4, 4);
    assert_int_equal(ups_graph_info(second, shared)->parameter, ups_graph_info(f.graph, a)->parameter);
    ups_graph_destroy(second);
    end(f);
}

CLAIM(inputs_are_found_by_name) {
    fixture f = begin(UPS_F32);
    ups_value z = ups_graph_input(f.graph, "z", UPS_F32, UPS_SHAPE(2, 3));
    float table[] = {1, 2};
    ups_value c = ups_graph_constant(f.graph, "c", UPS_F32, UPS_SHAPE(2), table);
    table[0] = 7; /* the graph has its own copy */
    assert_int_equal(ups_graph_find(f.graph, "z"), z);
    assert_int_equal(ups_graph_find(f.graph, "c"), c);
    assert_int_equal(ups_graph_find(f.graph, "y"), UPS_NO_VALUE);
    assert_memory_equal(ups_graph_info(f.graph, c)->constant, ((float[]){1, 2}), sizeof table);
    end(f);
}

static void check_dtypes(ups_dtype compute) {
    fixture f = begin(compute);
    ups_graph *g = f.graph;
    ups_value latents = ups_graph_input(g, "latents", UPS_F16, UPS_SHAPE(2, 3, 8, 4));
    ups_value x = ups_select_frame(g, latents, 1), w = weight(g, "w", 4, 4), wide = weight(g, "wide", 12, 4);
    ups_value none = UPS_NO_VALUE, h = ups_linear(g, x, w, none, false);
    ups_value gate = ups_graph_input(g, "gate", UPS_F32, UPS_SHAPE(2, 4));
    ups_value at = ups_graph_input(g, "at", UPS_F32, UPS_SHAPE(8, 2));
    ups_value field = ups_graph_input(g, "field", UPS_F32, UPS_SHAPE(2, 16));
    ups_value index = ups_graph_input(g, "index", UPS_I32, UPS_SHAPE(5));
    assert_int_equal(dtype(g, x), UPS_F32);
    assert_int_equal(dtype(g, h), compute);
    assert_int_equal(dtype(g, ups_linear(g, x, w, none, true)), UPS_F32);
    assert_int_equal(dtype(g, ups_layer_norm(g, x, none, none, false)), compute);
    assert_int_equal(dtype(g, ups_layer_norm(g, x, none, none, true)), UPS_F32);
    assert_int_equal(dtype(g, ups_rms_norm(g, x, none)), compute);
    assert_int_equal(dtype(g, ups_attention(g, ups_linear(g, x, wide, none, false), none, none, none, 2)), compute);
    assert_int_equal(dtype(g, ups_gelu(g, h)), compute);
    assert_int_equal(dtype(g, ups_silu(g, x)), UPS_F32);
    assert_int_equal(dtype(g, ups_residual(g, x, h, gate, 0, 0)), UPS_F32);
    assert_int_equal(dtype(g, ups_modulate(g, h, gate, gate)), compute);
    assert_int_equal(dtype(g, ups_add(g, x, h)), UPS_F32);
    assert_int_equal(dtype(g, ups_add(g, h, x)), compute);
    assert_int_equal(dtype(g, ups_broadcast(g, w, 3)), UPS_F32);
    assert_int_equal(dtype(g, ups_slice(g, h, 1, 2)), compute);
    assert_int_equal(dtype(g, ups_pool_tokens(g, x, 2)), UPS_F32);
    assert_int_equal(dtype(g, ups_neighborhood(g, h, 1, (int64_t[]){8}, true)), compute);
    assert_int_equal(dtype(g, ups_fourier(g, at, (float[]){1, 2}, 2)), compute);
    assert_int_equal(dtype(g, ups_patchify(g, field, none, 1, (int64_t[]){8}, (int64_t[]){2}, 2, true)), compute);
    assert_int_equal(dtype(g, ups_gather_points(g, field, index, none, 2, true)), UPS_F32);
    assert_int_equal(dtype(g, ups_loss_mse(g, h, ups_gelu(g, h))), UPS_F32);
    assert_int_equal(dtype(g, ups_cast(g, latents, compute)), compute);
    end(f);
}

CLAIM(in_a_graph_of_reduced_precision_matmuls_have_it_and_the_residual_stream_is_float32) {
    check_dtypes(UPS_BF16);
    check_dtypes(UPS_F16);
}

static void expect_shape(const ups_graph *g, ups_value v, ups_shape expected) {
    ups_shape shape = ups_graph_info(g, v)->shape;
    assert_int_equal(shape.rank, expected.rank);
    for (int i = 0; i < shape.rank; i++) assert_int_equal(shape.size[i], expected.size[i]);
}

CLAIM(shapes_follow_from_the_inputs) {
    fixture f = begin(UPS_F32);
    ups_graph *g = f.graph;
    const ups_value none = UPS_NO_VALUE;
    ups_value x = ups_graph_input(g, "x", UPS_F32, UPS_SHAPE(2, 12, 6));
    ups_value field = ups_graph_input(g, "field", UPS_F32, UPS_SHAPE(2, 5 * 7 * 3));
    ups_value kv = ups_graph_input(g, "kv", UPS_F32, UPS_SHAPE(2, 9, 12));
    expect_shape(g, ups_linear(g, x, weight(g, "w", 10, 6), none, false), UPS_SHAPE(2, 12, 10));
    expect_shape(g, ups_attention(g, x, none, none, none, 2), UPS_SHAPE(2, 12, 2));
    expect_shape(g, ups_attention(g, x, kv, none, none, 3), UPS_SHAPE(2, 12, 6));
    expect_shape(g, ups_patchify(g, field, none, 2, (int64_t[]){5, 7}, (int64_t[]){2, 4}, 3, true),
                 UPS_SHAPE(2, 3 * 2, 2 * 4 * 3));
    expect_shape(g, ups_neighborhood(g, x, 2, (int64_t[]){3, 4}, false), UPS_SHAPE(2, 12, 9 * 6));
    expect_shape(g, ups_pool_tokens(g, x, 5), UPS_SHAPE(2, 5, 6));
    expect_shape(g, ups_select_frame(g, x, 11), UPS_SHAPE(2, 6));
    expect_shape(g, ups_fourier(g, ups_graph_input(g, "at", UPS_F32, UPS_SHAPE(7, 3)), (float[]){1, 2}, 2),
                 UPS_SHAPE(7, 3 * 5));
    expect_shape(g, ups_graph_reshape(g, x, UPS_SHAPE(24, 6)), UPS_SHAPE(24, 6));

    const ups_node *self = &g->nodes[1], *cross = &g->nodes[2];
    assert_int_equal(self->kind, UPS_OP_ATTENTION);
    assert_int_equal(self->saved_count, 1);
    expect_shape(g, self->saved[0], UPS_SHAPE(2, 2, 12));
    expect_shape(g, cross->saved[0], UPS_SHAPE(2, 3, 12));
    end(f);
}

CLAIM(gradients_are_needed_between_trainable_parameters_and_the_loss_only) {
    fixture f = begin(UPS_F32);
    ups_graph *g = f.graph;
    const ups_value none = UPS_NO_VALUE;
    ups_value x = ups_graph_input(g, "x", UPS_F32, UPS_SHAPE(2, 3, 4)), w = weight(g, "w", 4, 4);
    ups_value before = ups_gelu(g, x); /* no parameter feeds it */
    ups_value inside = ups_linear(g, before, w, none, false);
    ups_value view = ups_graph_reshape(g, inside, UPS_SHAPE(2, 12));
    ups_value aside = ups_silu(g, inside); /* does not feed the loss */
    ups_value unused = weight(g, "unused", 4, 4);
    ups_value target = ups_graph_input(g, "target", UPS_F32, UPS_SHAPE(2, 12));
    ups_value loss = mean_square(g, view, target);
    ups_graph_differentiate(g, loss);
    assert_false(needs(g, x) || needs(g, before) || needs(g, aside) || needs(g, unused) || needs(g, target));
    assert_true(needs(g, w) && needs(g, inside) && needs(g, view) && needs(g, loss));
    assert_int_equal(ups_graph_root(g, view), inside);
    assert_true(ups_graph_info(g, loss)->keep);
    assert_int_equal(g->loss, loss);
    const ups_node *linear = &g->nodes[1];
    enum { X = 1, WEIGHT = 2 };
    assert_int_equal(ups_node_gradient_inputs(g, linear), WEIGHT);
    assert_int_equal(ups_node_backward_inputs(g, linear), X); /* W is read for the gradient of x alone */
    end(f);
}

CLAIM(frozen_parts_get_no_gradient_but_let_it_through) {
    fixture f = begin(UPS_F32);
    ups_graph *g = f.graph;
    const ups_value none = UPS_NO_VALUE;
    ups_value x = ups_graph_input(g, "x", UPS_F32, UPS_SHAPE(2, 3, 4));
    ups_value encoder = weight(g, "encoder.w", 4, 4), core = weight(g, "operator.w", 4, 4);
    ups_value decoder = weight(g, "decoder.w", 4, 4);
    ups_value z = ups_linear(g, x, encoder, none, false), y = ups_linear(g, z, core, none, false);
    ups_value read = ups_linear(g, y, decoder, none, false);
    const char *trainable[] = {"operator.", "other."};
    ups_graph_differentiate_only(g, mean_square(g, read, x), trainable, 2);
    assert_true(needs(g, core) && needs(g, y) && needs(g, read));
    assert_false(needs(g, encoder) || needs(g, decoder) || needs(g, z));
    end(f);
}

CLAIM(no_gradient_flows_to_targets_of_relative_losses_or_through_fourier_features) {
    fixture f = begin(UPS_F32);
    ups_graph *g = f.graph;
    ups_value w = weight(g, "w", 4, 4), twice = ups_scale(g, w, 2, UPS_NO_VALUE), table = weight(g, "at", 4, 2);
    ups_value loss = ups_loss_relative(g, twice, ups_gelu(g, w));
    ups_value features = ups_fourier(g, table, (float[]){1}, 1);
    ups_graph_differentiate(g, ups_weighted_sum(g, &loss, (float[]){1}, 1));
    assert_true(needs(g, w) && needs(g, twice));
    assert_false(needs(g, g->nodes[1].output));
    assert_false(needs(g, table) || needs(g, features));
    end(f);
}

/* Runs `build` in a child and returns what it said before it ended the process; fails when it did not. */
static void expect_abort(void (*build)(ups_graph *g), const char *op, const char *complaint) {
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(pipes[1], STDERR_FILENO);
        fixture f = begin(UPS_F32);
        ups_graph_scope(f.graph, "blocks.3");
        build(f.graph);
        _exit(0);
    }
    close(pipes[1]);
    char said[2048];
    size_t used = 0;
    ssize_t got;
    while (used < sizeof said - 1 && (got = read(pipes[0], said + used, sizeof said - 1 - used)) > 0)
        used += (size_t)got;
    said[used] = 0;
    close(pipes[0]);
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    if (!strstr(said, op) || !strstr(said, "blocks.3") || !strstr(said, complaint)) fail_msg("it said: %s", said);
}

static ups_value tokens(ups_graph *g, const char *name, int64_t width) {
    return ups_graph_input(g, name, UPS_F32, UPS_SHAPE(2, 3, width));
}

static void linear_of_another_width(ups_graph *g) {
    ups_linear(g, tokens(g, "x", 5), weight(g, "w", 4, 4), UPS_NO_VALUE, false);
}
static void residual_of_another_shape(ups_graph *g) {
    ups_residual(g, tokens(g, "x", 4), tokens(g, "f", 5), UPS_NO_VALUE, 0, 0);
}
static void heads_that_do_not_divide(ups_graph *g) {
    ups_attention(g, tokens(g, "x", 15), UPS_NO_VALUE, UPS_NO_VALUE, UPS_NO_VALUE, 2);
}
static void norm_of_float16(ups_graph *g) {
    ups_layer_norm(g, ups_graph_input(g, "x", UPS_F16, UPS_SHAPE(2, 4)), UPS_NO_VALUE, UPS_NO_VALUE, false);
}
static void slice_beyond_the_end(ups_graph *g) {
    ups_slice(g, tokens(g, "x", 4), 2, 3);
}
static void frame_that_is_not_there(ups_graph *g) {
    ups_select_frame(g, tokens(g, "x", 4), 3);
}
static void input_twice(ups_graph *g) {
    tokens(g, "x", 4);
    tokens(g, "x", 4);
}
static void parameter_of_two_shapes(ups_graph *g) {
    weight(g, "w", 4, 4);
    weight(g, "w", 4, 5);
}
static void loss_without_parameters(ups_graph *g) {
    ups_graph_differentiate(g, mean_square(g, tokens(g, "x", 4), tokens(g, "y", 4)));
}
static void loss_of_many_elements(ups_graph *g) {
    ups_graph_differentiate(g, weight(g, "w", 4, 4));
}
static void twin_inputs(ups_graph *g) {
    ups_value w = weight(g, "w", 4, 4);
    ups_graph_differentiate(g, mean_square(g, ups_add(g, w, w), w));
}

CLAIM(what_does_not_fit_ends_the_process_with_op_scope_and_reason) {
    expect_abort(linear_of_another_width, "linear", "4 was expected");
    expect_abort(residual_of_another_shape, "residual", "sizes 4 and 5");
    expect_abort(heads_that_do_not_divide, "attention", "2 heads");
    expect_abort(norm_of_float16, "layer_norm", "float16");
    expect_abort(slice_beyond_the_end, "slice", "[2, 5)");
    expect_abort(frame_that_is_not_there, "select_frame", "no frame 3");
    expect_abort(input_twice, "input", "'x' already");
    expect_abort(parameter_of_two_shapes, "parameter", "two shapes");
    expect_abort(loss_without_parameters, "differentiate", "no trainable parameter");
    expect_abort(loss_of_many_elements, "differentiate", "16 elements");
    expect_abort(twin_inputs, "add", "same value");
}

CLAIM(linear_and_gelu_become_one_op_unless_something_else_reads_between_them) {
    for (int other = 0; other < 2; other++) {
        ups_parameters *parameters = ups_parameters_create();
        ups_graph *g = ups_graph_create(parameters, UPS_F32);
        ups_value x = ups_graph_input(g, "x", UPS_F32, UPS_SHAPE(4, 8));
        ups_value w = ups_graph_parameter(g, "w", UPS_SHAPE(8, 8), (ups_init){.kind = UPS_INIT_ONES});
        ups_value up = ups_linear(g, x, w, UPS_NO_VALUE, false), y = ups_gelu(g, up);
        if (other) y = ups_add(g, y, up);
        int32_t before = g->node_count;
        ups_graph_fuse(g);
        assert_int_equal(g->node_count, other ? before : before - 1);
        assert_int_equal(g->nodes[0].kind, other ? UPS_OP_LINEAR : UPS_OP_LINEAR_GELU);
        assert_int_equal(ups_graph_info(g, y)->producer, g->node_count - 1);
        ups_graph_destroy(g);
        ups_parameters_destroy(parameters);
    }
}

int main(void) {
    return run_claims(NULL, NULL, NULL);
}
