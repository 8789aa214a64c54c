/* What the tests of all layers share: cmocka with what it wants included first, a directory of one's own, files, a
 * process of one's own. */
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
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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

static inline void write_bytes(const char *path, const void *bytes, size_t length) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static inline void write_text(const char *path, const char *text) {
    write_bytes(path, text, strlen(text));
}

/* Writes over `length` bytes of a file, from `at` on. */
static inline void write_over(const char *path, size_t at, const void *bytes, size_t length) {
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, bytes, length, (off_t)at), length);
    close(fd);
}

static inline void flip_bit(const char *path, size_t at, unsigned bit) {
    uint8_t byte;
    int fd = open(path, O_RDONLY);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    close(fd);
    byte ^= (uint8_t)(1u << bit);
    write_over(path, at, &byte, 1);
}

/* What `work` returns in a process of its own. */
static inline int exit_code_of(int (*work)(void *context), void *context) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(work(context));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
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

/* cmocka's own takes a NaN, and an infinite difference, for equal. */
static inline void assert_floats_near(float a, float b, float epsilon, const char *file, int line) {
    if (!isfinite(a - b)) {
        print_error("%g is not near %g\n", (double)a, (double)b);
        _fail(file, line);
    }
    _assert_float_equal(a, b, epsilon, file, line);
}
#undef assert_float_equal
#define assert_float_equal(a, b, epsilon)                                                                              \
    assert_floats_near((float)(a), (float)(b), (float)(epsilon), __FILE__, __LINE__)

#define assert_contains(text, part)                                                                                    \
    do {                                                                                                               \
        if (!strstr((text), (part))) fail_msg("\"%s\" does not contain \"%s\"", (text), (part));                       \
    } while (0)

/* `call` fails with this status, and the sentence that it leaves in `error` says `part`. */
#define assert_fails(call, status, error, part)                                                                        \
    do {                                                                                                               \
        const int status_of_call = (int)(call);                                                                        \
        if (status_of_call != (int)(status))                                                                           \
            fail_msg("%s gives %d, not %s: %s", #call, status_of_call, #status,                                        \
                     status_of_call ? (error).message : "no error");                                                   \
        assert_contains((error).message, (part));                                                                      \
    } while (0)

#endif
