/* What is behind ups_data_loader: the pipeline's loader, what it borrows, and the batches that the caller holds.
 *
 * A batch may outlive the loader it came from: the caller holds one of an epoch that is over while the next begins, or
 * closes first and releases later. So slots' memory is allocated here: what a held batch lies in is not freed when the
 * pipeline's loader gives it back, but when the batch is released. Decoded trajectories that stay in memory go with the
 * last batch too. */
#ifndef UPS_LIBUPS_ITERATION_H
#define UPS_LIBUPS_ITERATION_H

#include "pipeline/loader/loader.h"
#include "tools/libups/handles.h"
#include <pthread.h>

/* Memory of one slot of the pipeline's loader. */
typedef struct slot_memory {
    uint8_t *bytes; /* NULL: this entry is free */
    size_t size;
    int64_t held;  /* batches in it that are not released yet */
    bool orphaned; /* the loader gave it back */
} slot_memory;

/* A batch as the caller sees it. */
typedef struct handed_out {
    ups_data_batch public;  /* first: the caller's pointer is this entry's */
    const ups_batch *inner; /* NULL: this entry is free */
    int64_t generation;     /* of the pipeline's loader that it came from */
    int64_t shape[UPS_DATA_MAX_RANK + 1];
    /* (batch_size) each */
    const void **window_values;
    int64_t *frame_step, *sample, *start;
    int32_t *task;
    double *dt, *parameters; /* (batch_size, parameter_count) the latter */
} handed_out;

/* A sample's shape without time. */
typedef struct frame_shape {
    int rank;
    int64_t axis[UPS_DATA_MAX_RANK];
} frame_shape;

typedef struct task_shape {
    frame_shape first; /* of the task's first sample … */
    bool varies;       /* … and not of all of them */
} task_shape;

struct ups_data_loader {
    ups_loader_options options; /* its allocator is the caller's; slots get theirs through slot_memory */
    ups_loader_task *tasks;     /* (task_count) with stores, names and samples of ours */
    const ups_data **data;      /* (task_count) kept */
    int32_t task_count;
    task_shape *shapes;      /* (task_count) */
    int64_t parameter_count; /* P of the batches */
    int64_t epoch_batches;
    uint64_t memory, kept;
    ups_residency residency;

    ups_loader *inner; /* NULL once closed */
    int64_t position;  /* of the next batch */

    pthread_mutex_t lock; /* guards all below: a batch may be released by any thread */
    int64_t generation;   /* how often `inner` was opened */
    bool closed;
    int64_t held_count;
    handed_out *held; /* (options.slots) */
    slot_memory *slots;
    int64_t slot_room; /* entries of `slots` */
};

/* Fills in the floors' options; bounds memory and opens the stores of what stays in it. */
ups_status ups_iteration_plan(ups_data_loader *loader, const ups_data_loader_options *options, ups_error *error);

#endif
