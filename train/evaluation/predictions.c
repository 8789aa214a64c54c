#include "train/evaluation/predictions.h"

#include "base/arena.h"
#include "cache/store/fingerprint.h"
#include "pipeline/arrays/arrays.h"
#include "pipeline/convert.h"
#include "pipeline/layouts/layouts.h"
#include "pipeline/layouts/mapping.h"
#include "train/data/splits.h"
#include "train/evaluation/told_samples.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_NAME 512

struct ups_predictions {
    const ups_task *task;
    ups_source *source;
    bool by_order;             /* an array, whose fields have no names */
    ups_sample geometry;       /* of every sample of the files */
    int64_t points, channels;  /* of a frame: of the files, and of the task */
    int64_t *channel;          /* (channels): which of the files' each of the task's is */
    int64_t given, steps;      /* of a trajectory */
    int64_t first, stride;     /* the file's frames that are scored: first, first + stride, … */
    int64_t chosen, have;      /* trajectories that are scored, and of their split */
    int64_t *index;            /* (chosen): the files' sample of each, −1: none; NULL: by their order */
    void *stored;              /* of one sample, all frames from the last given one on: as stored, … */
    float *values, *reordered; /* … as float32; and a frame with channels last */
    char name[LONGEST_NAME];
};

/* ---- opening ---------------------------------------------------------------------------------------------------- */

typedef struct opening {
    const ups_task *task;
    const char *const *files;
    int64_t count;
} opening;

/* What an array of predictions is to be, for messages: "(trajectory, time, x, y, field)". */
static void describe_axes(const ups_task *task, char text[96]) {
    const char *grid = task->geometry.dims == 1 ? "grid" : task->geometry.dims == 2 ? "grid, grid" : "grid, grid, grid";
    snprintf(text, 96, "(trajectory, time, %s%s)", task->geometry.points ? "point" : grid,
             task->geometry.channels > 1 ? ", field" : "");
}

static ups_status check_array(const ups_task *task, const char *file, const ups_array_outline *array,
                              ups_error *error) {
    const ups_sample *geometry = &task->geometry;
    const int dims = geometry->dims, rank = array->rank;
    char shape[160], axes[96];
    int length = snprintf(shape, sizeof shape, "(");
    for (int a = 0; a < rank && length < (int)sizeof shape; a++)
        length += snprintf(shape + length, sizeof shape - (size_t)length, "%s%lld", a ? ", " : "",
                           (long long)array->shape[a]);
    describe_axes(task, axes);
    if (!array->numeric)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: its array is of type %s, which is no real number", file,
                        array->type);
    if (rank != dims + 3 && !(rank == dims + 2 && geometry->channels == 1))
        return ups_fail(error, UPS_ERR_FORMAT, "%s: the shape is %s); predictions of task %s are %s", file, shape,
                        task->name, axes);
    for (int a = 0; a < dims; a++) {
        if (geometry->points || array->shape[2 + a] == geometry->grid[a]) continue; /* points are counted later */
        return ups_fail(
            error, UPS_ERR_FORMAT,
            "%s: the shape is %s), %s; along grid axis %d task %s has %lld points, not %lld: predict on its "
            "grid",
            file, shape, axes, a + 1, task->name, (long long)geometry->grid[a], (long long)array->shape[2 + a]);
    }
    if (rank == dims + 2 || array->shape[dims + 2] == geometry->channels) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s: the shape is %s), %s; task %s has %lld field%s, not %lld: all are needed, in the order of the "
                    "data, those that never change among them",
                    file, shape, axes, task->name, (long long)geometry->channels, geometry->channels == 1 ? "" : "s",
                    (long long)array->shape[dims + 2]);
}

/* The array `prediction` of a file, or the only one of what names none; *rank 0: there is none. */
static ups_status find_array(const ups_task *task, const char *file, int *rank, ups_error *error) {
    const char *format = NULL;
    const bool foreign = ups_arrays_are_foreign(file, &format);
    ups_arena *arena = ups_arena_create(0);
    ups_arrays *arrays = NULL;
    const ups_array_outline *outlines = NULL;
    int64_t count = 0;
    *rank = 0;
    if (!arena) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_file_list list = {.arena = arena};
    ups_error why;
    ups_status status = ups_arrays_open(file, NULL, false, &list, &arrays, &why);
    if (status == UPS_OK) status = ups_arrays_list(arrays, arena, &outlines, &count, &why);
    /* Other files may be what only the library of their format lists, or have too many arrays: their layout tells. */
    if (status != UPS_OK) status = foreign ? ups_fail(error, status, "%s", why.message) : UPS_OK;
    const bool nameless =
        status == UPS_OK && count == 1 && foreign && (strcmp(format, "NPY") == 0 || outlines[0].name[0] == '\0');
    for (int64_t i = 0; i < count && status == UPS_OK; i++) {
        if (!nameless && strcmp(outlines[i].name, "prediction") != 0) continue;
        *rank = outlines[i].rank;
        status = check_array(task, file, &outlines[i], error);
    }
    ups_arrays_close(arrays);
    ups_arena_destroy(arena);
    return status;
}

