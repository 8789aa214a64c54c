#include "pipeline/hdf5/outline.h"

#include "pipeline/hdf5/elsewhere.h"
#include "pipeline/hdf5/file.h"

static void describe_type(hid_t type, ups_arena *arena, ups_hdf5_outline *outline) {
    enum { LARGEST_NUMBER = 16 };
    H5T_class_t class = H5Tget_class(type);
    size_t size = H5Tget_size(type);
    outline->integer = class == H5T_INTEGER;
    const bool truth = class == H5T_ENUM && size == 1;
    outline->numeric = truth || ((class == H5T_FLOAT || class == H5T_INTEGER) && size <= LARGEST_NUMBER);
    outline->type = class == H5T_STRING ? "text" : class == H5T_COMPOUND ? "compound" : "no numbers";
    if (truth) outline->type = "truth values";
    if (truth || !outline->numeric) return;
    bool big = size > 1 && H5Tget_order(type) == H5T_ORDER_BE;
    const char *name = class == H5T_FLOAT ? "float" : H5Tget_sign(type) == H5T_SGN_NONE ? "uint" : "int";
    outline->type = ups_arena_printf(arena, "%s%s%zu", big ? "big-endian " : "", name, 8 * size);
}

static bool describe_shape(hid_t space, ups_hdf5_outline *outline) {
    hsize_t shape[H5S_MAX_RANK];
    outline->rank = H5Sget_simple_extent_ndims(space);
    if (outline->rank < 0 || outline->rank > UPS_ARRAY_MAX_RANK) return false;
    if (H5Sget_simple_extent_dims(space, shape, NULL) < 0) return false;
    for (int axis = 0; axis < outline->rank; axis++) {
        if (shape[axis] > INT64_MAX) return false;
        outline->shape[axis] = (int64_t)shape[axis];
    }
    return true;
}

bool ups_hdf5_read_outline(ups_hdf5_file *file, const char *name, ups_arena *arena, ups_hdf5_outline *outline) {
    *outline = (ups_hdf5_outline){0};
    ups_hdf5_enter();
    hid_t dataset = ups_hdf5_open_dataset(file->id, &file->note, name);
    hid_t type = dataset < 0 ? -1 : H5Dget_type(dataset), space = dataset < 0 ? -1 : H5Dget_space(dataset);
    bool fine = type >= 0 && space >= 0 && describe_shape(space, outline);
    if (fine) describe_type(type, arena, outline);
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    if (dataset >= 0) H5Dclose(dataset);
    ups_hdf5_leave();
    return fine;
}
