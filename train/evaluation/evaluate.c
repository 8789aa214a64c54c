/* Trajectories are worked on in groups, so that rollouts from all their starts advance side by side and fill the
 * operator's batches: load → encode → reconstruct the targets → roll out → decode → score. */
#include "train/evaluation/evaluate.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/system/threads.h"
#include "train/data/trajectories.h"
#include "train/networks.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TRAJECTORIES 16     /* a group */
#define GROUP_BYTES (256u << 20) /* what a group may hold, unless a single trajectory is larger */
#define FRAMES_DECODED_AT_ONCE 64

const char *const ups_forecast_names[UPS_FORECASTS] = {"model", "persistence", "reconstruction"};

/* A rollout: from step `start` of a trajectory of the group, `steps` long. */
typedef struct window {
    int64_t trajectory, start, steps;
    float *latents; /* (frames_kept): the last ones known, behind which comes what an application gives */
    int64_t known;  /* of them; the last one is the state now */
} window;

/* One horizon while it is scored. Predictions of a group: (windows, frames) in the order of the group's windows. */
typedef struct horizon {
    int64_t steps, frames; /* as in ups_horizon_evaluation */
    int64_t count;         /* windows of this group */
    float *latents, *fields;
    ups_pde_metrics *metrics[UPS_FORECASTS];
} horizon;

typedef struct evaluator {
    const ups_run_config *config;
    const ups_task *task;
    ups_surrogate *surrogate;          /* or … */
    ups_predictions *predictions;      /* … these */
    bool strange;                      /* they begin otherwise than their trajectory, as the log has told */
    int64_t given;                     /* frames of a trajectory; the first start is the last of them */
    int64_t steps, frames;             /* of a trajectory, every stride-th stored one: frames = given + steps */
    int64_t elements, latent_elements; /* of a frame */
    int64_t points, channels;
    int64_t history, bundle;        /* frames that the operator reads, and gives */
    int64_t capacity, count;        /* trajectories of a group */
    int64_t seen;                   /* in all: bad ones may be skipped */
    ups_sample *samples;            /* (capacity) */
    int64_t *positions;             /* (capacity): of each, among those that were asked for */
    float *stored;                  /* (capacity, frames, elements) in the task's channel order */
    float *fields;                  /* the same, channels last; is `stored` where that is so already */
    float *latents, *reconstructed; /* of the same frames; reconstructed where `target` says */
    bool *target;                   /* (frames): some horizon scores it */
    float *start_repeated;          /* (steps, elements): persistence over a whole trajectory */
    float *coordinates;             /* (points, dims) */
    float *gathered, *decoded;      /* FRAMES_DECODED_AT_ONCE latents and their fields */
    float *predicted;               /* (steps, elements): of one trajectory; NULL without predictions */
    horizon *horizons;
    int horizon_count;
    ups_rollout_scores *rollout; /* of the first horizon that is whole; NULL: there is none */
    ups_gates *gates;            /* of the same */
    const int64_t *chosen;       /* samples that are read */
    int64_t *scored;             /* (trajectories): those that were, and the hash of each one's truth */
    uint64_t *truth_hash;
    window *windows; /* (capacity × starts) */
    int64_t starts, window_count;
    int64_t window_elements; /* (history + bundle) frames of latents */
    float *window_latents;
    ups_surrogate_state *states;
    bool *solution;
    ups_progress *progress;
    int64_t decoded_frames;
    double advancing, decoding; /* seconds a predicted frame: of the operator, of the decoder; in the fastest call */
    bool advanced;              /* once at least */
} evaluator;

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

static bool is_whole(const horizon *h) {
    return h->steps == 0;
}

/* The frame at which a window begins that is `start` steps behind the first. */
static int64_t start_frame(const evaluator *e, int64_t start) {
    return e->given - 1 + start;
}

/* Windows of one trajectory that a horizon scores. */
static int64_t windows_each(const evaluator *e, const horizon *h) {
    if (is_whole(h)) return 1;
    if (h->steps > e->steps) return 0;
    return e->predictions ? 1 : (e->steps - h->steps) / e->config->evaluation.start_every + 1;
}

static int forecasts_of(const evaluator *e) {
    return e->predictions ? UPS_FORECAST_RECONSTRUCTION : UPS_FORECASTS;
}