/* The layout of an array of predictions, as YAML. */
static void write_layout(const ups_task *task, bool with_channel, char *text, size_t size) {
    size_t length = (size_t)snprintf(text, size, "{fields: {");
    for (int64_t c = 0; c < task->geometry.channels && length < size; c++) {
        length += (size_t)snprintf(text + length, size - length, "%sf%lld: ", c > 0 ? ", " : "", (long long)c);
        if (length < size && with_channel)
            length +=
                (size_t)snprintf(text + length, size - length, "{array: /prediction, channel: %lld}", (long long)c);
        else if (length < size)
            length += (size_t)snprintf(text + length, size - length, "/prediction");
    }
    if (length < size) length += (size_t)snprintf(text + length, size - length, "}, axes: [sample, time");
    for (int a = 0; a < task->geometry.dims && length < size; a++)
        length += (size_t)snprintf(text + length, size - length, ", grid_%d", a); /* which no data call theirs */
    if (length < size) snprintf(text + length, size - length, "%s]}", with_channel ? ", channel" : "");
}

/* Of points that lie anywhere in the order of the file. */
static ups_status open_mapped(const opening *o, ups_status read, const ups_mapping *mapping, ups_source **source,
                              ups_error *error) {
    const ups_layout_options options = {.mapping = mapping, .points_as_stored = true};
    return read == UPS_OK ? ups_layout_open_many(o->files, o->count, &options, source, error) : read;
}

static ups_status open_array(const opening *o, bool with_channel, ups_source **source, ups_error *error) {
    const size_t size = 128 + (size_t)o->task->geometry.channels * 96;
    ups_arena *arena = ups_arena_create(0);
    char *text = malloc(size);
    ups_status status = arena && text ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) {
        ups_mapping mapping;
        write_layout(o->task, with_channel, text, size);
        status = ups_mapping_parse("predictions", text, arena, &mapping, error);
        status = open_mapped(o, status, &mapping, source, error);
    }
    free(text);
    ups_arena_destroy(arena);
    return status;
}

/* As the task's own layout has them. */
static ups_status open_as_task(const opening *o, ups_source **source, ups_error *error) {
    ups_arena *arena = ups_arena_create(0);
    if (!arena) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_mapping mapping;
    ups_status status = ups_mapping_read(&o->task->config->layout, "layout", arena, &mapping, error);
    status = open_mapped(o, status, &mapping, source, error);
    ups_arena_destroy(arena);
    return status;
}

/* As the task's layout, or as what is recognised: rollouts of any task are written as PDEBench's files. */
static ups_status open_as_data(const opening *o, ups_source **source, ups_error *error) {
    const bool own = ups_mapping_is_given(&o->task->config->layout);
    ups_error first, second;
    char axes[96];
    ups_status status = own ? open_as_task(o, source, &first) : UPS_ERR_FORMAT;
    if (status != UPS_OK) {
        const ups_status other = open_mapped(o, UPS_OK, NULL, source, &second);
        if (other == UPS_OK || !own) status = other;
    }
    if (status == UPS_OK) return UPS_OK;
    if (status != UPS_ERR_FORMAT && status != UPS_ERR_CONFIG && status != UPS_ERR_UNSUPPORTED)
        return ups_fail(error, status, "%s", own ? first.message : second.message);
    describe_axes(o->task, axes);
    return ups_fail(
        error, status,
        "%s. Predictions of task %s are an array `prediction` %s, in a file that names arrays or in an .npy, "
        "or have the layout of its data",
        own ? first.message : second.message, o->task->name, axes);
}

/* *by_order: fields have no names of their own. */
static ups_status open_files(const opening *o, bool *by_order, ups_source **source, ups_error *error) {
    int rank = 0;
    for (int64_t i = 0; i < o->count; i++) {
        int another;
        UPS_TRY(find_array(o->task, o->files[i], &another, error));
        if (i > 0 && another != rank)
            return ups_fail(error, UPS_ERR_FORMAT,
                            "%s holds predictions in another form than %s; files of one task are alike", o->files[i],
                            o->files[0]);
        rank = another;
    }
    *by_order = rank > 0;
    if (rank > 0) return open_array(o, rank == o->task->geometry.dims + 3, source, error);
    return open_as_data(o, source, error);
}

