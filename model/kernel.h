/* What a device's kernels are given: tensors, calls of ops, of the optimizer and of losses. What a device is, says
 * device.h; kernels written in CUDA C++ include this file alone. */
#ifndef UPS_MODEL_KERNEL_H
#define UPS_MODEL_KERNEL_H

#include "base/error.h"
#include "model/op.h"
#include "model/shape.h"
#include "model/update.h"

typedef struct ups_device ups_device;

typedef struct ups_tensor {
    void *data; /* device memory; NULL: absent */
    ups_dtype dtype;
    ups_shape shape;
    const float *scale; /* FP8: device memory, elements are multiplied by it; NULL elsewhere */
} ups_tensor;

/* One invocation of an op's kernel. Backward sees the inputs, output and saved values that its description asks for;
 * others have data NULL. */
typedef struct ups_op_call {
    ups_op_kind kind;
    const ups_op_attributes *attributes;
    int input_count;
    ups_tensor inputs[UPS_MAX_INPUTS];  /* bf16 and fp16 graphs: linear weights come from the compute copy; gains and
                                           biases are float32 always */
    const void *copies[UPS_MAX_INPUTS]; /* bf16 and fp16 graphs: the copies of parameters in the compute dtype, for
                                           kernels that would round them; NULL: none */
    ups_dtype copies_dtype;
    ups_tensor output;
    ups_tensor saved[UPS_MAX_SAVED];
    ups_tensor output_gradient;                 /* backward only */
    ups_tensor input_gradients[UPS_MAX_INPUTS]; /* backward only; data NULL: not wanted. Parameters' are float32 */
    bool accumulate[UPS_MAX_INPUTS];            /* add to the gradient that is there instead of overwriting it */
    bool paired;                                /* set while preparing: its backward may run as the second of a pair
                                                   (fuse.h) */
    bool training;                              /* drop-path acts */
    const ups_update *update;                   /* device memory: seed and item of random ops; NULL outside training */
    void *workspace;                            /* as large as the kernel asks; contents undefined */
    void *state;                                /* the kernel's */
} ups_op_call;

typedef ups_status ups_kernel_run(ups_device *device, const ups_op_call *call, ups_error *error);

/* Two calls in one pass, in the order of forward, in backward too: `first` makes what `second` reads. Each is as it
 * would be alone, and so is what comes out, to the bit where a device multiplies both by the same kernels, and but
 * for the order of sums over rows; the gradient of what is between them need not be made where nobody else reads it. */
typedef ups_status ups_pair_run(ups_device *device, const ups_op_call *first, const ups_op_call *second,
                                ups_error *error);

/* A kernel for calls of one shape. */
typedef struct ups_kernel {
    ups_kernel_run *forward, *backward;         /* NULL: the device has none */
    ups_pair_run *pair_forward, *pair_backward; /* as the second of a pair (fuse.h); NULL: the two run by themselves */
    size_t workspace_bytes;
    void *state;                  /* what was made for these shapes once: a library's plan; NULL: nothing */
    void (*release)(void *state); /* NULL where there is no state */
} ups_kernel;

/* How an optimizer moves a value; each has its own use of the call's numbers. */
typedef enum ups_update_rule {
    UPS_RULE_ADAMW, /* Loshchilov & Hutter, arXiv 1711.05101: two moments, beta1, beta2, epsilon */
    UPS_RULE_MUON,  /* model/cpu/optimizer/muon.c: whole matrices by one moment, beta1; the learning rate is AdamW's */
} ups_update_rule;

/* One pass of an optimizer over a parameter group, EMA and the compute copy included. Learning rate, bias corrections,
 * the gradients' scale and whether to skip are the update's. */
typedef struct ups_range {
    int64_t offset, count; /* elements of values, gradients and their copy: the flat buffers */
    int64_t kept, second;  /* where its elements begin in moments[0] and the average, and in moments[1]: these may hold
                              less than all parameters */
} ups_range;

/* Matrices one after the other in the flat buffers, each row-major. */
typedef struct ups_matrices {
    int64_t offset, count, rows, columns;
    int64_t kept; /* as of a range */
} ups_matrices;

typedef struct ups_optimizer_call {
    ups_update_rule rule;
    const ups_range *ranges; /* device memory */
    int32_t range_count;
    int64_t range_elements;       /* of all ranges: what a device without their lengths sizes its work by */
    const ups_matrices *matrices; /* Muon: all that the ranges hold, but for padding. Host memory, which must live until
                                     the work is done: shapes are known when it is issued */
    int32_t matrices_count;
    void *workspace;                        /* Muon: as large as `matrices_workspace` says; contents undefined */
    float *values, *gradients, *moments[2]; /* moments that the rule has not are NULL */
    float *ema;                             /* NULL: none */
    uint16_t *compute;                      /* the copy in `compute_dtype` (weights.h); NULL: none */
    ups_dtype compute_dtype;
    float beta1, beta2, epsilon, weight_decay, ema_decay;
    int32_t set; /* of the parameters: how many steps moved it is the update's */
    const ups_update *update;
} ups_optimizer_call;

#define UPS_MAX_TERMS 512

/* Adds a micro-batch's losses to the update's sums by task: of each window Σ weight · term. */
typedef struct ups_losses_call {
    int term_count;
    const float *terms[UPS_MAX_TERMS]; /* (windows) each */
    float weights[UPS_MAX_TERMS];
    int loss_of[UPS_MAX_TERMS]; /* below UPS_UPDATE_MAX_LOSSES: which of the stage's losses a term is of */
    int64_t windows;
    const int32_t *tasks; /* (windows), below UPS_UPDATE_MAX_TASKS; device memory */
    ups_update *update;
} ups_losses_call;

#endif
