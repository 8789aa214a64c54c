/* State of a sample: open → claimed (a thread encodes it) → done. State of a shard: its encoded chunks wait in `bytes`
 * until `missing` reaches zero; the thread that brought the last one publishes, statistics first, so that a shard on
 * disk always has them. */
#include "cache/writer.h"

#include "base/files.h"
#include "cache/group.h"
#include "cache/layout.h"
#include "cache/shard.h"
#include "cache/statistics.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define SHARD_BYTES (INT64_C(64) << 20) /* raw latents in a shard, about */
#define SHARD_MIN 16
#define SHARD_MAX 64

typedef enum sample_state { SAMPLE_OPEN, SAMPLE_CLAIMED, SAMPLE_DONE } sample_state;

/* What one encoding thread needs; a free list hands them out. */
typedef struct workspace {
    ups_chunk_encoder *encoder;
    ups_f16 *rounded;
    struct workspace *next;
} workspace;

typedef struct pending_shard {
    int64_t missing;            /* samples not yet put */
    uint8_t **bytes;            /* (samples_per_shard) encoded chunks, NULL: absent; allocated with the first put */
    size_t *lengths;            /* (samples_per_shard) */
    ups_cache_statistics *rows; /* (samples_per_shard) */
} pending_shard;

struct ups_cache_writer {
    char *directory; /* of the group */
    ups_cache_shape shape;
    ups_chunk_codec codec;
    bool skip_bad;
    json_t *attributes;
    int64_t *source_samples;
    int lock; /* descriptor of the group's directory, locked; −1 */
    pthread_mutex_t mutex;
    workspace *idle;
    unsigned char *state; /* (samples) */
    int64_t done;
    pending_shard *shards; /* (shard count) */
};

static ups_status no_memory(const ups_cache_writer *writer, ups_error *error) {
    return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to build the cache", writer->directory);
}

static void free_pending(ups_cache_shape shape, pending_shard *shard) {
    for (int64_t i = 0; shard->bytes && i < shape.samples_per_shard; i++) free(shard->bytes[i]);
    free(shard->bytes);
    free(shard->lengths);
    free(shard->rows);
    *shard = (pending_shard){0};
}

static void free_workspace(workspace *space) {
    if (!space) return;
    ups_chunk_encoder_destroy(space->encoder);
    free(space->rounded);
    free(space);
}

void ups_cache_writer_close(ups_cache_writer *writer) {
    if (!writer) return;
    while (writer->idle) {
        workspace *next = writer->idle->next;
        free_workspace(writer->idle);
        writer->idle = next;
    }
    for (int64_t i = 0; writer->shards && i < ups_cache_shard_count(writer->shape); i++) {
        free_pending(writer->shape, &writer->shards[i]);
    }
    if (writer->lock >= 0) close(writer->lock);
    pthread_mutex_destroy(&writer->mutex);
    json_decref(writer->attributes);
    free(writer->shards);
    free(writer->state);
    free(writer->source_samples);
    free(writer->directory);
    free(writer);
}

/* A name that becomes a directory: not empty, no '/', no leading '.'. */
static bool usable_name(const char *name) {
    return name && *name && *name != '.' && !strchr(name, '/');
}

static ups_status check_description(const ups_cache_description *d, ups_error *error) {
    if (!usable_name(d->task) || !usable_name(d->split)) {
        return ups_fail(
            error, UPS_ERR_ARGUMENT,
            "a cache cannot be made for task '%s', split '%s': both become directories, so neither may be empty, "
            "start with '.' or hold '/'",
            d->task ? d->task : "", d->split ? d->split : "");
    }
    if (d->samples < 1 || d->times < 1 || d->tokens < 1 || d->dim < 1 || d->samples_per_shard < 0) {
        return ups_fail(
            error, UPS_ERR_ARGUMENT,
            "%s/%s: a cache of %lld samples, %lld times, %lld tokens, %lld dim cannot be made: each must be at "
            "least 1",
            d->task, d->split, (long long)d->samples, (long long)d->times, (long long)d->tokens, (long long)d->dim);
    }
    if (d->samples > UPS_CACHE_MAX_VALUES ||
        (double)d->times * (double)d->tokens * (double)d->dim > (double)UPS_CACHE_MAX_VALUES) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%s/%s: a cache of %lld samples, %lld times, %lld tokens, %lld dim cannot be made: at most "
                        "2^40 samples, and "
                        "2^40 values in each",
                        d->task, d->split, (long long)d->samples, (long long)d->times, (long long)d->tokens,
                        (long long)d->dim);
    }
    if (d->samples_per_shard > UPS_CACHE_MAX_SAMPLES_PER_SHARD) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s/%s: shards of %lld samples cannot be made; at most %d", d->task,
                        d->split, (long long)d->samples_per_shard, UPS_CACHE_MAX_SAMPLES_PER_SHARD);
    }
    return UPS_OK;
}

