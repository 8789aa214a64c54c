#include "pipeline/zarr/codecs.h"

#include <string.h>

/* ---- bytes to bytes, which both versions have ----------------------------------------------------------------------
 */

static ups_status fail_codec(const char *where, const char *name, ups_error *error) {
    return ups_fail(
        error, UPS_ERR_UNSUPPORTED,
        "%s: codec '%.60s' is not read, or not at this place; read are none, shuffle, gzip, zlib, zstd, lz4, "
        "blosc and crc32c, in this order",
        where, name);
}

static bool find_compressor(const char *name, ups_compressor *compressor) {
    static const struct {
        const char *name;
        ups_compressor compressor;
    } known[] = {{"zlib", UPS_COMPRESSOR_GZIP},
                 {"gzip", UPS_COMPRESSOR_GZIP_FILE},
                 {"zstd", UPS_COMPRESSOR_ZSTD},
                 {"lz4", UPS_COMPRESSOR_LZ4},
                 {"blosc", UPS_COMPRESSOR_BLOSC}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        *compressor = known[i].compressor;
        if (strcmp(known[i].name, name) == 0) return true;
    }
    return false;
}

/* Appends a codec to those that are undone chunk by chunk. `settings` are its configuration. */
static ups_status add_codec(const char *where, const char *name, const json_t *settings, ups_zarr_array *array,
                            ups_error *error) {
    ups_filters *filters = &array->filters;
    const bool compressed = filters->compressor_position >= 0, checked = filters->crc32c_position >= 0;
    ups_compressor compressor;
    if (strncmp(name, "numcodecs.", 10) == 0) name += 10;
    if (strcmp(name, "shuffle") == 0) {
        if (filters->shuffle_position >= 0 || compressed || checked) return fail_codec(where, name, error);
        int64_t size = 4;
        if (json_object_get(settings, "elementsize"))
            UPS_TRY(ups_json_integer(settings, "elementsize", where, &size, error));
        if (size < 1 || size > 16) return fail_codec(where, name, error);
        filters->shuffle_position = 0;
        filters->shuffle_bytes = (int)size;
        return UPS_OK;
    }
    if (strcmp(name, "crc32c") == 0) {
        if (checked) return fail_codec(where, name, error);
        filters->crc32c_position = 2;
        return UPS_OK;
    }
    if (!find_compressor(name, &compressor) || compressed || checked) return fail_codec(where, name, error);
    if (!ups_compressor_is_there(compressor))
        return ups_fail(error, UPS_ERR_UNSUPPORTED,
                        "%s: it is compressed by %s, which this build of UPS is without; install libblosc-dev and "
                        "liblz4-dev and build again",
                        where, name);
    filters->compressor = compressor;
    filters->compressor_position = 1;
    return UPS_OK;
}

/* ---- version 2: filters, then a compressor --------------------------------------------------------------------------
 */

static ups_status add_version_2(const char *where, const json_t *codec, ups_zarr_array *array, ups_error *error) {
    const char *id;
    UPS_TRY(ups_json_string(codec, "id", where, &id, error));
    return add_codec(where, id, codec, array, error);
}

ups_status ups_zarr_codecs_version_2(const json_t *document, const char *where, ups_zarr_array *array,
                                     ups_error *error) {
    const json_t *filters = json_object_get(document, "filters"), *compressor = json_object_get(document, "compressor");
    for (size_t i = 0; i < json_array_size(filters); i++)
        UPS_TRY(add_version_2(where, json_array_get(filters, i), array, error));
    return json_is_object(compressor) ? add_version_2(where, compressor, array, error) : UPS_OK;
}

/* ---- version 3: transpose, bytes or shards, then the rest
 * ------------------------------------------------------------ */

static ups_status parse_transpose(const json_t *configuration, const char *where, ups_zarr_array *array,
                                  ups_error *error) {
    const json_t *order = json_object_get(configuration, "order");
    const int rank = array->outline.rank;
    unsigned seen = 0;
    for (int axis = 0; axis < rank; axis++) {
        if (array->axis_of[axis] != axis) return fail_codec(where, "transpose", error); /* a second one */
    }
    for (int axis = 0; axis < rank; axis++) {
        json_int_t from = json_integer_value(json_array_get(order, (size_t)axis));
        bool fits = json_is_integer(json_array_get(order, (size_t)axis)) && from >= 0 && from < rank;
        if (!fits || json_array_size(order) != (size_t)rank || (seen >> from & 1))
            return ups_fail(error, UPS_ERR_FORMAT, "%s: the order of codec 'transpose' is no permutation of %d axes",
                            where, rank);
        seen |= 1u << from;
        array->axis_of[axis] = (int)from;
    }
    return UPS_OK;
}

