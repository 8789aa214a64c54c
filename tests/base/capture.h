/* Standard error, caught while a test runs: in a file, or on a pseudo-terminal of a given width. */
#ifndef UPS_TESTS_BASE_CAPTURE_H
#define UPS_TESTS_BASE_CAPTURE_H

#include "testing.h"

#include <fcntl.h>
#include <pty.h>
#include <stdbool.h>

typedef struct capture {
    int standard_error; /* the real one */
    int source;         /* where the caught text is read from */
    bool terminal;
} capture;

static inline capture capture_begin(int terminal_columns) { /* 0: not a terminal */
    capture c = {.terminal = terminal_columns > 0};
    setenv("TERM", "xterm", 1);
    int target = -1;
    fflush(stderr);
    c.standard_error = dup(STDERR_FILENO);
    if (c.terminal) {
        struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)terminal_columns};
        assert_int_equal(openpty(&c.source, &target, NULL, NULL, &size), 0);
    } else {
        target = open(scratch("stderr"), O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
        c.source = dup(target);
    }
    dup2(target, STDERR_FILENO);
    close(target);
    return c;
}

/* Puts standard error back and returns what was written, NUL-terminated, in static storage. */
static inline const char *capture_end(capture *c) {
    static char text[1 << 16];
    size_t length = 0;
    if (c->terminal)
        fcntl(c->source, F_SETFL, O_NONBLOCK);
    else
        lseek(c->source, 0, SEEK_SET);
    for (ssize_t got; (got = read(c->source, text + length, sizeof text - 1 - length)) > 0;) length += (size_t)got;
    text[length] = '\0';
    dup2(c->standard_error, STDERR_FILENO);
    close(c->standard_error);
    close(c->source);
    return text;
}

static inline int count_of(const char *text, const char *part) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) count++;
    return count;
}

#endif
