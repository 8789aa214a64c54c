/* Latents as a portable Zarr store: the group written anew with codecs that every Zarr v3 reader has. What the build
 * knew (statistics, times, conditions) goes along, so the store is a cache in its own right: verify, inspect and
 * training take it. It is written into a directory with a temporary name, renamed when all is there. */
#include "cache/inspect/export_sink.h"

#include "base/hash.h"
#include "cache/store/document.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PORTABLE_LEVEL 1 /* of zstd */

struct ups_zarr_store {
    const char *directory; /* under its temporary name */
    ups_cache_shape shape; /* of the store */
    ups_chunk_encoder *encoder;
    ups_cache_statistics *statistics; /* (samples of the group): as the build kept them */
    uint8_t **bytes;                  /* (samples_per_shard): chunks of the shard under way; NULL: absent */
    size_t *lengths;
    ups_cache_statistics *rows; /* (samples_per_shard): their statistics */
    ups_chunk_place *places;    /* (samples_per_shard): read back */
    ups_cache_statistics *kept; /* (samples): of all that are present */
    int64_t kept_count;
    uint64_t stored_bytes;
    json_t *skipped;
    json_t *attributes;     /* attributes.ups, without result */
    uint64_t (*digests)[2]; /* (shards) */
};

static ups_status no_memory(const ups_export_sink *to, ups_error *error) {
    return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to export it", to->group->directory);
}

/* ---- shards ---- */

static ups_status publish_shard(ups_export_sink *to, int64_t shard, ups_error *error) {
    struct ups_zarr_store *store = to->store;
    int64_t per_shard = store->shape.samples_per_shard;
    ups_small_array statistics = ups_cache_statistics_array(store->shape);
    UPS_TRY(ups_small_publish_chunk(store->directory, &statistics, shard, store->rows, error));
    char *path = ups_cache_shard_path(store->directory, shard);
    if (!path) return no_memory(to, error);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    ups_status status = ups_make_directories(path, error);
    *slash = '/';
    ups_shard_identity identity = ups_document_identity(store->attributes, shard);
    ups_shard_facts facts = {0};
    if (status == UPS_OK) {
        status = ups_shard_publish(path, &identity, ups_small_chunk_crc(&statistics, shard, store->rows),
                                   (const uint8_t *const *)store->bytes, store->lengths, per_shard, error);
    }
    if (status == UPS_OK) {
        status = ups_shard_read_index(path, &identity, per_shard, shard * per_shard, store->places, &facts, error);
    }
    store->stored_bytes += facts.bytes;
    store->digests[shard][0] = facts.digest.low;
    store->digests[shard][1] = facts.digest.high;
    free(path);
    for (int64_t i = 0; i < per_shard; i++) {
        free(store->bytes[i]);
        store->bytes[i] = NULL;
    }
    return status;
}

static ups_status write_zarr(ups_export_sink *to, int64_t row, ups_cache_trajectory *trajectory, ups_error *error) {
    struct ups_zarr_store *store = to->store;
    int64_t slot = row % store->shape.samples_per_shard, index = ups_export_index(to, row);
    store->rows[slot] = store->statistics[index];
    if (trajectory->present) {
        const uint8_t *bytes;
        UPS_TRY(ups_chunk_encode(store->encoder, trajectory->latents, &bytes, &store->lengths[slot], error));
        store->bytes[slot] = malloc(store->lengths[slot]);
        if (!store->bytes[slot]) return no_memory(to, error);
        memcpy(store->bytes[slot], bytes, store->lengths[slot]);
        store->kept[store->kept_count++] = store->statistics[index];
    } else {
        json_array_append_new(store->skipped, json_pack("{s:I, s:I, s:s}", "sample", (json_int_t)row, "source_sample",
                                                        (json_int_t)to->group->source_samples[index], "reason",
                                                        "skipped when the cache was built"));
    }
    bool last = slot + 1 == store->shape.samples_per_shard || row + 1 == to->samples;
    return last ? publish_shard(to, row / store->shape.samples_per_shard, error) : UPS_OK;
}

