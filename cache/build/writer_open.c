/* Opening a group to build in it: entering its builders, laying out or extending what is there, finding the shards
 * that are complete. */
#include "base/files.h"
#include "cache/build/layout.h"
#include "cache/build/writer_state.h"
#include "cache/codec/codec.h"
#include "cache/store/document.h"
#include <stdlib.h>
#include <string.h>

#define SHARD_BYTES (INT64_C(64) << 20) /* raw latents in a shard, about */
#define SHARD_MIN 16
#define SHARD_MAX 512 /* files of less than that are mostly the sync that ends them */

ups_status ups_writer_no_memory(const ups_cache_writer *writer, ups_error *error) {
    return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to build the cache", writer->directory);
}

void ups_writer_free_pending(ups_cache_shape shape, pending_shard *shard) {
    for (int64_t i = 0; shard->bytes && i < shape.samples_per_shard; i++) free(shard->bytes[i]);
    free(shard->bytes);
    free(shard->lengths);
    free(shard->rows);
    *shard = (pending_shard){0};
}

void ups_cache_writer_close(ups_cache_writer *writer) {
    if (!writer) return;
    ups_leases_leave(writer->leases);
    while (writer->idle) {
        ups_cache_entry *next = writer->idle->next;
        ups_writer_free_entry(writer->idle);
        writer->idle = next;
    }
    for (int64_t i = 0; writer->shards && i < ups_cache_shard_count(writer->shape); i++) {
        ups_writer_free_pending(writer->shape, &writer->shards[i]);
    }
    pthread_mutex_destroy(&writer->mutex);
    json_decref(writer->attributes);
    json_decref(writer->added);
    free(writer->digests);
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
    if (!d->codec.portable && d->times > UPS_LATENT_MAX_TIMES) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%s/%s: trajectories of %lld frames cannot be made with the codec `latent`, which has at most "
                        "%lld: take `cache.codec: portable`",
                        d->task, d->split, (long long)d->times, (long long)UPS_LATENT_MAX_TIMES);
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

static bool is_broken(const ups_cache_description *d, int64_t shard) {
    for (int64_t i = 0; i < d->broken_count; i++)
        if (d->broken[i] == shard) return true;
    return false;
}

/* Which shards are complete, of an earlier build or of others' now? */
static ups_status find_complete_shards(ups_cache_writer *writer, const ups_cache_description *d, bool none,
                                       ups_error *error) {
    for (int64_t s = 0; s < ups_cache_shard_count(writer->shape); s++) {
        bool whole;
        writer->shards[s].missing = ups_cache_shard_samples(writer->shape, s);
        writer->shards[s].broken = none || is_broken(d, s);
        if (writer->shards[s].broken) continue;
        ups_status status = ups_writer_shard_is_whole(writer, s, &whole, error);
        bool is_damage = status == UPS_ERR_FORMAT || status == UPS_ERR_CHECKSUM;
        if (d->repair && is_damage) { /* not seen before, since a document was damaged as well */
            writer->shards[s].broken = true;
            continue;
        }
        UPS_TRY(status);
        if (whole) ups_writer_adopt(writer, s);
    }
    return UPS_OK;
}

/* With which shards the build ended that the document on disk tells of, if it is finished. What cannot be read is of no
 * use, and written again when this build is finished. */
static void read_digests(ups_cache_writer *writer) {
    json_t *found, *result;
    ups_error changed;
    char hex[33];
    if (ups_document_read_group(writer->directory, &found, &changed, NULL) != UPS_OK) return;
    result = json_object_get(found, "result");
    ups_cache_shape shape = writer->shape;
    shape.samples = json_integer_value(json_object_get(found, "samples"));
    const char *wanted = json_string_value(json_object_get(result, "shards"));
    ups_small_array array = ups_cache_shards_array(shape);
    uint64_t(*digests)[2] = NULL;
    if (changed.code == UPS_OK && wanted && shape.samples > 0 && shape.samples <= writer->shape.samples &&
        (digests = malloc((size_t)array.rows * sizeof *digests)) &&
        ups_small_read_chunk(writer->directory, &array, 0, digests, NULL) == UPS_OK) {
        ups_cache_hash_digests(shape, digests, hex);
        if (strcmp(hex, wanted) == 0) {
            writer->digests = digests;
            writer->digest_count = array.rows;
            digests = NULL;
        }
    }
    free(digests);
    json_decref(found);
}

/* Under the lease on the group's documents, so that of several that begin at once one makes them and the others
 * check them. */
