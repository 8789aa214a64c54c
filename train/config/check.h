/* What a configuration's keys must be to each other. What a single key must be stands in its entry in config.c. */
#ifndef UPS_TRAIN_CONFIG_CHECK_H
#define UPS_TRAIN_CONFIG_CHECK_H

#include "base/config/mistakes.h"
#include "train/config/config.h"

/* Adds all that is wrong to `mistakes`, in which those of single keys stand already. */
void ups_run_config_check(const ups_run_config *config, ups_config_mistakes *mistakes);

#endif
