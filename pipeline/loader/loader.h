/* The loader: from a sampler's draws to batches in memory, as fast as disk and cores allow.
 *
 *   sampler → extents → I/O engine (io_uring or threads) → decode threads → ring of batch slots → the consumer
 *
 * One I/O thread owns the rings of requests; decode threads turn bytes into windows of frames and write them straight
 * into their place in a batch slot. Slots are filled out of order and handed out in order. Slot memory comes from the
 * allocator in the options: pinned when a GPU reads it.
 *
 * What is in memory already takes a shorter way. Extents that the page cache holds are copied by the decode threads
 * themselves. Samples that a task's store keeps (pipeline/loader/residency.h) are not read again, and a consumer that
 * takes windows where they lie (`in_place`) gets those of a decoded trajectory without a copy.
 *
 * Draws are read ahead as far as slots allow, across the end of an epoch as anywhere else: positions have no end.
 */
#ifndef UPS_PIPELINE_LOADER_LOADER_H
#define UPS_PIPELINE_LOADER_LOADER_H

#include "base/system/pages.h"
#include "pipeline/io/io.h"
#include "pipeline/loader/residency.h"
#include "pipeline/sampling/sampler.h"
#include "pipeline/source.h"

typedef struct ups_loader_task {
    const char *name;         /* for messages */
    const ups_source *source; /* borrowed */
    const int64_t *samples;   /* (sample_count) indices into the source: the split; borrowed. NULL: all */
    int64_t sample_count;
    double weight;          /* share, for the balanced strategy */
    ups_store *store;       /* of `source` and the batches' type: what of it stays in memory; borrowed. NULL: nothing */
    int64_t window, stride; /* this task's own, where they differ from the options'; 0: as the options say. Windows of
                               different length need one_task_per_batch */
} ups_loader_task;

typedef struct ups_loader_options {
    uint64_t seed;
    ups_sampler_strategy strategy;
    double temperature;              /* of that strategy */
    const ups_sampler_phase *phases; /* (phase_count) with other shares, in order; borrowed while opening */
    int64_t phase_count;
    int64_t batch;            /* windows in this rank's batch; a multiple of windows_per_draw */
    int64_t windows_per_draw; /* pairs_per_trajectory */
    int64_t window; /* frames in a window: 2 for pairs, k + 1 for k-step rollouts, 1 for single frames, 0: the whole
                       trajectory */
    int64_t stride; /* time stride between a window's frames, ≥ 1 */
    bool one_task_per_batch; /* of a rank; needed when tasks' frames differ in shape */
    ups_dtype dtype;         /* of the batch: UPS_F32, or UPS_F16 where sources are FP16 */
    bool sequential;         /* no shuffling: samples in order, starts at 0 (evaluation, cache build); the window of a
                                bad sample that is skipped holds UPS_NO_SAMPLE */
    int64_t first_batch;     /* where to resume */
    int64_t batch_count;     /* batches to deliver in all, counted from 0; −1: without end */
    int32_t rank, ranks;     /* batch b of rank r is what batch b · ranks + r of a rank by itself would be */
    ups_io_engine io;
    int decode_threads;              /* 0: one a core */
    int slots;                       /* batches in flight; 0: 4 */
    int queue_depth;                 /* extents in flight; 0: 64 */
    bool direct;                     /* O_DIRECT: for data that exceeds memory */
    bool in_place;                   /* the consumer takes each window from ups_window.frames; ups_batch.data is NULL */
    ups_on_bad_sample on_bad_sample; /* non-finite values: stop with a sentence, or take another draw and record it */
    void *(*allocate)(void *context, size_t bytes); /* slot memory, 4096-byte aligned; NULL: ordinary memory */
    void (*release)(void *context, void *memory);
    void *allocator_context;
    ups_pages_store *pages; /* where other memory comes from, and goes to for the next loader; NULL: to the system */
    ups_io_fault fault;     /* NULL but in tests: see pipeline/io/io.h */
    void *fault_context;
} ups_loader_options;

#define UPS_NO_SAMPLE ((int64_t)-1)

