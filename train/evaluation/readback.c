#include "train/evaluation/readback.h"

#include "base/half.h"
#include "pipeline/convert.h"
#include "train/data/trajectories.h"
#include "train/evaluation/surrogate.h"
#include "train/networks.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_TRAJECTORIES = 8, MOST_FRAMES = 4 };

/* One frame at a time goes through the networks, which work in batches: frames are few. */
typedef struct readback {
    const ups_task *task;
    ups_surrogate *surrogate;
    void *raw;                                    /* a frame as it is stored */
    float *field, *truth, *decoded, *coordinates; /* (elements), thrice; (points, dims) */
    float *latents;
    ups_f16 *cached;
    double *error, *square; /* (channels): sums over all that was read back */
} readback;

static bool allocate(readback *b) {
    size_t elements = (size_t)ups_sample_frame_elements(&b->task->geometry),
           channels = (size_t)b->task->geometry.channels;
    b->raw = malloc(elements * sizeof(double));
    b->field = malloc(elements * sizeof(float));
    b->truth = malloc(elements * sizeof(float));
    b->decoded = malloc(elements * sizeof(float));
    b->coordinates = malloc((size_t)(ups_task_points(b->task) * b->task->geometry.dims) * sizeof(float));
    b->latents = malloc((size_t)ups_surrogate_latent_elements(b->surrogate) * sizeof(float));
    b->cached = malloc((size_t)ups_surrogate_latent_elements(b->surrogate) * sizeof(ups_f16));
    b->error = calloc(channels, sizeof(double));
    b->square = calloc(channels, sizeof(double));
    return b->raw && b->field && b->truth && b->decoded && b->coordinates && b->latents && b->cached && b->error &&
           b->square;
}

static void release(readback *b) {
    ups_surrogate_close(b->surrogate);
    free(b->raw);
    free(b->field);
    free(b->truth);
    free(b->decoded);
    free(b->coordinates);
    free(b->latents);
    free(b->cached);
    free(b->error);
    free(b->square);
}

/* A frame that cannot be read, or is not finite, is for those to tell of who need it. */
static ups_status add_frame(readback *b, int64_t sample, int64_t frame, ups_error *error) {
    const ups_task *task = b->task;
    int64_t elements = ups_sample_frame_elements(&task->geometry), channels = task->geometry.channels;
    if (ups_source_read(task->source, sample, (ups_frames){frame, 1}, b->raw, error) != UPS_OK) return UPS_OK;
    ups_convert(b->raw, task->geometry.dtype, b->field, UPS_F32, (size_t)elements);
    for (int64_t i = 0; i < elements; i++) {
        if (!isfinite(b->field[i])) return UPS_OK;
    }
    ups_frames_channels_last(task, b->field, 1, b->truth);
    UPS_TRY(ups_surrogate_encode(b->surrogate, b->field, 1, b->latents, error));
    ups_f32_to_f16(b->latents, b->cached, (size_t)ups_surrogate_latent_elements(b->surrogate));
    ups_f16_to_f32(b->cached, b->latents, (size_t)ups_surrogate_latent_elements(b->surrogate));
    UPS_TRY(
        ups_surrogate_decode(b->surrogate, b->latents, 1, b->coordinates, ups_task_points(task), b->decoded, error));
    ups_sample described;
    UPS_TRY(ups_source_describe(task->source, sample, &described, error));
    for (int64_t i = 0; i < elements; i++) {
        if (described.points && !ups_points_is_first(described.points, i / channels)) continue;
        double truth = (double)b->truth[i], wrong = (double)b->decoded[i] - truth;
        b->error[i % channels] += wrong * wrong;
        b->square[i % channels] += truth * truth;
    }
    return UPS_OK;
}

/* Evenly spread: the first of some, and the last of the only one. */
static int64_t spread(int64_t i, int64_t count, int64_t of) {
    return count > 1 ? i * (of - 1) / (count - 1) : of - 1;
}

static ups_status read_all(readback *b, ups_split split, double *nrmse, ups_error *error) {
    const ups_task *task = b->task;
    int64_t samples = task->splits.count[split], times = task->geometry.times, channels = task->geometry.channels;
    int64_t trajectories = samples < MOST_TRAJECTORIES ? samples : MOST_TRAJECTORIES;
    int64_t frames = times < MOST_FRAMES ? times : MOST_FRAMES, counted = 0;
    ups_task_coordinates(task, b->coordinates);
    for (int64_t s = 0; s < trajectories; s++) {
        int64_t sample = task->splits.samples[split][spread(s, trajectories, samples)];
        for (int64_t f = 0; f < frames; f++) UPS_TRY(add_frame(b, sample, spread(f, frames, times), error));
    }
    *nrmse = 0;
    for (int64_t c = 0; c < channels; c++) {
        if (b->square[c] <= 0) continue; /* a field of zeros has no scale to be wrong by */
        *nrmse += sqrt(b->error[c] / b->square[c]);
        counted++;
    }
    *nrmse = counted > 0 ? *nrmse / (double)counted : (double)NAN;
    return UPS_OK;
}

ups_status ups_readback(const ups_session *session, int task, ups_split split, const char *autoencoder, double *nrmse,
                        ups_error *error) {
    readback b = {.task = &session->tasks->task[task]};
    const ups_surrogate_files files = {.autoencoder = (char *)autoencoder};
    const ups_surrogate_use use = {.at_grid_points = true};
    *nrmse = NAN;
    if (b.task->splits.count[split] == 0) return UPS_OK;
    UPS_TRY(
        ups_surrogate_open(session->config, session->tasks, task, session->device, &files, use, &b.surrogate, error));
    ups_status status = allocate(&b) ? read_all(&b, split, nrmse, error)
                                     : ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", b.task->name);
    release(&b);
    return status;
}
