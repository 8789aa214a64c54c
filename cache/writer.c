/* Putting trajectories: rounded, compressed, and published with the rest of their shard. */
#include "base/files.h"
#include "base/threads.h"
#include "cache/layout.h"
#include "cache/writer_state.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_FP16 65520 /* what is below is not rounded to Inf */

void ups_writer_free_workspace(workspace *space) {
    if (!space) return;
    ups_chunk_encoder_destroy(space->encoder);
    free(space->rounded);
    free(space);
}

static workspace *create_workspace(const ups_cache_writer *writer) {
    workspace *space = calloc(1, sizeof *space);
    if (!space) return NULL;
    space->encoder = ups_chunk_encoder_create(writer->codec, writer->shape.trajectory);
    space->rounded = malloc(ups_chunk_raw_bytes(writer->shape.trajectory));
    if (space->encoder && space->rounded) return space;
    ups_writer_free_workspace(space);
    return NULL;
}

/* Marks the sample as this thread's, and hands out a workspace. */
static ups_status claim(ups_cache_writer *writer, int64_t sample, workspace **space, ups_error *error) {
    if (sample < 0 || sample >= writer->shape.samples) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: sample %lld was put into a cache of %lld", writer->directory,
                        (long long)sample, (long long)writer->shape.samples);
    }
    pthread_mutex_lock(&writer->mutex);
    bool open = writer->state[sample] == SAMPLE_OPEN;
    if (open) writer->state[sample] = SAMPLE_CLAIMED;
    *space = writer->idle;
    if (open && *space) writer->idle = (*space)->next;
    pthread_mutex_unlock(&writer->mutex);
    if (!open) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: sample %lld was put twice", writer->directory, (long long)sample);
    }
    if (!*space) *space = create_workspace(writer);
    return *space ? UPS_OK : ups_writer_no_memory(writer, error);
}

static void give_back(ups_cache_writer *writer, workspace *space) {
    if (!space) return;
    pthread_mutex_lock(&writer->mutex);
    space->next = writer->idle;
    writer->idle = space;
    pthread_mutex_unlock(&writer->mutex);
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
        status = ups_shard_publish(path, (const uint8_t *const *)shard->bytes, shard->lengths,
                                   writer->shape.samples_per_shard, error);
    }
    *slash = '\0';
    if (status != UPS_OK) { /* another that took this one for dead may have built it, and swept our file away */
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
    if (status != UPS_OK) return status; /* the sample stays claimed: the group cannot be finished without its shard */
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
    } else if (row->overflowing > 0 && row->maximum < MOST_FP16 && row->minimum > -MOST_FP16) {
        snprintf(text, size, "FP16 cannot hold %.0f values to within max_abs_error (range %.4g to %.4g)",
                 row->overflowing, row->minimum, row->maximum);
    } else if (row->overflowing > 0) {
        snprintf(text, size, "%.0f values are beyond FP16's ±65504 (range %.4g to %.4g)", row->overflowing,
                 row->minimum, row->maximum);
    } else {
        snprintf(text, size, "its source could not be used");
    }
}

ups_status ups_cache_writer_put(ups_cache_writer *writer, int64_t sample, const char *name, const float *latents,
                                ups_error *error) {
    workspace *space = NULL;
    ups_status status = claim(writer, sample, &space, error);
    if (status != UPS_OK) return status;
    ups_chunk_shape shape = writer->shape.trajectory;
    ups_cache_statistics row;
    size_t count = ups_chunk_raw_bytes(shape) / sizeof(ups_f16), first_bad, length = 0;
    ups_cache_round(latents, count, writer->max_abs_error, space->rounded, &row, &first_bad);
    uint8_t *copy = NULL;
    if (first_bad < count && !writer->skip_bad) {
        char what[160];
        ups_writer_describe_bad(&row, what, sizeof what);
        int64_t frame = (int64_t)first_bad / (shape.tokens * shape.dim),
                rest = (int64_t)first_bad % (shape.tokens * shape.dim);
        status = ups_fail(
            error, UPS_ERR_NUMERIC,
            "%s: its latents cannot be cached: %s, the first (%.7g) at frame %lld, token %lld, dim %lld. Mend the "
            "sample or the encoder%s, or set on_bad_sample: skip to leave such samples out",
            name, what, (double)latents[first_bad], (long long)frame, (long long)(rest / shape.dim),
            (long long)(rest % shape.dim), writer->max_abs_error > 0 ? ", raise max_abs_error" : "");
    } else if (first_bad == count) {
        const uint8_t *bytes;
        status = ups_chunk_encode(space->encoder, space->rounded, &bytes, &length, error);
        if (status == UPS_OK && !(copy = malloc(length))) status = ups_writer_no_memory(writer, error);
        if (status == UPS_OK) memcpy(copy, bytes, length);
    }
    give_back(writer, space);
    if (status != UPS_OK) {
        free(copy);
        return status;
    }
    return deliver(writer, sample, copy, length, &row, error);
}

ups_status ups_cache_writer_skip(ups_cache_writer *writer, int64_t sample, ups_error *error) {
    workspace *space = NULL;
    UPS_TRY(claim(writer, sample, &space, error));
    give_back(writer, space);
    ups_cache_statistics row = {.minimum = INFINITY, .maximum = -INFINITY};
    return deliver(writer, sample, NULL, 0, &row, error);
}
