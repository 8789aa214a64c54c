/* Rollouts: from a trajectory's given frames (evaluation.given, as evaluation takes them) as far as wanted, decoded at
 * any resolution, with the truth beside it where the grid is the data's own. */
#ifndef UPS_TRAIN_EVALUATION_ROLLOUT_H
#define UPS_TRAIN_EVALUATION_ROLLOUT_H

#include "train/evaluation/surrogate.h"

typedef struct ups_rollout_request {
    const int64_t *samples; /* (count) indices into the task's source; borrowed */
    int64_t count;
    int64_t steps;                   /* behind the given frames; 0: as many as the data have */
    int64_t grid[UPS_MAX_GRID_DIMS]; /* points along each axis; first 0: the data's */
} ups_rollout_request;

/* One trajectory. The first `given` frames are those of the data as the autoencoder reads them back; behind them frame
 * k is the state k steps after frame 0. */
typedef struct ups_rollout {
    int64_t position;  /* in the request's samples */
    ups_sample sample; /* borrowed from the source */
    double *time;      /* (frames); beyond the data's last frame its last interval goes on */
    float *prediction; /* (frames, points, channels), physical units */
    float *truth;      /* (truth_frames, points, channels); NULL at another resolution */
    double *nrmse; /* (channels): against the truth behind given frames, mean over frames; NaN where there is none */
} ups_rollout;

typedef struct ups_rollouts {
    const ups_task *task; /* borrowed */
    int64_t given, frames, truth_frames;
    int64_t grid[UPS_MAX_GRID_DIMS], points;
    double low[UPS_MAX_GRID_DIMS], high[UPS_MAX_GRID_DIMS]; /* the domain's edges along each axis */
    double *centres[UPS_MAX_GRID_DIMS]; /* (grid[a]) of cells where the data's are unevenly spaced; NULL: even */
    bool *solution;                     /* (channels): changes in time in the data; all where none does */
    ups_rollout *list;
    int64_t count; /* fewer than asked for where bad samples are skipped */
} ups_rollouts;

/* Errors: those of reading and of the surrogate, UPS_ERR_CONFIG (ups_evaluation_given), UPS_ERR_MEMORY,
 * UPS_ERR_CANCELLED. */
ups_status ups_rollouts_run(const ups_run_config *config, const ups_tasks *tasks, int task,
                            const ups_rollout_request *request, ups_surrogate *surrogate, ups_rollouts *rollouts,
                            ups_error *error);
void ups_rollouts_free(ups_rollouts *rollouts);

/* Centre of cell `i` along an axis of the rollouts' grid, in the data's units. Of an axis that is unevenly spaced: on
 * the data's own grid its coordinates, at another resolution what lies between them by their numbers. */
double ups_rollouts_coordinate(const ups_rollouts *rollouts, int axis, int64_t i);

#endif
