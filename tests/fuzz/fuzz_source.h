/* A simulation file, whatever it is, opened as every command opens it, and its first samples read. */
#ifndef UPS_TESTS_FUZZ_FUZZ_SOURCE_H
#define UPS_TESTS_FUZZ_FUZZ_SOURCE_H

#include "tests/fuzz/fuzz.h"

void fuzz_read_simulation(const uint8_t *bytes, size_t length, bool through_library);

/* A file or store that no layout knows: the layout that is suggested for it must be one, and what it makes of the file
 * is read. */
void fuzz_read_suggested(const char *path);

#endif
