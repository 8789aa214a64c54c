/* The operator: see the header. Conditions do not depend on z, so a rollout computes them once. */
#include "model/nets/operator.h"

#include "model/nets/blocks.h"
#include "model/nets/core.h"

#include <stdio.h>

static const char prefix[] = "operator";

typedef struct condition {
    ups_value time;               /* (B, 1, dim), added to every token; on a grid UPS_NO_VALUE */
    ups_value scale, shift, gate; /* (B, dim); UPS_NO_VALUE: unconditioned */
    ups_value features;           /* (B, condition_hidden), of blocks on a grid; elsewhere UPS_NO_VALUE */
} condition;

static const float position_frequencies[] = {1, 2, 4, 8, 16};
enum { POSITION_FREQUENCIES = sizeof position_frequencies / sizeof *position_frequencies };

ups_operator_options ups_operator_defaults(void) {
    return (ups_operator_options){.tokens = 128,
                                  .dim = 128,
                                  .hidden = 384,
                                  .depth = 12,
                                  .heads = 8,
                                  .mlp_ratio = 4,
                                  .drop_path = 0.1f,
                                  .qk_norm = true,
                                  .modes = {32, 12, 8},
                                  .window = {16, 8, 4},
                                  .depths = {2, 2, 2},
                                  .level_count = 3,
                                  .time_hidden = 64,
                                  .condition_hidden = 128};
}

ups_status ups_operator_check(const ups_operator_options *o, ups_error *error) {
    if (o->tokens < 1 || o->dim < 1 || o->hidden < 1 || o->depth < 1 || o->heads < 1 || o->time_hidden < 1) {
        return ups_fail(error, UPS_ERR_CONFIG, "operator: tokens, dim, hidden, depth and heads must be at least 1");
    }
    if (o->modes[0] < 1 || o->modes[1] < 1 || o->modes[2] < 1) {
        return ups_fail(error, UPS_ERR_CONFIG, "operator: modes must be at least 1");
    }
    if (o->parameter_count < 0 || o->task_count < 0 ||
        (o->parameter_count + o->task_count > 0 && o->condition_hidden < 1)) {
        return ups_fail(error, UPS_ERR_CONFIG, "operator: a condition needs condition_hidden of at least 1");
    }
    if (!(o->drop_path >= 0 && o->drop_path < 1)) {
        return ups_fail(error, UPS_ERR_CONFIG, "operator: drop_path %g is not in [0, 1)", o->drop_path);
    }
    return ups_core_check(o, error);
}

/* (B, condition_hidden): what is known beside the state. */
static ups_value condition_features(ups_graph *g, const ups_operator_options *o, ups_value time, ups_value parameters,
                                    ups_value task) {
    const ups_dense_options wide = {.output_f32 = true};
    ups_value sum = ups_dense(g, prefix, "condition.time", time, o->condition_hidden, wide);
    if (o->parameter_count) {
        sum = ups_add(g, sum, ups_dense(g, prefix, "condition.parameters", parameters, o->condition_hidden, wide));
    }
    if (o->task_count) {
        const ups_dense_options embedding = {.output_f32 = true, .no_bias = true, .no_decay = true};
        sum = ups_add(g, sum, ups_dense(g, prefix, "condition.task", task, o->condition_hidden, embedding));
    }
    return ups_silu(g, ups_dense(g, prefix, "condition.hidden", ups_silu(g, sum), o->condition_hidden, wide));
}

static condition build_condition(ups_graph *g, const ups_operator_options *o, ups_value dt, ups_value parameters,
                                 ups_value task) {
    const ups_dense_options plain = {0}, wide = {.output_f32 = true};
    condition made = {UPS_NO_VALUE, UPS_NO_VALUE, UPS_NO_VALUE, UPS_NO_VALUE, UPS_NO_VALUE};
    bool conditioned = o->parameter_count > 0 || o->task_count > 0, grid = o->grid.task != NULL;
    ups_value features = ups_silu(g, ups_dense(g, prefix, "time.0", dt, o->time_hidden, plain));
    if (!grid) {
        ups_value time = ups_dense(g, prefix, "time.1", features, o->time_hidden, plain);
        time = ups_dense(g, prefix, "time.2", time, o->dim, wide);
        made.time = ups_graph_reshape(g, time, UPS_SHAPE(ups_graph_info(g, dt)->shape.size[0], 1, o->dim));
    }
    if (!conditioned) return made;
    ups_value known = condition_features(g, o, features, parameters, task);
    if (grid) {
        made.features = known;
        return made;
    }
    const ups_dense_options zero = {.output_f32 = true, .zero = true};
    ups_value all = ups_dense(g, prefix, "condition.output", known, 3 * o->dim, zero);
    made.scale = ups_slice(g, all, 0, o->dim);
    made.shift = ups_slice(g, all, o->dim, o->dim);
    made.gate = ups_slice(g, all, 2 * o->dim, o->dim);
    return made;
}

