#include "tools/commands/cache/operand.h"

#include "train/config/load.h"
#include "train/run/own.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool ups_operand_is_run(const char *operand) {
    struct stat info;
    return (stat(operand, &info) == 0 && S_ISREG(info.st_mode)) || ups_run_is_there(operand);
}

ups_status ups_operand_cache(const char *operand, const char *const *overrides, size_t override_count, char **directory,
                             ups_error *error) {
    ups_run_config *config = NULL;
    if (ups_operand_is_run(operand)) {
        UPS_TRY(ups_run_config_load(operand, overrides, override_count, &config, error));
        *directory = ups_run_cache_directory(config);
        ups_run_config_free(config);
    } else {
        *directory = strdup(operand);
    }
    return *directory ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
}
