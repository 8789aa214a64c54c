#include "train/evaluation/rollout.h"

#include "base/progress.h"
#include "model/nets/blocks.h"
#include "train/data/conditions/step_times.h"
#include "train/data/conditions/unlearnt.h"
#include "train/data/trajectories.h"
#include "train/evaluation/evaluate.h"
#include "train/evaluation/scores/pde_metrics.h"
#include "train/networks.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES_DECODED_AT_ONCE 64

typedef struct rolling {
    const ups_rollout_request *request;
    const ups_task *task;
    ups_surrogate *surrogate;
    ups_rollouts *out;
    bool same_grid;
    int64_t data_frames; /* that the data have, at the task's stride */
    int64_t elements;    /* of a frame of the data */
    int64_t latent_elements;
    float *start;              /* (count, given, elements): first frames in the task's order */
    float *latents;            /* (count, frames, tokens, dim) */
    float *coordinates;        /* (points, dims) */
    double *step_times;        /* (count, frames): seconds from the frame before to each */
    const double **parameters; /* (count) */
    ups_progress *progress;
} rolling;

/* Whether coordinates are those of a uniform grid but for rounding, to single precision at worst. */
static bool is_uniform(const double *x, int64_t count) {
    const double rounding = 5e-7 * fmax(fabs(x[0]), fabs(x[count - 1]));
    const double step = count > 1 ? (x[count - 1] - x[0]) / (double)(count - 1) : 0;
    for (int64_t i = 0; i < count; i++) {
        if (!(fabs(x[0] + (double)i * step - x[i]) <= rounding)) return false;
    }
    return true;
}

/* The coordinate at a place that may lie between two points, or beyond the outer ones: linear in their numbers. */
static double coordinate_at(const double *x, int64_t count, double place) {
    const int64_t below = (int64_t)fmin(fmax(floor(place), 0), (double)(count - 2));
    const double share = place - (double)below;
    if (share == 0) return x[below];
    return share == 1 ? x[below + 1] : x[below] + share * (x[below + 1] - x[below]);
}

/* The domain that the first trajectory's coordinates cover, and where they lie in it. */
static ups_status find_places(ups_rollouts *out, const ups_sample *sample, ups_error *error) {
    ups_sample_domain(sample, out->low, out->high);
    for (int a = 0; a < sample->dims && !sample->points; a++) {
        const double *x = sample->coordinates[a];
        const int64_t points = sample->grid[a], cells = out->grid[a];
        if (!x || points < 2 || is_uniform(x, points)) continue;
        out->centres[a] = malloc((size_t)cells * sizeof *out->centres[a]);
        if (!out->centres[a]) return ups_fail(error, UPS_ERR_MEMORY, "no memory for %lld places", (long long)cells);
        for (int64_t i = 0; i < cells; i++) {
            const double share = ((double)i + 0.5) / (double)cells;
            out->centres[a][i] = coordinate_at(x, points, cells == points ? (double)i : share * (double)points - 0.5);
        }
        out->low[a] = coordinate_at(x, points, -0.5);
        out->high[a] = coordinate_at(x, points, (double)points - 0.5);
    }
    return UPS_OK;
}

double ups_rollouts_coordinate(const ups_rollouts *rollouts, int axis, int64_t i) {
    if (rollouts->centres[axis]) return rollouts->centres[axis][i];
    double share = ((double)i + 0.5) / (double)rollouts->grid[axis];
    return rollouts->low[axis] + share * (rollouts->high[axis] - rollouts->low[axis]);
}

static double time_of(const rolling *r, const ups_sample *sample, int64_t frame) {
    int64_t stride = r->task->config->stride, last = r->data_frames - 1;
    if (frame <= last) return sample->time[frame * stride];
    double interval = sample->time[last * stride] - sample->time[(last - 1) * stride];
    return sample->time[last * stride] + (double)(frame - last) * interval;
}

/* Seconds from the frame before to each, of the data's steps; beyond them the last one goes on. */
static ups_status time_steps(const rolling *r, const ups_sample *sample, double *seconds, ups_error *error) {
    const int64_t known = r->data_frames - 1;
    double *of_data = malloc((size_t)known * sizeof *of_data);
    if (!of_data) return ups_fail(error, UPS_ERR_MEMORY, "task %s: no memory for the times of steps", r->task->name);
    ups_sample_step_times(sample, r->task->dt, r->task->config->stride, of_data);
    for (int64_t f = 1; f < r->out->frames; f++) seconds[f] = of_data[f <= known ? f - 1 : known - 1];
    free(of_data);
    return UPS_OK;
}

static float *floats(int64_t rows, int64_t width) {
    return malloc((size_t)(rows * width + 1) * sizeof(float));
}

