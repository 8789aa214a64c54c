/* NPY and NPZ. An NPY file holds one array, which has no name: any is taken for it. They have no attributes. */
#include "pipeline/arrays/format.h"
#include "pipeline/numpy/storage.h"
#include <string.h>

static ups_status open_arrays(const char *path, const ups_arrays_options *options, ups_arena *arena, void **handle,
                              const char **file, ups_error *error) {
    ups_numpy_file *opened;
    if (options->through_library)
        return ups_fail(
            error, UPS_ERR_UNSUPPORTED,
            "%s is a NumPy file, which UPS reads by itself and never through a library: choose another way of "
            "reading",
            path);
    UPS_TRY(ups_numpy_open(path, &opened, error));
    *handle = opened;
    return UPS_OK;
}

static void settle(void *handle) {
    ups_numpy_settle(handle);
}

static void close_arrays(void *handle) {
    ups_numpy_close(handle);
}

static ups_status list_arrays(void *handle, ups_arena *arena, const ups_array_outline **outlines, int64_t *count,
                              ups_error *error) {
    ups_outline_list list = {.arena = arena};
    for (int64_t i = 0; i < ups_numpy_count(handle) && i < UPS_ARRAYS_MAX_LISTED; i++) {
        const ups_npy_header *header;
        UPS_TRY(ups_numpy_describe(handle, i, &header, error));
        ups_array_outline *outline = ups_outline_add(&list, ups_numpy_name(handle, i));
        outline->rank = header->rank;
        memcpy(outline->shape, header->shape, sizeof outline->shape);
        outline->numeric = header->numeric;
        outline->integer = header->numeric && header->number >= UPS_NUMBER_I8;
        outline->type = header->numeric ? ups_arena_printf(arena, "%s%s", header->swapped ? "big-endian " : "",
                                                           ups_number_name(header->number))
                                        : ups_arena_strdup(arena, header->type);
    }
    *outlines = list.list;
    *count = list.count;
    return UPS_OK;
}

static ups_status map_array(void *handle, const char *name, uint32_t file, ups_file_list *files, ups_arena *arena,
                            ups_found_array *found, bool *is_there, ups_error *error) {
    int64_t index = 0;
    if (ups_numpy_is_archive(handle)) {
        while (index < ups_numpy_count(handle) && strcmp(ups_numpy_name(handle, index), name) != 0) index++;
    }
    *is_there = index < ups_numpy_count(handle);
    if (!*is_there) return UPS_OK;
    const ups_npy_header *header;
    UPS_TRY(ups_numpy_map(handle, index, file, arena, found->array, error));
    UPS_TRY(ups_numpy_describe(handle, index, &header, error));
    for (int axis = 0; header->fortran && axis < header->rank; axis++) found->axis_of[axis] = header->rank - 1 - axis;
    return UPS_OK;
}

static ups_status read_attribute(void *handle, const char *object, const char *name, ups_arena *arena,
                                 ups_attribute *attribute, ups_error *error) {
    return UPS_OK; /* there is none */
}

const ups_arrays_format_class ups_arrays_numpy = {
    .name = "NumPy",
    .open = open_arrays,
    .list = list_arrays,
    .map = map_array,
    .attribute = read_attribute,
    .settle = settle,
    .close = close_arrays,
};
