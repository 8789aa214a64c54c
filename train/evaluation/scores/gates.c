#include "train/evaluation/scores/gates.h"

#include "train/objectives/field.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const ups_gate_names[UPS_GATES] = {
    [UPS_GATE_BOUNDED] = "bounded",       [UPS_GATE_CONSERVATION] = "conservation",
    [UPS_GATE_POSITIVITY] = "positivity", [UPS_GATE_NEGATIVE_SHARE] = "negative_share",
    [UPS_GATE_BOUNDARY] = "boundary",     [UPS_GATE_DIVERGENCE] = "divergence"};

const char *ups_gate_state_name(ups_gate_state state) {
    static const char *const names[] = {[UPS_GATE_PASSES] = "passes",
                                        [UPS_GATE_FAILS] = "fails",
                                        [UPS_GATE_DOES_NOT_APPLY] = "does not apply",
                                        [UPS_GATE_OFF] = "off"};
    return names[state];
}

typedef struct extremes {
    double low, high;
    int64_t low_frame, high_frame;
} extremes;
static const extremes nothing = {.low = INFINITY, .high = -INFINITY};

/* Of one trajectory and field. */
typedef struct field_record {
    int64_t points; /* of a frame, that count */
    extremes predicted;
    int64_t negative;       /* points and frames */
    int64_t unbounded_from; /* first frame that is not finite; -1: all are */
    double border;          /* squared errors on the border, summed */
} field_record;

/* Of one trajectory: squares, summed. */
typedef struct flow_record {
    double error, truth, gradient; /* of the divergences' difference, of the truth's, of its gradient */
} flow_record;

struct ups_gates {
    const ups_task *task;
    int64_t points, channels, frames;
    int64_t border_points;
    bool *border;                        /* (points) */
    int64_t stride[UPS_MAX_GRID_DIMS];   /* points from one to the next along an axis */
    double spacing[UPS_MAX_GRID_DIMS];   /* of them */
    bool flows;                          /* there is a velocity */
    int64_t velocity[UPS_MAX_GRID_DIMS]; /* channels */
    int64_t inner_points;                /* where the divergence is taken */
    int64_t count, capacity;             /* trajectories */
    extremes *range;                     /* (channels): of the truth of all trajectories */
    field_record *fields;                /* (trajectory, channel) */
    flow_record *flow;                   /* (trajectory) */
};

/* ---- making ---------------------------------------------------------------------------------------------------- */

ups_status ups_gates_create(const ups_task *task, int64_t frames, const int64_t *velocity, ups_gates **out,
                            ups_error *error) {
    const ups_sample *geometry = &task->geometry;
    ups_gates *g = calloc(1, sizeof *g);
    if (!g) return ups_fail(error, UPS_ERR_MEMORY, "gates: out of memory");
    *g = (ups_gates){.task = task, .points = 1, .channels = geometry->channels, .frames = frames};
    for (int a = geometry->dims - 1; a >= 0; a--) {
        g->stride[a] = g->points;
        g->spacing[a] = ups_field_spacing(task, a);
        g->points *= geometry->grid[a];
    }
    g->range = calloc((size_t)g->channels, sizeof *g->range);
    g->border = calloc((size_t)g->points, sizeof *g->border);
    if (!g->border || !g->range) {
        ups_gates_destroy(g);
        return ups_fail(error, UPS_ERR_MEMORY, "gates: out of memory");
    }
    for (int64_t c = 0; c < g->channels; c++) g->range[c] = nothing;
    for (int64_t p = 0; p < g->points; p++) {
        g->border[p] = !geometry->periodic && !geometry->points && ups_field_on_border(task, p);
        g->border_points += g->border[p];
    }
    g->inner_points = g->points - g->border_points;
    g->flows = velocity != NULL;
    for (int a = 0; a < geometry->dims && velocity; a++) g->velocity[a] = velocity[a];
    *out = g;
    return UPS_OK;
}

void ups_gates_destroy(ups_gates *g) {
    if (!g) return;
    free(g->border);
    free(g->range);
    free(g->fields);
    free(g->flow);
    free(g);
}

