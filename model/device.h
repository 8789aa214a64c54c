/* A device: memory, copies, and a table of kernels by op. `model/` above `cpu/` and `cuda/` never asks which one it has
 * and never touches device memory itself: it uploads and downloads.
 *
 * Work is issued in order on the device's stream and may run later; `synchronize`, and `download`, wait for it. The CPU
 * runs it at once.
 */
#ifndef UPS_MODEL_DEVICE_H
#define UPS_MODEL_DEVICE_H

#include "model/graph.h"

typedef struct ups_device ups_device;

typedef struct ups_tensor {
    void *data; /* device memory; NULL: absent */
    ups_dtype dtype;
    ups_shape shape;
} ups_tensor;

/* One invocation of an op's kernel. Backward sees the inputs, output and saved values that its description asks for;
 * others have data NULL. */
typedef struct ups_op_call {
    const ups_op_attributes *attributes;
    int input_count;
    ups_tensor inputs[UPS_MAX_INPUTS]; /* bf16 and fp16 graphs: linear weights come from the compute copy; gains and
                                          biases are float32 always */
    ups_tensor output;
    ups_tensor saved[UPS_MAX_SAVED];
    ups_tensor output_gradient;                 /* backward only */
    ups_tensor input_gradients[UPS_MAX_INPUTS]; /* backward only; data NULL: not wanted. Parameters' are float32 */
    bool accumulate[UPS_MAX_INPUTS];            /* add to the gradient that is there instead of overwriting it */
    bool training;                              /* drop-path acts */
    uint64_t seed, step;                        /* for random ops */
    void *workspace;                            /* as large as `prepare` asked; contents undefined */
    void *state;                                /* what `prepare` made */
} ups_op_call;

typedef struct ups_kernel {
    /* Called once when a step is created, with shapes and dtypes set (rank 0 where an input or a gradient is absent)
     * and data NULL; `backward`: backward will run too. It makes per-node state (a plan of a library's) and says how
     * much workspace forward and backward want. May be NULL. The state is freed by `release`.
     */
    ups_status (*prepare)(ups_device *device, const ups_op_call *call, bool backward, void **state,
                          size_t *workspace_bytes, ups_error *error);
    void (*release)(ups_device *device, void *state);
    ups_status (*forward)(ups_device *device, const ups_op_call *call, ups_error *error);
    ups_status (*backward)(ups_device *device, const ups_op_call *call, ups_error *error);
} ups_kernel;

/* One fused pass of AdamW (Loshchilov & Hutter, arXiv 1711.05101) over a stretch of the flat buffers, EMA and the
 * compute copy included. */
typedef struct ups_adamw_call {
    int64_t count;
    float *values, *gradients, *first_moment, *second_moment;
    float *ema;        /* NULL: none */
    uint16_t *compute; /* the copy in `compute_dtype` (weights.h); NULL: none */
    ups_dtype compute_dtype;
    float learning_rate, beta1, beta2, epsilon, weight_decay;
    float gradient_scale; /* clipping and accumulation: gradients are multiplied by it */
    float ema_decay;
    int64_t step; /* from 1: bias correction */
} ups_adamw_call;

typedef struct ups_device_class {
    const char *name; /* "cpu", "cuda" */
    ups_status (*allocate)(ups_device *device, size_t bytes, void **memory,
                           ups_error *error); /* 4096-byte aligned on the CPU, zeroed */
    void (*release)(ups_device *device, void *memory);
    ups_status (*upload)(ups_device *device, void *to, const void *from_host, size_t bytes, ups_error *error);
    ups_status (*download)(ups_device *device, void *to_host, const void *from, size_t bytes, ups_error *error);
    ups_status (*zero)(ups_device *device, void *memory, size_t bytes, ups_error *error);
    ups_status (*synchronize)(ups_device *device, ups_error *error);
    const ups_kernel *(*kernel)(ups_op_kind kind); /* never NULL for a kind of the list */
    ups_status (*adamw)(ups_device *device, const ups_adamw_call *call, ups_error *error);
    /* Σ x² in float64 and the number of non-finite elements, into host memory. Deterministic for a given count,
     * whatever the threads. */
    ups_status (*sum_of_squares)(ups_device *device, const float *x, int64_t count, double *sum, int64_t *non_finite,
                                 ups_error *error);
    /* Rounds to UPS_BF16 or UPS_F16. */
    ups_status (*convert)(ups_device *device, const float *from, ups_dtype dtype, uint16_t *to, int64_t count,
                          ups_error *error);
    void (*destroy)(ups_device *device);
} ups_device_class;

struct ups_device {
    const ups_device_class *class;
    int threads; /* CPU: cores its kernels use */
};

typedef struct ups_device_options {
    const char *name; /* "auto", "cpu", "cuda" */
    int threads;      /* CPU: 0 for one a core */
} ups_device_options;

ups_status ups_device_open(const ups_device_options *options, ups_device **device, ups_error *error);
void ups_device_close(ups_device *device); /* NULL is fine */

#endif
