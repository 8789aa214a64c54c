/* What a trained operator tells of itself, besides what it belongs to (origin.h), in the header of its file: as much of
 * the configuration as its graphs depend on, and of each task the fields that it was trained on. With the autoencoder's
 * file that is enough to use the model where neither its data nor its run are.
 *
 * Texts, as safetensors wants them: "ups.config", {"model": {…}, "precision": …, "tasks": [{"name", "patch", "stride",
 * "strides"}, …]} by the names of the configuration's keys; and for each task "TASK.fields":
 * {"channels": ["u"], "grid": [256], "order": "channels_last" or "channels_first", "periodic", "axes": ["x"],
 *  "low": [0], "high": [1] (the domain's edges along each axis), "dt" (seconds of a step, at the task's stride),
 * "stride", "frames" (of a trajectory, as stored), "time_units": "s" or null}. Where steps differ "dt" is null; where
 * frames of all trajectories have the same times all the same, "time" lists these: seconds of each stored frame. */
#ifndef UPS_TRAIN_PORTABLE_DESCRIBED_H
#define UPS_TRAIN_PORTABLE_DESCRIBED_H

#include "base/json.h"
#include "model/parameters/safetensors.h"
#include "train/data/tasks.h"

/* A new reference, an object of texts; NULL when out of memory. */
json_t *ups_described_tell(const ups_run_config *config, const ups_tasks *tasks);

/* Whether the file of an operator tells all that is needed. */
ups_status ups_described_is_told(const char *op, bool *told, ups_error *error);

/* What it tells of a task's fields, a new reference; NULL: nothing. */
json_t *ups_described_fields(const ups_safetensors *file, const char *task);

/* One task, used otherwise than it was described. */
typedef struct ups_described_use {
    int task;
    int64_t points[UPS_MAX_GRID_DIMS]; /* fields of another grid; first 0: of that which it was trained on */
    int64_t stride;                    /* of those that were learnt (tasks[].strides); 0: the task's own */
} ups_described_use;

/* A task that a model tells of. */
typedef struct ups_described_task {
    double low[UPS_MAX_GRID_DIMS], high[UPS_MAX_GRID_DIMS]; /* the domain's edges */
    double dt;                                              /* seconds of a step; NaN: not all take the same */
    bool timed;                                             /* trajectories share their uneven times: */
    double *step_times; /* (steps of the task) seconds of each step; NULL: one takes as long as the others, or as long
                           as only the data tell */
} ups_described_task;

typedef struct ups_described {
    ups_run_config *config;
    ups_tasks *tasks; /* normalised, conditioned as trained; they have no samples, and geometries without coordinates */
    ups_described_task *task; /* (tasks->count) */
} ups_described;

/* What the operator in `op` and the autoencoder in `autoencoder` tell, which may be one file. `use` may be NULL.
 * Errors: UPS_ERR_IO, UPS_ERR_FORMAT where the file does not tell it, or tells what cannot be, UPS_ERR_ARGUMENT for a
 * stride that was not learnt. */
ups_status ups_described_open(const char *op, const char *autoencoder, const ups_described_use *use,
                              ups_described *described, ups_error *error);
void ups_described_close(ups_described *described);

#endif
