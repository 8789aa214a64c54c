/* What a step costs on paper: figures that were worked out by hand. */
#include "model/devices/cards.h"
#include "model/differentiate.h"
#include "model/nets/operator.h"
#include "model/ops.h"
#include "tests/model/claims.h"

static const ups_init ones = {.kind = UPS_INIT_ONES};

typedef struct fixture {
    ups_parameters *parameters;
    ups_graph *graph;
    ups_plan *plan;
} fixture;

static fixture begin(ups_dtype compute) {
    fixture f = {.parameters = ups_parameters_create()};
    f.graph = ups_graph_create(f.parameters, compute);
    return f;
}

static void end(fixture f) {
    ups_plan_destroy(f.plan);
    ups_graph_destroy(f.graph);
    ups_parameters_destroy(f.parameters);
}

/* The loss is the mean square of `y`, of which rows are samples. */
static void train(fixture *f, ups_value y) {
    ups_value target = ups_graph_input(f->graph, "target", UPS_F32, ups_graph_info(f->graph, y)->shape);
    ups_value loss = ups_loss_mse(f->graph, y, target);
    ups_error error;
    ups_graph_differentiate(f->graph, ups_weighted_sum(f->graph, &loss, (float[]){1}, 1));
    assert_int_equal(ups_plan_create(f->graph, &f->plan, &error), UPS_OK);
}

/* Of the only node of its kind. */
static ups_work work_of(const fixture *f, ups_op_kind kind, ups_schedule_action action) {
    const ups_schedule *schedule = ups_plan_schedule(f->plan);
    for (int32_t at = 0; at < schedule->count; at++) {
        if (schedule->entries[at].action == action && f->graph->nodes[schedule->entries[at].node].kind == kind)
            return ups_work_of(f->graph, f->plan, at);
    }
    fail_msg("no %s in the schedule", ups_op_name(kind));
    return (ups_work){0};
}

static void assert_close(double value, double expected, double tolerance) {
    if (!(value >= expected - tolerance && value <= expected + tolerance))
        fail_msg("%g instead of %g", value, expected);
}

static void assert_work(ups_work work, double product, double other, double read, double written) {
    assert_close(work.product_flops, product, 0);
    assert_close(work.other_flops, other, 0);
    assert_close(work.read, read, 0);
    assert_close(work.written, written, 0);
}

CLAIM(a_linear_layer_is_three_products) {
    enum {
        B = 4,
        T = 8,
        K = 16,
        M = 32,
        FLOPS = 2 * B * T * K * M,
        X = 4 * B * T * K,
        W = 4 * M * K,
        Y = 4 * B * T * M
    };
    fixture f = begin(UPS_F32);
    ups_value x = ups_graph_input(f.graph, "x", UPS_F32, UPS_SHAPE(B, T, K));
    ups_value gain = ups_graph_parameter(f.graph, "gain", UPS_SHAPE(K), ones);
    ups_value weight = ups_graph_parameter(f.graph, "weight", UPS_SHAPE(M, K), ones);
    ups_value bias = ups_graph_parameter(f.graph, "bias", UPS_SHAPE(M), ones);
    train(&f, ups_linear(f.graph, ups_rms_norm(f.graph, x, gain), weight, bias, false));
    assert_work(work_of(&f, UPS_OP_LINEAR, UPS_FORWARD), FLOPS, 0, X + W + 4 * M, Y);
    assert_work(work_of(&f, UPS_OP_LINEAR, UPS_BACKWARD), 2 * FLOPS, 0, X + W + Y, X + W + 4 * M);
    end(f);
}

