/* The paths of a configuration: whether its files are there, and whether what it writes has a place. Nothing is made.
 * What is wrong is added to `mistakes`, in which those of keys stand already. */
#ifndef UPS_TRAIN_CONFIG_PATHS_H
#define UPS_TRAIN_CONFIG_PATHS_H

#include "base/config/mistakes.h"
#include "train/config/config.h"

/* data.root and the tasks' files have to be there. */
void ups_run_config_check_data(const ups_run_config *config, ups_config_mistakes *mistakes);

/* output and cache.directory have to be folders or such as can be made. */
void ups_run_config_check_places(const ups_run_config *config, ups_config_mistakes *mistakes);

#endif
