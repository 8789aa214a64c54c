/* Where an HDF5 file keeps a dataset: offset, or chunks with their addresses, sizes and filter masks. Asked of the
 * library once, under its lock; what comes out needs no library. What cannot be said that way is left to the library,
 * with the reason. */
#include "pipeline/hdf5/elsewhere.h"
#include "pipeline/hdf5/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- reading through the library ----------------------------------------------------------------------------------
 */

/* Reads a region; on failure `reason` says why. Call within the lock. */
static herr_t read_region(const ups_stored_array *array, hid_t file, const ups_region *region, void *out,
                          char reason[300]) {
    hsize_t start[UPS_ARRAY_MAX_RANK], count[UPS_ARRAY_MAX_RANK];
    for (int axis = 0; axis < array->rank; axis++) {
        start[axis] = (hsize_t)region->start[axis];
        count[axis] = (hsize_t)region->count[axis];
    }
    herr_t result = -1;
    hid_t memory_type = array->dtype == UPS_F64 ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT;
    ups_hdf5_note *note = &((ups_hdf5_file *)array->library)->note;
    hid_t dataset = H5Dopen2(file, array->name, H5P_DEFAULT);
    hid_t file_space = dataset < 0 ? -1 : H5Dget_space(dataset);
    hid_t memory_space = dataset < 0 ? -1 : H5Screate_simple(array->rank, count, NULL);
    note->absent[0] = '\0'; /* until here a virtual dataset may have looked for more numbered sources than there are */
    bool scalar = file_space >= 0 && H5Sget_simple_extent_type(file_space) == H5S_SCALAR; /* nothing to select in */
    if (file_space >= 0 && memory_space >= 0 &&
        (scalar || H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0))
        result = H5Dread(dataset, memory_type, memory_space, file_space, H5P_DEFAULT, out);
    if (result < 0) ups_hdf5_failed(note, reason);
    if (result >= 0 && note->absent[0]) { /* the library has put fill values into its place */
        snprintf(reason, 300, "its source %.200s is missing now", note->absent);
        result = -1;
    }
    if (memory_space >= 0) H5Sclose(memory_space);
    if (file_space >= 0) H5Sclose(file_space);
    if (dataset >= 0) H5Dclose(dataset);
    return result;
}

/* The library reads zeros beyond the end of a file that lost its end. */
static bool has_changed(const ups_hdf5_file *file) {
    struct stat now;
    return stat(file->path, &now) != 0 || (uint64_t)now.st_size != file->bytes ||
           now.st_mtim.tv_sec != file->modified.tv_sec || now.st_mtim.tv_nsec != file->modified.tv_nsec;
}

static ups_status read_through(const ups_stored_array *array, const ups_region *region, void *out, ups_error *error) {
    ups_hdf5_file *file = array->library;
    char reason[300] = "";
    ups_hdf5_enter();
    herr_t result = read_region(array, file->id, region, out, reason);
    ups_status reads = ups_hdf5_check_reads(file, error);
    ups_hdf5_leave();
    if (has_changed(file)) {
        return ups_fail(error, UPS_ERR_STALE,
                        "%s: was changed while it was being read; what was read from it is not used. Start again once "
                        "nothing writes to it",
                        file->path);
    }
    UPS_TRY(reads);
    if (result >= 0) return UPS_OK;
    return ups_fail(
        error, UPS_ERR_FORMAT,
        "dataset '%s' cannot be read by the HDF5 library (%s); it is damaged, or needs a filter plug-in that "
        "HDF5_PLUGIN_PATH does not name",
        array->name, reason);
}

/* ---- mapping --- */

typedef struct mapping {
    ups_hdf5_file *file;
    ups_arena *arena;
    hid_t dataset, type, space, creation;
    ups_stored_array *array;
    ups_error *error;
} mapping;

static void leave_to_library(mapping *map, const char *fallback_reason) {
    map->array->storage = UPS_STORAGE_LIBRARY;
    map->array->packing = NULL; /* the library gives floats */
    map->array->swapped = false;
    map->array->fallback_reason = fallback_reason;
    map->array->read_through = read_through;
    map->array->library = map->file;
}