static ups_pde_metrics_shape metrics_shape(const evaluator *e, const horizon *h) {
    const ups_sample *geometry = &e->task->geometry;
    ups_pde_metrics_shape shape = {
        .dims = geometry->dims, .channels = e->channels, .times = h->frames, .scattered = geometry->points != NULL};
    for (int a = 0; a < geometry->dims; a++) shape.grid[a] = geometry->grid[a];
    return shape;
}

static ups_status create_metrics(const evaluator *e, horizon *h, ups_error *error) {
    const ups_pde_metrics_shape shape = metrics_shape(e, h);
    for (int f = 0; f < forecasts_of(e); f++) UPS_TRY(ups_pde_metrics_create(&shape, &h->metrics[f], error));
    return UPS_OK;
}

static ups_status create_rollout(evaluator *e, ups_error *error) {
    const ups_sample *geometry = &e->task->geometry;
    ups_rollout_shape shape = {
        .dims = geometry->dims, .channels = e->channels, .frames = e->steps, .scattered = geometry->points != NULL};
    for (int a = 0; a < geometry->dims; a++) shape.grid[a] = geometry->grid[a];
    UPS_TRY(ups_rollout_scores_create(&shape, &e->rollout, error));
    int64_t velocity[UPS_MAX_GRID_DIMS];
    const bool flows = ups_gates_find_velocity(e->config, e->task, velocity);
    return ups_gates_create(e->task, e->steps, flows ? velocity : NULL, &e->gates, error);
}

static ups_status plan_horizons(evaluator *e, ups_error *error) {
    const ups_evaluation_config *config = &e->config->evaluation;
    e->horizons = calloc(config->horizon_count, sizeof *e->horizons);
    e->target = calloc((size_t)e->frames, sizeof *e->target);
    if (!e->horizons || !e->target) return ups_fail(error, UPS_ERR_MEMORY, "evaluation: out of memory");
    e->horizon_count = (int)config->horizon_count;
    for (int i = 0; i < e->horizon_count; i++) {
        horizon *h = &e->horizons[i];
        h->steps = config->horizons[i];
        h->frames = is_whole(h) ? e->steps : 1;
        for (int64_t w = 0; w < windows_each(e, h); w++) {
            int64_t first = start_frame(e, w * config->start_every) + (is_whole(h) ? 1 : h->steps);
            for (int64_t f = 0; f < h->frames; f++) e->target[first + f] = true;
        }
        UPS_TRY(create_metrics(e, h, error));
        if (is_whole(h) && !e->rollout) UPS_TRY(create_rollout(e, error));
    }
    e->starts = (e->steps - 1) / config->start_every + 1;
    return UPS_OK;
}

/* Frames decoded for one trajectory: the measure of progress, since decoding is most of the work. Of predictions those
 * that are read. */
static int64_t decoded_each(const evaluator *e) {
    int64_t sum = 0;
    if (e->predictions) return e->steps;
    for (int64_t f = 0; f < e->frames; f++) sum += e->target[f];
    for (int i = 0; i < e->horizon_count; i++) sum += windows_each(e, &e->horizons[i]) * e->horizons[i].frames;
    return sum;
}

static float *rows(int64_t count, int64_t width) {
    return malloc((size_t)(count * width + 1) * sizeof(float));
}

