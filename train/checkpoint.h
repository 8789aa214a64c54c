/* Checkpoints: everything that a stopped run needs to go on as if it had not stopped.
 *
 *   DIR/step-00001000.safetensors   weights by name; what the optimizer keeps (optimizer.h) beside them
 *   DIR/latest.json                 step, seed, batch size, precision, loss scale, sampling, the losses since the last
 * line of the metrics, the best validation so far, the plateau's state, and which file: published after the file, so
 * that it always names a whole one DIR/best.safetensors            weights and average at the best validation, for use;
 * the run does not go on from it DIR/stable.json                 of the schedule `wsd`: what latest.json was before the
 * decay began, from where more steps go on; its tensors are kept, and stable-best.safetensors, the best until then
 *
 * The random streams are functions of (seed, step), the order of samples of the seed and the phases of sampling:
 * nothing else has to be kept. Of the files before the latest as many are kept as the state says, the newest. */
#ifndef UPS_TRAIN_CHECKPOINT_H
#define UPS_TRAIN_CHECKPOINT_H

#include "base/json.h"
#include "train/data/task_sampling.h"
#include "train/learning_rate.h"
#include "train/optimizer.h"

/* Sums a stage adds its micro-batches' losses to, by task. */
typedef struct ups_loss_sums {
    int tasks;
    const char *const *task_names;
    double sum[UPS_SAMPLER_MAX_TASKS]; /* of the total loss, over windows */
    int64_t count[UPS_SAMPLER_MAX_TASKS];
    int64_t windows;               /* all of them */
    const char *const *loss_names; /* of the stage's losses; NULL: they are not told apart */
    double part[UPS_MAX_LOSSES];   /* of each loss, weight included */
    int64_t part_count[UPS_MAX_LOSSES];
} ups_loss_sums;

/* The best of the validations that fell due: what `best` is, and when a stage has stopped getting better. */
typedef struct ups_best_score {
    int64_t step;                       /* 0: there was none yet */
    double score;                       /* mean over tasks of their losses */
    double task[UPS_SAMPLER_MAX_TASKS]; /* each one's; NaN without validation windows */
    int64_t stale;                      /* validations since then */
} ups_best_score;

typedef struct ups_training_state {
    int64_t step; /* optimizer steps done */
    uint64_t seed;
    double running_loss; /* for the loss-spike report */
    double score;        /* of the last validation; NaN before the first */
    ups_best_score best;
    ups_plateau plateau;         /* of that schedule */
    int64_t keep;                /* checkpoints that are kept, the latest among them; 0 is 1 */
    int64_t batch_size;          /* windows a micro-batch: samples come in another order with another one */
    ups_loss_sums interval;      /* of the steps since the last line of the metrics; without names it is not kept */
    ups_precision precision;     /* resolved; AUTO: not told */
    const json_t *origin;        /* of the model (train/data/origin.h), kept in its files; borrowed; NULL: none */
    ups_task_sampling *sampling; /* how tasks are drawn from here on; borrowed; NULL: none */
} ups_training_state;

bool ups_checkpoint_exists(const char *directory);
/* `gather`, here and below: of an optimizer that keeps a share of the parameters (parameters.h); then all processes
 * call it, and one writes. NULL: this one has all, and writes. */
ups_status ups_checkpoint_save(const char *directory, const ups_training_state *state, ups_parameters *parameters,
                               ups_optimizer *optimizer, const ups_parameter_gather *gather, ups_error *error);
/* Fills the weights (compute copy refreshed), the optimizer's buffers and *state, which comes with the run's seed,
 * batch size, origin and sampling; then removes what a run killed while saving left beside it. UPS_ERR_IO when there is
 * none, UPS_ERR_FORMAT when it does not fit, UPS_ERR_STALE when it is of another seed or origin. */
ups_status ups_checkpoint_load(const char *directory, ups_training_state *state, ups_parameters *parameters,
                               ups_optimizer *optimizer, ups_error *error);

/* The same, and nothing is removed: of a process that follows another one. */
ups_status ups_checkpoint_read(const char *directory, ups_training_state *state, ups_parameters *parameters,
                               ups_optimizer *optimizer, ups_error *error);

/* Writes best.safetensors with the weights as they are: those of state->best. */
ups_status ups_checkpoint_save_best(const char *directory, const ups_training_state *state, ups_parameters *parameters,
                                    ups_optimizer *optimizer, const ups_parameter_gather *gather, ups_error *error);

/* Path of best.safetensors, or of the latest checkpoint's tensors where its last validation was better, or there is no
 * best one. UPS_ERR_IO when there is neither. Free with free(). */
ups_status ups_checkpoint_best_file(const char *directory, char **path, ups_error *error);

/* Path of the latest checkpoint's tensors. */
ups_status ups_checkpoint_file(const char *directory, char **path, ups_error *error); /* free with free() */

/* Keeps the latest checkpoint as the one from which more steps go on, until another one is kept. */
ups_status ups_checkpoint_keep_stable(const char *directory, ups_error *error);
/* Its step; −1 where there is none. */
ups_status ups_checkpoint_stable_step(const char *directory, int64_t *step, ups_error *error);
/* Makes it the latest one again, with the best weights that there were then. UPS_ERR_IO where there is none. */
ups_status ups_checkpoint_go_back(const char *directory, ups_error *error);

/* The step of the latest checkpoint; −1 where there is none. */
ups_status ups_checkpoint_step(const char *directory, int64_t *step, ups_error *error);

/* What `batch_size: auto` was found to be when this checkpoint was saved; 0 where there is none. */
ups_status ups_checkpoint_batch_size(const char *directory, int64_t *batch_size, ups_error *error);

/* What the run of this checkpoint computes in; UPS_PRECISION_AUTO where there is no checkpoint, or an older one that
 * does not tell. */
ups_status ups_checkpoint_precision(const char *directory, ups_precision *precision, ups_error *error);

/* The finished model: weights alone (the average where there is one) and its origin (NULL: none), as plain safetensors.
 */
ups_status ups_model_export(const char *path, ups_parameters *parameters, ups_optimizer *optimizer,
                            const ups_parameter_gather *gather, const json_t *origin, ups_error *error);

#endif
