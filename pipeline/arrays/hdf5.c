/* HDF5, and NetCDF-4 where it says so: variables of its root are read as the CF conventions have it, and dimensions
 * have names. What lies in groups below is plain HDF5. */
#include "pipeline/netcdf/hdf5.h"
#include "pipeline/arrays/format.h"
#include "pipeline/arrays/variables.h"
#include "pipeline/hdf5/outline.h"
#include <stdlib.h>
#include <string.h>

typedef struct hdf5_arrays {
    ups_hdf5_file *file;
    ups_netcdf_file *netcdf; /* NULL: it is none */
} hdf5_arrays;

static void close_arrays(void *handle) {
    hdf5_arrays *arrays = handle;
    ups_netcdf_close(arrays->netcdf);
    ups_hdf5_close(arrays->file);
    free(arrays);
}

static ups_status open_arrays(const char *path, const ups_arrays_options *options, ups_arena *arena, void **handle,
                              const char **file, ups_error *error) {
    hdf5_arrays *arrays = calloc(1, sizeof *arrays);
    if (!arrays) return ups_fail(error, UPS_ERR_MEMORY, "no memory to open %s", path);
    ups_status status = ups_hdf5_open(path, options->root, options->through_library, &arrays->file, error);
    if (status == UPS_OK && ups_netcdf_hdf5_recognises(arrays->file))
        status = ups_netcdf_open_hdf5(arrays->file, &arrays->netcdf, error);
    if (status != UPS_OK) close_arrays(arrays);
    *handle = arrays;
    return status;
}

static const ups_netcdf_variable *variable_of(const hdf5_arrays *arrays, const char *name) {
    return arrays->netcdf ? ups_variables_find(arrays->netcdf, name) : NULL;
}

/* A dimension of NetCDF-4 without coordinates is a dataset that holds nothing. */
static bool is_bare_dimension(const hdf5_arrays *arrays, const char *name) {
    const ups_netcdf_header *header = arrays->netcdf ? ups_netcdf_contents(arrays->netcdf) : NULL;
    for (int64_t d = 0; header && d < header->dimension_count; d++) {
        if (strcmp(header->dimensions[d].name, name) == 0) return true;
    }
    return false;
}

/* ---- listing ------------------------------------------------------------------------------------------------------
 */

enum { DEEPEST_GROUP = 8 };

static ups_status list_group(const hdf5_arrays *arrays, const char *group, int depth, ups_outline_list *list,
                             ups_error *error) {
    const char *const *names;
    int64_t count;
    UPS_TRY(ups_hdf5_list(arrays->file, group, list->arena, &names, &count, error));
    for (int64_t i = 0; i < count && list->count < UPS_ARRAYS_MAX_LISTED; i++) {
        const char *name =
            *group ? ups_arena_printf(list->arena, "%s/%s", group, names[i]) : ups_arena_strdup(list->arena, names[i]);
        ups_hdf5_kind kind = ups_hdf5_kind_of(arrays->file, name);
        if (kind == UPS_HDF5_GROUP && depth < DEEPEST_GROUP) UPS_TRY(list_group(arrays, name, depth + 1, list, error));
        if (kind != UPS_HDF5_DATASET || variable_of(arrays, name) || is_bare_dimension(arrays, name)) continue;
        ups_hdf5_outline outline;
        if (!ups_hdf5_read_outline(arrays->file, name, list->arena, &outline)) continue;
        ups_array_outline *entry = ups_outline_add(list, name);
        entry->rank = outline.rank;
        memcpy(entry->shape, outline.shape, sizeof entry->shape);
        entry->type = outline.type;
        entry->numeric = outline.numeric;
        entry->integer = outline.integer;
    }
    return UPS_OK;
}

static ups_status list_arrays(void *handle, ups_arena *arena, const ups_array_outline **outlines, int64_t *count,
                              ups_error *error) {
    const hdf5_arrays *arrays = handle;
    ups_outline_list list = {.arena = arena};
    if (arrays->netcdf) ups_variables_list(arrays->netcdf, &list);
    UPS_TRY(list_group(arrays, "", 0, &list, error));
    *outlines = list.list;
    *count = list.count;
    return UPS_OK;
}

/* ---- arrays -------------------------------------------------------------------------------------------------------
 */

static ups_status map_array(void *handle, const char *name, uint32_t file, ups_file_list *files, ups_arena *arena,
                            ups_found_array *found, bool *is_there, ups_error *error) {
    const hdf5_arrays *arrays = handle;
    const ups_netcdf_variable *variable = variable_of(arrays, name);
    if (variable)
        return ups_netcdf_map(arrays->netcdf, variable, ups_netcdf_dtype(variable), file, arena, found->array, error);
    *is_there = *name && ups_hdf5_kind_of(arrays->file, name) == UPS_HDF5_DATASET;
    return *is_there ? ups_hdf5_map(arrays->file, name, file, arena, found->array, error) : UPS_OK;
}

static ups_status read_array(void *handle, const char *name, int64_t limit, ups_arena *arena, ups_numbers *numbers,
                             bool *is_there, ups_error *error) {
    const hdf5_arrays *arrays = handle;
    const ups_netcdf_variable *variable = variable_of(arrays, name);
    if (variable) return ups_variables_read(arrays->netcdf, variable, limit, arena, numbers, error);
    *is_there = *name && ups_hdf5_kind_of(arrays->file, name) == UPS_HDF5_DATASET;
    return *is_there ? ups_hdf5_read_numbers(arrays->file, name, limit, arena, numbers, error) : UPS_OK;
}

static ups_status read_attribute(void *handle, const char *object, const char *name, ups_arena *arena,
                                 ups_attribute *attribute, ups_error *error) {
    const hdf5_arrays *arrays = handle;
    if (*object && ups_hdf5_kind_of(arrays->file, object) == UPS_HDF5_ABSENT) return UPS_OK;
    return ups_hdf5_read_attribute(arrays->file, object, name, arena, attribute, error);
}

typedef struct number_walk {
    ups_number_visitor visit;
    void *context;
} number_walk;

static void visit_number(void *context, const char *name, double number, const char *text) {
    const number_walk *walk = context;
    if (!text && name[0] != '_') walk->visit(walk->context, name, number);
}

static ups_status each_number(void *handle, const char *object, ups_number_visitor visit, void *context,
                              ups_error *error) {
    return ups_hdf5_attributes(((hdf5_arrays *)handle)->file, object, visit_number, &(number_walk){visit, context},
                               error);
}

static ups_status check_reads(const void *handle, ups_error *error) {
    return ups_hdf5_check_reads(((const hdf5_arrays *)handle)->file, error);
}

static void settle(void *handle) {
    hdf5_arrays *arrays = handle;
    ups_netcdf_close(arrays->netcdf);
    arrays->netcdf = NULL;
    ups_hdf5_settle(arrays->file);
}

const ups_arrays_format_class ups_arrays_hdf5 = {
    .name = "HDF5",
    .open = open_arrays,
    .list = list_arrays,
    .map = map_array,
    .read = read_array,
    .attribute = read_attribute,
    .each_number = each_number,
    .check = check_reads,
    .settle = settle,
    .close = close_arrays,
};