bool ups_gates_find_velocity(const ups_run_config *config, const ups_task *task, int64_t velocity[UPS_MAX_GRID_DIMS]) {
    static const char *const axes[UPS_MAX_GRID_DIMS] = {"x", "y", "z"}, *const prefixes[] = {"V", "velocity_"};
    const ups_field_names *names = &config->op.divergence;
    const ups_sample *geometry = &task->geometry;
    if (geometry->dims < 2) return false;
    int named = 0;
    for (unsigned n = 0; n < names->count; n++) {
        const int64_t channel = ups_field_channel(task, names->names[n]);
        if (channel < 0) continue;
        if (named < geometry->dims) velocity[named] = channel;
        named++;
    }
    bool found = named == geometry->dims;
    for (size_t form = 0; form < sizeof prefixes / sizeof *prefixes && !found; form++) {
        found = true;
        for (int a = 0; a < geometry->dims; a++) {
            char name[64];
            snprintf(name, sizeof name, "%s%.40s", prefixes[form],
                     geometry->axis_names[a] ? geometry->axis_names[a] : axes[a]);
            velocity[a] = ups_field_channel(task, name);
            found = found && velocity[a] >= 0;
        }
    }
    return found;
}

/* ---- adding ---------------------------------------------------------------------------------------------------- */

static ups_status reserve(ups_gates *g, ups_error *error) {
    if (g->count < g->capacity) return UPS_OK;
    enum { FIRST = 16 };
    const int64_t capacity = g->capacity ? 2 * g->capacity : FIRST;
    field_record *fields = realloc(g->fields, (size_t)(capacity * g->channels) * sizeof *fields);
    if (fields) g->fields = fields;
    flow_record *flow = realloc(g->flow, (size_t)capacity * sizeof *flow);
    if (flow) g->flow = flow;
    if (!fields || !flow)
        return ups_fail(error, UPS_ERR_MEMORY, "gates: out of memory for %lld trajectories", (long long)capacity);
    g->capacity = capacity;
    return UPS_OK;
}

static void widen(extremes *e, double value, int64_t frame) {
    if (value < e->low) {
        e->low = value;
        e->low_frame = frame;
    }
    if (value > e->high) {
        e->high = value;
        e->high_frame = frame;
    }
}

/* One field at one frame; `prediction` NULL: the last given frame. */
static void add_frame(const ups_gates *g, const float *prediction, const float *truth, int64_t frame, int64_t channel,
                      field_record *record) {
    for (int64_t p = 0; p < record->points; p++) {
        const double u = truth[p * g->channels + channel];
        widen(&g->range[channel], u, frame);
        if (!prediction) continue;
        const double value = prediction[p * g->channels + channel];
        widen(&record->predicted, value, frame);
        record->negative += value < 0;
        if (!isfinite(value) && record->unbounded_from < 0) record->unbounded_from = frame;
        if (g->border[p]) record->border += (value - u) * (value - u);
    }
}

/* Derivative of a channel along an axis at a point, by central differences; around the domain where it is periodic. */
static double slope(const ups_gates *g, const float *frame, int64_t point, const int64_t *at, int axis,
                    int64_t channel) {
    const int64_t size = g->task->geometry.grid[axis];
    const int64_t after = (at[axis] + 1 < size ? 1 : 1 - size) * g->stride[axis],
                  before = (at[axis] > 0 ? -1 : size - 1) * g->stride[axis];
    const double rise = (double)frame[(point + after) * g->channels + channel] -
                        (double)frame[(point + before) * g->channels + channel];
    return rise / (2 * g->spacing[axis]);
}

static double divergence(const ups_gates *g, const float *frame, int64_t point, const int64_t *at) {
    double sum = 0;
    for (int a = 0; a < g->task->geometry.dims; a++) sum += slope(g, frame, point, at, a, g->velocity[a]);
    return sum;
}

