#include "train/evaluation/predictions.h"

#include "base/arena.h"
#include "cache/store/fingerprint.h"
#include "pipeline/convert.h"
#include "pipeline/layouts/layouts.h"
#include "pipeline/layouts/mapping.h"
#include "train/data/splits.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_NAME 512

struct ups_predictions {
    const ups_task *task;
    ups_source *source;
    ups_sample geometry;       /* of every sample of the files */
    int64_t points, channels;  /* of a frame: of the files, and of the task */
    int64_t *channel;          /* (channels): which of the files' each of the task's is */
    int64_t given, steps;      /* of a trajectory */
    int64_t first, stride;     /* the file's frames that are scored: first, first + stride, … */
    int64_t chosen, have;      /* trajectories that are scored, and of their split */
    void *stored;              /* of one sample, all frames from the last given one on: as stored, … */
    float *values, *reordered; /* … as float32; and a frame with channels last */
    char name[LONGEST_NAME];
};

/* ---- opening ---------------------------------------------------------------------------------------------------- */

/* The layout of one array, as YAML. */
static void array_layout(const ups_task *task, int64_t channels, bool with_channel, char *text, size_t size) {
    static const char *const names[UPS_MAX_GRID_DIMS] = {"x", "y", "z"};
    size_t length = (size_t)snprintf(text, size, "{fields: {");
    for (int64_t c = 0; c < channels && length < size; c++) {
        const char *separator = c > 0 ? ", " : "";
        length +=
            (size_t)(with_channel
                         ? snprintf(text + length, size - length, "%sf%lld: {array: /prediction, channel: %lld}",
                                    separator, (long long)c, (long long)c)
                         : snprintf(text + length, size - length, "%sf%lld: /prediction", separator, (long long)c));
    }
    if (length < size) length += (size_t)snprintf(text + length, size - length, "}, axes: [sample, time");
    for (int a = 0; a < task->geometry.dims && length < size; a++)
        length += (size_t)snprintf(text + length, size - length, ", %s", names[a]);
    if (length < size) snprintf(text + length, size - length, "%s]}", with_channel ? ", channel" : "");
}

typedef struct opening {
    const char *const *files;
    int64_t count;
} opening;

static ups_status open_mapped(const opening *wanted, ups_status read, const ups_mapping *mapping, ups_source **source,
                              ups_error *error) {
    const ups_layout_options options = {.mapping = mapping, .points_as_stored = true};
    return read == UPS_OK ? ups_layout_open_many(wanted->files, wanted->count, &options, source, error) : read;
}

/* As the task's own layout has them. */
static ups_status open_as_task(const ups_task *task, const opening *wanted, ups_source **source, ups_error *error) {
    ups_arena *arena = ups_arena_create(0);
    if (!arena) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_mapping mapping;
    ups_status status = ups_mapping_read(&task->config->layout, "layout", arena, &mapping, error);
    status = open_mapped(wanted, status, &mapping, source, error);
    ups_arena_destroy(arena);
    return status;
}

/* As one array of so many fields, along an axis of theirs or not. */
static ups_status open_array_of(const ups_task *task, int64_t channels, bool with_channel, const opening *wanted,
                                ups_source **source) {
    const size_t size = 128 + (size_t)channels * 96;
    ups_arena *arena = ups_arena_create(0);
    char *text = malloc(size);
    ups_status status = arena && text ? UPS_OK : UPS_ERR_MEMORY;
    if (status == UPS_OK) {
        ups_mapping mapping;
        ups_error unused;
        array_layout(task, channels, with_channel, text, size);
        status = ups_mapping_parse("predictions", text, arena, &mapping, &unused);
        status = open_mapped(wanted, status, &mapping, source, &unused);
    }
    free(text);
    ups_arena_destroy(arena);
    return status;
}

