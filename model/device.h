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

#include "model/kernel.h"

typedef struct ups_event ups_event;     /* a device's own */
typedef struct ups_capture ups_capture; /* a device's own */

typedef enum ups_stream { UPS_STREAM_COMPUTE, UPS_STREAM_COPY, UPS_STREAM_COUNT } ups_stream;

/* How a device chooses among kernels that compute the same. */
typedef enum ups_kernel_choice {
    UPS_KERNELS_FASTEST,  /* on this very device, found by trying; kept for later runs where they can be */
    UPS_KERNELS_BY_SHAPE, /* by what is known without: the same for everyone who has the same device and libraries */
} ups_kernel_choice;

/* Devices of several processes that exchange what lies in their own memories, past the hosts'. Calls are collective:
 * all processes make the same ones in the same order.
 *
 * Exchanges are issued to a stream of their own: behind all that was issued to the compute stream before, beside what
 * is issued to it later. What they exchange is left alone, and not released, until `finish` was called and the compute
 * stream has got there: `synchronize` does not wait for them by itself. */
typedef struct ups_peers ups_peers; /* a device's own */
enum { UPS_PEERS_NAME = 128 };
typedef struct ups_peers_place {
    unsigned char name[UPS_PEERS_NAME]; /* of `meet`, the same for all, like what follows but the rank */
    int rank, size;
    int most_blocks; /* of threads of a device that exchanges take at once; 0: as many as the library likes */
} ups_peers_place;
typedef struct ups_peers_class {
    /* By what processes find each other: one makes it and tells the others. UPS_ERR_UNSUPPORTED says what is missing.
     */
    ups_status (*meet)(unsigned char name[UPS_PEERS_NAME], ups_error *error);
    /* Waits for the others. */
    ups_status (*join)(ups_device *device, const ups_peers_place *place, ups_peers **peers, ups_error *error);
    /* Between these two come exchanges, issued as one. */
    ups_status (*begin)(ups_device *device, ups_peers *peers, ups_error *error);
    ups_status (*end)(ups_device *device, ups_peers *peers, ups_error *error);
    /* In place. Sums are in an order that the library chooses.
     *   sum     values become their sum over all processes: the same bits on all
     *   sum_at  the same for one process; those of the others are undefined
     *   spread  values become those of one process */
    ups_status (*sum)(ups_device *device, ups_peers *peers, float *values, int64_t count, ups_error *error);
    ups_status (*sum_at)(ups_device *device, ups_peers *peers, float *values, int64_t count, int rank,
                         ups_error *error);
    ups_status (*spread)(ups_device *device, ups_peers *peers, float *values, int64_t count, int rank,
                         ups_error *error);
    /* Of a step, in device memory: sums of losses, windows, squared norms and what is not finite; one of the
     * micro-batches whose loss is not finite, where there is one. */
    ups_status (*add_results)(ups_device *device, ups_peers *peers, ups_update_result *result, ups_error *error);
    /* What is issued to the compute stream from here on comes after all exchanges so far. */
    ups_status (*finish)(ups_device *device, ups_peers *peers, ups_error *error);
    void (*leave)(ups_device *device, ups_peers *peers); /* NULL is fine */
    /* What it is, such as "NCCL 2.27.7". */
    ups_status (*library)(char *text, size_t bytes, ups_error *error);
} ups_peers_class;

typedef struct ups_device_class {
    const char *name;    /* "cpu", "cuda" */
    int input_sets;      /* of a step: 2 where the next batch is copied in beside the computation */
    bool immediate;      /* its memory is the host's, and what is issued has run when the call returns */
    bool only_plans;     /* it says what kernels want, and runs nothing: of what follows, plans call `kernel`,
                            `matrices_workspace`, `memory`, `threads`, `synchronize` and `destroy` */
    bool offloads;       /* it has allocate_offloaded and release_offloaded */
    const char *results; /* what its results are told by where they are not the CPU's; NULL: they are, within what
                            instruction sets differ */
    int (*threads)(const ups_device *device); /* of the host that its kernels use */
    void (*destroy)(ups_device *device);

    /* Memory. `release` waits for the work that was issued. `memory`: of the device's own, apart from the host's, how
     * many bytes there are and how many are free; NULL: it is the host's. */
    ups_status (*memory)(ups_device *device, uint64_t *total, uint64_t *available, ups_error *error);
    ups_status (*allocate)(ups_device *device, size_t bytes, void **memory,
                           ups_error *error); /* 4096-byte aligned on the CPU, zeroed */
    void (*release)(ups_device *device, void *memory);
    /* Host memory that kernels and copies take for the device's own, zeroed: more of it, and slower.
     * `copy`, `zero` and `upload_ahead` are not for it. */
    ups_status (*allocate_offloaded)(ups_device *device, size_t bytes, void **memory, ups_error *error);
    void (*release_offloaded)(ups_device *device, void *memory);
    /* Host memory that copies are fast to and from, 4096-byte aligned (pinned where that means something). An upload
     * from it takes its contents: it has to be filled again before the next one. */
    ups_status (*allocate_host)(ups_device *device, size_t bytes, void **memory, ups_error *error);
    void (*release_host)(ups_device *device, void *memory);

    /* Copies. Host memory must live, and stay as it is, until an event that was recorded on the same stream after the
     * copy has passed, or the stream was waited for. `upload_ahead` is issued to the copy stream, all others to the
     * compute stream. `download` waits. */
    ups_status (*upload)(ups_device *device, void *to, const void *from_host, size_t bytes, ups_error *error);
    ups_status (*upload_ahead)(ups_device *device, void *to, const void *from_host, size_t bytes, ups_error *error);
    /* Rows of `bytes` each, side by side to `to`: from the `count` places of the device's memory whose addresses lie in
     * the device's memory, too. A row begins at a multiple of 2 bytes, and of 4 or 16 where its length is one. Issued
     * to the copy stream. NULL: memory of the device's own is the host's. */
    ups_status (*gather_ahead)(ups_device *device, void *to, const void *const *rows, int64_t count, size_t bytes,
                               ups_error *error);
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

    /* NULL: sums over processes go through the host's memory. */
    const ups_peers_class *peers;

    /* A name for what is issued until its end, in the eyes of a profiler that looks on; names nest. NULL, both: there
     * is none that could. */
    void (*range_begin)(const char *name);
    void (*range_end)(void);

    /* Chooses the kernel for calls of these shapes and dtypes (rank 0 where an input or a gradient is absent, data
     * NULL); `backward`: backward will run too. The caller releases kernel->state. */
    ups_status (*kernel)(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                         ups_error *error);
    /* How kernels are chosen from here on; returns how they were. NULL: by shape alone. */
    ups_kernel_choice (*choose)(ups_device *device, ups_kernel_choice how);
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
    const char *card; /* its name, as the driver tells it; NULL: a processor, or a card that is not there */
};

void ups_device_close(ups_device *device);        /* NULL is fine */
int ups_device_threads(const ups_device *device); /* of the host that its kernels use */
/* See `choose`. A device begins with UPS_KERNELS_FASTEST. */
ups_kernel_choice ups_device_choose_kernels(ups_device *device, ups_kernel_choice how);
/* Captures what `issue` issues to the compute stream, on a device that can; NULL on failure. */
ups_status ups_device_capture(ups_device *device, ups_status (*issue)(void *context, ups_error *error), void *context,
                              ups_capture **capture, ups_error *error);
void ups_device_range_begin(const ups_device *device, const char *name);
void ups_device_range_end(const ups_device *device);

#endif