/* The files' channel of each of the task's: by name where they have all names, else the same number in the same order.
 */
static ups_status match_channels(ups_predictions *p, const char *file, ups_error *error) {
    const ups_source *task = p->task->source, *source = p->source;
    int64_t named = 0, missing = 0;
    for (int64_t c = 0; c < p->channels && !p->by_order; c++) {
        const int64_t before = named;
        for (int64_t k = 0; k < source->channels && source->channel_names; k++) {
            if (strcmp(task->channel_names[c], source->channel_names[k]) != 0) continue;
            p->channel[c] = k;
            named++;
            break;
        }
        if (named == before) missing = c;
    }
    if (named == p->channels) return UPS_OK;
    if (source->channels != p->channels)
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s has %lld field%s, task %s has %lld; all are needed, in the order of the data, those that "
                        "never change among them",
                        file, (long long)source->channels, source->channels == 1 ? "" : "s", p->task->name,
                        (long long)p->channels);
    if (named > 0)
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: of the fields of task %s it has only some by their names; %s is not among them", file,
                        p->task->name, task->channel_names[missing]);
    for (int64_t c = 0; c < p->channels; c++) p->channel[c] = c;
    return UPS_OK;
}

static void describe_grid(const ups_sample *sample, char text[64]) {
    int length = snprintf(text, 64, "%lld", (long long)sample->grid[0]);
    for (int a = 1; a < sample->dims && length < 64; a++)
        length += snprintf(text + length, 64 - (size_t)length, " x %lld", (long long)sample->grid[a]);
}

/* The first axis that the file calls as the task calls another one; −1: none. */
static int find_turned_axis(const ups_sample *a, const ups_sample *b) {
    for (int i = 0; i < a->dims; i++) {
        for (int k = 0; k < b->dims; k++) {
            if (k != i && a->axis_names[i] && b->axis_names[i] && b->axis_names[k] &&
                strcmp(a->axis_names[i], b->axis_names[i]) != 0 && strcmp(a->axis_names[i], b->axis_names[k]) == 0)
                return i;
        }
    }
    return -1;
}

static bool same_grid(const ups_sample *a, const ups_sample *b) {
    bool same = a->dims == b->dims;
    for (int k = 0; k < UPS_MAX_GRID_DIMS && same; k++) same = a->grid[k] == b->grid[k];
    return same;
}

/* The grid of the first sample is the task's, and all have that, and as many frames. */
static ups_status check_samples(const ups_predictions *p, ups_error *error) {
    const ups_sample *task = &p->task->geometry;
    char had[64], wanted[64];
    for (int64_t i = 0; i < p->source->count; i++) {
        ups_sample sample;
        UPS_TRY(ups_source_describe(p->source, i, &sample, error));
        const char *file = p->source->files[ups_sample_file(p->source, i)];
        if (!same_grid(&sample, &p->geometry) || sample.times != p->geometry.times)
            return ups_fail(error, UPS_ERR_FORMAT, "%s: sample %s has another %s than sample %s; all are alike", file,
                            sample.name, sample.times != p->geometry.times ? "number of frames" : "grid",
                            p->geometry.name);
        if (task->points) continue; /* which are counted one by one */
        describe_grid(&sample, had);
        describe_grid(task, wanted);
        if (!same_grid(&sample, task))
            return ups_fail(error, UPS_ERR_FORMAT,
                            "%s: its grid has %s points, that of task %s %s; predict on that grid", file, had,
                            p->task->name, wanted);
        const int turned = find_turned_axis(&sample, task);
        if (turned >= 0)
            return ups_fail(error, UPS_ERR_FORMAT,
                            "%s: axis %d of its grid is %s, that of task %s is %s; turn the axes", file, turned + 1,
                            sample.axis_names[turned], p->task->name, task->axis_names[turned]);
    }
    return UPS_OK;
}

ups_status ups_predictions_open(const ups_task *task, const char *const *files, int64_t count,
                                ups_predictions **predictions, ups_error *error) {
    *predictions = NULL;
    ups_predictions *p = calloc(1, sizeof *p);
    if (!p) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    p->task = task;
    p->channels = task->geometry.channels;
    p->channel = calloc((size_t)p->channels, sizeof *p->channel);
    const opening wanted = {task, files, count};
    ups_status status = p->channel ? open_files(&wanted, &p->by_order, &p->source, error)
                                   : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = ups_source_describe(p->source, 0, &p->geometry, error);
    if (status == UPS_OK) status = check_samples(p, error);
    if (status == UPS_OK) status = match_channels(p, files[0], error);
    if (status == UPS_OK) {
        p->points = ups_sample_frame_elements(&p->geometry) / p->geometry.channels;
        *predictions = p;
    } else {
        ups_predictions_close(p);
    }
    return status;
}

