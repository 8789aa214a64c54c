#include "cache/store/group.h"

#include "base/files.h"
#include "base/hash.h"
#include "cache/store/document.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

ups_status ups_cache_read_index(const ups_cache_group *group, int64_t shard, ups_chunk_place *places,
                                ups_shard_facts *facts, ups_error *error) {
    ups_cache_shape shape = group->shape;
    char *path = ups_cache_shard_path(group->directory, shard);
    if (!path) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", group->directory);
    ups_shard_identity identity = ups_document_identity(group->attributes, shard);
    ups_shard_facts found;
    ups_status status = ups_shard_read_index(path, &identity, shape.samples_per_shard, shard * shape.samples_per_shard,
                                             places, &found, error);
    if (status == UPS_OK && group->digests &&
        (group->digests[shard][0] != found.digest.low || group->digests[shard][1] != found.digest.high)) {
        status = ups_fail(error, UPS_ERR_CHECKSUM,
                          "%s: is not the shard with which the build of %s ended, but one of other data: `ups cache "
                          "verify --repair` builds the right one",
                          path, identity.owner);
    }
    if (status == UPS_OK && facts) *facts = found;
    free(path);
    return status;
}

ups_status ups_cache_check_claim(const ups_cache_group *group, const char *path, uint64_t chunk_bytes,
                                 ups_error *error) {
    ups_chunk_shape shape = group->shape.trajectory;
    if (ups_chunk_may_hold(group->codec, shape, chunk_bytes)) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s: a chunk of %llu bytes cannot hold a trajectory of %lld times, %lld tokens and %lld dim, which "
                    "its zarr.json claims",
                    path, (unsigned long long)chunk_bytes, (long long)shape.times, (long long)shape.tokens,
                    (long long)shape.dim);
}

bool ups_cache_is_exported(const ups_cache_group *group) {
    return json_is_true(json_object_get(group->attributes, "exported"));
}

/* Does the path end in "/<task>/<split>"? */
static bool ends_in(const char *path, const char *task, const char *split) {
    size_t length = strlen(path), tail = strlen(task) + strlen(split) + 1;
    while (length > 1 && path[length - 1] == '/') length--;
    if (length < tail || (length > tail && path[length - tail - 1] != '/')) return false;
    const char *at = path + length - tail;
    return strncmp(at, task, strlen(task)) == 0 && at[strlen(task)] == '/' &&
           strncmp(at + strlen(task) + 1, split, strlen(split)) == 0;
}

ups_status ups_cache_check_place(const ups_cache_group *group, ups_error *error) {
    if (ups_cache_is_exported(group) || ends_in(group->directory, group->task, group->split)) return UPS_OK;
    char resolved[PATH_MAX]; /* named by a relative path, or by a link of another name */
    if (realpath(group->directory, resolved) && ends_in(resolved, group->task, group->split)) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s: is the cache of task %s, split %s, in the place of another: directories of a cache were "
                    "exchanged or renamed; give this one its name back, %s/%s",
                    group->directory, group->task, group->split, group->task, group->split);
}

ups_status ups_cache_read_statistics(const ups_cache_group *group, int64_t shard, ups_cache_statistics *rows,
                                     ups_error *error) {
    ups_small_array array = ups_cache_statistics_array(group->shape);
    return ups_small_read_chunk(group->directory, &array, shard, rows, error);
}

void ups_cache_group_close(ups_cache_group *group) {
    if (!group) return;
    json_decref(group->attributes);
    free(group->directory);
    free(group->time);
    free(group->parameter_names);
    free(group->parameters);
    free(group->source_samples);
    free(group->digests);
    free(group);
}

static ups_status boolean(const json_t *object, const char *key, const char *where, bool *value, ups_error *error) {
    const json_t *found = json_object_get(object, key);
    if (!json_is_boolean(found)) {
        return ups_fail(error, UPS_ERR_FORMAT, "%s: 'attributes.ups.%s' is missing or not true or false", where, key);
    }
    *value = json_is_true(found);
    return UPS_OK;
}

