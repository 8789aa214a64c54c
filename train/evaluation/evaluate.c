/* Trajectories are worked on in groups, as many as fit: load → predict (forecast.c) → score. */
#include "train/evaluation/evaluate.h"

#include "base/hash.h"
#include "base/system/threads.h"
#include "train/data/conditions/step_times.h"
#include "train/data/conditions/unlearnt.h"
#include "train/data/trajectories.h"
#include "train/evaluation/evaluator.h"
#include "train/networks.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TRAJECTORIES 16     /* a group */
#define GROUP_BYTES (256u << 20) /* what a group may hold, unless a single trajectory is larger */

const char *const ups_forecast_names[UPS_FORECASTS] = {"model", "persistence", "reconstruction"};

/* ---- what there is to do --------------------------------------------------------------------------------------- */

static int64_t frames_of(const ups_task *task) {
    return (task->geometry.times - 1) / task->config->stride + 1;
}

ups_status ups_evaluation_given(const ups_run_config *config, const ups_task *task, int64_t *given, ups_error *error) {
    const int64_t frames = frames_of(task);
    *given = frames == 2 ? 1 : config->evaluation.given;
    if (frames < 2) {
        return ups_fail(error, UPS_ERR_CONFIG,
                        "task %s: a stride of %lld leaves no step in trajectories of %lld frames", task->name,
                        (long long)task->config->stride, (long long)task->geometry.times);
    }
    if (*given < frames) return UPS_OK;
    return ups_fail(error, UPS_ERR_CONFIG,
                    "task %s: evaluation.given is %lld, which leaves none of the %lld frames of its trajectories to be "
                    "scored; at most %lld can be given",
                    task->name, (long long)*given, (long long)frames, (long long)(frames - 1));
}

ups_status ups_evaluation_check(const ups_run_config *config, const ups_tasks *tasks, ups_error *error) {
    int64_t given;
    for (int t = 0; t < tasks->count; t++) UPS_TRY(ups_evaluation_given(config, &tasks->task[t], &given, error));
    return UPS_OK;
}

static ups_pde_metrics_shape metrics_shape(const ups_evaluator *e, const ups_scored_horizon *h) {
    const ups_sample *geometry = &e->task->geometry;
    ups_pde_metrics_shape shape = {
        .dims = geometry->dims, .channels = e->channels, .times = h->frames, .scattered = geometry->points != NULL};
    for (int a = 0; a < geometry->dims; a++) shape.grid[a] = geometry->grid[a];
    return shape;
}

static ups_status create_metrics(const ups_evaluator *e, ups_scored_horizon *h, ups_error *error) {
    const ups_pde_metrics_shape shape = metrics_shape(e, h);
    for (int f = 0; f < ups_evaluator_forecasts(e); f++) UPS_TRY(ups_pde_metrics_create(&shape, &h->metrics[f], error));
    return UPS_OK;
}

static ups_status create_rollout(ups_evaluator *e, ups_error *error) {
    const ups_sample *geometry = &e->task->geometry;
    ups_rollout_shape shape = {
        .dims = geometry->dims, .channels = e->channels, .frames = e->steps, .scattered = geometry->points != NULL};
    for (int a = 0; a < geometry->dims; a++) shape.grid[a] = geometry->grid[a];
    UPS_TRY(ups_rollout_scores_create(&shape, &e->rollout, error));
    int64_t velocity[UPS_MAX_GRID_DIMS];
    const bool flows = ups_gates_find_velocity(e->config, e->task, velocity);
    return ups_gates_create(e->task, e->steps, flows ? velocity : NULL, &e->gates, error);
}

