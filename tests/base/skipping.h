/* Tests that this machine, or this build, cannot run are skipped and say why: tests/run lists what they say before
 * CTest's closing lines. A test that passes although it did not look is worse than one that is missing.
 *
 * Include cmocka.h first. */
#ifndef UPS_TESTS_BASE_SKIPPING_H
#define UPS_TESTS_BASE_SKIPPING_H

#include <stdio.h>

/* Ends the test that calls it; printf's arguments are the reason. */
#define skip_because(...) skip_claim_because(__func__, __VA_ARGS__)

/* Likewise where the function is not the claim's own name. */
#define skip_claim_because(claim, ...)                                                                                 \
    do {                                                                                                               \
        say_skipped((claim), __VA_ARGS__);                                                                             \
        skip();                                                                                                        \
    } while (0)

/* Only says it: the rest of the test goes on. */
#define say_skipped(claim, ...)                                                                                        \
    do {                                                                                                               \
        printf("SKIPPED %s: ", (claim));                                                                               \
        printf(__VA_ARGS__);                                                                                           \
        printf("\n");                                                                                                  \
    } while (0)

/* Defined where a sanitizer watches: what takes time or memory then takes much more, and has an allocator of its own.
 */
#if defined(__has_feature) /* clang's way to ask */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define UPS_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UPS_SANITIZED
#endif

/* The exit code of a program all of whose tests are skipped, after a line "SKIPPED: reason"; tests/CMakeLists.txt tells
 * CTest so. */
enum { UPS_SKIPPED_EXIT = 77 };

#endif
