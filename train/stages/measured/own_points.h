/* Where a sample's points lie, where each has its own, in terms of latents on a grid of tokens: the points' coordinates
 * are fields of the sample, and they are linear in a token's numbers, as these are before model.bound bounds them. */
#ifndef UPS_TRAIN_STAGES_OWN_POINTS_H
#define UPS_TRAIN_STAGES_OWN_POINTS_H

#include "pipeline/source.h"
#include "train/data/tasks.h"

/* The map from a token of `task`, whose samples have points of their own, to the middle of its points, d numbers, about
 * [0, 1] over the domain, and to what lies between the middle and each point, of unit deviation: weight (d + P·d, dim)
 * and bias (d + P·d), the caller's, which operator.TASK.geometry of a model is. `latents` are those that it trains
 * on, of which some are read. The trained autoencoder of the run is read, too. */
ups_status ups_own_points_find(const ups_run_config *config, const ups_tasks *tasks, int task,
                               const ups_source *latents, float *weight, float *bias, ups_error *error);

#endif