/* ---- what is beside the latents ---- */

static ups_status publish_array(const ups_export_sink *to, ups_small_array array, const void *values,
                                ups_error *error) {
    bool by_sample = strcmp(array.dimensions[0], "sample") == 0;
    void *rows = by_sample ? ups_export_rows(to, values, (size_t)(array.columns ? array.columns : 1) * 8) : NULL;
    if (by_sample && !rows) return no_memory(to, error);
    ups_status status = ups_small_publish_chunk(to->store->directory, &array, 0, by_sample ? rows : values, error);
    free(rows);
    return status;
}

static ups_status publish_surroundings(const ups_export_sink *to, ups_error *error) {
    const ups_cache_group *group = to->group;
    ups_cache_shape shape = to->store->shape;
    UPS_TRY(publish_array(to, ups_cache_time_array(shape, group->time_per_sample), group->time, error));
    if (group->parameter_count > 0) {
        UPS_TRY(publish_array(to, ups_cache_condition_array(shape, group->parameter_count), group->parameters, error));
    }
    return publish_array(to, ups_cache_source_sample_array(shape), group->source_samples, error);
}

/* A selection must not be taken for the whole: its source is the whole's and the samples taken. */
static void select_source(const ups_export_sink *to, ups_fingerprint *fingerprint) {
    if (!to->request->samples) return;
    ups_hasher *hasher = ups_hasher_create();
    ups_hasher_update(hasher, fingerprint->source, strlen(fingerprint->source));
    ups_hasher_update(hasher, to->request->samples, (size_t)to->samples * sizeof *to->request->samples);
    ups_hash_hex(ups_hasher_finish(hasher), fingerprint->source);
}

static json_t *result_of(const ups_export_sink *to) {
    const struct ups_zarr_store *store = to->store;
    ups_cache_totals totals = ups_cache_statistics_sum(store->kept, store->kept_count);
    bool any = totals.good > 0;
    uint64_t raw = (uint64_t)store->kept_count * ups_chunk_raw_bytes(store->shape.trajectory);
    return json_pack("{s:I, s:O, s:I, s:I, s:{s:f, s:f}, s:{s:f, s:f}}", "kept", (json_int_t)store->kept_count,
                     "skipped", store->skipped, "raw_bytes", (json_int_t)raw, "stored_bytes",
                     (json_int_t)store->stored_bytes, "fp16_rounding_error", "max", totals.error_max, "rms",
                     totals.error_rms, "range", "minimum", any ? totals.minimum : 0.0, "maximum",
                     any ? totals.maximum : 0.0);
}

/* attributes.ups.arrays of the samples taken. */
static ups_status hash_arrays(const ups_export_sink *to, char hex[33], ups_error *error) {
    const ups_cache_group *group = to->group;
    const size_t times = (size_t)group->shape.trajectory.times, parameters = (size_t)group->parameter_count;
    double *time = group->time_per_sample ? ups_export_rows(to, group->time, times * sizeof *time) : NULL;
    double *condition = parameters ? ups_export_rows(to, group->parameters, parameters * sizeof *condition) : NULL;
    int64_t *source = ups_export_rows(to, group->source_samples, sizeof *source);
    bool had = source && (time || !group->time_per_sample) && (condition || !parameters);
    if (had) {
        ups_cache_hash_arrays(to->store->shape, time ? time : group->time, group->time_per_sample, condition,
                              group->parameter_count, source, hex);
    }
    free(time);
    free(condition);
    free(source);
    return had ? UPS_OK : no_memory(to, error);
}

