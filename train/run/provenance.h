/* What made a model, for the outputs of commands that use it: the run that its file lies in, as it tells of itself. */
#ifndef UPS_TRAIN_RUN_PROVENANCE_H
#define UPS_TRAIN_RUN_PROVENANCE_H

#include "base/error.h"
#include "base/json.h"

/* {"run": directory, "config": its config.yaml, "stages": its state.json} of the run in whose directory the model lies,
 * or in checkpoints/ of which; null for a model that lies in no run. A new reference. */
ups_status ups_run_provenance(const char *model, json_t **provenance, ups_error *error);

#endif
