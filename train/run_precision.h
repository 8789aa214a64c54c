/* Which precision a run goes on in: what its config.yaml and its checkpoints tell, and the configuration. */
#ifndef UPS_TRAIN_RUN_PRECISION_H
#define UPS_TRAIN_RUN_PRECISION_H

#include "train/precision.h"

/* What the run in config->output began in, as its config.yaml has it; UPS_PRECISION_AUTO where there is no run yet, or
 * where the file cannot be read, which a warning says if `precision: auto` asks for it. */
ups_status ups_precision_recorded(const ups_run_config *config, ups_precision *recorded, ups_error *error);

/* What the commands that use or plan a run compute in: as configured; with `auto` what the run began in, and before it
 * began what is faster here. */
ups_status ups_precision_of_run(const ups_run_config *config, ups_precision *precision, ups_error *error);

/* The same for a stage that goes on from the checkpoint in `checkpoint` (a directory): what the checkpoint tells
 * before what the run does. UPS_ERR_STALE where another one is configured. */
ups_status ups_precision_of_checkpoint(const char *checkpoint, ups_precision configured, ups_precision recorded,
                                       const char *device, ups_precision *precision, ups_error *error);

#endif
