#include "train/objectives/field_losses.h"

#include "train/objectives/modes.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Least norms of targets, as shares of that of a field of deviation 1. */
static const double least_of_channel = 1e-3, least_of_octave = 1e-2;

static const int field_losses[] = {UPS_OPERATOR_DECODED,      UPS_OPERATOR_ROLLOUT_DECODED, UPS_OPERATOR_SPECTRAL,
                                   UPS_OPERATOR_CONSERVATION, UPS_OPERATOR_POSITIVITY,      UPS_OPERATOR_DIVERGENCE,
                                   UPS_OPERATOR_BOUNDARY};
enum { FIELD_LOSSES = sizeof field_losses / sizeof *field_losses };

bool ups_field_losses_wanted(const ups_run_config *config) {
    bool wanted = false;
    for (int i = 0; i < FIELD_LOSSES; i++) wanted = wanted || config->op.training.losses[field_losses[i]].weight > 0;
    return wanted;
}

/* ---- which fields ----------------------------------------------------------------------------------------------- */

static const ups_field_names *names_of(const ups_run_config *config, int loss) {
    switch (loss) {
    case UPS_OPERATOR_CONSERVATION:
        return &config->op.conservation;
    case UPS_OPERATOR_POSITIVITY:
        return &config->op.positivity;
    case UPS_OPERATOR_DIVERGENCE:
        return &config->op.divergence;
    case UPS_OPERATOR_BOUNDARY:
        return &config->op.boundary;
    default:
        return NULL;
    }
}

/* Neighbours and borders are those of a grid, and so are wavenumbers: of points that lie anywhere there is no such
 * loss.
 */
static bool needs_grid(int loss) {
    return loss == UPS_OPERATOR_SPECTRAL || loss == UPS_OPERATOR_DIVERGENCE || loss == UPS_OPERATOR_BOUNDARY;
}

/* The task's channels that a loss is of, in the order of the names; how many there are. Without names all; of the
 * divergence one along each axis, or none. */
static int64_t channels_of(const ups_run_config *config, const ups_task *task, int loss, int64_t *channels) {
    const ups_field_names *names = names_of(config, loss);
    int64_t count = 0;
    if (loss == UPS_OPERATOR_BOUNDARY && task->geometry.periodic) return 0;
    if (task->geometry.points && needs_grid(loss)) return 0;
    for (int64_t c = 0; names->count == 0 && c < task->geometry.channels; c++) channels[count++] = c;
    for (unsigned n = 0; n < names->count; n++) {
        int64_t channel = ups_field_channel(task, names->names[n]);
        if (channel >= 0) channels[count++] = channel;
    }
    if (loss == UPS_OPERATOR_DIVERGENCE && count != task->geometry.dims) return 0;
    return count;
}

static ups_status check_names(const ups_run_config *config, const ups_tasks *tasks, int loss, ups_error *error) {
    const char *key = ups_run_loss_names(UPS_STAGE_OPERATOR)[loss];
    const ups_field_names *names = names_of(config, loss);
    char fields[64];
    snprintf(fields, sizeof fields, "operator.losses.%s.fields", key);
    UPS_TRY(ups_field_check_names(names, fields, tasks, error));
    bool any = false;
    for (int t = 0; t < tasks->count; t++) {
        const ups_task *task = &tasks->task[t];
        int64_t *channels = calloc((size_t)task->geometry.channels + names->count + 1, sizeof *channels);
        if (!channels) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        any = any || channels_of(config, task, loss, channels) > 0;
        free(channels);
    }
    if (any) return UPS_OK;
    if (loss == UPS_OPERATOR_BOUNDARY) {
        return ups_fail(error, UPS_ERR_CONFIG,
                        "operator.losses.boundary: every task's domain is periodic, and has no border, or its points "
                        "lie anywhere, so that the border is not known; set its weight to 0");
    }
    return ups_fail(error, UPS_ERR_CONFIG,
                    "operator.losses.%s.fields: no task has as many of these fields as grid axes; name the velocity "
                    "along each axis, in their order",
                    key);
}

