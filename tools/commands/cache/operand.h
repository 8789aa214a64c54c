/* What commands that look into caches are given: DIR, CONFIG or RUN. One function says which caches that means. */
#ifndef UPS_TOOLS_COMMANDS_CACHE_OPERAND_H
#define UPS_TOOLS_COMMANDS_CACHE_OPERAND_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>

/* Whether `operand` names a run: a file, which is taken for a configuration, or the directory of a run. */
bool ups_operand_is_run(const char *operand);

/* The directory whose caches are meant: that of the run's cache, where the operand names a run, else the operand
 * itself. *directory: free with free(). Errors: those of loading the configuration. */
ups_status ups_operand_cache(const char *operand, const char *const *overrides, size_t override_count, char **directory,
                             ups_error *error);

#endif