static ups_status plan_horizons(ups_evaluator *e, ups_error *error) {
    const ups_evaluation_config *config = &e->config->evaluation;
    e->horizons = calloc(config->horizon_count, sizeof *e->horizons);
    e->target = calloc((size_t)e->frames, sizeof *e->target);
    if (!e->horizons || !e->target) return ups_fail(error, UPS_ERR_MEMORY, "evaluation: out of memory");
    e->horizon_count = (int)config->horizon_count;
    for (int i = 0; i < e->horizon_count; i++) {
        ups_scored_horizon *h = &e->horizons[i];
        h->steps = config->horizons[i];
        h->frames = ups_horizon_is_whole(h) ? e->steps : 1;
        for (int64_t w = 0; w < ups_evaluator_windows(e, h); w++) {
            int64_t first =
                ups_evaluator_start_frame(e, w * config->start_every) + (ups_horizon_is_whole(h) ? 1 : h->steps);
            for (int64_t f = 0; f < h->frames; f++) e->target[first + f] = true;
        }
        UPS_TRY(create_metrics(e, h, error));
        if (ups_horizon_is_whole(h) && !e->rollout) UPS_TRY(create_rollout(e, error));
    }
    e->starts = (e->steps - 1) / config->start_every + 1;
    return UPS_OK;
}

/* Frames decoded for one trajectory: the measure of progress, since decoding is most of the work. Of predictions those
 * that are read. */
static int64_t decoded_each(const ups_evaluator *e) {
    int64_t sum = 0;
    if (e->predictions) return e->steps;
    for (int64_t f = 0; f < e->frames; f++) sum += e->target[f];
    for (int i = 0; i < e->horizon_count; i++) sum += ups_evaluator_windows(e, &e->horizons[i]) * e->horizons[i].frames;
    return sum;
}

static float *rows(int64_t count, int64_t width) {
    return malloc((size_t)(count * width + 1) * sizeof(float));
}

static ups_status allocate(ups_evaluator *e, int64_t trajectories, ups_error *error) {
    const ups_sample *geometry = &e->task->geometry;
    bool reordered = geometry->order == UPS_CHANNELS_FIRST && e->channels > 1;
    int64_t each =
        e->frames * ((reordered ? 3 : 2) * e->elements + e->latent_elements) + e->starts * e->window_elements;
    for (int i = 0; i < e->horizon_count; i++) {
        each += ups_evaluator_windows(e, &e->horizons[i]) * e->horizons[i].frames * (e->elements + e->latent_elements);
    }
    e->capacity = GROUP_BYTES / (each * (int64_t)sizeof(float));
    if (e->capacity > MOST_TRAJECTORIES) e->capacity = MOST_TRAJECTORIES;
    if (e->capacity > trajectories) e->capacity = trajectories;
    if (e->capacity < 1) e->capacity = 1;

    int64_t frames = e->capacity * e->frames, windows = e->capacity * e->starts;
    e->samples = calloc((size_t)e->capacity, sizeof *e->samples);
    e->positions = calloc((size_t)e->capacity, sizeof *e->positions);
    e->step_times = calloc((size_t)frames, sizeof *e->step_times);
    e->stored = rows(frames, e->elements);
    e->fields = reordered ? rows(frames, e->elements) : e->stored;
    e->latents = rows(frames, e->latent_elements);
    e->reconstructed = rows(frames, e->elements);
    e->start_repeated = rows(e->steps, e->elements);
    e->coordinates = rows(e->points, geometry->dims);
    e->gathered = rows(UPS_FRAMES_DECODED_AT_ONCE, e->latent_elements);
    e->decoded = rows(UPS_FRAMES_DECODED_AT_ONCE, e->elements);
    e->predicted = e->predictions ? rows(e->steps, e->elements) : NULL;
    e->windows = calloc((size_t)windows, sizeof *e->windows);
    e->window_latents = rows(windows, e->window_elements);
    e->states = calloc((size_t)windows, sizeof *e->states);
    e->solution = calloc((size_t)e->channels, sizeof *e->solution);
    e->scored = calloc((size_t)trajectories, sizeof *e->scored);
    e->truth_hash = calloc((size_t)trajectories, sizeof *e->truth_hash);
    bool had = e->samples && e->positions && e->step_times && e->stored && e->fields && e->latents &&
               e->reconstructed && e->start_repeated && e->coordinates && e->gathered && e->decoded &&
               (e->predicted || !e->predictions) && e->windows && e->window_latents && e->states && e->solution &&
               e->scored && e->truth_hash;
    for (int i = 0; i < e->horizon_count && had; i++) {
        ups_scored_horizon *h = &e->horizons[i];
        int64_t count = e->capacity * ups_evaluator_windows(e, h) * h->frames;
        h->latents = rows(count, e->latent_elements);
        h->fields = rows(count, e->elements);
        had = h->latents && h->fields;
    }
    if (!had) {
        return ups_fail(error, UPS_ERR_MEMORY, "task %s: no memory for a trajectory's fields and latents (%.0f MB)",
                        e->task->name, (double)each * sizeof(float) / 1e6);
    }
    ups_task_coordinates(e->task, e->coordinates);
    return UPS_OK;
}