/* The group's own zarr.json: who made it, of what. */
static ups_status read_attributes(ups_cache_group *group, const char *where, ups_error *error) {
    json_t *ups, *object, *names;
    ups_error changed;
    UPS_TRY(ups_document_read_group(group->directory, &group->attributes, &changed, error));
    ups = group->attributes;
    UPS_TRY(ups_json_object(ups, "fingerprint", where, &object, error));
    UPS_TRY(ups_fingerprint_from_json(object, where, &group->fingerprint, error));
    UPS_TRY(ups_json_string(ups, "task", where, &group->task, error));
    UPS_TRY(ups_json_string(ups, "split", where, &group->split, error));
    UPS_TRY(boolean(ups, "complete", where, &group->complete, error));
    UPS_TRY(boolean(ups, "time_per_sample", where, &group->time_per_sample, error));
    UPS_TRY(ups_json_array(ups, "parameters", where, &names, error));
    group->parameter_count = (int)json_array_size(names);
    group->parameter_names = calloc((size_t)group->parameter_count + 1, sizeof *group->parameter_names);
    if (!group->parameter_names) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", where);
    for (int i = 0; i < group->parameter_count; i++) {
        group->parameter_names[i] = json_string_value(json_array_get(names, (size_t)i));
        if (!group->parameter_names[i]) {
            return ups_fail(error, UPS_ERR_FORMAT, "%s: entry %d of 'attributes.ups.parameters' is not a name", where,
                            i);
        }
    }
    if (changed.code != UPS_OK) return ups_fail(error, changed.code, "%s", changed.message);
    return UPS_OK;
}

/* The shape stands in two documents; damage to one is seen by the other. */
static ups_status check_shape(const ups_cache_group *group, const char *where, ups_error *error) {
    const struct {
        const char *key;
        int64_t value;
    } expected[] = {
        {"samples", group->shape.samples},
        {"times", group->shape.trajectory.times},
        {"tokens", group->shape.trajectory.tokens},
        {"dim", group->shape.trajectory.dim},
        {"samples_per_shard", group->shape.samples_per_shard},
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        int64_t value;
        UPS_TRY(ups_json_integer(group->attributes, expected[i].key, where, &value, error));
        if (value == expected[i].value) continue;
        return ups_fail(error, UPS_ERR_FORMAT, "%s: '%s' is %lld, but the group's own zarr.json says %lld", where,
                        expected[i].key, (long long)expected[i].value, (long long)value);
    }
    return UPS_OK;
}

static ups_status read_latent_metadata(ups_cache_group *group, ups_error *error) {
    char *path = NULL;
    if (asprintf(&path, "%s/%s/zarr.json", group->directory, UPS_CACHE_LATENT) < 0) {
        return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", group->directory);
    }
    json_t *document = NULL;
    ups_status status = ups_json_read(path, &document, error);
    if (status == UPS_OK) status = ups_zarr_latent_parse(document, path, &group->shape, &group->codec, error);
    if (status == UPS_OK) status = check_shape(group, path, error);
    json_decref(document);
    free(path);
    return status;
}

static ups_status size_of_regular(const char *path, uint64_t *size, ups_error *error) {
    int fd;
    struct stat info;
    UPS_TRY(ups_open_regular(path, O_RDONLY, &fd, error));
    ups_status status = fstat(fd, &info) == 0 ? UPS_OK : ups_fail_errno(error, "%s: cannot be read", path);
    if (status == UPS_OK) *size = (uint64_t)info.st_size;
    close(fd);
    return status;
}

/* *values is allocated here; its size is compared with what is on disk first, so that a damaged shape cannot ask for
 * the moon. */
