#include "pipeline/netcdf/storage.h"

#include "base/files.h"
#include "pipeline/hdf5/file.h"
#include "pipeline/netcdf/cf.h"
#include "pipeline/netcdf/hdf5.h"
#include "pipeline/netcdf/library.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ups_netcdf_file {
    ups_arena *arena; /* of the header and of this struct */
    const char *path;
    int fd;
    uint64_t bytes;
    struct stat opened;
    ups_hdf5_file *hdf5; /* NULL for the classic formats */
    ups_netcdf_header header;
};

/* ---- opening -------------------------------------------------------------------------------------------------------
 */

bool ups_netcdf_is_classic(const char *path) {
    char start[3];
    int fd;
    if (ups_open_regular(path, O_RDONLY, &fd, NULL) != UPS_OK) return false;
    bool classic =
        ups_read_at(fd, path, 0, start, sizeof start, NULL) == UPS_OK && memcmp(start, "CDF", sizeof start) == 0;
    close(fd);
    return classic;
}

static ups_status open_descriptor(const char *path, ups_hdf5_file *hdf5, ups_netcdf_file **out, ups_error *error) {
    ups_arena *arena = ups_arena_create(0);
    if (!arena) return ups_fail(error, UPS_ERR_MEMORY, "no memory to open %s", path);
    ups_netcdf_file *file = UPS_ARENA_NEW(arena, ups_netcdf_file);
    *file = (ups_netcdf_file){.arena = arena, .path = ups_arena_strdup(arena, path), .hdf5 = hdf5};
    *out = file;
    UPS_TRY(ups_open_regular(path, O_RDONLY, &file->fd, error));
    if (fstat(file->fd, &file->opened) != 0) return ups_fail_errno(error, "%s cannot be opened for reading", path);
    file->bytes = (uint64_t)file->opened.st_size;
    return UPS_OK;
}

/* Reads as much of the start as the header turns out to take. */
static ups_status read_header(ups_netcdf_file *file, ups_error *error) {
    size_t length = (size_t)64 << 10, wanted = 0;
    ups_status status;
    do {
        if (wanted > length) length = wanted > 2 * length ? wanted : 2 * length;
        if (length > file->bytes) length = (size_t)file->bytes;
        uint8_t *bytes = malloc(length + 1);
        if (!bytes) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the header of %s", file->path);
        wanted = 0;
        status = ups_read_at(file->fd, file->path, 0, bytes, length, error);
        if (status == UPS_OK) {
            status = ups_netcdf_header_parse(bytes, length, file->bytes, file->arena, &file->header, &wanted, error);
            if (status != UPS_OK) ups_fail_within(error, "%s cannot be read", file->path);
        }
        free(bytes);
    } while (wanted > 0);
    return status;
}

ups_status ups_netcdf_open(const char *path, ups_netcdf_file **out, ups_error *error) {
    ups_netcdf_file *file = NULL;
    *out = NULL;
    ups_status status = open_descriptor(path, NULL, &file, error);
    if (status == UPS_OK) status = read_header(file, error);
    if (status != UPS_OK) {
        ups_netcdf_close(file);
        return status;
    }
    *out = file;
    return UPS_OK;
}

/* The HDF5 library had the file open before we did. */
static ups_status check_same(const ups_netcdf_file *file, ups_error *error) {
    const ups_hdf5_file *hdf5 = file->hdf5;
    if (file->bytes == hdf5->bytes && file->opened.st_mtim.tv_sec == hdf5->modified.tv_sec &&
        file->opened.st_mtim.tv_nsec == hdf5->modified.tv_nsec)
        return UPS_OK;
    return ups_fail(error, UPS_ERR_STALE,
                    "%s: was changed while it was being opened (%llu bytes, then %llu). Start again once nothing "
                    "writes to it",
                    file->path, (unsigned long long)hdf5->bytes, (unsigned long long)file->bytes);
}

ups_status ups_netcdf_open_hdf5(ups_hdf5_file *hdf5, ups_netcdf_file **out, ups_error *error) {
    ups_netcdf_file *file = NULL;
    *out = NULL;
    ups_status status = open_descriptor(ups_hdf5_path(hdf5), hdf5, &file, error);
    if (status == UPS_OK) status = check_same(file, error);
    if (status == UPS_OK) status = ups_netcdf_hdf5_describe(hdf5, file->arena, &file->header, error);
    if (status != UPS_OK) {
        ups_netcdf_close(file);
        return status;
    }
    *out = file;
    return UPS_OK;
}

void ups_netcdf_close(ups_netcdf_file *file) {
    if (!file) return;
    if (file->fd >= 0) close(file->fd);
    ups_arena_destroy(file->arena);
}

const char *ups_netcdf_path(const ups_netcdf_file *file) {
    return file->path;
}

const ups_netcdf_header *ups_netcdf_contents(const ups_netcdf_file *file) {
    return &file->header;
}

ups_dtype ups_netcdf_dtype(const ups_netcdf_variable *variable) {
    return ups_number_dtype(ups_netcdf_stored_number(variable));
}

