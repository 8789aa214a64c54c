#include "cache/build/layout.h"

#include "base/files.h"
#include "cache/build/extend.h"
#include "cache/build/leases.h"
#include "cache/store/document.h"
#include <errno.h>
#include <fnmatch.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PARTIAL_PATTERN ".*.ups-partial-*" /* base/files.h: names of files being written */

static int64_t source_sample(const ups_cache_description *description, int64_t sample) {
    return description->source_samples ? description->source_samples[sample] : sample;
}

/* A JSON copy, or {} for NULL. */
static json_t *copy_or_empty(const json_t *document) {
    return document ? json_deep_copy(document) : json_object();
}

json_t *ups_cache_attributes(const ups_cache_description *d, ups_cache_shape shape) {
    char arrays[33];
    int64_t *sources = malloc((size_t)d->samples * sizeof *sources);
    if (!sources) return NULL;
    for (int64_t i = 0; i < d->samples; i++) sources[i] = source_sample(d, i);
    ups_cache_hash_arrays(shape, d->time, d->time_per_sample, d->parameters, d->parameter_count, sources, arrays);
    free(sources);
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
    if (d->codec.portable) {
        json_object_set_new(attributes, "zstd_level",
                            json_integer(d->codec.level ? d->codec.level : UPS_PORTABLE_DEFAULT_LEVEL));
    }
    json_object_set_new(attributes, "max_abs_error", json_real(d->max_abs_error));
    json_object_set_new(attributes, "time_per_sample", json_boolean(d->time_per_sample));
    json_object_set_new(attributes, "parameters", parameters);
    json_object_set_new(attributes, "arrays", json_string(arrays));
    json_object_set_new(attributes, "source", copy_or_empty(d->source));
    json_object_set_new(attributes, "encoder", copy_or_empty(d->encoder));
    json_object_set_new(attributes, "normalisation", copy_or_empty(d->normalisation));
    ups_document_name_group(attributes);
    return attributes;
}

/* What made the group on disk; a document that changed since it was written is not believed. A new reference. */
static ups_status read_group(const char *directory, json_t **attributes, ups_error *error) {
    ups_error changed;
    ups_fingerprint found;
    ups_status status = ups_document_read_group(directory, attributes, &changed, error);
    if (status == UPS_OK && changed.code != UPS_OK) { /* documents of earlier formats had no check */
        status = ups_fingerprint_from_json(json_object_get(*attributes, "fingerprint"), directory, &found, error);
    }
    if (status == UPS_OK && changed.code != UPS_OK) status = ups_fail(error, changed.code, "%s", changed.message);
    if (status == UPS_OK) return UPS_OK;
    json_decref(*attributes);
    *attributes = NULL;
    return status;
}

/* Was it made from the same fingerprint and settings? */
static ups_status compare(const char *directory, const json_t *found, const ups_cache_layout *layout,
                          ups_error *error) {
    ups_fingerprint have;
    UPS_TRY(ups_fingerprint_from_json(json_object_get(found, "fingerprint"), directory, &have, error));
    UPS_TRY(ups_fingerprint_compare(&layout->description->fingerprint, &have, directory, error));
    return ups_cache_compare_settings(directory, found, layout->attributes, false, error);
}

/* What is on disk must have been made from the same attributes, but for what only a finished build adds; or it is
 * extended: its document becomes ours, incomplete, before anything else changes. A repair extends nothing. */
static ups_status check_existing(const ups_cache_layout *layout, int64_t *extended_from, ups_error *error) {
    const char *directory = layout->directory;
    json_t *found = NULL;
    UPS_TRY(read_group(directory, &found, error));
    ups_fingerprint have;
    ups_status status = ups_fingerprint_from_json(json_object_get(found, "fingerprint"), directory, &have, error);
    bool other_source = status == UPS_OK && strcmp(have.source, layout->description->fingerprint.source) != 0;
    if (status == UPS_OK && other_source && layout->description->file_count > 0) {
        int64_t samples = 0;
        status = ups_cache_check_extension(directory, found, layout->attributes, layout->description, layout->shape,
                                           &samples, error);
        if (status == UPS_OK && layout->description->repair) {
            status =
                ups_fail(error, UPS_ERR_STALE,
                         "%s: is not repaired, for it would be extended: source files were added since it was built; "
                         "`ups cache build` extends it",
                         directory);
        }
        if (status == UPS_OK && layout->building) {
            status = ups_fail(error, UPS_ERR_IO,
                              "%s: cannot be extended while it is being built: %s is at work in it; wait for it",
                              directory, layout->building);
        }
        if (status == UPS_OK) status = ups_document_publish_group(directory, layout->attributes, error);
        if (status == UPS_OK) *extended_from = samples;
    } else if (status == UPS_OK) {
        status = compare(directory, found, layout, error);
    }
    json_decref(found);
    return status;
}

