#include "train/comm/comm.h"

#include "base/log.h"
#include "base/progress.h"
#include "base/system/cancel.h"
#include "base/system/launcher.h"
#include "base/system/program.h"
#include "base/system/threads.h"
#include "train/comm/module.h"
#include "train/comm/seat.h"
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_JOBS = 64 }; /* begun and not done; who begins another one waits */

#define PATIENCE                                                                                                       \
    600.0 /* seconds that others have to answer in once rank 0 is to end: more than a step or a validation */
#define LAST_WORDS 5.0       /* seconds that rank 0 has to end all in, once it was told why another one fails */
#define LOOK_EVERY 50000000L /* ns between looks for notices while there is no exchange */

typedef enum job_kind { BARRIER, BROADCAST, GATHER, ADD, COLLECT, REDUCE_SCATTER, ALL_GATHER, BRING, END } job_kind;

typedef struct comm_job {
    job_kind kind;
    void *data;               /* broadcast; gather: all; else values */
    const void *own;          /* gather; collect: the slice */
    float *slice;             /* add; NULL: the communicator's, of a sum that one job makes and the next collects */
    int64_t count;            /* bytes, or elements */
    bool first;               /* add */
    const ups_shares *shares; /* of elements from `from` on */
    int64_t from;
} comm_job;

/* What one process tells another beside exchanges. */
typedef struct comm_notice {
    enum { SIGNALLED, FAILED } kind;
    int number; /* the signal; the exit code */
    ups_error error;
} comm_notice;

struct ups_comm {
    const ups_mpi_module *module;
    ups_mpi_place place;
    char library[160];
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t begun, done;
    comm_job jobs[MOST_JOBS];
    int64_t next, ended; /* jobs begun and carried out since the beginning */
    ups_status status;   /* the first failure, which all later ones are */
    ups_error error;
    ups_comm_told *told; /* rank 0; NULL: nobody */
    void *told_context;
    comm_notice failure;   /* why this process fails; set before `abort_code` */
    atomic_int abort_code; /* −1: none */
    bool together;         /* how this process ended; of the caller alone */
    /* of the thread alone: */
    comm_notice signalled; /* what was passed on */
    bool passed_on;
    float *parts, *slice, *packed;
    int64_t parts_count, slice_count, packed_count;
    int64_t *bounds, *ends; /* (size + 1): of slices (module.h); (size): how far each is filled */
};

/* ---- the module -------------------------------------------------------------------------------------------------- */

/* Open MPI's own plug-ins look for its symbols among those of the program: RTLD_GLOBAL. */
static ups_status load_module(const ups_mpi_module **module, ups_error *error) {
    char path[PATH_MAX];
    if (!ups_program_find_module("UPS_MPI_MODULE", "libups_mpi.so", "../train", path))
        return ups_fail(error, UPS_ERR_UNSUPPORTED,
                        "this build has no MPI: there is no libups_mpi.so beside the program. Install MPI "
                        "(on Debian libopenmpi-dev), then build UPS again");
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library) return ups_fail(error, UPS_ERR_UNSUPPORTED, "the MPI module cannot be loaded: %s", dlerror());
    ups_mpi_module_get *get = NULL;
    *(void **)&get = dlsym(library, UPS_MPI_MODULE_ENTRY);
    if (!get) {
        return ups_fail(error, UPS_ERR_UNSUPPORTED,
                        "%s is of another build than this program; build and install both together", path);
    }
    *module = get();
    return UPS_OK;
}

