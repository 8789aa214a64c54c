/* What is left of fields that become latents, in FP16 as the cache has them, and fields again. */
#ifndef UPS_TRAIN_EVALUATION_READBACK_H
#define UPS_TRAIN_EVALUATION_READBACK_H

#include "train/session.h"

/* nRMSE of some frames of some of the split's trajectories: the mean over the task's fields of the root mean square
 * error over the field's own root mean square; fields that are zero do not count. NaN where the split is empty or no
 * frame of it is finite. `autoencoder`: the path of a trained one. The session's tasks are normalised. */
ups_status ups_readback(const ups_session *session, int task, ups_split split, const char *autoencoder, double *nrmse,
                        ups_error *error);

#endif