static void release(ups_evaluator *e) {
    for (int i = 0; i < e->horizon_count; i++) {
        for (int f = 0; f < UPS_FORECASTS; f++) ups_pde_metrics_destroy(e->horizons[i].metrics[f]);
        free(e->horizons[i].latents);
        free(e->horizons[i].fields);
    }
    free(e->horizons);
    free(e->target);
    free(e->samples);
    free(e->positions);
    free(e->step_times);
    if (e->fields != e->stored) free(e->fields);
    free(e->stored);
    free(e->latents);
    free(e->reconstructed);
    free(e->start_repeated);
    free(e->coordinates);
    free(e->gathered);
    free(e->decoded);
    free(e->predicted);
    free(e->windows);
    free(e->window_latents);
    free(e->states);
    free(e->solution);
    free(e->scored);
    free(e->truth_hash);
    ups_rollout_scores_destroy(e->rollout);
    ups_gates_destroy(e->gates);
}

/* ---- a group --------------------------------------------------------------------------------------------------- */

static ups_status finish_group(ups_evaluator *e, ups_error *error);

/* Of the frames that are scored, and the last given one. Where samples have points of their own, these stand in an
 * order that depends on the largest of all samples: they are put into the file's, each once. */
static uint64_t hash_truth(const ups_evaluator *e, const ups_sample *sample, const float *frames) {
    const int64_t count = e->steps + 1;
    if (!sample->points || !sample->points->own)
        return ups_hash_bytes(frames, (size_t)(count * e->elements) * sizeof *frames).low;
    uint64_t chain[2] = {0};
    for (int64_t f = 0; f < count; f++) {
        ups_points_unsort(sample->points, e->channels, sizeof *frames, frames + f * e->elements, e->decoded);
        chain[1] = ups_hash_bytes(e->decoded, (size_t)(sample->points->distinct * e->channels) * sizeof *frames).low;
        chain[0] = ups_hash_bytes(chain, sizeof chain).low;
    }
    return chain[0];
}

/* Every stride-th frame of a trajectory into its place; a full group is worked on. */
static ups_status add_trajectory(void *context, int64_t position, const ups_sample *sample, const float *frames,
                                 ups_error *error) {
    ups_evaluator *e = context;
    const int64_t first = e->count * e->frames, stride = e->task->config->stride;
    for (int64_t f = 0; f < e->frames; f++) {
        memcpy(e->stored + (first + f) * e->elements, frames + f * stride * e->elements,
               (size_t)e->elements * sizeof *frames);
    }
    float *fields = e->fields + first * e->elements;
    if (e->fields != e->stored) {
        ups_frames_channels_last(e->task, e->stored + first * e->elements, e->frames, fields);
    }
    ups_trajectory_changes(fields, e->frames, e->points, e->channels, e->solution);
    ups_sample_step_times(sample, e->task->dt, stride, e->step_times + e->count * (e->frames - 1));
    e->positions[e->count] = position;
    e->samples[e->count++] = *sample;
    e->scored[e->seen] = e->chosen[position];
    e->truth_hash[e->seen] = hash_truth(e, sample, fields + ups_evaluator_start_frame(e, 0) * e->elements);
    e->seen++;
    return e->count == e->capacity ? finish_group(e, error) : UPS_OK;
}

