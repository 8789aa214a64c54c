/* An HDF5 file: what it contains, where it keeps it, and its samples by extents or through the library. What the HDF5
 * library itself leaks when it gives up on a damaged file is not ours: see README.md. */
#include "tests/fuzz/fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_read_simulation(data, size, false);
    if (size % 4 == 0) fuzz_read_simulation(data, size, true);
    return 0;
}
