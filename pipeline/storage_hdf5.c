#include "pipeline/storage_hdf5.h"

#include "pipeline/hdf5_driver.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ups_hdf5_file {
    char *path;
    hid_t id; /* negative once settled */
    uint64_t bytes;
    bool through_library;
    bool needed; /* an array reads through the library */
    ups_hdf5_note note;
};

/* ---- opening ------------------------------------------------------------------------------------------------------
 */

/* Says what the library would not: why a file that is there is no HDF5 file. */
static ups_status explain_foreign(const char *path, int fd, uint64_t bytes, ups_error *error) {
    static const uint8_t signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    uint8_t start[8];
    for (uint64_t offset = 0; offset + 8 <= bytes; offset = offset ? offset * 2 : 512) {
        if (pread(fd, start, 8, (off_t)offset) == 8 && memcmp(start, signature, 8) == 0) return UPS_OK;
    }
    if (pread(fd, start, 3, 0) == 3 && memcmp(start, "CDF", 3) == 0)
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s is a NetCDF-3 file, not HDF5: convert it with `nccopy -k nc4 IN OUT`", path);
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s is not an HDF5 file (its signature is missing): is it the right file, and was its download "
                    "complete?",
                    path);
}

static ups_status check_file(const char *path, uint64_t *bytes, ups_error *error) {
    struct stat status;
    if (stat(path, &status) != 0) return ups_fail_errno(error, "%s cannot be opened", path);
    if (S_ISDIR(status.st_mode))
        return ups_fail(error, UPS_ERR_IO, "%s is a directory; name the HDF5 files in it", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return ups_fail_errno(error, "%s cannot be opened for reading", path);
    *bytes = (uint64_t)status.st_size;
    ups_status result = UPS_OK;
    if (status.st_size == 0) {
        result = ups_fail(error, UPS_ERR_FORMAT, "%s is empty (0 bytes): copy or generate it again", path);
    } else {
        result = explain_foreign(path, fd, *bytes, error);
    }
    close(fd);
    return result;
}

ups_status ups_hdf5_open(const char *path, bool through_library, ups_hdf5_file **out, ups_error *error) {
    *out = NULL;
    uint64_t bytes = 0;
    UPS_TRY(check_file(path, &bytes, error));
    ups_hdf5_file *file = calloc(1, sizeof *file);
    if (!file || !(file->path = strdup(path))) {
        free(file);
        return ups_fail(error, UPS_ERR_MEMORY, "no memory to open %s", path);
    }
    file->bytes = bytes;
    file->through_library = through_library;
    char reason[300];
    ups_hdf5_enter();
    file->id = ups_hdf5_driver_open(path, &file->note, reason);
    ups_hdf5_leave();
    if (file->id < 0) {
        ups_hdf5_close(file);
        const char *remedy = strstr(reason, "truncated") ? "it was cut short: copy or generate it again"
                                                         : "it is damaged: copy or generate it again";
        return ups_fail(error, UPS_ERR_FORMAT, "%s cannot be read as HDF5 (%s); %s", path, reason, remedy);
    }
    *out = file;
    return UPS_OK;
}

const char *ups_hdf5_path(const ups_hdf5_file *file) {
    return file->path;
}

static void close_library_side(ups_hdf5_file *file) {
    if (file->id < 0) return;
    ups_hdf5_enter();
    H5Fclose(file->id);
    ups_hdf5_leave();
    file->id = H5I_INVALID_HID;
}

void ups_hdf5_settle(ups_hdf5_file *file) {
    if (!file->needed) close_library_side(file);
}

void ups_hdf5_close(ups_hdf5_file *file) {
    if (!file) return;
    close_library_side(file);
    free(file->path);
    free(file);
}

/* ---- what is in the file ------------------------------------------------------------------------------------------
 */

static hid_t open_object(const ups_hdf5_file *file, const char *name) {
    return H5Oopen(file->id, *name ? name : "/", H5P_DEFAULT);
}

/* H5Lexists wants every group on the way to exist; H5Oopen of an absent name fails, which is all we need to know. */
ups_hdf5_kind ups_hdf5_kind_of(ups_hdf5_file *file, const char *name) {
    ups_hdf5_kind kind = UPS_HDF5_ABSENT;
    ups_hdf5_enter();
    hid_t object = open_object(file, name);
    if (object >= 0) {
        H5I_type_t type = H5Iget_type(object);
        if (type == H5I_GROUP) kind = UPS_HDF5_GROUP;
        if (type == H5I_DATASET) kind = UPS_HDF5_DATASET;
        H5Oclose(object);
    }
    ups_hdf5_leave();
    return kind;
}

typedef struct name_list {
    ups_arena *arena;
    const char **names;
    int64_t count, capacity;
} name_list;

static herr_t take_name(hid_t group, const char *name, const H5L_info_t *info, void *context) {
    name_list *list = context;
    if (list->count == list->capacity) {
        int64_t capacity = list->capacity ? 2 * list->capacity : 64;
        const char **names = realloc(list->names, (size_t)capacity * sizeof *names);
        if (!names) return -1;
        list->names = names;
        list->capacity = capacity;
    }
    list->names[list->count++] = ups_arena_strdup(list->arena, name);
    return 0;
}

ups_status ups_hdf5_list(ups_hdf5_file *file, const char *group_name, ups_arena *arena, const char *const **names,
                         int64_t *count, ups_error *error) {
    name_list list = {.arena = arena};
    char reason[300] = "it is not a group";
    ups_hdf5_enter();
    hid_t group = open_object(file, group_name);
    herr_t result = group < 0 ? -1 : H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, take_name, &list);
    if (result < 0) ups_hdf5_reason(reason);
    if (group >= 0) H5Oclose(group);
    ups_hdf5_leave();
    if (result < 0) {
        free(list.names);
        return ups_fail(error, UPS_ERR_FORMAT, "%s: group '/%s' cannot be listed (%s); the file is damaged", file->path,
                        group_name, reason);
    }
    const char **copy = UPS_ARENA_ARRAY(arena, const char *, list.count ? list.count : 1);
    if (list.count) memcpy(copy, list.names, (size_t)list.count * sizeof *copy);
    free(list.names);
    *names = copy;
    *count = list.count;
    return UPS_OK;
}

