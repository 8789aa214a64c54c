#include "cache/group.h"

#include "base/files.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 2 /* cache / task / split */

int64_t ups_cache_shard_samples(ups_cache_shape shape, int64_t shard) {
    int64_t left = shape.samples - shard * shape.samples_per_shard;
    return left < shape.samples_per_shard ? left : shape.samples_per_shard;
}

ups_small_array ups_cache_time_array(ups_cache_shape shape, bool per_sample) {
    int64_t times = shape.trajectory.times;
    if (!per_sample) {
        return (ups_small_array){UPS_CACHE_TIME, UPS_SMALL_F64, times, 0, times, {"time", NULL}};
    }
    return (ups_small_array){UPS_CACHE_TIME, UPS_SMALL_F64, shape.samples, times, shape.samples, {"sample", "time"}};
}

ups_small_array ups_cache_condition_array(ups_cache_shape shape, int parameter_count) {
    return (ups_small_array){UPS_CACHE_CONDITION, UPS_SMALL_F64, shape.samples,
                             parameter_count,     shape.samples, {"sample", "parameter"}};
}

ups_small_array ups_cache_source_sample_array(ups_cache_shape shape) {
    return (ups_small_array){UPS_CACHE_SOURCE_SAMPLE, UPS_SMALL_I64, shape.samples, 0, shape.samples, {"sample", NULL}};
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
    json_t *document = NULL, *attributes, *ups, *object, *names;
    UPS_TRY(ups_json_read(where, &document, error));
    ups_status status = ups_json_object(document, "attributes", where, &attributes, error);
    if (status == UPS_OK) status = ups_json_object(attributes, "ups", where, &ups, error);
    if (status == UPS_OK) group->attributes = json_incref(ups);
    json_decref(document);
    UPS_TRY(status);
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

/* *values is allocated here; its size is compared with what is on disk first, so that a damaged shape cannot ask for
 * the moon. */
static ups_status read_small(ups_cache_group *group, ups_small_array array, void *values, ups_error *error) {
    char *path = ups_small_chunk_path(group->directory, &array, 0);
    if (!path) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", group->directory);
    uint64_t size, bytes, rows = (uint64_t)array.rows, columns = (uint64_t)(array.columns ? array.columns : 1);
    if (__builtin_mul_overflow(rows, columns, &bytes) || __builtin_mul_overflow(bytes, (uint64_t)8, &bytes)) {
        bytes = UINT64_MAX; /* more than any file holds */
    }
    ups_status status = ups_file_size(path, &size, error);
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

ups_status ups_cache_group_open(const char *directory, ups_cache_group **result, ups_error *error) {
    *result = NULL;
    ups_cache_group *group = calloc(1, sizeof *group);
    char *where = NULL;
    ups_status status = UPS_OK;
    if (!group || !(group->directory = strdup(directory)) || asprintf(&where, "%s/zarr.json", directory) < 0) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
    }
    if (status == UPS_OK && !ups_path_exists(where)) {
        status = ups_fail(
            error, UPS_ERR_IO,
            "%s: there is no latent cache here (no zarr.json). `ups cache build` makes one; give the directory "
            "of one task and split, such as cache/advection1d/train",
            directory);
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
    free(where);
    if (status != UPS_OK) {
        ups_cache_group_close(group);
        return status;
    }
    *result = group;
    return UPS_OK;
}

void ups_cache_groups_free(char **paths, int64_t count) {
    for (int64_t i = 0; i < count; i++) free(paths[i]);
    free(paths);
}

/* A group of latents has the array `latent` in it; the cache's root and a task's directory do not. */
static bool is_latent_group(const char *directory) {
    char *path = NULL;
    if (asprintf(&path, "%s/%s/zarr.json", directory, UPS_CACHE_LATENT) < 0) return false;
    bool found = ups_path_exists(path);
    free(path);
    return found;
}

static ups_status find_below(const char *directory, int depth, char ***paths, int64_t *count, ups_error *error) {
    if (is_latent_group(directory)) {
        char **longer = realloc(*paths, (size_t)(*count + 1) * sizeof **paths);
        char *copy = strdup(directory);
        if (longer) *paths = longer;
        if (!longer || !copy) {
            free(copy);
            return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
        }
        (*paths)[(*count)++] = copy;
        return UPS_OK;
    }
    if (depth == MAX_DEPTH) return UPS_OK;
    struct dirent **entries;
    int entry_count = scandir(directory, &entries, NULL, alphasort);
    if (entry_count < 0) {
        return depth == 0 ? ups_fail_errno(error, "%s: the directory cannot be read", directory) : UPS_OK;
    }
    ups_status status = UPS_OK;
    for (int i = 0; i < entry_count; i++) {
        char *below = NULL;
        if (status == UPS_OK && entries[i]->d_name[0] != '.') {
            status = asprintf(&below, "%s/%s", directory, entries[i]->d_name) < 0
                         ? ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory)
                         : find_below(below, depth + 1, paths, count, error);
        }
        free(below);
        free(entries[i]);
    }
    free(entries);
    return status;
}

ups_status ups_cache_groups_find(const char *directory, char ***paths, int64_t *count, ups_error *error) {
    *paths = NULL;
    *count = 0;
    char *trimmed = strdup(directory);
    if (!trimmed) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
    for (size_t n = strlen(trimmed); n > 1 && trimmed[n - 1] == '/'; n--) trimmed[n - 1] = '\0';
    ups_status status = find_below(trimmed, 0, paths, count, error);
    if (status == UPS_OK && *count == 0) {
        status = ups_fail(error, UPS_ERR_FORMAT,
                          "%s: no latent cache was found in it or in its directories (nothing holds latent/zarr.json)",
                          trimmed);
    }
    free(trimmed);
    if (status != UPS_OK) {
        ups_cache_groups_free(*paths, *count);
        *paths = NULL;
        *count = 0;
    }
    return status;
}
