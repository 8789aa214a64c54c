#include "cache/store/fingerprint.h"

#include "base/files.h"
#include "base/hash.h"
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EDGE_BYTES (1u << 20)
#define PAGE_BYTES 4096u
#define SPREAD_PAGES 64

static const struct part {
    const char *key, *words;
    size_t offset;
    const char *otherwise; /* in documents that do not have it, and then not written; NULL: they all do */
} parts[] = {
    {"encoder_weights", "encoder weights", offsetof(ups_fingerprint, encoder_weights), NULL},
    {"encoder_configuration", "encoder configuration", offsetof(ups_fingerprint, encoder_configuration), NULL},
    {"normalisation", "normalisation", offsetof(ups_fingerprint, normalisation), NULL},
    {"source", "source data", offsetof(ups_fingerprint, source), NULL},
    {"max_abs_error", "max_abs_error", offsetof(ups_fingerprint, max_abs_error), NULL},
    {"device", "device", offsetof(ups_fingerprint, device), "cpu"},
};
#define PART_COUNT (sizeof parts / sizeof parts[0])

static char *part_of(ups_fingerprint *fingerprint, size_t i) {
    return (char *)fingerprint + parts[i].offset;
}

static const char *part_of_const(const ups_fingerprint *fingerprint, size_t i) {
    return (const char *)fingerprint + parts[i].offset;
}

/* Hashes [offset, offset + length) of the file, clipped to its size. */
static ups_status hash_range(ups_hasher *hasher, int fd, const char *path, uint64_t size, uint64_t offset,
                             uint64_t length, uint8_t *buffer, ups_error *error) {
    if (offset >= size) return UPS_OK;
    if (length > size - offset) length = size - offset;
    UPS_TRY(ups_read_at(fd, path, offset, buffer, (size_t)length, error));
    ups_hasher_update(hasher, buffer, (size_t)length);
    return UPS_OK;
}

static ups_status hash_file(ups_hasher *hasher, const char *path, uint8_t *buffer, ups_error *error) {
    int fd;
    struct stat info;
    UPS_TRY(ups_open_regular(path, O_RDONLY, &fd, error));
    if (fstat(fd, &info) != 0) {
        ups_fail_errno(error, "%s: cannot be read", path);
        close(fd);
        return UPS_ERR_IO;
    }
    const uint64_t size = (uint64_t)info.st_size;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    ups_hasher_update(hasher, name, strlen(name) + 1);
    ups_hasher_update(hasher, &size, sizeof size);
    ups_status status = hash_range(hasher, fd, path, size, 0, EDGE_BYTES, buffer, error);
    for (uint64_t i = 0; i < SPREAD_PAGES && status == UPS_OK && size > 2 * EDGE_BYTES; i++) {
        uint64_t offset = EDGE_BYTES + (size - 2 * EDGE_BYTES) / SPREAD_PAGES * i;
        status = hash_range(hasher, fd, path, size, offset, PAGE_BYTES, buffer, error);
    }
    if (status == UPS_OK && size > EDGE_BYTES) {
        status = hash_range(hasher, fd, path, size, size - EDGE_BYTES, EDGE_BYTES, buffer, error);
    }
    close(fd);
    return status;
}

ups_status ups_fingerprint_source(const char *const *files, int64_t file_count, const int64_t *samples,
                                  int64_t sample_count, char hex[33], ups_error *error) {
    uint8_t *buffer = malloc(EDGE_BYTES);
    ups_hasher *hasher = ups_hasher_create();
    ups_status status = UPS_OK;
    if (!buffer) status = ups_fail(error, UPS_ERR_MEMORY, "no memory to fingerprint the source files");
    for (int64_t i = 0; i < file_count && status == UPS_OK; i++) status = hash_file(hasher, files[i], buffer, error);
    if (status == UPS_OK && samples) ups_hasher_update(hasher, samples, (size_t)sample_count * sizeof *samples);
    free(buffer);
    ups_hash_hex(ups_hasher_finish(hasher), hex);
    return status;
}

void ups_fingerprint_bound(double max_abs_error, char words[33]) {
    snprintf(words, 33, "%.17g", max_abs_error);
}

void ups_fingerprint_json(const json_t *document, char hex[33]) {
    char *text = json_dumps(document, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    ups_hash_hex(ups_hash_bytes(text ? text : "", text ? strlen(text) : 0), hex);
    free(text);
}

json_t *ups_fingerprint_to_json(const ups_fingerprint *fingerprint) {
    json_t *object = json_object();
    json_object_set_new(object, "format", json_integer(UPS_CACHE_FORMAT));
    for (size_t i = 0; i < PART_COUNT; i++) {
        const char *value = part_of_const(fingerprint, i);
        if (parts[i].otherwise && (!*value || strcmp(value, parts[i].otherwise) == 0)) continue;
        json_object_set_new(object, parts[i].key, json_string(value));
    }
    return object;
}

ups_status ups_fingerprint_from_json(const json_t *object, const char *where, ups_fingerprint *fingerprint,
                                     ups_error *error) {
    int64_t format;
    UPS_TRY(ups_json_integer(object, "format", where, &format, error));
    if (format != UPS_CACHE_FORMAT) {
        return ups_fail(error, UPS_ERR_STALE,
                        "%s: the cache has format version %lld; this build reads version %d. Build it again", where,
                        (long long)format, UPS_CACHE_FORMAT);
    }
    for (size_t i = 0; i < PART_COUNT; i++) {
        const char *hex;
        if (!json_object_get(object, parts[i].key) && parts[i].otherwise) {
            strcpy(part_of(fingerprint, i), parts[i].otherwise);
            continue;
        }
        if (!json_object_get(object, parts[i].key)) {
            return ups_fail(error, UPS_ERR_STALE,
                            "%s: the cache's fingerprint has no '%s', as those of earlier versions: build the cache "
                            "again",
                            where, parts[i].key);
        }
        UPS_TRY(ups_json_string(object, parts[i].key, where, &hex, error));
        if (strlen(hex) > 32) {
            return ups_fail(error, UPS_ERR_FORMAT, "%s: '%s' is longer than a hash of 32 hex digits", where,
                            parts[i].key);
        }
        strcpy(part_of(fingerprint, i), hex);
    }
    return UPS_OK;
}

ups_status ups_fingerprint_compare(const ups_fingerprint *expected, const ups_fingerprint *found, const char *where,
                                   ups_error *error) {
    char differing[400] = "", details[400] = "";
    for (size_t i = 0; i < PART_COUNT; i++) {
        const char *want = part_of_const(expected, i), *have = part_of_const(found, i);
        if (!*want || strcmp(want, have) == 0) continue;
        size_t used = strlen(differing), shown = strlen(details);
        snprintf(differing + used, sizeof differing - used, "%s%s", used ? ", " : "", parts[i].words);
        snprintf(details + shown, sizeof details - shown, "%s%.8s… in the cache, %.8s… now", shown ? "; " : "", have,
                 want);
    }
    if (!*differing) return UPS_OK;
    return ups_fail(
        error, UPS_ERR_STALE,
        "%s: the cache is stale: it was made with another %s (%s). Build it again, or use what it was made with", where,
        differing, details);
}
