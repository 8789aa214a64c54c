/* Safetensors: see the header. The parser trusts nothing: lengths are checked against the file before memory is asked
 * for, products against overflow, and the tensors must tile the data exactly. */
#include "model/parameters/safetensors.h"

#include "base/arena.h"
#include "base/files.h"
#include "base/json.h"
#include "base/system/exhausted.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH_BYTES = 8 };
#define MAX_HEADER_BYTES 100000000u /* the reference implementation's limit */
#define METADATA_KEY "__metadata__"

typedef struct element_type {
    const char *name;
    size_t bytes;
    bool known;
    ups_dtype dtype;
} element_type;

static const element_type element_types[] = {
    {"F32", 4, true, UPS_F32}, {"F64", 8, true, UPS_F64}, {"F16", 2, true, UPS_F16}, {"BF16", 2, true, UPS_BF16},
    {"I32", 4, true, UPS_I32}, {"I64", 8, false, 0},      {"U64", 8, false, 0},      {"U32", 4, false, 0},
    {"I16", 2, false, 0},      {"U16", 2, false, 0},      {"I8", 1, false, 0},       {"U8", 1, false, 0},
    {"BOOL", 1, false, 0},     {"F8_E4M3", 1, false, 0},  {"F8_E5M2", 1, false, 0},
};
enum { ELEMENT_TYPES = sizeof element_types / sizeof element_types[0] };

static const element_type *element_type_named(const char *name) {
    for (int i = 0; i < ELEMENT_TYPES; i++) {
        if (strcmp(element_types[i].name, name) == 0) return &element_types[i];
    }
    return NULL;
}

struct ups_safetensors {
    ups_arena *arena;
    const char *path;
    int descriptor;
    json_t *header;
    ups_safetensor *tensors;
    int32_t count;
};

int32_t ups_safetensors_count(const ups_safetensors *file) {
    return file->count;
}

const ups_safetensor *ups_safetensors_get(const ups_safetensors *file, int32_t index) {
    return &file->tensors[index];
}

const ups_safetensor *ups_safetensors_find(const ups_safetensors *file, const char *name) {
    for (int32_t i = 0; i < file->count; i++) {
        if (strcmp(file->tensors[i].name, name) == 0) return &file->tensors[i];
    }
    return NULL;
}

const char *ups_safetensors_metadata(const ups_safetensors *file, const char *key) {
    return json_string_value(json_object_get(json_object_get(file->header, METADATA_KEY), key));
}

static ups_status read_header(ups_safetensors *file, uint64_t file_bytes, uint64_t *data_start, ups_error *error) {
    if (file_bytes < LENGTH_BYTES) {
        return ups_fail(error, UPS_ERR_FORMAT, "%s: %llu bytes are too few for a safetensors file", file->path,
                        (unsigned long long)file_bytes);
    }
    unsigned char raw[LENGTH_BYTES];
    UPS_TRY(ups_read_at(file->descriptor, file->path, 0, raw, sizeof raw, error));
    uint64_t length = 0;
    for (int i = 0; i < LENGTH_BYTES; i++) length |= (uint64_t)raw[i] << 8 * i;
    if (length > MAX_HEADER_BYTES || length > file_bytes - LENGTH_BYTES) {
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: its header would be %llu bytes long, in a file of %llu: truncated, or not safetensors",
                        file->path, (unsigned long long)length, (unsigned long long)file_bytes);
    }
    char *text = malloc(length + 1);
    if (!text) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for its header", file->path);
    ups_status status = ups_read_at(file->descriptor, file->path, LENGTH_BYTES, text, length, error);
    if (status == UPS_OK) {
        json_error_t mistake;
        file->header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &mistake);
        if (!file->header) {
            status = ups_fail(error, UPS_ERR_FORMAT, "%s: its header is not JSON: %s (byte %d)", file->path,
                              mistake.text, mistake.position);
        } else if (!json_is_object(file->header)) {
            status = ups_fail(error, UPS_ERR_FORMAT, "%s: its header is not a JSON object", file->path);
        }
    }
    free(text);
    *data_start = LENGTH_BYTES + length;
    return status;
}

static ups_status parse_metadata(const ups_safetensors *file, json_t *metadata, ups_error *error) {
    const char *key;
    json_t *value;
    if (!json_is_object(metadata)) {
        return ups_fail(error, UPS_ERR_FORMAT, "%s: " METADATA_KEY " is not an object", file->path);
    }
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value)) {
            return ups_fail(error, UPS_ERR_FORMAT, "%s: " METADATA_KEY " '%s' is not text", file->path, key);
        }
    }
    return UPS_OK;
}

