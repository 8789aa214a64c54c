/* A stage of a run: plan → run. What all stages share: what they are given, what they say of themselves, and what they
 * say of their memory before they run. The table of all stages is in stages.c. */
#ifndef UPS_TRAIN_STAGES_STAGE_H
#define UPS_TRAIN_STAGES_STAGE_H

#include "train/session.h"

typedef struct ups_stage_request {
    const ups_session *session;
    unsigned done;      /* a mask: a plan is for when these stages have run */
    bool resume;        /* go on from the checkpoint that is there; otherwise begin at step 0 */
    bool profile;       /* time each op, and tell of it at the end */
    int64_t batch_size; /* what rank 0 has chosen; 0: it is to be chosen */
} ups_stage_request;

/* Memory of a stage in bytes, known before it runs. */
typedef struct ups_stage_plan {
    int64_t batch_size; /* windows a micro-batch: as configured, or found */
    int64_t trainable;  /* parameters, as a paper would count them */
    size_t parameters;  /* values, gradients and the compute copy */
    size_t optimizer;   /* moments and moving average */
    size_t offloaded;   /* the part of `optimizer` that lies in host memory, of a device with memory of its own */
    size_t activations; /* the arena: activations, their gradients, saved statistics; the stage's graphs share it */
    size_t activations_without_checkpointing; /* what they would take without activation checkpointing */
    size_t inputs;
    size_t workspace;
    size_t exchange;           /* what sums over processes take of the host's memory */
    size_t loader;             /* batches in flight, and what the feed puts one together in */
    size_t validation;         /* the same of validation, whose loader runs beside that of training */
    size_t resident;           /* samples that stay in memory, at most */
    size_t resident_on_device; /* those of them that stay in the device's memory, too, at most */
    ups_residency residency;   /* of samples that are read from files */
    bool encodes;              /* some are encoded on the fly, and stay in memory as far as they fit */
    size_t encoders;           /* that do this */
    size_t wanted_on_device;   /* what `resident_on_device` would be, were there room for it beside all else */
    size_t total;
    size_t on_device; /* the part of `total` that lies in a device's own memory; 0 where it has none */
} ups_stage_plan;

/* What a stage is. Its name and section are the configuration's (ups_stage_name, ups_run_training). A stage with a
 * section of training has steps, checkpoints and a model, output/STAGE.safetensors; it is skipped when it has finished.
 * Any other knows by itself what is left to do, and runs each time. */
typedef struct ups_stage_class {
    unsigned depends_on; /* a mask: where one of these stages is trained again, this one is done again */
    bool apart; /* processes that run it together do not meet before its end: one of them may be stopped alone */
    /* What the configuration asks of the stage and the opened tasks, which need no normalisation, cannot give. Called
     * before any stage runs. UPS_ERR_CONFIG names the key or the task, and what would be right. May be NULL. */
    ups_status (*check)(const ups_run_config *config, const ups_tasks *tasks, ups_error *error);
    /* Memory, known before it runs. NULL: the stage finds out as it runs. */
    ups_status (*plan)(const ups_stage_request *request, ups_stage_plan *plan, ups_error *error);
    /* To the end. UPS_ERR_CANCELLED leaves what the same command goes on from. */
    ups_status (*run)(const ups_stage_request *request, ups_error *error);
    /* Whether what it made is good enough for the stages built on it: UPS_ERR_NUMERIC says what to try. May be NULL. */
    ups_status (*accept)(const ups_stage_request *request, ups_error *error);
    /* Why this configuration does without the stage unless it is asked for by name; NULL where it does not. The
     * function may be NULL. */
    const char *(*needless)(const ups_run_config *config);
} ups_stage_class;

extern const ups_stage_class *const ups_stages[UPS_STAGE_COUNT]; /* in the order in which they can run */

/* Checks the stages of a mask, in their order, up to the first that fails. */
ups_status ups_stages_check(unsigned stages, const ups_run_config *config, const ups_tasks *tasks, ups_error *error);
/* Opens the configuration's tasks, checks all its stages, and closes them again. Errors: those of ups_tasks_open, too.
 */
ups_status ups_stages_check_all(const ups_run_config *config, ups_error *error);

/* Computes the plan for the batch size it is given. */
typedef ups_status (*ups_stage_measure)(void *context, int64_t batch_size, ups_stage_plan *plan, ups_error *error);

/* What a stage may take of its device's own memory, in bytes; 0 where it has none. */
ups_status ups_stage_device_budget(const ups_session *session, const ups_training_config *training, double *bytes,
                                   ups_error *error);

/* UPS_ERR_MEMORY when the plan takes more than this process, or its device, may still have. */
ups_status ups_stage_check_memory(const ups_session *session, ups_stage stage, const ups_stage_plan *plan,
                                  ups_error *error);

/* A stage's plan for the batch size that is configured; with `auto`, for that of the checkpoint that the request goes
 * on from (another one would bring samples in another order), else for the one found. */
ups_status ups_stage_choose_batch(const ups_stage_request *request, ups_stage stage, ups_stage_measure measure,
                                  void *context, ups_stage_plan *plan, ups_error *error);

#endif
