#include "model/cuda/peers/peers.h"

#include "model/cuda/host.h"
#include "model/cuda/libraries/nccl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(ups_nccl_id) == UPS_PEERS_NAME, "NCCL's identifier is the name by which cards find each other");

struct ups_peers {
    const ups_nccl *nccl;
    void *comm;
};

static ups_status check(const ups_nccl *nccl, int code, const char *doing, ups_error *error) {
    if (code == UPS_NCCL_OK) return UPS_OK;
    const char *more = nccl->last_error(NULL); /* in words, where there are some */
    return ups_fail(error, UPS_ERR_UNSUPPORTED, "NCCL: %s failed: %s%s%.300s", doing, nccl->error(code),
                    more && *more ? ": " : "", more ? more : "");
}

static ups_status meet(unsigned char name[UPS_PEERS_NAME], ups_error *error) {
    const ups_nccl *nccl;
    ups_nccl_id id;
    UPS_TRY(ups_nccl_load(&nccl, error));
    UPS_TRY(check(nccl, nccl->unique_id(&id), "looking for a network", error));
    memcpy(name, &id, sizeof id);
    return UPS_OK;
}

static ups_status join(ups_device *device, const unsigned char name[UPS_PEERS_NAME], int rank, int size,
                       ups_peers **peers, ups_error *error) {
    const ups_nccl *nccl;
    ups_nccl_id id;
    UPS_TRY(ups_nccl_load(&nccl, error));
    ups_peers *joined = calloc(1, sizeof *joined);
    if (!joined) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    joined->nccl = nccl;
    memcpy(&id, name, sizeof id);
    const ups_status status = check(nccl, nccl->init_rank(&joined->comm, size, id, rank), "joining the cards", error);
    if (status == UPS_OK) {
        *peers = joined;
    } else {
        free(joined);
    }
    return status;
}

static ups_status sum(ups_device *device, ups_peers *peers, float *values, int64_t count, ups_error *error) {
    const int code = peers->nccl->all_reduce(values, values, (size_t)count, UPS_NCCL_FLOAT32, UPS_NCCL_SUM, peers->comm,
                                             ups_cuda_stream(device));
    return check(peers->nccl, code, "the sum of gradients", error);
}

static void leave(ups_device *device, ups_peers *peers) {
    if (!peers) return;
    if (device->class->synchronize(device, NULL) == UPS_OK)
        peers->nccl->destroy(peers->comm);
    else
        peers->nccl->abort(peers->comm); /* others may be gone, for whom it would wait */
    free(peers);
}

static ups_status library(char *text, size_t bytes, ups_error *error) {
    const ups_nccl *nccl;
    int version = 0;
    UPS_TRY(ups_nccl_load(&nccl, error));
    UPS_TRY(check(nccl, nccl->version(&version), "telling its version", error));
    snprintf(text, bytes, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return UPS_OK;
}

const ups_peers_class ups_cuda_peers = {.meet = meet, .join = join, .sum = sum, .leave = leave, .library = library};
