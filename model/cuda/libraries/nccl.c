#include "model/cuda/libraries/nccl.h"

#include "model/cuda/libraries/open.h"
#include <dlfcn.h>
#include <pthread.h>

#ifndef UPS_NCCL_LIBRARY /* in tests another's */
#define UPS_NCCL_LIBRARY "libnccl.so.2"
#endif

static ups_nccl library;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static ups_status loaded; /* or why not */
static ups_error reason;

static void *find(void *file, const char *name) {
    void *found = dlsym(file, name);
    if (!found && loaded == UPS_OK)
        loaded = ups_fail(&reason, UPS_ERR_UNSUPPORTED, UPS_NCCL_LIBRARY " has no function %s: it is too old", name);
    return found;
}

static void load(void) {
    void *file = ups_cuda_open_library(UPS_NCCL_LIBRARY, "nccl");
    if (!file) {
        loaded = ups_fail(&reason, UPS_ERR_UNSUPPORTED,
                          "NCCL cannot be loaded (%s): install libnccl2, or NVIDIA's Python package nvidia-nccl-cu13, "
                          "and name the folder of the file in LD_LIBRARY_PATH",
                          dlerror());
        return;
    }
    *(void **)&library.version = find(file, "ncclGetVersion");
    *(void **)&library.unique_id = find(file, "ncclGetUniqueId");
    *(void **)&library.init_rank = find(file, "ncclCommInitRank");
    *(void **)&library.init_rank_config = dlsym(file, "ncclCommInitRankConfig");
    *(void **)&library.all_reduce = find(file, "ncclAllReduce");
    *(void **)&library.reduce = find(file, "ncclReduce");
    *(void **)&library.broadcast = find(file, "ncclBroadcast");
    *(void **)&library.group_start = find(file, "ncclGroupStart");
    *(void **)&library.group_end = find(file, "ncclGroupEnd");
    *(void **)&library.destroy = find(file, "ncclCommDestroy");
    *(void **)&library.abort = find(file, "ncclCommAbort");
    *(void **)&library.error = find(file, "ncclGetErrorString");
    *(void **)&library.last_error = find(file, "ncclGetLastError");
}

ups_status ups_nccl_load(const ups_nccl **nccl, ups_error *error) {
    pthread_once(&once, load);
    *nccl = &library;
    if (loaded != UPS_OK && error) *error = reason;
    return loaded;
}