/* An integer type that we unpack ourselves: every bit of its 1, 2, 4 or 8 bytes counts. */
static bool map_integer(mapping *map) {
    static const ups_number numbers[2][4] = {
        {UPS_NUMBER_U8, UPS_NUMBER_U16, UPS_NUMBER_U32, UPS_NUMBER_U64},
        {UPS_NUMBER_I8, UPS_NUMBER_I16, UPS_NUMBER_I32, UPS_NUMBER_I64},
    };
    size_t size = H5Tget_size(map->type);
    H5T_order_t order = H5Tget_order(map->type);
    int power = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : -1;
    if (power < 0 || H5Tget_precision(map->type) != 8 * size || H5Tget_offset(map->type) != 0) return false;
    if (order != H5T_ORDER_LE && order != H5T_ORDER_BE && size > 1) return false;
    ups_packing *packing = UPS_ARENA_NEW(map->arena, ups_packing);
    packing->number = numbers[H5Tget_sign(map->type) != H5T_SGN_NONE][power];
    map->array->packing = packing;
    map->array->swapped = size > 1 && order != H5Tget_order(H5T_NATIVE_INT);
    return true;
}

/* IEEE half precision, which has no name in HDF5 1.10. */
static bool map_half(mapping *map) {
    size_t sign, exponent, exponent_bits, mantissa, mantissa_bits;
    H5T_order_t order = H5Tget_order(map->type);
    if (H5Tget_class(map->type) != H5T_FLOAT || H5Tget_size(map->type) != 2 || H5Tget_precision(map->type) != 16)
        return false;
    if (order != H5T_ORDER_LE && order != H5T_ORDER_BE) return false;
    if (H5Tget_fields(map->type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0) return false;
    if (sign != 15 || exponent != 10 || exponent_bits != 5 || mantissa != 0 || mantissa_bits != 10) return false;
    if (H5Tget_ebias(map->type) != 15 || H5Tget_norm(map->type) != H5T_NORM_IMPLIED) return false;
    ups_packing *packing = UPS_ARENA_NEW(map->arena, ups_packing);
    packing->number = UPS_NUMBER_F16;
    map->array->packing = packing;
    map->array->swapped = order != H5Tget_order(H5T_NATIVE_FLOAT);
    return true;
}

/* Which float type decode writes, and whether we can make it from the file's bytes ourselves. */
static ups_status map_type(mapping *map, bool *direct) {
    ups_stored_array *array = map->array;
    *direct = true;
    if (H5Tequal(map->type, H5T_IEEE_F32LE) > 0 || H5Tequal(map->type, H5T_IEEE_F32BE) > 0) {
        array->dtype = UPS_F32;
        array->swapped = H5Tequal(map->type, H5T_NATIVE_FLOAT) <= 0;
        return UPS_OK;
    }
    if (H5Tequal(map->type, H5T_IEEE_F64LE) > 0 || H5Tequal(map->type, H5T_IEEE_F64BE) > 0) {
        array->dtype = UPS_F64;
        array->swapped = H5Tequal(map->type, H5T_NATIVE_DOUBLE) <= 0;
        return UPS_OK;
    }
    *direct = false;
    enum { LARGEST_NUMBER = 16 }; /* bytes; quadruple precision */
    size_t size = H5Tget_size(map->type);
    switch (size <= LARGEST_NUMBER ? H5Tget_class(map->type) : H5T_NO_CLASS) {
    case H5T_FLOAT:
        array->dtype = size <= 4 ? UPS_F32 : UPS_F64;
        *direct = map_half(map);
        return UPS_OK;
    case H5T_INTEGER:
        array->dtype = size <= 2 ? UPS_F32 : UPS_F64; /* float32 holds 24 bits exactly */
        *direct = map_integer(map);
        return UPS_OK;
    case H5T_ENUM: /* truth values, as h5py writes them: FALSE = 0 and TRUE = 1 in a byte */
        array->dtype = UPS_F32;
        *direct = size == 1 && map_integer(map);
        if (*direct) return UPS_OK;
        break;
    case H5T_COMPOUND:
        return ups_fail(map->error, UPS_ERR_FORMAT,
                        "%s: dataset '%s' holds compounds, as of complex numbers; a dataset of numbers for each of "
                        "their parts was expected",
                        map->file->path, array->name);
    default:
        break;
    }
    return ups_fail(map->error, UPS_ERR_FORMAT,
                    "%s: dataset '%s' does not hold numbers; float32 or float64 was expected", map->file->path,
                    array->name);
}

static ups_status map_shape(mapping *map) {
    ups_stored_array *array = map->array;
    hsize_t shape[H5S_MAX_RANK];
    array->rank = H5Sget_simple_extent_ndims(map->space);
    if (array->rank < 0 || array->rank > UPS_ARRAY_MAX_RANK || H5Sget_simple_extent_type(map->space) == H5S_NULL)
        return ups_fail(map->error, UPS_ERR_FORMAT, "%s: dataset '%s' has rank %d; 0 to %d was expected",
                        map->file->path, array->name, array->rank, UPS_ARRAY_MAX_RANK);
    H5Sget_simple_extent_dims(map->space, shape, NULL);
    if (array->rank == 0) { /* a scalar */
        array->rank = 1;
        shape[0] = 1;
    }
    int64_t elements = 8; /* in bytes, at worst, so that no size overflows later */
    for (int axis = 0; axis < array->rank; axis++) {
        if (shape[axis] > INT64_MAX || __builtin_mul_overflow(elements, (int64_t)shape[axis], &elements))
            return ups_fail(map->error, UPS_ERR_FORMAT,
                            "%s: dataset '%s' claims more elements than memory has addresses; the file is damaged",
                            map->file->path, array->name);
        array->shape[axis] = (int64_t)shape[axis];
    }
    return UPS_OK;
}

/* Asked for only where something was never written and the value is the user's own: the library (1.10) reads it without
 * checking its size. */
static void map_fill_value(mapping *map) {
    H5D_fill_value_t defined;
    if (H5Pfill_value_defined(map->creation, &defined) >= 0 && defined == H5D_FILL_VALUE_USER_DEFINED)
        H5Pget_fill_value(map->creation, map->type, map->array->fill); /* in the file's own byte order */
}

/* Recognises [shuffle] [gzip | LZF] [Fletcher-32]; anything else is left to the library. */
static bool map_filters(mapping *map) {
    ups_filters *filters = &map->array->filters;
    *filters = UPS_FILTERS_NONE;
    int count = H5Pget_nfilters(map->creation);
    enum { START, SHUFFLED, COMPRESSED, CHECKED } reached = START;
    if (count < 0 || count > 31) return false;
    for (int position = 0; position < count; position++) {
        unsigned flags, parameters[8] = {0};
        size_t parameter_count = 8;
        switch ((int)H5Pget_filter2(map->creation, (unsigned)position, &flags, &parameter_count, parameters, 0, NULL,
                                    NULL)) {
        case H5Z_FILTER_SHUFFLE:
            if (reached >= SHUFFLED || parameter_count < 1 || parameters[0] < 1 || parameters[0] > 16) return false;
            reached = SHUFFLED;
            filters->shuffle_position = position;
            filters->shuffle_bytes = (int)parameters[0];
            break;
        case H5Z_FILTER_DEFLATE:
        case 32000: /* LZF, as h5py registers it */
            if (reached >= COMPRESSED) return false;
            reached = COMPRESSED;
            filters->compressor_position = position;
            filters->compressor = H5Pget_filter2(map->creation, (unsigned)position, &flags, &parameter_count,
                                                 parameters, 0, NULL, NULL) == H5Z_FILTER_DEFLATE
                                      ? UPS_COMPRESSOR_GZIP
                                      : UPS_COMPRESSOR_LZF;
            break;
        case H5Z_FILTER_FLETCHER32:
            if (reached >= CHECKED) return false;
            reached = CHECKED;
            filters->fletcher32_position = position;
            break;
        default:
            return false;
        }
    }
    return true;
}

static ups_status fail_to_find_chunks(mapping *map, const char *reason) {
    return ups_fail(
        map->error, UPS_ERR_FORMAT,
        "%s: the chunks of dataset '%s' cannot be found (%s); the file is damaged: copy or generate it again",
        map->file->path, map->array->name, reason);
}

/* Finds one chunk: its address by H5Dread_chunk with an armed note (see driver.h). That fails for a chunk never
 * written. */
static ups_status map_chunk(mapping *map, const hsize_t *start, ups_stored_chunk *chunk) {
    ups_hdf5_note *note = &map->file->note;
    note->armed = true;
    note->taken = false;
    uint8_t untouched[8];
    uint32_t mask = 0;
    herr_t result = H5Dread_chunk(map->dataset, H5P_DEFAULT, start, &mask, untouched);
    note->armed = false;
    char reason[300];
    if (result < 0) ups_hdf5_failed(note, reason);
    *chunk = (ups_stored_chunk){UPS_OFFSET_UNWRITTEN, 0, 0};
    if (result < 0 || !note->taken) return UPS_OK;
    if (note->length > UINT32_MAX || note->offset > map->file->bytes || note->length > map->file->bytes - note->offset)
        return ups_fail(map->error, UPS_ERR_FORMAT,
                        "%s: a chunk of dataset '%s' lies beyond the end of the file; it was cut short or is damaged: "
                        "copy or generate it again",
                        map->file->path, map->array->name);
    *chunk = (ups_stored_chunk){note->offset, (uint32_t)note->length, mask};
    return UPS_OK;
}

static ups_status map_chunk_table(mapping *map, int64_t chunk_count) {
    ups_stored_array *array = map->array;
    hsize_t written = 0;
    char reason[300];
    if (H5Dget_num_chunks(map->dataset, map->space, &written) < 0)
        return fail_to_find_chunks(map, ups_hdf5_failed(&map->file->note, reason));
    array->chunks = UPS_ARENA_ARRAY(map->arena, ups_stored_chunk, chunk_count);
    int64_t at[UPS_ARRAY_MAX_RANK] = {0};
    hsize_t found = 0;
    for (int64_t i = 0; i < chunk_count; i++) {
        hsize_t start[UPS_ARRAY_MAX_RANK];
        for (int axis = 0; axis < array->rank; axis++) start[axis] = (hsize_t)(at[axis] * array->chunk_shape[axis]);
        if (found < written) {
            UPS_TRY(map_chunk(map, start, &array->chunks[i]));
            found += array->chunks[i].offset != UPS_OFFSET_UNWRITTEN;
        } else {
            array->chunks[i] = (ups_stored_chunk){UPS_OFFSET_UNWRITTEN, 0, 0};
        }
        for (int axis = array->rank - 1; axis >= 0 && ++at[axis] == array->chunk_grid[axis]; axis--) at[axis] = 0;
    }
    if (found < written) return fail_to_find_chunks(map, "fewer are reachable than were written");
    if (found < (hsize_t)chunk_count) map_fill_value(map);
    return UPS_OK;
}

/* The shape of chunks and of their grid; how many there are goes to `count`. */
static ups_status map_chunk_grid(mapping *map, int64_t *count) {
    ups_stored_array *array = map->array;
    hsize_t shape[UPS_ARRAY_MAX_RANK];
    *count = 1;
    if (H5Pget_chunk(map->creation, UPS_ARRAY_MAX_RANK, shape) != array->rank)
        return ups_fail(map->error, UPS_ERR_FORMAT,
                        "%s: the chunk shape of dataset '%s' does not fit its rank; the file is damaged",
                        map->file->path, array->name);
    uint64_t chunk_bytes = ups_array_stored_size(array);
    for (int axis = 0; axis < array->rank; axis++) {
        if (shape[axis] < 1 || __builtin_mul_overflow(chunk_bytes, (uint64_t)shape[axis], &chunk_bytes) ||
            chunk_bytes > UINT32_MAX)
            return ups_fail(map->error, UPS_ERR_FORMAT,
                            "%s: the chunk shape of dataset '%s' makes no sense; the file is damaged", map->file->path,
                            array->name);
        array->chunk_shape[axis] = (int64_t)shape[axis];
        array->chunk_grid[axis] = (array->shape[axis] + array->chunk_shape[axis] - 1) / array->chunk_shape[axis];
        if (__builtin_mul_overflow(*count, array->chunk_grid[axis], count)) *count = INT64_MAX;
    }
    return UPS_OK;
}

static ups_status map_chunks(mapping *map, int64_t count) {
    enum { MAX_CHUNKS = 1 << 24 }; /* 256 MiB of table */
    if (!map_filters(map)) {
        leave_to_library(map, "a filter that only the HDF5 library knows");
        return UPS_OK;
    }
    unsigned options = 0;
    if (H5Pget_chunk_opts(map->creation, &options) >= 0 && (options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS)) {
        leave_to_library(map, "edge chunks that are stored without filters");
        return UPS_OK;
    }
    if (count > MAX_CHUNKS) {
        leave_to_library(map, "too many chunks to list");
        return UPS_OK;
    }
    map->array->storage = UPS_STORAGE_CHUNKED;
    return map_chunk_table(map, count);
}

static ups_status map_contiguous(mapping *map) {
    ups_stored_array *array = map->array;
    if (H5Pget_external_count(map->creation) > 0) {
        leave_to_library(map, "external files");
        return UPS_OK;
    }
    array->storage = UPS_STORAGE_CONTIGUOUS;
    haddr_t offset = H5Dget_offset(map->dataset);
    array->offset = offset == HADDR_UNDEF ? UPS_OFFSET_UNWRITTEN : offset;
    uint64_t bytes = (uint64_t)ups_array_elements(array, NULL) * ups_array_stored_size(array);
    if (array->offset == UPS_OFFSET_UNWRITTEN) map_fill_value(map);
    if (array->offset == UPS_OFFSET_UNWRITTEN || bytes == 0) return UPS_OK;
    if (array->offset > map->file->bytes || bytes > map->file->bytes - array->offset)
        return ups_fail(map->error, UPS_ERR_FORMAT,
                        "%s: dataset '%s' lies beyond the end of the file; it was cut short or is damaged: copy or "
                        "generate it again",
                        map->file->path, array->name);
    return UPS_OK;
}

/* What is stored in one piece must be as large as the shape says; the library (1.10) takes its word for it. */
static ups_status check_stored_size(mapping *map) {
    const ups_stored_array *array = map->array;
    H5D_layout_t layout = H5Pget_layout(map->creation);
    if (layout != H5D_COMPACT && layout != H5D_CONTIGUOUS) return UPS_OK;
    if (layout == H5D_CONTIGUOUS && H5Pget_external_count(map->creation) > 0) return UPS_OK;
    uint64_t expected = (uint64_t)ups_array_elements(array, NULL) * H5Tget_size(map->type);
    if (array->stored_bytes == expected || (layout == H5D_CONTIGUOUS && array->stored_bytes == 0)) return UPS_OK;
    return ups_fail(map->error, UPS_ERR_FORMAT,
                    "%s: dataset '%s' stores %llu bytes where its shape needs %llu; the file is damaged: copy or "
                    "generate it again",
                    map->file->path, array->name, (unsigned long long)array->stored_bytes,
                    (unsigned long long)expected);
}

static ups_status map_storage(mapping *map) {
    bool direct = true;
    UPS_TRY(map_shape(map));
    UPS_TRY(map_type(map, &direct));
    map->array->stored_bytes = H5Dget_storage_size(map->dataset);
    UPS_TRY(check_stored_size(map));
    const char *fallback_reason = NULL;
    int64_t chunks = 0;
    bool own = ups_hdf5_is_of(map->file, map->dataset);
    switch (H5Pget_layout(map->creation)) {
    case H5D_CONTIGUOUS:
        break;
    case H5D_CHUNKED:
        if (own) UPS_TRY(map_chunk_grid(map, &chunks));
        break;
    case H5D_COMPACT:
        fallback_reason = "compact storage, inside the object header";
        break;
    case H5D_VIRTUAL:
        fallback_reason = "a virtual dataset";
        break;
    default:
        fallback_reason = "a storage layout that only the HDF5 library knows";
    }
    if (!direct) fallback_reason = "a number type that only the HDF5 library knows";
    if (!own) fallback_reason = "a dataset of another file, behind an external link";
    if (map->file->through_library) fallback_reason = "asked for";
    bool chunked = H5Pget_layout(map->creation) == H5D_CHUNKED;
    if (fallback_reason)
        leave_to_library(map, fallback_reason);
    else
        UPS_TRY(chunked ? map_chunks(map, chunks) : map_contiguous(map));
    return UPS_OK;
}

/* With `keep` the array will be read later, so that the library's side stays open where it needs that. */
static ups_status map_dataset(ups_hdf5_file *file, const char *name, bool keep, ups_arena *arena,
                              ups_stored_array *array, ups_error *error) {
    *array = (ups_stored_array){.name = ups_arena_strdup(arena, name)};
    mapping map = {file, arena, -1, -1, -1, -1, array, error};
    ups_status status;
    char reason[300];
    ups_hdf5_enter();
    map.dataset = ups_hdf5_open_dataset(file->id, &file->note, name);
    if (map.dataset >= 0) {
        map.type = H5Dget_type(map.dataset);
        map.space = H5Dget_space(map.dataset);
        map.creation = H5Dget_create_plist(map.dataset);
    }
    if (map.type >= 0 && map.space >= 0 && map.creation >= 0) {
        status = map_storage(&map);
    } else {
        ups_hdf5_failed(&file->note, reason);
        status = ups_hdf5_check_reads(file, error);
        if (status == UPS_OK)
            status = ups_fail(error, UPS_ERR_FORMAT, "%s: dataset '%s' cannot be opened (%s); it is missing or damaged",
                              file->path, name, reason);
    }
    if (keep && status == UPS_OK && array->storage == UPS_STORAGE_LIBRARY) file->needed = true;
    if (map.creation >= 0) H5Pclose(map.creation);
    if (map.space >= 0) H5Sclose(map.space);
    if (map.type >= 0) H5Tclose(map.type);
    if (map.dataset >= 0) H5Dclose(map.dataset);
    ups_hdf5_leave();
    return status;
}

ups_status ups_hdf5_map(ups_hdf5_file *file, const char *name, uint32_t file_index, ups_arena *arena,
                        ups_stored_array *array, ups_error *error) {
    ups_status status = map_dataset(file, name, true, arena, array, error);
    array->file = file_index;
    return status;
}

ups_status ups_hdf5_map_for_now(ups_hdf5_file *file, const char *name, ups_arena *arena, ups_stored_array *array,
                                ups_error *error) {
    return map_dataset(file, name, false, arena, array, error);
}