/* Operands are read, written in eight bits, gradients twice, and read again by the products. */
CLAIM(operands_in_fp8_are_rounded_before_the_product) {
    enum { B = 4, T = 8, K = 16, M = 32, FLOPS = 2 * B * T * K * M, X = B * T * K, W = M * K, Y = B * T * M };
    enum { STATES = 4 * UPS_FP8_OPERANDS * UPS_FP8_NUMBERS };
    fixture f = begin(UPS_BF16);
    ups_value x = ups_graph_input(f.graph, "x", UPS_F32, UPS_SHAPE(B, T, K));
    ups_value gain = ups_graph_parameter(f.graph, "gain", UPS_SHAPE(K), ones);
    ups_value weight = ups_graph_parameter(f.graph, "weight", UPS_SHAPE(M, K), ones);
    ups_value states = ups_graph_parameter(f.graph, "fp8", UPS_SHAPE(UPS_FP8_OPERANDS, UPS_FP8_NUMBERS),
                                           (ups_init){.kind = UPS_INIT_ZEROS, .fixed = true});
    train(&f, ups_linear_fp8(f.graph, ups_rms_norm(f.graph, x, gain), weight, UPS_NO_VALUE, states, true));
    ups_work forward = work_of(&f, UPS_OP_LINEAR, UPS_FORWARD), backward = work_of(&f, UPS_OP_LINEAR, UPS_BACKWARD);
    assert_work(forward, FLOPS, 0, X + W + STATES, 4 * Y);
    assert_close(forward.apart, 2 * X + 4 * W + X + W, 0);
    assert_work(backward, 2 * FLOPS, 0, X + W + 2 * Y + STATES, 2 * X + 4 * W);
    assert_close(backward.apart, 2 * X + 4 * W + 4 * Y + X + W + 2 * Y, 0);
    end(f);
}

CLAIM(a_layer_on_data_has_no_gradient_for_them) {
    enum { B = 4, K = 16, M = 32, FLOPS = 2 * B * K * M };
    fixture f = begin(UPS_BF16);
    ups_value x = ups_graph_input(f.graph, "x", UPS_BF16, UPS_SHAPE(B, 1, K));
    train(&f,
          ups_linear(f.graph, x, ups_graph_parameter(f.graph, "weight", UPS_SHAPE(M, K), ones), UPS_NO_VALUE, true));
    ups_work forward = work_of(&f, UPS_OP_LINEAR, UPS_FORWARD);
    assert_close(forward.product_flops, FLOPS, 0);
    assert_work(work_of(&f, UPS_OP_LINEAR, UPS_BACKWARD), FLOPS, 0, 2 * B * K + 4 * B * M, 4 * M * K);
    end(f);
}

/* Alone, a residual reads 4 + 2 bytes an element and writes 4, its norm reads 4 and writes 2; backward of the norm
 * reads 2 + 4 and what the sum's gradient is so far, 4, and writes 4, that of the residual reads 4 and writes 2. In one
 * pass the sum and its gradient, which are there, are not read again. */
CLAIM(a_pair_reads_what_it_makes_no_second_time) {
    enum { B = 4, T = 8, D = 16, ELEMENTS = B * T * D, ROWS = 2 * 4 * B * T, VECTORS = 2 * 4 * D };
    for (int unpaired = 0; unpaired < 2; unpaired++) {
        fixture f = begin(UPS_BF16);
        f.graph->unpaired = unpaired;
        ups_value weight = ups_graph_parameter(f.graph, "weight", UPS_SHAPE(D, D), ones);
        ups_value x = ups_graph_input(f.graph, "x", UPS_F32, UPS_SHAPE(B, T, D));
        ups_value branch = ups_linear(f.graph, x, weight, UPS_NO_VALUE, false);
        ups_value sum = ups_residual(f.graph, x, branch, UPS_NO_VALUE, 0, 0);
        ups_value normed = ups_layer_norm(f.graph, sum, ups_graph_parameter(f.graph, "gain", UPS_SHAPE(D), ones),
                                          ups_graph_parameter(f.graph, "bias", UPS_SHAPE(D), ones), false);
        train(&f, ups_add(f.graph, sum, ups_linear(f.graph, normed, weight, UPS_NO_VALUE, true)));
        double again = unpaired ? 4 * ELEMENTS : 0;
        assert_work(work_of(&f, UPS_OP_RESIDUAL, UPS_FORWARD), 0, 0, 6 * ELEMENTS, 4 * ELEMENTS);
        assert_work(work_of(&f, UPS_OP_LAYER_NORM, UPS_FORWARD), 0, 0, VECTORS + again, 2 * ELEMENTS + ROWS);
        assert_work(work_of(&f, UPS_OP_LAYER_NORM, UPS_BACKWARD), 0, 0, 10 * ELEMENTS + ROWS + VECTORS / 2,
                    4 * ELEMENTS + VECTORS);
        assert_work(work_of(&f, UPS_OP_RESIDUAL, UPS_BACKWARD), 0, 0, again, 2 * ELEMENTS);
        end(f);
    }
}

