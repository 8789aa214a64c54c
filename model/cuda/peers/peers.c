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
    cudaStream_t stream; /* of what is exchanged */
    cudaEvent_t reached; /* by a stream that the other one waits for */
    bool unfinished;     /* none is over yet, or one is under way that the compute stream does not wait for */
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

/* Exchanges go first where a card has room for them or for a product: others wait for them. */
static ups_status open_stream(ups_peers *peers, ups_error *error) {
    int least, greatest;
    UPS_TRY(ups_cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities", error));
    UPS_TRY(ups_cuda_check(cudaStreamCreateWithPriority(&peers->stream, cudaStreamNonBlocking, greatest),
                           "making a stream", error));
    return ups_cuda_check(cudaEventCreateWithFlags(&peers->reached, cudaEventDisableTiming), "making an event", error);
}

static void leave(ups_device *device, ups_peers *peers) {
    if (!peers) return;
    if (peers->comm && !peers->unfinished && device->class->synchronize(device, NULL) == UPS_OK)
        peers->nccl->destroy(peers->comm);
    else if (peers->comm)
        peers->nccl->abort(peers->comm); /* others may be gone, for whom it would wait */
    if (peers->reached) cudaEventDestroy(peers->reached);
    if (peers->stream) cudaStreamDestroy(peers->stream);
    free(peers);
}

/* All is left to the library but how many of its blocks run at once. */
static ups_status init_rank(const ups_nccl *nccl, const ups_peers_place *place, void **comm, ups_error *error) {
    static const char doing[] = "joining the cards";
    ups_nccl_id id;
    int version = 0;
    memcpy(&id, place->name, sizeof id);
    if (place->most_blocks == 0) return check(nccl, nccl->init_rank(comm, place->size, id, place->rank), doing, error);
    if (nccl->version(&version) != UPS_NCCL_OK || version < UPS_NCCL_CONFIG_VERSION || !nccl->init_rank_config)
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "NCCL takes a bound of its blocks (ranks.blocks) since 2.17");
    ups_nccl_config config = {.size = sizeof config,
                              .magic = UPS_NCCL_MAGIC,
                              .version = UPS_NCCL_CONFIG_VERSION,
                              .blocking = UPS_NCCL_UNSAID,
                              .cluster = UPS_NCCL_UNSAID,
                              .least_blocks = UPS_NCCL_UNSAID,
                              .most_blocks = place->most_blocks,
                              .split_share = UPS_NCCL_UNSAID,
                              .traffic_class = UPS_NCCL_UNSAID};
    return check(nccl, nccl->init_rank_config(comm, place->size, id, place->rank, &config), doing, error);
}

static ups_status join(ups_device *device, const ups_peers_place *place, ups_peers **peers, ups_error *error) {
    const ups_nccl *nccl;
    UPS_TRY(ups_nccl_load(&nccl, error));
    ups_peers *joined = calloc(1, sizeof *joined);
    if (!joined) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    joined->nccl = nccl;
    joined->unfinished = true;
    ups_status status = init_rank(nccl, place, &joined->comm, error);
    if (status == UPS_OK) status = open_stream(joined, error); /* after what the others wait in */
    if (status == UPS_OK)
        *peers = joined;
    else
        leave(device, joined);
    return status;
}

/* ---- exchanges --------------------------------------------------------------------------------------------------- */

static ups_status wait_for(ups_peers *peers, cudaStream_t waits, cudaStream_t other, ups_error *error) {
    UPS_TRY(ups_cuda_check(cudaEventRecord(peers->reached, other), "recording an event", error));
    return ups_cuda_check(cudaStreamWaitEvent(waits, peers->reached, 0), "waiting for an event", error);
}

static ups_status begin(ups_device *device, ups_peers *peers, ups_error *error) {
    peers->unfinished = true;
    UPS_TRY(wait_for(peers, peers->stream, ups_cuda_stream(device), error));
    return check(peers->nccl, peers->nccl->group_start(), "beginning an exchange", error);
}

static ups_status end(ups_device *device, ups_peers *peers, ups_error *error) {
    return check(peers->nccl, peers->nccl->group_end(), "an exchange of cards", error);
}

static ups_status finish(ups_device *device, ups_peers *peers, ups_error *error) {
    UPS_TRY(wait_for(peers, ups_cuda_stream(device), peers->stream, error));
    peers->unfinished = false;
    return UPS_OK;
}

static ups_status sum(ups_device *device, ups_peers *peers, float *values, int64_t count, ups_error *error) {
    const int code = peers->nccl->all_reduce(values, values, (size_t)count, UPS_NCCL_FLOAT32, UPS_NCCL_SUM, peers->comm,
                                             peers->stream);
    return check(peers->nccl, code, "a sum over cards", error);
}

static ups_status sum_at(ups_device *device, ups_peers *peers, float *values, int64_t count, int rank,
                         ups_error *error) {
    const int code = peers->nccl->reduce(values, values, (size_t)count, UPS_NCCL_FLOAT32, UPS_NCCL_SUM, rank,
                                         peers->comm, peers->stream);
    return check(peers->nccl, code, "a sum over cards", error);
}

static ups_status spread(ups_device *device, ups_peers *peers, float *values, int64_t count, int rank,
                         ups_error *error) {
    const int code =
        peers->nccl->broadcast(values, values, (size_t)count, UPS_NCCL_FLOAT32, rank, peers->comm, peers->stream);
    return check(peers->nccl, code, "what one card tells the others", error);
}

static ups_status add_results(ups_device *device, ups_peers *peers, ups_update_result *r, ups_error *error) {
    const struct {
        void *values; /* of the card: their addresses alone are taken here */
        size_t count;
        int type, operation;
    } parts[] = {{r->loss, UPS_UPDATE_MAX_TASKS, UPS_NCCL_FLOAT64, UPS_NCCL_SUM},
                 {r->windows, UPS_UPDATE_MAX_TASKS, UPS_NCCL_INT64, UPS_NCCL_SUM},
                 {r->part, UPS_UPDATE_MAX_LOSSES, UPS_NCCL_FLOAT64, UPS_NCCL_SUM},
                 {r->part_windows, UPS_UPDATE_MAX_LOSSES, UPS_NCCL_INT64, UPS_NCCL_SUM},
                 {&r->bad_micro_batch, 1, UPS_NCCL_INT64, UPS_NCCL_MAX},
                 {&r->squared_norm, 1, UPS_NCCL_FLOAT64, UPS_NCCL_SUM},
                 {&r->non_finite, 1, UPS_NCCL_INT64, UPS_NCCL_SUM}};
    int code = UPS_NCCL_OK;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && code == UPS_NCCL_OK; i++)
        code = peers->nccl->all_reduce(parts[i].values, parts[i].values, parts[i].count, parts[i].type,
                                       parts[i].operation, peers->comm, peers->stream);
    return check(peers->nccl, code, "the sum of losses", error);
}

/* ---- the library ------------------------------------------------------------------------------------------------- */

static ups_status library(char *text, size_t bytes, ups_error *error) {
    const ups_nccl *nccl;
    int version = 0;
    UPS_TRY(ups_nccl_load(&nccl, error));
    UPS_TRY(check(nccl, nccl->version(&version), "telling its version", error));
    snprintf(text, bytes, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return UPS_OK;
}

const ups_peers_class ups_cuda_peers = {.meet = meet,
                                        .join = join,
                                        .begin = begin,
                                        .end = end,
                                        .sum = sum,
                                        .sum_at = sum_at,
                                        .spread = spread,
                                        .add_results = add_results,
                                        .finish = finish,
                                        .leave = leave,
                                        .library = library};
