/* What the loader's parts share: open.c, memory.c (sizes), fetch.c (the I/O thread), decode.c (the decode threads),
 * job.c (what both do with a job) and consume.c (the consumer's side). Nobody else includes it.
 *
 * The unit of work is a job: one draw, which is one part of one batch. A job goes idle → fetching (I/O thread) →
 * fetched (a queue) → decoding (one decode thread) → idle. Its buffers are its own, made once.
 *
 * What a job does is decided once, when it is planned: where its bytes come from and where its frames go. */
#ifndef UPS_PIPELINE_LOADER_STATE_H
#define UPS_PIPELINE_LOADER_STATE_H

#include "base/arena.h"
#include "pipeline/loader/loader.h"
#include "pipeline/loader/ring.h"
#include <pthread.h>
#include <stdatomic.h>

typedef struct ups_loader_task_state {
    ups_loader_task task;
    uint32_t first_file;    /* of its source, in the engine's list */
    int64_t first_position; /* sequential: draws of the tasks before it */
    int64_t frames;         /* W */
    int64_t stride;         /* between a window's frames */
    int64_t starts;         /* admissible start frames in each of its samples */
    int64_t frame_elements; /* E */
    ups_dtype dtype;
    bool one_window;         /* the frames that a draw decodes are the frames that it hands out */
    ups_residency residency; /* of its store; stream without one */
    bool *reported; /* (source's count) bad samples that the report has: each is there once. The consumer's own */
} ups_loader_task_state;

typedef enum ups_bytes_from {
    UPS_BYTES_SOURCE,     /* none are fetched: the source reads by itself, or has nothing stored */
    UPS_BYTES_RING,       /* the I/O thread reads them into the job's buffer */
    UPS_BYTES_PAGE_CACHE, /* the decode thread copies them: no disk is needed */
    UPS_BYTES_STORE       /* the task's store has the sample */
} ups_bytes_from;

typedef enum ups_frames_to {
    UPS_FRAMES_SLOT,    /* decoded straight into the batch's slot */
    UPS_FRAMES_STAGING, /* decoded into the thread's staging memory, from where the windows are gathered */
    UPS_FRAMES_STORE,   /* the whole trajectory is decoded into its place in the store, and its windows are served */
    UPS_FRAMES_IN_PLACE /* the bytes are frames: they are read into the slot, or served from the store */
} ups_frames_to;

/* Extents that lie together in the file and are read at once. */
typedef struct ups_run {
    ups_extent extent;
    const uint8_t *bytes; /* once read */
} ups_run;

typedef struct ups_job {
    struct ups_job *next; /* in the idle or the fetched list */
    int64_t number;       /* of the job; it is the high half of its reads' tags */
    uint8_t *buffer;
    ups_extent *extents; /* (extent_count) of the frames to decode */
    ups_piece *pieces;   /* (extent_count) */
    ups_extent *whole;   /* (whole_count) of the whole trajectory; NULL unless some store keeps what is stored */
    int64_t *run_of;     /* the run that holds each extent that is read */
    ups_run *runs;       /* (run_count) */
    int64_t extent_count, whole_count, run_count;
    int64_t submitted, read; /* runs */
    uint64_t buffer_used;
    ups_bytes_from bytes_from;
    ups_frames_to frames_to;
    uint8_t *place;      /* in the store, claimed and to be filled; NULL: none */
    const uint8_t *kept; /* the sample in the store; NULL: it is not there */

    ups_slot *slot;
    int64_t part;     /* draw within the batch */
    int64_t position; /* draw within the run: what a replacement is derived from */
    int32_t task;
    int64_t index; /* sample, into the source */
    ups_sample sample;
    ups_frames frames; /* what is decoded: the smallest range that holds all windows */
    ups_status status;
    ups_error error;
} ups_job;

/* A sample that was skipped, until its batch is handed out. */
typedef struct ups_bad_record {
    struct ups_bad_record *next;
    int64_t batch, part, attempt; /* where it would have been; the order of the report */
    int32_t task;
    int64_t index;
    char *line;
} ups_bad_record;

