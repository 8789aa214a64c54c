/* Building a cache: trajectories in, in any order and from several threads; shards out, each whole or absent.
 *
 *   open → (take → put × samples taken)… → finish → close
 *
 * A shard is written once all of its trajectories are there, under a temporary name that is synced and renamed: one
 * that has its name is complete. Killed at any moment, the next open finds the shards that are complete and the build
 * goes on from there; it ends with the same bytes as one that was never killed, on any number of threads and processes.
 * Encoded trajectories wait in memory for their shard, so put samples roughly in order.
 *
 * Several processes may build one group at the same time, on any hosts that share its file system: each takes shards
 * that nobody else has, and those of processes that died (cache/build/leases.h). */
#ifndef UPS_CACHE_BUILD_WRITER_H
#define UPS_CACHE_BUILD_WRITER_H

#include "cache/codec/chunk.h"
#include "cache/store/fingerprint.h"
#include "pipeline/source.h"
#include <stdbool.h>

typedef struct ups_cache_description {
    const char *task, *split; /* the group is <directory>/<task>/<split> */
    int64_t samples, times, tokens, dim;
    const double *time;   /* (times) seconds, or (samples, times) */
    bool time_per_sample; /* time grids differ; their length may not */
    int parameter_count;
    const char *const *parameter_names; /* (parameter_count) */
    const double *parameters;           /* (samples, parameter_count); NaN where a sample has none */
    const int64_t *source_samples;      /* (samples): index in the source; NULL: the same */
    const char *const *files;           /* (file_count) of the source, which fingerprint.source was made of; NULL, 0: */
    int64_t file_count;                 /* unknown, and a cache of fewer files is not extended */
    ups_fingerprint fingerprint;
    const json_t *source, *encoder, *normalisation; /* kept as they are in attributes.ups, for readers; NULL is fine */
    ups_chunk_codec codec;
    double max_abs_error; /* what latents may change on their way into the cache: statistics.h; 0: FP16's rounding */
    int64_t samples_per_shard; /* 0: 16 to 512, about 64 MiB before compression */
    ups_on_bad_sample on_bad_sample;
    bool repair;           /* documents that are damaged are written again, and the shards of `broken` are built */
    const int64_t *broken; /* (broken_count) shards that are there, but are to be built again: each is replaced once */
    int64_t broken_count;  /* its successor is whole, so that a repair that stops half-way leaves what there was */
    int64_t rank, ranks;   /* of concurrent builders: where among the shards this one begins; 0, 0: at the
                              first, and then they find each other */
} ups_cache_description;

typedef struct ups_cache_summary {
    int64_t samples, skipped;
    uint64_t raw_bytes, stored_bytes; /* FP16 latents of the samples kept; their shards */
    double error_max, error_rms;      /* of rounding to FP16 */
    double minimum, maximum;
} ups_cache_summary;

typedef struct ups_cache_writer ups_cache_writer;

/* Everything in the description is copied. Shards that are there are kept. A cache of the first samples of this one
 * (its files are the first of ours and did not change, and everything else is the same) is extended: its whole shards
 * stay, its last one is built again if it was not full.
 *
 * UPS_ERR_STALE: a cache made by something else, or with other settings, is there already (the message says what
 * differs; remove it to build anew). UPS_ERR_IO: the directory cannot be made or written, or others are building
 * something else in it. UPS_ERR_CANCELLED. */
ups_status ups_cache_writer_open(const char *directory, const ups_cache_description *description,
                                 ups_cache_writer **writer, ups_error *error);

/* Whether opening would extend `group`, the directory of the description's group, which was made of other source data:
 * UPS_OK; UPS_ERR_STALE, with what stands against it, when not. Nothing is written, and builders are not looked for. */
ups_status ups_cache_would_extend(const char *group, const ups_cache_description *description, ups_error *error);

/* Leases shards to this process: about `most` samples, but at least one shard. Their samples that are yet to be put go
 * to `samples` (ups_cache_writer_room of them fit). *count 0: nothing is left, or others have what is left. Samples may
 * also be put without being taken, when one process builds alone. Thread-safe. */
ups_status ups_cache_writer_take(ups_cache_writer *writer, int64_t most, int64_t *samples, int64_t *count,
                                 ups_error *error);
int64_t ups_cache_writer_room(const ups_cache_writer *writer,
                              int64_t most); /* samples that such a take gives at most */

/* Looks what other processes have completed since the last look, and who they are. Thread-safe. */
ups_status ups_cache_writer_refresh(ups_cache_writer *writer, ups_error *error);

typedef struct ups_cache_writer_state {
    int64_t samples, done;                   /* by all processes, as far as known */
    int64_t untaken;                         /* shards that are not done and not ours */
    int others;                              /* other processes at work in the group */
    int64_t extended_from;                   /* samples of the cache that this build extends; 0: it extends none */
    double publishing, publishing_processor; /* seconds, and CPU seconds, that writing, syncing and naming shards took;
                                                both are part of what their last put took */
} ups_cache_writer_state;
ups_cache_writer_state ups_cache_writer_look(ups_cache_writer *writer); /* thread-safe */

/* True for samples that need no put: their shard is on disk, or they were put. */
bool ups_cache_writer_done(ups_cache_writer *writer, int64_t sample);
int64_t ups_cache_writer_done_count(ups_cache_writer *writer);
const char *ups_cache_writer_directory(const ups_cache_writer *writer);

/* `latents` (times, tokens, dim) float32; encoded on the calling thread. `name` says in messages what a person would
 * call the sample: "file.h5, sample 0007". NaN, Inf, values beyond FP16 or the error bound: UPS_ERR_NUMERIC, or the
 * sample is recorded as skipped where the description says so. Thread-safe. */
ups_status ups_cache_writer_put(ups_cache_writer *writer, int64_t sample, const char *name, const float *latents,
                                ups_error *error);

/* The same in parts, as a pending entry: begin, add × frames in their order, end; or abandon, after which the sample
 * may be put again. Begin is thread-safe, what it gives is one thread's, and end or abandon take it back. A sample put
 * twice or that there is not: UPS_ERR_ARGUMENT; end says what put says. */
typedef struct ups_cache_entry ups_cache_entry;
ups_status ups_cache_writer_begin(ups_cache_writer *writer, int64_t sample, ups_cache_entry **entry, ups_error *error);
void ups_cache_writer_add(const ups_cache_writer *writer, ups_cache_entry *entry, const float *latents, int64_t frames);
ups_status ups_cache_writer_end(ups_cache_writer *writer, ups_cache_entry *entry, const char *name, ups_error *error);
void ups_cache_writer_abandon(ups_cache_writer *writer, ups_cache_entry *entry); /* NULL is fine */

/* Leaves a sample out because its source could not be read: recorded as skipped. Thread-safe. */
ups_status ups_cache_writer_skip(ups_cache_writer *writer, int64_t sample, ups_error *error);

/* What else the finished group's `result` says, beside what the shards do: a new reference, taken; the same for all who
 * build the group. Before finish. */
void ups_cache_writer_add_result(ups_cache_writer *writer, const char *key, json_t *value);

/* Marks the group complete, if another process did not already. UPS_ERR_ARGUMENT when samples are missing. `summary`
 * may be NULL. */
ups_status ups_cache_writer_finish(ups_cache_writer *writer, ups_cache_summary *summary, ups_error *error);

/* Gives back what was taken and frees; without finish, what is complete stays for the next open. NULL is fine. */
void ups_cache_writer_close(ups_cache_writer *writer);

#endif
