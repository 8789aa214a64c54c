/* What the parts of a step share. A step is made in two moves, and run any number of times:
 *
 *     create.c    its life: what a graph needs is found out (or only measured), memory is had for it, weights are bound
 *     entries.c   the schedule's calls: kernels are chosen for them by shape, and addresses written into them
 *     run.c       batches come in, the calls are made one after the other or as a captured whole, results go out
 *
 * A call is written out once, when weights are bound; running sets nothing in it but the options of the run.
 *
 * Device memory, three blocks: inputs and constants, the planned arena, one workspace shared by all kernels. Parameters
 * lie in their own buffers.
 *
 * Where the device has two input sets, a batch is uploaded to a staging block on the copy stream, beside the
 * computation of the batch before, and copied into the inputs when its own run begins: addresses stay the same from run
 * to run, so that a run can be captured. */
#ifndef UPS_MODEL_STEP_PARTS_H
#define UPS_MODEL_STEP_PARTS_H

#include "model/step/step.h"

/* One entry of the schedule. */
typedef struct prepared_entry {
    ups_op_call call;
    bool runs;                          /* backward that has nothing to write does not */
    ups_pair_run *with_next;            /* runs this entry and the next; NULL: it runs by itself */
    uint32_t first_parameter_gradients; /* inputs whose gradient obeys ups_step_run_options.accumulate */
    int64_t complete;                   /* ups_gradient_watch: what is known after it */
} prepared_entry;

/* Inputs on their way in. */
typedef struct staged_inputs {
    unsigned char *memory; /* laid out as the inputs are; NULL: uploads go to the inputs themselves */
    ups_event *uploaded;   /* host memory of uploads so far is the caller's again */
    ups_event *consumed;   /* what was staged is in the inputs */
    bool filled;           /* since the last run */
} staged_inputs;

/* A run that was captured, replayed while its options are the same; the first one is issued call by call. It is one
 * part; where a watch is told of gradients, as many as there is something to tell between. */
enum { CAPTURES = 16 /* combinations of training, backward, accumulate, a watch */, MOST_PARTS = 32 };
typedef struct captured_part {
    ups_capture *capture;
    int64_t complete; /* ups_gradient_watch: once it has run */
} captured_part;
typedef struct captured_run {
    bool issued;
    int parts; /* 0: it is to be captured */
    captured_part part[MOST_PARTS];
    const ups_update *update;
    int64_t every; /* of the watch; 0: there is none */
} captured_run;

/* The arena and workspace that a step fills from scratch whenever it runs; of one step, or of several of which one runs
 * at a time. */
typedef struct shared_arena {
    unsigned char *arena, *workspace;
    int steps; /* that use it */
} shared_arena;

struct ups_step {
    const ups_graph *graph;
    ups_device *device;
    ups_plan *plan;
    ups_kernel *kernels;     /* of the nodes */
    prepared_entry *entries; /* of the plan's schedule */
    int64_t *input_offsets;  /* one a value; inputs and constants */
    unsigned char *inputs;
    size_t input_bytes; /* of the inputs' block: what is uploaded; constants follow */
    staged_inputs staging;
    captured_run captured[CAPTURES];
    captured_run *capturing; /* one of them, while it is captured; NULL: what is issued runs */
    shared_arena *shared;
    ups_weights weights; /* borrowed buffers: what parameters are read from */
    size_t workspace_bytes;
    bool profiling, timing; /* `timing`: in this run */
    ups_step_profile profile;
};

static inline const ups_device_class *class_of(const ups_step *step) {
    return step->device->class;
}

/* ---- run.c ------------------------------------------------------------------------------------------------------- */

/* Releases what the device made of a captured run, which is to be captured anew. */
void ups_step_forget_capture(const ups_step *step, captured_run *run);

/* ---- entries.c --------------------------------------------------------------------------------------------------- */

size_t ups_step_value_bytes(const ups_graph *graph, ups_value value);
/* Where a value lies at a position of the schedule; INT32_MAX: once all has run. Of a step that has its memory. */
void *ups_step_value_address(const ups_step *step, ups_value value, int32_t position);
/* The same of its gradient; NULL for a parameter where the weights have no gradients. */
void *ups_step_gradient_address(const ups_step *step, ups_value value);
/* Has the device choose node `n`'s kernel and say what workspace it wants. Needs the plan, and no memory. */
ups_status ups_step_prepare_node(ups_step *step, int32_t n, ups_error *error);
/* Writes all calls out, with the addresses that they have by now: of memory, kernels' states and bound weights. */
void ups_step_address_entries(ups_step *step);

#endif
