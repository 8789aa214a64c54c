/* Dynamic loss scale (Micikevicius et al., arXiv 1710.03740, section 3.2): in fp16 small gradients would round to zero,
 * so backward begins with a large number instead of 1, and the optimizer divides by it. Too large a scale makes
 * gradients overflow: that step is skipped and the scale halved. After enough good steps it is doubled.
 *
 * All of its state is here, and in the checkpoint. Scales are powers of two: scaling changes no bits but those of
 * numbers that overflow or underflow. */
#ifndef UPS_TRAIN_LOSS_SCALE_H
#define UPS_TRAIN_LOSS_SCALE_H

#include "base/dtype.h"
#include <stdbool.h>
#include <stdint.h>

#define UPS_LOSS_SCALE_FIRST 0x1p16
#define UPS_LOSS_SCALE_MINIMUM 1.0
#define UPS_LOSS_SCALE_MAXIMUM 0x1p24
#define UPS_LOSS_SCALE_GOOD_STEPS 2000 /* before it is doubled */

typedef struct ups_loss_scale {
    double scale;       /* 0: gradients are not scaled */
    int64_t good_steps; /* since the scale last changed */
    int64_t skipped;    /* steps of the run so far that updated nothing */
} ups_loss_scale;

ups_loss_scale ups_loss_scale_begin(ups_dtype compute);   /* on for UPS_F16 */
float ups_loss_scale_factor(const ups_loss_scale *scale); /* 1 where it is off */
void ups_loss_scale_keep(ups_loss_scale *scale);          /* after a step with finite gradients */
bool ups_loss_scale_skip(ups_loss_scale *scale);          /* after another; false: it cannot be lowered */

#endif