static ups_status lay_out(ups_cache_writer *writer, const char *root, const ups_cache_description *d,
                          bool *shards_unknown, ups_error *error) {
    UPS_TRY(ups_writer_lock_group(writer, error));
    ups_leases_others others = ups_leases_look(writer->leases);
    ups_status status = ups_cache_sweep(writer->directory, others.count == 0, error);
    ups_cache_layout layout = {.root = root,
                               .directory = writer->directory,
                               .description = d,
                               .shape = writer->shape,
                               .attributes = writer->attributes,
                               .building = others.other_purpose > 0 ? others.example : NULL};
    read_digests(writer); /* before an extension says something else */
    if (status == UPS_OK) status = ups_cache_lay_out(&layout, &writer->extended_from, shards_unknown, error);
    ups_writer_unlock_group(writer);
    return status;
}

/* A group that calls itself complete and is not (a shard was lost): readers are told before it is repaired. */
static ups_status withdraw(ups_cache_writer *writer, ups_error *error) {
    UPS_TRY(ups_writer_lock_group(writer, error));
    ups_status status = ups_cache_writer_refresh(writer, error);
    if (status == UPS_OK && writer->done < writer->shape.samples) {
        status = ups_cache_unseal(writer->directory, writer->attributes, error);
    }
    ups_writer_unlock_group(writer);
    return status;
}

static ups_status join_builders(ups_cache_writer *writer, ups_error *error) {
    char purpose[33];
    ups_fingerprint_json(writer->attributes, purpose);
    UPS_TRY(ups_make_directories(writer->directory, error));
    return ups_leases_join(writer->directory, purpose, (ups_leases_timing){0}, &writer->leases, error);
}

/* Processes of known rank begin apart from each other: rank r at the r-th of as many equal parts. */
static int64_t first_shard(const ups_cache_description *d, ups_cache_shape shape) {
    if (d->ranks < 2 || d->rank < 0 || d->rank >= d->ranks) return 0;
    return (int64_t)((double)ups_cache_shard_count(shape) * (double)d->rank / (double)d->ranks);
}

static ups_cache_shape shape_of(const ups_cache_description *d) {
    ups_cache_shape shape = {d->samples, {d->times, d->tokens, d->dim}, d->samples_per_shard};
    if (!shape.samples_per_shard) shape.samples_per_shard = default_samples_per_shard(shape.trajectory);
    return shape;
}

ups_status ups_cache_would_extend(const char *group, const ups_cache_description *d, ups_error *error) {
    UPS_TRY(check_description(d, error));
    json_t *attributes = ups_cache_attributes(d, shape_of(d));
    ups_status status = attributes ? ups_cache_can_extend(group, attributes, d, shape_of(d), error)
                                   : ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to look at it", group);
    json_decref(attributes);
    return status;
}

ups_status ups_cache_writer_open(const char *directory, const ups_cache_description *d, ups_cache_writer **result,
                                 ups_error *error) {
    *result = NULL;
    UPS_TRY(check_description(d, error));
    ups_cache_writer *writer = calloc(1, sizeof *writer);
    if (!writer) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to build the cache", directory);
    pthread_mutex_init(&writer->mutex, NULL);
    writer->shape = shape_of(d);
    writer->codec = d->codec;
    writer->max_abs_error = d->max_abs_error;
    writer->skip_bad = d->on_bad_sample == UPS_BAD_SAMPLE_SKIP;
    writer->attributes = ups_cache_attributes(d, writer->shape);
    writer->state = calloc((size_t)d->samples, 1);
    writer->source_samples = malloc((size_t)d->samples * sizeof *writer->source_samples);
    writer->shards = calloc((size_t)ups_cache_shard_count(writer->shape), sizeof *writer->shards);
    if (asprintf(&writer->directory, "%s/%s/%s", directory, d->task, d->split) < 0) writer->directory = NULL;
    ups_status status = UPS_OK;
    if (!writer->directory || !writer->attributes || !writer->state || !writer->source_samples || !writer->shards) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to build the cache", directory);
    }
    if (status == UPS_OK) {
        for (int64_t i = 0; i < d->samples; i++) {
            writer->source_samples[i] = d->source_samples ? d->source_samples[i] : i;
        }
        writer->cursor = first_shard(d, writer->shape);
        status = join_builders(writer, error);
    }
    bool shards_unknown = false;
    if (status == UPS_OK) status = lay_out(writer, directory, d, &shards_unknown, error);
    if (status == UPS_OK) status = find_complete_shards(writer, d, shards_unknown, error);
    /* While it is repaired the group stays as it is: readers refuse what is broken in it, and nothing else. */
    if (status == UPS_OK && !d->repair && writer->done < writer->shape.samples) status = withdraw(writer, error);
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