/* ---- attributes ---------------------------------------------------------------------------------------------------
 */

typedef struct attribute_walk {
    ups_hdf5_attribute_visitor visit;
    void *context;
} attribute_walk;

static void visit_string(const attribute_walk *walk, hid_t attribute, hid_t type, const char *name) {
    enum { LONGEST = 1 << 20 };
    hid_t memory_type = H5Tcopy(H5T_C_S1);
    if (H5Tis_variable_str(type) > 0) {
        char *text = NULL;
        H5Tset_size(memory_type, H5T_VARIABLE);
        H5Tset_cset(memory_type, H5Tget_cset(type));
        if (H5Aread(attribute, memory_type, &text) >= 0 && text) walk->visit(walk->context, name, 0, text);
        if (text) H5free_memory(text);
    } else {
        size_t size = H5Tget_size(type);
        char *text = size && size < LONGEST ? calloc(1, size + 1) : NULL;
        if (text) {
            H5Tset_size(memory_type, size + 1); /* room for the NUL */
            H5Tset_cset(memory_type, H5Tget_cset(type));
            if (H5Aread(attribute, memory_type, text) >= 0) walk->visit(walk->context, name, 0, text);
            free(text);
        }
    }
    H5Tclose(memory_type);
}

static herr_t visit_attribute(hid_t object, const char *name, const H5A_info_t *info, void *context) {
    const attribute_walk *walk = context;
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    if (attribute < 0) return -1;
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    if (type >= 0 && space >= 0 && H5Sget_simple_extent_npoints(space) == 1) {
        H5T_class_t class = H5Tget_class(type);
        double number;
        if (class == H5T_STRING) visit_string(walk, attribute, type, name);
        if ((class == H5T_FLOAT || class == H5T_INTEGER) && H5Aread(attribute, H5T_NATIVE_DOUBLE, &number) >= 0)
            walk->visit(walk->context, name, number, NULL);
    }
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    H5Aclose(attribute);
    return 0;
}