typedef struct ups_decoder { /* one decode thread */
    struct ups_loader *loader;
    pthread_t thread;
    uint8_t *staging; /* decoded frames that cannot go straight into the slot; NULL when all can */
    uint8_t *scratch; /* the source's */
} ups_decoder;

struct ups_loader {
    ups_loader_options options;
    ups_loader_task_state *tasks;
    int32_t task_count;
    ups_sampler *sampler; /* NULL when sequential */
    int64_t draws;        /* in this rank's batch */
    int64_t global_draws; /* in the batches of all ranks */

    ups_io *io;
    ups_ring *ring;
    ups_batch *batches;  /* (slots) */
    ups_window *windows; /* (slots, options.batch) */

    ups_job *jobs; /* (job_count) */
    int64_t job_count;
    ups_loader_memory memory; /* how much of it everything takes */
    uint8_t *read_memory;     /* (job_count, memory.read) */
    ups_arena *arena;

    pthread_t io_thread;
    bool io_running;
    ups_decoder *decoders; /* (options.decode_threads) */
    int decoders_running;

    atomic_bool failed; /* some part failed: no new batch is begun */

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t fetched_some, idle_some;
    ups_job *idle;
    ups_job *fetched, *fetched_last;
    bool closing;
    ups_status broken; /* the engine itself gave up */
    ups_error broken_error;
    ups_loader_statistics statistics;
    ups_bad_record *bad; /* not yet reported */

    /* The consumer's own. */
    ups_status ended; /* the failure that every later call repeats */
    ups_error ended_error;
    ups_arena *report;
    const char **bad_lines; /* (bad_count) */
    int64_t bad_count, bad_room;
};

/* Serves the windows of a decoded trajectory: where they lie, or copied into the slot. */
void ups_job_serve(const ups_loader *loader, ups_job *job, const uint8_t *trajectory, bool in_place);
/* Once everything is read: moves stored bytes into the place that was claimed for them, if one was. */
void ups_job_keep_stored(ups_loader *loader, ups_job *job);
/* Where the extents that decode wants are: in what was read, or in the store. */
ups_status ups_job_find_pieces(ups_job *job);
void ups_job_settle(ups_loader *loader, ups_job *job, ups_claim how);     /* ends a claim; nothing when there is none */
void ups_loader_finish(ups_loader *loader, ups_job *job, double seconds); /* the job is done, or failed */

/* The smallest range of frames that holds all windows of the job. */
ups_frames ups_job_span(const ups_loader *loader, const ups_job *job);

void *ups_loader_fetch(void *loader);   /* the I/O thread */
void *ups_loader_decode(void *decoder); /* a decode thread */

/* ups_window.dt of a window that begins at frame `start`. */
static inline double ups_window_dt(const ups_loader_task_state *task, const ups_sample *sample, int64_t start) {
    return task->frames > 1 ? sample->time[start + task->stride] - sample->time[start] : 0.0;
}

/* The job's part of its batch's windows. */
static inline ups_window *ups_job_windows(const ups_loader *loader, const ups_job *job) {
    return &loader->windows[job->slot->number * loader->options.batch + job->part * loader->options.windows_per_draw];
}

static inline uint8_t *ups_job_memory(const ups_loader *loader, const ups_job *job) {
    const ups_loader_task_state *task = &loader->tasks[job->task];
    size_t window = (size_t)(task->frames * task->frame_elements) * ups_dtype_size(loader->options.dtype);
    return (uint8_t *)job->slot->data + (size_t)(job->part * loader->options.windows_per_draw) * window;
}

/* Says in the job's error which task and sample it was about; returns the error's code. */
static inline ups_status ups_job_failed(const ups_loader *loader, ups_job *job) {
    const char *task = loader->tasks[job->task].task.name;
    if (job->sample.name) return ups_fail_within(&job->error, "task %s, sample %s", task, job->sample.name);
    return ups_fail_within(&job->error, "task %s, sample %lld", task, (long long)job->index);
}

/* Puts defaults where options are 0. */
void ups_loader_fill_in(ups_loader_options *options);

#endif