/* The rollout of the group's i-th trajectory over time. `forecasts` are of all its frames. */
static ups_status score_over_time(ups_evaluator *e, int64_t i, const float *const forecasts[UPS_FORECASTS],
                                  const float *given, int64_t points, ups_error *error) {
    const int64_t stride = e->task->config->stride;
    double *time = malloc((size_t)(e->steps + 1) * sizeof *time);
    if (!time) return ups_fail(error, UPS_ERR_MEMORY, "evaluation: out of memory");
    for (int64_t f = 0; f <= e->steps; f++)
        time[f] = e->samples[i].time[(ups_evaluator_start_frame(e, 0) + f) * stride];
    ups_status status = ups_rollout_scores_add(e->rollout, forecasts, given, time, points, error);
    if (status == UPS_OK) status = ups_gates_add(e->gates, forecasts[UPS_FORECAST_MODEL], given, points, error);
    free(time);
    return status;
}

/* The predictions of one horizon against the truth, beside persistence and reconstruction. */
static ups_status score(ups_evaluator *e, ups_scored_horizon *h, bool over_time, ups_error *error) {
    const ups_pde_metrics_shape shape = metrics_shape(e, h);
    const ups_pde_metrics_strides strides = ups_pde_metrics_channels_last(&shape);
    const int64_t each = ups_evaluator_windows(e, h);
    for (int64_t i = 0; i < h->count; i++) {
        int64_t start = ups_evaluator_start_frame(e, i % each * e->config->evaluation.start_every);
        int64_t first = i / each * e->frames + start, target = first + (ups_horizon_is_whole(h) ? 1 : h->steps);
        const float *truth = e->fields + target * e->elements, *given = e->fields + first * e->elements;
        const float *persistence = given;
        float *prediction = h->fields + i * h->frames * e->elements;
        const int64_t points =
            ups_frames_points_first(&e->samples[i / each], h->frames, e->channels, prediction, e->decoded);
        if (h->frames > 1) {
            for (int64_t f = 0; f < h->frames; f++) {
                memcpy(e->start_repeated + f * e->elements, given, (size_t)e->elements * sizeof(float));
            }
            persistence = e->start_repeated;
        }
        const float *const forecasts[UPS_FORECASTS] = {
            [UPS_FORECAST_MODEL] = prediction,
            [UPS_FORECAST_PERSISTENCE] = persistence,
            [UPS_FORECAST_RECONSTRUCTION] = e->predictions ? truth : e->reconstructed + target * e->elements};
        for (int f = 0; f < ups_evaluator_forecasts(e); f++)
            ups_pde_metrics_add(h->metrics[f], forecasts[f], truth, &strides, points);
        if (over_time) UPS_TRY(score_over_time(e, i, forecasts, given, points, error));
    }
    return UPS_OK;
}

/* What is scored counts each point once. Encoding was the last to want another order. */
static void put_points_first(ups_evaluator *e) {
    for (int64_t i = 0; i < e->count; i++) {
        const int64_t first = i * e->frames;
        ups_frames_points_first(&e->samples[i], e->frames, e->channels, e->fields + first * e->elements, e->decoded);
        for (int64_t f = first; f < first + e->frames; f++) {
            if (!e->predictions && e->target[f - first])
                ups_frames_points_first(&e->samples[i], 1, e->channels, e->reconstructed + f * e->elements, e->decoded);
        }
    }
}

static ups_status finish_group(ups_evaluator *e, ups_error *error) {
    UPS_TRY(e->predictions ? ups_evaluator_take_predictions(e, error) : ups_evaluator_predict(e, error));
    put_points_first(e);
    bool over_time = false;
    for (int i = 0; i < e->horizon_count; i++) {
        const bool first_whole = ups_horizon_is_whole(&e->horizons[i]) && !over_time;
        over_time = over_time || first_whole;
        UPS_TRY(score(e, &e->horizons[i], first_whole, error));
    }
    e->count = 0;
    return UPS_OK;
}

/* ---- a task ---------------------------------------------------------------------------------------------------- */

