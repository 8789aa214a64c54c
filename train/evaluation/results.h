/* What the evaluation of a task found; evaluate.h says what is scored. */
#ifndef UPS_TRAIN_EVALUATION_RESULTS_H
#define UPS_TRAIN_EVALUATION_RESULTS_H

#include "base/json.h"
#include "train/data/tasks.h"
#include "train/evaluation/scores/forecast.h"
#include "train/evaluation/scores/gates.h"
#include "train/evaluation/scores/pde_metrics.h"
#include "train/evaluation/scores/rollout_scores.h"

typedef struct ups_horizon_evaluation {
    int64_t steps;   /* ahead; 0: the whole trajectory */
    int64_t windows; /* (trajectory, start)s scored; 0: no trajectory is that long, and nothing below is set */
    int64_t frames;  /* scored in each window: 1, or all of the rollout */
    ups_pde_metrics_values summary[UPS_FORECASTS]; /* mean over the solution fields */
    ups_pde_metrics_values *fields[UPS_FORECASTS]; /* (channels) */
    double *nrmse_by_frame[UPS_FORECASTS];         /* (frames), mean over the solution fields */
} ups_horizon_evaluation;

typedef struct ups_task_evaluation {
    const ups_task *task; /* borrowed */
    ups_split split;
    int64_t trajectories; /* evaluated */
    int64_t given;        /* frames of a trajectory that are given */
    int64_t steps;        /* behind these, to the end of a trajectory */
    int forecasts;        /* of those in forecast.h, the first: without the reconstruction where none is */
    bool *solution;       /* (channels): changes in time */
    ups_horizon_evaluation *horizons;
    int horizon_count;
    ups_rollout_scores *rollout;     /* the whole rollout over time; NULL where no horizon is 0 */
    ups_gates *gates;                /* of that rollout; NULL where there is none */
    ups_gate_result gate[UPS_GATES]; /* held against evaluation.gates */
    int64_t *samples;                /* (trajectories) of the task's source */
    uint64_t
        *truth_hash; /* (trajectories): XXH3 of the last given frame and all that are scored, float32, channels last */
    double correlation;   /* evaluation.correlation: below it a rollout is lost */
    int64_t latents;      /* numbers that a frame is encoded to; 0: it is not */
    double frame_seconds; /* that a predicted frame takes: its share of an application of the operator to many
                             trajectories, and decoding it; in the fastest calls. Infinite where only the first one
                             is there, which is no measure; of predictions it is not known */
    double seconds;       /* of all the work, reading included */
} ups_task_evaluation;

void ups_task_evaluation_free(ups_task_evaluation *evaluation);

/* All of it; numbers that are not finite are null. *json: a new reference. UPS_ERR_MEMORY. */
ups_status ups_task_evaluation_json(const ups_task_evaluation *evaluation, json_t **json, ups_error *error);

#endif