static void add_flow(const ups_gates *g, const float *prediction, const float *truth, flow_record *record) {
    const int dims = g->task->geometry.dims;
    for (int64_t p = 0; p < g->points; p++) {
        if (g->border[p]) continue;
        int64_t at[UPS_MAX_GRID_DIMS];
        ups_field_point(g->task, p, at);
        const double true_divergence = divergence(g, truth, p, at),
                     error = divergence(g, prediction, p, at) - true_divergence;
        record->error += error * error;
        record->truth += true_divergence * true_divergence;
        for (int a = 0; a < dims; a++) {
            for (int b = 0; b < dims; b++) {
                const double derivative = slope(g, truth, p, at, a, g->velocity[b]);
                record->gradient += derivative * derivative;
            }
        }
    }
}

ups_status ups_gates_add(ups_gates *g, const float *prediction, const float *truth, int64_t points, ups_error *error) {
    UPS_TRY(reserve(g, error));
    const int64_t elements = g->points * g->channels;
    flow_record *flow = &g->flow[g->count];
    *flow = (flow_record){0};
    for (int64_t c = 0; c < g->channels; c++) {
        field_record *record = &g->fields[g->count * g->channels + c];
        *record = (field_record){.points = points > 0 ? points : g->points, .predicted = nothing, .unbounded_from = -1};
        add_frame(g, NULL, truth, -1, c, record);
        for (int64_t f = 0; f < g->frames; f++)
            add_frame(g, prediction + f * elements, truth + (f + 1) * elements, f, c, record);
    }
    for (int64_t f = 0; f < g->frames && g->flows; f++)
        add_flow(g, prediction + f * elements, truth + (f + 1) * elements, flow);
    g->count++;
    return UPS_OK;
}

/* ---- judging --------------------------------------------------------------------------------------------------- */

static const field_record *record_of(const ups_gates *g, int64_t trajectory, int64_t channel) {
    return &g->fields[trajectory * g->channels + channel];
}

static double overshoot(const ups_gates *g, const field_record *record, int64_t channel, int64_t *frame) {
    const extremes range = g->range[channel];
    const double above = record->predicted.high - range.high, below = range.low - record->predicted.low;
    *frame = above > below ? record->predicted.high_frame : record->predicted.low_frame;
    const double width = range.high - range.low;
    return width > 0 ? fmax(fmax(above, below), 0) / width : NAN;
}

static double flow_value(const ups_gates *g, int64_t trajectory) {
    const flow_record *flow = &g->flow[trajectory];
    const double value = sqrt(flow->error / flow->gradient);
    if (!(flow->gradient > 0)) return NAN;
    return isfinite(value) ? value : INFINITY;
}

/* A gate's number of one trajectory and field; NaN where there is none. It does not ask whether the gate applies. */
static double value_of(const ups_gates *g, const ups_rollout_scores *scores, int gate, int64_t trajectory,
                       int64_t channel, int64_t *frame) {
    *frame = -1;
    if (gate == UPS_GATE_DIVERGENCE) return flow_value(g, trajectory);
    const field_record *record = record_of(g, trajectory, channel);
    const ups_rollout_drift drift = ups_rollout_drift_of(scores, trajectory, channel);
    if (record->unbounded_from >= 0) {
        *frame = record->unbounded_from;
        return INFINITY;
    }
    if (gate == UPS_GATE_BOUNDED) return overshoot(g, record, channel, frame);
    if (gate == UPS_GATE_NEGATIVE_SHARE) return (double)record->negative / (double)(record->points * g->frames);
    if (!(drift.scale > 0)) return NAN;
    if (gate == UPS_GATE_BOUNDARY) return sqrt(record->border / (double)(g->border_points * g->frames)) / drift.scale;
    if (gate == UPS_GATE_POSITIVITY) {
        *frame = record->predicted.low_frame;
        return fmax(-record->predicted.low, 0) / drift.scale;
    }
    *frame = drift.frame;
    return drift.difference;
}