/* What a document or its copy can be at fault with; all else, as want of memory, says nothing of it. */
static bool is_damage(ups_status status) {
    return status == UPS_ERR_FORMAT || status == UPS_ERR_CHECKSUM || status == UPS_ERR_STALE;
}

/* The group's own document is lost, damaged or another group's, as `reason` says. Where the copy that the latents keep
 * says that this group was made from our attributes, it is written again and the shards stand, each for itself. Where
 * there is no copy either, nobody knows what made the shards: all are built again. A group that both, or the one that
 * is left, say to be made of something else is not ours to repair. */
static ups_status restore_document(const ups_cache_layout *layout, const ups_error *reason, bool *shards_unknown,
                                   ups_error *error) {
    json_t *copy = NULL;
    ups_error lost = {0};
    ups_status status = ups_document_read_copy(layout->directory, &copy, &lost);
    bool is_read = status == UPS_OK;
    if (is_read) status = compare(layout->directory, copy, layout, &lost);
    json_decref(copy);
    bool is_absent = !is_read && status == UPS_ERR_IO && ups_errno_is_absent(lost.number);
    bool is_ours = status == UPS_OK;
    if (!is_ours && !is_absent && !is_damage(status)) { /* it may be sound: nothing is given up for it */
        return ups_fail(error, status, "%s", lost.message);
    }
    const ups_error *other = reason->code == UPS_ERR_STALE ? reason : lost.code == UPS_ERR_STALE ? &lost : NULL;
    if (!is_ours && other) return ups_fail(error, UPS_ERR_STALE, "%s", other->message);
    *shards_unknown = !is_ours;
    return ups_document_publish_group(layout->directory, layout->attributes, error);
}

/* One time grid for all samples is a file where a grid for each needs a directory of that name. */
static ups_status make_way_for_times(const char *directory, ups_cache_shape shape, ups_error *error) {
    ups_small_array common = ups_cache_time_array(shape, false);
    char *path = ups_small_chunk_path(directory, &common, 0);
    if (!path) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
    uint64_t size;
    ups_status status = UPS_OK;
    if (ups_file_size(path, &size, NULL) == UPS_OK && unlink(path) != 0) {
        status = ups_fail_errno(error, "%s: cannot be removed", path);
    }
    free(path);
    return status;
}

static ups_status publish_small_arrays(const char *directory, const ups_cache_description *d, ups_cache_shape shape,
                                       ups_error *error) {
    ups_small_array time = ups_cache_time_array(shape, d->time_per_sample);
    UPS_TRY(ups_small_publish_chunk(directory, &time, 0, d->time, error));
    if (d->parameter_count > 0) {
        ups_small_array condition = ups_cache_condition_array(shape, d->parameter_count);
        UPS_TRY(ups_small_publish_chunk(directory, &condition, 0, d->parameters, error));
    }
    ups_small_array source = ups_cache_source_sample_array(shape);
    int64_t *samples = malloc((size_t)d->samples * sizeof *samples);
    if (!samples) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
    for (int64_t i = 0; i < d->samples; i++) samples[i] = source_sample(d, i);
    ups_status status = ups_small_publish_chunk(directory, &source, 0, samples, error);
    free(samples);
    return status;
}

/* The groups above: without attributes, so that `zarr.open_group(root)` finds its way down. Others may be building
 * beside us: what is there is left alone, unless it is to be repaired. */
static ups_status publish_parent(const char *directory, bool repair, ups_error *error) {
    char *path = NULL;
    if (asprintf(&path, "%s/zarr.json", directory) < 0)
        return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
    bool wanted = repair || ups_path_is_absent(path);
    free(path);
    return wanted ? ups_document_publish_parent(directory, error) : UPS_OK;
}