static ups_status parse_tensor(const ups_safetensors *file, const char *name, json_t *entry, uint64_t data_start,
                               uint64_t data_bytes, ups_safetensor *tensor, ups_error *error) {
    const char *path = file->path, *dtype = json_string_value(json_object_get(entry, "dtype"));
    json_t *shape = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
    if (!dtype || !json_is_array(shape) || !json_is_array(offsets) || json_object_size(entry) != 3) {
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: tensor '%s' must have exactly 'dtype' (text), 'shape' and 'data_offsets' (lists)", path,
                        name);
    }
    const element_type *type = element_type_named(dtype);
    if (!type) return ups_fail(error, UPS_ERR_FORMAT, "%s: tensor '%s' has unknown dtype '%s'", path, name, dtype);
    if (json_array_size(shape) > UPS_SAFETENSORS_MAX_RANK) {
        return ups_fail(error, UPS_ERR_FORMAT, "%s: tensor '%s' has rank %zu; at most %d is expected", path, name,
                        json_array_size(shape), UPS_SAFETENSORS_MAX_RANK);
    }
    *tensor = (ups_safetensor){.name = name,
                               .dtype_name = type->name,
                               .known_dtype = type->known,
                               .dtype = type->dtype,
                               .rank = (int)json_array_size(shape)};
    uint64_t bytes = type->bytes;
    for (int i = 0; i < tensor->rank; i++) {
        json_t *size = json_array_get(shape, (size_t)i);
        if (!json_is_integer(size) || json_integer_value(size) < 0) {
            return ups_fail(error, UPS_ERR_FORMAT, "%s: tensor '%s': axis %d of its shape is not a size", path, name,
                            i);
        }
        tensor->size[i] = json_integer_value(size);
        if (__builtin_mul_overflow(bytes, (uint64_t)tensor->size[i], &bytes)) {
            return ups_fail(error, UPS_ERR_FORMAT, "%s: tensor '%s' is impossibly large", path, name);
        }
    }
    json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin)) {
        return ups_fail(error, UPS_ERR_FORMAT, "%s: tensor '%s': data_offsets are not [begin, end]", path, name);
    }
    uint64_t first = (uint64_t)json_integer_value(begin), last = (uint64_t)json_integer_value(end);
    if (last > data_bytes) {
        return ups_fail(error, UPS_ERR_FORMAT, "%s: tensor '%s' ends at byte %llu of %llu of data: truncated?", path,
                        name, (unsigned long long)last, (unsigned long long)data_bytes);
    }
    if (last - first != bytes) {
        return ups_fail(error, UPS_ERR_FORMAT, "%s: tensor '%s' has %llu bytes where its shape and %s need %llu", path,
                        name, (unsigned long long)(last - first), dtype, (unsigned long long)bytes);
    }
    tensor->offset = data_start + first;
    tensor->bytes = bytes;
    return UPS_OK;
}

static int by_offset(const void *a, const void *b) {
    const ups_safetensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty tensors before the one they share an offset with */
}

static ups_status parse_tensors(ups_safetensors *file, uint64_t data_start, uint64_t file_bytes, ups_error *error) {
    file->tensors = UPS_ARENA_ARRAY(file->arena, ups_safetensor, json_object_size(file->header));
    const char *name;
    json_t *entry;
    json_object_foreach(file->header, name, entry) {
        if (strcmp(name, METADATA_KEY) == 0) {
            UPS_TRY(parse_metadata(file, entry, error));
            continue;
        }
        UPS_TRY(
            parse_tensor(file, name, entry, data_start, file_bytes - data_start, &file->tensors[file->count], error));
        file->count++;
    }
    qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, by_offset);
    uint64_t position = data_start;
    for (int32_t i = 0; i < file->count; i++) {
        const ups_safetensor *tensor = &file->tensors[i];
        if (tensor->offset != position) {
            return ups_fail(error, UPS_ERR_FORMAT, "%s: tensor '%s' begins at byte %llu of the data, but %s %llu",
                            file->path, tensor->name, (unsigned long long)(tensor->offset - data_start),
                            tensor->offset < position ? "the one before it reaches to" : "the one before it ends at",
                            (unsigned long long)(position - data_start));
        }
        position += tensor->bytes;
    }
    if (position != file_bytes) {
        return ups_fail(error, UPS_ERR_FORMAT, "%s: %llu bytes at its end belong to no tensor", file->path,
                        (unsigned long long)(file_bytes - position));
    }
    return UPS_OK;
}