static ups_status open_array(const ups_task *task, const opening *wanted, ups_source **source) {
    const int64_t channels = task->geometry.channels;
    ups_source *more;
    if (channels == 1 && open_array_of(task, 1, false, wanted, source) == UPS_OK) return UPS_OK;
    UPS_TRY(open_array_of(task, channels, true, wanted, source));
    if (open_array_of(task, channels + 1, true, wanted, &more) != UPS_OK) return UPS_OK;
    ups_source_close(*source); /* of which the last would be left out */
    *source = more;
    return UPS_OK;
}

/* Whether another reading of the same files may fare better. */
static bool is_another_layout(ups_status status) {
    return status == UPS_ERR_FORMAT || status == UPS_ERR_CONFIG || status == UPS_ERR_UNSUPPORTED;
}

static ups_status open_files(const ups_task *task, const opening *wanted, ups_source **source, ups_error *error) {
    const ups_layout_options recognised = {.points_as_stored = true};
    ups_error why;
    ups_status status = UPS_ERR_FORMAT;
    if (ups_mapping_is_given(&task->config->layout)) status = open_as_task(task, wanted, source, &why);
    if (is_another_layout(status))
        status = ups_layout_open_many(wanted->files, wanted->count, &recognised, source, &why);
    if (status != UPS_OK && open_array(task, wanted, source) == UPS_OK) status = UPS_OK;
    if (status == UPS_OK) return UPS_OK;
    if (!is_another_layout(status)) return ups_fail(error, status, "%s", why.message);
    return ups_fail(
        error, status,
        "%s: no predictions of task %s can be read from it. It may have the layout of the task's data, or an "
        "array `prediction` (an .npy file has one array) of the axes (trajectory, time, grid…, field)",
        wanted->files[0], task->name);
}

/* The files' channel of each of the task's: by name where they have all names, else the same number in the same order.
 */
static ups_status match_channels(ups_predictions *p, const char *file, ups_error *error) {
    const ups_source *task = p->task->source, *source = p->source;
    int64_t named = 0;
    for (int64_t c = 0; c < p->channels; c++) {
        p->channel[c] = c;
        for (int64_t k = 0; k < source->channels && source->channel_names; k++) {
            if (strcmp(task->channel_names[c], source->channel_names[k]) != 0) continue;
            p->channel[c] = k;
            named++;
            break;
        }
    }
    if (named == p->channels) return UPS_OK;
    if (source->channels != p->channels)
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s has %s%lld field%s, task %s has %lld; all are needed, in the order of the data, those that "
                        "never change among them",
                        file, source->channels > p->channels ? "at least " : "", (long long)source->channels,
                        source->channels == 1 ? "" : "s", p->task->name, (long long)p->channels);
    for (int64_t c = 0; c < p->channels; c++) p->channel[c] = c;
    return UPS_OK;
}

static void describe_grid(const ups_sample *sample, char text[64]) {
    int length = snprintf(text, 64, "%lld", (long long)sample->grid[0]);
    for (int a = 1; a < sample->dims && length < 64; a++)
        length += snprintf(text + length, 64 - (size_t)length, " x %lld", (long long)sample->grid[a]);
}

static ups_status check_grid(const ups_predictions *p, const char *file, ups_error *error) {
    const ups_sample *a = &p->geometry, *b = &p->task->geometry;
    bool same = a->dims == b->dims;
    for (int k = 0; k < UPS_MAX_GRID_DIMS && same; k++) same = a->grid[k] == b->grid[k];
    if (same || b->points) return UPS_OK; /* points are counted sample by sample */
    char had[64], wanted[64];
    describe_grid(a, had);
    describe_grid(b, wanted);
    return ups_fail(error, UPS_ERR_FORMAT, "%s: its grid has %s points, that of task %s %s; predict on that grid", file,
                    had, p->task->name, wanted);
}