static ups_status allocate(evaluator *e, int64_t trajectories, ups_error *error) {
    const ups_sample *geometry = &e->task->geometry;
    bool reordered = geometry->order == UPS_CHANNELS_FIRST && e->channels > 1;
    int64_t each =
        e->frames * ((reordered ? 3 : 2) * e->elements + e->latent_elements) + e->starts * e->window_elements;
    for (int i = 0; i < e->horizon_count; i++) {
        each += windows_each(e, &e->horizons[i]) * e->horizons[i].frames * (e->elements + e->latent_elements);
    }
    e->capacity = GROUP_BYTES / (each * (int64_t)sizeof(float));
    if (e->capacity > MOST_TRAJECTORIES) e->capacity = MOST_TRAJECTORIES;
    if (e->capacity > trajectories) e->capacity = trajectories;
    if (e->capacity < 1) e->capacity = 1;

    int64_t frames = e->capacity * e->frames, windows = e->capacity * e->starts;
    e->samples = calloc((size_t)e->capacity, sizeof *e->samples);
    e->positions = calloc((size_t)e->capacity, sizeof *e->positions);
    e->stored = rows(frames, e->elements);
    e->fields = reordered ? rows(frames, e->elements) : e->stored;
    e->latents = rows(frames, e->latent_elements);
    e->reconstructed = rows(frames, e->elements);
    e->start_repeated = rows(e->steps, e->elements);
    e->coordinates = rows(e->points, geometry->dims);
    e->gathered = rows(FRAMES_DECODED_AT_ONCE, e->latent_elements);
    e->decoded = rows(FRAMES_DECODED_AT_ONCE, e->elements);
    e->predicted = e->predictions ? rows(e->steps, e->elements) : NULL;
    e->windows = calloc((size_t)windows, sizeof *e->windows);
    e->window_latents = rows(windows, e->window_elements);
    e->states = calloc((size_t)windows, sizeof *e->states);
    e->solution = calloc((size_t)e->channels, sizeof *e->solution);
    e->scored = calloc((size_t)trajectories, sizeof *e->scored);
    e->truth_hash = calloc((size_t)trajectories, sizeof *e->truth_hash);
    bool had = e->samples && e->positions && e->stored && e->fields && e->latents && e->reconstructed &&
               e->start_repeated && e->coordinates && e->gathered && e->decoded && (e->predicted || !e->predictions) &&
               e->windows && e->window_latents && e->states && e->solution && e->scored && e->truth_hash;
    for (int i = 0; i < e->horizon_count && had; i++) {
        horizon *h = &e->horizons[i];
        int64_t count = e->capacity * windows_each(e, h) * h->frames;
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

static void release(evaluator *e) {
    for (int i = 0; i < e->horizon_count; i++) {
        for (int f = 0; f < UPS_FORECASTS; f++) ups_pde_metrics_destroy(e->horizons[i].metrics[f]);
        free(e->horizons[i].latents);
        free(e->horizons[i].fields);
    }
    free(e->horizons);
    free(e->target);
    free(e->samples);
    free(e->positions);
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

static ups_status finish_group(evaluator *e, ups_error *error);

/* Of the frames that are scored, and the last given one. Where samples have points of their own, these stand in an
 * order that depends on the largest of all samples: they are put into the file's, each once. */
static uint64_t hash_truth(const evaluator *e, const ups_sample *sample, const float *frames) {
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
    evaluator *e = context;
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
    e->positions[e->count] = position;
    e->samples[e->count++] = *sample;
    e->scored[e->seen] = e->chosen[position];
    e->truth_hash[e->seen] = hash_truth(e, sample, fields + start_frame(e, 0) * e->elements);
    e->seen++;
    return e->count == e->capacity ? finish_group(e, error) : UPS_OK;
}

/* What a call took that made so many frames. The fastest one counts: others share the machine. */
static void note_time(double began, int64_t frames, double *fastest) {
    if (frames > 0) *fastest = fmin(*fastest, (ups_now() - began) / (double)frames);
}

static ups_status decode(evaluator *e, const float *latents, int64_t count, float *fields, ups_error *error) {
    for (int64_t first = 0; first < count; first += FRAMES_DECODED_AT_ONCE) {
        int64_t frames = count - first < FRAMES_DECODED_AT_ONCE ? count - first : FRAMES_DECODED_AT_ONCE;
        UPS_TRY(ups_surrogate_decode(e->surrogate, latents + first * e->latent_elements, frames, e->coordinates,
                                     e->points, fields + first * e->elements, error));
        e->decoded_frames += frames;
        ups_progress_update(e->progress, e->decoded_frames, NULL);
    }
    return UPS_OK;
}

/* Decodes the latents of target frames, gathered from all trajectories. */
static ups_status reconstruct(evaluator *e, ups_error *error) {
    int64_t places[FRAMES_DECODED_AT_ONCE], frames = e->count * e->frames, gathered = 0;
    for (int64_t i = 0; i <= frames; i++) {
        if (i < frames && e->target[i % e->frames]) {
            memcpy(e->gathered + gathered * e->latent_elements, e->latents + i * e->latent_elements,
                   (size_t)e->latent_elements * sizeof(float));
            places[gathered++] = i;
        }
        if (gathered < FRAMES_DECODED_AT_ONCE && i < frames) continue;
        UPS_TRY(decode(e, e->gathered, gathered, e->decoded, error));
        for (int64_t k = 0; k < gathered; k++) {
            memcpy(e->reconstructed + places[k] * e->elements, e->decoded + k * e->elements,
                   (size_t)e->elements * sizeof(float));
        }
        gathered = 0;
    }
    return UPS_OK;
}

/* Every start of every trajectory, with as many steps as its longest horizon asks for. */
static void list_windows(evaluator *e) {
    e->window_count = 0;
    for (int64_t g = 0; g < e->count; g++) {
        for (int64_t s = 0; s < e->starts; s++) {
            int64_t start = s * e->config->evaluation.start_every, steps = 0;
            for (int i = 0; i < e->horizon_count; i++) {
                int64_t wanted = e->horizons[i].steps;
                if (wanted == 0 && start == 0) wanted = e->steps;
                if (start + wanted <= e->steps && wanted > steps) steps = wanted;
            }
            if (steps == 0) continue;
            window *w = &e->windows[e->window_count];
            /* True frames, the start the last of them: before it there are the given ones. */
            const int64_t known = e->given < e->history ? e->given : e->history;
            *w = (window){g, start, steps, e->window_latents + e->window_count * e->window_elements, known};
            memcpy(w->latents, e->latents + (g * e->frames + start_frame(e, start) - known + 1) * e->latent_elements,
                   (size_t)(known * e->latent_elements) * sizeof(float));
            e->window_count++;
        }
    }
}

/* Keeps a state of a window, `k` steps after its start, where a horizon scores it. */
static void keep_state(evaluator *e, const window *w, const float *latents, int64_t k) {
    for (int i = 0; i < e->horizon_count; i++) {
        horizon *h = &e->horizons[i];
        int64_t place;
        if (is_whole(h)) {
            if (w->start > 0) continue;
            place = w->trajectory * e->steps + k - 1;
            h->count = e->count;
        } else {
            if (h->steps != k) continue;
            place = h->count++;
        }
        memcpy(h->latents + place * e->latent_elements, latents, (size_t)e->latent_elements * sizeof(float));
    }
}

/* Scores what an application gave of a window, from `k` steps after its start on, and makes it known: as many of the
 * last frames stay as the operator reads. */
static void take_next(evaluator *e, window *w, int64_t k, int64_t count) {
    const int64_t each = e->latent_elements;
    for (int64_t i = 0; i < count; i++) keep_state(e, w, w->latents + (w->known + i) * each, k + i);
    w->known += count;
    if (w->known <= e->history) return;
    memmove(w->latents, w->latents + (w->known - e->history) * each, (size_t)(e->history * each) * sizeof(float));
    w->known = e->history;
}

static ups_status roll_out(evaluator *e, ups_error *error) {
    const int64_t stride = e->task->config->stride;
    for (int i = 0; i < e->horizon_count; i++) e->horizons[i].count = 0;
    list_windows(e);
    for (int64_t k = 1; k <= e->steps; k += e->bundle) {
        int64_t active = 0;
        for (int64_t i = 0; i < e->window_count; i++) {
            const window *w = &e->windows[i];
            if (w->steps < k) continue;
            const ups_sample *sample = &e->samples[w->trajectory];
            const int64_t left = w->steps - k + 1, now = start_frame(e, w->start) + k - 1;
            e->states[active++] =
                (ups_surrogate_state){.given = w->latents,
                                      .given_count = w->known,
                                      .next = w->latents + w->known * e->latent_elements,
                                      .next_count = left < e->bundle ? left : e->bundle,
                                      .parameters = sample->parameters,
                                      .dt = sample->time[(now + 1) * stride] - sample->time[now * stride]};
        }
        if (active == 0) break;
        const double began = ups_now();
        UPS_TRY(ups_surrogate_advance(e->surrogate, e->states, active, error));
        int64_t made = 0;
        for (int64_t a = 0; a < active; a++) made += e->states[a].next_count;
        if (e->advanced) note_time(began, made, &e->advancing); /* the first call finds memory and kernels cold */
        e->advanced = true;
        for (int64_t i = 0, a = 0; i < e->window_count; i++) {
            if (e->windows[i].steps >= k) take_next(e, &e->windows[i], k, e->states[a++].next_count);
        }
    }
    return UPS_OK;
}

/* The rollout of the group's i-th trajectory over time. `forecasts` are of all its frames. */
static ups_status score_over_time(evaluator *e, int64_t i, const float *const forecasts[UPS_FORECASTS],
                                  const float *given, int64_t points, ups_error *error) {
    const int64_t stride = e->task->config->stride;
    double *time = malloc((size_t)(e->steps + 1) * sizeof *time);
    if (!time) return ups_fail(error, UPS_ERR_MEMORY, "evaluation: out of memory");
    for (int64_t f = 0; f <= e->steps; f++) time[f] = e->samples[i].time[(start_frame(e, 0) + f) * stride];
    ups_status status = ups_rollout_scores_add(e->rollout, forecasts, given, time, points, error);
    if (status == UPS_OK) status = ups_gates_add(e->gates, forecasts[UPS_FORECAST_MODEL], given, points, error);
    free(time);
    return status;
}

/* The predictions of one horizon against the truth, beside persistence and reconstruction. */
static ups_status score(evaluator *e, horizon *h, bool over_time, ups_error *error) {
    const ups_pde_metrics_shape shape = metrics_shape(e, h);
    const ups_pde_metrics_strides strides = ups_pde_metrics_channels_last(&shape);
    const int64_t each = windows_each(e, h);
    for (int64_t i = 0; i < h->count; i++) {
        int64_t start = start_frame(e, i % each * e->config->evaluation.start_every);
        int64_t first = i / each * e->frames + start, target = first + (is_whole(h) ? 1 : h->steps);
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
        for (int f = 0; f < forecasts_of(e); f++)
            ups_pde_metrics_add(h->metrics[f], forecasts[f], truth, &strides, points);
        if (over_time) UPS_TRY(score_over_time(e, i, forecasts, given, points, error));
    }
    return UPS_OK;
}

/* What is scored counts each point once. Encoding was the last to want another order. */
static void put_points_first(evaluator *e) {
    for (int64_t i = 0; i < e->count; i++) {
        const int64_t first = i * e->frames;
        ups_frames_points_first(&e->samples[i], e->frames, e->channels, e->fields + first * e->elements, e->decoded);
        for (int64_t f = first; f < first + e->frames; f++) {
            if (!e->predictions && e->target[f - first])
                ups_frames_points_first(&e->samples[i], 1, e->channels, e->reconstructed + f * e->elements, e->decoded);
        }
    }
}

/* How far a field of a frame is from the truth's, over how much that varies in space; infinite where it is not finite.
 */
static double distance(const evaluator *e, const float *frame, const float *truth, int64_t channel) {
    double difference = 0, mean = 0, size = 0;
    for (int64_t p = 0; p < e->points; p++) mean += (double)truth[p * e->channels + channel] / (double)e->points;
    for (int64_t p = 0; p < e->points; p++) {
        const double u = truth[p * e->channels + channel], apart = frame[p * e->channels + channel] - u;
        difference += apart * apart;
        size += (u - mean) * (u - mean);
    }
    if (!isfinite(difference)) return INFINITY;
    if (size < 1e-6 * mean * mean * (double)e->points) size = mean * mean * (double)e->points; /* about constant */
    return difference > 0 ? sqrt(difference / size) : 0;
}

/* Warns, once, of predictions whose last given frame is another than that of their trajectory: samples in another
 * order. Half of what a field varies by is more than an autoencoder's error, and less than what two of them differ
 * by. */
static void check_given(evaluator *e, int64_t i, const float *given) {
    const float *truth = e->fields + (i * e->frames + start_frame(e, 0)) * e->elements;
    for (int64_t c = 0; c < e->channels && !e->strange; c++) {
        const double far = distance(e, given, truth, c);
        if (far <= 0.5) continue;
        e->strange = true;
        char by[64] = "is another";
        if (isfinite(far)) snprintf(by, sizeof by, "is off by %.3g times what that varies by", far);
        ups_log(UPS_LOG_WARNING,
                "%s begins otherwise than %s of task %s, which it is held against: %s of its given frame %s. Do "
                "predictions stand in the order of the task's files, in physical units?",
                ups_predictions_name(e->predictions, e->positions[i]), e->samples[i].name, e->task->name,
                e->task->source->channel_names[c], by);
    }
}

/* Predictions from files, in the place of what is rolled out and decoded. */
static ups_status take_predictions(evaluator *e, ups_error *error) {
    for (int h = 0; h < e->horizon_count; h++) e->horizons[h].count = windows_each(e, &e->horizons[h]) * e->count;
    for (int64_t i = 0; i < e->count; i++) {
        bool has_given;
        UPS_TRY(ups_predictions_read(e->predictions, e->positions[i], &e->samples[i], e->decoded, &has_given,
                                     e->predicted, error));
        if (has_given) check_given(e, i, e->decoded);
        for (int k = 0; k < e->horizon_count; k++) {
            horizon *h = &e->horizons[k];
            const int64_t first = is_whole(h) ? 0 : h->steps - 1;
            if (windows_each(e, h) == 0) continue;
            memcpy(h->fields + i * h->frames * e->elements, e->predicted + first * e->elements,
                   (size_t)(h->frames * e->elements) * sizeof(float));
        }
        e->decoded_frames += e->steps;
        ups_progress_update(e->progress, e->decoded_frames, NULL);
    }
    return UPS_OK;
}

static ups_status finish_group_of_predictions(evaluator *e, ups_error *error) {
    bool over_time = false;
    UPS_TRY(take_predictions(e, error)); /* while points stand in the order of networks, as in what these give */
    put_points_first(e);
    for (int i = 0; i < e->horizon_count; i++) {
        const bool first_whole = is_whole(&e->horizons[i]) && !over_time;
        over_time = over_time || first_whole;
        UPS_TRY(score(e, &e->horizons[i], first_whole, error));
    }
    e->count = 0;
    return UPS_OK;
}

static ups_status finish_group(evaluator *e, ups_error *error) {
    if (e->predictions) return finish_group_of_predictions(e, error);
    UPS_TRY(ups_surrogate_encode(e->surrogate, e->stored, e->count * e->frames, e->latents, error));
    UPS_TRY(reconstruct(e, error));
    put_points_first(e);
    UPS_TRY(roll_out(e, error));
    bool over_time = false;
    for (int i = 0; i < e->horizon_count; i++) {
        horizon *h = &e->horizons[i];
        const bool first_whole = is_whole(h) && !over_time;
        over_time = over_time || first_whole;
        const double began = ups_now();
        UPS_TRY(decode(e, h->latents, h->count * h->frames, h->fields, error));
        note_time(began, h->count * h->frames, &e->decoding);
        UPS_TRY(score(e, h, first_whole, error));
    }
    e->count = 0;
    return UPS_OK;
}

/* ---- results --------------------------------------------------------------------------------------------------- */

/* Mean over the solution fields of what was read over `frames` frames; a field whose targets are all zero has no nRMSE
 * and is left out of its mean. */
static ups_pde_metrics_values summarise(const bool *solution, int64_t channels, int64_t frames,
                                        const ups_pde_metrics_values *fields) {
    ups_pde_metrics_values mean = {0};
    int64_t count = 0, with_nrmse = 0;
    for (int64_t c = 0; c < channels; c++) {
        if (!solution[c]) continue;
        const ups_pde_metrics_values *v = &fields[c];
        bool zero = v->zero_targets == v->trajectories * frames;
        count++;
        with_nrmse += !zero;
        mean.rmse += v->rmse;
        mean.vrmse += v->vrmse;
        mean.nrmse += zero ? 0 : v->nrmse;
        mean.crmse += v->crmse;
        mean.max_error += v->max_error;
        mean.brmse += v->brmse;
        for (int b = 0; b < UPS_FREQUENCY_BANDS; b++) mean.frmse[b] += v->frmse[b];
        mean.zero_targets += v->zero_targets;
        mean.trajectories = v->trajectories;
    }
    double n = (double)count;
    mean.rmse /= n;
    mean.vrmse /= n;
    mean.nrmse /= (double)with_nrmse;
    mean.crmse /= n;
    mean.max_error /= n;
    mean.brmse /= n;
    for (int b = 0; b < UPS_FREQUENCY_BANDS; b++) mean.frmse[b] /= n;
    return mean;
}

static ups_status read_horizon(const evaluator *e, const horizon *h, const bool *solution, ups_horizon_evaluation *out,
                               ups_error *error) {
    *out = (ups_horizon_evaluation){.steps = h->steps, .frames = h->frames};
    for (int f = 0; f < forecasts_of(e); f++) {
        const ups_pde_metrics *metrics = h->metrics[f];
        out->windows = ups_pde_metrics_read(metrics, 0, 0, h->frames).trajectories;
        if (out->windows == 0) return UPS_OK;
        out->fields[f] = calloc((size_t)e->channels, sizeof *out->fields[f]);
        out->nrmse_by_frame[f] = calloc((size_t)h->frames, sizeof *out->nrmse_by_frame[f]);
        ups_pde_metrics_values *each = calloc((size_t)e->channels, sizeof *each);
        if (!out->fields[f] || !out->nrmse_by_frame[f] || !each) {
            free(each);
            return ups_fail(error, UPS_ERR_MEMORY, "evaluation: out of memory");
        }
        for (int64_t c = 0; c < e->channels; c++) out->fields[f][c] = ups_pde_metrics_read(metrics, c, 0, h->frames);
        out->summary[f] = summarise(solution, e->channels, h->frames, out->fields[f]);
        for (int64_t t = 0; t < h->frames; t++) {
            for (int64_t c = 0; c < e->channels; c++) each[c] = ups_pde_metrics_read(metrics, c, t, t + 1);
            out->nrmse_by_frame[f][t] = summarise(solution, e->channels, 1, each).nrmse;
        }
        free(each);
    }
    return UPS_OK;
}

static ups_status read_results(evaluator *e, ups_task_evaluation *out, ups_error *error) {
    bool any = false;
    for (int64_t c = 0; c < e->channels; c++) any = any || e->solution[c];
    for (int64_t c = 0; c < e->channels && !any; c++) e->solution[c] = true;
    out->solution = e->solution;
    out->rollout = e->rollout;
    out->gates = e->gates;
    out->samples = e->scored;
    out->truth_hash = e->truth_hash;
    e->solution = NULL;
    e->rollout = NULL;
    e->gates = NULL;
    e->scored = NULL;
    e->truth_hash = NULL;
    out->correlation = e->config->evaluation.correlation;
    out->given = e->given;
    out->steps = e->steps;
    out->forecasts = forecasts_of(e);
    for (int gate = 0; gate < UPS_GATES && out->gates; gate++)
        out->gate[gate] =
            ups_gates_judge(out->gates, out->rollout, out->solution, gate, e->config->evaluation.gates[gate]);
    out->horizons = calloc((size_t)e->horizon_count, sizeof *out->horizons);
    if (!out->horizons) return ups_fail(error, UPS_ERR_MEMORY, "evaluation: out of memory");
    out->horizon_count = e->horizon_count;
    for (int i = 0; i < e->horizon_count; i++) {
        UPS_TRY(read_horizon(e, &e->horizons[i], out->solution, &out->horizons[i], error));
    }
    return UPS_OK;
}

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
                                 task->splits.count[split], error);
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
    evaluator e = {.config = config,
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
    if (status == UPS_OK) status = read_results(&e, out, error);
    release(&e);
    free(chosen);
    out->latents = e.latent_elements;
    out->frame_seconds = e.advancing + e.decoding;
    out->seconds = ups_now() - began;
    if (status != UPS_OK) ups_task_evaluation_free(out);
    return status;
}

void ups_task_evaluation_free(ups_task_evaluation *evaluation) {
    for (int i = 0; i < evaluation->horizon_count; i++) {
        for (int f = 0; f < UPS_FORECASTS; f++) {
            free(evaluation->horizons[i].fields[f]);
            free(evaluation->horizons[i].nrmse_by_frame[f]);
        }
    }
    free(evaluation->horizons);
    free(evaluation->solution);
    free(evaluation->samples);
    free(evaluation->truth_hash);
    ups_rollout_scores_destroy(evaluation->rollout);
    ups_gates_destroy(evaluation->gates);
    *evaluation = (ups_task_evaluation){0};
}