/* Notes the start and the truth of one trajectory, and makes room for its prediction. */
static ups_status add_trajectory(void *context, int64_t position, const ups_sample *sample, const float *frames,
                                 ups_error *error) {
    rolling *r = context;
    ups_rollouts *out = r->out;
    const int64_t channels = r->task->geometry.channels, stride = r->task->config->stride;
    const int64_t frame_elements = out->points * channels;
    ups_rollout *rollout = &out->list[out->count];
    for (int64_t f = 0; f < out->given; f++) {
        memcpy(r->start + (out->count * out->given + f) * r->elements, frames + f * stride * r->elements,
               (size_t)r->elements * sizeof *frames);
    }
    out->count++;
    rollout->position = position;
    rollout->sample = *sample;
    rollout->time = malloc((size_t)out->frames * sizeof *rollout->time);
    rollout->nrmse = malloc((size_t)channels * sizeof *rollout->nrmse);
    rollout->prediction = floats(out->frames, frame_elements);
    float *truth = floats(r->data_frames, r->elements);
    if (r->same_grid) rollout->truth = truth; /* else only to see which fields change */
    if (!rollout->time || !rollout->nrmse || !rollout->prediction || !truth) {
        if (!r->same_grid) free(truth);
        return ups_fail(error, UPS_ERR_MEMORY, "task %s: no memory for a rollout of %lld frames", r->task->name,
                        (long long)out->frames);
    }
    for (int64_t f = 0; f < r->data_frames; f++) {
        ups_frames_channels_last(r->task, frames + f * stride * r->elements, 1, truth + f * r->elements);
    }
    ups_trajectory_changes(truth, r->data_frames, r->elements / channels, channels, out->solution);
    if (!r->same_grid) free(truth);
    for (int64_t f = 0; f < out->frames; f++) rollout->time[f] = time_of(r, sample, f);
    UPS_TRY(time_steps(r, sample, r->step_times + (out->count - 1) * out->frames, error));
    return out->count == 1 ? find_places(out, sample, error) : UPS_OK;
}

static ups_status advance(rolling *r, ups_error *error) {
    const ups_rollouts *out = r->out;
    for (int64_t i = 0; i < out->count; i++) {
        UPS_TRY(ups_surrogate_encode(r->surrogate, r->start + i * out->given * r->elements, out->given,
                                     r->latents + i * out->frames * r->latent_elements, error));
        r->parameters[i] = out->list[i].sample.parameters;
    }
    const ups_surrogate_rollouts rollouts = {.latents = r->latents,
                                             .count = out->count,
                                             .given = out->given,
                                             .frames = out->frames,
                                             .step_times = r->step_times,
                                             .parameters = r->parameters};
    return ups_surrogate_roll(r->surrogate, &rollouts, error);
}

static ups_status decode(rolling *r, ups_error *error) {
    const ups_rollouts *out = r->out;
    const int64_t elements = out->points * r->task->geometry.channels;
    int64_t done = 0;
    for (int64_t i = 0; i < out->count; i++) {
        for (int64_t first = 0; first < out->frames; first += FRAMES_DECODED_AT_ONCE) {
            int64_t left = out->frames - first, frames = left < FRAMES_DECODED_AT_ONCE ? left : FRAMES_DECODED_AT_ONCE;
            UPS_TRY(ups_surrogate_decode(r->surrogate, r->latents + (i * out->frames + first) * r->latent_elements,
                                         frames, r->coordinates, out->points,
                                         out->list[i].prediction + first * elements, error));
            done += frames;
            ups_progress_update(r->progress, done, NULL);
        }
    }
    return UPS_OK;
}

/* nRMSE of every field over the predicted frames that have a truth. */
static ups_status score(const rolling *r, ups_rollout *rollout, ups_error *error) {
    const ups_sample *geometry = &r->task->geometry;
    const int64_t channels = geometry->channels, elements = r->out->points * channels;
    const int64_t given = r->out->given, known = r->out->truth_frames;
    for (int64_t c = 0; c < channels; c++) rollout->nrmse[c] = NAN;
    if (!rollout->truth || known <= given) return UPS_OK;
    ups_pde_metrics_shape shape = {
        .dims = geometry->dims, .channels = channels, .times = known - given, .scattered = geometry->points != NULL};
    for (int a = 0; a < geometry->dims; a++) shape.grid[a] = r->out->grid[a];
    ups_pde_metrics *metrics = NULL;
    UPS_TRY(ups_pde_metrics_create(&shape, &metrics, error));
    ups_pde_metrics_strides strides = ups_pde_metrics_channels_last(&shape);
    const float *prediction = rollout->prediction + given * elements, *truth = rollout->truth + given * elements;
    float *moved = NULL;
    int64_t points = 0;
    if (geometry->points && rollout->sample.points->distinct < r->out->points) {
        moved = floats(2 * shape.times + 1, elements);
        if (!moved) {
            ups_pde_metrics_destroy(metrics);
            return ups_fail(error, UPS_ERR_MEMORY, "task %s: no memory to score a rollout", r->task->name);
        }
        const int64_t all = shape.times * elements;
        memcpy(moved, prediction, (size_t)all * sizeof *moved);
        memcpy(moved + all, truth, (size_t)all * sizeof *moved);
        points = ups_frames_points_first(&rollout->sample, 2 * shape.times, channels, moved, moved + 2 * all);
        prediction = moved;
        truth = moved + all;
    }
    ups_pde_metrics_add(metrics, prediction, truth, &strides, points);
    free(moved);
    for (int64_t c = 0; c < channels; c++) rollout->nrmse[c] = ups_pde_metrics_read(metrics, c, 0, shape.times).nrmse;
    ups_pde_metrics_destroy(metrics);
    return UPS_OK;
}

