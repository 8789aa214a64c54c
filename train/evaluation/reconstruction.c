#include "train/evaluation/reconstruction.h"

#include "base/even.h"
#include "pipeline/convert.h"
#include "train/data/latents.h"
#include "train/data/normalisation.h"
#include "train/data/trajectories.h"
#include "train/evaluation/surrogate.h"
#include "train/networks.h"
#include "train/state.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_VALUES (INT64_C(1) << 24) /* of fields in memory, thrice: 64 MiB each */

struct ups_reconstructor {
    ups_session session;
    ups_surrogate_files files;
    ups_surrogate *surrogate; /* of the task last asked for */
    int task;                 /* its index; −1 */
    int checked_task;         /* the group last found to be of this run, by task and split; −1 */
    ups_split checked_split;
};

ups_status ups_reconstructor_open(const char *config_path, ups_reconstructor **result, ups_error *error) {
    *result = NULL;
    ups_reconstructor *r = calloc(1, sizeof *r);
    if (!r) return ups_fail(error, UPS_ERR_MEMORY, "no memory for an autoencoder");
    r->task = r->checked_task = -1;
    ups_status status = ups_session_open(config_path, NULL, 0, false, &r->session, error);
    if (status == UPS_OK) {
        r->files.autoencoder = ups_run_model_path(r->session.config, UPS_STAGE_AUTOENCODER);
        status = ups_run_autoencoder_hash(r->session.config, r->files.autoencoder_hash, error);
    }
    if (status == UPS_OK) {
        status = ups_tasks_normalise_as_trained(r->session.config, r->session.tasks, r->files.autoencoder, error);
    }
    if (status != UPS_OK) {
        ups_reconstructor_close(r);
        return status;
    }
    *result = r;
    return UPS_OK;
}

void ups_reconstructor_close(ups_reconstructor *r) {
    if (!r) return;
    ups_surrogate_close(r->surrogate);
    free(r->files.autoencoder);
    ups_session_close(&r->session);
    free(r);
}

/* ---- the group's task in the run ---- */

static int find_task(const ups_reconstructor *r, const char *name) {
    for (int t = 0; t < r->session.tasks->count; t++) {
        if (strcmp(r->session.tasks->task[t].name, name) == 0) return t;
    }
    return -1;
}

static int find_split(const char *name) {
    for (int s = 0; s < UPS_SPLIT_COUNT; s++) {
        if (strcmp(ups_split_name((ups_split)s), name) == 0) return s;
    }
    return -1;
}

int ups_reconstructor_dims(const ups_reconstructor *r, const ups_cache_group *group) {
    int task = find_task(r, group->task);
    if (task < 0) return 0;
    const ups_sample *geometry = &r->session.tasks->task[task].geometry;
    return geometry->points ? 2 : geometry->dims;
}

/* Whether the group is of this run. */
static ups_status check_group(ups_reconstructor *r, const ups_cache_group *group, ups_error *error) {
    int task = find_task(r, group->task), split = find_split(group->split);
    if (task < 0 || split < 0) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: the run has no task '%s' with a split '%s'", group->directory,
                        group->task, group->split);
    }
    if (r->checked_task == task && r->checked_split == (ups_split)split) return UPS_OK;
    ups_fingerprint expected = {0};
    UPS_TRY(
        ups_latents_fingerprint(r->session.config, &r->session.tasks->task[task], (ups_split)split, &expected, error));
    UPS_TRY(ups_fingerprint_compare(&expected, &group->fingerprint, group->directory, error));
    r->checked_task = task;
    r->checked_split = (ups_split)split;
    return UPS_OK;
}

static ups_status use_task(ups_reconstructor *r, int task, ups_error *error) {
    if (r->task == task) return UPS_OK;
    ups_surrogate_close(r->surrogate);
    r->surrogate = NULL;
    r->task = -1;
    UPS_TRY(ups_surrogate_open(r->session.config, r->session.tasks, task, r->session.device, &r->files,
                               (ups_surrogate_use){.at_grid_points = true}, &r->surrogate, error));
    r->task = task;
    return UPS_OK;
}

/* ---- one trajectory ---- */

/* A frame of the source as float32 in the task's own channel order. */
static ups_status read_frame(const ups_task *task, int64_t source_sample, int64_t frame, void *raw, float *out,
                             ups_error *error) {
    UPS_TRY(ups_source_read(task->source, source_sample, (ups_frames){frame, 1}, raw, error));
    ups_convert(raw, task->geometry.dtype, out, UPS_F32, (size_t)ups_sample_frame_elements(&task->geometry));
    return UPS_OK;
}

/* Working memory of one trajectory: the networks work in batches, so all frames go through them together. */
typedef struct workspace {
    void *raw;             /* a frame as it is stored */
    float *fields;         /* (frames, elements): in the task's order, then as decoded from latents before rounding */
    float *exact, *cached; /* (frames, latent elements) */
    float *coordinates;
    ups_f16 *rounded; /* (latent elements) */
    double *sums;     /* (channels, 5): field, field², fp16², error², |fp16| max */
} workspace;

static bool workspace_make(workspace *w, const ups_task *task, int64_t frames, int64_t latent_elements) {
    size_t elements = (size_t)ups_sample_frame_elements(&task->geometry), latents = (size_t)(frames * latent_elements);
    w->raw = malloc(elements * sizeof(double));
    w->fields = malloc((size_t)frames * elements * sizeof(float));
    w->exact = malloc(latents * sizeof(float));
    w->cached = malloc(latents * sizeof(float));
    w->coordinates = malloc((size_t)(ups_task_points(task) * task->geometry.dims) * sizeof(float));
    w->rounded = malloc((size_t)latent_elements * sizeof(ups_f16));
    w->sums = calloc((size_t)task->geometry.channels * 5, sizeof(double));
    return w->raw && w->fields && w->exact && w->cached && w->coordinates && w->rounded && w->sums;
}

