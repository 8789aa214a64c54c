#include "model/cuda/peers/peers.h"

#include "model/cuda/host.h"
#include "model/cuda/libraries/nccl.h"
#include "model/parameters/shares.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(ups_nccl_id) == UPS_PEERS_NAME, "NCCL's identifier is the name by which cards find each other");

struct ups_peers {
    const ups_nccl *nccl;
    void *comm;
    cudaStream_t stream; /* of what is exchanged */
    cudaEvent_t reached; /* by a stream that the other one waits for */
    bool unfinished;     /* something was begun that the compute stream does not wait for yet */
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

static void release(ups_peers *peers) {
    if (peers->reached) cudaEventDestroy(peers->reached);
    if (peers->stream) cudaStreamDestroy(peers->stream);
    free(peers);
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
    ups_status status = open_stream(joined, error);
    if (status == UPS_OK)
        status = check(nccl, nccl->init_rank(&joined->comm, size, id, rank), "joining the cards", error);
    if (status == UPS_OK)
        *peers = joined;
    else
        release(joined);
    return status;
}

static void leave(ups_device *device, ups_peers *peers) {
    if (!peers) return;
    if (!peers->unfinished && device->class->synchronize(device, NULL) == UPS_OK)
        peers->nccl->destroy(peers->comm);
    else
        peers->nccl->abort(peers->comm); /* others may be gone, for whom it would wait */
    release(peers);
}

/* ---- exchanges --------------------------------------------------------------------------------------------------- */

static ups_status wait_for(ups_peers *peers, cudaStream_t waits, cudaStream_t other, ups_error *error) {
    UPS_TRY(ups_cuda_check(cudaEventRecord(peers->reached, other), "recording an event", error));
    return ups_cuda_check(cudaStreamWaitEvent(waits, peers->reached, 0), "waiting for an event", error);
}

static ups_status begin(ups_device *device, ups_peers *peers, ups_error *error) {
    peers->unfinished = true;
    return wait_for(peers, peers->stream, ups_cuda_stream(device), error);
}

static ups_status finish(ups_device *device, ups_peers *peers, ups_error *error) {
    UPS_TRY(wait_for(peers, ups_cuda_stream(device), peers->stream, error));
    peers->unfinished = false;
    return UPS_OK;
}

static ups_status sum(ups_device *device, ups_peers *peers, float *values, int64_t count, ups_error *error) {
    UPS_TRY(begin(device, peers, error));
    const int code = peers->nccl->all_reduce(values, values, (size_t)count, UPS_NCCL_FLOAT32, UPS_NCCL_SUM, peers->comm,
                                             peers->stream);
    return check(peers->nccl, code, "the sum of gradients", error);
}

/* What is done with a piece of one process's share, which it lies at. */
typedef int piece_exchange(const ups_peers *peers, float *values, int64_t count, int owner);

static int sum_piece(const ups_peers *peers, float *values, int64_t count, int owner) {
    return peers->nccl->reduce(values, values, (size_t)count, UPS_NCCL_FLOAT32, UPS_NCCL_SUM, owner, peers->comm,
                               peers->stream);
}

static int spread_piece(const ups_peers *peers, float *values, int64_t count, int owner) {
    return peers->nccl->broadcast(values, values, (size_t)count, UPS_NCCL_FLOAT32, owner, peers->comm, peers->stream);
}

static ups_status exchange_pieces(ups_device *device, ups_peers *peers, const ups_shares *shares, float *values,
                                  int64_t from, int64_t count, piece_exchange *exchange, const char *doing,
                                  ups_error *error) {
    const int64_t end = from + count;
    UPS_TRY(begin(device, peers, error));
    int code = peers->nccl->group_start();
    for (int32_t p = ups_shares_piece_at(shares, from); p < shares->piece_count && code == UPS_NCCL_OK; p++) {
        const ups_share_piece piece = ups_share_piece_within(shares->pieces[p], from, end);
        if (piece.count <= 0) break;
        code = exchange(peers, values + (piece.offset - from), piece.count, piece.share);
    }
    const int ended = peers->nccl->group_end();
    return check(peers->nccl, code == UPS_NCCL_OK ? ended : code, doing, error);
}

static ups_status reduce_scatter(ups_device *device, ups_peers *peers, const ups_shares *shares, float *values,
                                 int64_t from, int64_t count, ups_error *error) {
    return exchange_pieces(device, peers, shares, values, from, count, sum_piece, "the sum of gradients", error);
}

static ups_status all_gather(ups_device *device, ups_peers *peers, const ups_shares *shares, float *values,
                             int64_t from, int64_t count, ups_error *error) {
    return exchange_pieces(device, peers, shares, values, from, count, spread_piece, "the exchange of weights", error);
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
                                        .sum = sum,
                                        .reduce_scatter = reduce_scatter,
                                        .all_gather = all_gather,
                                        .finish = finish,
                                        .leave = leave,
                                        .library = library};
