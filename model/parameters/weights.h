/* Weights: the buffers that a step is bound to (ups_step_bind). The same graph and step run with the parameters' own
 * weights, with their moving average or with a teacher's.
 *
 * The parameters own the layout: names and offsets in flat buffers of ups_parameters_elements. Weights hold the
 * elements [offset, offset + count) of it: all, or a rank's slice. Buffers are on the device. */
#ifndef UPS_MODEL_PARAMETERS_WEIGHTS_H
#define UPS_MODEL_PARAMETERS_WEIGHTS_H

#include "base/dtype.h"
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

struct ups_device;

typedef struct ups_weights {
    float *values;
    float *gradients;  /* NULL: forward only */
    uint16_t *compute; /* the values in the compute dtype; NULL when that is float32 */
    ups_dtype compute_dtype;
    int64_t offset, count;
} ups_weights;

/* Zeroed buffers for the elements [offset, offset + count). `compute` UPS_F32: no copy. Release them also on failure.
 */
ups_status ups_weights_allocate(struct ups_device *device, int64_t offset, int64_t count, ups_dtype compute,
                                bool gradients, ups_weights *weights, ups_error *error);
void ups_weights_release(struct ups_device *device, ups_weights *weights);
/* Rounds the values to the compute copy, where there is one: after they changed other than by the optimizer. */
ups_status ups_weights_refresh(struct ups_device *device, const ups_weights *weights, ups_error *error);

#endif
