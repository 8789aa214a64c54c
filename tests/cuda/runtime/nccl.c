/* The calls of NCCL that exchange gradients and weights, among processes with an emulated card each: they meet in
 * shared memory. An exchange is work of a stream like any other, done when the host waits for it; a sum begins with the
 * last rank, since the order is the library's. Ranks that ask for something else than each other are stopped, where the
 * real ones would hang.
 *
 * EMULATED_NCCL=missing: the library is not there; duplicate: it refuses to join, as it does where two processes have
 * one card; blocks: it wants to be told of five; old: it says that
 * it is 2.16, which takes no bound of them. */
#include "model/cuda/libraries/nccl.h"
#include "tests/cuda/runtime/runtime.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 8, CHUNK = 1 << 16, PATIENCE = 120 /* seconds */, INVALID_ARGUMENT = 4, INVALID_USAGE = 5 };

/* What a rank asks for: all have to ask for the same. */
typedef enum exchange_kind { SUM, SUM_AT_ROOT, SPREAD } exchange_kind;
typedef struct request {
    exchange_kind kind;
    int root, type, operation;
    size_t count;
} request;

typedef struct meeting {
    atomic_llong arrived;
    request asked[MOST_RANKS];
    double part[MOST_RANKS][CHUNK]; /* of any type */
} meeting;

typedef struct communicator {
    meeting *shared;
    int rank, size;
    long long passed; /* barriers */
    bool aborted;
} communicator;

typedef struct exchange {
    communicator *comm;
    request request;
    const char *from;
    char *to;
    emulated_caller caller;
} exchange;

static const char *refused = "";

static int version(int *number) {
    const char *says = getenv("EMULATED_NCCL");
    *number = says && strcmp(says, "old") == 0 ? 21605 : 22707;
    return UPS_NCCL_OK;
}

static int unique_id(ups_nccl_id *id) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/ups-nccl-%d-%lld", (int)getpid(),
             (long long)now.tv_sec * 1000000000 + now.tv_nsec);
    return UPS_NCCL_OK;
}

/* Waits for all ranks; false where they do not come. */
static bool meet(communicator *comm) {
    const long long last = ++comm->passed * comm->size;
    atomic_fetch_add(&comm->shared->arrived, 1);
    for (int64_t tries = 0; atomic_load(&comm->shared->arrived) < last; tries++) {
        if (tries > (int64_t)PATIENCE * 10000) return false;
        nanosleep(&(struct timespec){0, 100000}, NULL);
    }
    return true;
}

static int init_rank(void **made, int ranks, ups_nccl_id id, int rank) {
    const char *says = getenv("EMULATED_NCCL");
    if (ranks > MOST_RANKS || (says && strcmp(says, "duplicate") == 0)) {
        refused = "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000";
        return INVALID_USAGE;
    }
    const int file = shm_open(id.internal, O_CREAT | O_RDWR, 0600);
    communicator *comm = calloc(1, sizeof *comm);
    if (file < 0 || !comm || ftruncate(file, sizeof *comm->shared) != 0) simt_fail(NULL, "no shared memory for NCCL");
    comm->shared = mmap(NULL, sizeof *comm->shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (comm->shared == MAP_FAILED) simt_fail(NULL, "no shared memory for NCCL");
    comm->rank = rank;
    comm->size = ranks;
    const bool met = meet(comm);
    if (rank == 0) shm_unlink(id.internal);
    if (!met) simt_fail(NULL, "NCCL: another rank did not join");
    *made = comm;
    return UPS_NCCL_OK;
}

/* Refuses what the library does, and with EMULATED_NCCL=blocks any other number of them than five. */
static int init_rank_config(void **made, int ranks, ups_nccl_id id, int rank, ups_nccl_config *config) {
    const char *says = getenv("EMULATED_NCCL");
    const int others[] = {config->blocking, config->cluster, config->least_blocks, config->split_share,
                          config->traffic_class};
    bool right = config->size == sizeof *config && config->magic == UPS_NCCL_MAGIC && config->version >= 21700;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) right = right && others[i] == UPS_NCCL_UNSAID;
    if (!right || config->network || config->most_blocks < 1 || config->most_blocks > 64) {
        refused = "Invalid config attributes";
        return INVALID_ARGUMENT;
    }
    if (says && strcmp(says, "blocks") == 0) {
        refused = "Other numbers of blocks than five are refused here";
        if (config->most_blocks != 5) return INVALID_ARGUMENT;
    }
    return init_rank(made, ranks, id, rank);
}

