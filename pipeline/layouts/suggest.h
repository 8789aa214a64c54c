/* A layout for a file that nobody knew, to paste into a task: see mapping.h. */
#ifndef UPS_PIPELINE_LAYOUTS_SUGGEST_H
#define UPS_PIPELINE_LAYOUTS_SUGGEST_H

#include "base/error.h"
#include <stdint.h>

/* Writes the `tasks` of a configuration, with one task of these files, as YAML: a text that `free` frees. What is
 * guessed, from the first file, has a comment that says why. UPS_ERR_FORMAT where it holds nothing that could be
 * fields. */
ups_status ups_suggest_layout(const char *const *paths, int64_t count, char **yaml, ups_error *error);

#endif
