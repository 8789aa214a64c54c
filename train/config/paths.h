/* The paths of a configuration: whether its files are there, and whether what it writes has a place. */
#ifndef UPS_TRAIN_CONFIG_PATHS_H
#define UPS_TRAIN_CONFIG_PATHS_H

#include "train/config/config.h"

/* UPS_ERR_CONFIG with a sentence that begins with `path`, the configuration's file, and names the key: data.root and
 * the tasks' files have to be there, output and cache.directory to be folders or such as can be made. Nothing is made.
 */
ups_status ups_run_config_check_paths(const char *path, const ups_run_config *config, ups_error *error);

#endif