ups_status ups_hdf5_attributes(ups_hdf5_file *file, const char *name, ups_hdf5_attribute_visitor visit, void *context,
                               ups_error *error) {
    attribute_walk walk = {visit, context};
    char reason[300] = "";
    ups_hdf5_enter();
    hid_t object = open_object(file, name);
    herr_t result = object < 0 ? -1 : H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, NULL, visit_attribute, &walk);
    if (result < 0) ups_hdf5_reason(reason);
    if (object >= 0) H5Oclose(object);
    ups_hdf5_leave();
    if (result < 0)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: the attributes of '/%s' cannot be read (%s); the file is damaged",
                        file->path, name, reason);
    return UPS_OK;
}

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
    hid_t dataset = H5Dopen2(file, array->name, H5P_DEFAULT);
    hid_t file_space = dataset < 0 ? -1 : H5Dget_space(dataset);
    hid_t memory_space = dataset < 0 ? -1 : H5Screate_simple(array->rank, count, NULL);
    if (file_space >= 0 && memory_space >= 0 &&
        H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0)
        result = H5Dread(dataset, memory_type, memory_space, file_space, H5P_DEFAULT, out);
    if (result < 0) ups_hdf5_reason(reason);
    if (memory_space >= 0) H5Sclose(memory_space);
    if (file_space >= 0) H5Sclose(file_space);
    if (dataset >= 0) H5Dclose(dataset);
    return result;
}

static ups_status read_through(const ups_stored_array *array, const ups_region *region, void *out, ups_error *error) {
    ups_hdf5_file *file = array->library;
    char reason[300] = "";
    ups_hdf5_enter();
    herr_t result = read_region(array, file->id, region, out, reason);
    ups_hdf5_leave();
    if (result >= 0) return UPS_OK;
    return ups_fail(
        error, UPS_ERR_FORMAT,
        "dataset '%s' cannot be read by the HDF5 library (%s); it is damaged, or needs a filter plug-in that "
        "HDF5_PLUGIN_PATH does not name",
        array->name, reason);
}

ups_status ups_hdf5_read_axis(ups_hdf5_file *file, const char *name, int64_t limit, ups_arena *arena, double **values,
                              int64_t *count, ups_error *error) {
    char reason[300] = "";
    hssize_t points = -1;
    int rank = -1;
    herr_t result = -1;
    ups_hdf5_enter();
    hid_t dataset = H5Dopen2(file->id, name, H5P_DEFAULT);
    hid_t space = dataset < 0 ? -1 : H5Dget_space(dataset);
    if (space >= 0) {
        rank = H5Sget_simple_extent_ndims(space);
        points = H5Sget_simple_extent_npoints(space);
        if (rank == 1 && points >= 0 && points <= limit) {
            *values = UPS_ARENA_ARRAY(arena, double, points ? points : 1);
            *count = points;
            result = H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, *values);
        }
    }
    if (result < 0) ups_hdf5_reason(reason);
    if (space >= 0) H5Sclose(space);
    if (dataset >= 0) H5Dclose(dataset);
    ups_hdf5_leave();
    if (dataset < 0) return ups_fail(error, UPS_ERR_FORMAT, "%s: dataset '%s' is missing", file->path, name);
    if (rank >= 0 && rank != 1)
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: coordinate '%s' has rank %d; a list of numbers (rank 1) was expected", file->path, name,
                        rank);
    if (points > limit)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: coordinate '%s' has %lld entries; at most %lld fit the data",
                        file->path, name, (long long)points, (long long)limit);
    if (result < 0)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: coordinate '%s' cannot be read (%s); the file is damaged",
                        file->path, name, reason);
    return UPS_OK;
}