ups_status ups_safetensors_open(const char *path, ups_safetensors **opened, ups_error *error) {
    *opened = NULL;
    ups_arena *arena = ups_arena_create(0);
    if (!arena) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to open it", path);
    ups_safetensors *file = UPS_ARENA_NEW(arena, ups_safetensors);
    *file = (ups_safetensors){.arena = arena, .path = ups_arena_strdup(arena, path)};
    uint64_t file_bytes = 0, data_start = 0;
    ups_status status = UPS_OK;
    status = ups_open_regular(path, O_RDONLY, &file->descriptor, error);
    if (status == UPS_OK) status = ups_file_size(path, &file_bytes, error);
    if (status == UPS_OK) status = read_header(file, file_bytes, &data_start, error);
    if (status == UPS_OK) status = parse_tensors(file, data_start, file_bytes, error);
    if (status != UPS_OK) {
        ups_safetensors_close(file);
        return status;
    }
    *opened = file;
    return UPS_OK;
}

void ups_safetensors_close(ups_safetensors *file) {
    if (!file) return;
    if (file->descriptor >= 0) close(file->descriptor);
    if (file->header) json_decref(file->header);
    ups_arena_destroy(file->arena);
}

ups_status ups_safetensors_read(const ups_safetensors *file, const ups_safetensor *tensor, void *out,
                                ups_error *error) {
    return ups_read_at(file->descriptor, file->path, tensor->offset, out, tensor->bytes, error);
}

struct ups_safetensors_writer {
    json_t *header, *metadata;
    uint64_t declared, appended; /* bytes of data */
    ups_publication *publication;
};

/* Running out of memory for a header ends the process, as it does for arenas. */
static json_t *made(json_t *value) {
    if (!value) ups_out_of_memory("memory for a safetensors header", 0);
    return value;
}

ups_safetensors_writer *ups_safetensors_writer_create(void) {
    ups_safetensors_writer *writer = calloc(1, sizeof *writer);
    if (!writer) return NULL;
    writer->header = made(json_object());
    writer->metadata = made(json_object());
    return writer;
}

void ups_safetensors_writer_declare(ups_safetensors_writer *writer, const char *name, ups_dtype dtype, int rank,
                                    const int64_t *size) {
    const char *dtype_name = NULL;
    for (int i = 0; i < ELEMENT_TYPES; i++) {
        if (element_types[i].known && element_types[i].dtype == dtype) dtype_name = element_types[i].name;
    }
    json_t *shape = made(json_array());
    uint64_t bytes = ups_dtype_size(dtype);
    for (int i = 0; i < rank; i++) {
        json_array_append_new(shape, made(json_integer(size[i])));
        bytes *= (uint64_t)size[i];
    }
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype_name, "shape", shape, "data_offsets",
                              (json_int_t)writer->declared, (json_int_t)(writer->declared + bytes));
    json_object_set_new(writer->header, name, made(entry));
    writer->declared += bytes;
}

void ups_safetensors_writer_metadata(ups_safetensors_writer *writer, const char *key, const char *text) {
    json_object_set_new(writer->metadata, key, made(json_string(text)));
}

ups_status ups_safetensors_writer_begin(ups_safetensors_writer *writer, const char *path, ups_error *error) {
    enum { DATA_ALIGNMENT = 8 }; /* the header is padded with spaces so that the data is aligned */
    if (json_object_size(writer->metadata)) json_object_set(writer->header, METADATA_KEY, writer->metadata);
    char *text = json_dumps(writer->header, JSON_COMPACT);
    if (!text) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for its header", path);
    size_t length = strlen(text), padded = (length + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT;
    unsigned char raw[LENGTH_BYTES];
    for (int i = 0; i < LENGTH_BYTES; i++) raw[i] = (unsigned char)((uint64_t)padded >> 8 * i);
    ups_status status = ups_publish_begin(path, &writer->publication, error);
    if (status == UPS_OK) status = ups_publish_append(writer->publication, raw, sizeof raw, error);
    if (status == UPS_OK) status = ups_publish_append(writer->publication, text, length, error);
    if (status == UPS_OK) status = ups_publish_append(writer->publication, "        ", padded - length, error);
    free(text);
    return status;
}

ups_status ups_safetensors_writer_append(ups_safetensors_writer *writer, const void *bytes, size_t length,
                                         ups_error *error) {
    writer->appended += length;
    return ups_publish_append(writer->publication, bytes, length, error);
}

static void free_writer(ups_safetensors_writer *writer) {
    json_decref(writer->header);
    json_decref(writer->metadata);
    free(writer);
}

ups_status ups_safetensors_writer_commit(ups_safetensors_writer *writer, ups_error *error) {
    if (writer->appended != writer->declared) {
        unsigned long long appended = writer->appended, declared = writer->declared;
        ups_safetensors_writer_abandon(writer);
        return ups_fail(error, UPS_ERR_ARGUMENT, "%llu bytes were written of %llu declared", appended, declared);
    }
    ups_status status = ups_publish_commit(writer->publication, error);
    free_writer(writer);
    return status;
}

void ups_safetensors_writer_abandon(ups_safetensors_writer *writer) {
    if (!writer) return;
    ups_publish_abandon(writer->publication);
    free_writer(writer);
}