ups_status ups_cache_lay_out(const ups_cache_layout *layout, int64_t *extended_from, bool *shards_unknown,
                             ups_error *error) {
    const char *root = layout->root, *directory = layout->directory;
    const ups_cache_description *description = layout->description;
    char *own = NULL, *task = NULL, *shards = NULL;
    ups_status status = UPS_OK;
    *extended_from = 0;
    *shards_unknown = false;
    if (asprintf(&own, "%s/zarr.json", directory) < 0) own = NULL;
    if (asprintf(&task, "%s/%s", root, description->task) < 0) task = NULL;
    if (asprintf(&shards, "%s/" UPS_CACHE_LATENT "/c", directory) < 0) shards = NULL;
    if (!own || !task || !shards) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
        goto cleanup;
    }
    const bool repair = description->repair;
    if (!ups_path_is_absent(own)) {
        status = check_existing(layout, extended_from, error);
    } else if (ups_path_exists(shards)) {
        status = ups_fail(error, repair ? UPS_ERR_FORMAT : UPS_ERR_STALE,
                          "%s: holds latents, but no zarr.json that says what made them; `ups cache verify --repair` "
                          "writes it again, or remove the directory to build it again",
                          directory);
    } else { /* The group's own document comes first: from here on it is known whose shards these are. */
        status = ups_document_publish_group(directory, layout->attributes, error);
    }
    if (is_damage(status) && repair && error) {
        const ups_error reason = *error;
        status = restore_document(layout, &reason, shards_unknown, error);
    }
    if (status != UPS_OK) goto cleanup;
    if (status == UPS_OK) status = ups_remove_partials(root, error);
    if (status == UPS_OK) status = ups_remove_partials(task, error);
    if (status == UPS_OK) status = publish_parent(root, repair, error);
    if (status == UPS_OK) status = publish_parent(task, repair, error);
    if (status == UPS_OK && description->time_per_sample) status = make_way_for_times(directory, layout->shape, error);
    if (status == UPS_OK) status = ups_document_publish_arrays(directory, layout->attributes, error);
    if (status == UPS_OK) status = publish_small_arrays(directory, description, layout->shape, error);
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
    ups_status status = ups_document_publish_group(directory, sealed, error);
    json_decref(sealed);
    return status;
}

ups_status ups_cache_unseal(const char *directory, const json_t *attributes, ups_error *error) {
    return ups_document_publish_group(directory, attributes, error);
}

ups_status ups_cache_can_extend(const char *directory, const json_t *attributes,
                                const ups_cache_description *description, ups_cache_shape shape, ups_error *error) {
    json_t *found = NULL;
    int64_t samples;
    UPS_TRY(read_group(directory, &found, error));
    ups_status status = ups_cache_check_extension(directory, found, attributes, description, shape, &samples, error);
    json_decref(found);
    return status;
}

ups_status ups_cache_is_of(const char *directory, const json_t *attributes, bool *same, ups_error *error) {
    json_t *found = NULL;
    UPS_TRY(read_group(directory, &found, error));
    *same = ups_cache_compare_settings(directory, found, attributes, false, NULL) == UPS_OK;
    json_decref(found);
    return UPS_OK;
}

ups_status ups_cache_sweep(const char *directory, bool alone, ups_error *error) {
    char *paths[] = {(char *)directory, NULL};
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (!walk) return ups_fail_errno(error, "%s: the directory cannot be read", directory);
    ups_status status = UPS_OK;
    for (FTSENT *entry; status == UPS_OK && (entry = fts_read(walk));) {
        if (entry->fts_info == FTS_D && strcmp(entry->fts_name, UPS_LEASES_FOLDER) == 0) {
            fts_set(walk, entry, FTS_SKIP); /* those who are just entering are not seen yet */
            continue;
        }
        if (entry->fts_info == FTS_D && !alone) status = ups_remove_partials(entry->fts_path, error);
        if (entry->fts_info != FTS_F || !alone || fnmatch(PARTIAL_PATTERN, entry->fts_name, 0) != 0) continue;
        if (unlink(entry->fts_path) != 0 && errno != ENOENT) {
            status = ups_fail_errno(error, "%s: cannot be removed", entry->fts_path);
        }
    }
    fts_close(walk);
    return status;
}