static size_t size_of(int type) {
    return type == UPS_NCCL_FLOAT32 ? sizeof(float) : sizeof(int64_t);
}

static void *reach(uint32_t work, const exchange *e, const char *memory, size_t bytes, bool write) {
    const char *wrong;
    void *found = simt_memory_reach(work, (uint64_t)(uintptr_t)memory, bytes, write, &wrong);
    if (!found)
        simt_fail(NULL, "%s: an exchange of cards %s %zu bytes: %s", emulated_caller_describe(&e->caller),
                  write ? "writes" : "reads", bytes, wrong);
    return found;
}

static void wait_for_all(const exchange *e) {
    if (!meet(e->comm))
        simt_fail(NULL, "%s: an exchange of cards: another rank did not come", emulated_caller_describe(&e->caller));
}

/* In the order of ranks from the last to the first. */
#define COMBINE(type)                                                                                                  \
    for (size_t i = 0; i < count; i++) {                                                                               \
        type total = ((const type *)shared->part[ranks - 1])[i];                                                       \
        for (int other = ranks - 2; other >= 0; other--) {                                                             \
            const type term = ((const type *)shared->part[other])[i];                                                  \
            if (of.operation == UPS_NCCL_SUM)                                                                          \
                total += term;                                                                                         \
            else if (total < term)                                                                                     \
                total = term;                                                                                          \
        }                                                                                                              \
        ((type *)to)[i] = total;                                                                                       \
    }

static void combine(const meeting *shared, int ranks, request of, size_t count, void *to) {
    if (of.type == UPS_NCCL_FLOAT32) {
        COMBINE(float)
    } else if (of.type == UPS_NCCL_FLOAT64) {
        COMBINE(double)
    } else {
        COMBINE(int64_t)
    }
}

/* Memory that takes no part is not looked at: where a sum is another rank's, that is where it would be written. */
static void exchange_chunk(uint32_t work, const exchange *e, size_t at, size_t count) {
    meeting *shared = e->comm->shared;
    const request of = e->request;
    const size_t size = size_of(of.type);
    const bool is_root = e->comm->rank == of.root;
    if (of.kind != SPREAD || is_root)
        memcpy(shared->part[e->comm->rank], reach(work, e, e->from + at * size, count * size, false), count * size);
    wait_for_all(e);
    if (of.kind == SPREAD)
        memcpy(reach(work, e, e->to + at * size, count * size, true), shared->part[of.root], count * size);
    else if (of.kind == SUM || is_root)
        combine(shared, e->comm->size, of, count, reach(work, e, e->to + at * size, count * size, true));
    wait_for_all(e);
}

static void run(uint32_t work, const void *owned) {
    const exchange *e = owned;
    if (e->comm->aborted) return;
    meeting *shared = e->comm->shared;
    const request own = e->request;
    shared->asked[e->comm->rank] = own;
    wait_for_all(e);
    for (int other = 0; other < e->comm->size; other++) {
        const request *theirs = &shared->asked[other];
        if (memcmp(theirs, &own, sizeof own) != 0)
            simt_fail(NULL, "%s: an exchange of cards of %zu numbers (kind %d, root %d), on rank %d of %zu (%d, %d)",
                      emulated_caller_describe(&e->caller), own.count, own.kind, own.root, other, theirs->count,
                      theirs->kind, theirs->root);
    }
    wait_for_all(e);
    for (size_t at = 0; at < own.count; at += CHUNK)
        exchange_chunk(work, e, at, own.count - at < CHUNK ? own.count - at : CHUNK);
}