ups_status ups_field_losses_check(const ups_run_config *config, const ups_tasks *tasks, ups_error *error) {
    bool any_grid = false;
    for (int t = 0; t < tasks->count; t++) any_grid |= tasks->task[t].geometry.points == NULL;
    if (!any_grid && config->op.training.losses[UPS_OPERATOR_SPECTRAL].weight > 0)
        return ups_fail(error, UPS_ERR_CONFIG,
                        "operator.losses.spectral: wavenumbers are those of a grid, and the points of every task lie "
                        "anywhere; set its weight to 0");
    for (int i = 0; i < FIELD_LOSSES; i++) {
        bool wanted = config->op.training.losses[field_losses[i]].weight > 0;
        if (wanted && names_of(config, field_losses[i])) {
            UPS_TRY(check_names(config, tasks, field_losses[i], error));
        }
    }
    return UPS_OK;
}

/* ---- one loss each ---------------------------------------------------------------------------------------------- */

/* What a graph's losses share: patches of a step's prediction and truth. */
typedef struct frame {
    ups_graph *graph;
    const ups_field *field;
    ups_value prediction, truth; /* patches (B, tokens, numbers) */
} frame;

/* Numbers of patches that reach beyond the grid are of a group without weight. */
static ups_value decoded_term(const frame *f) {
    ups_graph *g = f->graph;
    const ups_field *field = f->field;
    const int64_t all = field->tokens * field->numbers, channels = field->channels;
    int32_t *group = UPS_ARENA_ARRAY(g->arena, int32_t, all);
    float *table = UPS_ARENA_ARRAY(g->arena, float, 2 * (channels + 1));
    for (int64_t i = 0; i < all; i++) group[i] = (int32_t)channels;
    for (int64_t p = 0; p < field->points; p++) {
        int64_t at[UPS_MAX_GRID_DIMS];
        ups_field_point(field->task, p, at);
        for (int64_t c = 0; c < channels; c++) group[ups_field_number(field, at, c)] = (int32_t)c;
    }
    for (int64_t c = 0; c < channels; c++) {
        table[2 * c] = 1.0f / (float)channels;
        table[2 * c + 1] = ups_field_offset(field, c);
    }
    return ups_loss_grouped(g, f->prediction, f->truth,
                            ups_field_constant(g, "field_channel", UPS_I32, UPS_SHAPE(all), group),
                            ups_field_constant(g, "field_channels", UPS_F32, UPS_SHAPE(channels + 1, 2), table),
                            (float)(least_of_channel * sqrt((double)field->points)));
}

static ups_value spectral_term(const frame *f) {
    ups_graph *g = f->graph;
    int groups;
    int32_t *group = ups_modes_octaves(f->field, g->arena, &groups);
    float *table = UPS_ARENA_ARRAY(g->arena, float, 2 * groups);
    for (int i = 0; i < groups; i++) table[2 * i] = 1.0f / (float)groups;
    const int64_t all = f->field->points * f->field->channels;
    return ups_loss_grouped(g, ups_modes_build(g, f->field, f->prediction), ups_modes_build(g, f->field, f->truth),
                            ups_field_constant(g, "field_octave", UPS_I32, UPS_SHAPE(all), group),
                            ups_field_constant(g, "field_octaves", UPS_F32, UPS_SHAPE(groups, 2), table),
                            (float)(least_of_octave * sqrt((double)f->field->points)));
}

static ups_value conservation_term(const frame *f, const int64_t *channels, int64_t count) {
    ups_graph *g = f->graph;
    const ups_field *field = f->field;
    const int64_t all = field->tokens * field->numbers, batch = ups_graph_info(g, f->prediction)->shape.size[0];
    float *mean = UPS_ARENA_ARRAY(g->arena, float, count *all);
    for (int64_t p = 0; p < field->points; p++) {
        int64_t at[UPS_MAX_GRID_DIMS];
        ups_field_point(field->task, p, at);
        for (int64_t i = 0; i < count; i++)
            mean[i * all + ups_field_number(field, at, channels[i])] = 1.0f / (float)field->points;
    }
    ups_value map = ups_field_constant(g, "field_mean", UPS_F32, UPS_SHAPE(count, all), mean);
    ups_value means[2] = {f->prediction, f->truth};
    for (int i = 0; i < 2; i++)
        means[i] = ups_linear(g, ups_graph_reshape(g, means[i], UPS_SHAPE(batch, all)), map, UPS_NO_VALUE, true);
    return ups_loss_mse(g, means[0], means[1]);
}

