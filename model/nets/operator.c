/* The operator: see the header. Conditions do not depend on z, so a rollout computes them once where all its steps
 * take the same time, and a change between two frames once, however many applications read it. */
#include "model/nets/operator.h"

#include "model/nets/blocks.h"
#include "model/nets/core.h"

#include <stdio.h>
#include <string.h>

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
                                  .attended_tokens = UPS_ATTENDED_TOKENS,
                                  .window = {16, 8, 4},
                                  .depths = {2, 2, 2},
                                  .level_count = 3,
                                  .time_hidden = 64,
                                  .condition_hidden = 128,
                                  .history = 1,
                                  .bundle = 1};
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
    if (o->history < 1 || o->history > UPS_MAX_HISTORY || o->bundle < 1 || o->bundle > UPS_MAX_BUNDLE) {
        return ups_fail(error, UPS_ERR_CONFIG, "operator: history may be 1 to %d and bundle 1 to %d frames",
                        UPS_MAX_HISTORY, UPS_MAX_BUNDLE);
    }
    if (!o->grid.task && (o->history > 1 || o->bundle > 1)) {
        return ups_fail(error, UPS_ERR_CONFIG,
                        "operator: %s of %d needs a grid of tokens, where the change of a step is measured; set "
                        "model.tokens: grid, or leave it 1",
                        o->history > 1 ? "history" : "bundle", o->history > 1 ? o->history : o->bundle);
    }
    return ups_core_check(o, error);
}

