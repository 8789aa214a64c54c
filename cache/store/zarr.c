#include "cache/store/zarr.h"

#include "base/files.h"
#include "base/hash.h"
#include <stdlib.h>
#include <string.h>

#define CRC_BYTES 4

int64_t ups_cache_shard_count(ups_cache_shape shape) {
    if (shape.samples_per_shard < 1) return 0; /* a document may claim anything */
    return shape.samples / shape.samples_per_shard + (shape.samples % shape.samples_per_shard > 0);
}

static char *format_path(const char *format, const char *directory, const char *name, long long chunk) {
    char *path = NULL;
    return asprintf(&path, format, directory, name, chunk) < 0 ? NULL : path;
}

char *ups_cache_shard_path(const char *directory, int64_t shard) {
    return format_path("%s/%s/c/%lld/0/0/0", directory, UPS_CACHE_LATENT, shard);
}

json_t *ups_zarr_group(json_t *attributes) {
    return json_pack("{s:i, s:s, s:O*}", "zarr_format", 3, "node_type", "group", "attributes", attributes);
}

static json_t *bytes_codec(void) {
    return json_pack("{s:s, s:{s:s}}", "name", "bytes", "configuration", "endian", "little");
}

static json_t *crc32c_codec(void) {
    return json_pack("{s:s}", "name", "crc32c");
}

/* What all our arrays share; steals `shape`, `chunk_shape`, `codecs`, `dimensions`; `fill` is borrowed text or a
 * number. */
static json_t *array_document(json_t *shape, const char *type, json_t *chunk_shape, json_t *fill, json_t *codecs,
                              json_t *dimensions, json_t *attributes) {
    return json_pack("{s:i, s:s, s:o, s:s, s:{s:s, s:{s:o}}, s:{s:s, s:{s:s}}, s:o, s:o, s:o, s:o}", "zarr_format", 3,
                     "node_type", "array", "shape", shape, "data_type", type, "chunk_grid", "name", "regular",
                     "configuration", "chunk_shape", chunk_shape, "chunk_key_encoding", "name", "default",
                     "configuration", "separator", "/", "fill_value", fill, "codecs", codecs, "dimension_names",
                     dimensions, "attributes", attributes ? json_incref(attributes) : json_object());
}

json_t *ups_zarr_latent(ups_cache_shape shape, ups_chunk_codec codec, json_t *attributes) {
    json_int_t times = shape.trajectory.times, tokens = shape.trajectory.tokens, dim = shape.trajectory.dim;
    json_t *trajectory = json_array();
    if (codec.portable) {
        json_array_append_new(trajectory, bytes_codec());
        int level = codec.level ? codec.level : UPS_PORTABLE_DEFAULT_LEVEL;
        json_array_append_new(trajectory, json_pack("{s:s, s:{s:i, s:b}}", "name", "zstd", "configuration", "level",
                                                    level, "checksum", 1));
    } else {
        json_array_append_new(trajectory, json_pack("{s:s, s:{s:i}}", "name", "ups.latent", "configuration", "version",
                                                    UPS_LATENT_VERSION));
    }
    json_array_append_new(trajectory, crc32c_codec());
    json_t *sharding = json_pack("{s:s, s:{s:[i,I,I,I], s:o, s:[o,o], s:s}}", "name", "sharding_indexed",
                                 "configuration", "chunk_shape", 1, times, tokens, dim, "codecs", trajectory,
                                 "index_codecs", bytes_codec(), crc32c_codec(), "index_location", "end");
    return array_document(json_pack("[I,I,I,I]", (json_int_t)shape.samples, times, tokens, dim), "float16",
                          json_pack("[I,I,I,I]", (json_int_t)shape.samples_per_shard, times, tokens, dim),
                          json_string("NaN"), json_pack("[o]", sharding),
                          json_pack("[s,s,s,s]", "sample", "time", "token", "dim"), attributes);
}

/* Reads `count` integers from 1 to UPS_CACHE_MAX_VALUES. */
static ups_status parse_extents(const json_t *object, const char *key, const char *where, size_t count, int64_t *values,
                                ups_error *error) {
    json_t *array;
    UPS_TRY(ups_json_array(object, key, where, &array, error));
    if (json_array_size(array) != count) {
        return ups_fail(error, UPS_ERR_FORMAT, "%s: '%s' has %zu entries; %zu were expected (sample, time, token, dim)",
                        where, key, json_array_size(array), count);
    }
    for (size_t i = 0; i < count; i++) {
        json_t *entry = json_array_get(array, i);
        values[i] = json_integer_value(entry);
        if (!json_is_integer(entry) || values[i] < 1 || values[i] > UPS_CACHE_MAX_VALUES) {
            return ups_fail(error, UPS_ERR_FORMAT, "%s: entry %zu of '%s' is not a whole number from 1 to 2^40", where,
                            i, key);
        }
    }
    return UPS_OK;
}