typedef struct ups_window {
    int32_t task;
    int64_t sample;           /* index into the task's source; UPS_NO_SAMPLE: skipped, its frames mean nothing */
    int64_t start;            /* first frame */
    double dt;                /* seconds from the window's first frame to its next; 0 for single frames */
    const double *time;       /* seconds: of the sample's frames from `start` on; borrowed from the source */
    const double *parameters; /* (parameter_count of the task's source), borrowed from the source */
    const void *frames;       /* the first frame, (E) of the batch's type, in the batch's slot or in the task's store */
    int64_t frame_step; /* elements from one frame to the next: E, or more where frames between lie in memory too */
} ups_window;

typedef struct ups_batch {
    int64_t index;          /* position in the run, from 0 */
    int64_t windows;        /* B; less than options.batch only at the end of a sequential pass */
    int64_t frames;         /* W */
    int64_t frame_elements; /* E: channels × grid points */
    ups_dtype dtype;
    void *data;               /* (B, W, E), each frame in its sample's channel order; NULL with options.in_place */
    const ups_window *window; /* (B) */
} ups_batch;

typedef struct ups_loader_statistics {
    int64_t batches, windows, trajectories; /* delivered; draws served */
    int64_t resident;                       /* of those draws, the ones that a store had in memory */
    uint64_t bytes_read, bytes_decoded;
    double seconds_disk;                   /* decode threads idle because nothing was read yet, summed over threads */
    double seconds_decode;                 /* decoding and copying out of the page cache, summed over threads */
    double seconds_consumer;               /* the consumer waiting in ups_loader_next */
    double seconds_full;                   /* I/O waiting because all slots were full: the consumer is the bottleneck */
    double processor_io, processor_decode; /* CPU seconds: of the I/O thread, of the decode threads */
    int64_t bad_samples;
    ups_io_engine io; /* which engine was chosen */
} ups_loader_statistics;

/* What of a task decides how much memory its loading takes. */
typedef struct ups_loader_load {
    int64_t frames, stride, frame_elements; /* of its windows */
    ups_dtype dtype;                        /* as stored */
    ups_source_limits limits; /* of whole samples: what is read where a store keeps them, or windows lie anywhere */
    ups_source_limits window; /* of one window (ups_source_window_limits); zeroed: as whole samples */
    bool kept;                /* a store keeps the samples */
} ups_loader_load;

typedef struct ups_loader_memory {
    uint64_t slot;             /* a batch */
    uint64_t read;             /* a sample as it is stored, with room for gaps and alignment */
    int64_t reads;             /* samples being read or decoded, at most */
    uint64_t scratch, staging; /* of a decode thread */
    uint64_t fixed;            /* what the sources take however much is read */
    int64_t extents;           /* of a read, at most */
    uint64_t tables;           /* of extents and windows */
    uint64_t total;            /* bytes of all of these; stores are their owner's */
} ups_loader_memory;

/* The memory that a loader with these options takes, known before there is one. */
ups_loader_memory ups_loader_measure(const ups_loader_options *options, const ups_loader_load *loads, int32_t count);

typedef struct ups_loader ups_loader;

ups_status ups_loader_open(const ups_loader_options *options, const ups_loader_task *tasks, int32_t task_count,
                           ups_loader **loader, ups_error *error);
/* Waits for the next batch in order. *batch is NULL at the end. The batch stays valid until released; several may be
 * held, fewer than `slots`. */
ups_status ups_loader_next(ups_loader *loader, const ups_batch **batch, ups_error *error);
/* Waits for at most `seconds` until ups_loader_next would not wait; false when it still would. */
bool ups_loader_wait(ups_loader *loader, double seconds);
void ups_loader_release(ups_loader *loader, const ups_batch *batch);
/* Adds a phase of sampling after those that are there. It must begin beyond every batch that may have been begun:
 * `slots` + 1 batches after the last one taken. `taken`: batches that ups_loader_next has handed out; what only they
 * needed is forgotten. */
ups_status ups_loader_add_phase(ups_loader *loader, const ups_sampler_phase *phase, int64_t taken, ups_error *error);
void ups_loader_statistics_get(const ups_loader *loader, ups_loader_statistics *statistics);
/* One line per sample that was skipped: "task diffsorp, sample 0007 (file.h5): 3 NaN values, first at frame 12".
 * Borrowed until close. */
int64_t ups_loader_bad_samples(const ups_loader *loader, const char *const **lines);
void ups_loader_close(ups_loader *loader); /* cancels what is in flight; NULL is fine */

#endif
