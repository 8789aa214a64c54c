/* Zarr stores in folders. */
#include "pipeline/arrays/format.h"
#include "pipeline/zarr/storage.h"
#include <string.h>

static ups_status open_arrays(const char *path, const ups_arrays_options *options, ups_arena *arena, void **handle,
                              const char **file, ups_error *error) {
    ups_zarr_store *store;
    if (options->through_library)
        return ups_fail(
            error, UPS_ERR_UNSUPPORTED,
            "%s is a Zarr store, which UPS reads by itself and never through a library: choose another way of "
            "reading",
            path);
    UPS_TRY(ups_zarr_open(path, &store, error));
    *file = ups_arena_strdup(arena, ups_zarr_document(store));
    *handle = store;
    return UPS_OK;
}

static void close_arrays(void *handle) {
    ups_zarr_close(handle);
}

static bool take_outline(void *context, const char *name, const ups_zarr_outline *found, const json_t *dimensions) {
    ups_outline_list *list = context;
    ups_array_outline *outline = ups_outline_add(list, name);
    outline->rank = found->rank;
    memcpy(outline->shape, found->shape, sizeof outline->shape);
    outline->numeric = found->numeric;
    outline->integer = found->numeric && found->number >= UPS_NUMBER_I8;
    outline->type = found->numeric ? ups_arena_printf(list->arena, "%s%s", found->swapped ? "big-endian " : "",
                                                      ups_number_name(found->number))
                                   : ups_arena_strdup(list->arena, found->type);
    for (int axis = 0; axis < found->rank; axis++) {
        const char *dimension = json_string_value(json_array_get(dimensions, (size_t)axis));
        if (dimension) outline->dimensions[axis] = ups_arena_strdup(list->arena, dimension);
    }
    return list->count < UPS_ARRAYS_MAX_LISTED;
}

static ups_status list_arrays(void *handle, ups_arena *arena, const ups_array_outline **outlines, int64_t *count,
                              ups_error *error) {
    ups_outline_list list = {.arena = arena};
    UPS_TRY(ups_zarr_each_array(handle, take_outline, &list, error));
    *outlines = list.list;
    *count = list.count;
    return UPS_OK;
}

static ups_status add_file(void *context, const char *path, uint32_t *index, ups_error *error) {
    return ups_file_list_add(context, path, index, error);
}

static ups_status map_array(void *handle, const char *name, uint32_t file, ups_file_list *files, ups_arena *arena,
                            ups_found_array *found, bool *is_there, ups_error *error) {
    found->array->file = file;
    UPS_TRY(ups_zarr_map(handle, name, add_file, files, arena, found->array, found->axis_of, is_there, error));
    if (*is_there || !*name) return UPS_OK;
    return ups_zarr_map(handle, "", add_file, files, arena, found->array, found->axis_of, is_there, error);
}

static ups_status each_number(void *handle, const char *object, ups_number_visitor visit, void *context,
                              ups_error *error) {
    json_t *attributes, *value;
    const char *name;
    UPS_TRY(ups_zarr_attributes(handle, object, &attributes, error));
    json_object_foreach(attributes, name, value) {
        if (json_is_number(value)) visit(context, name, json_number_value(value));
    }
    json_decref(attributes);
    return UPS_OK;
}

static ups_status read_attribute(void *handle, const char *object, const char *name, ups_arena *arena,
                                 ups_attribute *attribute, ups_error *error) {
    json_t *attributes;
    UPS_TRY(ups_zarr_attributes(handle, object, &attributes, error));
    const json_t *value = json_object_get(attributes, name);
    const size_t count = json_is_array(value) ? json_array_size(value) : value ? 1 : 0;
    double *numbers = UPS_ARENA_ARRAY(arena, double, count + 1);
    const char **texts = UPS_ARENA_ARRAY(arena, const char *, count + 1);
    bool all_numbers = count > 0, all_texts = count > 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_is_array(value) ? json_array_get(value, i) : value;
        numbers[i] = json_is_boolean(entry) ? json_is_true(entry) : json_number_value(entry);
        texts[i] = json_is_string(entry) ? ups_arena_strdup(arena, json_string_value(entry)) : NULL;
        all_numbers &= json_is_number(entry) || json_is_boolean(entry);
        all_texts &= json_is_string(entry);
    }
    *attribute = (ups_attribute){.present = value != NULL, .count = (int64_t)count};
    if (all_numbers) attribute->numbers = numbers;
    if (all_texts) attribute->texts = texts;
    json_decref(attributes);
    return UPS_OK;
}

const ups_arrays_format_class ups_arrays_zarr = {
    .name = "Zarr",
    .open = open_arrays,
    .list = list_arrays,
    .map = map_array,
    .attribute = read_attribute,
    .each_number = each_number,
    .close = close_arrays,
};
