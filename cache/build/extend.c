/* The earlier cache kept a hash over its files and the indices of its samples. Both are made again of the first files
 * of the description: equal means that nothing that was encoded has changed. */
#include "cache/build/extend.h"

#include "cache/store/fingerprint.h"
#include "cache/store/group.h"
#include <stdlib.h>
#include <string.h>

/* What a group and its extension do not share. */
static bool may_differ(const char *key) {
    static const char *const keys[] = {"complete", "fingerprint", "samples", "time_per_sample", "arrays", "source"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(key, keys[i]) == 0) return true;
    }
    return false;
}

static const char *base_name(const char *path) {
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path;
}

/* Whether the same files are told of, wherever they lie: what is in them, the fingerprint tells. */
static bool same_files(const json_t *found, const json_t *wanted) {
    bool same = json_is_array(found) && json_array_size(found) == json_array_size(wanted);
    for (size_t f = 0; f < json_array_size(wanted) && same; f++) {
        const char *had = base_name(json_string_value(json_array_get(found, f)));
        const char *has = base_name(json_string_value(json_array_get(wanted, f)));
        same = had && has && strcmp(had, has) == 0;
    }
    return same;
}

ups_status ups_cache_compare_settings(const char *directory, const json_t *found, const json_t *wanted, bool extending,
                                      ups_error *error) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)wanted, key, value) {
        const json_t *other = json_object_get(found, key);
        if (strcmp(key, "complete") == 0 || (extending && may_differ(key)) || json_equal(value, other)) continue;
        if (strcmp(key, "source") == 0 && json_is_array(value) && same_files(other, value)) continue;
        char *now = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        char *then = other ? json_dumps(other, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        ups_status status =
            ups_fail(error, UPS_ERR_STALE,
                     "%s: the cache there was begun with other settings: '%s' is %.100s, now %.100s. Use the same "
                     "settings, or remove the directory to build it again",
                     directory, key, then ? then : "missing", now ? now : "?");
        free(now);
        free(then);
        return status;
    }
    return UPS_OK;
}

static ups_status refuse(const char *directory, const char *why, ups_error *error) {
    return ups_fail(error, UPS_ERR_STALE,
                    "%s: the cache there was made of other source data, and cannot be extended to these: %s. Use what "
                    "it was made of, or build it again",
                    directory, why);
}

/* The files of the group, `earlier`, must come first among the description's. */
static ups_status check_files(const char *directory, const json_t *earlier, const ups_cache_description *d,
                              ups_error *error) {
    int64_t count = (int64_t)json_array_size(earlier);
    char why[400];
    if (!json_is_array(earlier) || count == 0 || d->file_count == 0) {
        return refuse(directory, "its files are not known", error);
    }
    if (count > d->file_count) {
        snprintf(why, sizeof why, "it was made of %lld files, now there are %lld", (long long)count,
                 (long long)d->file_count);
        return refuse(directory, why, error);
    }
    for (int64_t f = 0; f < count; f++) {
        const char *name = base_name(json_string_value(json_array_get(earlier, (size_t)f)));
        if (name && strcmp(name, base_name(d->files[f])) == 0) continue;
        snprintf(why, sizeof why, "its file %lld is %.120s, now it is %.120s; new files belong behind those it has",
                 (long long)f + 1, name ? name : "nameless", base_name(d->files[f]));
        return refuse(directory, why, error);
    }
    return UPS_OK;
}

/* Samples, times and parameters of the group must be the first of the description's. */
static ups_status check_rows(const char *directory, const json_t *found, const ups_cache_description *d,
                             ups_cache_shape earlier, int64_t *samples, ups_error *error) {
    bool per_sample = json_is_true(json_object_get(found, "time_per_sample"));
    size_t n = (size_t)earlier.samples, times = (size_t)d->times, columns = (size_t)d->parameter_count;
    double *time = malloc((per_sample ? n : 1) * times * sizeof *time);
    double *parameters = malloc((n * columns + 1) * sizeof *parameters);
    ups_small_array time_array = ups_cache_time_array(earlier, per_sample),
                    condition_array = ups_cache_condition_array(earlier, d->parameter_count),
                    sample_array = ups_cache_source_sample_array(earlier);
    ups_status status =
        time && parameters ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to extend it", directory);
    if (status == UPS_OK) status = ups_small_read(directory, &sample_array, samples, error);
    if (status == UPS_OK) status = ups_small_read(directory, &time_array, time, error);
    if (status == UPS_OK && columns) status = ups_small_read(directory, &condition_array, parameters, error);
    for (size_t i = 0; i < n && status == UPS_OK; i++) {
        int64_t sample = d->source_samples ? d->source_samples[i] : (int64_t)i;
        const double *had = per_sample ? time + i * times : time,
                     *has = d->time_per_sample ? d->time + i * times : d->time;
        if (samples[i] != sample) {
            status = refuse(directory,
                            "its samples are not the first of this split (the split's fractions or max_samples of the "
                            "task changed)",
                            error);
        } else if (memcmp(had, has, times * sizeof *had) != 0 ||
                   (columns &&
                    memcmp(parameters + i * columns, d->parameters + i * columns, columns * sizeof *parameters) != 0)) {
            char why[80];
            snprintf(why, sizeof why, "times or parameters of its sample %zu changed", i);
            status = refuse(directory, why, error);
        }
    }
    free(parameters);
    free(time);
    return status;
}

ups_status ups_cache_check_extension(const char *directory, const json_t *found, const json_t *wanted,
                                     const ups_cache_description *d, ups_cache_shape shape, int64_t *samples,
                                     ups_error *error) {
    ups_fingerprint have, want;
    const json_t *had = json_object_get(found, "fingerprint"), *files = json_object_get(found, "source");
    UPS_TRY(ups_fingerprint_from_json(had, directory, &have, error));
    UPS_TRY(ups_fingerprint_from_json(json_object_get(wanted, "fingerprint"), directory, &want, error));
    want.source[0] = '\0';
    UPS_TRY(ups_fingerprint_compare(&want, &have, directory, error));
    UPS_TRY(ups_cache_compare_settings(directory, found, wanted, true, error));
    UPS_TRY(check_files(directory, files, d, error));
    UPS_TRY(ups_json_integer(found, "samples", directory, samples, error));
    if (*samples < 1 || *samples > shape.samples) {
        char why[100];
        snprintf(why, sizeof why, "its split has other samples: it had %lld, now there are %lld", (long long)*samples,
                 (long long)shape.samples);
        return refuse(directory, why, error);
    }
    int64_t *indices = malloc((size_t)*samples * sizeof *indices);
    if (!indices) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to extend it", directory);
    ups_cache_shape earlier = shape;
    earlier.samples = *samples;
    ups_status status = check_rows(directory, found, d, earlier, indices, error);
    char hex[33];
    if (status == UPS_OK) {
        status = ups_fingerprint_source(d->files, (int64_t)json_array_size(files), indices, *samples, hex, error);
    }
    if (status == UPS_OK && strcmp(hex, have.source) != 0) {
        status = refuse(directory, "one of its files changed since", error);
    }
    free(indices);
    return status;
}
