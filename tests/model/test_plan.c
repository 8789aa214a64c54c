/* The plan, on the graphs that are really trained: what is alive together lies apart, and little is wasted. */
#include "model/differentiate.h"
#include "model/nets/decoder.h"
#include "model/nets/encoder.h"
#include "model/nets/operator.h"
#include "model/plan.h"
#include "tests/model/claims.h"

typedef struct planned {
    ups_parameters *parameters;
    ups_graph *graph;
    ups_plan *plan;
} planned;

static void make_plan(planned *p) {
    ups_error error;
    assert_int_equal(ups_plan_create(p->graph, &p->plan, &error), UPS_OK);
}

static void discard(planned *p) {
    ups_plan_destroy(p->plan);
    ups_graph_destroy(p->graph);
    ups_parameters_destroy(p->parameters);
}

static planned checkpointed_plan(ups_dtype compute, int64_t batch, int steps, bool train,
                                 ups_checkpointing checkpointing) {
    planned p = {.parameters = ups_parameters_create()};
    p.graph = ups_graph_create(p.parameters, compute);
    p.graph->checkpointing = checkpointing;
    ups_operator_options options = ups_operator_defaults();
    options.parameter_count = 3;
    options.task_count = 2;
    ups_shape latents = UPS_SHAPE(batch, options.tokens, options.dim);
    ups_value window =
        ups_graph_input(p.graph, "window", UPS_F16, UPS_SHAPE(batch, steps + 1, options.tokens, options.dim));
    ups_value dt = ups_graph_input(p.graph, "dt", UPS_F32, UPS_SHAPE(batch, 1));
    ups_value pde = ups_graph_input(p.graph, "pde", UPS_F32, UPS_SHAPE(batch, 3));
    ups_value task = ups_graph_input(p.graph, "task", UPS_F32, UPS_SHAPE(batch, 2));
    ups_value states[8], losses[8];
    float weights[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    ups_value first = ups_select_frame(p.graph, window, 0);
    ups_operator_rollout(p.graph, &options, &first, dt, pde, task, steps, states);
    if (train) {
        for (int k = 0; k < steps; k++)
            losses[k] = ups_loss_mse(p.graph, states[k], ups_select_frame(p.graph, window, k + 1));
        ups_graph_differentiate(p.graph, ups_weighted_sum(p.graph, losses, weights, steps));
    } else {
        ups_graph_keep(p.graph, states[steps - 1]);
    }
    assert_int_equal(ups_shape_elements(ups_graph_info(p.graph, states[0])->shape), ups_shape_elements(latents));
    make_plan(&p);
    return p;
}

static planned operator_plan(ups_dtype compute, int64_t batch, int steps, bool train) {
    return checkpointed_plan(compute, batch, steps, train, UPS_CHECKPOINTING_NONE);
}

static planned autoencoder_plan(ups_pooling pooling) {
    enum { BATCH = 4, QUERIES = 512, POINTS = 128 * 128 };
    planned p = {.parameters = ups_parameters_create()};
    p.graph = ups_graph_create(p.parameters, UPS_BF16);
    ups_encoder_options encoder = ups_encoder_defaults();
    ups_decoder_options decoder = ups_decoder_defaults();
    encoder.pooling = pooling;
    encoder.depth = 2;
    ups_field_shape shape = {.task = "flow", .dims = 2, .grid = {128, 128}, .channels = 3};
    ups_value field = ups_graph_input(p.graph, "field", UPS_F32, UPS_SHAPE(BATCH, 3 * POINTS));
    ups_value index = ups_graph_input(p.graph, "index", UPS_I32, UPS_SHAPE(QUERIES));
    ups_value coordinates = ups_graph_input(p.graph, "coordinates", UPS_F32, UPS_SHAPE(QUERIES, 2));
    ups_value latents = ups_encoder_build(p.graph, &encoder, &shape, field, UPS_NO_VALUE);
    ups_value read = ups_decoder_build(p.graph, &decoder, "flow", 3, latents, coordinates, UPS_NO_VALUE);
    ups_value truth = ups_gather_points(p.graph, field, index, UPS_NO_VALUE, 3, false);
    ups_value losses[] = {ups_loss_mse(p.graph, read, truth), ups_loss_relative(p.graph, read, truth)};
    ups_graph_differentiate(p.graph, ups_weighted_sum(p.graph, losses, (float[]){1, 0.5f}, 2));
    make_plan(&p);
    return p;
}

static int gather_placements(const planned *p, const ups_placement ***list) {
    int count = 0;
    int32_t end = ups_plan_schedule(p->plan)->count - 1;
    *list = malloc(sizeof **list * 3 * (size_t)p->graph->value_count);
    for (ups_value v = 0; v < p->graph->value_count; v++) {
        if (ups_graph_root(p->graph, v) != v) continue;
        const ups_placement *made = ups_plan_value(p->plan, v, 0), *again = ups_plan_value(p->plan, v, end);
        const ups_placement *all[] = {made, ups_plan_gradient(p->plan, v), again == made ? NULL : again};
        for (int i = 0; i < 3; i++) {
            if (all[i] && all[i]->offset >= 0) (*list)[count++] = all[i];
        }
    }
    return count;
}

static void check_no_overlap(const planned *p) {
    const ups_placement **list;
    int count = gather_placements(p, &list);
    size_t arena = ups_plan_memory_get(p->plan).activations;
    assert_true(count > 100);
    for (int i = 0; i < count; i++) {
        const ups_placement *a = list[i];
        assert_int_equal(a->offset % 64, 0);
        assert_true(a->bytes > 0 && a->first <= a->last);
        assert_true((size_t)a->offset + a->bytes <= arena);
        for (int k = 0; k < i; k++) {
            const ups_placement *b = list[k];
            if (a == b) continue; /* gradients that are one */
            bool together = a->first <= b->last && b->first <= a->last;
            bool apart = a->offset + (int64_t)a->bytes <= b->offset || b->offset + (int64_t)b->bytes <= a->offset;
            if (together && !apart) fail_msg("placements %d and %d overlap", k, i);
        }
    }
    free(list);
}

static void covers(const planned *p, const ups_placement *placement, ups_value value, int32_t position) {
    ups_value_kind kind = ups_graph_info(p->graph, ups_graph_root(p->graph, value))->kind;
    if (kind != UPS_VALUE_ACTIVATION) {
        assert_int_equal(placement->offset, -1);
        return;
    }
    const ups_schedule *schedule = ups_plan_schedule(p->plan);
    int32_t first = position - (position > 0 && schedule->entries[position - 1].with_next);
    int32_t last = position + schedule->entries[position].with_next; /* of a pair, whose entries run as one */
    if (first < placement->first || last > placement->last) {
        fail_msg("value %d is wanted at %d but alive in [%d, %d]", value, position, placement->first, placement->last);
    }
}

/* Everything that a kernel is given at its position in the schedule is alive there. */
static void check_lifetimes(const planned *p) {
    const ups_graph *g = p->graph;
    const ups_schedule *schedule = ups_plan_schedule(p->plan);
    for (int32_t at = 0; at < schedule->count; at++) {
        const ups_node *node = &g->nodes[schedule->entries[at].node];
        const ups_op_description *description = ups_op_describe(node->kind);
        bool backward = schedule->entries[at].action == UPS_BACKWARD;
        uint32_t reads = backward ? ups_node_backward_inputs(g, node) : UINT32_MAX;
        for (int i = 0; i < node->input_count; i++) {
            ups_value input = node->inputs[i];
            if (input == UPS_NO_VALUE) continue;
            if (reads >> i & 1) covers(p, ups_plan_value(p->plan, input, at), input, at);
            if (backward && ups_node_gradient_inputs(g, node) >> i & 1)
                covers(p, ups_plan_gradient(p->plan, input), input, at);
        }
        if (backward) covers(p, ups_plan_gradient(p->plan, node->output), node->output, at);
        if (!backward || description->backward_output)
            covers(p, ups_plan_value(p->plan, node->output, at), node->output, at);
        for (int i = 0; i < node->saved_count && (!backward || description->backward_saved); i++)
            covers(p, ups_plan_value(p->plan, node->saved[i], at), node->saved[i], at);
    }
}

/* What an entry of the schedule reads was made by an entry before it, and is made no more often than needed. */
static void check_order(const planned *p) {
    const ups_graph *g = p->graph;
    const ups_schedule *schedule = ups_plan_schedule(p->plan);
    int *made = calloc((size_t)g->node_count, sizeof *made), backwards = 0, wanted = 0;
    for (int32_t at = 0; at < schedule->count; at++) {
        int32_t n = schedule->entries[at].node;
        if (schedule->entries[at].action == UPS_BACKWARD) {
            assert_true(at >= schedule->backward);
            backwards++;
            continue;
        }
        made[n]++;
        assert_int_equal(made[n], schedule->entries[at].action == UPS_RECOMPUTE ? 2 : 1);
    }
    for (int32_t n = 0; n < g->node_count; n++) {
        assert_true(made[n] >= 1);
        wanted += ups_node_gradient_inputs(g, &g->nodes[n]) != 0;
    }
    assert_int_equal(backwards, wanted);
    free(made);
}

/* A gradient is overwritten once, by its first writer, and added to by all others. */
static void check_contributions(const planned *p) {
    const ups_graph *g = p->graph;
    bool *written = calloc((size_t)g->value_count, sizeof *written);
    int accumulations = 0;
    for (int32_t n = g->node_count - 1; n >= 0; n--) {
        const ups_node *node = &g->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            if (!(ups_node_gradient_inputs(g, node) >> i & 1)) continue;
            ups_value root = ups_graph_root(g, node->inputs[i]);
            assert_int_equal(ups_plan_accumulates(p->plan, n, i), written[root]);
            accumulations += written[root];
            written[root] = true;
        }
    }
    assert_true(accumulations > 0);
    free(written);
}

