/* A stage of training: plan → run → checkpoint. What all stages share: what they are given, and what they say of their
 * memory before they run. */
#ifndef UPS_TRAIN_STAGES_STAGE_H
#define UPS_TRAIN_STAGES_STAGE_H

#include "model/device.h"
#include "model/plan.h"
#include "train/data/tasks.h"

typedef struct ups_stage_request {
    const ups_run_config *config;
    ups_tasks *tasks; /* opened; normalised unless only a plan is wanted */
    ups_device *device;
    bool cached; /* a plan is for when the cache stage has run */
    bool resume; /* go on from the checkpoint that is there; otherwise begin at step 0 */
} ups_stage_request;

/* Memory of a stage in bytes, known before it runs. */
typedef struct ups_stage_plan {
    int64_t batch_size; /* windows a micro-batch: as configured, or found */
    int64_t trainable;  /* parameters, as a paper would count them */
    size_t parameters;  /* values, gradients and the compute copy */
    size_t optimizer;   /* moments and moving average */
    size_t activations; /* the arena: activations, their gradients, saved statistics; the stage's graphs share it */
    size_t inputs;
    size_t workspace;
    size_t loader;           /* batches in flight */
    size_t validation;       /* the same of validation, whose loader runs beside that of training */
    size_t resident;         /* samples that stay in memory, at most */
    ups_residency residency; /* of samples that are read from files */
    bool encodes;            /* some are encoded as they come, and stay in memory as far as they fit */
    size_t encoders;         /* that do this */
    size_t filling;          /* encoded trajectories that wait to be written to the cache, at most */
    size_t total;
} ups_stage_plan;

ups_status ups_stage_autoencoder_plan(const ups_stage_request *request, ups_stage_plan *plan, ups_error *error);
ups_status ups_stage_operator_plan(const ups_stage_request *request, ups_stage_plan *plan, ups_error *error);

/* Trains to the last step and exports the weights to output/STAGE.safetensors. UPS_ERR_CANCELLED leaves a checkpoint.
 */
ups_status ups_stage_autoencoder_run(const ups_stage_request *request, ups_error *error);
/* Trains on the cache (see ups_run_cache_directory), whose fingerprint must be this run's, or on latents that are
 * encoded as they come (ups_latents_encode). */
ups_status ups_stage_operator_run(const ups_stage_request *request, ups_error *error);

/* Computes the plan for the batch size it is given. */
typedef ups_status (*ups_stage_measure)(void *context, int64_t batch_size, ups_stage_plan *plan, ups_error *error);

/* UPS_ERR_MEMORY when the plan takes more than this process may still have. */
ups_status ups_stage_check_memory(ups_stage stage, const ups_stage_plan *plan, ups_error *error);

/* A stage's plan for the batch size that is configured; with `auto`, for that of the checkpoint that the request goes
 * on from (another one would bring samples in another order), else for the one found. */
ups_status ups_stage_choose_batch(const ups_stage_request *request, ups_stage stage, ups_stage_measure measure,
                                  void *context, ups_stage_plan *plan, ups_error *error);

#endif
