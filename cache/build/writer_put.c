/* Putting trajectories into the cache: rounded, compressed, and published with the rest of their shard. */
#include "base/files.h"
#include "base/system/threads.h"
#include "cache/build/layout.h"
#include "cache/build/writer_state.h"
#include "cache/store/document.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FP16 65520 /* what is below is not rounded to Inf */

void ups_writer_free_entry(ups_cache_entry *entry) {
    if (!entry) return;
    ups_chunk_encoder_destroy(entry->encoder);
    free(entry->rounded);
    free(entry);
}

static ups_cache_entry *create_entry(const ups_cache_writer *writer) {
    ups_cache_entry *entry = calloc(1, sizeof *entry);
    if (!entry) return NULL;
    entry->encoder = ups_chunk_encoder_create(writer->codec, writer->shape.trajectory);
    entry->rounded = malloc(ups_chunk_raw_bytes(writer->shape.trajectory));
    if (entry->encoder && entry->rounded) return entry;
    ups_writer_free_entry(entry);
    return NULL;
}

static void reopen(ups_cache_writer *writer, int64_t sample) {
    pthread_mutex_lock(&writer->mutex);
    writer->state[sample] = SAMPLE_OPEN;
    pthread_mutex_unlock(&writer->mutex);
}

ups_status ups_cache_writer_begin(ups_cache_writer *writer, int64_t sample, ups_cache_entry **result,
                                  ups_error *error) {
    *result = NULL;
    if (sample < 0 || sample >= writer->shape.samples) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: sample %lld was put into a cache of %lld", writer->directory,
                        (long long)sample, (long long)writer->shape.samples);
    }
    pthread_mutex_lock(&writer->mutex);
    bool open = writer->state[sample] == SAMPLE_OPEN;
    if (open) writer->state[sample] = SAMPLE_TAKEN;
    ups_cache_entry *entry = writer->idle;
    if (open && entry) writer->idle = entry->next;
    pthread_mutex_unlock(&writer->mutex);
    if (!open) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: sample %lld was put twice", writer->directory, (long long)sample);
    }
    if (!entry && !(entry = create_entry(writer))) {
        reopen(writer, sample);
        return ups_writer_no_memory(writer, error);
    }
    entry->sample = sample;
    entry->frames = 0;
    entry->rounding = ups_cache_rounding_begin(writer->max_abs_error);
    *result = entry;
    return UPS_OK;
}

static void give_back(ups_cache_writer *writer, ups_cache_entry *entry) {
    pthread_mutex_lock(&writer->mutex);
    entry->next = writer->idle;
    writer->idle = entry;
    pthread_mutex_unlock(&writer->mutex);
}

void ups_cache_writer_abandon(ups_cache_writer *writer, ups_cache_entry *entry) {
    if (!entry) return;
    reopen(writer, entry->sample);
    give_back(writer, entry);
}

/* A process that was suspended may wake in a group that has become another: extended, or replaced. */
static ups_status check_group(const ups_cache_writer *writer, ups_error *error) {
    bool same;
    UPS_TRY(ups_cache_is_of(writer->directory, writer->attributes, &same, error));
    if (same) return UPS_OK;
    return ups_fail(error, UPS_ERR_STALE,
                    "%s: another process extended or replaced this cache while this one was building it; run the "
                    "build again",
                    writer->directory);
}