static ups_value positivity_term(const frame *f, const int64_t *channels, int64_t count) {
    ups_graph *g = f->graph;
    const ups_field *field = f->field;
    const int64_t all = field->points * count;
    int32_t *places = UPS_ARENA_ARRAY(g->arena, int32_t, all);
    float *offsets = UPS_ARENA_ARRAY(g->arena, float, all);
    for (int64_t i = 0; i < all; i++) {
        int64_t at[UPS_MAX_GRID_DIMS], channel = channels[i % count];
        ups_field_point(field->task, i / count, at);
        places[i] = (int32_t)ups_field_number(field, at, channel);
        offsets[i] = ups_field_offset(field, channel);
    }
    ups_value at = ups_field_constant(g, "field_positive", UPS_I32, UPS_SHAPE(all), places);
    ups_value zero = ups_field_constant(g, "field_zero", UPS_F32, UPS_SHAPE(all), offsets);
    return ups_loss_negative(g, ups_add(g, ups_field_gather(g, f->prediction, at), zero));
}

/* Places of the neighbours before or after each point along an axis, of its velocity. */
static ups_value neighbours(const frame *f, const int64_t *points, int64_t count, int axis, int64_t channel, int step) {
    const ups_task *task = f->field->task;
    int32_t *places = UPS_ARENA_ARRAY(f->graph->arena, int32_t, count);
    char name[48];
    for (int64_t p = 0; p < count; p++) {
        int64_t at[UPS_MAX_GRID_DIMS], size = task->geometry.grid[axis];
        ups_field_point(task, points[p], at);
        at[axis] = (at[axis] + step + size) % size;
        places[p] = (int32_t)ups_field_number(f->field, at, channel);
    }
    snprintf(name, sizeof name, "field_%s%d", step > 0 ? "after" : "before", axis);
    return ups_field_constant(f->graph, name, UPS_I32, UPS_SHAPE(count), places);
}

/* Σ over axes of α (u_after − u_before). */
static ups_value divergence(const frame *f, ups_value patches, const int64_t *points, int64_t count,
                            const int64_t *channels) {
    ups_graph *g = f->graph;
    const ups_task *task = f->field->task;
    const int dims = task->geometry.dims;
    double finest = INFINITY, squares = 0;
    ups_value sum = UPS_NO_VALUE;
    for (int a = 0; a < dims; a++) {
        double deviation = 1.0 / (double)f->field->statistics[2 * channels[a] + 1];
        finest = fmin(finest, ups_field_spacing(task, a));
        squares += deviation * deviation / dims;
    }
    for (int a = 0; a < dims; a++) {
        double deviation = 1.0 / (double)f->field->statistics[2 * channels[a] + 1];
        float factor = (float)(deviation / sqrt(squares) * finest / (2 * ups_field_spacing(task, a)));
        ups_value after = ups_field_gather(g, patches, neighbours(f, points, count, a, channels[a], 1));
        ups_value before = ups_field_gather(g, patches, neighbours(f, points, count, a, channels[a], -1));
        ups_value slope =
            ups_add(g, ups_scale(g, after, factor, UPS_NO_VALUE), ups_scale(g, before, -factor, UPS_NO_VALUE));
        sum = sum == UPS_NO_VALUE ? slope : ups_add(g, sum, slope);
    }
    return sum;
}

/* UPS_NO_VALUE where the grid has no interior. */
static ups_value divergence_term(const frame *f, const int64_t *channels) {
    const ups_task *task = f->field->task;
    int64_t *points = UPS_ARENA_ARRAY(f->graph->arena, int64_t, f->field->points), count = 0;
    for (int64_t p = 0; p < f->field->points; p++) {
        if (task->geometry.periodic || !ups_field_on_border(task, p)) points[count++] = p;
    }
    if (count == 0) return UPS_NO_VALUE;
    return ups_loss_mse(f->graph, divergence(f, f->prediction, points, count, channels),
                        divergence(f, f->truth, points, count, channels));
}

