/* What the tests of this layer share: cmocka with what it wants included first, a directory of one's own, a look at
 * standard error. */
#ifndef UPS_TESTS_BASE_TESTING_H
#define UPS_TESTS_BASE_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the four above */
#include <cmocka.h>

#include "tests/base/skipping.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char scratch_directory[200];

/* cmocka group fixtures: a fresh directory, removed with the files in it. */
static inline int make_scratch(void **state) {
    const char *base = getenv("TMPDIR");
    snprintf(scratch_directory, sizeof scratch_directory, "%s/ups-test-XXXXXX", base ? base : "/tmp");
    return mkdtemp(scratch_directory) ? 0 : -1;
}

static inline int remove_scratch(void **state) {
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch_directory);
    return system(command);
}

/* The path of `name` in the scratch directory; good until the fourth call after. */
static inline const char *scratch(const char *name) {
    static char paths[4][300];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", scratch_directory, name);
    return path;
}

static inline void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

/* How many entries of a directory contain `part` in their name. */
static inline int count_entries(const char *directory, const char *part) {
    DIR *stream = opendir(directory);
    assert_non_null(stream);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(stream));) count += strstr(entry->d_name, part) != NULL;
    closedir(stream);
    return count;
}

#define assert_contains(text, part)                                                                                    \
    do {                                                                                                               \
        if (!strstr((text), (part))) fail_msg("\"%s\" does not contain \"%s\"", (text), (part));                       \
    } while (0)

#endif
