#include "pipeline/zarr/metadata.h"

#include "pipeline/zarr/codecs.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- shape and type ------------------------------------------------------------------------------------------------
 */

static ups_status parse_lengths(const json_t *object, const char *key, const char *where, int64_t least, int *rank,
                                int64_t *lengths, ups_error *error) {
    json_t *list;
    UPS_TRY(ups_json_array(object, key, where, &list, error));
    if (json_array_size(list) > UPS_ARRAY_MAX_RANK)
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "%s: '%s' has more than %d axes", where, key, UPS_ARRAY_MAX_RANK);
    *rank = (int)json_array_size(list);
    int64_t elements = 8; /* in bytes, at worst, so that no size overflows later */
    for (int axis = 0; axis < *rank; axis++) {
        const json_t *entry = json_array_get(list, (size_t)axis);
        lengths[axis] = json_integer_value(entry);
        if (!json_is_integer(entry) || lengths[axis] < least ||
            __builtin_mul_overflow(elements, lengths[axis] > 0 ? lengths[axis] : 1, &elements))
            return ups_fail(error, UPS_ERR_FORMAT, "%s: entry %d of '%s' cannot be a length; the store is damaged",
                            where, axis, key);
    }
    return UPS_OK;
}

/* The same where an array has to have as many as the shape. */
static ups_status parse_chunk_shape(const json_t *object, const char *key, const char *where, int rank,
                                    int64_t *lengths, ups_error *error) {
    int found;
    UPS_TRY(parse_lengths(object, key, where, 1, &found, lengths, error));
    if (found == rank) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT, "%s: '%s' has %d entries where the shape has %d; the store is damaged",
                    where, key, found, rank);
}

static bool named_number(const char *name, ups_number *number) {
    for (int n = 0; n <= UPS_NUMBER_U64; n++) {
        *number = (ups_number)n;
        if (strcmp(ups_number_name(*number), name) == 0) return true;
    }
    *number = UPS_NUMBER_U8;
    return strcmp(name, "bool") == 0;
}

ups_status ups_zarr_outline_parse(const json_t *document, int version, const char *where, ups_zarr_outline *outline,
                                  ups_error *error) {
    *outline = (ups_zarr_outline){0};
    UPS_TRY(parse_lengths(document, "shape", where, 0, &outline->rank, outline->shape, error));
    const json_t *type = json_object_get(document, version == 2 ? "dtype" : "data_type");
    const char *name = json_string_value(type);
    if (!name) name = json_string_value(json_object_get(type, "name"));
    if (!name) name = json_is_array(type) ? "structured" : "unknown";
    snprintf(outline->type, sizeof outline->type, "%s", name);
    outline->numeric =
        json_is_string(type) && (version == 2 ? ups_number_of_numpy(name, &outline->number, &outline->swapped)
                                              : named_number(name, &outline->number));
    return UPS_OK;
}

/* ---- fill values ---------------------------------------------------------------------------------------------------
 */

static void reverse(uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count / 2; i++) {
        uint8_t kept = bytes[i];
        bytes[i] = bytes[count - 1 - i];
        bytes[count - 1 - i] = kept;
    }
}

static ups_status parse_fill(const json_t *document, const char *where, ups_zarr_array *array, ups_error *error) {
    const json_t *value = json_object_get(document, "fill_value");
    const char *text = json_string_value(value);
    const ups_number number = array->outline.number;
    const size_t size = ups_number_size(number);
    bool known = true;
    if (text && strncmp(text, "0x", 2) == 0) { /* the bits of a float */
        uint64_t bits = strtoull(text, NULL, 16);
        memcpy(array->fill, &bits, sizeof array->fill);
    } else {
        long double fill =
            json_is_integer(value) ? (long double)json_integer_value(value) : (long double)json_number_value(value);
        if (json_is_true(value)) fill = 1;
        if (text) fill = strcmp(text, "NaN") == 0 ? (long double)NAN : *text == '-' ? -(long double)INFINITY : INFINITY;
        known = !text || strcmp(text, "NaN") == 0 || strcmp(text, "Infinity") == 0 || strcmp(text, "-Infinity") == 0;
        known = known && ups_number_element(fill, number, array->fill);
    }
    if (!known)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: 'fill_value' is no %s; the store is damaged", where,
                        ups_number_name(number));
    if (array->swapped) reverse(array->fill, size);
    return UPS_OK;
}

/* ---- an array ------------------------------------------------------------------------------------------------------
 */

static ups_status fail_unsupported(const char *where, const char *key, const json_t *value, ups_error *error) {
    const char *name = json_string_value(value);
    return ups_fail(error, UPS_ERR_UNSUPPORTED, "%s: '%s' is %.60s, which UPS does not read", where, key,
                    name ? name : "of an extension");
}

