#include "pipeline/netcdf/header.h"

#include "pipeline/storage/filters.h"
#include <string.h>

size_t ups_netcdf_type_size(ups_netcdf_type type) {
    static const uint8_t sizes[] = {0, 1, 1, 2, 4, 4, 8, 1, 2, 4, 8, 8, 0};
    return sizes[type];
}

const ups_netcdf_attribute *ups_netcdf_find(const ups_netcdf_attribute *attributes, int64_t count, const char *name) {
    for (int64_t i = 0; i < count; i++) {
        if (strcmp(attributes[i].name, name) == 0) return &attributes[i];
    }
    return NULL;
}

double ups_netcdf_number(const ups_netcdf_attribute *attribute, int64_t index) {
    const uint8_t *at = (const uint8_t *)attribute->values + (size_t)index * ups_netcdf_type_size(attribute->type);
#define AS_DOUBLE(type)                                                                                                \
    {                                                                                                                  \
        type value;                                                                                                    \
        memcpy(&value, at, sizeof value);                                                                              \
        return (double)value;                                                                                          \
    }
    switch (attribute->type) {
    case UPS_NETCDF_BYTE:
        AS_DOUBLE(int8_t)
    case UPS_NETCDF_CHAR:
    case UPS_NETCDF_UBYTE:
        AS_DOUBLE(uint8_t)
    case UPS_NETCDF_SHORT:
        AS_DOUBLE(int16_t)
    case UPS_NETCDF_USHORT:
        AS_DOUBLE(uint16_t)
    case UPS_NETCDF_INT:
        AS_DOUBLE(int32_t)
    case UPS_NETCDF_UINT:
        AS_DOUBLE(uint32_t)
    case UPS_NETCDF_INT64:
        AS_DOUBLE(int64_t)
    case UPS_NETCDF_UINT64:
        AS_DOUBLE(uint64_t)
    case UPS_NETCDF_FLOAT:
        AS_DOUBLE(float)
    case UPS_NETCDF_DOUBLE:
        AS_DOUBLE(double)
    case UPS_NETCDF_OTHER:
        break;
    }
#undef AS_DOUBLE
    return 0;
}

/* ---- reading, never beyond the end ---------------------------------------------------------------------------------
 */

typedef struct reader {
    const uint8_t *bytes;
    size_t length, at; /* at <= length */
    uint64_t file_bytes;
    int version;
    size_t wanted; /* set when the input ended before the header did */
    ups_arena *arena;
    ups_error *error;
} reader;

/* The next `count` bytes are there, or the reader says what is wrong. */
static ups_status need(reader *in, uint64_t count) {
    if (count <= in->length - in->at) return UPS_OK;
    if (count > in->file_bytes - in->at)
        return ups_fail(in->error, UPS_ERR_FORMAT,
                        "its NetCDF header ends in the middle: at byte %zu it speaks of %llu more bytes, but the file "
                        "has %llu in all; it was cut short or is damaged: copy or generate it again",
                        in->at, (unsigned long long)count, (unsigned long long)in->file_bytes);
    if (in->at + count > UPS_NETCDF_LARGEST_HEADER)
        return ups_fail(in->error, UPS_ERR_FORMAT,
                        "its NetCDF header is longer than %zu MiB; the file is damaged: copy or generate it again",
                        UPS_NETCDF_LARGEST_HEADER >> 20);
    in->wanted = in->at + (size_t)count;
    return ups_fail(in->error, UPS_ERR_FORMAT, "its NetCDF header goes on beyond the %zu bytes that were read",
                    in->length);
}

static ups_status read_u32(reader *in, uint32_t *value) {
    UPS_TRY(need(in, 4));
    memcpy(value, in->bytes + in->at, 4);
    *value = __builtin_bswap32(*value);
    in->at += 4;
    return UPS_OK;
}

static ups_status read_u64(reader *in, uint64_t *value) {
    UPS_TRY(need(in, 8));
    memcpy(value, in->bytes + in->at, 8);
    *value = __builtin_bswap64(*value);
    in->at += 8;
    return UPS_OK;
}