static ups_status allocate(rolling *r, int64_t count, ups_error *error) {
    ups_rollouts *out = r->out;
    out->list = calloc((size_t)count, sizeof *out->list);
    out->solution = calloc((size_t)r->task->geometry.channels, sizeof *out->solution);
    r->start = floats(count * out->given, r->elements);
    r->latents = floats(count * out->frames, r->latent_elements);
    r->coordinates = floats(out->points, r->task->geometry.dims);
    r->step_times = calloc((size_t)(count * out->frames), sizeof *r->step_times);
    r->parameters = calloc((size_t)count, sizeof *r->parameters);
    if (!out->list || !out->solution || !r->start || !r->latents || !r->coordinates || !r->step_times ||
        !r->parameters) {
        return ups_fail(error, UPS_ERR_MEMORY, "task %s: no memory for %lld rollouts", r->task->name, (long long)count);
    }
    ups_grid_coordinates(r->task->geometry.dims, out->grid, r->coordinates);
    return UPS_OK;
}

ups_status ups_rollouts_run(const ups_run_config *config, const ups_tasks *tasks, int task,
                            const ups_rollout_request *request, ups_surrogate *surrogate, ups_rollouts *out,
                            ups_error *error) {
    const ups_task *t = &tasks->task[task];
    const ups_sample *geometry = &t->geometry;
    *out = (ups_rollouts){.task = t, .points = 1};
    rolling r = {.request = request, .task = t, .surrogate = surrogate, .out = out, .same_grid = true};
    r.data_frames = (geometry->times - 1) / t->config->stride + 1;
    r.elements = ups_sample_frame_elements(geometry);
    r.latent_elements = ups_surrogate_latent_elements(surrogate);
    UPS_TRY(ups_evaluation_given(config, t, &out->given, error));
    for (int a = 0; a < geometry->dims; a++) {
        out->grid[a] = request->grid[0] > 0 ? request->grid[a] : geometry->grid[a];
        out->points *= out->grid[a];
        r.same_grid = r.same_grid && out->grid[a] == geometry->grid[a];
    }
    out->frames = request->steps > 0 ? out->given + request->steps : r.data_frames;
    if (r.same_grid) out->truth_frames = out->frames < r.data_frames ? out->frames : r.data_frames;

    ups_status status = allocate(&r, request->count, error);
    if (status == UPS_OK) status = ups_unlearnt_warn(t, request->samples, request->count, error);
    if (status == UPS_OK) {
        status = ups_trajectories_read(config, t, request->samples, request->count, add_trajectory, &r, error);
    }
    if (status == UPS_OK && out->count == 0) {
        status = ups_fail(error, UPS_ERR_NUMERIC, "task %s: every sample asked for is bad (NaN or Inf)", t->name);
    }
    if (status == UPS_OK) {
        char title[128];
        snprintf(title, sizeof title, "rollout %s", t->name);
        r.progress = ups_progress_begin(title, "frames", out->count * out->frames, 0);
        status = advance(&r, error);
        if (status == UPS_OK) status = decode(&r, error);
        ups_progress_end(r.progress);
    }
    for (int64_t i = 0; i < out->count && status == UPS_OK; i++) status = score(&r, &out->list[i], error);
    bool any = false;
    for (int64_t c = 0; out->solution && c < geometry->channels; c++) any = any || out->solution[c];
    for (int64_t c = 0; out->solution && c < geometry->channels && !any; c++) out->solution[c] = true;
    free(r.start);
    free(r.latents);
    free(r.coordinates);
    free(r.step_times);
    free(r.parameters);
    if (status != UPS_OK) ups_rollouts_free(out);
    return status;
}

void ups_rollouts_free(ups_rollouts *rollouts) {
    for (int64_t i = 0; i < rollouts->count; i++) {
        free(rollouts->list[i].time);
        free(rollouts->list[i].prediction);
        free(rollouts->list[i].truth);
        free(rollouts->list[i].nrmse);
    }
    for (int a = 0; a < UPS_MAX_GRID_DIMS; a++) free(rollouts->centres[a]);
    free(rollouts->list);
    free(rollouts->solution);
    *rollouts = (ups_rollouts){0};
}
