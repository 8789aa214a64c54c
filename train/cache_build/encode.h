/* Pours the raw fields of a run through its trained encoder into its latent cache: what `ups cache build`, and the
 * cache stage of `ups train`, do. */
#ifndef UPS_TRAIN_CACHE_BUILD_ENCODE_H
#define UPS_TRAIN_CACHE_BUILD_ENCODE_H

#include "cache/build/writer.h"
#include "train/session.h"
#include <stdbool.h>

/* Where the time of a build went: seconds and CPU seconds, both summed over threads. Only doubles. */
typedef struct ups_encode_stages {
    double disk;                   /* decode threads waiting for what is read */
    double read_cpu;               /* of the thread that reads */
    double decode, decode_cpu;     /* with copying out of the page cache */
    double encode, encode_cpu;     /* fields to latents */
    double compress, compress_cpu; /* and rounding, and checksums */
    double publish, publish_cpu;   /* shards written, synced, renamed */
    double idle;                   /* workers without anything to do */
} ups_encode_stages;

#define UPS_ENCODE_PARTS 10

typedef struct ups_encode_report {
    const char *task, *split;
    ups_cache_summary summary;
    uint64_t source_bytes; /* of the summary's trajectories as fields, decoded */
    double nrmse;          /* of some of these fields, read back from latents (readback.h); NaN: not known */
    ups_latent_shape latents;
    int64_t field_numbers; /* of a frame */
    int64_t encoded; /* trajectories this call encoded: fewer than in the summary when a build was resumed, or shared */
    int64_t extended_from; /* trajectories of the cache that this one extended; 0: none */
    bool was_whole;        /* all was there already */
    bool whole;            /* all is there; without it there is no summary */
    double seconds;
    /* What this process did in that time. */
    int64_t frames;
    uint64_t field_bytes;
    int processors;
    double cpu; /* CPU seconds of all threads */
    ups_encode_stages stages;
    double reached[UPS_ENCODE_PARTS]; /* seconds after which a tenth, two tenths … of what was to be encoded had been
                                         handed to the encoders; 0: never, for others did that */
} ups_encode_report;

/* How one task and split is built. */
typedef struct ups_encode_options {
    bool wait;             /* for what other processes hold; otherwise it is left to them, and report->whole is false */
    bool repair;           /* documents that are damaged are written again */
    const int64_t *broken; /* (broken_count) shards to be built again though they are there */
    int64_t broken_count;
} ups_encode_options;

/* One task and split. A build that was stopped goes on where it stood; a complete cache made by the same encoder is
 * left as it is, or extended when the task got more files; one made by another is refused (UPS_ERR_STALE). */
ups_status ups_encode_split(const ups_session *session, const ups_task *task, ups_split split,
                            ups_encode_options options, ups_encode_report *report, ups_error *error);

/* All tasks and splits; `visit` (may be NULL) sees each report as it is ready. */
ups_status ups_encode_run(const ups_session *session, void (*visit)(void *context, const ups_encode_report *report),
                          void *context, ups_error *error);

/* "20 trajectories, 20.9 MB of fields, 10.2 MB of latents (15.0 MB as plain FP16), read back to nRMSE 0.00054", of a
 * report that is whole. */
void ups_encode_describe(const ups_encode_report *report, char *text, size_t bytes);

/* What the latents of all tasks and splits take as plain FP16: the cache, before compression. */
uint64_t ups_encode_plain_bytes(const ups_session *session);

/* Whether the run's cache has any group of its tasks, complete or not. */
bool ups_encode_has_begun(const ups_run_config *config);

/* Removes the groups of this run's tasks from its cache, so that they are built anew. Nothing else in the directory is
 * touched. Refused while others build, and to processes of a launcher. */
ups_status ups_encode_remove(const ups_run_config *config, ups_error *error);

#endif
