/* NCCL as the module loads it: the library has all functions that are called, what is declared of it is what NVIDIA's
 * header has, and where it is missing one sentence says what to install. Two programs are made of this file: of the
 * second the library is one that is nowhere. */
#include "model/cuda/libraries/nccl.h"
#include "tests/model/claims.h"
#include <dlfcn.h>
#include <stddef.h>
#if __has_include(<nccl.h>)
#include <nccl.h>
_Static_assert(sizeof(ncclUniqueId) == sizeof(ups_nccl_id), "the identifier");
_Static_assert((int)ncclSuccess == (int)UPS_NCCL_OK, "the result");
_Static_assert((int)ncclFloat32 == (int)UPS_NCCL_FLOAT32, "the type");
_Static_assert((int)ncclInt64 == (int)UPS_NCCL_INT64 && (int)ncclFloat64 == (int)UPS_NCCL_FLOAT64, "other types");
_Static_assert((int)ncclSum == (int)UPS_NCCL_SUM && (int)ncclMax == (int)UPS_NCCL_MAX, "the operations");
/* Functions as the module calls them: enumerations are passed as int. */
#define IS(type, function) _Static_assert(_Generic(&(function), type : 1, default : 0), #function)
IS(ncclResult_t (*)(int *), ncclGetVersion);
IS(ncclResult_t (*)(ncclUniqueId *), ncclGetUniqueId);
IS(ncclResult_t (*)(ncclComm_t *, int, ncclUniqueId, int), ncclCommInitRank);
IS(ncclResult_t (*)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t),
   ncclAllReduce);
IS(ncclResult_t (*)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, cudaStream_t),
   ncclReduce);
IS(ncclResult_t (*)(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t), ncclBroadcast);
IS(ncclResult_t (*)(void), ncclGroupStart);
IS(ncclResult_t (*)(void), ncclGroupEnd);
IS(ncclResult_t (*)(ncclComm_t), ncclCommDestroy);
IS(ncclResult_t (*)(ncclComm_t), ncclCommAbort);
IS(const char *(*)(ncclResult_t), ncclGetErrorString);
IS(const char *(*)(ncclComm_t), ncclGetLastError);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0)
#define HAS_CONFIG
IS(ncclResult_t (*)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *), ncclCommInitRankConfig);
_Static_assert((int)NCCL_CONFIG_UNDEF_INT == (int)UPS_NCCL_UNSAID, "what is left to the library");
#define SAME_PLACE(theirs, ours)                                                                                       \
    _Static_assert(offsetof(ncclConfig_t, theirs) == offsetof(ups_nccl_config, ours), #ours)
SAME_PLACE(size, size);
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);
SAME_PLACE(cgaClusterSize, cluster);
SAME_PLACE(minCTAs, least_blocks);
SAME_PLACE(maxCTAs, most_blocks);
SAME_PLACE(netName, network);
SAME_PLACE(splitShare, split_share);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 26, 0)
SAME_PLACE(trafficClass, traffic_class);
#endif
#endif

#ifdef UPS_TEST_MISSING
CLAIM(a_library_that_is_missing_is_told_of) {
    const ups_nccl *nccl;
    for (int again = 0; again < 2; again++)
        refused(ups_nccl_load(&nccl, &failure), UPS_ERR_UNSUPPORTED, "NCCL cannot be loaded", "libnccl.so.none",
                "nvidia-nccl", "LD_LIBRARY_PATH");
}
#else
CLAIM(a_library_that_is_there_has_all_functions) {
    void *there = dlopen(UPS_NCCL_LIBRARY, RTLD_LAZY);
    if (!there) {
        print_message("there is no %s to look at\n", UPS_NCCL_LIBRARY);
        skip();
    }
    const ups_nccl *nccl;
    int version = 0;
    ok(ups_nccl_load(&nccl, &failure));
    assert_int_equal(nccl->version(&version), UPS_NCCL_OK);
    assert_int_equal(version / 10000, 2);
    assert_string_equal(nccl->error(UPS_NCCL_OK), "no error");
#ifdef NCCL_VERSION_CODE
    assert_true(version >= NCCL_VERSION_CODE);
#endif
#ifdef HAS_CONFIG
    const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
    assert_int_equal(theirs.magic, (unsigned)UPS_NCCL_MAGIC);
#endif
}
#endif

int main(void) {
    return run_claims(NULL, NULL, NULL);
}