static int64_t default_samples_per_shard(ups_chunk_shape trajectory) {
    int64_t fitting = SHARD_BYTES / (int64_t)ups_chunk_raw_bytes(trajectory);
    return fitting < SHARD_MIN ? SHARD_MIN : fitting > SHARD_MAX ? SHARD_MAX : fitting;
}

/* One builder at a time. A file system without locks is built on without one. */
static ups_status lock_directory(ups_cache_writer *writer, bool *locked, ups_error *error) {
    *locked = false;
    writer->lock = open(writer->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (writer->lock < 0) return ups_fail_errno(error, "%s: the directory cannot be opened", writer->directory);
    if (flock(writer->lock, LOCK_EX | LOCK_NB) == 0) {
        *locked = true;
    } else if (errno == EWOULDBLOCK) {
        return ups_fail(error, UPS_ERR_IO,
                        "%s: another process is building this cache; wait for it, or build into another directory",
                        writer->directory);
    }
    return UPS_OK;
}

/* Which shards did an earlier build complete? One whose statistics are missing or damaged is built again. */
static ups_status find_complete_shards(ups_cache_writer *writer, ups_error *error) {
    ups_cache_shape shape = writer->shape;
    ups_small_array statistics = ups_cache_statistics_array(shape);
    ups_chunk_place *places = malloc((size_t)shape.samples_per_shard * sizeof *places);
    ups_cache_statistics *rows = malloc((size_t)shape.samples_per_shard * sizeof *rows);
    ups_status status = places && rows ? UPS_OK : no_memory(writer, error);
    for (int64_t s = 0; s < ups_cache_shard_count(shape) && status == UPS_OK; s++) {
        int64_t samples = ups_cache_shard_samples(shape, s), first = s * shape.samples_per_shard;
        writer->shards[s].missing = samples;
        char *path = ups_cache_shard_path(writer->directory, s);
        if (!path) {
            status = no_memory(writer, error);
        } else if (ups_path_exists(path) &&
                   ups_small_read_chunk(writer->directory, &statistics, s, rows, NULL) == UPS_OK) {
            status = ups_shard_read_index(path, shape.samples_per_shard, first, places, error);
            if (status != UPS_OK) {
                ups_fail_within(error, "cannot resume the build; remove this shard to have it built again");
            }
            writer->shards[s].missing = 0;
            memset(writer->state + first, SAMPLE_DONE, (size_t)samples);
            writer->done += samples;
        }
        free(path);
    }
    free(rows);
    free(places);
    return status;
}

ups_status ups_cache_writer_open(const char *directory, const ups_cache_description *d, ups_cache_writer **result,
                                 ups_error *error) {
    *result = NULL;
    UPS_TRY(check_description(d, error));
    ups_cache_writer *writer = calloc(1, sizeof *writer);
    if (!writer) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to build the cache", directory);
    writer->lock = -1;
    pthread_mutex_init(&writer->mutex, NULL);
    writer->shape = (ups_cache_shape){d->samples, {d->times, d->tokens, d->dim}, d->samples_per_shard};
    if (!d->samples_per_shard) writer->shape.samples_per_shard = default_samples_per_shard(writer->shape.trajectory);
    writer->codec = d->codec;
    writer->skip_bad = d->on_bad_sample == UPS_BAD_SAMPLE_SKIP;
    writer->attributes = ups_cache_attributes(d, writer->shape);
    writer->state = calloc((size_t)d->samples, 1);
    writer->source_samples = malloc((size_t)d->samples * sizeof *writer->source_samples);
    writer->shards = calloc((size_t)ups_cache_shard_count(writer->shape), sizeof *writer->shards);
    if (asprintf(&writer->directory, "%s/%s/%s", directory, d->task, d->split) < 0) writer->directory = NULL;
    ups_status status = UPS_OK;
    bool alone = false;
    if (!writer->directory || !writer->attributes || !writer->state || !writer->source_samples || !writer->shards) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to build the cache", directory);
    }
    if (status == UPS_OK) {
        for (int64_t i = 0; i < d->samples; i++) {
            writer->source_samples[i] = d->source_samples ? d->source_samples[i] : i;
        }
        status = ups_make_directories(writer->directory, error);
    }
    if (status == UPS_OK) status = lock_directory(writer, &alone, error);
    if (status == UPS_OK) status = ups_cache_sweep(writer->directory, alone, error);
    if (status == UPS_OK) {
        status = ups_cache_lay_out(directory, writer->directory, d, writer->shape, writer->attributes, error);
    }
    if (status == UPS_OK) status = find_complete_shards(writer, error);
    if (status != UPS_OK) {
        ups_cache_writer_close(writer);
        return status;
    }
    *result = writer;
    return UPS_OK;
}

