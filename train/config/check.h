/* What a configuration's keys must be to each other. What a single key must be stands in its entry in config.c. */
#ifndef UPS_TRAIN_CONFIG_CHECK_H
#define UPS_TRAIN_CONFIG_CHECK_H

#include "base/config/mistakes.h"
#include "train/config/config.h"

/* Steps that the rollout losses may look at: each step has a term or two of every loss, and there is room for
 * UPS_MAX_TERMS. */
#define UPS_MAX_ROLLOUT_STEPS 32

/* Adds all that is wrong to `mistakes`, in which those of single keys stand already. */
void ups_run_config_check(const ups_run_config *config, ups_config_mistakes *mistakes);
/* The same of tasks and networks alone: what a trained model depends on. */
void ups_run_config_check_model(const ups_run_config *config, ups_config_mistakes *mistakes);

#endif
