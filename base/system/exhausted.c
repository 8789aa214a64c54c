#include "base/system/exhausted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int code_of_exit = -1; /* set before threads are started */

void ups_exit_when_out_of_memory(int exit_code) {
    code_of_exit = exit_code;
}

void ups_out_of_memory(const char *what, size_t bytes) {
    char line[300], size[40] = "";
    if (bytes > 0) snprintf(size, sizeof size, " (%zu bytes)", bytes);
    snprintf(line, sizeof line,
             "ups: out of memory: %.150s%s could not be had; see `ulimit -v`, and what else runs here\n", what, size);
    if (write(STDERR_FILENO, line, strlen(line)) < 0) line[0] = '\0'; /* nowhere left to complain */
    if (code_of_exit >= 0) _exit(code_of_exit);
    abort();
}
