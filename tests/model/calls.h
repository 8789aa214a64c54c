/* For tests: calls that must succeed, and calls that must be refused with a reason. They are given `&failure`. */
#ifndef UPS_TESTS_MODEL_CALLS_H
#define UPS_TESTS_MODEL_CALLS_H

#include "base/error.h"
#include "tests/base/testing.h"

static _Thread_local ups_error failure; /* of this thread's last call that failed */

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