static ups_status publish_shard(ups_cache_writer *writer, int64_t s, const pending_shard *shard, ups_error *error) {
    ups_small_array statistics = ups_cache_statistics_array(writer->shape);
    UPS_TRY(check_group(writer, error));
    UPS_TRY(ups_small_publish_chunk(writer->directory, &statistics, s, shard->rows, error));
    char *path = ups_cache_shard_path(writer->directory, s);
    if (!path) return ups_writer_no_memory(writer, error);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    ups_status status = ups_make_directories(path, error);
    *slash = '/';
    if (status == UPS_OK) {
        ups_shard_identity identity = ups_document_identity(writer->attributes, s);
        status = ups_shard_publish(path, &identity, ups_small_chunk_crc(&statistics, s, shard->rows),
                                   (const uint8_t *const *)shard->bytes, shard->lengths,
                                   writer->shape.samples_per_shard, error);
    }
    *slash = '\0';
    if (status != UPS_OK && !shard->broken) { /* another builder may have taken over the shard and removed our file */
        bool whole = false;
        if (ups_writer_shard_is_whole(writer, s, &whole, NULL) == UPS_OK && whole) {
            status = ups_sync_directory(path, error); /* which may be what failed */
        }
    }
    free(path);
    if (status == UPS_OK) ups_writer_release_shard(writer, s);
    return status;
}

static bool allocate_pending(ups_cache_shape shape, pending_shard *shard) {
    size_t n = (size_t)shape.samples_per_shard;
    uint8_t **bytes = calloc(n, sizeof *bytes);
    size_t *lengths = calloc(n, sizeof *lengths);
    ups_cache_statistics *rows = calloc(n, sizeof *rows);
    if (!bytes || !lengths || !rows) {
        free(bytes);
        free(lengths);
        free(rows);
        return false;
    }
    shard->bytes = bytes;
    shard->lengths = lengths;
    shard->rows = rows;
    return true;
}

/* Takes ownership of `bytes` (NULL: the sample is left out), and publishes the shard when this was its last. */
static ups_status deliver(ups_cache_writer *writer, int64_t sample, uint8_t *bytes, size_t length,
                          const ups_cache_statistics *row, ups_error *error) {
    int64_t s = sample / writer->shape.samples_per_shard, slot = sample % writer->shape.samples_per_shard;
    pthread_mutex_lock(&writer->mutex);
    pending_shard *shard = &writer->shards[s], whole = {0};
    if (!shard->bytes && !allocate_pending(writer->shape, shard)) {
        pthread_mutex_unlock(&writer->mutex);
        free(bytes);
        return ups_writer_no_memory(writer, error);
    }
    shard->bytes[slot] = bytes;
    shard->lengths[slot] = length;
    shard->rows[slot] = *row;
    bool last = --shard->missing == 0;
    if (last) {
        whole = *shard;
        *shard = (pending_shard){.held = true};
    } else {
        writer->state[sample] = SAMPLE_DONE;
        writer->done++;
    }
    pthread_mutex_unlock(&writer->mutex);
    if (!last) return UPS_OK;

    double began = ups_now(), used = ups_thread_seconds();
    ups_status status = publish_shard(writer, s, &whole, error);
    ups_writer_free_pending(writer->shape, &whole);
    if (status != UPS_OK) return status; /* the sample stays taken: the group cannot be finished without its shard */
    pthread_mutex_lock(&writer->mutex);
    writer->publishing += ups_now() - began;
    writer->publishing_processor += ups_thread_seconds() - used;
    writer->state[sample] = SAMPLE_DONE;
    writer->done++;
    writer->shards[s].held = false;
    pthread_mutex_unlock(&writer->mutex);
    return UPS_OK;
}

void ups_writer_describe_bad(const ups_cache_statistics *row, char *text, size_t size) {
    if (row->non_finite > 0 && row->overflowing > 0) {
        snprintf(text, size, "%.0f values are NaN or Inf, %.0f are beyond FP16's ±65504", row->non_finite,
                 row->overflowing);
    } else if (row->non_finite > 0) {
        snprintf(text, size, "%.0f values are NaN or Inf", row->non_finite);
    } else if (row->overflowing > 0 && row->maximum < MAX_FP16 && row->minimum > -MAX_FP16) {
        snprintf(text, size, "FP16 cannot hold %.0f values to within max_abs_error (range %.4g to %.4g)",
                 row->overflowing, row->minimum, row->maximum);
    } else if (row->overflowing > 0) {
        snprintf(text, size, "%.0f values are beyond FP16's ±65504 (range %.4g to %.4g)", row->overflowing,
                 row->minimum, row->maximum);
    } else {
        snprintf(text, size, "its source could not be used");
    }
}