static void check_waste(const planned *p, double allowed) {
    ups_plan_memory memory = ups_plan_memory_get(p->plan);
    double waste = (double)memory.activations / (double)memory.lower_bound - 1;
    print_message("    arena %.1f MB, lower bound %.1f MB: %.2f %% over\n", (double)memory.activations / 1e6,
                  (double)memory.lower_bound / 1e6, 100 * waste);
    assert_true(waste >= 0);
    assert_true(waste <= allowed);
}

static void check_all(planned p, double allowed_waste) {
    check_no_overlap(&p);
    check_lifetimes(&p);
    check_order(&p);
    if (p.graph->loss != UPS_NO_VALUE) check_contributions(&p);
    check_waste(&p, allowed_waste);
    discard(&p);
}

CLAIM(the_reference_operators_training_step_is_placed_soundly_and_tightly) {
    check_all(operator_plan(UPS_F32, 8, 1, true), 0.05);
    check_all(operator_plan(UPS_BF16, 8, 1, true), 0.05);
}

CLAIM(rollouts_are_placed_soundly_and_tightly) {
    check_all(operator_plan(UPS_BF16, 4, 4, true), 0.05);
}

CLAIM(autoencoders_are_placed_soundly_and_tightly) {
    check_all(autoencoder_plan(UPS_POOL_MEAN), 0.05);
    check_all(autoencoder_plan(UPS_POOL_QUERIES), 0.05);
}

