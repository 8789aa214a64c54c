#include "pipeline/zarr/storage.h"

#include "base/files.h"
#include "base/hash.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ups_zarr_store {
    ups_arena *arena;
    const char *path, *document;
    int version;
};

/* ---- documents -----------------------------------------------------------------------------------------------------
 */

static const uint64_t largest_document = UINT64_C(64) << 20;

/* Python writes NaN and Infinity into JSON, which has none: they become texts, as the specification has them. */
static char *quote_words(const char *text, size_t *length) {
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
    char *quoted = malloc(2 * *length + 1), *to = quoted;
    bool inside = false;
    for (size_t at = 0; quoted && at < *length;) {
        size_t word = 0;
        for (int w = 0; w < 3 && !inside && word == 0; w++) {
            size_t letters = strlen(words[w]);
            if (letters <= *length - at && memcmp(text + at, words[w], letters) == 0) word = letters;
        }
        if (word > 0) {
            to += sprintf(to, "\"%.*s\"", (int)word, text + at);
            at += word;
            continue;
        }
        if (inside && text[at] == '\\' && at + 1 < *length)
            *to++ = text[at++];
        else if (text[at] == '"')
            inside = !inside;
        *to++ = text[at++];
    }
    if (quoted) *length = (size_t)(to - quoted);
    return quoted;
}

static ups_status read_document(const char *path, json_t **document, ups_error *error) {
    char *text = NULL, *quoted = NULL;
    size_t length = 0;
    *document = NULL;
    UPS_TRY(ups_read_regular(path, largest_document, &text, &length, error));
    ups_status status = UPS_OK;
    if (!(quoted = quote_words(text, &length)))
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to read it", path);
    if (status == UPS_OK) status = ups_json_parse(path, quoted, length, document, error);
    if (status == UPS_OK && !json_is_object(*document)) {
        json_decref(*document);
        *document = NULL;
        status = ups_fail(error, UPS_ERR_FORMAT, "%s: it is no JSON object; the store is damaged", path);
    }
    free(quoted);
    free(text);
    return status;
}

static const char *path_of(const ups_zarr_store *store, ups_arena *arena, const char *name, const char *file) {
    return ups_arena_printf(arena, "%s%s%s/%s", store->path, *name ? "/" : "", name, file);
}

typedef enum node_kind { NODE_ABSENT, NODE_GROUP, NODE_ARRAY } node_kind;

/* What a folder is; of an array *document is a new reference and *where its path. */
static ups_status read_node(const ups_zarr_store *store, ups_arena *arena, const char *name, node_kind *kind,
                            json_t **document, const char **where, ups_error *error) {
    *kind = NODE_ABSENT;
    *document = NULL;
    *where = path_of(store, arena, name, store->version == 3 ? "zarr.json" : ".zarray");
    if (!ups_path_exists(*where)) {
        if (store->version == 2 && ups_path_exists(path_of(store, arena, name, ".zgroup"))) *kind = NODE_GROUP;
        return UPS_OK;
    }
    UPS_TRY(read_document(*where, document, error));
    *kind = NODE_ARRAY;
    const char *type = json_string_value(json_object_get(*document, "node_type"));
    if (store->version == 2 || (type && strcmp(type, "array") == 0)) return UPS_OK;
    *kind = NODE_GROUP;
    return UPS_OK;
}

/* ---- the store -----------------------------------------------------------------------------------------------------
 */

ups_status ups_zarr_open(const char *path, ups_zarr_store **out, ups_error *error) {
    static const char *const documents[] = {"zarr.json", ".zgroup", ".zarray"};
    *out = NULL;
    ups_arena *arena = ups_arena_create(0);
    if (!arena) return ups_fail(error, UPS_ERR_MEMORY, "no memory to open %s", path);
    ups_zarr_store *store = UPS_ARENA_NEW(arena, ups_zarr_store);
    *store = (ups_zarr_store){.arena = arena, .path = ups_arena_strdup(arena, path)};
    for (int d = 0; d < 3 && !store->document; d++) {
        const char *document = path_of(store, arena, "", documents[d]);
        if (!ups_path_exists(document)) continue;
        store->document = document;
        store->version = d == 0 ? 3 : 2;
    }
    if (store->document) {
        *out = store;
        return UPS_OK;
    }
    ups_arena_destroy(arena);
    return ups_fail(
        error, UPS_ERR_FORMAT,
        "%s is a directory, but no Zarr store (zarr.json, .zgroup and .zarray are missing); name the files in "
        "it, or the store",
        path);
}

void ups_zarr_close(ups_zarr_store *store) {
    if (store) ups_arena_destroy(store->arena);
}

