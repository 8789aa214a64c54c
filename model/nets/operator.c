/* The operator: see the header. Conditions do not depend on z, so a rollout computes them once. */
#include "model/nets/operator.h"

#include "model/nets/blocks.h"
#include "model/nets/core.h"

static const char prefix[] = "operator";

typedef struct condition {
    ups_value time;               /* (B, 1, dim), added to every token */
    ups_value scale, shift, gate; /* (B, dim); UPS_NO_VALUE: unconditioned */
} condition;

ups_operator_options ups_operator_defaults(void) {
    return (ups_operator_options){.tokens = 128,
                                  .dim = 128,
                                  .hidden = 384,
                                  .depth = 12,
                                  .heads = 8,
                                  .mlp_ratio = 4,
                                  .drop_path = 0.1f,
                                  .qk_norm = true,
                                  .time_hidden = 64,
                                  .condition_hidden = 128};
}

ups_status ups_operator_check(const ups_operator_options *o, ups_error *error) {
    if (o->tokens < 1 || o->dim < 1 || o->hidden < 1 || o->depth < 1 || o->heads < 1 || o->time_hidden < 1) {
        return ups_fail(error, UPS_ERR_CONFIG, "operator: tokens, dim, hidden, depth and heads must be at least 1");
    }
    if (o->parameter_count < 0 || o->task_count < 0 ||
        (o->parameter_count + o->task_count > 0 && o->condition_hidden < 1)) {
        return ups_fail(error, UPS_ERR_CONFIG, "operator: a condition needs condition_hidden of at least 1");
    }
    if (!(o->drop_path >= 0 && o->drop_path < 1)) {
        return ups_fail(error, UPS_ERR_CONFIG, "operator: drop_path %g is not in [0, 1)", o->drop_path);
    }
    const ups_core_class *core = ups_core_find(o->core);
    if (!core) return ups_fail(error, UPS_ERR_CONFIG, "operator: there is no core '%s'", o->core);
    return core->check(o, error);
}

static condition build_condition(ups_graph *g, const ups_operator_options *o, ups_value dt, ups_value parameters,
                                 ups_value task) {
    const ups_dense_options plain = {0}, wide = {.output_f32 = true};
    ups_value features = ups_silu(g, ups_dense(g, prefix, "time.0", dt, o->time_hidden, plain));
    ups_value time = ups_dense(g, prefix, "time.1", features, o->time_hidden, plain);
    time = ups_dense(g, prefix, "time.2", time, o->dim, wide);
    int64_t batch = ups_graph_info(g, dt)->shape.size[0];
    condition made = {ups_graph_reshape(g, time, UPS_SHAPE(batch, 1, o->dim)), UPS_NO_VALUE, UPS_NO_VALUE,
                      UPS_NO_VALUE};
    if (!o->parameter_count && !o->task_count) return made;

    ups_value sum = ups_dense(g, prefix, "condition.time", features, o->condition_hidden, wide);
    if (o->parameter_count) {
        sum = ups_add(g, sum, ups_dense(g, prefix, "condition.parameters", parameters, o->condition_hidden, wide));
    }
    if (o->task_count) {
        const ups_dense_options embedding = {.output_f32 = true, .no_bias = true, .no_decay = true};
        sum = ups_add(g, sum, ups_dense(g, prefix, "condition.task", task, o->condition_hidden, embedding));
    }
    ups_value hidden = ups_dense(g, prefix, "condition.hidden", ups_silu(g, sum), o->condition_hidden, wide);
    const ups_dense_options zero = {.output_f32 = true, .zero = true};
    ups_value all = ups_dense(g, prefix, "condition.output", ups_silu(g, hidden), 3 * o->dim, zero);
    made.scale = ups_slice(g, all, 0, o->dim);
    made.shift = ups_slice(g, all, o->dim, o->dim);
    made.gate = ups_slice(g, all, 2 * o->dim, o->dim);
    return made;
}

static ups_value advance(ups_graph *g, const ups_operator_options *o, ups_value z, const condition *c,
                         uint32_t first_layer) {
    ups_graph_scope(g, "%s.condition", prefix);
    ups_value x = ups_add(g, z, c->time);
    if (c->scale != UPS_NO_VALUE) {
        ups_value normed = ups_layer_norm(g, x, UPS_NO_VALUE, UPS_NO_VALUE, false);
        x = ups_residual(g, x, ups_modulate(g, normed, c->scale, c->shift), c->gate, 0, 0);
    }
    ups_value update = ups_core_find(o->core)->build(g, prefix, o, x, first_layer);
    if (o->update_norm == UPS_UPDATE_LAYER_NORM) update = ups_norm(g, prefix, "update_norm", update, true);
    ups_graph_scope(g, "%s", prefix);
    return ups_add(g, z, update);
}

void ups_operator_rollout(ups_graph *graph, const ups_operator_options *options, ups_value z, ups_value dt,
                          ups_value parameters, ups_value task, int steps, ups_value *states) {
    condition c = build_condition(graph, options, dt, parameters, task);
    for (int k = 0; k < steps; k++) {
        z = advance(graph, options, z, &c, (uint32_t)(2 * options->depth * k));
        states[k] = z;
    }
}

ups_value ups_operator_build(ups_graph *graph, const ups_operator_options *options, ups_value z, ups_value dt,
                             ups_value parameters, ups_value task) {
    ups_value state;
    ups_operator_rollout(graph, options, z, dt, parameters, task, 1, &state);
    return state;
}