CLAIM(inference_reuses_memory_from_block_to_block) {
    planned training = operator_plan(UPS_BF16, 8, 1, true), inference = operator_plan(UPS_BF16, 8, 1, false);
    planned rollout = operator_plan(UPS_BF16, 8, 8, false);
    size_t one = ups_plan_memory_get(inference.plan).activations;
    assert_true(one * 8 < ups_plan_memory_get(training.plan).activations);
    assert_true(ups_plan_memory_get(rollout.plan).activations < one + one / 4);
    discard(&training);
    check_all(inference, 0.1);
    check_all(rollout, 0.1);
}

/* In a stack of pre-norm blocks: one gradient from the core's output to its input. */
CLAIM(the_gradient_of_the_residual_stream_lies_in_one_place) {
    planned p = operator_plan(UPS_BF16, 8, 1, true);
    const ups_placement *stream = NULL;
    int residuals = 0;
    for (int32_t n = 0; n < p.graph->node_count; n++) {
        const ups_node *node = &p.graph->nodes[n];
        enum { GATE = 2 };
        if (node->kind != UPS_OP_RESIDUAL || node->inputs[GATE] != UPS_NO_VALUE) continue;
        if (!stream) stream = ups_plan_gradient(p.plan, node->output);
        assert_ptr_equal(ups_plan_gradient(p.plan, node->output), stream);
        assert_ptr_equal(ups_plan_gradient(p.plan, node->inputs[0]), stream);
        assert_true(ups_plan_shares(p.plan, n, 0));
        assert_false(ups_plan_accumulates(p.plan, n, 0) || ups_plan_shares(p.plan, n, 1));
        residuals++;
    }
    assert_int_equal(residuals, 24);
    discard(&p);
}

