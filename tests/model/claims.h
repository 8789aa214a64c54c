/* For tests: claims, which are run in the order they stand in; calls that must succeed, and calls that must be refused
 * with a reason.
 *
 *     CLAIM(a_file_is_read_as_it_was_written) {
 *         ok(write(path, &failure));
 *         refused(read(other, &failure), UPS_ERR_IO, "No such file");
 *     }
 *     int main(void) {
 *         return run_claims(make_scratch, remove_scratch, NULL);
 *     } */
#ifndef UPS_TESTS_MODEL_CLAIMS_H
#define UPS_TESTS_MODEL_CLAIMS_H

#include "base/error.h"
#include "tests/base/testing.h"

enum { MOST_CLAIMS = 64 };
static struct CMUnitTest claims[MOST_CLAIMS];
static int claim_lines[MOST_CLAIMS], claim_count;

/* Constructors of a program come in no order that is promised. */
static inline void enter_claim(const char *name, CMUnitTestFunction test, int line) {
    int at = claim_count++;
    if (claim_count > MOST_CLAIMS) abort();
    for (; at > 0 && claim_lines[at - 1] > line; at--) {
        claims[at] = claims[at - 1];
        claim_lines[at] = claim_lines[at - 1];
    }
    claims[at] = (struct CMUnitTest){.name = name, .test_func = test};
    claim_lines[at] = line;
}

#define CLAIM(claim)                                                                                                   \
    static void claim(void **state);                                                                                   \
    __attribute__((constructor)) static void enter_##claim(void) {                                                     \
        enter_claim(#claim, claim, __LINE__);                                                                          \
    }                                                                                                                  \
    static void claim(void **state)

/* All claims of the file. Fixtures are called where their names say; NULL is fine. */
static inline int run_claims(int (*before_all)(void **state), int (*after_all)(void **state),
                             int (*after_each)(void **state)) {
    struct CMUnitTest tests[claim_count];
    for (int i = 0; i < claim_count; i++) {
        tests[i] = claims[i];
        tests[i].teardown_func = after_each;
    }
    return cmocka_run_group_tests(tests, before_all, after_all);
}

static _Thread_local ups_error failure __attribute__((unused)); /* of this thread's last call that failed */

#define ok(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != UPS_OK) fail_msg("%s", failure.message);                                                         \
    } while (0)

/* The call ends with `status`, and its message contains each of the texts that follow. */
#define refused(call, status, ...)                                                                                     \
    do {                                                                                                               \
        const char *const wanted[] = {__VA_ARGS__};                                                                    \
        failure.message[0] = '\0';                                                                                     \
        assert_int_equal((call), (status));                                                                            \
        for (size_t n = 0; n < sizeof wanted / sizeof *wanted; n++) assert_contains(failure.message, wanted[n]);       \
    } while (0)

#endif