static ups_status parse_version_2(const json_t *document, const char *where, ups_zarr_array *array, ups_error *error) {
    const int rank = array->outline.rank;
    UPS_TRY(parse_chunk_shape(document, "chunks", where, rank, array->file_shape, error));
    memcpy(array->chunk_shape, array->file_shape, sizeof array->chunk_shape);
    array->swapped = array->outline.swapped;
    const json_t *separator = json_object_get(document, "dimension_separator"),
                 *order = json_object_get(document, "order");
    array->separator = '.';
    if (separator && json_string_value(separator) && json_string_value(separator)[0] == '/') array->separator = '/';
    if (json_is_string(order) && strcmp(json_string_value(order), "F") == 0) {
        for (int axis = 0; axis < rank; axis++) array->axis_of[axis] = rank - 1 - axis;
    }
    return ups_zarr_codecs_version_2(document, where, array, error);
}

static ups_status parse_keys(const json_t *document, const char *where, ups_zarr_array *array, ups_error *error) {
    json_t *encoding;
    const char *name;
    UPS_TRY(ups_json_object(document, "chunk_key_encoding", where, &encoding, error));
    UPS_TRY(ups_json_string(encoding, "name", where, &name, error));
    array->prefixed = strcmp(name, "default") == 0;
    if (!array->prefixed && strcmp(name, "v2") != 0)
        return fail_unsupported(where, "chunk_key_encoding", json_object_get(encoding, "name"), error);
    const char *separator = json_string_value(json_object_get(json_object_get(encoding, "configuration"), "separator"));
    array->separator = separator ? separator[0] : array->prefixed ? '/' : '.';
    if (array->separator == '/' || array->separator == '.') return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT, "%s: parts of chunk names are separated neither by / nor by .", where);
}

static ups_status parse_version_3(const json_t *document, const char *where, ups_zarr_array *array, ups_error *error) {
    json_t *grid, *configuration;
    const char *name;
    UPS_TRY(ups_json_object(document, "chunk_grid", where, &grid, error));
    UPS_TRY(ups_json_string(grid, "name", where, &name, error));
    if (strcmp(name, "regular") != 0)
        return fail_unsupported(where, "chunk_grid", json_object_get(grid, "name"), error);
    UPS_TRY(ups_json_object(grid, "configuration", where, &configuration, error));
    UPS_TRY(parse_chunk_shape(configuration, "chunk_shape", where, array->outline.rank, array->file_shape, error));
    memcpy(array->chunk_shape, array->file_shape, sizeof array->chunk_shape);
    UPS_TRY(parse_keys(document, where, array, error));
    const json_t *transformers = json_object_get(document, "storage_transformers");
    if (json_array_size(transformers) > 0)
        return fail_unsupported(where, "storage_transformers", json_object_get(json_array_get(transformers, 0), "name"),
                                error);
    return ups_zarr_codecs_version_3(document, where, array, error);
}

static ups_status check_chunks(const char *where, const ups_zarr_array *array, ups_error *error) {
    uint64_t bytes = ups_number_size(array->outline.number);
    for (int axis = 0; axis < array->outline.rank; axis++) {
        if (array->file_shape[axis] % array->chunk_shape[axis] != 0)
            return ups_fail(error, UPS_ERR_FORMAT, "%s: shards are not whole numbers of chunks along axis %d", where,
                            axis);
        bytes *= (uint64_t)array->chunk_shape[axis]; /* at most what parse_lengths lets through */
    }
    if (bytes <= UINT32_MAX) return UPS_OK;
    return ups_fail(error, UPS_ERR_UNSUPPORTED,
                    "%s: its chunks are of %.1f GiB; up to 4 GiB are read. Write it again in smaller chunks", where,
                    (double)bytes / (1 << 30));
}

ups_status ups_zarr_array_parse(const json_t *document, int version, const char *where, ups_zarr_array *array,
                                ups_error *error) {
    *array = (ups_zarr_array){.filters = UPS_FILTERS_NONE};
    UPS_TRY(ups_zarr_outline_parse(document, version, where, &array->outline, error));
    for (int axis = 0; axis < UPS_ARRAY_MAX_RANK; axis++) array->axis_of[axis] = axis;
    if (!array->outline.numeric)
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "%s: its type is %s; integers and floats of 16 to 64 bits are read",
                        where, array->outline.type);
    UPS_TRY(version == 2 ? parse_version_2(document, where, array, error)
                         : parse_version_3(document, where, array, error));
    UPS_TRY(check_chunks(where, array, error));
    return parse_fill(document, where, array, error);
}
