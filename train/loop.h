/* The training loop, the same for every stage: micro-batches, update, guards, log, validation, checkpoint; resumable at
 * every optimizer step. It knows nothing of what a stage computes.
 *
 * Processes that train together run the same loop: each issues its own micro-batches of a step, all make the same
 * update, and decide alike. Rank 0 writes what there is to write.
 *
 * The loop issues a step before it reads the result of the one before, so that a device that works beside the host
 * always has something to do. Where a line, a validation or a checkpoint is due, it reads all results first. */
#ifndef UPS_TRAIN_LOOP_H
#define UPS_TRAIN_LOOP_H

#include "base/json.h"
#include "pipeline/loader/loader.h"
#include "train/checkpoint.h"
#include "train/comm/exchange.h"
#include "train/comm/usage.h"

typedef struct ups_micro_batch {
    int64_t step;                    /* optimizer step, from 0 */
    int64_t index;                   /* micro-batch within it */
    bool accumulate;                 /* add to the gradients that are there */
    ups_update *update;              /* device memory: what kernels read, and where losses are added */
    const ups_gradient_watch *watch; /* who is told of complete gradients; NULL: nobody */
    bool *trained; /* by set of parameters (parameters.h): to be set where this micro-batch has gradients */
    ups_arithmetic *arithmetic; /* to which that of this micro-batch is to be added */
} ups_micro_batch;

/* What a stage supplies. */
typedef struct ups_loop_stage {
    const char *name; /* "operator" */
    void *context;
    /* Takes the next batch from the stage's loader and issues forward, its losses, and backward. */
    ups_status (*micro_batch)(void *context, const ups_micro_batch *micro, ups_error *error);
    /* Adds the losses of validation windows, with the current weights; nothing where there are none. The same sums on
     * all processes that train together. */
    ups_status (*validate)(void *context, ups_loss_sums *sums, ups_error *error);
    /* Called after every optimizer step, `step` of them being done, with the validation that fell due after it (NULL:
     * none): what the stage changes for later steps. It may add to `report`, the validation's line of the metrics (NULL
     * without one). May be NULL. */
    ups_status (*advance)(void *context, int64_t step, const ups_loss_sums *validation, json_t *report,
                          ups_error *error);
    /* Which set of losses a step takes, a number below UPS_MAX_LOSS_SETS: spikes are looked for among steps of the same
     * losses. */
    int (*losses_due)(void *context, int64_t step);
    /* Names the samples of a micro-batch, for messages about its loss; asked of the last two steps that were issued. */
    void (*describe_batch)(void *context, int64_t step, int64_t index, char *text, size_t bytes);
    ups_loader *loader;    /* for its statistics */
    const char *residency; /* of the stage's samples, for metrics; NULL: not told */
    bool zero_gradients;   /* micro-batches of a step may train different parameters: all gradients are zeroed before
                              it instead of overwritten */
} ups_loop_stage;

typedef struct ups_loop_options {
    const ups_training_config *training;
    uint64_t seed;
    const char *output;               /* the run's directory: metrics.jsonl and checkpoints/STAGE below it */
    const ups_training_state *resume; /* where to start: the state loaded from the checkpoint, or step 0 */
    const json_t *opening; /* the stage's first line in the metrics, written where it begins at step 0; NULL: none */
    ups_device *device;
    ups_parameters *parameters;
    ups_optimizer *optimizer;
    ups_comm *comm;         /* processes that train together: rank 0 writes and tells; NULL: one */
    ups_exchange *exchange; /* what they sum; NULL: nothing */
    const char *const *task_names;
    int task_count;
    const char *const *loss_names; /* by the number of a loss; NULL: lines do not tell losses one by one */
} ups_loop_options;

/* Runs to the last step, or until `patience` validations in a row were no better. Cancelled: a checkpoint is written,
 * then UPS_ERR_CANCELLED. */
ups_status ups_loop_run(const ups_loop_options *options, const ups_loop_stage *stage, ups_error *error);

#endif