/* ---- classic: where a variable lies --------------------------------------------------------------------------------
 */

static ups_status fail_short(const ups_netcdf_file *file, const ups_netcdf_variable *variable, ups_error *error) {
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s: variable '%s' goes on beyond the end of the file; it was cut short or is damaged: copy or "
                    "generate it again",
                    file->path, variable->name);
}

static ups_status map_shape(const ups_netcdf_file *file, const ups_netcdf_variable *variable, ups_stored_array *array,
                            ups_error *error) {
    if (variable->rank > UPS_ARRAY_MAX_RANK)
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "%s: variable '%s' has %d dimensions; up to %d can be read",
                        file->path, variable->name, variable->rank, UPS_ARRAY_MAX_RANK);
    int64_t bytes = 8; /* at worst, so that no size overflows later */
    array->rank = variable->rank ? variable->rank : 1;
    array->shape[0] = 1;
    for (int axis = 0; axis < variable->rank; axis++) {
        array->shape[axis] = file->header.dimensions[variable->dimensions[axis]].length;
        if (__builtin_mul_overflow(bytes, array->shape[axis], &bytes))
            return ups_fail(error, UPS_ERR_FORMAT,
                            "%s: variable '%s' claims more values than memory has addresses; the file is damaged",
                            file->path, variable->name);
    }
    return UPS_OK;
}

/* The file holds all of a record variable; between its records lie those of others. */
static ups_status check_records(const ups_netcdf_file *file, const ups_netcdf_variable *variable, ups_error *error) {
    uint64_t records = (uint64_t)file->header.records, end;
    if (records == 0) return UPS_OK;
    if (__builtin_mul_overflow(records - 1, file->header.record_bytes, &end) ||
        __builtin_add_overflow(end, variable->offset, &end) || __builtin_add_overflow(end, variable->bytes, &end) ||
        end > file->bytes)
        return fail_short(file, variable, error);
    return UPS_OK;
}

static ups_status map_classic(ups_netcdf_file *file, const ups_netcdf_variable *variable, ups_dtype dtype,
                              ups_arena *arena, ups_stored_array *array, ups_error *error) {
    ups_number number = ups_netcdf_stored_number(variable);
    UPS_TRY(map_shape(file, variable, array, error));
    array->dtype = dtype;
    array->filters = UPS_FILTERS_NONE;
    array->stored_bytes = (uint64_t)ups_array_elements(array, NULL) * ups_number_size(number);
    if (variable->record) {
        UPS_TRY(check_records(file, variable, error));
    } else if (variable->offset > file->bytes || variable->bytes > file->bytes - variable->offset) {
        return fail_short(file, variable, error);
    }
    array->packing = ups_netcdf_packing(variable, number, arena);
    array->swapped = ups_number_size(number) > 1 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
    bool in_one = !variable->record || file->header.record_bytes == variable->bytes;
    array->storage = in_one ? UPS_STORAGE_CONTIGUOUS : UPS_STORAGE_RECORDS;
    array->offset = variable->offset;
    array->record_stride = file->header.record_bytes;
    return UPS_OK;
}

/* ---- NetCDF-4 ------------------------------------------------------------------------------------------------------
 */

/* Chunks for the places along the first axis that were never written. */
static ups_status append_unwritten(const ups_netcdf_file *file, const ups_netcdf_variable *variable, int64_t length,
                                   ups_arena *arena, ups_stored_array *array, ups_error *error) {
    enum { MAX_CHUNKS = 1 << 24 };
    int64_t rows = (length + array->chunk_shape[0] - 1) / array->chunk_shape[0], row_chunks = 1;
    for (int axis = 1; axis < array->rank; axis++) row_chunks *= array->chunk_grid[axis];
    if (row_chunks > 0 && rows > MAX_CHUNKS / row_chunks)
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: variable '%s' would have more than %d chunks, had it %lld entries along its unlimited "
                        "dimension; the file is damaged",
                        file->path, variable->name, MAX_CHUNKS, (long long)length);
    int64_t written = array->chunk_grid[0] * row_chunks;
    ups_stored_chunk *chunks = UPS_ARENA_ARRAY(arena, ups_stored_chunk, rows * row_chunks + 1);
    if (written) memcpy(chunks, array->chunks, (size_t)written * sizeof *chunks);
    for (int64_t c = written; c < rows * row_chunks; c++)
        chunks[c] = (ups_stored_chunk){.offset = UPS_OFFSET_UNWRITTEN};
    array->chunks = chunks;
    array->chunk_grid[0] = rows;
    array->shape[0] = length;
    ups_number number = ups_netcdf_stored_number(variable);
    ups_netcdf_fill(variable, number, array->fill);
    if (array->swapped) ups_swap_bytes(array->fill, 1, ups_number_size(number));
    return UPS_OK;
}

/* An unlimited dimension is as long as its longest variable; what others lack of it was never written, and reads as the
 * fill value. Where whole chunks are lacking we can say so ourselves. */