bool ups_cache_writer_done(ups_cache_writer *writer, int64_t sample) {
    pthread_mutex_lock(&writer->mutex);
    bool done = sample >= 0 && sample < writer->shape.samples && writer->state[sample] == SAMPLE_DONE;
    pthread_mutex_unlock(&writer->mutex);
    return done;
}

int64_t ups_cache_writer_done_count(ups_cache_writer *writer) {
    pthread_mutex_lock(&writer->mutex);
    int64_t done = writer->done;
    pthread_mutex_unlock(&writer->mutex);
    return done;
}

const char *ups_cache_writer_directory(const ups_cache_writer *writer) {
    return writer->directory;
}

static workspace *create_workspace(const ups_cache_writer *writer) {
    workspace *space = calloc(1, sizeof *space);
    if (!space) return NULL;
    space->encoder = ups_chunk_encoder_create(writer->codec, writer->shape.trajectory);
    space->rounded = malloc(ups_chunk_raw_bytes(writer->shape.trajectory));
    if (space->encoder && space->rounded) return space;
    free_workspace(space);
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
    return *space ? UPS_OK : no_memory(writer, error);
}

static void give_back(ups_cache_writer *writer, workspace *space) {
    if (!space) return;
    pthread_mutex_lock(&writer->mutex);
    space->next = writer->idle;
    writer->idle = space;
    pthread_mutex_unlock(&writer->mutex);
}

static ups_status publish_shard(ups_cache_writer *writer, int64_t s, const pending_shard *shard, ups_error *error) {
    ups_small_array statistics = ups_cache_statistics_array(writer->shape);
    UPS_TRY(ups_small_publish_chunk(writer->directory, &statistics, s, shard->rows, error));
    char *path = ups_cache_shard_path(writer->directory, s);
    if (!path) return no_memory(writer, error);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    ups_status status = ups_make_directories(path, error);
    *slash = '/';
    if (status == UPS_OK) {
        status = ups_shard_publish(path, (const uint8_t *const *)shard->bytes, shard->lengths,
                                   writer->shape.samples_per_shard, error);
    }
    free(path);
    return status;
}

static bool allocate_pending(ups_cache_shape shape, pending_shard *shard) {
    size_t n = (size_t)shape.samples_per_shard;
    shard->bytes = calloc(n, sizeof *shard->bytes);
    shard->lengths = calloc(n, sizeof *shard->lengths);
    shard->rows = calloc(n, sizeof *shard->rows);
    return shard->bytes && shard->lengths && shard->rows;
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
        return no_memory(writer, error);
    }
    shard->bytes[slot] = bytes;
    shard->lengths[slot] = length;
    shard->rows[slot] = *row;
    bool last = --shard->missing == 0;
    if (last) {
        whole = *shard;
        *shard = (pending_shard){0};
    } else {
        writer->state[sample] = SAMPLE_DONE;
        writer->done++;
    }
    pthread_mutex_unlock(&writer->mutex);
    if (!last) return UPS_OK;

    ups_status status = publish_shard(writer, s, &whole, error);
    free_pending(writer->shape, &whole);
    if (status != UPS_OK) return status; /* the sample stays claimed: the group cannot be finished without its shard */
    pthread_mutex_lock(&writer->mutex);
    writer->state[sample] = SAMPLE_DONE;
    writer->done++;
    pthread_mutex_unlock(&writer->mutex);
    return UPS_OK;
}

