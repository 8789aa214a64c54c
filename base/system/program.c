#include "base/system/program.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

bool ups_program_path(char *path) {
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (length <= 0) return false;
    path[length] = '\0';
    return true;
}

bool ups_program_find_module(const char *variable, const char *file, const char *built, char *path) {
    const char *const folders[] = {".", "../lib/ups", built};
    const char *named = getenv(variable);
    char program[PATH_MAX];
    if (named && *named) return snprintf(path, PATH_MAX, "%s", named) < PATH_MAX;
    if (!ups_program_path(program)) return false;
    char *end = strrchr(program, '/');
    if (!end) return false;
    *end = '\0';
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const int length = snprintf(path, PATH_MAX, "%s/%s/%s", program, folders[i], file);
        if (length < PATH_MAX && access(path, R_OK) == 0) return true;
    }
    return false;
}
