#include "model/devices/cuda.h"

#include "base/system/program.h"
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const ups_cuda_module *loaded;
static ups_status result; /* of loading it */
static ups_error reason;
static pthread_once_t once = PTHREAD_ONCE_INIT;

bool ups_cuda_module_path(char *path) {
    return ups_program_find_module("UPS_CUDA_MODULE", "libups_cuda.so", "../model/cuda", path);
}

static ups_status load_file(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return ups_fail(&reason, UPS_ERR_UNSUPPORTED, "the CUDA module cannot be loaded: %s", dlerror());
    ups_cuda_module_get *get = NULL;
    *(void **)&get = dlsym(library, UPS_CUDA_MODULE_ENTRY);
    const ups_cuda_module *module = get ? get() : NULL;
    if (!module || strcmp(module->headers, UPS_CUDA_HEADERS) != 0) {
        dlclose(library);
        return ups_fail(&reason, UPS_ERR_UNSUPPORTED,
                        "%s is of another build than this program; build and install both together", path);
    }
    loaded = module;
    return UPS_OK;
}

static void load(void) {
    char path[PATH_MAX];
    if (!ups_cuda_module_path(path)) {
        result = ups_fail(&reason, UPS_ERR_UNSUPPORTED,
                          "this build has no CUDA: there is no libups_cuda.so beside the program. Run "
                          "tools/install_dependencies cuda, then build UPS again");
        return;
    }
    result = load_file(path);
}

static bool has_driver(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver) dlclose(driver);
    return driver != NULL;
}

ups_status ups_cuda_load(const ups_cuda_module **module, ups_error *error) {
    *module = NULL;
    if (!has_driver()) return ups_fail(error, UPS_ERR_UNSUPPORTED, "there is no NVIDIA driver here (libcuda.so.1)");
    return ups_cuda_load_to_plan(module, error);
}

ups_status ups_cuda_load_to_plan(const ups_cuda_module **module, ups_error *error) {
    pthread_once(&once, load);
    *module = loaded;
    if (result != UPS_OK && error) *error = reason;
    return result;
}
