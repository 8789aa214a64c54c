/* Building a cache: trajectories in, in any order and from several threads; shards out, each whole or absent.
 *
 *   open → put × samples (those that `done` does not know already) → finish → close
 *
 * A shard is written once all of its trajectories are there, under a temporary name that is synced and renamed: one
 * that has its name is complete. Killed at any moment, the next open finds the shards that are complete and the build
 * goes on from there; it ends with the same bytes as one that was never killed, on any number of threads. Encoded
 * trajectories wait in memory for their shard, so put samples roughly in order. One process builds a group at a time (a
 * lock on its directory). */
#ifndef UPS_CACHE_WRITER_H
#define UPS_CACHE_WRITER_H

#include "cache/chunk.h"
#include "cache/fingerprint.h"
#include "pipeline/loader.h"
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
    ups_fingerprint fingerprint;
    const json_t *source, *encoder, *normalisation; /* kept as they are in attributes.ups, for readers; NULL is fine */
    ups_chunk_codec codec;
    int64_t samples_per_shard; /* 0: 16 to 64, about 64 MiB before compression */
    ups_on_bad_sample on_bad_sample;
} ups_cache_description;

typedef struct ups_cache_summary {
    int64_t samples, skipped;
    uint64_t raw_bytes, stored_bytes; /* FP16 latents of the samples kept; their shards */
    double error_max, error_rms;      /* of rounding to FP16 */
    double minimum, maximum;
} ups_cache_summary;

typedef struct ups_cache_writer ups_cache_writer;

/* Everything in the description is copied. UPS_ERR_STALE: a cache made by something else, or with other settings, is
 * there already (the message says what differs; remove it to build anew). UPS_ERR_IO: the directory cannot be made or
 * written, or another process builds in it. */
ups_status ups_cache_writer_open(const char *directory, const ups_cache_description *description,
                                 ups_cache_writer **writer, ups_error *error);

/* True for samples that need no put: their shard is on disk, or they were put. */
bool ups_cache_writer_done(ups_cache_writer *writer, int64_t sample);
int64_t ups_cache_writer_done_count(ups_cache_writer *writer);
const char *ups_cache_writer_directory(const ups_cache_writer *writer);

/* `latents` (times, tokens, dim) float32; encoded on the calling thread. `name` says in messages what a person would
 * call the sample: "file.h5, sample 0007". NaN, Inf and values beyond FP16: UPS_ERR_NUMERIC, or the sample is recorded
 * as skipped where the description says so. Thread-safe. */
ups_status ups_cache_writer_put(ups_cache_writer *writer, int64_t sample, const char *name, const float *latents,
                                ups_error *error);

/* Leaves a sample out because its source could not be read: recorded as skipped. Thread-safe. */
ups_status ups_cache_writer_skip(ups_cache_writer *writer, int64_t sample, ups_error *error);

/* Marks the group complete. UPS_ERR_ARGUMENT when samples are missing. `summary` may be NULL. */
ups_status ups_cache_writer_finish(ups_cache_writer *writer, ups_cache_summary *summary, ups_error *error);

/* Frees; without finish, what is complete stays for the next open. NULL is fine. */
void ups_cache_writer_close(ups_cache_writer *writer);

#endif
