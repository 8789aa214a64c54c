/* The configuration of a run, with its overrides (fuzz_config.h): all keys that `ups config keys` lists. */
#include "tests/fuzz/fuzz_config.h"

#include "train/config/config.h"
#include "train/config/load.h"

static ups_status load(const char *path, const char *const *overrides, size_t count, void **config, ups_error *error) {
    return ups_run_config_load(path, overrides, count, (ups_run_config **)config, error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_configuration(data, size, &ups_run_schema, load);
    return 0;
}
