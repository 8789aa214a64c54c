#include "base/system/program.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
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

/* The shared library that this code is in; false where it is in the program, whose name the loader leaves empty. */
static bool library_path(char *path) {
    Dl_info told;
    struct link_map *object = NULL;
    if (!dladdr1((void *)ups_program_find_module, &told, (void **)&object, RTLD_DL_LINKMAP)) return false;
    return object && object->l_name[0] && realpath(object->l_name, path);
}

/* `origin` is a file; the folders are told from its own. */
static bool look_from(const char *origin, const char *const *folders, size_t count, const char *file, char *path) {
    const char *slash = strrchr(origin, '/');
    for (size_t i = 0; slash && i < count; i++) {
        const int length = snprintf(path, PATH_MAX, "%.*s/%s/%s", (int)(slash - origin), origin, folders[i], file);
        if (length < PATH_MAX && access(path, R_OK) == 0) return true;
    }
    return false;
}

bool ups_program_find_module(const char *variable, const char *file, const char *built, char *path) {
    static const char *const of_library[] = {".", "ups", "../ups"}; /* the last from lib/x86_64-linux-gnu */
    const char *const of_program[] = {".", "../lib/ups", built};
    const char *named = getenv(variable);
    char origin[PATH_MAX];
    if (named && *named) return snprintf(path, PATH_MAX, "%s", named) < PATH_MAX;
    if (library_path(origin) && look_from(origin, of_library, sizeof of_library / sizeof *of_library, file, path))
        return true;
    return ups_program_path(origin) &&
           look_from(origin, of_program, sizeof of_program / sizeof *of_program, file, path);
}
