#include "train/objectives/symmetries.h"

#include "base/log.h"
#include "model/random/augment.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CHANNELS = 64, LINE = 400 };

/* A task's fields as vectors see them. */
typedef struct vectors {
    int8_t axis[MAX_CHANNELS];                       /* of a component; -1: a scalar */
    int8_t channel[MAX_CHANNELS][UPS_MAX_GRID_DIMS]; /* of all components of its vector */
} vectors;

/* Whether operator.vectors is what it is unless it is given: names of several dimensions. */
static bool are_usual(const ups_field_names *names) {
    static const char usual[] = UPS_USUAL_VECTORS;
    size_t at = 0;
    for (unsigned n = 0; n < names->count; n++) {
        const size_t length = strlen(names->names[n]);
        if (n > 0) at += strlen(", ");
        if (at + length >= sizeof usual || memcmp(usual + at, names->names[n], length) != 0) return false;
        at += length;
    }
    return usual[at] == '\0';
}

/* Vectors of the task: names in groups of as many as there are axes. Names that the task has no field of are of other
 * tasks. NULL, or what is wrong. */
static const char *find_vectors(const ups_run_config *config, const ups_task *task, vectors *v) {
    const int dims = task->geometry.dims;
    const ups_field_names *names = &config->op.vectors;
    int found[MAX_CHANNELS], count = 0;
    memset(v, 0, sizeof *v);
    memset(v->axis, -1, sizeof v->axis);
    if (task->geometry.channels > MAX_CHANNELS) return "it has more than 64 fields";
    for (unsigned n = 0; n < names->count && count < MAX_CHANNELS; n++) {
        const int64_t channel = ups_field_channel(task, names->names[n]);
        if (channel >= 0) found[count++] = (int)channel;
    }
    if (count % dims != 0)
        return "operator.vectors names some components of a vector of its fields, and not one along each axis";
    for (int i = 0; i < count; i++) {
        if (v->axis[found[i]] >= 0) return "operator.vectors names a field twice";
        v->axis[found[i]] = (int8_t)(i % dims);
        for (int axis = 0; axis < dims; axis++) v->channel[found[i]][axis] = (int8_t)found[i / dims * dims + axis];
    }
    return NULL;
}

/* Whether components of vectors are about as large, so that one may take another's place among normalised numbers. */
static bool components_are_alike(const ups_task *task, const vectors *v) {
    bool alike = true;
    for (int c = 0; c < task->geometry.channels && task->statistics; c++) {
        if (v->axis[c] < 0) continue;
        const double first = (double)task->statistics[2 * v->channel[c][0] + 1];
        const double own = (double)task->statistics[2 * c + 1];
        alike = alike && own < 2 * first && first < 2 * own;
    }
    return alike;
}

/* Whether axes may be exchanged: all have as many points and tokens, as far apart, and the same boundary. */
static bool axes_are_alike(const ups_task *task, const vectors *v) {
    bool alike = !task->ends_differ && components_are_alike(task, v);
    for (int a = 1; a < task->geometry.dims; a++) {
        const double first = ups_field_spacing(task, 0), spacing = ups_field_spacing(task, a);
        alike = alike && task->geometry.grid[a] == task->geometry.grid[0] && task->patch[a] == task->patch[0] &&
                fabs(spacing - first) <= 1e-3 * first;
    }
    return alike;
}

/* Whether points were left out along an axis. */
static bool is_thinned(const ups_task *task) {
    bool thinned = false;
    for (unsigned i = 0; i < task->config->thin_count; i++) thinned = thinned || task->config->thin[i] > 1;
    return thinned;
}

/* A component whose mean is far from 0, in deviations: the flow has a direction. */
static bool has_direction(const ups_task *task, const vectors *v) {
    static const double far = 2;
    bool has = false;
    for (int c = 0; c < task->geometry.channels && task->statistics; c++) {
        const float *s = task->statistics + 2 * c;
        has = has || (v->axis[c] >= 0 && fabs((double)s[0] * (double)s[1]) > far);
    }
    return has;
}

/* Why a task cannot have them; NULL: it can. */
static const char *find_obstacle(const ups_run_config *config, const ups_task *task, vectors *v) {
    if (!task->config->symmetries) return "its `symmetries` are false";
    if (task->geometry.points) return "its points lie anywhere";
    for (int a = 0; a < task->geometry.dims; a++) {
        if (task->geometry.grid[a] % task->patch[a] != 0) return "its last patch reaches beyond the grid";
    }
    if (is_thinned(task) && !task->geometry.periodic)
        return "points were left out between walls (`thin`), and a reflection would move the others against these";
    return find_vectors(config, task, v);
}

/* Why its windows stay as they are: it cannot have them, or its data speak against it. */
static const char *objection(const ups_run_config *config, const ups_task *task, vectors *v) {
    const char *why = find_obstacle(config, task, v);
    if (why) return why;
    return has_direction(task, v) ? "a vector of operator.vectors has a mean beyond twice its deviation, a direction"
                                  : NULL;
}