static ups_value boundary_term(const frame *f, const int64_t *channels, int64_t count) {
    const ups_field *field = f->field;
    int32_t *places = UPS_ARENA_ARRAY(f->graph->arena, int32_t, field->points * count);
    int64_t found = 0;
    for (int64_t p = 0; p < field->points; p++) {
        int64_t at[UPS_MAX_GRID_DIMS];
        if (!ups_field_on_border(field->task, p)) continue;
        ups_field_point(field->task, p, at);
        for (int64_t i = 0; i < count; i++) places[found++] = (int32_t)ups_field_number(field, at, channels[i]);
    }
    ups_value at = ups_field_constant(f->graph, "field_border", UPS_I32, UPS_SHAPE(found), places);
    return ups_loss_mse(f->graph, ups_field_gather(f->graph, f->prediction, at),
                        ups_field_gather(f->graph, f->truth, at));
}

/* ---- all of them ------------------------------------------------------------------------------------------------ */

static ups_value term_of(const ups_run_config *config, const frame *f, int loss) {
    if (loss == UPS_OPERATOR_DECODED || loss == UPS_OPERATOR_ROLLOUT_DECODED) return decoded_term(f);
    if (loss == UPS_OPERATOR_SPECTRAL) return f->field->task->geometry.points ? UPS_NO_VALUE : spectral_term(f);
    const int64_t most = f->field->channels + names_of(config, loss)->count;
    int64_t *channels = UPS_ARENA_ARRAY(f->graph->arena, int64_t, most);
    int64_t count = channels_of(config, f->field->task, loss, channels);
    if (count == 0) return UPS_NO_VALUE;
    if (loss == UPS_OPERATOR_CONSERVATION) return conservation_term(f, channels, count);
    if (loss == UPS_OPERATOR_POSITIVITY) return positivity_term(f, channels, count);
    if (loss == UPS_OPERATOR_DIVERGENCE) return divergence_term(f, channels);
    return boundary_term(f, channels, count);
}

/* The share of a loss's weight that step k has: 0 where it is not of that step. */
static double share_of(int loss, int k, int bundle, int steps) {
    if (loss == UPS_OPERATOR_DECODED) return k < bundle ? 1.0 / bundle : 0;
    if (loss == UPS_OPERATOR_ROLLOUT_DECODED) return k >= bundle ? 1.0 / (steps - bundle) : 0;
    return 1.0 / steps;
}

void ups_field_losses_add(const ups_run_config *config, const ups_tasks *tasks, int task, const ups_field_maps *maps,
                          unsigned losses, ups_graph *graph, ups_objective *objective, const ups_field_window *window,
                          const ups_value *states, int steps) {
    unsigned wanted = 0;
    for (int i = 0; i < FIELD_LOSSES; i++) wanted |= losses & 1u << field_losses[i];
    if (!wanted) return;
    const ups_field field = ups_field_of(config, tasks, task, maps, graph->arena);
    /* A window too short to be rolled out has one application; a rollout's loss alone is then taken of that. */
    bool alone = steps == window->bundle && objective->count == 0 && wanted & 1u << UPS_OPERATOR_ROLLOUT_DECODED &&
                 !(wanted & 1u << UPS_OPERATOR_DECODED);
    ups_graph_scope(graph, "losses");
    for (int k = 0; k < steps; k++) {
        frame f = {.graph = graph, .field = &field, .prediction = UPS_NO_VALUE, .truth = UPS_NO_VALUE};
        for (int i = 0; i < FIELD_LOSSES; i++) {
            const int loss = field_losses[i];
            double share =
                alone && loss == UPS_OPERATOR_ROLLOUT_DECODED ? 1.0 / steps : share_of(loss, k, window->bundle, steps);
            if (!(wanted & 1u << loss) || share == 0) continue;
            if (f.prediction == UPS_NO_VALUE) f.prediction = ups_field_decode(graph, &field, states[k]);
            if (f.truth == UPS_NO_VALUE && loss != UPS_OPERATOR_POSITIVITY)
                f.truth = ups_field_decode(graph, &field, ups_select_frame(graph, window->latents, window->given + k));
            ups_value term = term_of(config, &f, loss);
            objective->loss = loss;
            if (term == UPS_NO_VALUE) continue;
            ups_objective_add(graph, objective, term, share * config->op.training.losses[loss].weight);
        }
    }
}