static int issue(const void *from, void *to, request asked, void *made, cudaStream_t stream) {
    communicator *comm = made;
    if (asked.type != UPS_NCCL_FLOAT32 && asked.type != UPS_NCCL_FLOAT64 && asked.type != UPS_NCCL_INT64)
        simt_fail(NULL, "NCCL: type %d is not emulated", asked.type);
    if (asked.operation != UPS_NCCL_SUM && asked.operation != UPS_NCCL_MAX)
        simt_fail(NULL, "NCCL: operation %d is not emulated", asked.operation);
    if (asked.root < 0 || asked.root >= comm->size) {
        refused = "Invalid root";
        return INVALID_ARGUMENT;
    }
    emulated_body *body = emulated_body_create(EMULATED_CALL);
    exchange *e = malloc(sizeof *e);
    if (!e) simt_fail(NULL, "no memory for a piece of work");
    *e = (exchange){.comm = comm, .request = asked, .from = from, .to = to, .caller = body->caller};
    body->owned = e;
    body->call = run;
    body->name = "an exchange of cards";
    emulated_work *issued;
    return emulated_issue(stream, body, &issued) == cudaSuccess ? UPS_NCCL_OK : INVALID_USAGE;
}

static int all_reduce(const void *from, void *to, size_t count, int type, int operation, void *comm,
                      cudaStream_t stream) {
    EMULATED_CALL_BEGINS();
    return issue(from, to, (request){SUM, 0, type, operation, count}, comm, stream);
}

static int reduce(const void *from, void *to, size_t count, int type, int operation, int root, void *comm,
                  cudaStream_t stream) {
    EMULATED_CALL_BEGINS();
    return issue(from, to, (request){SUM_AT_ROOT, root, type, operation, count}, comm, stream);
}

static int broadcast(const void *from, void *to, size_t count, int type, int root, void *comm, cudaStream_t stream) {
    EMULATED_CALL_BEGINS();
    return issue(from, to, (request){SPREAD, root, type, UPS_NCCL_SUM, count}, comm, stream);
}

/* Of a group all may come at any time until its end, or later, as of single calls: these are issued as they come. */
static int groups;

static int group_start(void) {
    groups++;
    return UPS_NCCL_OK;
}

static int group_end(void) {
    if (groups > 0) {
        groups--;
        return UPS_NCCL_OK;
    }
    refused = "ncclGroupEnd: not in a group call";
    return INVALID_USAGE;
}

static int destroy(void *made) {
    communicator *comm = made;
    if (groups > 0) simt_fail(NULL, "NCCL: a group of calls was not ended");
    munmap(comm->shared, sizeof *comm->shared);
    free(comm);
    return UPS_NCCL_OK;
}

/* What was issued and has not run looks at it later. */
static int abort_all(void *made) {
    communicator *comm = made;
    if (groups > 0) simt_fail(NULL, "NCCL: a group of calls was not ended");
    comm->aborted = true;
    return UPS_NCCL_OK;
}

static const char *error(int result) {
    return result == UPS_NCCL_OK ? "no error" : "invalid usage (run with NCCL_DEBUG=WARN for details)";
}

static const char *last_error(void *comm) {
    return refused;
}

ups_status ups_nccl_load(const ups_nccl **nccl, ups_error *failure) {
    static const ups_nccl library = {.version = version,
                                     .unique_id = unique_id,
                                     .init_rank = init_rank,
                                     .init_rank_config = init_rank_config,
                                     .all_reduce = all_reduce,
                                     .reduce = reduce,
                                     .broadcast = broadcast,
                                     .group_start = group_start,
                                     .group_end = group_end,
                                     .destroy = destroy,
                                     .abort = abort_all,
                                     .error = error,
                                     .last_error = last_error};
    const char *says = getenv("EMULATED_NCCL");
    *nccl = &library;
    if (says && strcmp(says, "missing") == 0)
        return ups_fail(failure, UPS_ERR_UNSUPPORTED, "NCCL cannot be loaded (it is missing)");
    return UPS_OK;
}
