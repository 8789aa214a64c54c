/* The stages of a run in order, in its directory: finished ones are skipped, stopped ones go on. What they make and
 * what becomes of an earlier run is decided before (train.h). */
#ifndef UPS_TRAIN_STAGES_RUN_H
#define UPS_TRAIN_STAGES_RUN_H

#include "train/stages/stage.h"

typedef struct ups_stages_wanted {
    int stage;             /* this one alone; −1: all of the configuration's that are in `only` */
    unsigned only;         /* a mask; 0: all */
    bool resume;           /* from the checkpoint of a stage that was stopped */
    bool profile;          /* as ups_stage_request */
    bool keeps_trained;    /* something that was trained stays, or goes on: of other data a warning tells */
    bool moves_data;       /* data.root is another one: these are refused then, since they are hardly meant */
    const char *output;    /* what config.yaml says of where the run lies: config->output, but for RUN/next */
    const char *directory; /* the same of cache.directory */
} ups_stages_wanted;

/* Whether the command is about the i-th of the configuration's stages. */
bool ups_stages_include(const ups_stages_wanted *wanted, const ups_run_config *config, unsigned i);

/* `session` is opened and not yet normalised; the caller has the run's lock. Writes config.yaml and state.json. */
ups_status ups_stages_run(ups_session *session, const ups_stages_wanted *wanted, ups_error *error);

#endif
