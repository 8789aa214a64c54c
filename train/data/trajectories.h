/* Whole trajectories of a task, one by one, as float32: what evaluation and rollouts read. */
#ifndef UPS_TRAIN_DATA_TRAJECTORIES_H
#define UPS_TRAIN_DATA_TRAJECTORIES_H

#include "train/data/tasks.h"

/* `position` counts the samples asked for; `frames` (times, elements) are in the task's channel order and valid during
 * the call; `sample`'s pointers live as long as the task's source. */
typedef ups_status (*ups_trajectory_visit)(void *context, int64_t position, const ups_sample *sample,
                                           const float *frames, ups_error *error);

/* Reads `count` samples (indices into the task's source), in order, by the loader. Bad samples stop it or, with
 * data.on_bad_sample: skip, are left out. */
ups_status ups_trajectories_read(const ups_run_config *config, const ups_task *task, const int64_t *samples,
                                 int64_t count, ups_trajectory_visit visit, void *context, ups_error *error);

/* A frame, or several, with channels last: (count, points, channels) of frames in the task's order. */
void ups_frames_channels_last(const ups_task *task, const float *frames, int64_t count, float *out);

/* The other way round, of frames with channels last. */
void ups_frames_from_channels_last(const ups_task *task, const float *frames, int64_t count, float *out);

/* Frames (count, points, channels) as they are to be counted: of a sample that has fewer points than places
 * (pipeline/points.h) each point once, in the order of the file, and what fills a frame up behind them. Returns how
 * many points of a frame count; 0, with nothing moved: all. `scratch` has room for a frame. */
int64_t ups_frames_points_first(const ups_sample *sample, int64_t count, int64_t channels, float *frames,
                                float *scratch);

/* The domain's edges along each axis. Points are centres of cells, so that it reaches half a cell beyond the outer
 * ones; 0 and 1 along an axis whose coordinates are not known. */
void ups_sample_domain(const ups_sample *sample, double low[UPS_MAX_GRID_DIMS], double high[UPS_MAX_GRID_DIMS]);

/* Notes in `changes` (channels) which fields of a trajectory (frames, points, channels) differ between frames; what is
 * true stays true. */
void ups_trajectory_changes(const float *frames, int64_t count, int64_t points, int64_t channels, bool *changes);

#endif