ups_status ups_predictions_open(const ups_task *task, const char *const *files, int64_t count,
                                ups_predictions **predictions, ups_error *error) {
    *predictions = NULL;
    ups_predictions *p = calloc(1, sizeof *p);
    if (!p) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    p->task = task;
    p->channels = task->geometry.channels;
    p->channel = calloc((size_t)p->channels, sizeof *p->channel);
    const opening wanted = {files, count};
    ups_status status =
        p->channel ? open_files(task, &wanted, &p->source, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = ups_source_describe(p->source, 0, &p->geometry, error);
    if (status == UPS_OK) status = check_grid(p, files[0], error);
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
    free(predictions->stored);
    free(predictions->values);
    free(predictions->reordered);
    free(predictions);
}

ups_status ups_predictions_hash(const ups_predictions *predictions, char hex[33], ups_error *error) {
    return ups_fingerprint_source(predictions->source->files, predictions->source->file_count, NULL, 0, hex, error);
}

/* ---- which frame is which --------------------------------------------------------------------------------------- */

ups_status ups_predictions_match(ups_predictions *p, int64_t given, int64_t steps, int64_t chosen, int64_t have,
                                 ups_error *error) {
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
    if (p->source->count != chosen && p->source->count != have)
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%s: %lld trajectories are predicted, but the split has %lld, of which %lld are scored "
                        "(evaluation.max_samples); predict each, in the order of the task's files",
                        file, (long long)p->source->count, (long long)have, (long long)chosen);
    const size_t elements = (size_t)(p->points * p->geometry.channels);
    p->stored = malloc((size_t)times * elements * ups_dtype_size(p->geometry.dtype) + 1);
    p->values = malloc(((size_t)times * elements + 1) * sizeof *p->values);
    p->reordered = malloc(((size_t)(p->points * p->channels) + 1) * sizeof *p->reordered);
    if (p->stored && p->values && p->reordered) return UPS_OK;
    return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for a trajectory of %lld frames", file, (long long)times);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static int64_t sample_of(const ups_predictions *p, int64_t position) {
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
static void place_frame(const ups_predictions *p, const float *frame, const ups_points *points, float *out) {
    const int64_t channels = p->geometry.channels;
    const bool last = p->geometry.order == UPS_CHANNELS_LAST;
    float *to = points ? p->reordered : out;
    for (int64_t i = 0; i < p->points; i++) {
        for (int64_t c = 0; c < p->channels; c++)
            to[i * p->channels + c] = frame[last ? i * channels + p->channel[c] : p->channel[c] * p->points + i];
    }
    if (points) ups_points_sort(points, p->channels, sizeof *to, to, out);
}

static ups_status check_points(ups_predictions *p, int64_t position, const ups_sample *sample, const ups_sample *truth,
                               ups_error *error) {
    if (!truth->points) return UPS_OK;
    const int64_t had = sample->points ? sample->points->distinct : p->points;
    if (had == truth->points->distinct || (!sample->points && had > truth->points->distinct)) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT, "%s has %lld points; %s of task %s has %lld",
                    ups_predictions_name(p, position), (long long)had, truth->name, p->task->name,
                    (long long)truth->points->distinct);
}

ups_status ups_predictions_read(ups_predictions *p, int64_t position, const ups_sample *truth, float *given,
                                bool *has_given, float *frames, ups_error *error) {
    const int64_t index = sample_of(p, position), before = p->first > 0 ? p->stride : 0;
    const ups_frames range = {p->first - before, p->geometry.times - p->first + before};
    const int64_t elements = p->points * p->geometry.channels;
    ups_sample sample;
    UPS_TRY(ups_source_describe(p->source, index, &sample, error));
    UPS_TRY(check_points(p, position, &sample, truth, error));
    UPS_TRY(ups_source_read(p->source, index, range, p->stored, error));
    (void)ups_convert(p->stored, sample.dtype, p->values, UPS_F32, (size_t)(range.count * elements)); /* NaN may be */
    *has_given = before > 0;
    const int64_t points = truth->points ? truth->points->count : p->points;
    if (*has_given) place_frame(p, p->values, truth->points, given);
    for (int64_t f = 0; f < p->steps; f++) {
        const float *frame = p->values + (before + f * p->stride) * elements;
        place_frame(p, frame, truth->points, frames + f * points * p->channels);
    }
    return UPS_OK;
}
