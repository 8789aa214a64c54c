/* The state of a run: output/state.json says which stages are finished and with which model, so that `ups train` skips
 * them, and later stages know what they build on. Published after the files it names. */
#ifndef UPS_TRAIN_STATE_H
#define UPS_TRAIN_STATE_H

#include "train/config/config.h"

typedef struct ups_stage_state {
    bool finished;
    int64_t steps;    /* optimizer steps it took; 0 for a stage that trains nothing */
    char weights[33]; /* XXH3 of the exported weights; "" for a stage that trains nothing */
} ups_stage_state;

typedef struct ups_run_state {
    ups_stage_state stage[UPS_STAGE_COUNT];
} ups_run_state;

/* An absent file is a run that has not begun. */
ups_status ups_run_state_read(const ups_run_config *config, ups_run_state *state, ups_error *error);
ups_status ups_run_state_publish(const ups_run_config *config, const ups_run_state *state, ups_error *error);

/* output/autoencoder.safetensors, output/operator.safetensors: a finished stage's model. Free with free(). */
char *ups_run_model_path(const ups_run_config *config, ups_stage stage);
/* output/initial/STAGE.safetensors: the weights that the stage begins with, in a run that `ups train --fork` made. Free
 * with free(). */
char *ups_run_initial_weights(const ups_run_config *config, ups_stage stage);

#endif
