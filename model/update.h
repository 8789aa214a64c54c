/* The update: what the kernels of a training step read and write besides tensors, one small struct in device memory.
 *
 * The host gives it an input before each micro-batch and takes the result of an optimizer step when it has time,
 * usually one step late. Clipping, skipping a step and loss scaling are decided on the device, so nothing inside a step
 * waits for the host, and a step can be captured and replayed:
 *
 *   give → forward → add_losses → seed_backward → backward, for each micro-batch → norm → decide → the optimizer → take
 */
#ifndef UPS_MODEL_UPDATE_H
#define UPS_MODEL_UPDATE_H

#include "base/random.h"
#include <stdbool.h>

#define UPS_UPDATE_MAX_TASKS 256
#define UPS_UPDATE_MAX_LOSSES 24
#define UPS_UPDATE_MAX_SETS 320 /* of parameters (parameters.h): one a task, and those that tasks share */

/* Written by the host before a micro-batch. */
typedef struct ups_update_input {
    uint64_t seed, item; /* random ops draw by these: the run's seed, and the micro-batch counted over the run */
    int64_t step;        /* optimizer step, from 0 */
    int64_t micro_batch; /* within that step, from 0 */
    bool clears;         /* results of before, as the first of a step does: where another process has that */
    float share;         /* of the micro-batch in the step's gradient: 1 / accumulation */
    float learning_rate; /* of the step */
} ups_update_input;

/* Of one optimizer step; cleared with the input of its first micro-batch, and where an input says so. */
typedef struct ups_update_result {
    double loss[UPS_UPDATE_MAX_TASKS];     /* sums over windows by task */
    int64_t windows[UPS_UPDATE_MAX_TASKS]; /* how many these were */
    double part[UPS_UPDATE_MAX_LOSSES];    /* the same sums by loss, weights included */
    int64_t part_windows[UPS_UPDATE_MAX_LOSSES];
    int64_t bad_micro_batch; /* 1 + the first one whose loss is NaN or Inf, or, of several cards, another; 0: none */
    double squared_norm;     /* of the gradients, which carry the loss scale */
    int64_t non_finite;      /* gradients that are NaN or Inf */
    double gradient_norm;    /* without the loss scale, before clipping */
    bool skipped;            /* the weights are what they were */
    bool failed;             /* skipped, and so is every later step: no loss scale would help */
    float gradient_scale;    /* clipping and loss scale: what the optimizer multiplies gradients by */
} ups_update_result;

/* Lives on from step to step. */
typedef struct ups_update_state {
    float loss_scale;
    int64_t good_steps; /* since the loss scale changed */
    int64_t skipped;    /* steps, for an overflow that a smaller loss scale avoids */
    bool failed;
    int64_t taken[UPS_UPDATE_MAX_SETS]; /* steps that moved a set of parameters: bias corrections count these */
} ups_update_state;

typedef struct ups_update {
    ups_update_input input;
    ups_update_result result; /* behind the input: both are written at once */
    ups_update_state state;
} ups_update;

/* Largest decay of the average of weights that were trained so many times before: it begins as the mean of what there
 * is, and forgets the first weights. */
UPS_ON_DEVICE_TOO static inline float ups_update_ema_decay(int64_t taken) {
    return (float)(1 + taken) / (float)(10 + taken);
}

/* How `decide` judges a step. With dynamic loss scaling (Micikevicius et al., arXiv 1710.03740, section 3.2) backward
 * begins with a large number instead of 1, since small gradients would round to zero in fp16, and the optimizer divides
 * by it. Scales are powers of two: scaling changes no bits but those of numbers that overflow or underflow. */
typedef struct ups_update_rules {
    double clip;          /* largest gradient norm; 0: none */
    int64_t growth_steps; /* good steps after which the loss scale doubles; 0: it is fixed, and an overflow a failure */
    bool trained[UPS_UPDATE_MAX_SETS]; /* the sets of parameters that the step has gradients for */
} ups_update_rules;

#define UPS_LOSS_SCALE_MINIMUM 1.0f
#define UPS_LOSS_SCALE_MAXIMUM 0x1p24f

#endif
