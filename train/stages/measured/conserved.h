/* What a PDE conserves, measured: the mean of a field over the domain, in terms of latents on a grid. */
#ifndef UPS_TRAIN_STAGES_CONSERVED_H
#define UPS_TRAIN_STAGES_CONSERVED_H

#include "pipeline/source.h"
#include "train/evaluation/scores/rollout_scores.h"

typedef struct ups_conserved {
    float *kept; /* (dim, dim), the caller's: less the projection onto `directions` orthonormal directions of a token */
    int directions;
} ups_conserved;

/* Directions of a token (dim numbers) along which the mean over all `tokens` is, in every frame of training
 * trajectories, what it is in their first, within UPS_CONSERVED_WITHIN (rollout_scores.h): of those of `source`,
 * latents (tokens, dim) in FP16, some are read. Where trajectories have two frames alone, which is a problem without
 * time, there are none. */
ups_status ups_conserved_find(const ups_source *source, int64_t times, int64_t tokens, int64_t dim,
                              ups_conserved *found, ups_error *error);

#endif
