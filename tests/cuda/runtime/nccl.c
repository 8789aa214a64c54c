/* The calls of NCCL that sum gradients, among processes with an emulated card each: they meet in shared memory. A sum
 * is work of a stream like any other, done when the host waits for it, and begins with the last rank, since the order
 * is the library's. Ranks that ask for sums of other lengths than each other are stopped, where the real ones would
 * hang.
 *
 * EMULATED_NCCL=missing: the library is not there; duplicate: it refuses to join, as it does where two processes have
 * one card. */
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

enum { MOST_RANKS = 8, CHUNK = 1 << 16, PATIENCE = 120 /* seconds */, INVALID_USAGE = 5 };

typedef struct meeting {
    atomic_llong arrived;
    size_t count[MOST_RANKS];
    float part[MOST_RANKS][CHUNK];
} meeting;

typedef struct communicator {
    meeting *shared;
    int rank, size;
    long long passed; /* barriers */
} communicator;

typedef struct sum {
    communicator *comm;
    const float *from;
    float *to;
    size_t count;
    emulated_caller caller;
} sum;

static const char *refused = "";

static int version(int *number) {
    *number = 22707;
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

static float *reach(uint32_t work, const sum *s, const float *memory, size_t count, bool write) {
    const char *wrong;
    float *found = simt_memory_reach(work, (uint64_t)(uintptr_t)memory, count * sizeof(float), write, &wrong);
    if (!found)
        simt_fail(NULL, "%s: a sum over cards %s %zu numbers: %s", emulated_caller_describe(&s->caller),
                  write ? "writes" : "reads", count, wrong);
    return found;
}

static void wait_for_all(const sum *s) {
    if (!meet(s->comm))
        simt_fail(NULL, "%s: a sum over cards: another rank did not come", emulated_caller_describe(&s->caller));
}

static void run(uint32_t work, const void *owned) {
    const sum *s = owned;
    meeting *shared = s->comm->shared;
    const int rank = s->comm->rank, size = s->comm->size;
    shared->count[rank] = s->count;
    wait_for_all(s);
    for (int other = 0; other < size; other++) {
        if (shared->count[other] != s->count)
            simt_fail(NULL, "%s: a sum over cards of %zu numbers, and of %zu on rank %d",
                      emulated_caller_describe(&s->caller), s->count, shared->count[other], other);
    }
    for (size_t at = 0; at < s->count; at += CHUNK) {
        const size_t count = s->count - at < CHUNK ? s->count - at : CHUNK;
        memcpy(shared->part[rank], reach(work, s, s->from + at, count, false), count * sizeof(float));
        wait_for_all(s);
        float *to = reach(work, s, s->to + at, count, true);
        for (size_t i = 0; i < count; i++) {
            float total = shared->part[size - 1][i];
            for (int other = size - 2; other >= 0; other--) total += shared->part[other][i];
            to[i] = total;
        }
        wait_for_all(s);
    }
}

static int all_reduce(const void *from, void *to, size_t count, int type, int operation, void *comm,
                      cudaStream_t stream) {
    EMULATED_CALL_BEGINS();
    if (type != UPS_NCCL_FLOAT32 || operation != UPS_NCCL_SUM) simt_fail(NULL, "NCCL: sums of float32 are emulated");
    emulated_body *body = emulated_body_create(EMULATED_CALL);
    sum *s = malloc(sizeof *s);
    if (!s) simt_fail(NULL, "no memory for a piece of work");
    *s = (sum){.comm = comm, .from = from, .to = to, .count = count, .caller = body->caller};
    body->owned = s;
    body->call = run;
    body->name = "a sum over cards";
    emulated_work *issued;
    return emulated_issue(stream, body, &issued) == cudaSuccess ? UPS_NCCL_OK : INVALID_USAGE;
}

static int destroy(void *made) {
    communicator *comm = made;
    munmap(comm->shared, sizeof *comm->shared);
    free(comm);
    return UPS_NCCL_OK;
}

static const char *error(int result) {
    return result == UPS_NCCL_OK ? "no error" : "invalid usage (run with NCCL_DEBUG=WARN for details)";
}

static const char *last_error(void *comm) {
    return refused;
}

ups_status ups_nccl_load(const ups_nccl **nccl, ups_error *failure) {
    static const ups_nccl library = {version, unique_id, init_rank, all_reduce, destroy, destroy, error, last_error};
    const char *says = getenv("EMULATED_NCCL");
    *nccl = &library;
    if (says && strcmp(says, "missing") == 0)
        return ups_fail(failure, UPS_ERR_UNSUPPORTED, "NCCL cannot be loaded (it is missing)");
    return UPS_OK;
}
