/* One task while it is evaluated: what evaluate.c plans, fills with a group of trajectories and scores, what forecast.c
 * makes of that group, and what is read out in the end. Theirs alone. */
#ifndef UPS_TRAIN_EVALUATION_EVALUATOR_H
#define UPS_TRAIN_EVALUATION_EVALUATOR_H

#include "base/progress.h"
#include "train/evaluation/predictions.h"
#include "train/evaluation/results.h"
#include "train/evaluation/surrogate.h"

enum { UPS_FRAMES_DECODED_AT_ONCE = 64 };

/* A rollout: from step `start` of a trajectory of the group, `steps` long. */
typedef struct ups_rollout_window {
    int64_t trajectory, start, steps;
    float *latents; /* (frames_kept): the last ones known, behind which comes what an application gives */
    int64_t known;  /* of them; the last one is the state now */
} ups_rollout_window;

/* One horizon while it is scored. Predictions of a group: (windows, frames) in the order of the group's windows. */
typedef struct ups_scored_horizon {
    int64_t steps, frames; /* as in ups_horizon_evaluation */
    int64_t count;         /* windows of this group */
    float *latents, *fields;
    ups_pde_metrics *metrics[UPS_FORECASTS];
} ups_scored_horizon;

typedef struct ups_evaluator {
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
    double *step_times;             /* (capacity, frames - 1): seconds of each step */
    int64_t *positions;             /* (capacity): of each, among those that were asked for */
    float *stored;                  /* (capacity, frames, elements) in the task's channel order */
    float *fields;                  /* the same, channels last; is `stored` where that is so already */
    float *latents, *reconstructed; /* of the same frames; reconstructed where `target` says */
    bool *target;                   /* (frames): some horizon scores it */
    float *start_repeated;          /* (steps, elements): persistence over a whole trajectory */
    float *coordinates;             /* (points, dims) */
    float *gathered, *decoded;      /* UPS_FRAMES_DECODED_AT_ONCE latents and their fields */
    float *predicted;               /* (steps, elements): of one trajectory; NULL without predictions */
    ups_scored_horizon *horizons;
    int horizon_count;
    ups_rollout_scores *rollout; /* of the first horizon that is whole; NULL: there is none */
    ups_gates *gates;            /* of the same */
    const int64_t *chosen;       /* samples that are read */
    int64_t *scored;             /* (trajectories): those that were, and the hash of each one's truth */
    uint64_t *truth_hash;
    ups_rollout_window *windows; /* (capacity × starts) */
    int64_t starts, window_count;
    int64_t window_elements; /* (history + bundle) frames of latents */
    float *window_latents;
    ups_surrogate_state *states;
    bool *solution;
    ups_progress *progress;
    int64_t decoded_frames;
    double advancing, decoding; /* seconds a predicted frame: of the operator, of the decoder; in the fastest call */
    bool advanced;              /* once at least */
} ups_evaluator;

static inline bool ups_horizon_is_whole(const ups_scored_horizon *h) {
    return h->steps == 0;
}

/* The frame at which a window begins that is `start` steps behind the first. */
static inline int64_t ups_evaluator_start_frame(const ups_evaluator *e, int64_t start) {
    return e->given - 1 + start;
}

/* Windows of one trajectory that a horizon scores. */
static inline int64_t ups_evaluator_windows(const ups_evaluator *e, const ups_scored_horizon *h) {
    if (ups_horizon_is_whole(h)) return 1;
    if (h->steps > e->steps) return 0;
    return e->predictions ? 1 : (e->steps - h->steps) / e->config->evaluation.start_every + 1;
}

static inline int ups_evaluator_forecasts(const ups_evaluator *e) {
    return e->predictions ? UPS_FORECAST_RECONSTRUCTION : UPS_FORECASTS;
}

/* What is predicted of the group: each horizon's fields, and how many windows it has. Points stand in the order of
 * networks, in `stored` and in what is made. By the surrogate, which also reconstructs the targets, … */
ups_status ups_evaluator_predict(ups_evaluator *e, ups_error *error);

/* … or out of files. */
ups_status ups_evaluator_take_predictions(ups_evaluator *e, ups_error *error);

/* What was scored, all groups together; rollout, gates, fields and samples go over to *out. UPS_ERR_MEMORY. */
ups_status ups_evaluator_results(ups_evaluator *e, ups_task_evaluation *out, ups_error *error);

#endif