const char *ups_zarr_document(const ups_zarr_store *store) {
    return store->document;
}

/* ---- listing -------------------------------------------------------------------------------------------------------
 */

enum { DEEPEST_GROUP = 8 };

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

typedef struct walk {
    ups_zarr_store *store;
    ups_arena *arena;
    ups_zarr_visitor visit;
    void *context;
    bool more;
    ups_error *error;
} walk;

static ups_status visit_node(walk *w, const char *name, int depth);

static ups_status visit_group(walk *w, const char *name, int depth) {
    const char *folder = path_of(w->store, w->arena, name, "");
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, is_visible, by_name);
    if (count < 0) return ups_fail_errno(w->error, "%s cannot be listed", folder);
    ups_status status = UPS_OK;
    for (int i = 0; i < count; i++) {
        const char *child = ups_arena_printf(w->arena, "%s%s%s", name, *name ? "/" : "", entries[i]->d_name);
        if (status == UPS_OK && w->more && depth < DEEPEST_GROUP) status = visit_node(w, child, depth + 1);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static ups_status visit_node(walk *w, const char *name, int depth) {
    node_kind kind;
    json_t *document, *attributes = NULL;
    const char *where;
    UPS_TRY(read_node(w->store, w->arena, name, &kind, &document, &where, w->error));
    ups_status status = UPS_OK;
    if (kind == NODE_ARRAY) {
        ups_zarr_outline outline;
        status = ups_zarr_outline_parse(document, w->store->version, where, &outline, w->error);
        if (status == UPS_OK) status = ups_zarr_attributes(w->store, name, &attributes, w->error);
        const json_t *dimensions = json_object_get(document, "dimension_names");
        if (!json_is_array(dimensions)) dimensions = json_object_get(attributes, "_ARRAY_DIMENSIONS");
        if (status == UPS_OK) w->more = w->visit(w->context, name, &outline, dimensions);
    }
    json_decref(attributes);
    json_decref(document);
    if (status != UPS_OK || kind != NODE_GROUP) return status;
    return visit_group(w, name, depth);
}

ups_status ups_zarr_each_array(ups_zarr_store *store, ups_zarr_visitor visit, void *context, ups_error *error) {
    walk w = {store, ups_arena_create(0), visit, context, true, error};
    if (!w.arena) return ups_fail(error, UPS_ERR_MEMORY, "no memory to list %s", store->path);
    ups_status status = visit_node(&w, "", 0);
    ups_arena_destroy(w.arena);
    return status;
}

ups_status ups_zarr_attributes(ups_zarr_store *store, const char *name, json_t **attributes, ups_error *error) {
    json_t *document = NULL;
    *attributes = NULL;
    ups_arena *arena = ups_arena_create(0);
    if (!arena) return ups_fail(error, UPS_ERR_MEMORY, "no memory to read %s", store->path);
    const char *path = path_of(store, arena, name, store->version == 3 ? "zarr.json" : ".zattrs");
    ups_status status = ups_path_exists(path) ? read_document(path, &document, error) : UPS_OK;
    if (store->version == 3 && document) {
        *attributes = json_incref(json_object_get(document, "attributes"));
        json_decref(document);
    } else {
        *attributes = document;
    }
    ups_arena_destroy(arena);
    return status;
}

/* ---- where chunks are ----------------------------------------------------------------------------------------------
 */

/* An array as it is mapped. Lengths are along the array's axes, but for those of `array`, which are stored ones. */
typedef struct mapping {
    const ups_zarr_store *store;
    const char *name;
    ups_zarr_array meta;
    ups_stored_array *array;
    uint32_t *files;
    int64_t per_shard[UPS_ARRAY_MAX_RANK]; /* chunks of a file along each axis */
    ups_zarr_add_file add;
    void *context;
    ups_arena *arena;
    ups_error *error;
} mapping;

/* "store/u/c/0/3" */
static void name_file(const mapping *m, const int64_t *at, char path[4096]) {
    int rank = m->meta.outline.rank;
    size_t used = (size_t)snprintf(path, 4096, "%s%s%s/%s", m->store->path, *m->name ? "/" : "", m->name,
                                   m->meta.prefixed ? "c"
                                   : rank == 0      ? "0"
                                                    : "");
    for (int axis = 0; axis < rank && used < 4096; axis++) {
        const bool first = axis == 0 && !m->meta.prefixed;
        used += (size_t)snprintf(path + used, 4096 - used, "%.*s%lld", first ? 0 : 1, &m->meta.separator,
                                 (long long)at[axis]);
    }
}

/* The chunk table's entry for a chunk, given along the array's axes. */
static int64_t chunk_number(const mapping *m, const int64_t *at) {
    int64_t number = 0;
    for (int stored = 0; stored < m->array->rank; stored++)
        number = number * m->array->chunk_grid[stored] + at[m->meta.axis_of[stored]];
    return number;
}

static ups_status put_chunk(const mapping *m, const char *path, uint64_t file_bytes, int64_t number, uint32_t file,
                            uint64_t offset, uint64_t length) {
    if (offset > file_bytes || length > file_bytes - offset || length > UINT32_MAX)
        return ups_fail(m->error, UPS_ERR_FORMAT,
                        "%s: a chunk of %llu bytes at %llu lies beyond its end; it was cut short or is damaged", path,
                        (unsigned long long)length, (unsigned long long)offset);
    const uint64_t whole = ups_array_chunk_bytes(m->array);
    if (!ups_filters_any(&m->array->filters) && length != whole)
        return ups_fail(m->error, UPS_ERR_FORMAT,
                        "%s: a chunk has %llu bytes where %llu were expected; it was cut short", path,
                        (unsigned long long)length, (unsigned long long)whole);
    m->array->chunks[number] = (ups_stored_chunk){offset, (uint32_t)length, 0};
    m->files[number] = file;
    m->array->stored_bytes += length;
    return UPS_OK;
}

/* The index of a shard: for each of its chunks offset and length, both all ones where it was never written. */
static ups_status read_index(const mapping *m, const char *path, int fd, uint64_t file_bytes, uint8_t *index,
                             uint64_t bytes) {
    if (file_bytes < bytes)
        return ups_fail(m->error, UPS_ERR_FORMAT,
                        "%s: a shard of %llu bytes is shorter than its index; it was cut short", path,
                        (unsigned long long)file_bytes);
    UPS_TRY(ups_read_at(fd, path, m->meta.index_first ? 0 : file_bytes - bytes, index, bytes, m->error));
    if (!m->meta.index_crc) return UPS_OK;
    uint32_t expected;
    memcpy(&expected, index + bytes - sizeof expected, sizeof expected);
    if (expected == ups_crc32c(0, index, bytes - sizeof expected)) return UPS_OK;
    return ups_fail(m->error, UPS_ERR_CHECKSUM,
                    "%s: the CRC32C of the shard's index does not match: bytes changed since it was written", path);
}

static ups_status put_shard(const mapping *m, const char *path, int fd, uint64_t file_bytes, uint32_t file,
                            const int64_t *shard) {
    const int rank = m->array->rank;
    int64_t chunks = 1, at[UPS_ARRAY_MAX_RANK] = {0};
    for (int axis = 0; axis < rank; axis++) chunks *= m->per_shard[axis];
    const uint64_t bytes = (uint64_t)chunks * 16 + (m->meta.index_crc ? 4 : 0);
    uint8_t *index = malloc(bytes);
    if (!index) return ups_fail(m->error, UPS_ERR_MEMORY, "%s: no memory for its index", path);
    ups_status status = read_index(m, path, fd, file_bytes, index, bytes);
    for (int64_t c = 0; c < chunks && status == UPS_OK; c++) {
        uint64_t entry[2];
        int64_t chunk[UPS_ARRAY_MAX_RANK];
        bool inside = true;
        memcpy(entry, index + c * 16, sizeof entry);
        for (int axis = 0; axis < rank; axis++) {
            chunk[axis] = shard[axis] * m->per_shard[axis] + at[axis];
            inside &= chunk[axis] * m->meta.chunk_shape[axis] < m->meta.outline.shape[axis];
        }
        if (inside && entry[0] != UINT64_MAX)
            status = put_chunk(m, path, file_bytes, chunk_number(m, chunk), file, entry[0], entry[1]);
        for (int i = rank - 1; i >= 0; i--) { /* the last axis, as the index counts them, is the fastest */
            int axis = m->meta.index_stored_order ? m->meta.axis_of[i] : i;
            if (++at[axis] < m->per_shard[axis]) break;
            at[axis] = 0;
        }
    }
    free(index);
    return status;
}

/* A file of the array, if it is there. */
static ups_status put_file(const mapping *m, const int64_t *at) {
    char path[4096];
    struct stat found;
    uint32_t file;
    name_file(m, at, path);
    if (stat(path, &found) != 0) {
        if (ups_errno_is_absent(errno)) return UPS_OK;
        return ups_fail_errno(m->error, "%s cannot be looked at", path);
    }
    if (!S_ISREG(found.st_mode))
        return ups_fail(m->error, UPS_ERR_FORMAT, "%s: a chunk was expected, not a folder", path);
    UPS_TRY(m->add(m->context, path, &file, m->error));
    const uint64_t bytes = (uint64_t)found.st_size;
    if (!m->meta.sharded) return put_chunk(m, path, bytes, chunk_number(m, at), file, 0, bytes);
    int fd;
    UPS_TRY(ups_open_regular(path, O_RDONLY, &fd, m->error));
    ups_status status = put_shard(m, path, fd, bytes, file, at);
    close(fd);
    return status;
}

static ups_status make_table(mapping *m, const char *where) {
    enum { MOST_CHUNKS = 1 << 24 };
    const ups_zarr_array *meta = &m->meta;
    ups_stored_array *array = m->array;
    int64_t count = 1, files = 1, file_grid[UPS_ARRAY_MAX_RANK], at[UPS_ARRAY_MAX_RANK] = {0};
    for (int stored = 0; stored < array->rank; stored++) {
        const int axis = meta->axis_of[stored];
        const int64_t shape = meta->outline.shape[axis], chunk = meta->chunk_shape[axis];
        array->shape[stored] = shape;
        array->chunk_shape[stored] = chunk;
        array->chunk_grid[stored] = shape / chunk + (shape % chunk > 0);
        m->per_shard[axis] = meta->file_shape[axis] / chunk;
        file_grid[axis] = shape / meta->file_shape[axis] + (shape % meta->file_shape[axis] > 0);
        if (__builtin_mul_overflow(count, array->chunk_grid[stored], &count)) count = INT64_MAX;
        if (count > MOST_CHUNKS || (meta->sharded && m->per_shard[axis] > MOST_CHUNKS))
            return ups_fail(m->error, UPS_ERR_UNSUPPORTED, "%s: it has more than %d chunks; write it in larger ones",
                            where, MOST_CHUNKS);
        files *= file_grid[axis]; /* no more than chunks */
    }
    int64_t in_shard = 1;
    for (int axis = 0; axis < array->rank; axis++) {
        if (__builtin_mul_overflow(in_shard, m->per_shard[axis], &in_shard) || in_shard > MOST_CHUNKS)
            return ups_fail(m->error, UPS_ERR_UNSUPPORTED, "%s: a shard has more than %d chunks", where, MOST_CHUNKS);
    }
    array->chunks = UPS_ARENA_ARRAY(m->arena, ups_stored_chunk, count + 1);
    m->files = UPS_ARENA_ARRAY(m->arena, uint32_t, count + 1);
    array->chunk_files = m->files;
    for (int64_t c = 0; c < count; c++) array->chunks[c].offset = UPS_OFFSET_UNWRITTEN;
    for (int64_t f = 0; f < files && count > 0; f++) {
        UPS_TRY(put_file(m, at));
        for (int axis = array->rank - 1; axis >= 0 && ++at[axis] == file_grid[axis]; axis--) at[axis] = 0;
    }
    return UPS_OK;
}

/* A scalar is read as an array of one entry. */
static void give_an_axis(mapping *m) {
    m->meta.outline.shape[0] = m->meta.file_shape[0] = m->meta.chunk_shape[0] = 1;
    m->array->rank = 1;
}

ups_status ups_zarr_map(ups_zarr_store *store, const char *name, ups_zarr_add_file add, void *context, ups_arena *arena,
                        ups_stored_array *array, int *axis_of, bool *is_there, ups_error *error) {
    node_kind kind;
    json_t *document;
    const char *where;
    UPS_TRY(read_node(store, arena, name, &kind, &document, &where, error));
    *is_there = kind == NODE_ARRAY;
    mapping m = {
        .store = store, .name = name, .array = array, .add = add, .context = context, .arena = arena, .error = error};
    ups_status status = *is_there ? ups_zarr_array_parse(document, store->version, where, &m.meta, error) : UPS_OK;
    json_decref(document);
    if (status != UPS_OK || !*is_there) return status;
    const ups_number number = m.meta.outline.number;
    array->name = ups_arena_strdup(arena, name);
    array->rank = m.meta.outline.rank;
    array->dtype = ups_number_dtype(number);
    array->swapped = m.meta.swapped;
    array->storage = UPS_STORAGE_CHUNKED;
    array->filters = m.meta.filters;
    memcpy(array->fill, m.meta.fill, sizeof array->fill);
    memcpy(axis_of, m.meta.axis_of, sizeof m.meta.axis_of);
    if (number != UPS_NUMBER_F32 && number != UPS_NUMBER_F64) {
        ups_packing *packing = UPS_ARENA_NEW(arena, ups_packing);
        packing->number = number;
        array->packing = packing;
    }
    if (array->rank == 0) give_an_axis(&m);
    return make_table(&m, where);
}
