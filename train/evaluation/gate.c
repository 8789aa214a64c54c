#include "train/evaluation/gate.h"

#include "base/log.h"
#include "pipeline/convert.h"
#include "train/data/trajectories.h"
#include "train/evaluation/surrogate.h"
#include "train/networks.h"
#include "train/run/replace.h"
#include "train/state.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TRAJECTORIES = 8, MOST_FRAMES = 4 };

/* One frame at a time goes through the networks, which work in batches: frames are few. */
typedef struct readback {
    const ups_task *task;
    ups_surrogate *surrogate;
    void *raw;                                    /* a frame as it is stored */
    float *field, *truth, *decoded, *coordinates; /* (elements), thrice; (points, dims) */
    float *latents;
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
    b->error = calloc(channels, sizeof(double));
    b->square = calloc(channels, sizeof(double));
    return b->raw && b->field && b->truth && b->decoded && b->coordinates && b->latents && b->error && b->square;
}

static void release(readback *b) {
    ups_surrogate_close(b->surrogate);
    free(b->raw);
    free(b->field);
    free(b->truth);
    free(b->decoded);
    free(b->coordinates);
    free(b->latents);
    free(b->error);
    free(b->square);
}

/* A frame that is not finite is what training leaves out, too. */
static ups_status add_frame(readback *b, int64_t sample, int64_t frame, ups_error *error) {
    const ups_task *task = b->task;
    int64_t elements = ups_sample_frame_elements(&task->geometry), channels = task->geometry.channels;
    UPS_TRY(ups_source_read(task->source, sample, (ups_frames){frame, 1}, b->raw, error));
    ups_convert(b->raw, task->geometry.dtype, b->field, UPS_F32, (size_t)elements);
    for (int64_t i = 0; i < elements; i++) {
        if (!isfinite(b->field[i])) return UPS_OK;
    }
    ups_frames_channels_last(task, b->field, 1, b->truth);
    UPS_TRY(ups_surrogate_encode(b->surrogate, b->field, 1, b->latents, error));
    UPS_TRY(
        ups_surrogate_decode(b->surrogate, b->latents, 1, b->coordinates, ups_task_points(task), b->decoded, error));
    for (int64_t i = 0; i < elements; i++) {
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

static ups_status read_back(readback *b, ups_split split, double *nrmse, ups_error *error) {
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

static ups_status measure(const ups_session *session, int index, const ups_surrogate_files *files, double *nrmse,
                          ups_error *error) {
    const ups_task *task = &session->tasks->task[index];
    ups_split split = task->splits.count[UPS_SPLIT_VALIDATION] > 0 ? UPS_SPLIT_VALIDATION : UPS_SPLIT_TEST;
    readback b = {.task = task};
    *nrmse = NAN;
    if (task->splits.count[split] == 0) {
        ups_log(UPS_LOG_INFO, "autoencoder: %s has no held-out fields, so autoencoder.gate does not judge it",
                task->name);
        return UPS_OK;
    }
    const ups_surrogate_use use = {.at_grid_points = true};
    UPS_TRY(
        ups_surrogate_open(session->config, session->tasks, index, session->device, files, use, &b.surrogate, error));
    ups_status status = allocate(&b) ? read_back(&b, split, nrmse, error)
                                     : ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", task->name);
    release(&b);
    return status;
}

/* Whether it is RUN/next, where stages of RUN are done again: RUN is what can be extended. */
static bool is_done_again(const char *output) {
    unsigned stages;
    const char *slash = strrchr(output, '/');
    return slash && slash != output && strcmp(slash, "/next") == 0 &&
           ups_run_redo_read(output, &stages, NULL) == UPS_OK && stages != 0;
}

ups_status ups_gate_autoencoder(const ups_session *session, ups_error *error) {
    const ups_run_config *config = session->config;
    double gate = config->autoencoder.gate, worst = 0;
    const char *of = NULL;
    ups_surrogate_files files = {.autoencoder = ups_run_model_path(config, UPS_STAGE_AUTOENCODER)};
    ups_status status = files.autoencoder ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    for (int t = 0; t < session->tasks->count && status == UPS_OK && gate > 0; t++) {
        double nrmse;
        status = measure(session, t, &files, &nrmse, error);
        if (status != UPS_OK || isnan(nrmse)) continue;
        ups_log(UPS_LOG_INFO, "autoencoder: held-out fields of %s are read back with an nRMSE of %.3g",
                session->tasks->task[t].name, nrmse);
        if (nrmse <= worst) continue;
        worst = nrmse;
        of = session->tasks->task[t].name;
    }
    free(files.autoencoder);
    if (status != UPS_OK || worst <= gate || gate <= 0) return status;
    const bool is_next = is_done_again(config->output);
    const int run = (int)(is_next ? strrchr(config->output, '/') - config->output : (long)strlen(config->output));
    return ups_fail(
        error, UPS_ERR_NUMERIC,
        "autoencoder: held-out fields of task %s are read back with an nRMSE of %.3g, above autoencoder.gate "
        "(%g), and no operator on these latents can be better. Try more steps (%s%s%sups train %.*s --extend "
        "--set autoencoder.steps=%lld), a smaller patch of the task, more model.tokens or a larger model.dim; "
        "--resume --set autoencoder.gate=0 goes on all the same",
        of, worst, gate, is_next ? "rm -r " : "", is_next ? config->output : "", is_next ? " && " : "", run,
        config->output, (long long)config->autoencoder.training.steps * 2);
}
