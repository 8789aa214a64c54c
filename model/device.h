/* A device: memory, copies, events, and kernels. `model/` above `cpu/` and `cuda/` never asks which one it has and
 * never touches device memory itself: it uploads and downloads.
 *
 * Work is issued to a stream and runs later, in the stream's order; what fails there is told by a later call. There are
 * two streams: kernels and ordinary copies run on the compute stream, and the copy stream brings the next batch in
 * beside them. `download` waits for the compute stream, `synchronize` for both, `event_wait` for an event. The CPU runs
 * everything at once.
 */
#ifndef UPS_MODEL_DEVICE_H
#define UPS_MODEL_DEVICE_H

#include "base/error.h"
#include "model/op.h"
#include "model/shape.h"
#include "model/update.h"

typedef struct ups_device ups_device;
typedef struct ups_event ups_event;     /* a device's own */
typedef struct ups_capture ups_capture; /* a device's own */

typedef enum ups_stream { UPS_STREAM_COMPUTE, UPS_STREAM_COPY, UPS_STREAM_COUNT } ups_stream;

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
    ups_tensor inputs[UPS_MAX_INPUTS]; /* bf16 and fp16 graphs: linear weights come from the compute copy; gains and
                                          biases are float32 always */
    ups_tensor output;
    ups_tensor saved[UPS_MAX_SAVED];
    ups_tensor output_gradient;                 /* backward only */
    ups_tensor input_gradients[UPS_MAX_INPUTS]; /* backward only; data NULL: not wanted. Parameters' are float32 */
    bool accumulate[UPS_MAX_INPUTS];            /* add to the gradient that is there instead of overwriting it */
    bool training;                              /* drop-path acts */
    const ups_update *update;                   /* device memory: seed and item of random ops; NULL outside training */
    void *workspace;                            /* as large as the kernel asks; contents undefined */
    void *state;                                /* the kernel's */
} ups_op_call;

typedef ups_status ups_kernel_run(ups_device *device, const ups_op_call *call, ups_error *error);

/* A kernel for calls of one shape. */
typedef struct ups_kernel {
    ups_kernel_run *forward, *backward; /* NULL: the device has none */
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
    int64_t offset, count; /* elements of the flat buffers */
    int64_t second;        /* where its second moment begins in moments[1], which may hold less than all parameters */
} ups_range;

/* Matrices one after the other in the flat buffers, each row-major. */
typedef struct ups_matrices {
    int64_t offset, count, rows, columns;
} ups_matrices;