void ups_predictions_close(ups_predictions *predictions) {
    if (!predictions) return;
    ups_source_close(predictions->source);
    free(predictions->channel);
    free(predictions->index);
    free(predictions->stored);
    free(predictions->values);
    free(predictions->reordered);
    free(predictions);
}

ups_status ups_predictions_hash(const ups_predictions *predictions, char hex[33], ups_error *error) {
    return ups_fingerprint_source(predictions->source->files, predictions->source->file_count, NULL, 0, hex, error);
}

/* ---- which frame is which --------------------------------------------------------------------------------------- */

/* A name of two samples of the split says nothing, whichever of them was predicted. */
static ups_status is_ambiguous(const ups_predictions *p, const int64_t *samples, const char *name, bool *is,
                               ups_error *error) {
    int64_t found = 0;
    for (int64_t i = 0; i < p->have; i++) {
        ups_sample sample;
        UPS_TRY(ups_source_describe(p->task->source, samples[i], &sample, error));
        found += strcmp(sample.name, name) == 0;
    }
    *is = found > 1;
    return UPS_OK;
}

/* Finds the trajectories by the names that the files tell, where these say which they are. */
static ups_status find_by_name(ups_predictions *p, const ups_told_samples *told, const int64_t *samples,
                               ups_error *error) {
    bool ambiguous = told->count != p->source->count, any = false;
    for (int64_t i = 0; i < told->count && !ambiguous; i++)
        UPS_TRY(is_ambiguous(p, samples, told->names[i], &ambiguous, error));
    if (ambiguous) return UPS_OK;
    int64_t *index = malloc((size_t)p->chosen * sizeof *index);
    if (!index) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = UPS_OK;
    for (int64_t i = 0; i < p->chosen && status == UPS_OK; i++) {
        ups_sample sample;
        status = ups_source_describe(p->task->source, samples[i * p->have / p->chosen], &sample, error);
        index[i] = status == UPS_OK ? ups_told_samples_find(told, sample.name) : -1;
        any = any || index[i] >= 0;
    }
    free(p->index);
    p->index = any && status == UPS_OK ? index : NULL;
    if (!p->index) free(index);
    return status;
}

/* By names where bad trajectories are left out, so that there may be fewer than the split has; else by their order. */
static ups_status match_trajectories(ups_predictions *p, const int64_t *samples, bool skipped, ups_error *error) {
    if (skipped) {
        ups_told_samples told;
        UPS_TRY(ups_told_samples_read(p->source->files, p->source->file_count, &told, error));
        const ups_status status = find_by_name(p, &told, samples, error);
        ups_told_samples_free(&told);
        if (status != UPS_OK || p->index) return status;
    }
    if (p->source->count == p->chosen || p->source->count == p->have) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT,
                    "%s: %lld trajectories are predicted, but the split has %lld, of which %lld are scored "
                    "(evaluation.max_samples); predict each, in the order of the task's files",
                    p->source->files[0], (long long)p->source->count, (long long)p->have, (long long)p->chosen);
}

ups_status ups_predictions_match(ups_predictions *p, int64_t given, int64_t steps, int64_t chosen,
                                 const int64_t *samples, int64_t have, bool skipped, ups_error *error) {
    const int64_t times = p->geometry.times, all = given + steps, stored = p->task->geometry.times;
    const char *file = p->source->files[0];
    p->given = given;
    p->steps = steps;
    p->chosen = chosen;
    p->have = have;
    p->stride = times != all && times == stored ? p->task->config->stride : 1;
    p->first = times == steps ? 0 : given * p->stride;
    if (times != steps && times != all && times != stored)
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%s: its trajectories have %lld frames; predict the %lld behind the given %s of task %s "
                        "(evaluation.given: %lld), or write these before them, %lld in all",
                        file, (long long)times, (long long)steps, given == 1 ? "one" : "ones", p->task->name,
                        (long long)given, (long long)all);
    UPS_TRY(match_trajectories(p, samples, skipped, error));
    const size_t elements = (size_t)(p->points * p->geometry.channels);
    if (p->stored) return UPS_OK;                                      /* it was settled before */
    p->stored = malloc((size_t)times * elements * sizeof(double) + 1); /* the widest that there are */
    p->values = malloc(((size_t)times * elements + 1) * sizeof *p->values);
    p->reordered = malloc(((size_t)(p->points * p->channels) + 1) * sizeof *p->reordered);
    if (p->stored && p->values && p->reordered) return UPS_OK;
    return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for a trajectory of %lld frames", file, (long long)times);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static int64_t sample_of(const ups_predictions *p, int64_t position) {
    if (p->index) return p->index[position];
    return p->source->count == p->chosen ? position : position * p->have / p->chosen;
}