/* What the specification calls NON_NEG: 32 bits, or 64 in CDF-5. */
static ups_status read_count(reader *in, uint64_t *value) {
    if (in->version == 5) return read_u64(in, value);
    uint32_t narrow;
    UPS_TRY(read_u32(in, &narrow));
    *value = narrow;
    return UPS_OK;
}

static uint64_t padded(uint64_t bytes) { /* of at most 2⁶³ */
    return (bytes + 3) & ~(uint64_t)3;
}

static ups_status read_name(reader *in, const char **name) {
    uint64_t length;
    UPS_TRY(read_count(in, &length));
    UPS_TRY(need(in, length > INT64_MAX ? length : padded(length)));
    const uint8_t *from = in->bytes + in->at;
    if (length == 0 || memchr(from, 0, length))
        return ups_fail(in->error, UPS_ERR_FORMAT,
                        "at byte %zu of its NetCDF header stands a name that is empty or not text; the file is damaged",
                        in->at);
    char *copy = UPS_ARENA_ARRAY(in->arena, char, length + 1);
    memcpy(copy, from, length);
    *name = copy;
    in->at += padded(length);
    return UPS_OK;
}

/* A list's tag and count; `least` bytes are what one entry takes at least, so that the count can be judged. */
static ups_status read_list(reader *in, uint32_t tag, const char *what, size_t least, uint64_t *count) {
    size_t at = in->at;
    uint32_t found;
    UPS_TRY(read_u32(in, &found));
    UPS_TRY(read_count(in, count));
    if ((found != tag && found != 0) || (found == 0 && *count != 0))
        return ups_fail(in->error, UPS_ERR_FORMAT,
                        "at byte %zu of its NetCDF header a list of %s should begin, but the tag is 0x%x; the file is "
                        "damaged",
                        at, what, found);
    uint64_t bytes;
    if (__builtin_mul_overflow(*count, (uint64_t)least, &bytes)) bytes = UINT64_MAX;
    return need(in, bytes);
}

static ups_status read_type(reader *in, ups_netcdf_type *type) {
    uint32_t number;
    UPS_TRY(read_u32(in, &number));
    uint32_t last = in->version == 5 ? UPS_NETCDF_UINT64 : UPS_NETCDF_DOUBLE;
    if (number < UPS_NETCDF_BYTE || number > last)
        return ups_fail(in->error, UPS_ERR_FORMAT,
                        "at byte %zu of its NetCDF header stands type %u, which its format does not have; the file is "
                        "damaged",
                        in->at - 4, number);
    *type = (ups_netcdf_type)number;
    return UPS_OK;
}

/* ---- the lists -----------------------------------------------------------------------------------------------------
 */

static ups_status read_dimensions(reader *in, ups_netcdf_header *header) {
    size_t word = in->version == 5 ? 8 : 4;
    uint64_t count;
    UPS_TRY(read_list(in, 10, "dimensions", 2 * word, &count));
    ups_netcdf_dimension *dimensions = UPS_ARENA_ARRAY(in->arena, ups_netcdf_dimension, count + 1);
    bool unlimited = false;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t length;
        UPS_TRY(read_name(in, &dimensions[i].name));
        UPS_TRY(read_count(in, &length));
        if (length > INT64_MAX || (length == 0 && unlimited))
            return ups_fail(in->error, UPS_ERR_FORMAT,
                            "the length of its NetCDF dimension '%s' makes no sense; the file is damaged",
                            dimensions[i].name);
        unlimited |= length == 0;
        dimensions[i].unlimited = length == 0;
        dimensions[i].length = length ? (int64_t)length : header->records;
    }
    header->dimension_count = (int64_t)count;
    header->dimensions = dimensions;
    return UPS_OK;
}

/* Values as they stand in the file, into this machine's byte order. */
static const void *copy_values(reader *in, ups_netcdf_type type, uint64_t count) {
    size_t size = ups_netcdf_type_size(type), bytes = (size_t)count * size;
    uint8_t *values = ups_arena_alloc(in->arena, bytes + 1);
    if (bytes) memcpy(values, in->bytes + in->at, bytes);
    if (size == 2) {
        uint16_t *words = (uint16_t *)(void *)values;
        for (uint64_t i = 0; i < count; i++) words[i] = __builtin_bswap16(words[i]);
    }
    if (size > 2) ups_swap_bytes(values, (size_t)count, size);
    return values;
}

