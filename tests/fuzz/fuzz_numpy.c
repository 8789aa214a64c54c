/* An NPY or NPZ file: its header or its directory, and its arrays as the layout that is suggested for them makes
 * samples of them. */
#include "tests/fuzz/fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_read_suggested(fuzz_file(data, size));
    return 0;
}