/* Trajectories of a split that are evaluated. */
static int64_t chosen_of(const ups_run_config *config, const ups_task *task, ups_split split) {
    const int64_t have = task->splits.count[split], wanted = config->evaluation.max_samples;
    return wanted == 0 || wanted > have ? have : wanted;
}

ups_status ups_evaluation_match(const ups_run_config *config, const ups_task *task, ups_split split,
                                ups_predictions *predictions, ups_error *error) {
    int64_t given;
    if (split == UPS_SPLIT_COUNT) split = ups_task_held_out(task);
    UPS_TRY(ups_evaluation_given(config, task, &given, error));
    UPS_TRY(ups_task_check_split(task, split, error));
    return ups_predictions_match(predictions, given, frames_of(task) - given, chosen_of(config, task, split),
                                 task->splits.samples[split], task->splits.count[split],
                                 config->data.on_bad_sample == UPS_BAD_SAMPLE_SKIP, error);
}

ups_status ups_evaluate_task(const ups_run_config *config, const ups_tasks *tasks, int index, ups_split split,
                             const ups_evaluated *evaluated, ups_task_evaluation *out, ups_error *error) {
    const ups_task *task = &tasks->task[index];
    double began = ups_now();
    if (split == UPS_SPLIT_COUNT) split = ups_task_held_out(task);
    *out = (ups_task_evaluation){.task = task, .split = split};
    int64_t given;
    UPS_TRY(ups_evaluation_given(config, task, &given, error));
    UPS_TRY(ups_task_check_split(task, split, error));
    const int64_t have = task->splits.count[split], wanted = chosen_of(config, task, split);
    ups_evaluator e = {.config = config,
                       .task = task,
                       .surrogate = evaluated->predictions ? NULL : evaluated->surrogate,
                       .predictions = evaluated->predictions,
                       .channels = task->geometry.channels};
    e.advancing = e.decoding = INFINITY;
    e.frames = frames_of(task);
    e.given = given;
    e.steps = e.frames - e.given;
    e.elements = ups_sample_frame_elements(&task->geometry);
    e.points = ups_task_points(task);
    if (e.surrogate) {
        e.latent_elements = ups_surrogate_latent_elements(e.surrogate);
        e.history = ups_surrogate_history(e.surrogate);
        e.bundle = ups_surrogate_bundle(e.surrogate);
    }
    e.window_elements = (e.history + e.bundle) * e.latent_elements;
    if (e.predictions) UPS_TRY(ups_evaluation_match(config, task, split, e.predictions, error));
    int64_t *chosen = malloc((size_t)wanted * sizeof *chosen);
    ups_status status = chosen ? plan_horizons(&e, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = allocate(&e, wanted, error);
    e.chosen = chosen;
    if (status == UPS_OK) {
        for (int64_t i = 0; i < wanted; i++) chosen[i] = task->splits.samples[split][i * have / wanted];
        if (e.surrogate) status = ups_unlearnt_warn(task, chosen, wanted, error);
    }
    if (status == UPS_OK) {
        char title[128];
        snprintf(title, sizeof title, "evaluate %s", task->name);
        e.progress = ups_progress_begin(title, "frames", wanted * decoded_each(&e), 0);
        status = ups_trajectories_read(config, task, chosen, wanted, add_trajectory, &e, error);
        if (status == UPS_OK && e.count > 0) status = finish_group(&e, error);
        out->trajectories = e.seen;
        ups_progress_end(e.progress);
    }
    if (status == UPS_OK && out->trajectories == 0) {
        status = ups_fail(error, UPS_ERR_NUMERIC, "task %s: every sample of its %s split is bad (NaN or Inf)",
                          task->name, ups_split_name(split));
    }
    if (status == UPS_OK) status = ups_evaluator_results(&e, out, error);
    release(&e);
    free(chosen);
    out->latents = e.latent_elements;
    out->frame_seconds = e.advancing + e.decoding;
    out->seconds = ups_now() - began;
    if (status != UPS_OK) ups_task_evaluation_free(out);
    return status;
}
