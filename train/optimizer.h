/* The optimizer: AdamW over the parameters' flat buffers, with gradient clipping and a moving average of the weights,
 * in one pass over memory.
 *
 * Matrices are decayed; gains, biases and embeddings (init.no_decay) are not: neighbouring parameters with the same
 * rule form one stretch. */
#ifndef UPS_TRAIN_OPTIMIZER_H
#define UPS_TRAIN_OPTIMIZER_H

#include "model/device.h"
#include "train/config/config.h"
#include "train/loss_scale.h"

typedef struct ups_optimizer ups_optimizer;

/* `parameters` must be allocated with gradients; borrowed, like `device`. Moments start at zero, the average at the
 * weights. */
ups_status ups_optimizer_create(const ups_optimizer_config *config, ups_device *device, ups_parameters *parameters,
                                ups_optimizer **optimizer, ups_error *error);
void ups_optimizer_destroy(ups_optimizer *optimizer); /* NULL is fine */

/* What `create` would allocate, in bytes. */
size_t ups_optimizer_bytes(const ups_optimizer_config *config, const ups_parameters *parameters);

typedef struct ups_optimizer_result {
    double gradient_norm; /* before clipping, of the gradients without their scale */
    int64_t non_finite;   /* gradients that are NaN or Inf; when not 0 nothing was updated */
} ups_optimizer_result;

/* One update with the gradients as they stand, which are divided by `scale`; `step` counts from 0 of `steps`, and
 * skipped ones do not count as updates. */
ups_status ups_optimizer_step(ups_optimizer *optimizer, int64_t step, int64_t steps, const ups_loss_scale *scale,
                              ups_optimizer_result *result, ups_error *error);

/* The flat buffers, on the device, for checkpoints: first moment, second moment, and the average (NULL without EMA). */
float *ups_optimizer_first_moment(ups_optimizer *optimizer);
float *ups_optimizer_second_moment(ups_optimizer *optimizer);
float *ups_optimizer_average(ups_optimizer *optimizer);

#endif
