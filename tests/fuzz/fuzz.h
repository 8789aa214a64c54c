/* What fuzz targets share.
 *
 * A target is one file, fuzz_X.c, with one function: it takes any bytes and must return. Built by clang with
 * -DUPS_FUZZ=ON, libFuzzer calls it with inputs of its own making; built otherwise, replay.c calls it with what lies in
 * corpus/X, as an ordinary test. Nothing of an input may outlive the call, so that each crash can be repeated from its
 * input alone. */
#ifndef UPS_TESTS_FUZZ_FUZZ_H
#define UPS_TESTS_FUZZ_FUZZ_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts with the sentence, which is how a target says that something untrue was found. */
void fuzz_fail(const char *file, int line, const char *sentence) __attribute__((noreturn));
#define FUZZ_CHECK(claim)                                                                                              \
    do {                                                                                                               \
        if (!(claim)) fuzz_fail(__FILE__, __LINE__, #claim);                                                           \
    } while (0)

/* A refusal must tell the user something; returns whether it is none. */
bool fuzz_accepted(ups_status status, const ups_error *error);

/* The start of an input steers the target, one byte a choice; 0 once the input is used up. */
typedef struct fuzz_input {
    const uint8_t *bytes;
    size_t length;
} fuzz_input;
uint8_t fuzz_byte(fuzz_input *input);
int64_t fuzz_from_1_to(fuzz_input *input, int64_t most); /* most ≤ 256 */

/* A file in memory that holds these bytes, until the next call; its name is the same every time. */
const char *fuzz_file(const uint8_t *bytes, size_t length);

/* A directory in memory (where /dev/shm is), removed when the program ends. */
const char *fuzz_directory(void);
/* Writes a file anew, without publishing: the target's own stage, not what is tested. */
void fuzz_write(const char *path, const uint8_t *bytes, size_t length);

/* Exactly so many bytes, so that the address sanitizer sees the first one beyond; aligned to 64. Free with free(). */
void *fuzz_room(size_t bytes);

/* The same without the price of a fresh allocation: there are UPS_FUZZ_ROOMS, each good until it is asked for again. */
enum { UPS_FUZZ_ROOMS = 2 };
void *fuzz_kept_room(int which, size_t bytes);

#endif
