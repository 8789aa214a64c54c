/* Checkpoints: everything that a stopped run needs to go on as if it had not stopped.
 *
 *   DIR/step-00001000.safetensors   weights by name; adamw.first_moment.*, adamw.second_moment.*, ema.* beside them
 *   DIR/latest.json                 step, seed, and which file: published after the file, so that it always names a
 * whole one
 *
 * The random streams and the sampler are functions of (seed, step): nothing else has to be kept. Files before the
 * latest are removed once it stands. */
#ifndef UPS_TRAIN_CHECKPOINT_H
#define UPS_TRAIN_CHECKPOINT_H

#include "train/optimizer.h"

typedef struct ups_training_state {
    int64_t step; /* optimizer steps done */
    uint64_t seed;
    double running_loss; /* for the loss-spike report */
    double score;        /* of the last validation; NaN before the first */
} ups_training_state;

bool ups_checkpoint_exists(const char *directory);
ups_status ups_checkpoint_save(const char *directory, const ups_training_state *state, ups_parameters *parameters,
                               ups_optimizer *optimizer, ups_error *error);
/* Fills the weights (bf16 copy refreshed), the optimizer's buffers and *state, which comes with the run's seed; then
 * removes what a run killed while saving left beside it. UPS_ERR_IO when there is none, UPS_ERR_FORMAT when it does not
 * fit, UPS_ERR_STALE when it is of another seed. */
ups_status ups_checkpoint_load(const char *directory, ups_training_state *state, ups_parameters *parameters,
                               ups_optimizer *optimizer, ups_error *error);

/* The finished model: weights alone (the average where there is one), as plain safetensors. */
ups_status ups_model_export(const char *path, ups_parameters *parameters, ups_optimizer *optimizer, ups_error *error);

#endif
