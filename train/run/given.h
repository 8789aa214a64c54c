/* What a run begins with where model.from names a model: its files, which the run keeps in output/initial, so that it
 * can be gone on with after that model has changed or gone. */
#ifndef UPS_TRAIN_RUN_GIVEN_H
#define UPS_TRAIN_RUN_GIVEN_H

#include "train/data/tasks.h"

/* Before the first of the stages `training` (a mask) begins: copies of the files of model.from, of all stages that the
 * run will train, as output/initial/STAGE.safetensors. A run that has begun, or is gone on with (`resume`), keeps those
 * it has; where model.from is empty, what a beginning that came to nothing left there goes. UPS_ERR_STALE when a task
 * of the same name has other fields there. */
ups_status ups_run_take_given(const ups_run_config *config, const ups_tasks *tasks, unsigned training, bool resume,
                              ups_error *error);

#endif
