/* Opening an HDF5 file, and what is in it. */
#include "pipeline/hdf5/file.h"

#include "base/files.h"
#include "pipeline/hdf5/driver.h"
#include "pipeline/hdf5/elsewhere.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void ups_hdf5_quiet_at_exit(void) {
    H5dont_atexit();
}

/* ---- opening ------------------------------------------------------------------------------------------------------
 */

/* Says what the library would not: why a file that is there is no HDF5 file. The signature may stand behind a user
 * block, at 512, 1024, … */
static ups_status explain_foreign(const char *path, int fd, uint64_t bytes, ups_error *error) {
    static const uint8_t signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    uint8_t start[8];
    for (uint64_t offset = 0; offset + 8 <= bytes; offset = offset ? offset * 2 : 512) {
        UPS_TRY(ups_read_at(fd, path, offset, start, sizeof start, error));
        if (memcmp(start, signature, sizeof start) == 0) return UPS_OK;
    }
    return ups_fail(
        error, UPS_ERR_FORMAT,
        "%s is not an HDF5 file, nor NetCDF (their signatures are missing): is it the right file, and was its download "
        "complete? NumPy's .npy and .npz and folders of Zarr are read too; other formats have to be converted",
        path);
}

/* Opens the file for our own reads, and says what is wrong with it where that is plain to see. */
static ups_status open_descriptor(ups_hdf5_file *file, ups_error *error) {
    struct stat status;
    if (stat(file->path, &status) != 0) return ups_fail_errno(error, "%s cannot be opened", file->path);
    if (S_ISDIR(status.st_mode))
        return ups_fail(error, UPS_ERR_IO, "%s is a directory; name the HDF5 files in it", file->path);
    UPS_TRY(ups_open_regular(file->path, O_RDONLY, &file->fd, error));
    file->note.device = status.st_dev;
    file->note.inode = status.st_ino;
    file->bytes = (uint64_t)status.st_size;
    file->modified = status.st_mtim;
    if (file->bytes == 0)
        return ups_fail(error, UPS_ERR_FORMAT, "%s is empty (0 bytes): copy or generate it again", file->path);
    return explain_foreign(file->path, file->fd, file->bytes, error);
}

static ups_status open_both(ups_hdf5_file *file, ups_error *error) {
    char reason[300];
    UPS_TRY(open_descriptor(file, error));
    ups_hdf5_enter();
    file->id = ups_hdf5_driver_open(file->path, &file->note, reason);
    ups_hdf5_leave();
    if (file->id >= 0) return UPS_OK;
    UPS_TRY(ups_hdf5_check_reads(file, error));
    const char *remedy = strstr(reason, "truncated") ? "it was cut short: copy or generate it again"
                                                     : "it is damaged: copy or generate it again";
    return ups_fail(error, UPS_ERR_FORMAT, "%s cannot be read as HDF5 (%s); %s", file->path, reason, remedy);
}

ups_status ups_hdf5_open(const char *path, const char *root, bool through_library, ups_hdf5_file **out,
                         ups_error *error) {
    *out = NULL;
    ups_hdf5_file *file = calloc(1, sizeof *file);
    if (!file || !(file->path = strdup(path))) {
        free(file);
        return ups_fail(error, UPS_ERR_MEMORY, "no memory to open %s", path);
    }
    file->fd = -1;
    file->id = H5I_INVALID_HID;
    file->through_library = through_library;
    file->note.bounded = true;
    file->note.boundary = ups_hdf5_boundary(path, root);
    ups_status status = open_both(file, error);
    if (status != UPS_OK) {
        ups_hdf5_close(file);
        return status;
    }
    *out = file;
    return UPS_OK;
}

const char *ups_hdf5_path(const ups_hdf5_file *file) {
    return file->path;
}

ups_status ups_hdf5_check_reads(const ups_hdf5_file *file, ups_error *error) {
    const ups_hdf5_trouble *trouble = &file->note.trouble;
    if (trouble->cut)
        return ups_fail(error, UPS_ERR_STALE,
                        "%s: was cut while it was being read (it had %llu bytes). Start again once nothing writes to "
                        "it",
                        file->path, (unsigned long long)file->bytes);
    const ups_error *refusal = &file->note.refusal;
    const bool names_it = strncmp(refusal->message, file->path, strlen(file->path)) == 0;
    if (refusal->code != UPS_OK)
        return ups_fail(error, refusal->code, "%s%s%s", names_it ? "" : file->path, names_it ? "" : ": ",
                        refusal->message);
    if (trouble->error_number == 0) return UPS_OK;
    errno = trouble->error_number;
    return ups_fail_errno(error, "%s: what it contains could not be read", file->path);
}

static void close_both(ups_hdf5_file *file) {
    if (file->fd >= 0) close(file->fd);
    file->fd = -1;
    if (file->id < 0) return;
    ups_hdf5_enter();
    H5Fclose(file->id);
    ups_hdf5_leave();
    file->id = H5I_INVALID_HID;
}

void ups_hdf5_settle(ups_hdf5_file *file) {
    if (!file->needed) close_both(file);
}

void ups_hdf5_close(ups_hdf5_file *file) {
    if (!file) return;
    close_both(file);
    free(file->note.boundary);
    free(file->path);
    free(file);
}