ups_status ups_symmetries_check(const ups_run_config *config, const ups_tasks *tasks, ups_error *error) {
    vectors v;
    if (config->op.augment != UPS_AUGMENT_SYMMETRIES) return UPS_OK;
    if (!are_usual(&config->op.vectors))
        UPS_TRY(ups_field_check_names(&config->op.vectors, "operator.vectors", tasks, error));
    for (int t = 0; t < tasks->count; t++) {
        if (!find_obstacle(config, &tasks->task[t], &v)) return UPS_OK;
    }
    return ups_fail(error, UPS_ERR_CONFIG,
                    "operator.augment: symmetries can be used with none of the tasks (%s: %s); set it to none",
                    tasks->task[0].name, find_obstacle(config, &tasks->task[0], &v));
}

/* "scalars density, pressure; vector (Vx, Vy)" */
static void describe(const ups_task *task, const vectors *v, char text[LINE]) {
    int length = 0, scalars = 0;
    text[0] = '\0';
#define ADD(...)                                                                                                       \
    if (length < LINE) length += snprintf(text + length, (size_t)(LINE - length), __VA_ARGS__)
    for (int c = 0; c < task->geometry.channels; c++) {
        if (v->axis[c] < 0) ADD("%s%s", scalars++ ? ", " : "scalars ", task->source->channel_names[c]);
    }
    for (int c = 0; c < task->geometry.channels; c++) {
        if (v->axis[c] != 0) continue;
        ADD("%svector (", length ? "; " : "");
        for (int a = 0; a < task->geometry.dims; a++)
            ADD("%s%s", a ? ", " : "", task->source->channel_names[v->channel[c][a]]);
        ADD(")");
    }
#undef ADD
}

void ups_symmetries_say(const ups_run_config *config, const ups_tasks *tasks) {
    for (int t = 0; t < tasks->count && config->op.augment == UPS_AUGMENT_SYMMETRIES; t++) {
        const ups_task *task = &tasks->task[t];
        vectors v;
        char text[LINE];
        const char *why = objection(config, task, &v);
        if (!task->config->symmetries) continue; /* as was asked for */
        if (why) {
            ups_log(UPS_LOG_WARNING, "operator: windows of %s are seen as they are, not by symmetries: %s", task->name,
                    why);
            continue;
        }
        describe(task, &v, text);
        ups_log(UPS_LOG_INFO, "operator: windows of %s are seen by %d symmetries of their grid: %s", task->name,
                (int)ups_symmetry_count(task->geometry.dims, axes_are_alike(task, &v)), text);
    }
}

/* Which number of a patch becomes which, and by which map: normalised values of another field of a vector have another
 * mean and deviation. source (symmetries, numbers), table (symmetries, numbers, 2). */
static void find_numbers(const ups_field *field, const vectors *v, int64_t symmetries, int32_t *source, float *table) {
    const int dims = field->task->geometry.dims;
    const int64_t channels = field->channels;
    for (int64_t e = 0; e < symmetries; e++) {
        for (int64_t q = 0; q < field->numbers; q++, source++, table += 2) {
            const int64_t to = q % channels;
            const int64_t inside = ups_symmetry_from(dims, field->task->patch, e, q / channels);
            int64_t from = to;
            double sign = 1, offset = 0;
            if (v->axis[to] >= 0) {
                from = v->channel[to][ups_symmetry_axis(dims, e, v->axis[to])];
                sign = ups_symmetry_reflects(e, v->axis[to]) ? -1 : 1;
                offset = sign * (double)field->statistics[2 * from] - (double)field->statistics[2 * to];
            }
            const double inverse = (double)field->statistics[2 * to + 1];
            *source = (int32_t)(inside * channels + from);
            table[0] = from == to ? (float)sign : (float)(sign * inverse / (double)field->statistics[2 * from + 1]);
            table[1] = (float)(offset * inverse);
        }
    }
}

ups_value ups_symmetries_build(ups_graph *graph, const ups_run_config *config, const ups_tasks *tasks, int task,
                               const ups_field_maps *maps, ups_value window) {
    vectors v;
    if (config->op.augment != UPS_AUGMENT_SYMMETRIES || objection(config, &tasks->task[task], &v)) return window;
    const ups_field field = ups_field_of(config, tasks, task, maps, graph->arena);
    const int dims = field.task->geometry.dims;
    const int64_t symmetries = ups_symmetry_count(dims, axes_are_alike(field.task, &v));
    int32_t *source = UPS_ARENA_ARRAY(graph->arena, int32_t, symmetries * field.numbers);
    float *table = UPS_ARENA_ARRAY(graph->arena, float, symmetries *field.numbers * 2);
    find_numbers(&field, &v, symmetries, source, table);
    const ups_value patches = ups_field_decode(graph, &field, window);
    const ups_value moved = ups_symmetry(
        graph, patches, dims, field.cells,
        ups_field_constant(graph, "symmetry_numbers", UPS_I32, UPS_SHAPE(symmetries, field.numbers), source),
        ups_field_constant(graph, "symmetry_maps", UPS_F32, UPS_SHAPE(symmetries, field.numbers, 2), table));
    /* what is added is nothing in a validation, to the bit */
    const ups_value change = ups_add(graph, moved, ups_scale(graph, patches, -1, UPS_NO_VALUE));
    return ups_add(graph, window, ups_field_encode(graph, &field, change));
}
