/* NCCL, as much of it as is called: its functions of version 2, in a table. The module is not linked to it, since one
 * card does without, and headers are not needed, which toolkits come without; tests hold these declarations against
 * NVIDIA's. */
#ifndef UPS_MODEL_CUDA_LIBRARIES_NCCL_H
#define UPS_MODEL_CUDA_LIBRARIES_NCCL_H

#include "base/error.h"
#include <cuda_runtime_api.h>
#include <limits.h>

enum { UPS_NCCL_OK = 0, UPS_NCCL_ID = 128 };
enum { UPS_NCCL_INT64 = 4, UPS_NCCL_FLOAT32 = 7, UPS_NCCL_FLOAT64 = 8 }; /* types */
enum { UPS_NCCL_SUM = 0, UPS_NCCL_MAX = 2 };                             /* operations */

typedef struct ups_nccl_id {
    char internal[UPS_NCCL_ID];
} ups_nccl_id;

/* As of version 2.17; later ones read as much of it as `size` says. */
enum { UPS_NCCL_MAGIC = (int)0xcafebeef, UPS_NCCL_CONFIG_VERSION = 21700, UPS_NCCL_UNSAID = INT_MIN };
typedef struct ups_nccl_config {
    size_t size;
    int magic, version;
    int blocking, cluster, least_blocks, most_blocks;
    const char *network;
    int split_share, traffic_class; /* what 2.26 reads where earlier ones have padding */
} ups_nccl_config;

typedef struct ups_nccl {
    int (*version)(int *version); /* 22707: 2.27.7 */
    int (*unique_id)(ups_nccl_id *id);
    int (*init_rank)(void **comm, int ranks, ups_nccl_id id, int rank);
    /* NULL before version 2.14; knows blocks since UPS_NCCL_CONFIG_VERSION */
    int (*init_rank_config)(void **comm, int ranks, ups_nccl_id id, int rank, ups_nccl_config *config);
    int (*all_reduce)(const void *from, void *to, size_t count, int type, int operation, void *comm,
                      cudaStream_t stream);
    int (*reduce)(const void *from, void *to, size_t count, int type, int operation, int root, void *comm,
                  cudaStream_t stream);
    int (*broadcast)(const void *from, void *to, size_t count, int type, int root, void *comm, cudaStream_t stream);
    int (*group_start)(void); /* what is called until its end is issued as one */
    int (*group_end)(void);
    int (*destroy)(void *comm);
    int (*abort)(void *comm);
    const char *(*error)(int result);
    const char *(*last_error)(void *comm);
} ups_nccl;

/* Loads libnccl.so.2, once: from LD_LIBRARY_PATH, beside the module, where the toolkit was, of the system, or of
 * PyTorch's packages; or says what to install. Programs over the emulated runtime have a function of their own. */
ups_status ups_nccl_load(const ups_nccl **nccl, ups_error *error);

#endif