CLAIM(attention_pays_for_the_keys_that_it_sees) {
    enum { B = 2, CELLS = 64, D = 32, HEADS = 4, WINDOW = 4 };
    for (int windows = 0; windows < 2; windows++) {
        fixture f = begin(UPS_BF16);
        ups_value x = ups_graph_input(f.graph, "x", UPS_F32, UPS_SHAPE(B, CELLS, D));
        ups_value weight = ups_graph_parameter(f.graph, "weight", UPS_SHAPE(3 * D, D), ones);
        ups_attention_options options = {.heads = HEADS,
                                         .groups = 1,
                                         .gain_q = UPS_NO_VALUE,
                                         .gain_k = UPS_NO_VALUE,
                                         .rotary = UPS_NO_VALUE,
                                         .bias = UPS_NO_VALUE};
        if (windows) {
            options.dims = 2;
            options.cells[0] = options.cells[1] = 8;
            options.window[0] = options.window[1] = WINDOW;
            options.periodic = true;
        }
        train(&f, ups_self_attention(f.graph, ups_linear(f.graph, x, weight, UPS_NO_VALUE, false), &options));
        double keys = windows ? WINDOW * WINDOW : CELLS, scores = 2.0 * B * CELLS * keys * D;
        assert_close(work_of(&f, UPS_OP_ATTENTION, UPS_FORWARD).product_flops, 2 * scores, 0);
        assert_close(work_of(&f, UPS_OP_ATTENTION, UPS_BACKWARD).product_flops, 5 * scores, 0);
        assert_close(work_of(&f, UPS_OP_ATTENTION, UPS_BACKWARD).again, scores, 0);
        end(f);
    }
}

CLAIM(a_sum_hands_its_gradient_on_for_nothing) {
    enum { B = 2, T = 3, D = 8, BYTES = 4 * B * T * D };
    fixture f = begin(UPS_F32);
    ups_value x = ups_graph_input(f.graph, "x", UPS_F32, UPS_SHAPE(B, T, D));
    ups_value a = ups_rms_norm(f.graph, x, ups_graph_parameter(f.graph, "a", UPS_SHAPE(D), ones));
    ups_value b =
        ups_layer_norm(f.graph, x, ups_graph_parameter(f.graph, "b", UPS_SHAPE(D), ones), UPS_NO_VALUE, false);
    train(&f, ups_add(f.graph, a, b));
    assert_work(work_of(&f, UPS_OP_ADD, UPS_FORWARD), 0, 0, 2 * BYTES, BYTES);
    ups_work backward = work_of(&f, UPS_OP_ADD, UPS_BACKWARD); /* one of the two at most is a copy */
    assert_true(backward.written <= BYTES);
    end(f);
}

CLAIM(a_frame_of_a_window_is_read_alone) {
    enum { B = 2, W = 5, T = 3, D = 8 };
    fixture f = begin(UPS_F32);
    ups_value window = ups_graph_input(f.graph, "window", UPS_F16, UPS_SHAPE(B, W, T, D));
    ups_value frame = ups_select_frame(f.graph, window, 1);
    train(&f, ups_rms_norm(f.graph, frame, ups_graph_parameter(f.graph, "gain", UPS_SHAPE(D), ones)));
    double made = (double)ups_dtype_size(ups_graph_info(f.graph, frame)->dtype);
    assert_work(work_of(&f, UPS_OP_SELECT_FRAME, UPS_FORWARD), 0, 0, 2 * B * T * D, made * B * T * D);
    end(f);
}

/* A plane of R x C tokens, along its rows and along its columns: to modes and back cost a product of each line with the
 * table, and a mode's D complex numbers 4 D^2 multiply-adds. */
CLAIM(mixing_along_an_axis_is_that_of_its_lines) {
    enum { B = 2, R = 5, C = 6, D = 16, MODES = 3 };
    for (int axis = 0; axis < 2; axis++) {
        const int64_t cells = axis ? C : R, lines = B * R * C / cells;
        const double transform = 2.0 * (double)(lines * 2 * MODES * cells) * D;
        const double mixing = 2.0 * (double)(lines * MODES) * 4 * D * D;
        fixture f = begin(UPS_F32);
        ups_value x = ups_graph_input(f.graph, "x", UPS_F32, UPS_SHAPE(B, R * C, D));
        ups_value gain = ups_graph_parameter(f.graph, "gain", UPS_SHAPE(D), ones);
        ups_value weight = ups_graph_parameter(f.graph, "weight", UPS_SHAPE(MODES, 2 * D, D), ones);
        ups_value table = ups_graph_input(f.graph, "table", UPS_F32, UPS_SHAPE(2 * MODES, cells));
        train(&f, ups_spectral_lines(f.graph, ups_rms_norm(f.graph, x, gain), weight, table, axis ? 1 : C, MODES));
        assert_close(work_of(&f, UPS_OP_SPECTRAL, UPS_FORWARD).product_flops, 2 * transform + mixing, 0);
        assert_close(work_of(&f, UPS_OP_SPECTRAL, UPS_BACKWARD).product_flops, 2 * transform + 2 * mixing, 0);
        end(f);
    }
}