/* What the store is, before its first shard. */
static ups_status describe_store(const ups_export_sink *to, ups_error *error) {
    ups_fingerprint fingerprint = to->group->fingerprint;
    select_source(to, &fingerprint);
    char arrays[33];
    UPS_TRY(hash_arrays(to, arrays, error));
    json_t *attributes = to->store->attributes = json_deep_copy(to->group->attributes);
    if (!attributes) return no_memory(to, error);
    json_object_set_new(attributes, "fingerprint", ups_fingerprint_to_json(&fingerprint));
    json_object_set_new(attributes, "samples", json_integer(to->samples));
    json_object_set_new(attributes, "samples_per_shard", json_integer(to->store->shape.samples_per_shard));
    json_object_set_new(attributes, "codec", json_string("portable"));
    json_object_set_new(attributes, "zstd_level", json_integer(PORTABLE_LEVEL));
    json_object_set_new(attributes, "arrays", json_string(arrays));
    json_object_set_new(attributes, "exported", json_true());
    json_object_del(attributes, "result");
    ups_document_name_group(attributes);
    return UPS_OK;
}

/* The list of shards, and the group's own document, last: with it the store is complete. */
static ups_status publish_group(const ups_export_sink *to, ups_error *error) {
    const struct ups_zarr_store *store = to->store;
    ups_small_array shards = ups_cache_shards_array(store->shape);
    char hex[33];
    json_t *result = result_of(to);
    ups_cache_hash_digests(store->shape, store->digests, hex);
    json_object_set_new(result, "shards", json_string(hex));
    json_object_set_new(store->attributes, "result", result);
    UPS_TRY(ups_small_publish_chunk(store->directory, &shards, 0, store->digests, error));
    return ups_document_publish_group(store->directory, store->attributes, error);
}

/* ---- all of it ---- */

static ups_status read_statistics(const ups_export_sink *to, ups_error *error) {
    ups_small_array array = ups_cache_statistics_array(to->group->shape);
    return ups_small_read(to->group->directory, &array, to->store->statistics, error);
}

static ups_status write_store(ups_export_sink *to, ups_error *error) {
    struct ups_zarr_store *store = to->store;
    UPS_TRY(read_statistics(to, error));
    UPS_TRY(describe_store(to, error));
    UPS_TRY(ups_document_publish_arrays(store->directory, store->attributes, error));
    UPS_TRY(publish_surroundings(to, error));
    to->write = write_zarr;
    UPS_TRY(ups_export_each(to, error));
    return publish_group(to, error);
}

ups_status ups_export_zarr(ups_export_sink *to, ups_error *error) {
    ups_cache_shape shape = to->group->shape;
    int64_t per_shard = shape.samples_per_shard;
    struct ups_zarr_store store = {.shape = {to->samples, shape.trajectory, per_shard}};
    ups_directory_publication *publication = NULL;
    ups_remove_partials_of(to->request->path);
    UPS_TRY(ups_publish_directory_begin(to->request->path, &publication, error));
    store.directory = ups_publish_directory_temporary(publication);
    store.encoder = ups_chunk_encoder_create((ups_chunk_codec){true, PORTABLE_LEVEL}, shape.trajectory);
    store.statistics = malloc((size_t)(shape.samples + per_shard) * sizeof *store.statistics);
    store.bytes = calloc((size_t)per_shard, sizeof *store.bytes);
    store.lengths = calloc((size_t)per_shard, sizeof *store.lengths);
    store.rows = calloc((size_t)per_shard, sizeof *store.rows);
    store.kept = malloc((size_t)to->samples * sizeof *store.kept);
    store.places = malloc((size_t)per_shard * sizeof *store.places);
    store.digests = calloc((size_t)ups_cache_shard_count(store.shape), sizeof *store.digests);
    store.skipped = json_array();
    bool had = store.encoder && store.statistics && store.bytes && store.lengths && store.rows && store.kept &&
               store.places && store.digests && store.skipped;
    ups_export_sink here = *to;
    here.store = &store;
    ups_status status = had ? write_store(&here, error) : no_memory(to, error);
    for (int64_t i = 0; store.bytes && i < per_shard; i++) free(store.bytes[i]);
    ups_chunk_encoder_destroy(store.encoder);
    free(store.statistics);
    free(store.bytes);
    free(store.lengths);
    free(store.rows);
    free(store.kept);
    free(store.places);
    free(store.digests);
    json_decref(store.attributes);
    json_decref(store.skipped);
    if (status == UPS_OK) return ups_publish_directory_commit(publication, error);
    ups_publish_directory_abandon(publication);
    return status;
}
