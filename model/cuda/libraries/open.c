#include "model/cuda/libraries/open.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void *ups_cuda_open_library(const char *file, const char *folder) {
    void *found = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (found) return found;
    static const char here;
    Dl_info module;
    char path[PATH_MAX];
    if (!dladdr(&here, &module)) return NULL;
    const char *slash = strrchr(module.dli_fname, '/');
    if (!slash || slash == module.dli_fname) return NULL;
    const int length = snprintf(path, sizeof path, "%.*s/../../../nvidia/%s/lib/%s", (int)(slash - module.dli_fname),
                                module.dli_fname, folder, file);
    return length < PATH_MAX && access(path, R_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}
