#include "cache/layout.h"

#include "base/files.h"
#include "base/hash.h"
#include <fnmatch.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PARTIAL_PATTERN ".*.ups-partial-*" /* base/files.h: names of files being written */

static int64_t source_sample(const ups_cache_description *description, int64_t sample) {
    return description->source_samples ? description->source_samples[sample] : sample;
}

/* One hash over the small arrays, so that a resumed build notices when any of them would change. */
static void hash_arrays(const ups_cache_description *d, char hex[33]) {
    ups_hasher *hasher = ups_hasher_create();
    size_t grids = d->time_per_sample ? (size_t)d->samples : 1;
    ups_hasher_update(hasher, d->time, grids * (size_t)d->times * sizeof *d->time);
    if (d->parameter_count) {
        ups_hasher_update(hasher, d->parameters,
                          (size_t)d->samples * (size_t)d->parameter_count * sizeof *d->parameters);
    }
    for (int64_t i = 0; i < d->samples; i++) {
        int64_t sample = source_sample(d, i);
        ups_hasher_update(hasher, &sample, sizeof sample);
    }
    ups_hash_hex(ups_hasher_finish(hasher), hex);
}

/* A JSON copy, or {} for NULL. */
static json_t *copy_or_empty(const json_t *document) {
    return document ? json_deep_copy(document) : json_object();
}

json_t *ups_cache_attributes(const ups_cache_description *d, ups_cache_shape shape) {
    char arrays[33];
    hash_arrays(d, arrays);
    json_t *parameters = json_array();
    for (int i = 0; i < d->parameter_count; i++) json_array_append_new(parameters, json_string(d->parameter_names[i]));
    json_t *attributes = json_object();
    json_object_set_new(attributes, "task", json_string(d->task));
    json_object_set_new(attributes, "split", json_string(d->split));
    json_object_set_new(attributes, "complete", json_false());
    json_object_set_new(attributes, "fingerprint", ups_fingerprint_to_json(&d->fingerprint));
    json_object_set_new(attributes, "samples", json_integer(shape.samples));
    json_object_set_new(attributes, "times", json_integer(shape.trajectory.times));
    json_object_set_new(attributes, "tokens", json_integer(shape.trajectory.tokens));
    json_object_set_new(attributes, "dim", json_integer(shape.trajectory.dim));
    json_object_set_new(attributes, "samples_per_shard", json_integer(shape.samples_per_shard));
    json_object_set_new(attributes, "codec", json_string(d->codec.portable ? "portable" : "ups.latent"));
    json_object_set_new(attributes, "zstd_level",
                        json_integer(d->codec.level ? d->codec.level : UPS_CHUNK_DEFAULT_LEVEL));
    json_object_set_new(attributes, "time_per_sample", json_boolean(d->time_per_sample));
    json_object_set_new(attributes, "parameters", parameters);
    json_object_set_new(attributes, "arrays", json_string(arrays));
    json_object_set_new(attributes, "source", copy_or_empty(d->source));
    json_object_set_new(attributes, "encoder", copy_or_empty(d->encoder));
    json_object_set_new(attributes, "normalisation", copy_or_empty(d->normalisation));
    return attributes;
}

static ups_status publish_group(const char *directory, json_t *attributes, ups_error *error) {
    char *path = NULL;
    json_t *document = ups_zarr_group(attributes);
    ups_status status = document && asprintf(&path, "%s/zarr.json", directory) >= 0
                            ? ups_json_publish(path, document, error)
                            : ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
    free(path);
    json_decref(document);
    return status;
}

static ups_status publish_ups_group(const char *directory, json_t *attributes, ups_error *error) {
    json_t *wrapped = json_pack("{s:O}", "ups", attributes);
    if (!wrapped) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
    ups_status status = publish_group(directory, wrapped, error);
    json_decref(wrapped);
    return status;
}

