/* Trajectories that another model predicted, from files: what is scored in the place of a trained surrogate. Whatever
 * made them, they are scored on the same trajectories, by the same code. */
#ifndef UPS_TRAIN_EVALUATION_PREDICTIONS_H
#define UPS_TRAIN_EVALUATION_PREDICTIONS_H

#include "train/data/tasks.h"

typedef struct ups_predictions ups_predictions;

/* Opens files of predictions of a task's trajectories, one file's samples behind the other's: in any layout that is
 * recognised, such as PDEBench's, in the task's own `layout`, or an array named `prediction` (an NPY file has one
 * array), (sample, time, grid…, channel), or without `channel` where there is one field. Fields go by their names where
 * the files have those of the task, else by their order. UPS_ERR_FORMAT where grid or fields are others. */
ups_status ups_predictions_open(const ups_task *task, const char *const *files, int64_t count,
                                ups_predictions **predictions, ups_error *error);
void ups_predictions_close(ups_predictions *predictions); /* NULL is fine */

/* Of what the files hold: 32 hex digits. Errors: UPS_ERR_IO. */
ups_status ups_predictions_hash(const ups_predictions *predictions, char hex[33], ups_error *error);

/* Settles which frame is which. A trajectory is `given` frames and `steps` behind them, at the task's stride: the files
 * may have all of them, those of the steps alone, or all that the data store. `chosen` trajectories are scored, evenly
 * spread over a split of `have`: the files may have a sample for each of these or for each of those, in the split's
 * order. `samples` (have) is the split; where what is bad is `skipped`, files of rollouts may have fewer, and their
 * names tell which. It may be called again. UPS_ERR_ARGUMENT says what they have instead. */
ups_status ups_predictions_match(ups_predictions *predictions, int64_t given, int64_t steps, int64_t chosen,
                                 const int64_t *samples, int64_t have, bool skipped, ups_error *error);

/* The steps of the `position`-th of the chosen trajectories: `frames` (steps, points, channels), points in the order of
 * `truth`, which is that trajectory. `given` (points, channels): the last given frame, where the files have it;
 * *has_given says whether. Numbers may be NaN or infinite. Errors: those of reading. */
ups_status ups_predictions_read(ups_predictions *predictions, int64_t position, const ups_sample *truth, float *given,
                                bool *has_given, float *frames, ups_error *error);

/* What messages call a trajectory: "fno.h5, sample tensor[3]". Valid until the next call. */
const char *ups_predictions_name(ups_predictions *predictions, int64_t position);

#endif