void ups_cache_writer_add(const ups_cache_writer *writer, ups_cache_entry *entry, const float *latents,
                          int64_t frames) {
    const size_t each = (size_t)(writer->shape.trajectory.tokens * writer->shape.trajectory.dim);
    for (int64_t i = 0; i < frames; i++, entry->frames++) {
        if (entry->frames >= writer->shape.trajectory.times) continue; /* counted, for end to say */
        ups_cache_rounding_add(&entry->rounding, latents + (size_t)i * each, each,
                               entry->rounded + (size_t)entry->frames * each);
    }
}

/* That a sample has values which FP16 does not. */
static ups_status fail_lost(const ups_cache_writer *writer, const ups_cache_entry *entry,
                            const ups_cache_statistics *row, const char *name, ups_error *error) {
    char what[160];
    ups_chunk_shape shape = writer->shape.trajectory;
    int64_t at = (int64_t)entry->rounding.first_lost, frame = shape.tokens * shape.dim;
    ups_writer_describe_bad(row, what, sizeof what);
    return ups_fail(
        error, UPS_ERR_NUMERIC,
        "%s: its latents cannot be cached: %s, the first (%.7g) at frame %lld, token %lld, dim %lld. Repair "
        "the sample or the encoder%s, or set on_bad_sample: skip to leave such samples out",
        name, what, (double)entry->rounding.lost_value, (long long)(at / frame), (long long)(at % frame / shape.dim),
        (long long)(at % shape.dim), writer->max_abs_error > 0 ? ", raise max_abs_error" : "");
}

ups_status ups_cache_writer_end(ups_cache_writer *writer, ups_cache_entry *entry, const char *name, ups_error *error) {
    const int64_t sample = entry->sample, times = writer->shape.trajectory.times;
    const ups_cache_statistics row = ups_cache_rounding_end(&entry->rounding);
    ups_status status = UPS_OK;
    uint8_t *copy = NULL;
    size_t length = 0;
    if (entry->frames != times) {
        status = ups_fail(error, UPS_ERR_ARGUMENT, "%s: %lld frames were put where a trajectory has %lld", name,
                          (long long)entry->frames, (long long)times);
    } else if (!ups_cache_statistics_bad(&row)) {
        const uint8_t *bytes;
        status = ups_chunk_encode(entry->encoder, entry->rounded, &bytes, &length, error);
        if (status == UPS_OK && !(copy = malloc(length))) status = ups_writer_no_memory(writer, error);
        if (status == UPS_OK) memcpy(copy, bytes, length);
    } else if (!writer->skip_bad) {
        status = fail_lost(writer, entry, &row, name, error);
    }
    give_back(writer, entry);
    return status == UPS_OK ? deliver(writer, sample, copy, length, &row, error) : status;
}

ups_status ups_cache_writer_put(ups_cache_writer *writer, int64_t sample, const char *name, const float *latents,
                                ups_error *error) {
    ups_cache_entry *entry;
    UPS_TRY(ups_cache_writer_begin(writer, sample, &entry, error));
    ups_cache_writer_add(writer, entry, latents, writer->shape.trajectory.times);
    return ups_cache_writer_end(writer, entry, name, error);
}

ups_status ups_cache_writer_skip(ups_cache_writer *writer, int64_t sample, ups_error *error) {
    ups_cache_entry *entry;
    UPS_TRY(ups_cache_writer_begin(writer, sample, &entry, error));
    give_back(writer, entry);
    ups_cache_statistics row = {.minimum = INFINITY, .maximum = -INFINITY};
    return deliver(writer, sample, NULL, 0, &row, error);
}