static ups_value advance(ups_graph *g, const ups_operator_options *o, ups_value z, const condition *c,
                         uint32_t first_layer) {
    const ups_dense_options wide = {.output_f32 = true};
    ups_graph_scope(g, "%s.condition", prefix);
    ups_value x = ups_add(g, z, c->time);
    if (c->scale != UPS_NO_VALUE) {
        ups_value normed = ups_layer_norm(g, x, UPS_NO_VALUE, UPS_NO_VALUE, false);
        x = ups_residual(g, x, ups_modulate(g, normed, c->scale, c->shift), c->gate, 0, 0);
    }
    x = ups_dense(g, prefix, "input", x, o->hidden, wide);
    x = ups_core_find(o->core)->build(g, prefix, o, x, UPS_NO_VALUE, first_layer);
    x = ups_norm(g, prefix, "norm", x, false);
    ups_value update = ups_dense(g, prefix, "output", x, o->dim, wide);
    if (o->update_norm == UPS_UPDATE_LAYER_NORM) update = ups_norm(g, prefix, "update_norm", update, true);
    ups_graph_scope(g, "%s", prefix);
    return ups_add(g, z, update);
}

/* Where tokens lie. Unless told otherwise only where that matters: on a periodic grid no place differs from another. */
static ups_value add_position(ups_graph *g, const ups_operator_options *o, ups_value x) {
    const ups_token_grid *grid = &o->grid;
    if (o->positions == UPS_POSITIONS_LEARNED) {
        const ups_init small = {.kind = UPS_INIT_NORMAL, .scale = 0.02f, .no_decay = true};
        ups_graph_scope(g, "%s.%s.positions", prefix, grid->task);
        return ups_add(g, x, ups_graph_parameter(g, "weight", UPS_SHAPE(o->tokens, o->hidden), small));
    }
    if (grid->periodic || o->positions == UPS_POSITIONS_NONE) return x;
    char name[32];
    snprintf(name, sizeof name, "position%dd", grid->dims);
    ups_value places = ups_graph_find(g, "token_places");
    if (places == UPS_NO_VALUE) {
        float *host = UPS_ARENA_ARRAY(g->arena, float, o->tokens * grid->dims);
        ups_grid_coordinates(grid->dims, grid->cells, host);
        places = ups_graph_constant(g, "token_places", UPS_F32, UPS_SHAPE(o->tokens, grid->dims), host);
    }
    return ups_add(g, x, ups_position(g, prefix, name, places, position_frequencies, POSITION_FREQUENCIES, o->hidden));
}

static ups_value advance_on_grid(ups_graph *g, const ups_operator_options *o, ups_value z, const condition *c,
                                 uint32_t first_layer) {
    const ups_dense_options wide = {.output_f32 = true}, zero = {.output_f32 = true, .zero = true};
    char own[160];
    snprintf(own, sizeof own, "%s.%s", prefix, o->grid.task);
    ups_value x = add_position(g, o, ups_dense(g, own, "input", z, o->hidden, wide));
    x = ups_core_find(o->core)->build(g, prefix, o, x, c->features, first_layer);
    x = ups_norm(g, prefix, "norm", x, false);
    ups_value update =
        ups_add(g, ups_dense(g, own, "output", x, o->dim, zero), ups_dense(g, own, "skip", z, o->dim, zero));
    ups_graph_scope(g, "%s", own);
    const ups_init one = {.kind = UPS_INIT_ONES, .no_decay = true};
    ups_value scale = ups_graph_parameter(g, "change", UPS_SHAPE(o->dim), one);
    return ups_add(g, z, ups_scale(g, update, 1, scale));
}

void ups_operator_rollout(ups_graph *graph, const ups_operator_options *options, ups_value z, ups_value dt,
                          ups_value parameters, ups_value task, int steps, ups_value *states) {
    condition c = build_condition(graph, options, dt, parameters, task);
    for (int k = 0; k < steps; k++) {
        uint32_t first_layer = (uint32_t)(2 * ups_core_block_count(options) * k);
        z = options->grid.task ? advance_on_grid(graph, options, z, &c, first_layer)
                               : advance(graph, options, z, &c, first_layer);
        states[k] = z;
    }
}

ups_value ups_operator_build(ups_graph *graph, const ups_operator_options *options, ups_value z, ups_value dt,
                             ups_value parameters, ups_value task) {
    ups_value state;
    ups_operator_rollout(graph, options, z, dt, parameters, task, 1, &state);
    return state;
}
