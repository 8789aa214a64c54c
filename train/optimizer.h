/* The optimizer: rules (model/device.h) over the parameters' flat buffers, with gradient clipping and a moving average
 * of the weights, in one pass over memory.
 *
 * Parameters fall into groups: matrices are decayed; gains, biases and embeddings (init.no_decay) are not. With Muon
 * hidden matrices (init.matrices) are groups of their own, and AdamW moves the rest. A group is of one set of
 * parameters (parameters.h), a list of ranges of the flat buffers in device memory, and updated in one call. Sets that
 * a step does not train stay as they are, with their moments and averages, and their bias corrections do not count it.
 * With `offload` moments lie in host memory, which kernels read and write over the bus while they compute: a step moves
 * each of them once in each direction, whatever the batch.
 * With a share of the parameters (shares.h) it moves these alone, and keeps moments and averages of no others: somebody
 * else moves the rest, and tells.
 * Nothing here waits for the device but ups_optimizer_result: a step is begun before its micro-batches, issued after
 * them, and its result read later. */
#ifndef UPS_TRAIN_OPTIMIZER_H
#define UPS_TRAIN_OPTIMIZER_H

#include "model/device.h"
#include "model/parameters/shares.h"
#include "model/update_channel.h"
#include "train/config/config.h"

typedef struct ups_optimizer ups_optimizer;

/* `parameters` must be allocated with gradients; borrowed, like `device`. Moments start at zero, the average at the
 * weights. `share` NULL: all. */
ups_status ups_optimizer_create(const ups_optimizer_config *config, ups_device *device, ups_parameters *parameters,
                                const ups_share *share, ups_optimizer **optimizer, ups_error *error);
void ups_optimizer_destroy(ups_optimizer *optimizer); /* NULL is fine */

/* What moves whole matrices, so that a share has to have these whole. */
bool ups_optimizer_moves_matrices(const ups_optimizer_config *config);

/* What `create` would allocate for parameters whose compute copy is `compute`, in bytes: moments, average, workspace;
 * and the part of it that would lie in the host's memory though the device has its own. Places the parameters. */
typedef struct ups_optimizer_memory {
    size_t all, offloaded;
} ups_optimizer_memory;
ups_status ups_optimizer_measure(const ups_optimizer_config *config, ups_device *device, ups_parameters *parameters,
                                 const ups_share *share, ups_dtype compute, ups_optimizer_memory *memory,
                                 ups_error *error);

/* Dynamic loss scaling (model/update.h), on where the weights' compute copy is fp16: the scale doubles after so many
 * good steps and halves at an overflow, whose step is skipped. Without it the scale is 1, and gradients that are not
 * finite are a failure. `ups_optimizer_scale_losses`: from another scale on, before the first step. */
#define UPS_LOSS_SCALE_FIRST 0x1p16f
#define UPS_LOSS_SCALE_GOOD_STEPS 2000
ups_status ups_optimizer_scale_losses(ups_optimizer *optimizer, float first, int64_t good_steps, ups_error *error);
bool ups_optimizer_scales_losses(const ups_optimizer *optimizer);

/* Before a micro-batch: what its kernels read from the update. */
ups_status ups_optimizer_begin(ups_optimizer *optimizer, const ups_update_input *micro, ups_error *error);
ups_update *ups_optimizer_update(const ups_optimizer *optimizer); /* device memory */
/* Where the gradients of a share alone are known: adds the squares of these to the update, before the caller makes them
 * those of all. From the first call on steps take that norm as it is. */
ups_status ups_optimizer_measure_norm(ups_optimizer *optimizer, ups_error *error);
/* Issues the update with the gradients as they stand; its result is to be read. At most UPS_UPDATE_TAKEN wait for
 * that. `trained`: by set, whether the step has gradients for it; NULL: for all. */
ups_status ups_optimizer_step(ups_optimizer *optimizer, const bool *trained, ups_error *error);
/* Waits for the oldest step that was not read yet. `state` of the last one read is what a checkpoint keeps. */
ups_status ups_optimizer_result(ups_optimizer *optimizer, ups_update *result, ups_error *error);

/* Of the last result; where a run goes on, what it was. */
ups_update_state ups_optimizer_state(const ups_optimizer *optimizer);
ups_status ups_optimizer_restore(ups_optimizer *optimizer, const ups_update_state *state, ups_error *error);

/* Its flat buffers, on the device, with their names in checkpoints: AdamW's moments, with Muon the momentum of its
 * matrices, and with EMA "ema."; how many. Their lists are the optimizer's. */
#define UPS_OPTIMIZER_MAX_BUFFERS 4
int ups_optimizer_buffers(const ups_optimizer *optimizer, ups_parameter_buffer buffers[UPS_OPTIMIZER_MAX_BUFFERS]);
float *ups_optimizer_average(const ups_optimizer *optimizer); /* NULL without EMA */
/* The average begins at the weights again, which have become others before the first step. */
ups_status ups_optimizer_restart_average(ups_optimizer *optimizer, ups_error *error);
ups_parameter_buffer ups_optimizer_average_buffer(const ups_optimizer *optimizer);
/* Its elements to their places among all weights (device memory). */
ups_status ups_optimizer_put_average(const ups_optimizer *optimizer, float *values, ups_error *error);

#endif
