/* The classic NetCDF formats. Values are read as the CF conventions have it: packed numbers are unpacked, what is
 * missing is NaN. */
#include "pipeline/arrays/variables.h"

#include "pipeline/netcdf/cf.h"
#include <stdlib.h>
#include <string.h>

/* ---- variables, classic or not ------------------------------------------------------------------------------------
 */

static bool numeric(const ups_netcdf_variable *variable) {
    return variable->type != UPS_NETCDF_CHAR && variable->type != UPS_NETCDF_OTHER &&
           variable->rank <= UPS_ARRAY_MAX_RANK;
}

const ups_netcdf_variable *ups_variables_find(const ups_netcdf_file *file, const char *name) {
    const ups_netcdf_header *header = ups_netcdf_contents(file);
    for (int64_t v = 0; v < header->variable_count; v++) {
        if (strcmp(header->variables[v].name, name) == 0 && numeric(&header->variables[v]))
            return &header->variables[v];
    }
    return NULL;
}

void ups_variables_list(const ups_netcdf_file *file, ups_outline_list *list) {
    const ups_netcdf_header *header = ups_netcdf_contents(file);
    for (int64_t v = 0; v < header->variable_count && list->count < UPS_ARRAYS_MAX_LISTED; v++) {
        const ups_netcdf_variable *variable = &header->variables[v];
        if (!numeric(variable)) continue;
        ups_array_outline *outline = ups_outline_add(list, variable->name);
        outline->rank = variable->rank;
        outline->numeric = outline->unpacked = true;
        outline->type = ups_number_name(ups_netcdf_stored_number(variable));
        outline->integer = variable->type != UPS_NETCDF_FLOAT && variable->type != UPS_NETCDF_DOUBLE;
        for (int axis = 0; axis < variable->rank; axis++) {
            outline->shape[axis] = header->dimensions[variable->dimensions[axis]].length;
            outline->dimensions[axis] =
                ups_arena_strdup(list->arena, header->dimensions[variable->dimensions[axis]].name);
        }
    }
}

ups_status ups_variables_read(ups_netcdf_file *file, const ups_netcdf_variable *variable, int64_t limit,
                              ups_arena *arena, ups_numbers *numbers, ups_error *error) {
    const ups_netcdf_header *header = ups_netcdf_contents(file);
    *numbers = (ups_numbers){.rank = variable->rank > 0 ? variable->rank : 1, .shape = {1}};
    for (int axis = 0; axis < variable->rank; axis++)
        numbers->shape[axis] = header->dimensions[variable->dimensions[axis]].length;
    return ups_netcdf_read(file, variable, limit, arena, &numbers->values, &numbers->count, error);
}

/* ---- the classic formats ------------------------------------------------------------------------------------------
 */

typedef struct classic_arrays {
    ups_netcdf_file *file; /* NULL once all is mapped */
} classic_arrays;

static ups_netcdf_file *file_of(void *handle) {
    return ((classic_arrays *)handle)->file;
}

static void settle(void *handle) {
    classic_arrays *arrays = handle;
    ups_netcdf_close(arrays->file);
    arrays->file = NULL;
}

static void close_arrays(void *handle) {
    settle(handle);
    free(handle);
}

static ups_status open_arrays(const char *path, const ups_arrays_options *options, ups_arena *arena, void **handle,
                              const char **file, ups_error *error) {
    if (options->through_library)
        return ups_fail(error, UPS_ERR_UNSUPPORTED,
                        "%s is a classic NetCDF file, which UPS reads by itself and never through a library: choose "
                        "another way of reading",
                        path);
    classic_arrays *arrays = calloc(1, sizeof *arrays);
    if (!arrays) return ups_fail(error, UPS_ERR_MEMORY, "no memory to open %s", path);
    ups_status status = ups_netcdf_open(path, &arrays->file, error);
    if (status != UPS_OK) free(arrays);
    *handle = arrays;
    return status;
}

static ups_status list_arrays(void *handle, ups_arena *arena, const ups_array_outline **outlines, int64_t *count,
                              ups_error *error) {
    ups_outline_list list = {.arena = arena};
    ups_variables_list(file_of(handle), &list);
    *outlines = list.list;
    *count = list.count;
    return UPS_OK;
}

static ups_status map_array(void *handle, const char *name, uint32_t file, ups_file_list *files, ups_arena *arena,
                            ups_found_array *found, bool *is_there, ups_error *error) {
    const ups_netcdf_variable *variable = ups_variables_find(file_of(handle), name);
    *is_there = variable != NULL;
    if (!variable) return UPS_OK;
    return ups_netcdf_map(file_of(handle), variable, ups_netcdf_dtype(variable), file, arena, found->array, error);
}

static ups_status read_array(void *handle, const char *name, int64_t limit, ups_arena *arena, ups_numbers *numbers,
                             bool *is_there, ups_error *error) {
    const ups_netcdf_variable *variable = ups_variables_find(file_of(handle), name);
    *is_there = variable != NULL;
    return variable ? ups_variables_read(file_of(handle), variable, limit, arena, numbers, error) : UPS_OK;
}

static ups_status each_number(void *handle, const char *object, ups_number_visitor visit, void *context,
                              ups_error *error) {
    const ups_netcdf_header *header = ups_netcdf_contents(file_of(handle));
    const ups_netcdf_variable *variable = *object ? ups_variables_find(file_of(handle), object) : NULL;
    const ups_netcdf_attribute *attributes = variable ? variable->attributes : header->attributes;
    const int64_t count = variable ? variable->attribute_count : *object ? 0 : header->attribute_count;
    for (int64_t a = 0; a < count; a++) {
        if (attributes[a].type == UPS_NETCDF_CHAR || attributes[a].count != 1) continue;
        visit(context, attributes[a].name, ups_netcdf_number(&attributes[a], 0));
    }
    return UPS_OK;
}

static ups_status read_attribute(void *handle, const char *object, const char *name, ups_arena *arena,
                                 ups_attribute *out, ups_error *error) {
    const ups_netcdf_header *header = ups_netcdf_contents(file_of(handle));
    const ups_netcdf_variable *variable = *object ? ups_variables_find(file_of(handle), object) : NULL;
    if (*object && !variable) return UPS_OK;
    const ups_netcdf_attribute *attribute =
        ups_netcdf_find(variable ? variable->attributes : header->attributes,
                        variable ? variable->attribute_count : header->attribute_count, name);
    if (!attribute) return UPS_OK;
    *out = (ups_attribute){.present = true, .count = attribute->type == UPS_NETCDF_CHAR ? 1 : attribute->count};
    if (attribute->type == UPS_NETCDF_CHAR) {
        const char **texts = UPS_ARENA_ARRAY(arena, const char *, 1);
        texts[0] = ups_arena_strdup(arena, attribute->values);
        out->texts = texts;
        return UPS_OK;
    }
    double *numbers = UPS_ARENA_ARRAY(arena, double, attribute->count + 1);
    for (int64_t i = 0; i < attribute->count; i++) numbers[i] = ups_netcdf_number(attribute, i);
    out->numbers = numbers;
    return UPS_OK;
}

const ups_arrays_format_class ups_arrays_netcdf = {
    .name = "NetCDF",
    .open = open_arrays,
    .list = list_arrays,
    .map = map_array,
    .read = read_array,
    .attribute = read_attribute,
    .each_number = each_number,
    .settle = settle,
    .close = close_arrays,
};