/* ---- mapping ------------------------------------------------------------------------------------------------------
 */

typedef struct mapping {
    ups_hdf5_file *file;
    ups_arena *arena;
    hid_t dataset, type, space, creation;
    ups_stored_array *array;
    ups_error *error;
} mapping;

static void leave_to_library(mapping *map, const char *remark) {
    map->array->storage = UPS_STORAGE_LIBRARY;
    map->array->remark = remark;
    map->array->read_through = read_through;
    map->array->library = map->file;
    map->file->needed = true;
}

/* Which float type decode writes, and whether the file's bytes are that type as they stand. */
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
    size_t size = H5Tget_size(map->type);
    switch (H5Tget_class(map->type)) {
    case H5T_FLOAT:
        array->dtype = size <= 4 ? UPS_F32 : UPS_F64;
        return UPS_OK;
    case H5T_INTEGER:
        array->dtype = size <= 2 ? UPS_F32 : UPS_F64;
        return UPS_OK; /* float32 holds 24 bits exactly */
    default:
        return ups_fail(map->error, UPS_ERR_FORMAT,
                        "%s: dataset '%s' does not hold numbers; float32 or float64 was expected", map->file->path,
                        array->name);
    }
}

static ups_status map_shape(mapping *map) {
    ups_stored_array *array = map->array;
    hsize_t shape[H5S_MAX_RANK];
    array->rank = H5Sget_simple_extent_ndims(map->space);
    if (array->rank < 1 || array->rank > UPS_ARRAY_MAX_RANK)
        return ups_fail(map->error, UPS_ERR_FORMAT, "%s: dataset '%s' has rank %d; 1 to %d was expected",
                        map->file->path, array->name, array->rank, UPS_ARRAY_MAX_RANK);
    H5Sget_simple_extent_dims(map->space, shape, NULL);
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

static void map_fill_value(mapping *map) {
    H5D_fill_value_t defined;
    memset(map->array->fill, 0, sizeof map->array->fill);
    if (H5Pfill_value_defined(map->creation, &defined) >= 0 && defined != H5D_FILL_VALUE_UNDEFINED)
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

/* Finds one chunk: its address by H5Dread_chunk with an armed note (see hdf5_driver.h). That fails for a chunk never
 * written. */
static ups_status map_chunk(mapping *map, const hsize_t *start, ups_stored_chunk *chunk) {
    ups_hdf5_note *note = &map->file->note;
    *note = (ups_hdf5_note){.armed = true};
    uint8_t untouched[8];
    uint32_t mask = 0;
    herr_t result = H5Dread_chunk(map->dataset, H5P_DEFAULT, start, &mask, untouched);
    note->armed = false;
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
        return fail_to_find_chunks(map, ups_hdf5_reason(reason));
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
    return UPS_OK;
}

static ups_status map_chunks(mapping *map) {
    enum { MOST_CHUNKS = 1 << 24 }; /* 256 MiB of table; a file with more is sparse beyond sense, or damaged */
    ups_stored_array *array = map->array;
    hsize_t shape[UPS_ARRAY_MAX_RANK];
    if (!map_filters(map)) {
        leave_to_library(map, "a filter that only the HDF5 library knows");
        return UPS_OK;
    }
    unsigned options = 0;
    if (H5Pget_chunk_opts(map->creation, &options) >= 0 && (options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS)) {
        leave_to_library(map, "edge chunks that are stored without filters");
        return UPS_OK;
    }
    if (H5Pget_chunk(map->creation, UPS_ARRAY_MAX_RANK, shape) != array->rank)
        return ups_fail(map->error, UPS_ERR_FORMAT,
                        "%s: the chunk shape of dataset '%s' does not fit its rank; the file is damaged",
                        map->file->path, array->name);
    int64_t chunk_count = 1;
    uint64_t chunk_bytes = ups_dtype_size(array->dtype);
    for (int axis = 0; axis < array->rank; axis++) {
        if (shape[axis] < 1 || __builtin_mul_overflow(chunk_bytes, (uint64_t)shape[axis], &chunk_bytes) ||
            chunk_bytes > UINT32_MAX)
            return ups_fail(map->error, UPS_ERR_FORMAT,
                            "%s: the chunk shape of dataset '%s' makes no sense; the file is damaged", map->file->path,
                            array->name);
        array->chunk_shape[axis] = (int64_t)shape[axis];
        array->chunk_grid[axis] = (array->shape[axis] + array->chunk_shape[axis] - 1) / array->chunk_shape[axis];
        if (__builtin_mul_overflow(chunk_count, array->chunk_grid[axis], &chunk_count)) chunk_count = INT64_MAX;
    }
    if (chunk_count > MOST_CHUNKS) {
        leave_to_library(map, "too many chunks to list");
        return UPS_OK;
    }
    array->storage = UPS_STORAGE_CHUNKED;
    return map_chunk_table(map, chunk_count);
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
    uint64_t bytes = (uint64_t)ups_array_elements(array, NULL) * ups_dtype_size(array->dtype);
    if (array->offset == UPS_OFFSET_UNWRITTEN || bytes == 0) return UPS_OK;
    if (array->offset > map->file->bytes || bytes > map->file->bytes - array->offset)
        return ups_fail(map->error, UPS_ERR_FORMAT,
                        "%s: dataset '%s' lies beyond the end of the file; it was cut short or is damaged: copy or "
                        "generate it again",
                        map->file->path, array->name);
    return UPS_OK;
}

static ups_status map_storage(mapping *map) {
    bool direct = true;
    UPS_TRY(map_shape(map));
    UPS_TRY(map_type(map, &direct));
    map->array->stored_bytes = H5Dget_storage_size(map->dataset);
    map_fill_value(map);
    if (map->file->through_library) {
        leave_to_library(map, "asked for");
        return UPS_OK;
    }
    if (!direct) {
        leave_to_library(map, "a number type that is neither float32 nor float64");
        return UPS_OK;
    }
    switch (H5Pget_layout(map->creation)) {
    case H5D_CONTIGUOUS:
        return map_contiguous(map);
    case H5D_CHUNKED:
        return map_chunks(map);
    case H5D_COMPACT:
        leave_to_library(map, "compact storage, inside the object header");
        return UPS_OK;
    case H5D_VIRTUAL:
        leave_to_library(map, "a virtual dataset");
        return UPS_OK;
    default:
        leave_to_library(map, "a storage layout that only the HDF5 library knows");
        return UPS_OK;
    }
}

ups_status ups_hdf5_map(ups_hdf5_file *file, const char *name, uint32_t file_index, ups_arena *arena,
                        ups_stored_array *array, ups_error *error) {
    *array = (ups_stored_array){.name = ups_arena_strdup(arena, name), .file = file_index};
    mapping map = {file, arena, -1, -1, -1, -1, array, error};
    ups_status status;
    char reason[300];
    ups_hdf5_enter();
    map.dataset = H5Dopen2(file->id, name, H5P_DEFAULT);
    if (map.dataset >= 0) {
        map.type = H5Dget_type(map.dataset);
        map.space = H5Dget_space(map.dataset);
        map.creation = H5Dget_create_plist(map.dataset);
    }
    if (map.type >= 0 && map.space >= 0 && map.creation >= 0) {
        status = map_storage(&map);
    } else {
        status = ups_fail(error, UPS_ERR_FORMAT, "%s: dataset '%s' cannot be opened (%s); it is missing or damaged",
                          file->path, name, ups_hdf5_reason(reason));
    }
    if (map.creation >= 0) H5Pclose(map.creation);
    if (map.space >= 0) H5Sclose(map.space);
    if (map.type >= 0) H5Tclose(map.type);
    if (map.dataset >= 0) H5Dclose(map.dataset);
    ups_hdf5_leave();
    return status;
}