static void workspace_free(workspace *w) {
    free(w->raw);
    free(w->fields);
    free(w->exact);
    free(w->cached);
    free(w->coordinates);
    free(w->rounded);
    free(w->sums);
}

static void add_sums(const ups_reconstruction *result, const float *from_exact, int64_t elements, double *all) {
    int64_t channels = result->task->geometry.channels;
    for (int64_t k = 0; k < result->frames * elements; k++) {
        if (result->points && !ups_points_is_first(result->points, k % elements / channels)) continue;
        double *sums = all + 5 * (k % channels), field = result->truth[k];
        double fp16 = (double)result->decoded[k] - (double)from_exact[k], wrong = (double)result->decoded[k] - field;
        sums[0] += field;
        sums[1] += field * field;
        sums[2] += fp16 * fp16;
        sums[3] += wrong * wrong;
        if (fabs(fp16) > sums[4]) sums[4] = fabs(fp16);
    }
}

/* Frames before and behind the cache, both decoded; sums for the measures. */
static ups_status reconstruct_frames(ups_reconstructor *r, const ups_cache_group *group, const ups_f16 *latents,
                                     workspace *w, ups_reconstruction *result, ups_error *error) {
    const ups_task *task = result->task;
    int64_t points = ups_task_points(task), elements = points * task->geometry.channels, frames = result->frames;
    int64_t each = ups_surrogate_latent_elements(r->surrogate);
    for (int64_t i = 0; i < frames; i++) {
        int64_t frame = result->frame[i];
        UPS_TRY(
            read_frame(task, group->source_samples[result->sample], frame, w->raw, w->fields + i * elements, error));
        ups_f16_to_f32(latents + frame * each, w->cached + i * each, (size_t)each);
    }
    ups_frames_channels_last(task, w->fields, frames, result->truth);
    UPS_TRY(ups_surrogate_encode(r->surrogate, w->fields, frames, w->exact, error));
    UPS_TRY(ups_surrogate_decode(r->surrogate, w->cached, frames, w->coordinates, points, result->decoded, error));
    UPS_TRY(ups_surrogate_decode(r->surrogate, w->exact, frames, w->coordinates, points, w->fields, error));
    add_sums(result, w->fields, elements, w->sums);
    for (int64_t i = 0; i < frames; i++) {
        float *now = w->exact + i * each;
        ups_f32_to_f16(now, w->rounded, (size_t)each);
        ups_f16_to_f32(w->rounded, now, (size_t)each);
        double largest = result->latent_distance;
        for (int64_t k = 0; k < each; k++) {
            double distance = fabs((double)now[k] - (double)w->cached[i * each + k]);
            if (distance > largest) largest = distance;
        }
        result->latent_distance = largest;
    }
    return UPS_OK;
}

ups_status ups_reconstruct(ups_reconstructor *r, const ups_cache_group *group, int64_t sample, const ups_f16 *latents,
                           int64_t max_frames, ups_reconstruction *result, ups_error *error) {
    *result = (ups_reconstruction){.sample = sample};
    UPS_TRY(check_group(r, group, error));
    int index = find_task(r, group->task);
    UPS_TRY(use_task(r, index, error));
    const ups_task *task = result->task = &r->session.tasks->task[index];
    int64_t channels = task->geometry.channels, elements = ups_sample_frame_elements(&task->geometry);
    int64_t times = group->shape.trajectory.times, frames = MAX_VALUES / elements;
    if (frames > max_frames) frames = max_frames;
    if (frames > times) frames = times;
    if (frames < 1) frames = 1;
    workspace w = {0};
    result->frame = malloc((size_t)frames * sizeof *result->frame);
    if (result->frame) frames = result->frames = ups_even_choice(0, times - 1, frames, frames == 1, result->frame);
    result->truth = malloc((size_t)(frames * elements) * sizeof(float));
    result->decoded = malloc((size_t)(frames * elements) * sizeof(float));
    result->channel = calloc((size_t)channels, sizeof *result->channel);
    bool had = workspace_make(&w, task, frames, ups_surrogate_latent_elements(r->surrogate)) && result->frame &&
               result->truth && result->decoded && result->channel;
    ups_sample description;
    ups_status status = had ? ups_source_describe(task->source, group->source_samples[sample], &description, error)
                            : ups_fail(error, UPS_ERR_MEMORY, "task %s: no memory for its fields", task->name);
    if (status == UPS_OK) {
        result->name = description.name;
        result->points = description.points;
        ups_task_coordinates(task, w.coordinates);
        result->time = description.time;
    }
    if (status == UPS_OK) status = reconstruct_frames(r, group, latents, &w, result, error);
    double values = (double)frames * (double)(result->points ? result->points->distinct : elements / channels);
    for (int64_t c = 0; c < channels && status == UPS_OK; c++) {
        const double *sums = w.sums + 5 * c, mean = sums[0] / values;
        result->channel[c] = (ups_reconstructed_channel){.name = task->source->channel_names[c],
                                                         .deviation = sqrt(fmax(0, sums[1] / values - mean * mean)),
                                                         .fp16_max = sums[4],
                                                         .fp16_rms = sqrt(sums[2] / values),
                                                         .nrmse = sqrt(sums[3] / sums[1])};
    }
    workspace_free(&w);
    if (status != UPS_OK) ups_reconstruction_free(result);
    return status;
}

void ups_reconstruction_free(ups_reconstruction *reconstruction) {
    free(reconstruction->frame);
    free(reconstruction->truth);
    free(reconstruction->decoded);
    free(reconstruction->channel);
    *reconstruction = (ups_reconstruction){0};
}
