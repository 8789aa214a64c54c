/* Latents as an HDF5 file. The library is not thread-safe: every use of it stands between ups_hdf5_enter and
 * ups_hdf5_leave. */
#include "cache/inspect/export_sink.h"

#include "pipeline/hdf5/library.h"
#include "pipeline/hdf5/writing.h"
#include <stdlib.h>
#include <string.h>

/* IEEE binary16, which HDF5 1.10 has no name for: sign at bit 15, exponent of 5 bits at 10 with bias 15, mantissa
 * of 10. */
static hid_t half_type(void) {
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    if (type < 0) return type;
    if (H5Tset_fields(type, 15, 10, 5, 0, 10) < 0 || H5Tset_size(type, 2) < 0 || H5Tset_ebias(type, 15) < 0) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

/* Objects without times: the same latents make the same bytes. */
static hid_t create_without_times(hid_t file, const char *name, hid_t type, hid_t space) {
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    if (creation < 0) return creation;
    hid_t dataset = H5Pset_obj_track_times(creation, false) < 0
                        ? H5I_INVALID_HID
                        : H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    H5Pclose(creation);
    return dataset;
}

static ups_status write_hdf5(ups_export_sink *to, int64_t row, ups_cache_trajectory *trajectory, ups_error *error) {
    ups_chunk_shape shape = to->group->shape.trajectory;
    hsize_t start[4] = {(hsize_t)row, 0, 0, 0};
    hsize_t count[4] = {1, (hsize_t)shape.times, (hsize_t)shape.tokens, (hsize_t)shape.dim};
    ups_hdf5_enter_to_write();
    hid_t space = H5Dget_space(to->dataset), memory = H5Screate_simple(4, count, NULL), type = half_type();
    herr_t failed = H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
    if (failed >= 0) failed = H5Dwrite(to->dataset, type, memory, space, H5P_DEFAULT, trajectory->latents);
    ups_status status = failed < 0 ? ups_hdf5_write_failed(to->request->path, "'latent'", error) : UPS_OK;
    H5Tclose(type);
    H5Sclose(memory);
    H5Sclose(space);
    ups_hdf5_leave();
    return status;
}

/* A small dataset of rank 1 (columns 0) or 2. */
static bool write_small(hid_t file, const char *name, hid_t type, int64_t rows, int64_t columns, const void *values) {
    hsize_t shape[2] = {(hsize_t)rows, (hsize_t)columns};
    hid_t space = H5Screate_simple(columns ? 2 : 1, shape, NULL);
    hid_t dataset = create_without_times(file, name, type, space);
    bool written = dataset >= 0 && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
    if (dataset >= 0 && H5Dclose(dataset) < 0) written = false;
    if (space >= 0) H5Sclose(space);
    return written;
}

static bool write_text_attribute(hid_t object, const char *name, const char *text) {
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, strlen(text) + 1);
    H5Tset_cset(type, H5T_CSET_UTF8);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool written = attribute >= 0 && H5Awrite(attribute, type, text) >= 0;
    if (attribute >= 0) H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
    return written;
}

/* Rows of the exported samples of an array with a row a sample. */
static bool write_rows(const ups_export_sink *to, hid_t file, const char *name, hid_t type, int64_t columns,
                       const void *values) {
    void *rows = ups_export_rows(to, values, (size_t)(columns ? columns : 1) * 8);
    bool written = rows && write_small(file, name, type, to->samples, columns, rows);
    free(rows);
    return written;
}

/* Everything but the latents. HDF5 limits an attribute to 64 KiB, so attributes.ups goes into a dataset of one string.
 */
static bool write_hdf5_surroundings(const ups_export_sink *to, hid_t file) {
    const ups_cache_group *group = to->group;
    int64_t times = group->shape.trajectory.times;
    bool fine = group->time_per_sample ? write_rows(to, file, "time", H5T_NATIVE_DOUBLE, times, group->time)
                                       : write_small(file, "time", H5T_NATIVE_DOUBLE, times, 0, group->time);
    fine = fine && write_rows(to, file, "source_sample", H5T_NATIVE_INT64, 0, group->source_samples);
    if (group->parameter_count > 0) {
        fine = fine && write_rows(to, file, "condition", H5T_NATIVE_DOUBLE, group->parameter_count, group->parameters);
    }
    char *text = json_dumps(group->attributes, JSON_COMPACT);
    if (text) {
        hid_t type = H5Tcopy(H5T_C_S1);
        H5Tset_size(type, strlen(text) + 1);
        H5Tset_cset(type, H5T_CSET_UTF8);
        fine = fine && write_small(file, "ups", type, 1, 0, text);
        H5Tclose(type);
    }
    free(text);
    return fine && text && write_text_attribute(file, "task", group->task) &&
           write_text_attribute(file, "split", group->split);
}

ups_status ups_export_hdf5(ups_export_sink *to, ups_error *error) {
    ups_cache_shape shape = to->group->shape;
    hsize_t full[4] = {(hsize_t)to->samples, (hsize_t)shape.trajectory.times, (hsize_t)shape.trajectory.tokens,
                       (hsize_t)shape.trajectory.dim};
    const char *path = to->request->path;
    to->write = write_hdf5;
    ups_hdf5_enter_to_write();
    hid_t file = H5Fcreate(ups_publish_temporary(to->publication), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(4, full, NULL), type = half_type();
    to->dataset = file < 0 ? H5I_INVALID_HID : create_without_times(file, "latent", type, space);
    ups_status status = UPS_OK;
    if (to->dataset < 0 || !write_hdf5_surroundings(to, file)) status = ups_hdf5_write_failed(path, "the file", error);
    ups_hdf5_leave();
    if (status == UPS_OK) status = ups_export_each(to, error);
    ups_hdf5_enter_to_write();
    bool closed = to->dataset < 0 || H5Dclose(to->dataset) >= 0;
    H5Tclose(type);
    H5Sclose(space);
    closed &= file < 0 || H5Fclose(file) >= 0;
    if (status == UPS_OK && !closed) status = ups_hdf5_write_failed(path, "the file", error);
    ups_hdf5_leave();
    return status;
}
