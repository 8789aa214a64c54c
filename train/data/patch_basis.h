/* Which numbers stand for a patch, before anything is trained: its own, or its principal components.
 *
 * Components are those of the second moment of normalised patches over frames of the training split, so that the first
 * `dim` of them lose as little of the fields, squared, as any linear map to as many numbers. */
#ifndef UPS_TRAIN_DATA_PATCH_BASIS_H
#define UPS_TRAIN_DATA_PATCH_BASIS_H

#include "train/data/tasks.h"

typedef struct ups_patch_basis {
    int64_t numbers, dim; /* of a patch, of a token */
    float *encode;        /* (dim, numbers); rows orthogonal, of the length that gives latents a mean square of 1 */
    float *decode;        /* (numbers, dim): its inverse on what it keeps */
    double error; /* nRMSE of the worst field of held-out frames, encoded, rounded to FP16 and decoded; 0 where it
                     was not measured: all numbers were asked for */
} ups_patch_basis;

/* For a task that is normalised. dim: model.dim, at most a patch's numbers; where that is `auto` the least that reaches
 * autoencoder.target in every field of frames of the validation split, or where rounding to FP16 alone misses that, the
 * least that is hardly worse. A token with room for all its numbers keeps them as they are, without a look at the
 * fields. */
ups_status ups_patch_basis_find(const ups_run_config *config, const ups_task *task, ups_patch_basis *basis,
                                ups_error *error);
void ups_patch_basis_free(ups_patch_basis *basis);

#endif