bool ups_operator_reads_neighbors(const ups_operator_options *options) {
    return options->neighbors && options->grid.task && !options->grid.scattered;
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
    if (o->boundary && o->grid.task) {
        const ups_init small = {.kind = UPS_INIT_NORMAL, .scale = 0.02f, .no_decay = true};
        ups_graph_scope(g, "%s.condition.boundary", prefix);
        ups_value of =
            ups_graph_parameter(g, o->grid.periodic ? "periodic" : "open", UPS_SHAPE(1, o->condition_hidden), small);
        const int64_t batch = ups_graph_info(g, time)->shape.size[0];
        ups_value each = ups_graph_reshape(g, ups_broadcast(g, of, batch), UPS_SHAPE(batch, o->condition_hidden));
        sum = ups_add(g, sum, each);
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

/* The core over tokens that it knows the places of, or that tell theirs. */
static ups_value run_core(ups_graph *g, const ups_operator_options *o, ups_value x, ups_value features,
                          ups_value places, uint32_t first_layer) {
    const ups_core_input input = {.x = x, .condition = features, .places = places, .first_layer = first_layer};
    return ups_core_find(o->core)->build(g, prefix, o, &input);
}

static ups_value advance(ups_graph *g, const ups_operator_options *o, ups_value z, const condition *c,
                         uint32_t first_layer) {
    const ups_dense_options wide = {.output_f32 = true}, stream = {.output_f32 = o->residual == UPS_RESIDUAL_F32};
    ups_graph_scope(g, "%s.condition", prefix);
    ups_value x = ups_add(g, z, c->time);
    if (c->scale != UPS_NO_VALUE) {
        ups_value normed = ups_layer_norm(g, x, UPS_NO_VALUE, UPS_NO_VALUE, false);
        x = ups_residual(g, x, ups_modulate(g, normed, c->scale, c->shift), c->gate, 0, 0);
    }
    x = ups_dense(g, prefix, "input", x, o->hidden, stream);
    x = run_core(g, o, x, UPS_NO_VALUE, UPS_NO_VALUE, first_layer);
    x = ups_norm(g, prefix, "norm", x, false);
    ups_value update = ups_dense(g, prefix, "output", x, o->dim, wide);
    if (o->update_norm == UPS_UPDATE_LAYER_NORM) update = ups_norm(g, prefix, "update_norm", update, true);
    ups_graph_scope(g, "%s", prefix);
    return ups_add(g, z, update);
}

/* Where tokens lie, and how the points of each, which differ from sample to sample: what a linear map finds in a state,
 * some of whose fields are the points' coordinates (UPS_NO_VALUE: all samples share them, or nothing asks). The map is
 * measured, not learnt, and computed in float32. */
typedef struct geometry {
    ups_value places;  /* (B, tokens, d), about [0, 1] */
    ups_value offsets; /* (B, tokens, offset_count), of unit deviation */
} geometry;

static geometry find_geometry(ups_graph *g, const ups_operator_options *o, ups_value state) {
    const ups_token_grid *grid = &o->grid;
    geometry found = {UPS_NO_VALUE, UPS_NO_VALUE};
    if (!grid->task || !grid->scattered || grid->places) return found;
    if (o->positions != UPS_POSITIONS_BORDERS && o->positions != UPS_POSITIONS_ROTARY) return found;
    const ups_init measured = {.kind = UPS_INIT_ZEROS, .no_decay = true, .fixed = true};
    const int64_t numbers = grid->place_dims + grid->offset_count;
    ups_graph_scope(g, "%s.%s.geometry", prefix, grid->task);
    ups_value weight = ups_graph_parameter(g, "weight", UPS_SHAPE(numbers, o->dim), measured);
    ups_value bias = ups_graph_parameter(g, "bias", UPS_SHAPE(numbers), measured);
    ups_value held = ups_graph_hold(g, state);
    if (grid->bound > 0) held = ups_bound(g, held, grid->bound, true);
    ups_value all = ups_linear(g, held, weight, bias, true);
    found.places = ups_slice(g, all, 0, grid->place_dims);
    found.offsets = ups_slice(g, all, grid->place_dims, grid->offset_count);
    return found;
}

/* The coordinates of tokens that all samples share, (tokens, d) in [0, 1]. */
static ups_value shared_places(ups_graph *g, const ups_operator_options *o) {
    const ups_token_grid *grid = &o->grid;
    ups_value places = ups_graph_find(g, "token_places");
    if (places != UPS_NO_VALUE) return places;
    const int dims = grid->scattered ? grid->place_dims : grid->dims;
    float *host = UPS_ARENA_ARRAY(g->arena, float, o->tokens *dims);
    if (grid->scattered)
        memcpy(host, grid->places, (size_t)(o->tokens * dims) * sizeof *host);
    else
        ups_grid_coordinates(grid->dims, grid->cells, host);
    return ups_graph_constant(g, "token_places", UPS_F32, UPS_SHAPE(o->tokens, dims), host);
}

/* (tokens, offset_count): how the points of each token lie around its middle. */
static ups_value shared_offsets(ups_graph *g, const ups_operator_options *o) {
    const ups_token_grid *grid = &o->grid;
    ups_value offsets = ups_graph_find(g, "token_offsets");
    if (offsets != UPS_NO_VALUE) return offsets;
    const int64_t numbers = o->tokens * grid->offset_count;
    float *host = UPS_ARENA_ARRAY(g->arena, float, numbers);
    memcpy(host, grid->offsets, (size_t)numbers * sizeof *host);
    return ups_graph_constant(g, "token_offsets", UPS_F32, UPS_SHAPE(o->tokens, grid->offset_count), host);
}

/* Where tokens lie. Unless told otherwise only where that matters: on a periodic grid no place differs from another.
 * Of points that lie anywhere, a map of the task's own adds how those of each token lie around its middle. */
static ups_value add_position(ups_graph *g, const ups_operator_options *o, const char *own, const geometry *at,
                              ups_value x) {
    const ups_token_grid *grid = &o->grid;
    const bool told = at->places != UPS_NO_VALUE;
    if (o->positions == UPS_POSITIONS_LEARNED) {
        const ups_init small = {.kind = UPS_INIT_NORMAL, .scale = 0.02f, .no_decay = true};
        ups_graph_scope(g, "%s.%s.positions", prefix, grid->task);
        return ups_add(g, x, ups_graph_parameter(g, "weight", UPS_SHAPE(o->tokens, o->hidden), small));
    }
    if (grid->periodic || o->positions == UPS_POSITIONS_NONE) return x;
    const int dims = grid->scattered ? grid->place_dims : grid->dims;
    if (grid->scattered) {
        const ups_dense_options wide = {.output_f32 = true, .no_bias = true};
        x = ups_add(g, x, ups_dense(g, own, "offsets", told ? at->offsets : shared_offsets(g, o), o->hidden, wide));
    }
    char name[32];
    snprintf(name, sizeof name, "position%dd", dims);
    const ups_shape shape = ups_graph_info(g, x)->shape;
    ups_value places =
        told ? ups_graph_reshape(g, at->places, UPS_SHAPE(shape.size[0] * o->tokens, dims)) : shared_places(g, o);
    ups_value features = ups_position(g, prefix, name, places, position_frequencies, POSITION_FREQUENCIES, o->hidden);
    return ups_add(g, x, told ? ups_graph_reshape(g, features, shape) : features);
}

/* An update without that part of its mean over all tokens which never changes in the data: `kept` (dim, dim) is less
 * the projection onto those directions, zero where there are none. */
static ups_value keep_what_stays(ups_graph *g, ups_value update, int64_t dim) {
    const ups_init measured = {.kind = UPS_INIT_ZEROS, .no_decay = true, .fixed = true};
    ups_value kept = ups_graph_parameter(g, "kept", UPS_SHAPE(dim, dim), measured);
    return ups_add(g, update, ups_linear(g, ups_pool_tokens(g, update, 1), kept, UPS_NO_VALUE, true));
}

/* The frames that an application reads, (B, tokens, dim) each: the last one, and how much each of those up to it
 * changed, in units of what a step changes; the last change last. */
typedef struct past {
    ups_value last, changes[UPS_MAX_HISTORY];
    int count; /* changes: history − 1 */
} past;

static void name_task(const ups_operator_options *o, char name[160]) {
    snprintf(name, 160, "%s.%s", prefix, o->grid.task);
}

/* Where it is kept what a step changes. */
static void scope_to_step(ups_graph *g, const ups_operator_options *o) {
    char own[160];
    name_task(o, own);
    if (o->grid.stride > 0)
        ups_graph_scope(g, "%s.stride%lld", own, (long long)o->grid.stride);
    else
        ups_graph_scope(g, "%s", own);
}

/* The frame after those there are. */
static void add_frame(ups_graph *g, const ups_operator_options *o, past *p, ups_value z) {
    if (o->history > 1) {
        scope_to_step(g, o);
        const ups_init one = {.kind = UPS_INIT_ONES, .no_decay = true};
        ups_value rate = ups_graph_parameter(g, "rate", UPS_SHAPE(o->dim), one);
        ups_value change = ups_add(g, z, ups_scale(g, p->last, -1, UPS_NO_VALUE));
        if (p->count == o->history - 1) memmove(p->changes, p->changes + 1, sizeof *p->changes * (size_t)--p->count);
        p->changes[p->count++] = ups_scale(g, change, 1, rate);
    }
    p->last = z;
}

/* x + Σ_j NAME_j(d_j). */
static ups_value add_changes(ups_graph *g, const char *own, const char *name, const past *p, ups_value x) {
    const ups_dense_options nothing = {.output_f32 = true, .zero = true, .no_bias = true};
    for (int j = 1; j <= p->count; j++) {
        char numbered[32];
        snprintf(numbered, sizeof numbered, "%s%d", name, j);
        int64_t width = ups_shape_last(ups_graph_info(g, x)->shape);
        x = ups_add(g, x, ups_dense(g, own, numbered, p->changes[p->count - j], width, nothing));
    }
    return x;
}

/* The next frames, `bundle` of them, in `next`. */
static void advance_on_grid(ups_graph *g, const ups_operator_options *o, const past *p, const condition *c,
                            const geometry *at, uint32_t first_layer, ups_value *next) {
    const ups_dense_options wide = {.output_f32 = true}, zero = {.output_f32 = true, .zero = true};
    const int64_t width = o->bundle * o->dim;
    char own[160];
    name_task(o, own);
    ups_value x = ups_dense(g, own, "input", p->last, o->hidden, wide);
    x = add_position(g, o, own, at, add_changes(g, own, "earlier", p, x));
    if (o->residual == UPS_RESIDUAL_HALF && g->compute != UPS_F32) x = ups_cast(g, x, g->compute);
    x = run_core(g, o, x, c->features, at->places, first_layer);
    x = ups_norm(g, prefix, "norm", x, false);
    ups_value read = p->last;
    if (ups_operator_reads_neighbors(o))
        read = ups_neighborhood(g, read, o->grid.dims, o->grid.cells, o->grid.periodic);
    ups_value update =
        ups_add(g, ups_dense(g, own, "output", x, width, zero), ups_dense(g, own, "skip", read, width, zero));
    update = add_changes(g, own, "trend", p, update);
    scope_to_step(g, o);
    const ups_init one = {.kind = UPS_INIT_ONES, .no_decay = true};
    ups_value scale = ups_graph_parameter(g, "change", UPS_SHAPE(width), one);
    update = ups_scale(g, update, 1, scale);
    ups_graph_scope(g, "%s", own);
    for (int i = 0; i < o->bundle; i++) {
        ups_value change = o->bundle == 1 ? update : ups_slice(g, update, i * o->dim, o->dim);
        if (o->conserve) change = keep_what_stays(g, change, o->dim);
        next[i] = ups_add(g, p->last, change);
    }
}

/* What an application gave, as the next one reads it. */
static ups_value read_state(ups_graph *graph, const ups_operator_options *options, ups_value state) {
    return options->pushforward ? ups_graph_hold(graph, state) : state;
}

void ups_operator_rollout(ups_graph *graph, const ups_operator_options *options, const ups_value *given, ups_value dt,
                          ups_value parameters, ups_value task, int applications, ups_value *states) {
    const bool own_times = ups_shape_last(ups_graph_info(graph, dt)->shape) > 1; /* of each application */
    condition c;
    past known = {.last = given[0]};
    const geometry at = find_geometry(graph, options, given[0]); /* points stay where they are */
    for (int i = 1; i < options->history; i++) add_frame(graph, options, &known, given[i]);
    for (int k = 0; k < applications; k++, states += options->bundle) {
        uint32_t first_layer = (uint32_t)(2 * ups_core_block_count(options) * k);
        if (own_times || k == 0)
            c = build_condition(graph, options, own_times ? ups_slice(graph, dt, k, 1) : dt, parameters, task);
        if (options->grid.task) {
            advance_on_grid(graph, options, &known, &c, &at, first_layer, states);
        } else {
            states[0] = advance(graph, options, known.last, &c, first_layer);
        }
        if (k + 1 == applications) break;
        int unread = options->bundle - options->history; /* of these, the next application reads none */
        if (unread >= 0) known = (past){.last = read_state(graph, options, states[unread])};
        for (int i = unread >= 0 ? unread + 1 : 0; i < options->bundle; i++)
            add_frame(graph, options, &known, read_state(graph, options, states[i]));
    }
}

ups_value ups_operator_build(ups_graph *graph, const ups_operator_options *options, ups_value z, ups_value dt,
                             ups_value parameters, ups_value task) {
    ups_value given[UPS_MAX_HISTORY], states[UPS_MAX_BUNDLE] = {UPS_NO_VALUE};
    for (int i = 0; i < UPS_MAX_HISTORY; i++) given[i] = z;
    ups_operator_rollout(graph, options, given, dt, parameters, task, 1, states);
    return states[0];
}
