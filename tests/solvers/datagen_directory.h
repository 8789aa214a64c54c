/* For tests of `ups datagen`: a directory of one's own, nothing cancelled, nothing shown. */
#ifndef UPS_TESTS_SOLVERS_DATAGEN_DIRECTORY_H
#define UPS_TESTS_SOLVERS_DATAGEN_DIRECTORY_H

#include "base/progress.h"
#include "base/system/cancel.h"
#include "tests/base/testing.h"

static inline int make_directory(void **state) {
    ups_progress_enable(false);
    ups_cancel_reset();
    return make_scratch(state);
}

static inline int remove_directory(void **state) {
    ups_cancel_reset();
    return remove_scratch(state);
}

#define in_a_directory(claim) cmocka_unit_test_setup_teardown(claim, make_directory, remove_directory)

/* How many files are in it. */
static inline int entries(void) {
    return count_entries(scratch_directory, "") - 2; /* without . and .. */
}

#endif