static ups_status extend(const ups_netcdf_file *file, const ups_netcdf_variable *variable, ups_arena *arena,
                         ups_stored_array *array, ups_error *error) {
    const ups_netcdf_dimension *dimensions = file->header.dimensions;
    int64_t had = array->shape[0];
    bool shorter = false, first_only = true;
    for (int axis = 0; axis < variable->rank; axis++) {
        int64_t length = dimensions[variable->dimensions[axis]].length;
        if (array->shape[axis] > length ||
            (array->shape[axis] < length && !dimensions[variable->dimensions[axis]].unlimited))
            return ups_fail(
                error, UPS_ERR_FORMAT,
                "%s: variable '%s' has %lld entries along dimension '%s', which has %lld; the file is damaged",
                file->path, variable->name, (long long)array->shape[axis], dimensions[variable->dimensions[axis]].name,
                (long long)length);
        shorter |= array->shape[axis] < length;
        first_only &= axis == 0 || array->shape[axis] == length;
    }
    if (!shorter) return UPS_OK;
    if (first_only && array->storage == UPS_STORAGE_CHUNKED && had % array->chunk_shape[0] == 0)
        return append_unwritten(file, variable, dimensions[variable->dimensions[0]].length, arena, array, error);
    UPS_TRY(map_shape(file, variable, array, error));
    array->packing = ups_netcdf_packing(variable, array->dtype == UPS_F64 ? UPS_NUMBER_F64 : UPS_NUMBER_F32, arena);
    return ups_netcdf_leave_to_library(file->path, &file->opened, variable->name,
                                       "it is shorter than its unlimited dimension", arena, array, error);
}

static ups_status map_hdf5(ups_netcdf_file *file, const ups_netcdf_variable *variable, ups_dtype dtype, bool for_now,
                           ups_arena *arena, ups_stored_array *array, ups_error *error) {
    if (for_now) {
        UPS_TRY(ups_hdf5_map_for_now(file->hdf5, variable->dataset, arena, array, error));
    } else {
        UPS_TRY(ups_hdf5_map(file->hdf5, variable->dataset, 0, arena, array, error));
    }
    ups_number number = ups_netcdf_stored_number(variable);
    array->dtype = dtype;
    if (array->storage == UPS_STORAGE_LIBRARY) number = dtype == UPS_F64 ? UPS_NUMBER_F64 : UPS_NUMBER_F32;
    array->packing = ups_netcdf_packing(variable, number, arena);
    return extend(file, variable, arena, array, error);
}

/* ---- both ----------------------------------------------------------------------------------------------------------
 */

static bool signed_by_type(ups_netcdf_type type) {
    return type == UPS_NETCDF_BYTE || type == UPS_NETCDF_SHORT || type == UPS_NETCDF_INT || type == UPS_NETCDF_INT64;
}

static bool unsigned_number(ups_number number) {
    return number == UPS_NUMBER_U8 || number == UPS_NUMBER_U16 || number == UPS_NUMBER_U32 || number == UPS_NUMBER_U64;
}

static ups_status map_any(ups_netcdf_file *file, const ups_netcdf_variable *variable, ups_dtype dtype, bool for_now,
                          ups_arena *arena, ups_stored_array *array, ups_error *error) {
    *array = (ups_stored_array){0};
    UPS_TRY(file->hdf5 ? map_hdf5(file, variable, dtype, for_now, arena, array, error)
                       : map_classic(file, variable, dtype, arena, array, error));
    array->name = ups_arena_strdup(arena, file->hdf5 ? variable->dataset : variable->name);
    if (array->storage == UPS_STORAGE_LIBRARY && signed_by_type(variable->type) &&
        unsigned_number(ups_netcdf_stored_number(variable)))
        return ups_fail(
            error, UPS_ERR_UNSUPPORTED,
            "%s: variable '%s' has the attribute _Unsigned, which a library that reads it (%s) does not heed",
            file->path, variable->name, array->fallback_reason);
    return UPS_OK;
}

ups_status ups_netcdf_map(ups_netcdf_file *file, const ups_netcdf_variable *variable, ups_dtype dtype,
                          uint32_t file_index, ups_arena *arena, ups_stored_array *array, ups_error *error) {
    UPS_TRY(map_any(file, variable, dtype, false, arena, array, error));
    array->file = file_index;
    return UPS_OK;
}

ups_status ups_netcdf_read(ups_netcdf_file *file, const ups_netcdf_variable *variable, int64_t limit, ups_arena *arena,
                           double **values, int64_t *count, ups_error *error) {
    ups_stored_array array;
    UPS_TRY(map_any(file, variable, UPS_F64, true, arena, &array, error));
    *count = ups_array_elements(&array, NULL);
    if (*count > limit)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: variable '%s' has %lld entries; at most %lld make sense",
                        file->path, variable->name, (long long)*count, (long long)limit);
    *values = UPS_ARENA_ARRAY(arena, double, *count + 1);
    ups_status status = ups_array_read(&array, NULL, file->fd, file->path, *values, error);
    if (status != UPS_OK) ups_fail_within(error, "%s: variable '%s' cannot be read", file->path, variable->name);
    return status;
}
