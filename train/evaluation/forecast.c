/* What is predicted of a group of trajectories: rollouts from all their starts advance side by side and fill the
 * operator's batches, or another model's predictions are read from files. */
#include "train/evaluation/evaluator.h"

#include "base/log.h"
#include "base/system/threads.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* What a call took that made so many frames. The fastest one counts: others share the machine. */
static void note_time(double began, int64_t frames, double *fastest) {
    if (frames > 0) *fastest = fmin(*fastest, (ups_now() - began) / (double)frames);
}

static ups_status decode(ups_evaluator *e, const float *latents, int64_t count, float *fields, ups_error *error) {
    for (int64_t first = 0; first < count; first += UPS_FRAMES_DECODED_AT_ONCE) {
        int64_t frames = count - first < UPS_FRAMES_DECODED_AT_ONCE ? count - first : UPS_FRAMES_DECODED_AT_ONCE;
        UPS_TRY(ups_surrogate_decode(e->surrogate, latents + first * e->latent_elements, frames, e->coordinates,
                                     e->points, fields + first * e->elements, error));
        e->decoded_frames += frames;
        ups_progress_update(e->progress, e->decoded_frames, NULL);
    }
    return UPS_OK;
}

/* Decodes the latents of target frames, gathered from all trajectories. */
static ups_status reconstruct(ups_evaluator *e, ups_error *error) {
    int64_t places[UPS_FRAMES_DECODED_AT_ONCE], frames = e->count * e->frames, gathered = 0;
    for (int64_t i = 0; i <= frames; i++) {
        if (i < frames && e->target[i % e->frames]) {
            memcpy(e->gathered + gathered * e->latent_elements, e->latents + i * e->latent_elements,
                   (size_t)e->latent_elements * sizeof(float));
            places[gathered++] = i;
        }
        if (gathered < UPS_FRAMES_DECODED_AT_ONCE && i < frames) continue;
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
static void list_windows(ups_evaluator *e) {
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
            ups_rollout_window *w = &e->windows[e->window_count];
            /* True frames, the start the last of them: before it there are the given ones. */
            const int64_t known = e->given < e->history ? e->given : e->history;
            *w = (ups_rollout_window){g, start, steps, e->window_latents + e->window_count * e->window_elements, known};
            memcpy(w->latents,
                   e->latents + (g * e->frames + ups_evaluator_start_frame(e, start) - known + 1) * e->latent_elements,
                   (size_t)(known * e->latent_elements) * sizeof(float));
            e->window_count++;
        }
    }
}

/* Keeps a state of a window, `k` steps after its start, where a horizon scores it. */
static void keep_state(ups_evaluator *e, const ups_rollout_window *w, const float *latents, int64_t k) {
    for (int i = 0; i < e->horizon_count; i++) {
        ups_scored_horizon *h = &e->horizons[i];
        int64_t place;
        if (ups_horizon_is_whole(h)) {
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
static void take_next(ups_evaluator *e, ups_rollout_window *w, int64_t k, int64_t count) {
    const int64_t each = e->latent_elements;
    for (int64_t i = 0; i < count; i++) keep_state(e, w, w->latents + (w->known + i) * each, k + i);
    w->known += count;
    if (w->known <= e->history) return;
    memmove(w->latents, w->latents + (w->known - e->history) * each, (size_t)(e->history * each) * sizeof(float));
    w->known = e->history;
}

static ups_status roll_out(ups_evaluator *e, ups_error *error) {
    for (int i = 0; i < e->horizon_count; i++) e->horizons[i].count = 0;
    list_windows(e);
    for (int64_t k = 1; k <= e->steps; k += e->bundle) {
        int64_t active = 0;
        for (int64_t i = 0; i < e->window_count; i++) {
            const ups_rollout_window *w = &e->windows[i];
            if (w->steps < k) continue;
            const ups_sample *sample = &e->samples[w->trajectory];
            const int64_t left = w->steps - k + 1, now = ups_evaluator_start_frame(e, w->start) + k - 1;
            e->states[active++] = (ups_surrogate_state){.given = w->latents,
                                                        .given_count = w->known,
                                                        .next = w->latents + w->known * e->latent_elements,
                                                        .next_count = left < e->bundle ? left : e->bundle,
                                                        .parameters = sample->parameters,
                                                        .dt = e->step_times[w->trajectory * (e->frames - 1) + now]};
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

ups_status ups_evaluator_predict(ups_evaluator *e, ups_error *error) {
    UPS_TRY(ups_surrogate_encode(e->surrogate, e->stored, e->count * e->frames, e->latents, error));
    UPS_TRY(reconstruct(e, error));
    UPS_TRY(roll_out(e, error));
    for (int i = 0; i < e->horizon_count; i++) {
        const ups_scored_horizon *h = &e->horizons[i];
        const double began = ups_now();
        UPS_TRY(decode(e, h->latents, h->count * h->frames, h->fields, error));
        note_time(began, h->count * h->frames, &e->decoding);
    }
    return UPS_OK;
}

/* ---- out of files ---------------------------------------------------------------------------------------------- */

/* How far a field of a frame is from the truth's, over how much that varies in space; infinite where it is not finite.
 */
static double distance(const ups_evaluator *e, const float *frame, const float *truth, int64_t channel) {
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
static void check_given(ups_evaluator *e, int64_t i, const float *given) {
    const float *truth = e->fields + (i * e->frames + ups_evaluator_start_frame(e, 0)) * e->elements;
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

ups_status ups_evaluator_take_predictions(ups_evaluator *e, ups_error *error) {
    for (int h = 0; h < e->horizon_count; h++)
        e->horizons[h].count = ups_evaluator_windows(e, &e->horizons[h]) * e->count;
    for (int64_t i = 0; i < e->count; i++) {
        bool has_given;
        UPS_TRY(ups_predictions_read(e->predictions, e->positions[i], &e->samples[i], e->decoded, &has_given,
                                     e->predicted, error));
        if (has_given) check_given(e, i, e->decoded);
        for (int k = 0; k < e->horizon_count; k++) {
            ups_scored_horizon *h = &e->horizons[k];
            const int64_t first = ups_horizon_is_whole(h) ? 0 : h->steps - 1;
            if (ups_evaluator_windows(e, h) == 0) continue;
            memcpy(h->fields + i * h->frames * e->elements, e->predicted + first * e->elements,
                   (size_t)(h->frames * e->elements) * sizeof(float));
        }
        e->decoded_frames += e->steps;
        ups_progress_update(e->progress, e->decoded_frames, NULL);
    }
    return UPS_OK;
}