static ups_status parse_codec(const json_t *sharding, const char *where, ups_chunk_codec *codec, ups_error *error) {
    json_t *codecs, *configuration = NULL;
    UPS_TRY(ups_json_array(sharding, "codecs", where, &codecs, error));
    const char *plain;
    UPS_TRY(ups_json_string(json_array_get(codecs, 0), "name", where, &plain, error));
    codec->portable = strcmp(plain, "bytes") == 0;
    if (!codec->portable && strcmp(plain, "ups.latent") != 0) {
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "%s: codec '%s' is unknown; 'ups.latent' or 'bytes' was expected",
                        where, plain);
    }
    json_t *written = json_object_get(json_array_get(codecs, 0), "configuration");
    if (!codec->portable && (!written || json_object_get(written, "zstd_level"))) {
        return ups_fail(error, UPS_ERR_UNSUPPORTED,
                        "%s: this cache is of an earlier format; build it again: `ups cache build`", where);
    }
    int64_t number;
    UPS_TRY(ups_json_object(json_array_get(codecs, codec->portable ? 1 : 0), "configuration", where, &configuration,
                            error));
    UPS_TRY(ups_json_integer(configuration, codec->portable ? "level" : "version", where, &number, error));
    if (!codec->portable && number != UPS_LATENT_VERSION) {
        return ups_fail(error, UPS_ERR_UNSUPPORTED,
                        "%s: version %lld of codec 'ups.latent' is not known here; this is version %d", where,
                        (long long)number, UPS_LATENT_VERSION);
    }
    codec->level = codec->portable ? (int)number : 0;
    return UPS_OK;
}

ups_status ups_zarr_latent_parse(const json_t *document, const char *where, ups_cache_shape *shape,
                                 ups_chunk_codec *codec, ups_error *error) {
    int64_t full[4], shard[4];
    json_t *grid, *configuration, *codecs, *sharding;
    UPS_TRY(parse_extents(document, "shape", where, 4, full, error));
    UPS_TRY(ups_json_object(document, "chunk_grid", where, &grid, error));
    UPS_TRY(ups_json_object(grid, "configuration", where, &configuration, error));
    UPS_TRY(parse_extents(configuration, "chunk_shape", where, 4, shard, error));
    UPS_TRY(ups_json_array(document, "codecs", where, &codecs, error));
    UPS_TRY(ups_json_object(json_array_get(codecs, 0), "configuration", where, &sharding, error));
    UPS_TRY(parse_codec(sharding, where, codec, error));
    *shape = (ups_cache_shape){full[0], {full[1], full[2], full[3]}, shard[0]};
    if (shard[0] > UPS_CACHE_MAX_SAMPLES_PER_SHARD) {
        return ups_fail(error, UPS_ERR_FORMAT, "%s: shards of %lld samples cannot be; at most %d", where,
                        (long long)shard[0], UPS_CACHE_MAX_SAMPLES_PER_SHARD);
    }
    double elements = (double)full[1] * (double)full[2] * (double)full[3];
    if (elements > (double)UPS_CACHE_MAX_VALUES) {
        return ups_fail(error, UPS_ERR_FORMAT, "%s: a trajectory of %.3g values cannot be", where, elements);
    }
    json_t *expected = ups_zarr_latent(*shape, *codec, NULL);
    const char *key;
    json_t *value;
    ups_status status = UPS_OK;
    json_object_foreach(expected, key, value) {
        if (strcmp(key, "attributes") == 0 || json_equal(value, json_object_get(document, key))) continue;
        status = ups_fail(error, UPS_ERR_FORMAT, "%s: '%s' is not as a latent cache has it; see docs/cache-format.md",
                          where, key);
        break;
    }
    json_decref(expected);
    return status;
}

/* ---- small arrays ---- */

static int64_t row_elements(const ups_small_array *array) {
    return array->columns ? array->columns : 1;
}

json_t *ups_small_document(const ups_small_array *array, json_t *attributes) {
    json_t *shape = json_pack("[I]", (json_int_t)array->rows), *chunk = json_pack("[I]", (json_int_t)array->chunk_rows);
    json_t *dimensions = json_pack("[s]", array->dimensions[0]);
    if (array->columns) {
        json_array_append_new(shape, json_integer(array->columns));
        json_array_append_new(chunk, json_integer(array->columns));
        json_array_append_new(dimensions, json_string(array->dimensions[1]));
    }
    bool real = array->type == UPS_SMALL_F64;
    return array_document(shape, real ? "float64" : "int64", chunk, real ? json_real(0.0) : json_integer(0),
                          json_pack("[o,o]", bytes_codec(), crc32c_codec()), dimensions, attributes);
}