typedef struct ups_optimizer_call {
    ups_update_rule rule;
    const ups_range *ranges; /* device memory */
    int32_t range_count;
    const ups_matrices *matrices; /* Muon: all that the ranges hold, but for padding. Host memory, which must live until
                                     the work is done: shapes are known when it is issued */
    int32_t matrices_count;
    void *workspace;                        /* Muon: as large as `matrices_workspace` says; contents undefined */
    float *values, *gradients, *moments[2]; /* flat buffers; moments that the rule has not are NULL */
    float *ema;                             /* NULL: none */
    uint16_t *compute;                      /* the copy in `compute_dtype` (weights.h); NULL: none */
    ups_dtype compute_dtype;
    float beta1, beta2, epsilon, weight_decay, ema_decay;
    int32_t set; /* of the parameters: how often it rested is the update's */
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

typedef struct ups_device_class {
    const char *name; /* "cpu", "cuda" */
    int input_sets;   /* of a step: 2 where the next batch is copied in beside the computation */
    int (*threads)(const ups_device *device); /* of the host that its kernels use */
    void (*destroy)(ups_device *device);

    /* Memory. `release` waits for the work that was issued. */
    ups_status (*allocate)(ups_device *device, size_t bytes, void **memory,
                           ups_error *error); /* 4096-byte aligned on the CPU, zeroed */
    void (*release)(ups_device *device, void *memory);
    /* Host memory that copies are fast to and from, 4096-byte aligned (pinned where that means something). An upload
     * from it takes its contents: it has to be filled again before the next one. */
    ups_status (*allocate_host)(ups_device *device, size_t bytes, void **memory, ups_error *error);
    void (*release_host)(ups_device *device, void *memory);

    /* Copies. Host memory must live, and stay as it is, until an event that was recorded on the same stream after the
     * copy has passed, or the stream was waited for. `upload_ahead` is issued to the copy stream, all others to the
     * compute stream. `download` waits. */
    ups_status (*upload)(ups_device *device, void *to, const void *from_host, size_t bytes, ups_error *error);
    ups_status (*upload_ahead)(ups_device *device, void *to, const void *from_host, size_t bytes, ups_error *error);
    ups_status (*download)(ups_device *device, void *to_host, const void *from, size_t bytes, ups_error *error);
    ups_status (*download_later)(ups_device *device, void *to_host, const void *from, size_t bytes, ups_error *error);
    ups_status (*copy)(ups_device *device, void *to, const void *from, size_t bytes, ups_error *error);
    ups_status (*zero)(ups_device *device, void *memory, size_t bytes, ups_error *error);
    ups_status (*synchronize)(ups_device *device, ups_error *error);

    /* Events: one that was never recorded has passed. `event_wait` makes the host wait, `stream_wait` what is issued to
     * a stream from here on. `event_destroy` is for events that have passed. */
    ups_status (*event_create)(ups_device *device, ups_event **event, ups_error *error);
    void (*event_destroy)(ups_device *device, ups_event *event);
    ups_status (*event_record)(ups_device *device, ups_event *event, ups_stream stream, ups_error *error);
    ups_status (*event_wait)(ups_device *device, ups_event *event, ups_error *error);
    ups_status (*stream_wait)(ups_device *device, ups_stream stream, ups_event *event, ups_error *error);

    /* Capture: what is issued to the compute stream between begin and end does not run, but becomes something that is
     * launched as a whole, as often as wanted. NULL, all four: the device has none. */
    ups_status (*capture_begin)(ups_device *device, ups_error *error);
    ups_status (*capture_end)(ups_device *device, ups_capture **capture, ups_error *error);
    ups_status (*capture_launch)(ups_device *device, const ups_capture *capture, ups_error *error);
    void (*capture_release)(ups_device *device, ups_capture *capture);

    /* Chooses the kernel for calls of these shapes and dtypes (rank 0 where an input or a gradient is absent, data
     * NULL); `backward`: backward will run too. The caller releases kernel->state. */
    ups_status (*kernel)(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                         ups_error *error);
    /* Rounds to UPS_BF16 or UPS_F16. */
    ups_status (*convert)(ups_device *device, const float *from, ups_dtype dtype, uint16_t *to, int64_t count,
                          ups_error *error);

    /* The training step's own (model/update.h). */
    ups_status (*add_losses)(ups_device *device, const ups_losses_call *call, ups_error *error);
    ups_status (*seed_backward)(ups_device *device, const ups_update *update, float *gradient, ups_error *error);
    /* Adds Σ x² in float64 and the number of non-finite elements to the result. Deterministic for a given count,
     * whatever the threads. */
    ups_status (*norm)(ups_device *device, const float *gradients, int64_t count, ups_update *update, ups_error *error);
    /* Whether the step is taken, with which scale of gradients, and the loss scale of the next one. */
    ups_status (*decide)(ups_device *device, const ups_update_rules *rules, ups_update *update, ups_error *error);
    ups_status (*optimize)(ups_device *device, const ups_optimizer_call *call, ups_error *error);
    /* Bytes of workspace in which `optimize` moves such matrices by Muon; products have operands of `compute` where
     * that is bf16. */
    size_t (*matrices_workspace)(ups_device *device, const ups_matrices *matrices, int32_t count, ups_dtype compute);
} ups_device_class;

struct ups_device {
    const ups_device_class *class;
};

void ups_device_close(ups_device *device);        /* NULL is fine */
int ups_device_threads(const ups_device *device); /* of the host that its kernels use */

#endif
