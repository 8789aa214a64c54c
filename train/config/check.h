/* What a configuration's keys must be to each other. What a single key must be stands in its entry in config.c. */
#ifndef UPS_TRAIN_CONFIG_CHECK_H
#define UPS_TRAIN_CONFIG_CHECK_H

#include "train/config/config.h"

/* UPS_ERR_CONFIG with a sentence that begins with `path`, the configuration's file, and names the key. */
ups_status ups_run_config_check(const char *path, const ups_run_config *config, ups_error *error);

#endif