static ups_status read_attributes(reader *in, int64_t *attribute_count, const ups_netcdf_attribute **list) {
    size_t word = in->version == 5 ? 8 : 4;
    uint64_t count;
    UPS_TRY(read_list(in, 12, "attributes", 2 * word + 4, &count));
    ups_netcdf_attribute *attributes = UPS_ARENA_ARRAY(in->arena, ups_netcdf_attribute, count + 1);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t values, bytes;
        UPS_TRY(read_name(in, &attributes[i].name));
        UPS_TRY(read_type(in, &attributes[i].type));
        UPS_TRY(read_count(in, &values));
        if (__builtin_mul_overflow(values, (uint64_t)ups_netcdf_type_size(attributes[i].type), &bytes) ||
            bytes > INT64_MAX)
            bytes = INT64_MAX;
        UPS_TRY(need(in, padded(bytes)));
        attributes[i].count = (int64_t)values;
        attributes[i].values = copy_values(in, attributes[i].type, values);
        in->at += padded(bytes);
    }
    *attribute_count = (int64_t)count;
    *list = attributes;
    return UPS_OK;
}

/* What a variable, or one record of it, takes: from its dimensions; the size the file gives is redundant, and wrong for
 * large variables. */
static ups_status size_variable(reader *in, const ups_netcdf_header *header, ups_netcdf_variable *variable) {
    variable->bytes = ups_netcdf_type_size(variable->type);
    for (int axis = 0; axis < variable->rank; axis++) {
        const ups_netcdf_dimension *dimension = &header->dimensions[variable->dimensions[axis]];
        if (dimension->unlimited && axis > 0)
            return ups_fail(in->error, UPS_ERR_FORMAT,
                            "its NetCDF variable '%s' has the unlimited dimension '%s' in another place than the "
                            "first; the file is damaged",
                            variable->name, dimension->name);
        if (dimension->unlimited) {
            variable->record = true;
        } else if (__builtin_mul_overflow(variable->bytes, (uint64_t)dimension->length, &variable->bytes) ||
                   variable->bytes > INT64_MAX) {
            return ups_fail(in->error, UPS_ERR_FORMAT,
                            "its NetCDF variable '%s' claims more values than memory has addresses; the file is "
                            "damaged",
                            variable->name);
        }
    }
    return UPS_OK;
}

static ups_status read_variable(reader *in, const ups_netcdf_header *header, ups_netcdf_variable *variable) {
    size_t word = in->version == 5 ? 8 : 4;
    enum { HIGHEST_RANK = 1024 }; /* NC_MAX_VAR_DIMS */
    uint64_t rank, stated_size;
    UPS_TRY(read_name(in, &variable->name));
    UPS_TRY(read_count(in, &rank));
    if (rank > HIGHEST_RANK)
        return ups_fail(in->error, UPS_ERR_FORMAT,
                        "its NetCDF variable '%s' claims %llu dimensions, where the format allows %d; the file is "
                        "damaged",
                        variable->name, (unsigned long long)rank, HIGHEST_RANK);
    UPS_TRY(need(in, rank * word));
    variable->rank = (int)rank;
    int64_t *dimensions = UPS_ARENA_ARRAY(in->arena, int64_t, rank + 1);
    for (uint64_t axis = 0; axis < rank; axis++) {
        uint64_t number;
        UPS_TRY(read_count(in, &number));
        if (number >= (uint64_t)header->dimension_count)
            return ups_fail(in->error, UPS_ERR_FORMAT,
                            "its NetCDF variable '%s' names dimension %llu, but there are %lld; the file is damaged",
                            variable->name, (unsigned long long)number, (long long)header->dimension_count);
        dimensions[axis] = (int64_t)number;
    }
    variable->dimensions = dimensions;
    UPS_TRY(read_attributes(in, &variable->attribute_count, &variable->attributes));
    UPS_TRY(read_type(in, &variable->type));
    UPS_TRY(read_count(in, &stated_size));
    if (in->version == 1) {
        uint32_t offset;
        UPS_TRY(read_u32(in, &offset));
        variable->offset = offset;
    } else {
        UPS_TRY(read_u64(in, &variable->offset));
    }
    return size_variable(in, header, variable);
}