/* What is wrong with a sample, in words. */
static void describe_bad(const ups_cache_statistics *row, char *text, size_t size) {
    if (row->non_finite > 0 && row->overflowing > 0) {
        snprintf(text, size, "%.0f values are NaN or Inf, %.0f are beyond FP16's ±65504", row->non_finite,
                 row->overflowing);
    } else if (row->non_finite > 0) {
        snprintf(text, size, "%.0f values are NaN or Inf", row->non_finite);
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
    ups_cache_round(latents, count, space->rounded, &row, &first_bad);
    uint8_t *copy = NULL;
    if (first_bad < count && !writer->skip_bad) {
        char what[160];
        describe_bad(&row, what, sizeof what);
        int64_t frame = (int64_t)first_bad / (shape.tokens * shape.dim),
                rest = (int64_t)first_bad % (shape.tokens * shape.dim);
        status =
            ups_fail(error, UPS_ERR_NUMERIC,
                     "%s: its latents cannot be cached: %s, the first at frame %lld, token %lld, dim %lld. Mend the "
                     "sample or the encoder, or set on_bad_sample: skip to leave such samples out",
                     name, what, (long long)frame, (long long)(rest / shape.dim), (long long)(rest % shape.dim));
    } else if (first_bad == count) {
        const uint8_t *bytes;
        status = ups_chunk_encode(space->encoder, space->rounded, &bytes, &length, error);
        if (status == UPS_OK && !(copy = malloc(length))) status = no_memory(writer, error);
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

/* Reads back what every shard holds, so that a resumed build reports as an undisturbed one. */
static ups_status sum_up(ups_cache_writer *writer, ups_cache_summary *summary, json_t *skipped, ups_error *error) {
    ups_cache_shape shape = writer->shape;
    ups_small_array array = ups_cache_statistics_array(shape);
    ups_cache_statistics *rows = malloc((size_t)shape.samples * sizeof *rows);
    ups_chunk_place *places = malloc((size_t)shape.samples_per_shard * sizeof *places);
    ups_status status =
        rows && places ? ups_small_read(writer->directory, &array, rows, error) : no_memory(writer, error);
    int64_t kept = 0;
    *summary = (ups_cache_summary){.samples = shape.samples};
    for (int64_t s = 0; s < ups_cache_shard_count(shape) && status == UPS_OK; s++) {
        char *path = ups_cache_shard_path(writer->directory, s);
        uint64_t size = 0;
        int64_t first = s * shape.samples_per_shard;
        status =
            path ? ups_shard_read_index(path, shape.samples_per_shard, first, places, error) : no_memory(writer, error);
        if (status == UPS_OK) status = ups_file_size(path, &size, error);
        free(path);
        summary->stored_bytes += size;
        for (int64_t i = 0; i < ups_cache_shard_samples(shape, s) && status == UPS_OK; i++) {
            if (ups_chunk_present(places[i])) {
                rows[kept++] = rows[first + i];
                continue;
            }
            char what[160];
            describe_bad(&rows[first + i], what, sizeof what);
            json_array_append_new(skipped,
                                  json_pack("{s:I, s:I, s:s}", "sample", (json_int_t)(first + i), "source_sample",
                                            (json_int_t)writer->source_samples[first + i], "reason", what));
        }
    }
    if (status == UPS_OK) {
        ups_cache_totals totals = ups_cache_statistics_sum(rows, kept);
        summary->skipped = shape.samples - kept;
        summary->raw_bytes = (uint64_t)kept * ups_chunk_raw_bytes(shape.trajectory);
        summary->error_max = totals.error_max;
        summary->error_rms = totals.error_rms;
        summary->minimum = totals.minimum;
        summary->maximum = totals.maximum;
    }
    free(places);
    free(rows);
    return status;
}

ups_status ups_cache_writer_finish(ups_cache_writer *writer, ups_cache_summary *summary, ups_error *error) {
    int64_t missing = -1;
    pthread_mutex_lock(&writer->mutex);
    for (int64_t i = 0; i < writer->shape.samples && missing < 0; i++) {
        if (writer->state[i] != SAMPLE_DONE) missing = i;
    }
    int64_t done = writer->done;
    pthread_mutex_unlock(&writer->mutex);
    if (missing >= 0) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%s: the cache cannot be finished: %lld of %lld samples are there, and sample %lld is not",
                        writer->directory, (long long)done, (long long)writer->shape.samples, (long long)missing);
    }
    ups_cache_summary sums;
    json_t *skipped = json_array();
    if (!skipped) return no_memory(writer, error);
    ups_status status = sum_up(writer, &sums, skipped, error);
    json_t *result = NULL;
    if (status == UPS_OK) {
        bool any = sums.skipped < sums.samples; /* without a single value there is no range */
        result = json_pack("{s:I, s:O, s:I, s:I, s:{s:f, s:f}, s:{s:f, s:f}}", "kept",
                           (json_int_t)(sums.samples - sums.skipped), "skipped", skipped, "raw_bytes",
                           (json_int_t)sums.raw_bytes, "stored_bytes", (json_int_t)sums.stored_bytes,
                           "fp16_rounding_error", "max", sums.error_max, "rms", sums.error_rms, "range", "minimum",
                           any ? sums.minimum : 0.0, "maximum", any ? sums.maximum : 0.0);
        status =
            result ? ups_cache_seal(writer->directory, writer->attributes, result, error) : no_memory(writer, error);
    }
    if (status == UPS_OK && summary) *summary = sums;
    json_decref(result);
    json_decref(skipped);
    return status;
}