/* What is on disk must have been made from the same attributes, but for what only a finished build adds. */
static ups_status check_existing(const char *directory, const char *document_path, json_t *attributes,
                                 ups_error *error) {
    json_t *document = NULL, *outer, *found, *object;
    UPS_TRY(ups_json_read(document_path, &document, error));
    ups_fingerprint have, want;
    ups_status status = ups_json_object(document, "attributes", document_path, &outer, error);
    if (status == UPS_OK) status = ups_json_object(outer, "ups", document_path, &found, error);
    if (status == UPS_OK) status = ups_json_object(found, "fingerprint", document_path, &object, error);
    if (status == UPS_OK) status = ups_fingerprint_from_json(object, document_path, &have, error);
    if (status == UPS_OK) {
        object = json_object_get(attributes, "fingerprint");
        status = ups_fingerprint_from_json(object, document_path, &want, error);
    }
    if (status == UPS_OK) status = ups_fingerprint_compare(&want, &have, directory, error);
    const char *key;
    json_t *value;
    json_object_foreach(attributes, key, value) {
        if (status != UPS_OK) break;
        json_t *other = json_object_get(found, key);
        if (strcmp(key, "complete") == 0 || json_equal(value, other)) continue;
        char *now = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        char *then = other ? json_dumps(other, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        status = ups_fail(error, UPS_ERR_STALE,
                          "%s: the cache there was begun with other settings: '%s' is %.100s, now %.100s. Use the same "
                          "settings, or remove the directory to build it again",
                          directory, key, then ? then : "missing", now ? now : "?");
        free(now);
        free(then);
    }
    json_decref(document);
    return status;
}

static ups_status publish_small_arrays(const char *directory, const ups_cache_description *d, ups_cache_shape shape,
                                       ups_error *error) {
    ups_small_array time = ups_cache_time_array(shape, d->time_per_sample);
    UPS_TRY(ups_small_publish_metadata(directory, &time, NULL, error));
    UPS_TRY(ups_small_publish_chunk(directory, &time, 0, d->time, error));
    if (d->parameter_count > 0) {
        ups_small_array condition = ups_cache_condition_array(shape, d->parameter_count);
        UPS_TRY(ups_small_publish_metadata(directory, &condition, NULL, error));
        UPS_TRY(ups_small_publish_chunk(directory, &condition, 0, d->parameters, error));
    }
    ups_small_array source = ups_cache_source_sample_array(shape);
    UPS_TRY(ups_small_publish_metadata(directory, &source, NULL, error));
    int64_t *samples = malloc((size_t)d->samples * sizeof *samples);
    if (!samples) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
    for (int64_t i = 0; i < d->samples; i++) samples[i] = source_sample(d, i);
    ups_status status = ups_small_publish_chunk(directory, &source, 0, samples, error);
    free(samples);
    UPS_TRY(status);
    ups_small_array statistics = ups_cache_statistics_array(shape);
    json_t *columns = ups_cache_statistics_columns();
    status = ups_small_publish_metadata(directory, &statistics, columns, error);
    json_decref(columns);
    return status;
}

static ups_status publish_latent_metadata(const char *directory, ups_cache_shape shape, ups_chunk_codec codec,
                                          ups_error *error) {
    char *folder = NULL, *path = NULL;
    json_t *document = ups_zarr_latent(shape, codec);
    ups_status status = UPS_OK;
    if (asprintf(&folder, "%s/" UPS_CACHE_LATENT "/c", directory) < 0) folder = NULL;
    if (asprintf(&path, "%s/" UPS_CACHE_LATENT "/zarr.json", directory) < 0) path = NULL;
    if (!folder || !path || !document) status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
    if (status == UPS_OK) status = ups_make_directories(folder, error);
    if (status == UPS_OK) status = ups_json_publish(path, document, error);
    json_decref(document);
    free(path);
    free(folder);
    return status;
}

/* The groups above: without attributes, so that `zarr.open_group(root)` finds its way down. Others may be building
 * beside us: what is there is left alone. */
static ups_status publish_parent(const char *directory, ups_error *error) {
    char *path = NULL;
    if (asprintf(&path, "%s/zarr.json", directory) < 0)
        return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
    ups_status status = ups_path_exists(path) ? UPS_OK : publish_group(directory, NULL, error);
    free(path);
    return status;
}

ups_status ups_cache_lay_out(const char *root, const char *directory, const ups_cache_description *description,
                             ups_cache_shape shape, json_t *attributes, ups_error *error) {
    char *own = NULL, *task = NULL, *shards = NULL;
    ups_status status = UPS_OK;
    if (asprintf(&own, "%s/zarr.json", directory) < 0) own = NULL;
    if (asprintf(&task, "%s/%s", root, description->task) < 0) task = NULL;
    if (asprintf(&shards, "%s/" UPS_CACHE_LATENT "/c", directory) < 0) shards = NULL;
    if (!own || !task || !shards) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
        goto cleanup;
    }
    if (ups_path_exists(own)) {
        status = check_existing(directory, own, attributes, error);
        if (status != UPS_OK) goto cleanup;
    } else {
        if (ups_path_exists(shards)) {
            status =
                ups_fail(error, UPS_ERR_STALE,
                         "%s: holds latents, but no zarr.json that says what made them; remove the directory to build "
                         "it again",
                         directory);
            goto cleanup;
        }
        /* The group's own document comes first: from here on it is known whose shards these are. */
        status = publish_ups_group(directory, attributes, error);
    }
    if (status == UPS_OK) status = ups_remove_partials(root, error);
    if (status == UPS_OK) status = ups_remove_partials(task, error);
    if (status == UPS_OK) status = publish_parent(root, error);
    if (status == UPS_OK) status = publish_parent(task, error);
    if (status == UPS_OK) status = publish_small_arrays(directory, description, shape, error);
    if (status == UPS_OK) status = publish_latent_metadata(directory, shape, description->codec, error);
cleanup:
    free(own);
    free(task);
    free(shards);
    return status;
}

ups_status ups_cache_seal(const char *directory, json_t *attributes, json_t *result, ups_error *error) {
    json_t *sealed = json_copy(attributes);
    if (!sealed) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
    json_object_set_new(sealed, "complete", json_true());
    json_object_set(sealed, "result", result);
    ups_status status = publish_ups_group(directory, sealed, error);
    json_decref(sealed);
    return status;
}

ups_status ups_cache_sweep(const char *directory, bool alone, ups_error *error) {
    char *paths[] = {(char *)directory, NULL};
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (!walk) return ups_fail_errno(error, "%s: the directory cannot be read", directory);
    ups_status status = UPS_OK;
    for (FTSENT *entry; status == UPS_OK && (entry = fts_read(walk));) {
        if (entry->fts_info == FTS_D && !alone) status = ups_remove_partials(entry->fts_path, error);
        if (entry->fts_info != FTS_F || !alone || fnmatch(PARTIAL_PATTERN, entry->fts_name, 0) != 0) continue;
        if (unlink(entry->fts_path) != 0) status = ups_fail_errno(error, "%s: cannot be removed", entry->fts_path);
    }
    fts_close(walk);
    return status;
}