static ups_status read_variables(reader *in, ups_netcdf_header *header) {
    size_t word = in->version == 5 ? 8 : 4;
    size_t least = 4 * word + 8 + (in->version == 1 ? 4 : 8); /* name, rank, attributes, type, size, offset */
    uint64_t count;
    UPS_TRY(read_list(in, 11, "variables", least, &count));
    ups_netcdf_variable *variables = UPS_ARENA_ARRAY(in->arena, ups_netcdf_variable, count + 1);
    for (uint64_t i = 0; i < count; i++) UPS_TRY(read_variable(in, header, &variables[i]));
    header->variable_count = (int64_t)count;
    header->variables = variables;
    return UPS_OK;
}

/* A record holds one record of each record variable, each padded to four bytes; a single one is not padded. */
static ups_status size_records(reader *in, ups_netcdf_header *header) {
    int64_t count = 0;
    uint64_t unpadded = 0;
    for (int64_t v = 0; v < header->variable_count; v++) {
        const ups_netcdf_variable *variable = &header->variables[v];
        if (!variable->record) continue;
        count++;
        unpadded = variable->bytes;
        if (__builtin_add_overflow(header->record_bytes, padded(variable->bytes), &header->record_bytes))
            return ups_fail(in->error, UPS_ERR_FORMAT,
                            "its NetCDF records claim more bytes than a file can have; the file is damaged");
    }
    if (count == 1) header->record_bytes = unpadded;
    return UPS_OK;
}

/* A file that was written as a stream does not say how many records it has: as many as fit. */
static int64_t count_streamed(const ups_netcdf_header *header, uint64_t file_bytes) {
    uint64_t first = UINT64_MAX;
    for (int64_t v = 0; v < header->variable_count; v++) {
        const ups_netcdf_variable *variable = &header->variables[v];
        if (variable->record && variable->offset < first) first = variable->offset;
    }
    if (first > file_bytes || header->record_bytes == 0) return 0;
    return (int64_t)((file_bytes - first) / header->record_bytes);
}

ups_status ups_netcdf_header_parse(const uint8_t *bytes, size_t length, uint64_t file_bytes, ups_arena *arena,
                                   ups_netcdf_header *header, size_t *wanted, ups_error *error) {
    reader in = {.bytes = bytes, .length = length, .file_bytes = file_bytes, .arena = arena, .error = error};
    *header = (ups_netcdf_header){0};
    *wanted = 0;
    uint64_t records;
    bool streamed = false;
    ups_status status = need(&in, 4);
    if (status == UPS_OK) {
        in.version = bytes[3];
        in.at = 4;
        if (memcmp(bytes, "CDF", 3) != 0 || (in.version != 1 && in.version != 2 && in.version != 5))
            return ups_fail(error, UPS_ERR_FORMAT,
                            "it is not a NetCDF file of a format that UPS knows: the first four bytes should be 'CDF' "
                            "and 1, 2 or 5");
        status = read_count(&in, &records);
    }
    if (status == UPS_OK) {
        streamed = records == (in.version == 5 ? UINT64_MAX : UINT32_MAX);
        if (!streamed && records > INT64_MAX)
            return ups_fail(error, UPS_ERR_FORMAT, "its NetCDF header claims %llu records; the file is damaged",
                            (unsigned long long)records);
        header->version = in.version;
        header->records = streamed ? 0 : (int64_t)records;
        status = read_dimensions(&in, header);
    }
    if (status == UPS_OK) status = read_attributes(&in, &header->attribute_count, &header->attributes);
    if (status == UPS_OK) status = read_variables(&in, header);
    if (status == UPS_OK) status = size_records(&in, header);
    *wanted = in.wanted;
    if (status != UPS_OK || !streamed) return status;
    header->records = count_streamed(header, file_bytes);
    ups_netcdf_dimension *dimensions = UPS_ARENA_ARRAY(arena, ups_netcdf_dimension, header->dimension_count + 1);
    if (header->dimension_count)
        memcpy(dimensions, header->dimensions, (size_t)header->dimension_count * sizeof *dimensions);
    for (int64_t d = 0; d < header->dimension_count; d++) {
        if (dimensions[d].unlimited) dimensions[d].length = header->records;
    }
    header->dimensions = dimensions;
    return UPS_OK;
}
