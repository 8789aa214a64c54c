/* A step: a graph and its plan on a device, ready to be run any number of times.
 *
 *     ups_step_create(graph, device, &step, &error)                   the plan, kernels, memory: all that ever is
 * allocated for each batch: ups_step_upload(step, input, host, bytes, &error)           what changes from batch to
 * batch ups_step_run(step, &(ups_step_run_options){.training = true, .backward = true, .update = update}, &error)
 *         ups_step_download(step, loss, &value, sizeof value, &error) waits; who only trains needs none
 *     ups_step_destroy(step)
 *
 * A run is issued, not waited for, on a device that works beside the host. It reads and writes the weights that the
 * step is bound to; the update of these is the optimizer's (train/optimizer.h). */
#ifndef UPS_MODEL_STEP_STEP_H
#define UPS_MODEL_STEP_STEP_H

#include "model/device.h"
#include "model/work.h"

typedef struct ups_step ups_step;

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* Allocates the arena and asks every kernel to prepare. `graph` and its parameters (allocated) are borrowed. */
ups_status ups_step_create(const ups_graph *graph, ups_device *device, ups_step **step, ups_error *error);
/* The memory such a step takes, without allocating it: asks the kernels for their workspace too. */
ups_status ups_step_measure(const ups_graph *graph, ups_device *device, ups_plan_memory *memory, ups_error *error);
/* The same for graphs of which one runs at a time: their steps share the arena and the workspace, the largest that any
 * of them needs. What a step keeps is gone once another one runs. `steps` (count) is filled, or left NULL on failure;
 * the shared memory goes with the last step destroyed. */
ups_status ups_step_create_together(const ups_graph *const *graphs, int count, ups_device *device, ups_step **steps,
                                    ups_error *error);
ups_status ups_step_measure_together(const ups_graph *const *graphs, int count, ups_device *device,
                                     ups_plan_memory *memory, ups_error *error);
void ups_step_destroy(ups_step *step);
ups_plan_memory ups_step_memory(const ups_step *step); /* workspace included */
const ups_plan *ups_step_plan(const ups_step *step);

/* Runs from here on read these weights and, where they have gradients, write those. A step is created bound to its
 * parameters' own. The buffers are borrowed; they must hold every parameter of the graph, and the copy in its compute
 * dtype. UPS_ERR_ARGUMENT, and the binding of before, where they do not. */
ups_status ups_step_bind(ups_step *step, const ups_weights *weights, ups_error *error);

/* ---- batches in -------------------------------------------------------------------------------------------------- */

/* For the next run, and those after it until the input is uploaded again. `host` must stay as it is until
 * ups_step_wait_uploaded, a download or a synchronisation; memory of the device's own is to be filled again then. */
ups_status ups_step_upload(ups_step *step, ups_value input, const void *host, size_t bytes, ups_error *error);
/* The same, of rows that lie in the device's memory: the input's bytes are `count` rows, side by side, from the
 * addresses in `rows`. The addresses are brought to `list`, device memory for as many, which is used again when this
 * upload was read. For devices with gather_ahead and two input sets. */
ups_status ups_step_gather(ups_step *step, ups_value input, const void *const *rows, int64_t count, size_t row_bytes,
                           void *list, ups_error *error);
ups_status ups_step_wait_uploaded(const ups_step *step, ups_error *error); /* until all uploads so far were read */

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* Who is told, during backward, how many elements of the weights' gradients are complete, from the first on: no later
 * op writes them. On a device that works beside the host they are once what has been issued to the compute stream by
 * then has run. */
typedef struct ups_gradient_watch {
    void (*complete)(void *context, int64_t elements);
    void *context;
    int64_t every; /* elements, of which it wants to know multiples */
} ups_gradient_watch;

typedef struct ups_step_run_options {
    bool training;   /* drop-path acts */
    bool backward;   /* graphs that were differentiated, bound to weights with gradients */
    bool accumulate; /* parameter gradients: add to what is there; otherwise those the graph touches are overwritten */
    const ups_update *update;        /* device memory; needed by training and by backward */
    const ups_gradient_watch *watch; /* NULL: nobody */
} ups_step_run_options;

/* Issues the run; on a device that can, what runs often is captured once and launched as a whole, or, where somebody is
 * told of gradients, in parts. */
ups_status ups_step_run(ups_step *step, const ups_step_run_options *options, ups_error *error);

/* ---- results out ------------------------------------------------------------------------------------------------- */

ups_status ups_step_download(const ups_step *step, ups_value value, void *host, size_t bytes,
                             ups_error *error); /* kept values and inputs */
/* The same, that is there once `downloaded` has passed; runs that are issued later do not change it. */
ups_status ups_step_download_later(const ups_step *step, ups_value value, void *host, size_t bytes,
                                   ups_event *downloaded, ups_error *error);
void *ups_step_data(const ups_step *step,
                    ups_value value); /* device memory of an input or kept value: where a loader may copy to */

/* ---- where time goes --------------------------------------------------------------------------------------------- */

/* By op, the seconds of runs with backward and what their shapes ask for, for `ups bench step --profile` and `ups train
 * --profile`; of a pair (schedule.h) all seconds are its second op's, the norm's. Timing synchronises, nothing is
 * captured, and no watch is told of gradients, so that ops have the device for themselves: off by default. */
typedef struct ups_step_profile {
    int64_t runs;
    ups_op_work of[UPS_OP_COUNT + 1]; /* last, the optimizer, which is no part of a step: for who times it */
} ups_step_profile;
void ups_step_profile_enable(ups_step *step, bool on);
/* Adds the runs since it was enabled to `profile`, which begins as zeros. */
void ups_step_profile_add(const ups_step *step, ups_step_profile *profile);

#endif
