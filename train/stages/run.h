/* The stages of a run in order: finished ones are skipped, stopped ones go on, and what was built on a stage that was
 * trained anew is built again. What `ups train` does. */
#ifndef UPS_TRAIN_STAGES_RUN_H
#define UPS_TRAIN_STAGES_RUN_H

#include "train/stages/stage.h"

typedef struct ups_stages_wanted {
    int stage;    /* this one alone; −1: all of the configuration's */
    bool resume;  /* from the checkpoint of a stage that was stopped */
    bool restart; /* finished stages too begin anew */
} ups_stages_wanted;

/* Whether the command is about the i-th of the configuration's stages. */
bool ups_stages_include(const ups_stages_wanted *wanted, const ups_run_config *config, unsigned i);

/* `session` is opened and not yet normalised. Alone on the run's directory (run_lock.h). Writes config.yaml and
 * state.json. */
ups_status ups_stages_run(ups_session *session, const ups_stages_wanted *wanted, ups_error *error);

#endif
