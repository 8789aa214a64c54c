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
        printf("SKIPPED %s: ", (claim));                                                                               \
        printf(__VA_ARGS__);                                                                                           \
        printf("\n");                                                                                                  \
        skip();                                                                                                        \
    } while (0)

/* The exit code of a program all of whose tests are skipped, after a line "SKIPPED: reason"; tests/CMakeLists.txt tells
 * CTest so. */
enum { UPS_SKIPPED_EXIT = 77 };

#endif