ups_status ups_comm_find_library(char *name, size_t bytes, ups_error *error) {
    const ups_mpi_module *module;
    UPS_TRY(load_module(&module, error));
    snprintf(name, bytes, "%s", module->library());
    return UPS_OK;
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

/* Rank r's slice of `count` elements begins here; that of rank `size` is the end. */
static int64_t slice_begin(int64_t count, int rank, int size) {
    return count / size * rank + (count % size < rank ? count % size : rank);
}

/* Of a piece of at most UPS_MPI_MOST elements; larger buffers are exchanged piece by piece. */
static int64_t slice_of(const ups_comm *comm, int64_t count) {
    const int rank = ups_comm_rank(comm), size = ups_comm_size(comm);
    return slice_begin(count, rank + 1, size) - slice_begin(count, rank, size);
}

static int64_t piece_of(int64_t left) {
    return left < UPS_MPI_MOST ? left : UPS_MPI_MOST;
}

/* ---- notices ----------------------------------------------------------------------------------------------------- */

/* A signal that this process got, or was told of by another one, who told all. */
static void pass_on_signal(ups_comm *comm) {
    const bool requested = ups_cancel_requested();
    if (requested && !comm->passed_on) {
        comm->signalled = (comm_notice){.kind = SIGNALLED, .number = ups_cancel_signal()};
        for (int rank = 0; rank < comm->place.size; rank++) {
            if (rank != comm->place.rank) comm->module->send(rank, &comm->signalled, offsetof(comm_notice, error));
        }
    }
    comm->passed_on = requested;
}

static void take_notice(ups_comm *comm, int from, const comm_notice *notice) {
    if (notice->kind == SIGNALLED) {
        ups_cancel_request_as(notice->number);
        comm->passed_on = true;
        return;
    }
    pthread_mutex_lock(&comm->lock);
    ups_comm_told *told = comm->told;
    void *context = comm->told_context;
    pthread_mutex_unlock(&comm->lock);
    if (!told || told(context, from, &notice->error)) comm->module->abort(notice->number);
}

static void exchange_notices(ups_comm *comm) {
    comm_notice notice;
    int from;
    pass_on_signal(comm);
    while (comm->module->receive(&notice, sizeof notice, &from) == 0 && from >= 0) take_notice(comm, from, &notice);
}

/* Ends all processes if this one is to; rank 0 has a moment to say why. */
static void end_all_if_asked(ups_comm *comm) {
    const int exit_code = atomic_load(&comm->abort_code);
    if (exit_code < 0) return;
    if (comm->place.rank > 0 && comm->module->send(0, &comm->failure, sizeof comm->failure) == 0) {
        for (double began = ups_now(); ups_now() - began < LAST_WORDS;) {
            exchange_notices(comm);
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
    }
    comm->module->abort(exit_code);
}

/* Until a job is begun, or all are to end. The lock is held, but while notices are exchanged. */
static void wait_for_job(ups_comm *comm) {
    while (comm->next == comm->ended && atomic_load(&comm->abort_code) < 0) {
        struct timespec look;
        clock_gettime(CLOCK_MONOTONIC, &look);
        look.tv_nsec += LOOK_EVERY;
        if (look.tv_nsec >= 1000000000) look = (struct timespec){look.tv_sec + 1, look.tv_nsec - 1000000000};
        if (pthread_cond_timedwait(&comm->begun, &comm->lock, &look) == 0) continue;
        pthread_mutex_unlock(&comm->lock);
        exchange_notices(comm);
        pthread_mutex_lock(&comm->lock);
    }
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static void fail_with(ups_comm *comm, int code, const char *what) {
    char told[300];
    comm->module->describe(code, told, sizeof told);
    comm->status = ups_fail(&comm->error, UPS_ERR_IO, "MPI: %s: %s", what, told);
}

/* Until the exchange that was started has ended. Waiting costs others little: an exchange that is not done at once is
 * asked for at growing intervals. */
static bool wait_for_exchange(ups_comm *comm, int code, const char *what) {
    double stopping = 0;
    long pause = 10000; /* ns */
    for (int tries = 0;; tries++) {
        bool ended = false;
        if (code == 0) code = comm->module->test(&ended);
        if (code != 0) fail_with(comm, code, what);
        if (code != 0 || ended) return code == 0;
        end_all_if_asked(comm);
        if (ups_cancel_requested() && comm->place.rank == 0) { /* which ends the others */
            if (stopping == 0) stopping = ups_now();
            if (ups_now() - stopping > PATIENCE) {
                comm->status =
                    ups_fail(&comm->error, UPS_ERR_CANCELLED,
                             "stopped: another process of this training has not answered for %.0f seconds; --resume "
                             "goes on from the last checkpoint",
                             PATIENCE);
                return false;
            }
        }
        if (tries < 100) continue;
        exchange_notices(comm);
        nanosleep(&(struct timespec){0, pause}, NULL);
        if (pause < 500000) pause += pause / 4;
    }
}

/* Also for nothing there is a place. */
static bool grow(ups_comm *comm, float **memory, int64_t *has, int64_t wants) {
    if (*memory && *has >= wants) return true;
    float *grown = realloc(*memory, (size_t)(wants + 1) * sizeof *grown);
    if (!grown) {
        comm->status =
            ups_fail(&comm->error, UPS_ERR_MEMORY, "no memory to exchange %lld numbers in", (long long)wants);
        return false;
    }
    *memory = grown;
    *has = wants;
    return true;
}

/* parts: (size, count). */
static void add_parts(const float *parts, int64_t count, int size, float *restrict slice, bool first) {
    if (first) memcpy(slice, parts, (size_t)count * sizeof *slice);
    for (int r = first; r < size; r++) {
        const float *restrict part = parts + r * count;
        for (int64_t i = 0; i < count; i++) slice[i] += part[i];
    }
}

static const int64_t *find_slices(ups_comm *comm, int64_t count) {
    for (int r = 0; r <= comm->place.size; r++) comm->bounds[r] = slice_begin(count, r, comm->place.size);
    return comm->bounds;
}

static bool add(ups_comm *comm, const comm_job *job) {
    const int64_t mine = slice_of(comm, job->count), *bounds = find_slices(comm, job->count);
    if (!grow(comm, &comm->parts, &comm->parts_count, mine * comm->place.size)) return false;
    if (!job->slice && !grow(comm, &comm->slice, &comm->slice_count, mine)) return false;
    if (!wait_for_exchange(comm, comm->module->scatter(job->data, bounds, comm->parts), "gradients")) return false;
    add_parts(comm->parts, mine, comm->place.size, job->slice ? job->slice : comm->slice, job->first);
    return true;
}

static bool collect(ups_comm *comm, const comm_job *job) {
    float *values = job->data;
    const float *slice = job->own ? job->own : comm->slice;
    const int64_t mine = slice_of(comm, job->count), *bounds = find_slices(comm, job->count);
    memcpy(values + bounds[comm->place.rank], slice, (size_t)mine * sizeof *slice);
    return wait_for_exchange(comm, comm->module->collect(values, bounds), "sums of gradients");
}

/* ---- shares: packed so that each rank's pieces are one slice ---------------------------------------------------- */

enum { ALL_RANKS = -1 };

static void find_packed_slices(ups_comm *comm, const comm_job *job) {
    const ups_shares *shares = job->shares;
    const int64_t end = job->from + job->count;
    memset(comm->bounds, 0, (size_t)(comm->place.size + 1) * sizeof *comm->bounds);
    for (int32_t p = ups_shares_piece_at(shares, job->from); p < shares->piece_count; p++) {
        const ups_share_piece piece = ups_share_piece_within(shares->pieces[p], job->from, end);
        if (piece.count <= 0) break;
        comm->bounds[piece.share + 1] += piece.count;
    }
    for (int r = 0; r < comm->place.size; r++) comm->bounds[r + 1] += comm->bounds[r];
}

/* What is of `rank`, or of all, from the buffer to where it is packed, or back. */
static void pack(ups_comm *comm, const comm_job *job, int rank, bool back) {
    const ups_shares *shares = job->shares;
    const int64_t end = job->from + job->count;
    memcpy(comm->ends, comm->bounds, (size_t)comm->place.size * sizeof *comm->ends);
    for (int32_t p = ups_shares_piece_at(shares, job->from); p < shares->piece_count; p++) {
        const ups_share_piece piece = ups_share_piece_within(shares->pieces[p], job->from, end);
        if (piece.count <= 0) break;
        if (rank != ALL_RANKS && piece.share != rank) continue;
        float *values = (float *)job->data + (piece.offset - job->from),
              *packed = comm->packed + comm->ends[piece.share];
        memcpy(back ? values : packed, back ? packed : values, (size_t)piece.count * sizeof *values);
        comm->ends[piece.share] += piece.count;
    }
}

static bool exchange_shares(ups_comm *comm, const comm_job *job) {
    const ups_mpi_module *module = comm->module;
    const int own = comm->place.rank;
    const bool reduces = job->kind == REDUCE_SCATTER, brings = job->kind == BRING;
    find_packed_slices(comm, job);
    const int64_t mine = comm->bounds[own + 1] - comm->bounds[own];
    if (!grow(comm, &comm->packed, &comm->packed_count, job->count)) return false;
    if (reduces && !grow(comm, &comm->parts, &comm->parts_count, mine * comm->place.size)) return false;
    pack(comm, job, reduces ? ALL_RANKS : own, false);
    const int code = reduces  ? module->scatter(comm->packed, comm->bounds, comm->parts)
                     : brings ? module->bring(comm->packed, comm->bounds)
                              : module->collect(comm->packed, comm->bounds);
    if (!wait_for_exchange(comm, code, reduces ? "gradients" : "shares of the optimizer's")) return false;
    if (reduces) add_parts(comm->parts, mine, comm->place.size, comm->packed + comm->bounds[own], true);
    if (!brings || own == 0) pack(comm, job, reduces ? own : ALL_RANKS, true);
    return true;
}

static bool carry_out(ups_comm *comm, const comm_job *job) {
    const ups_mpi_module *module = comm->module;
    switch (job->kind) {
    case BARRIER:
        return wait_for_exchange(comm, module->barrier(), "a barrier");
    case BROADCAST:
        return wait_for_exchange(comm, module->broadcast(job->data, job->count), "what rank 0 tells");
    case GATHER:
        return wait_for_exchange(comm, module->gather(job->own, job->data, job->count), "what ranks tell");
    case ADD:
        return add(comm, job);
    case COLLECT:
        return collect(comm, job);
    case REDUCE_SCATTER:
    case ALL_GATHER:
    case BRING:
        return exchange_shares(comm, job);
    case END:
        break;
    }
    return true;
}

/* MPI is begun and ended by the thread that calls it in between. */
static void *run_thread(void *context) {
    ups_comm *comm = context;
    int code = comm->module->begin(&comm->place);
    pthread_mutex_lock(&comm->lock);
    if (code != 0) fail_with(comm, code, "its beginning");
    if (code == 0) {
        comm->bounds = calloc(2 * (size_t)comm->place.size + 1, sizeof *comm->bounds);
        comm->ends = comm->bounds ? comm->bounds + comm->place.size + 1 : NULL;
        if (!comm->bounds) comm->status = ups_fail(&comm->error, UPS_ERR_MEMORY, "out of memory");
    }
    comm->ended++; /* as if that were a job */
    pthread_cond_broadcast(&comm->done);
    for (bool ends = code != 0; !ends;) {
        wait_for_job(comm);
        if (atomic_load(&comm->abort_code) >= 0) {
            pthread_mutex_unlock(&comm->lock);
            end_all_if_asked(comm); /* this process among them */
        }
        const comm_job job = comm->jobs[comm->ended % MOST_JOBS];
        const bool sound = comm->status == UPS_OK;
        pthread_mutex_unlock(&comm->lock);
        ends = job.kind == END;
        if (sound && !ends) carry_out(comm, &job);
        pthread_mutex_lock(&comm->lock);
        comm->ended++;
        pthread_cond_broadcast(&comm->done);
    }
    const bool sound = comm->status == UPS_OK;
    pthread_mutex_unlock(&comm->lock);
    if (code == 0 && sound) comm->module->end();
    return NULL;
}

static void begin(ups_comm *comm, comm_job job) {
    pthread_mutex_lock(&comm->lock);
    while (comm->next - comm->ended >= MOST_JOBS) pthread_cond_wait(&comm->done, &comm->lock);
    comm->jobs[comm->next++ % MOST_JOBS] = job;
    pthread_cond_signal(&comm->begun);
    pthread_mutex_unlock(&comm->lock);
}

ups_status ups_comm_finish(ups_comm *comm, ups_error *error) {
    if (!comm) return UPS_OK;
    pthread_mutex_lock(&comm->lock);
    while (comm->ended < comm->next) pthread_cond_wait(&comm->done, &comm->lock);
    const ups_status status = comm->status;
    if (status != UPS_OK && error) *error = comm->error;
    pthread_mutex_unlock(&comm->lock);
    return status;
}

/* ---- opening and ending ------------------------------------------------------------------------------------------ */

static ups_status check_place(const ups_comm *comm, const ups_launch *launch, ups_error *error) {
    if (comm->place.size == launch->ranks) return UPS_OK;
    return ups_fail(
        error, UPS_ERR_UNSUPPORTED,
        "%s started %lld processes, and %d of them find each other: this ups was built for %s, whose own launcher "
        "it wants",
        launch->launcher, (long long)launch->ranks, comm->place.size, comm->library);
}

/* Most MPIs end a process that srun tells nothing of the others, with advice to build MPI anew. */
static void warn_of_srun(const ups_launch *launch) {
    if (launch->rank > 0 || strcmp(launch->launcher, "srun") != 0) return;
    if (getenv("PMIX_NAMESPACE") || getenv("PMI_RANK")) return;
    ups_log(UPS_LOG_WARNING,
            "srun started %lld processes and tells them nothing of each other; if MPI does not begin, start them with "
            "srun --mpi=pmix",
            (long long)launch->ranks);
}

/* From here on this process takes its part of the machine alone. */
static ups_status share_machine(ups_comm *comm, ups_error *error) {
    const int processes = comm->place.node_size;
    ups_seat own, *all = calloc((size_t)comm->place.size, sizeof *all);
    if (!all) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_seat_find(&own);
    ups_status status = ups_comm_gather(comm, &own, all, sizeof own, error);
    const int sharing = ups_seat_count_sharing(&own, all, comm->place.size);
    free(all);
    UPS_TRY(status);
    ups_launch_share_machine(processes, sharing);
    if (comm->place.rank == 0 && sharing == 1) ups_seat_warn_of_binding(&own, processes);
    return UPS_OK;
}

ups_status ups_comm_open(ups_comm **comm, ups_error *error) {
    const ups_launch launch = ups_launch_find();
    const ups_mpi_module *module;
    *comm = NULL;
    if (launch.ranks < 2) return UPS_OK;
    if (load_module(&module, error) != UPS_OK) {
        return ups_fail_within(error, "%s started %lld processes, which cannot train one model together",
                               launch.launcher, (long long)launch.ranks);
    }
    ups_comm *opened = calloc(1, sizeof *opened);
    if (!opened) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    warn_of_srun(&launch);
    if (launch.number >= 0) ups_seat_choose_card(launch.number);
    opened->module = module;
    opened->next = 1; /* the beginning */
    opened->together = true;
    atomic_init(&opened->abort_code, -1);
    pthread_mutex_init(&opened->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&opened->begun, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&opened->done, NULL);
    snprintf(opened->library, sizeof opened->library, "%s", module->library());
    if (pthread_create(&opened->thread, NULL, run_thread, opened) != 0) {
        free(opened);
        return ups_fail(error, UPS_ERR_MEMORY, "a thread for MPI cannot be had");
    }
    ups_status status = ups_comm_finish(opened, error);
    if (status == UPS_OK) status = check_place(opened, &launch, error);
    if (status == UPS_OK) status = share_machine(opened, error);
    if (status != UPS_OK) {
        ups_comm_close(opened);
        return status;
    }
    if (opened->place.rank > 0) {
        ups_log_tell_rank(opened->place.rank);
        ups_progress_enable(false);
    }
    *comm = opened;
    return UPS_OK;
}

void ups_comm_close(ups_comm *comm) {
    if (!comm) return;
    if (comm->status == UPS_OK || comm->place.size > 0) begin(comm, (comm_job){.kind = END});
    pthread_join(comm->thread, NULL);
    pthread_cond_destroy(&comm->begun);
    pthread_cond_destroy(&comm->done);
    pthread_mutex_destroy(&comm->lock);
    free(comm->parts);
    free(comm->slice);
    free(comm->packed);
    free(comm->bounds);
    free(comm);
}

void ups_comm_on_failure(ups_comm *comm, ups_comm_told *told, void *context) {
    if (!comm) return;
    pthread_mutex_lock(&comm->lock);
    comm->told = told;
    comm->told_context = context;
    pthread_mutex_unlock(&comm->lock);
}

_Noreturn void ups_comm_fail(ups_comm *comm, int exit_code, const ups_error *error) {
    if (comm) {
        comm->failure = (comm_notice){.kind = FAILED, .number = exit_code};
        if (error) comm->failure.error = *error;
        pthread_mutex_lock(&comm->lock);
        atomic_store(&comm->abort_code, exit_code);
        pthread_cond_signal(&comm->begun);
        pthread_mutex_unlock(&comm->lock);
        for (double began = ups_now(); ups_now() - began < 2 * LAST_WORDS;) /* the thread ends this process before */
            nanosleep(&(struct timespec){1, 0}, NULL);
    }
    _exit(exit_code);
}

int ups_comm_rank(const ups_comm *comm) {
    return comm ? comm->place.rank : 0;
}

int ups_comm_size(const ups_comm *comm) {
    return comm ? comm->place.size : 1;
}

const char *ups_comm_library(const ups_comm *comm) {
    return comm ? comm->library : "";
}

void ups_comm_end_together(ups_comm *comm, bool together) {
    if (comm) comm->together = together;
}

bool ups_comm_ended_together(const ups_comm *comm) {
    return comm && comm->together;
}

/* ---- exchanges --------------------------------------------------------------------------------------------------- */

ups_status ups_comm_barrier(ups_comm *comm, ups_error *error) {
    if (comm) begin(comm, (comm_job){.kind = BARRIER});
    return ups_comm_finish(comm, error);
}

ups_status ups_comm_broadcast(ups_comm *comm, void *data, int64_t bytes, ups_error *error) {
    for (int64_t at = 0; comm && at < bytes; at += UPS_MPI_MOST) {
        begin(comm, (comm_job){.kind = BROADCAST, .data = (unsigned char *)data + at, .count = piece_of(bytes - at)});
    }
    return ups_comm_finish(comm, error);
}

ups_status ups_comm_gather(ups_comm *comm, const void *own, void *all, int64_t bytes, ups_error *error) {
    if (!comm)
        memcpy(all, own, (size_t)bytes);
    else
        begin(comm, (comm_job){.kind = GATHER, .own = own, .data = all, .count = bytes});
    return ups_comm_finish(comm, error);
}

int64_t ups_comm_slice(const ups_comm *comm, int64_t count) {
    int64_t slice = 0;
    for (int64_t at = 0; at < count; at += UPS_MPI_MOST) slice += slice_of(comm, piece_of(count - at));
    return slice;
}

void ups_comm_sum(ups_comm *comm, float *values, int64_t count) {
    for (int64_t at = 0; comm && at < count; at += UPS_MPI_MOST) {
        begin(comm, (comm_job){.kind = ADD, .data = values + at, .count = piece_of(count - at), .first = true});
        begin(comm, (comm_job){.kind = COLLECT, .data = values + at, .count = piece_of(count - at)});
    }
}

void ups_comm_add(ups_comm *comm, const float *values, int64_t count, float *slice, bool first) {
    if (!comm) add_parts(values, count, 1, slice, first);
    for (int64_t at = 0; comm && at < count; at += UPS_MPI_MOST) {
        const int64_t piece = piece_of(count - at);
        begin(comm,
              (comm_job){.kind = ADD, .data = (float *)values + at, .count = piece, .slice = slice, .first = first});
        slice += slice_of(comm, piece);
    }
}

void ups_comm_collect(ups_comm *comm, const float *slice, float *values, int64_t count) {
    if (!comm) memcpy(values, slice, (size_t)count * sizeof *values);
    for (int64_t at = 0; comm && at < count; at += UPS_MPI_MOST) {
        const int64_t piece = piece_of(count - at);
        begin(comm, (comm_job){.kind = COLLECT, .own = slice, .data = values + at, .count = piece});
        slice += slice_of(comm, piece);
    }
}

/* Piece by piece, by a job whose kind is given. */
static void begin_shares(ups_comm *comm, job_kind kind, const ups_shares *shares, float *values, int64_t from,
                         int64_t count) {
    for (int64_t at = 0; comm && at < count; at += UPS_SHARE_RUN) {
        const int64_t left = count - at;
        begin(comm, (comm_job){.kind = kind,
                               .data = values + at,
                               .count = left < UPS_SHARE_RUN ? left : UPS_SHARE_RUN,
                               .shares = shares,
                               .from = from + at});
    }
}

void ups_comm_reduce_scatter(ups_comm *comm, const ups_shares *shares, float *values, int64_t from, int64_t count) {
    begin_shares(comm, REDUCE_SCATTER, shares, values, from, count);
}

void ups_comm_all_gather(ups_comm *comm, const ups_shares *shares, float *values, int64_t from, int64_t count) {
    begin_shares(comm, ALL_GATHER, shares, values, from, count);
}

void ups_comm_bring(ups_comm *comm, const ups_shares *shares, float *values, int64_t from, int64_t count) {
    begin_shares(comm, BRING, shares, values, from, count);
}