const char *ups_predictions_name(ups_predictions *p, int64_t position) {
    const int64_t index = sample_of(p, position);
    ups_sample sample = {0};
    if (ups_source_describe(p->source, index, &sample, NULL) != UPS_OK) sample.name = "?";
    snprintf(p->name, sizeof p->name, "%s, sample %s", p->source->files[ups_sample_file(p->source, index)],
             sample.name);
    return p->name;
}

/* A frame of the files as the task has it: channels last, points in the order of the truth. */
static void place_frame(const ups_predictions *p, ups_channel_order order, const float *frame, const ups_points *points,
                        float *out) {
    const int64_t channels = p->geometry.channels;
    const bool last = order == UPS_CHANNELS_LAST;
    float *to = points ? p->reordered : out;
    for (int64_t i = 0; i < p->points; i++) {
        for (int64_t c = 0; c < p->channels; c++)
            to[i * p->channels + c] = frame[last ? i * channels + p->channel[c] : p->channel[c] * p->points + i];
    }
    if (points) ups_points_sort(points, p->channels, sizeof *to, to, out);
}

/* Whether points of a file, in its order, lie where those of the trajectory do. */
static bool are_same_places(const ups_points *file, const ups_points *truth) {
    if (file->dims != truth->dims) return false;
    const double within = 1e-4 * truth->extent;
    for (int64_t i = 0; i < truth->count; i++) {
        const int64_t stored = truth->stored ? truth->stored[i] : i;
        for (int d = 0; d < truth->dims; d++) {
            const double *x = file->coordinates + stored * file->dims;
            if (!(fabs(x[d] - truth->coordinates[i * truth->dims + d]) <= within)) return false;
        }
    }
    return true;
}

/* As many points, where the trajectory has them as far as the file tells. An array has as many places as the sample
 * with the most, where these have points of their own. */
static ups_status check_points(ups_predictions *p, int64_t position, const ups_sample *sample, const ups_sample *truth,
                               ups_error *error) {
    const ups_points *points = truth->points;
    if (!points) return UPS_OK;
    const int64_t had = sample->points ? sample->points->distinct : p->points;
    if (had != points->distinct && (sample->points || !points->own || had != points->count))
        return ups_fail(error, UPS_ERR_FORMAT, "%s has %lld points; %s of task %s has %lld",
                        ups_predictions_name(p, position), (long long)had, truth->name, p->task->name,
                        (long long)points->distinct);
    /* Points that move are told of by the first frame there is, which may be another one here. */
    if (!sample->points || points->moving || are_same_places(sample->points, points)) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT, "%s: its points are not those of %s of task %s, in the same order",
                    ups_predictions_name(p, position), truth->name, p->task->name);
}

ups_status ups_predictions_read(ups_predictions *p, int64_t position, const ups_sample *truth, float *given,
                                bool *has_given, float *frames, ups_error *error) {
    const int64_t index = sample_of(p, position), before = p->first > 0 ? p->stride : 0;
    const ups_frames range = {p->first - before, p->geometry.times - p->first + before};
    const int64_t elements = p->points * p->geometry.channels;
    ups_sample sample;
    if (index < 0)
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%s: by its attribute ups.samples no trajectory is %s of task %s; predict each, but those with "
                        "bad values",
                        p->source->files[0], truth->name, p->task->name);
    UPS_TRY(ups_source_describe(p->source, index, &sample, error));
    UPS_TRY(check_points(p, position, &sample, truth, error));
    UPS_TRY(ups_source_read(p->source, index, range, p->stored, error));
    (void)ups_convert(p->stored, sample.dtype, p->values, UPS_F32, (size_t)(range.count * elements)); /* NaN may be */
    *has_given = before > 0;
    const int64_t points = truth->points ? truth->points->count : p->points;
    if (*has_given) place_frame(p, sample.order, p->values, truth->points, given);
    for (int64_t f = 0; f < p->steps; f++) {
        const float *frame = p->values + (before + f * p->stride) * elements;
        place_frame(p, sample.order, frame, truth->points, frames + f * points * p->channels);
    }
    return UPS_OK;
}