static ups_status parse_bytes(const json_t *configuration, const char *where, ups_zarr_array *array, ups_error *error) {
    const json_t *endian = json_object_get(configuration, "endian");
    if (!endian) return UPS_OK; /* types of one byte */
    const char *text = json_string_value(endian);
    bool big = text && strcmp(text, "big") == 0;
    if (!text || (!big && strcmp(text, "little") != 0))
        return ups_fail(error, UPS_ERR_FORMAT, "%s: the byte order of codec 'bytes' is neither big nor little", where);
    array->swapped = big == (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) && ups_number_size(array->outline.number) > 1;
    return UPS_OK;
}

static ups_status parse_codecs(const json_t *codecs, const char *where, bool in_shard, ups_zarr_array *array,
                               ups_error *error);

/* The index: little-endian offsets and lengths, perhaps with a checksum. */
static ups_status parse_index(const json_t *configuration, const char *where, ups_zarr_array *array, ups_error *error) {
    json_t *codecs;
    const char *name, *location = json_string_value(json_object_get(configuration, "index_location"));
    UPS_TRY(ups_json_array(configuration, "index_codecs", where, &codecs, error));
    array->index_first = location && strcmp(location, "start") == 0;
    for (size_t i = 0; i < json_array_size(codecs); i++) {
        const json_t *codec = json_array_get(codecs, i);
        UPS_TRY(ups_json_string(codec, "name", where, &name, error));
        const char *endian = json_string_value(json_object_get(json_object_get(codec, "configuration"), "endian"));
        bool crc = i == 1 && strcmp(name, "crc32c") == 0;
        bool bytes = i == 0 && strcmp(name, "bytes") == 0 && (!endian || strcmp(endian, "little") == 0);
        if (!crc && !bytes)
            return ups_fail(error, UPS_ERR_UNSUPPORTED,
                            "%s: the index of its shards is stored by codec '%.60s'; little-"
                            "endian bytes and crc32c are read",
                            where, name);
        array->index_crc |= crc;
    }
    return UPS_OK;
}

static ups_status parse_shards(const json_t *configuration, const char *where, ups_zarr_array *array,
                               ups_error *error) {
    json_t *shape, *codecs;
    const int rank = array->outline.rank;
    UPS_TRY(ups_json_array(configuration, "chunk_shape", where, &shape, error));
    UPS_TRY(ups_json_array(configuration, "codecs", where, &codecs, error));
    bool fits = json_array_size(shape) == (size_t)rank;
    for (int axis = 0; fits && axis < rank; axis++) { /* what the shards see: their axes in stored order */
        json_int_t length = json_integer_value(json_array_get(shape, (size_t)axis));
        fits = length >= 1 && length <= array->file_shape[array->axis_of[axis]];
        array->chunk_shape[array->axis_of[axis]] = length;
    }
    if (!fits)
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: the chunk shape of its shards does not fit them; the store is damaged", where);
    array->sharded = true;
    for (int axis = 0; axis < rank; axis++) array->index_stored_order |= array->axis_of[axis] != axis;
    UPS_TRY(parse_index(configuration, where, array, error));
    return parse_codecs(codecs, where, true, array, error);
}

static ups_status parse_codecs(const json_t *codecs, const char *where, bool in_shard, ups_zarr_array *array,
                               ups_error *error) {
    bool serialised = false;
    for (size_t i = 0; i < json_array_size(codecs); i++) {
        const json_t *codec = json_array_get(codecs, i), *configuration = json_object_get(codec, "configuration");
        const char *name;
        UPS_TRY(ups_json_string(codec, "name", where, &name, error));
        if (!serialised && strcmp(name, "transpose") == 0) {
            UPS_TRY(parse_transpose(configuration, where, array, error));
        } else if (!serialised && strcmp(name, "bytes") == 0) {
            UPS_TRY(parse_bytes(configuration, where, array, error));
            serialised = true;
        } else if (!serialised && !in_shard && strcmp(name, "sharding_indexed") == 0) {
            UPS_TRY(parse_shards(configuration, where, array, error));
            serialised = true;
        } else if (!serialised || (array->sharded && !in_shard)) {
            return fail_codec(where, name, error); /* of whole shards, among others */
        } else {
            UPS_TRY(add_codec(where, name, configuration, array, error));
        }
    }
    if (serialised) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s: none of its codecs makes bytes; 'bytes' or 'sharding_indexed' was expected", where);
}

ups_status ups_zarr_codecs_version_3(const json_t *document, const char *where, ups_zarr_array *array,
                                     ups_error *error) {
    json_t *codecs;
    UPS_TRY(ups_json_array(document, "codecs", where, &codecs, error));
    return parse_codecs(codecs, where, false, array, error);
}