ups_status ups_small_publish_metadata(const char *directory, const ups_small_array *array, json_t *attributes,
                                      ups_error *error) {
    char *folder = format_path("%s/%s/c", directory, array->name, 0);
    char *path = format_path("%s/%s/zarr.json", directory, array->name, 0);
    json_t *document = ups_small_document(array, attributes);
    ups_status status =
        folder && path && document ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
    if (status == UPS_OK) status = ups_make_directories(folder, error);
    if (status == UPS_OK) status = ups_json_publish_once(path, document, error);
    json_decref(document);
    free(path);
    free(folder);
    return status;
}

char *ups_small_chunk_path(const char *directory, const ups_small_array *array, int64_t chunk) {
    return format_path(array->columns ? "%s/%s/c/%lld/0" : "%s/%s/c/%lld", directory, array->name, chunk);
}

static size_t chunk_bytes(const ups_small_array *array) {
    return (size_t)array->chunk_rows * (size_t)row_elements(array) * 8;
}

static size_t chunk_used_bytes(const ups_small_array *array, int64_t chunk) {
    int64_t left = array->rows - chunk * array->chunk_rows;
    int64_t used = left < array->chunk_rows ? left : array->chunk_rows;
    return (size_t)used * (size_t)row_elements(array) * 8;
}

uint32_t ups_small_chunk_crc(const ups_small_array *array, int64_t chunk, const void *rows) {
    static const uint8_t zeros[256];
    size_t used = chunk_used_bytes(array, chunk), length = chunk_bytes(array);
    uint32_t crc = ups_crc32c(0, rows, used);
    for (size_t n; used < length; used += n) {
        n = length - used < sizeof zeros ? length - used : sizeof zeros;
        crc = ups_crc32c(crc, zeros, n);
    }
    return crc;
}

ups_status ups_small_publish_chunk(const char *directory, const ups_small_array *array, int64_t chunk, const void *rows,
                                   ups_error *error) {
    size_t length = chunk_bytes(array);
    char *path = ups_small_chunk_path(directory, array, chunk);
    uint8_t *bytes = calloc(1, length + CRC_BYTES);
    ups_status status = path && bytes ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
    if (status == UPS_OK && array->columns) {
        *strrchr(path, '/') = '\0';
        status = ups_make_directories(path, error);
        path[strlen(path)] = '/';
    }
    if (status == UPS_OK) {
        memcpy(bytes, rows, chunk_used_bytes(array, chunk));
        uint32_t crc = ups_crc32c(0, bytes, length);
        memcpy(bytes + length, &crc, CRC_BYTES);
        status = ups_publish_bytes_once(path, bytes, length + CRC_BYTES, error);
    }
    free(bytes);
    free(path);
    return status;
}

ups_status ups_small_read_chunk(const char *directory, const ups_small_array *array, int64_t chunk, void *rows,
                                ups_error *error) {
    size_t expected = chunk_bytes(array), length;
    char *path = ups_small_chunk_path(directory, array, chunk), *bytes = NULL;
    if (!path) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
    ups_status status = ups_read_regular(path, expected + CRC_BYTES, &bytes, &length, error);
    if (status == UPS_OK && length != expected + CRC_BYTES) {
        status = ups_fail(error, UPS_ERR_FORMAT, "%s: holds %zu bytes where %zu were expected", path, length,
                          expected + CRC_BYTES);
    }
    uint32_t crc;
    if (status == UPS_OK) {
        memcpy(&crc, bytes + expected, CRC_BYTES);
        if (crc != ups_crc32c(0, bytes, expected)) {
            status = ups_fail(error, UPS_ERR_CHECKSUM, "%s: its CRC32C does not match: it changed since it was written",
                              path);
        }
    }
    if (status == UPS_OK) memcpy(rows, bytes, chunk_used_bytes(array, chunk));
    free(bytes);
    free(path);
    return status;
}

ups_status ups_small_check_metadata(const char *directory, const ups_small_array *array, ups_error *error) {
    char *path = format_path("%s/%s/zarr.json", directory, array->name, 0);
    if (!path) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", directory);
    json_t *document = NULL, *expected = ups_small_document(array, NULL);
    ups_status status = ups_json_read(path, &document, error);
    const char *key;
    json_t *value;
    json_object_foreach(expected, key, value) {
        if (status != UPS_OK) break;
        if (strcmp(key, "attributes") == 0 || json_equal(value, json_object_get(document, key))) continue;
        status = ups_fail(error, UPS_ERR_FORMAT, "%s: '%s' does not agree with the rest of the cache", path, key);
    }
    json_decref(document);
    json_decref(expected);
    free(path);
    return status;
}

ups_status ups_small_read(const char *directory, const ups_small_array *array, void *values, ups_error *error) {
    ups_status status = ups_small_check_metadata(directory, array, error);
    for (int64_t chunk = 0; chunk * array->chunk_rows < array->rows && status == UPS_OK; chunk++) {
        uint8_t *rows = (uint8_t *)values + (size_t)chunk * chunk_bytes(array);
        status = ups_small_read_chunk(directory, array, chunk, rows, error);
    }
    return status;
}