static bool is_conserved(const ups_gates *g, const ups_rollout_scores *scores, int64_t channel) {
    bool conserved = true;
    for (int64_t f = 0; f < g->frames; f++)
        conserved = conserved && ups_rollout_mean_change(scores, channel, f).truth <= UPS_CONSERVED_WITHIN;
    return conserved;
}

static bool is_incompressible(const ups_gates *g) {
    bool free_of_divergence = true;
    for (int64_t t = 0; t < g->count; t++) {
        const flow_record *flow = &g->flow[t];
        const double most = UPS_GATE_INCOMPRESSIBLE * UPS_GATE_INCOMPRESSIBLE * flow->gradient;
        free_of_divergence = free_of_divergence && flow->truth <= most;
    }
    return free_of_divergence;
}

/* Whether a gate is of a field, as the truth of all trajectories tells. */
static bool applies(const ups_gates *g, const ups_rollout_scores *scores, int gate, int64_t channel) {
    switch (gate) {
    case UPS_GATE_CONSERVATION:
        return is_conserved(g, scores, channel);
    case UPS_GATE_POSITIVITY:
    case UPS_GATE_NEGATIVE_SHARE:
        return g->range[channel].low >= 0;
    case UPS_GATE_BOUNDARY:
        return g->border_points > 0;
    case UPS_GATE_DIVERGENCE:
        return g->flows && g->inner_points > 0 && is_incompressible(g);
    default:
        return true;
    }
}

/* Why a gate is of no field. */
static const char *reason_of(const ups_gates *g, int gate) {
    switch (gate) {
    case UPS_GATE_CONSERVATION:
        return "the data conserve no field's mean";
    case UPS_GATE_POSITIVITY:
    case UPS_GATE_NEGATIVE_SHARE:
        return "every field is negative somewhere in the data";
    case UPS_GATE_BOUNDARY:
        if (g->task->geometry.points) return "which of the points are on the border is not known";
        return g->border_points > 0 ? "every field is zero in the data" : "the domain is periodic and has no border";
    case UPS_GATE_DIVERGENCE:
        if (g->task->geometry.points) return "it is taken on grids alone";
        if (g->task->geometry.dims < 2) return "the domain has one axis";
        if (!g->flows) return "no field along each axis is known as velocity (operator.losses.divergence.fields)";
        return g->inner_points > 0 ? "the data's own velocity is not free of divergence"
                                   : "the grid has no inner points";
    default:
        return "every field is constant in the data";
    }
}

double ups_gates_worst(const ups_gates *g, const ups_rollout_scores *scores, int gate, int64_t channel,
                       int64_t *trajectory, int64_t *frame) {
    double worst = NAN;
    if (!applies(g, scores, gate, channel)) return NAN;
    for (int64_t t = 0; t < g->count; t++) {
        int64_t at;
        const double value = value_of(g, scores, gate, t, channel, &at);
        if (isnan(value) || value <= worst) continue;
        worst = value;
        *trajectory = t;
        *frame = at;
    }
    return worst;
}

ups_gate_result ups_gates_judge(const ups_gates *g, const ups_rollout_scores *scores, const bool *fields, int gate,
                                double limit) {
    ups_gate_result result = {.limit = limit, .value = NAN, .trajectory = -1, .channel = -1, .frame = -1};
    const bool of_flow = gate == UPS_GATE_DIVERGENCE;
    result.state = UPS_GATE_OFF;
    if (limit <= 0) return result;
    for (int64_t c = 0; c < (of_flow ? 1 : g->channels); c++) {
        int64_t trajectory, frame;
        if (!of_flow && !fields[c]) continue;
        const double value = ups_gates_worst(g, scores, gate, c, &trajectory, &frame);
        if (isnan(value) || value <= result.value) continue;
        result.value = value;
        result.trajectory = trajectory;
        result.channel = of_flow ? -1 : c;
        result.frame = frame;
    }
    if (isnan(result.value)) {
        result.state = UPS_GATE_DOES_NOT_APPLY;
        result.reason = reason_of(g, gate);
    } else {
        result.state = result.value > limit ? UPS_GATE_FAILS : UPS_GATE_PASSES;
    }
    return result;
}