/* Two layers on data in a block: the first has no gradient to what it maps. */
static fixture two_layers(ups_checkpointing checkpointing, ups_dtype compute, bool tf32) {
    fixture f = begin(compute);
    f.graph->checkpointing = checkpointing;
    f.graph->tf32 = tf32;
    ups_value x = ups_graph_input(f.graph, "x", UPS_F32, UPS_SHAPE(2, 8, 16));
    ups_graph_begin_block(f.graph);
    ups_value hidden =
        ups_linear(f.graph, x, ups_graph_parameter(f.graph, "up", UPS_SHAPE(32, 16), ones), UPS_NO_VALUE, false);
    ups_value y = ups_linear(f.graph, ups_gelu(f.graph, hidden),
                             ups_graph_parameter(f.graph, "down", UPS_SHAPE(16, 32), ones), UPS_NO_VALUE, true);
    ups_graph_end_block(f.graph);
    train(&f, y);
    return f;
}

CLAIM(what_is_computed_again_is_no_utilisation) {
    enum { PRODUCT = 2 * 2 * 8 * 16 * 32 };
    for (int how = UPS_CHECKPOINTING_NONE; how <= UPS_CHECKPOINTING_BLOCK; how++) {
        fixture f = two_layers((ups_checkpointing)how, UPS_F32, false);
        assert_close(ups_arithmetic_of(f.graph, f.plan, NULL).flops, 2 * PRODUCT + 3 * PRODUCT, 0);
        assert_close(ups_arithmetic_of(f.graph, f.plan, NULL).at_peak, 0, 0);
        double all = 0;
        for (int32_t at = 0; at < ups_plan_schedule(f.plan)->count; at++)
            all += ups_work_of(f.graph, f.plan, at).product_flops;
        assert_int_equal(all > 5 * PRODUCT, how == UPS_CHECKPOINTING_BLOCK);
        end(f);
    }
}

CLAIM(the_peak_is_that_of_the_precision) {
    static const struct {
        ups_dtype compute;
        bool tf32;
        double peak;
    } cases[] = {
        {UPS_F32, false, 66.9e12}, {UPS_F32, true, 494.7e12}, {UPS_BF16, false, 989.4e12}, {UPS_F16, false, 989.4e12}};
    const ups_card *card = ups_card_of_driver("NVIDIA H100 80GB HBM3");
    assert_non_null(card);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f = two_layers(UPS_CHECKPOINTING_NONE, cases[i].compute, cases[i].tf32);
        const ups_arithmetic made = ups_arithmetic_of(f.graph, f.plan, card);
        assert_close(made.at_peak * cases[i].peak / made.flops, 1, 1e-12);
        end(f);
    }
}

/* H100 PCIe and H100 NVL are other cards than the SXM module. */
CLAIM(a_card_is_known_by_what_the_driver_calls_it) {
    assert_string_equal(ups_card_of_driver("NVIDIA A100-SXM4-80GB")->name, "a100");
    assert_string_equal(ups_card_of_driver("NVIDIA H200")->name, "h200");
    static const char *const unknown[] = {NULL, "", "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA A100-SXM4-40GB"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) assert_null(ups_card_of_driver(unknown[i]));
}

/* `ups bench step --help`, "17.3 GFLOP a pair". */
CLAIM(the_reference_step_has_the_arithmetic_that_is_told) {
    enum { BATCH = 8 };
    fixture f = begin(UPS_BF16);
    ups_operator_options options = ups_operator_defaults();
    ups_value z = ups_graph_input(f.graph, "z", UPS_F32, UPS_SHAPE(BATCH, options.tokens, options.dim));
    ups_value dt = ups_graph_input(f.graph, "dt", UPS_F32, UPS_SHAPE(BATCH, 1));
    train(&f, ups_operator_build(f.graph, &options, z, dt, UPS_NO_VALUE, UPS_NO_VALUE));
    assert_close(ups_arithmetic_of(f.graph, f.plan, NULL).flops / BATCH * 1e-9, 17.3, 0.05);
    end(f);
}

int main(void) {
    return run_claims(NULL, NULL, NULL);
}
