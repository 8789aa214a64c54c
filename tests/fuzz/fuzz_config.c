/* A configuration with every type that schemas may have, with overrides (fuzz_config.h): fewer keys than a run's, and
 * so ten times as fast. */
#include "tests/fuzz/fuzz_config.h"

#include "tests/base/sample_config.h"

static ups_status load(const char *path, const char *const *overrides, size_t count, void **config, ups_error *error) {
    return ups_config_load(path, &sample_schema, overrides, count, config, error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_configuration(data, size, &sample_schema, load);
    return 0;
}