CLAIM(kept_values_live_to_the_end) {
    planned p = {.parameters = ups_parameters_create()};
    p.graph = ups_graph_create(p.parameters, UPS_F32);
    ups_value x = ups_graph_input(p.graph, "x", UPS_F32, UPS_SHAPE(2, 4, 8));
    ups_value kept = ups_gelu(p.graph, x), dropped = ups_silu(p.graph, x);
    ups_graph_keep(p.graph, ups_graph_reshape(p.graph, kept, UPS_SHAPE(8, 8)));
    ups_value last = ups_add(p.graph, kept, dropped);
    for (int i = 0; i < 5; i++) last = ups_scale(p.graph, last, 2, UPS_NO_VALUE);
    make_plan(&p);
    assert_int_equal(ups_plan_value(p.plan, kept, 0)->last, ups_plan_schedule(p.plan)->count - 1);
    assert_int_equal(ups_plan_value(p.plan, dropped, 0)->last, 2);
    assert_int_equal(ups_plan_value(p.plan, x, 0)->offset, -1);
    discard(&p);
}

CLAIM(only_what_backward_reads_outlives_forward) {
    planned p = operator_plan(UPS_BF16, 8, 1, true);
    const ups_graph *g = p.graph;
    int branches = 0;
    for (int32_t n = 0; n < g->node_count; n++) {
        const ups_node *node = &g->nodes[n];
        enum { BRANCH = 1, GATE = 2 };
        if (node->kind != UPS_OP_RESIDUAL || node->inputs[GATE] != UPS_NO_VALUE) continue;
        bool pair = ups_plan_schedule(p.plan)->entries[n].with_next;
        assert_int_equal(ups_plan_value(p.plan, node->inputs[BRANCH], n)->last, n + pair);
        branches++;
    }
    assert_int_equal(branches, 24);
    discard(&p);
}

static double share_saved(ups_dtype compute, ups_checkpointing checkpointing) {
    planned all = operator_plan(compute, 8, 1, true), less = checkpointed_plan(compute, 8, 1, true, checkpointing);
    double share =
        1 - (double)ups_plan_memory_get(less.plan).activations / (double)ups_plan_memory_get(all.plan).activations;
    print_message("    %s, %s: %.1f %% of the activations saved\n", ups_dtype_name(compute),
                  checkpointing == UPS_CHECKPOINTING_CHEAP ? "cheap" : "block", 100 * share);
    discard(&all);
    check_all(less, 0.05);
    return share;
}

CLAIM(checkpointing_saves_what_it_promises) {
    assert_true(share_saved(UPS_F32, UPS_CHECKPOINTING_CHEAP) >= 0.40);
    assert_true(share_saved(UPS_BF16, UPS_CHECKPOINTING_CHEAP) >= 0.40);
    assert_true(share_saved(UPS_F32, UPS_CHECKPOINTING_BLOCK) >= 0.70);
    assert_true(share_saved(UPS_BF16, UPS_CHECKPOINTING_BLOCK) >= 0.70);
}

CLAIM(rollouts_may_be_checkpointed) {
    check_all(checkpointed_plan(UPS_BF16, 4, 4, true, UPS_CHECKPOINTING_CHEAP), 0.05);
    check_all(checkpointed_plan(UPS_BF16, 4, 4, true, UPS_CHECKPOINTING_BLOCK), 0.05);
}

int main(void) {
    return run_claims(NULL, NULL, NULL);
}
