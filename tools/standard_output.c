/* `stdout` is replaced by a stream that escapes what passes through it, so that no command has to think of it: a name
 * may come from any file, and reaches the terminal through any printf. The C library lets programs set `stdout`. */
#include "tools/standard_output.h"

#include "base/printable.h"
#include "tools/command.h"
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char unfinished[8]; /* the beginning of a character, or of a colour, whose end is yet to come */
static size_t unfinished_length;
static int reason; /* errno of the first write that failed */

static bool write_whole(const char *text, size_t length) {
    while (length > 0) {
        ssize_t written = write(STDOUT_FILENO, text, length);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            if (reason == 0) reason = written < 0 ? errno : ENOSPC;
            return false;
        }
        text += written;
        length -= (size_t)written;
    }
    return true;
}

/* The colours that `ups doctor` uses. */
static const char *const colours[] = {"\033[0m", "\033[31m", "\033[32m", "\033[33m"};

static bool begins_a_colour(const char *text, size_t length) {
    for (size_t i = 0; i < sizeof colours / sizeof *colours; i++) {
        if (length < strlen(colours[i]) && memcmp(text, colours[i], length) == 0) return true;
    }
    return false;
}

static size_t colour_length(const char *text, size_t length) {
    for (size_t i = 0; i < sizeof colours / sizeof *colours; i++) {
        const size_t bytes = strlen(colours[i]);
        if (length >= bytes && memcmp(text, colours[i], bytes) == 0) return bytes;
    }
    return 0;
}

static bool write_escaped(const char *text, size_t length) {
    char out[256 * UPS_PRINTABLE_ROOM + 1];
    for (size_t at = 0; at < length;) {
        size_t colour = colour_length(text + at, length - at);
        if (colour > 0 && !write_whole(text + at, colour)) return false;
        at += colour;
        if (colour > 0) continue;
        const char *next = memchr(text + at + 1, '\033', length - at - 1);
        size_t end = next ? (size_t)(next - text) : length;
        if (!write_whole(out, ups_printable(text + at, end - at, out, sizeof out))) return false;
        at = end;
    }
    return true;
}

static ssize_t write_stream(void *cookie, const char *text, size_t length) {
    char piece[256];
    for (size_t at = 0; at < length;) {
        memcpy(piece, unfinished, unfinished_length);
        size_t have = unfinished_length, more = sizeof piece - have;
        if (more > length - at) more = length - at;
        memcpy(piece + have, text + at, more);
        at += more;
        have += more;
        unfinished_length = 0;
        for (size_t back = 1; back < sizeof unfinished && back <= have; back++) {
            const char *end = piece + have - back;
            if (ups_utf8_length(end, back) < 0 || begins_a_colour(end, back)) unfinished_length = back;
        }
        have -= unfinished_length;
        memcpy(unfinished, piece + have, unfinished_length);
        if (!write_escaped(piece, have)) return 0;
    }
    return (ssize_t)length;
}

void ups_standard_output_begin(void) {
    FILE *stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_stream});
    if (!stream) return; /* no memory: all goes as it is */
    if (isatty(STDOUT_FILENO)) setvbuf(stream, NULL, _IOLBF, 0);
    stdout = stream;
}

int ups_standard_output_end(int exit_code) {
    if (fflush(stdout) == 0) write_escaped(unfinished, unfinished_length);
    unfinished_length = 0;
    if (reason == 0 || reason == EPIPE) return exit_code;
    ups_error error;
    errno = reason;
    ups_fail_errno(&error, "standard output cannot be written");
    return ups_command_fail(NULL, &error);
}