static ups_status read_small(ups_cache_group *group, ups_small_array array, void *values, ups_error *error) {
    char *path = ups_small_chunk_path(group->directory, &array, 0);
    if (!path) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", group->directory);
    uint64_t size, bytes, rows = (uint64_t)array.rows, columns = (uint64_t)(array.columns ? array.columns : 1);
    if (__builtin_mul_overflow(rows, columns, &bytes) || __builtin_mul_overflow(bytes, (uint64_t)8, &bytes)) {
        bytes = UINT64_MAX; /* more than any file holds */
    }
    ups_status status = size_of_regular(path, &size, error);
    if (status == UPS_OK && size < bytes) {
        status = ups_fail(error, UPS_ERR_FORMAT,
                          "%s: holds %llu bytes; the cache's shape asks for %llu rows of %llu numbers", path,
                          (unsigned long long)size, (unsigned long long)rows, (unsigned long long)columns);
    }
    free(path);
    UPS_TRY(status);
    void *memory = malloc(bytes);
    if (!memory)
        return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for %llu bytes", group->directory,
                        (unsigned long long)bytes);
    *(void **)values = memory;
    return ups_small_read(group->directory, &array, memory, error);
}

/* Values that are sound, each in its own file, may still be another cache's. */
static ups_status check_arrays(const ups_cache_group *group, const char *where, ups_error *error) {
    const char *wanted;
    char hex[33];
    UPS_TRY(ups_document_check_arrays(group->directory, group->attributes, error));
    UPS_TRY(ups_json_string(group->attributes, "arrays", where, &wanted, error));
    ups_cache_hash_arrays(group->shape, group->time, group->time_per_sample, group->parameters, group->parameter_count,
                          group->source_samples, hex);
    if (strcmp(hex, wanted) == 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_CHECKSUM,
                    "%s: its times, conditions or source samples are not those that it was made with, but another "
                    "cache's: `ups cache verify --repair` writes them again",
                    group->directory);
}

/* With which shards the build ended. */
static ups_status read_digests(ups_cache_group *group, const char *where, ups_error *error) {
    json_t *result;
    const char *wanted;
    char hex[33];
    if (!group->complete) return UPS_OK;
    UPS_TRY(ups_json_object(group->attributes, "result", where, &result, error));
    UPS_TRY(ups_json_string(result, "shards", where, &wanted, error));
    UPS_TRY(read_small(group, ups_cache_shards_array(group->shape), &group->digests, error));
    ups_cache_hash_digests(group->shape, group->digests, hex);
    if (strcmp(hex, wanted) == 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_CHECKSUM,
                    "%s: %s/c/0/0 lists the shards of another cache: `ups cache verify --repair` writes it again",
                    group->directory, UPS_CACHE_SHARDS);
}

ups_status ups_cache_group_open(const char *directory, ups_cache_group **result, ups_error *error) {
    *result = NULL;
    ups_cache_group *group = calloc(1, sizeof *group);
    char *where = NULL;
    ups_status status = UPS_OK;
    if (!group || !(group->directory = strdup(directory)) || asprintf(&where, "%s/zarr.json", directory) < 0) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
    }
    if (status == UPS_OK && ups_path_is_absent(where)) {
        status = ups_fail(
            error, UPS_ERR_IO,
            "%s: there is no latent cache here (no zarr.json). `ups cache build` makes one; give the directory "
            "of one task and split, such as cache/advection1d/train",
            directory);
        if (error) error->number = ENOENT;
    }
    if (status == UPS_OK) status = read_attributes(group, where, error);
    if (status == UPS_OK) status = read_latent_metadata(group, error);
    if (status == UPS_OK) {
        status = read_small(group, ups_cache_time_array(group->shape, group->time_per_sample), &group->time, error);
    }
    if (status == UPS_OK && group->parameter_count > 0) {
        status = read_small(group, ups_cache_condition_array(group->shape, group->parameter_count), &group->parameters,
                            error);
    }
    if (status == UPS_OK) {
        status = read_small(group, ups_cache_source_sample_array(group->shape), &group->source_samples, error);
    }
    if (status == UPS_OK) status = read_digests(group, where, error);
    if (status == UPS_OK) status = check_arrays(group, where, error);
    free(where);
    if (status != UPS_OK) {
        ups_cache_group_close(group);
        return status;
    }
    *result = group;
    return UPS_OK;
}
