/* A simulation file, whatever it is, opened as every command opens it, and its first samples read. */
#ifndef UPS_TESTS_FUZZ_FUZZ_SOURCE_H
#define UPS_TESTS_FUZZ_FUZZ_SOURCE_H

#include "tests/fuzz/fuzz.h"

void fuzz_read_simulation(const uint8_t *bytes, size_t length, bool through_library);

#endif
