#include "base/system/program.h"

#include <limits.h>
#include <sys/types.h>
#include <unistd.h>

bool ups_program_path(char *path) {
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (length <= 0) return false;
    path[length] = '\0';
    return true;
}