bool ups_hdf5_is_of(const ups_hdf5_file *file, hid_t part) {
    char name[4096];
    return H5Fget_name(part, name, sizeof name) >= 0 && strcmp(name, file->path) == 0;
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
    file->note.absent[0] = '\0';
    hid_t object = open_object(file, name);
    char reason[300];
    if (object < 0) ups_hdf5_failed(&file->note, reason);
    if (object < 0 && file->note.absent[0]) ups_hdf5_refuse_absent(&file->note, name);
    if (object >= 0) {
        H5I_type_t type = H5Iget_type(object);
        if (type == H5I_GROUP) kind = UPS_HDF5_GROUP;
        if (type == H5I_DATASET) kind = UPS_HDF5_DATASET;
        H5Oclose(object);
    }
    ups_hdf5_leave();
    return kind;
}

bool ups_hdf5_unreadable(ups_hdf5_file *file, const char *name, char reason[300]) {
    ups_hdf5_enter();
    hid_t object = open_object(file, name);
    if (object < 0) ups_hdf5_failed(&file->note, reason);
    if (object >= 0) H5Oclose(object);
    ups_hdf5_leave();
    return object < 0;
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
    if (result < 0) ups_hdf5_failed(&file->note, reason);
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

/* ---- coordinates ---------------------------------------------------------------------------------------------------
 */

/* A region of a mapped array, or all of it, as doubles: the values of `numbers`, whose shape is known. */
static ups_status read_values(const ups_hdf5_file *file, const char *name, const ups_stored_array *array,
                              const ups_region *region, int64_t limit, ups_arena *arena, ups_numbers *numbers,
                              ups_error *error) {
    const int64_t count = ups_array_elements(array, region);
    if (count > limit)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: coordinate '%s' has %lld entries; at most %lld make sense",
                        file->path, name, (long long)count, (long long)limit);
    numbers->count = count;
    numbers->values = UPS_ARENA_ARRAY(arena, double, count + 1);
    ups_status status;
    if (array->dtype == UPS_F64) {
        status = ups_array_read(array, region, file->fd, file->path, numbers->values, error);
    } else {
        float *narrow = UPS_ARENA_ARRAY(arena, float, count + 1);
        status = ups_array_read(array, region, file->fd, file->path, narrow, error);
        for (int64_t i = 0; i < count; i++) numbers->values[i] = narrow[i];
    }
    if (status != UPS_OK) ups_fail_within(error, "%s: coordinate '%s' cannot be read", file->path, name);
    return status;
}

static ups_status map_numbers(ups_hdf5_file *file, const char *name, ups_arena *arena, ups_stored_array *array,
                              ups_error *error) {
    if (ups_hdf5_kind_of(file, name) == UPS_HDF5_DATASET) return ups_hdf5_map_for_now(file, name, arena, array, error);
    return ups_fail(error, UPS_ERR_FORMAT, "%s: dataset '%s' is missing", file->path, name);
}

ups_status ups_hdf5_read_numbers(ups_hdf5_file *file, const char *name, int64_t limit, ups_arena *arena,
                                 ups_numbers *numbers, ups_error *error) {
    ups_stored_array array;
    UPS_TRY(map_numbers(file, name, arena, &array, error));
    numbers->rank = array.rank;
    memcpy(numbers->shape, array.shape, sizeof numbers->shape);
    return read_values(file, name, &array, NULL, limit, arena, numbers, error);
}

ups_status ups_hdf5_read_first(ups_hdf5_file *file, const char *name, int axis, int64_t limit, ups_arena *arena,
                               ups_numbers *numbers, ups_error *error) {
    ups_stored_array array;
    ups_region first = {{0}, {0}};
    UPS_TRY(map_numbers(file, name, arena, &array, error));
    if (array.rank <= axis)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: '%s' has %d axes; more than %d were expected", file->path, name,
                        array.rank, axis);
    numbers->rank = 0;
    for (int a = 0; a < array.rank; a++) {
        first.count[a] = a == axis ? 1 : array.shape[a];
        if (a != axis) numbers->shape[numbers->rank++] = array.shape[a];
    }
    if (array.storage == UPS_STORAGE_CONTIGUOUS) array.run_axes = axis + 1; /* what lies between is not read */
    return read_values(file, name, &array, &first, limit, arena, numbers, error);
}

ups_status ups_hdf5_read_rank(ups_hdf5_file *file, const char *name, ups_arena *arena, int *rank, ups_error *error) {
    ups_stored_array array;
    UPS_TRY(map_numbers(file, name, arena, &array, error));
    *rank = array.rank;
    return UPS_OK;
}

ups_status ups_hdf5_read_axis(ups_hdf5_file *file, const char *name, int64_t limit, ups_arena *arena, double **values,
                              int64_t *count, ups_error *error) {
    ups_numbers numbers;
    UPS_TRY(ups_hdf5_read_numbers(file, name, limit, arena, &numbers, error));
    if (numbers.rank != 1)
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: coordinate '%s' has rank %d; a list of numbers (rank 1) was expected", file->path, name,
                        numbers.rank);
    *values = numbers.values;
    *count = numbers.count;
    return UPS_OK;
}
