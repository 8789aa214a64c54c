#include "cache/export.h"

#include "base/cancel.h"
#include "base/files.h"
#include "cache/reader.h"
#include "pipeline/hdf5_driver.h"
#include <stdlib.h>
#include <string.h>

#define F16_NAN 0x7e00

/* Where trajectories go, one after the other. */
typedef struct sink {
    ups_status (*write)(struct sink *sink, int64_t sample, const ups_f16 *latents, ups_error *error);
    const ups_cache_group *group;
    const char *path;
    ups_publication *publication;
    hid_t dataset; /* HDF5 */
} sink;

static ups_status each_trajectory(sink *to, void (*progress)(void *context, int64_t done, int64_t samples),
                                  void *context, ups_error *error) {
    const ups_cache_group *group = to->group;
    ups_cache_reader *reader = ups_cache_reader_create(group);
    if (!reader) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to export it", group->directory);
    size_t count = ups_chunk_raw_bytes(group->shape.trajectory) / sizeof(ups_f16);
    ups_status status = UPS_OK;
    for (int64_t i = 0; i < group->shape.samples && status == UPS_OK; i++) {
        if (ups_cancel_requested()) {
            status = ups_fail(error, UPS_ERR_CANCELLED, "the export was interrupted; nothing was left at %s", to->path);
            break;
        }
        ups_cache_trajectory trajectory;
        status = ups_cache_read(reader, i, &trajectory, error);
        if (status != UPS_OK) break;
        if (!trajectory.present) {
            for (size_t k = 0; k < count; k++) trajectory.latents[k] = F16_NAN;
        }
        status = to->write(to, i, trajectory.latents, error);
        if (progress) progress(context, i + 1, group->shape.samples);
    }
    ups_cache_reader_destroy(reader);
    return status;
}

/* ---- NPY, format 1.0 (numpy.lib.format) ---- */

static ups_status write_npy(sink *to, int64_t sample, const ups_f16 *latents, ups_error *error) {
    return ups_publish_append(to->publication, latents, ups_chunk_raw_bytes(to->group->shape.trajectory), error);
}

static ups_status write_npy_header(sink *to, ups_error *error) {
    enum { PREFIX = 10, ALIGNMENT = 64 };
    char header[4 * ALIGNMENT], dictionary[3 * ALIGNMENT];
    ups_cache_shape shape = to->group->shape;
    int used = snprintf(dictionary, sizeof dictionary,
                        "{'descr': '<f2', 'fortran_order': False, 'shape': (%lld, %lld, %lld, %lld), }",
                        (long long)shape.samples, (long long)shape.trajectory.times, (long long)shape.trajectory.tokens,
                        (long long)shape.trajectory.dim);
    size_t total = ((size_t)used + 1 + PREFIX + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t length = total - PREFIX;
    memset(header, ' ', total);
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)(length & 255);
    header[9] = (char)(length >> 8);
    memcpy(header + PREFIX, dictionary, (size_t)used);
    header[total - 1] = '\n';
    return ups_publish_append(to->publication, header, total, error);
}

/* ---- HDF5: every use of the library between ups_hdf5_enter and ups_hdf5_leave ---- */

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

static ups_status hdf5_failed(const char *path, ups_error *error) {
    return ups_fail(error, UPS_ERR_IO, "%s: HDF5 cannot write it; is the disk full?", path);
}

static ups_status write_hdf5(sink *to, int64_t sample, const ups_f16 *latents, ups_error *error) {
    ups_chunk_shape shape = to->group->shape.trajectory;
    hsize_t start[4] = {(hsize_t)sample, 0, 0, 0};
    hsize_t count[4] = {1, (hsize_t)shape.times, (hsize_t)shape.tokens, (hsize_t)shape.dim};
    ups_hdf5_enter();
    hid_t space = H5Dget_space(to->dataset), memory = H5Screate_simple(4, count, NULL), type = half_type();
    herr_t failed = H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
    if (failed >= 0) failed = H5Dwrite(to->dataset, type, memory, space, H5P_DEFAULT, latents);
    H5Tclose(type);
    H5Sclose(memory);
    H5Sclose(space);
    ups_hdf5_leave();
    return failed < 0 ? hdf5_failed(to->path, error) : UPS_OK;
}

/* A small dataset of rank 1 (columns 0) or 2. */
static bool write_small(hid_t file, const char *name, hid_t type, int64_t rows, int64_t columns, const void *values) {
    hsize_t shape[2] = {(hsize_t)rows, (hsize_t)columns};
    hid_t space = H5Screate_simple(columns ? 2 : 1, shape, NULL);
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool written = dataset >= 0 && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
    if (dataset >= 0) H5Dclose(dataset);
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

/* Everything but the latents. HDF5 limits an attribute to 64 KiB, so attributes.ups goes into a dataset of one string.
 */
static bool write_hdf5_surroundings(const ups_cache_group *group, hid_t file) {
    ups_cache_shape shape = group->shape;
    int64_t times = shape.trajectory.times;
    bool fine = group->time_per_sample ? write_small(file, "time", H5T_NATIVE_DOUBLE, shape.samples, times, group->time)
                                       : write_small(file, "time", H5T_NATIVE_DOUBLE, times, 0, group->time);
    fine = fine && write_small(file, "source_sample", H5T_NATIVE_INT64, shape.samples, 0, group->source_samples);
    if (group->parameter_count > 0) {
        fine = fine && write_small(file, "condition", H5T_NATIVE_DOUBLE, shape.samples, group->parameter_count,
                                   group->parameters);
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

static ups_status export_hdf5(sink *to, void (*progress)(void *context, int64_t done, int64_t samples), void *context,
                              ups_error *error) {
    ups_cache_shape shape = to->group->shape;
    hsize_t full[4] = {(hsize_t)shape.samples, (hsize_t)shape.trajectory.times, (hsize_t)shape.trajectory.tokens,
                       (hsize_t)shape.trajectory.dim};
    to->write = write_hdf5;
    ups_hdf5_enter();
    hid_t file = H5Fcreate(ups_publish_temporary(to->publication), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(4, full, NULL), type = half_type();
    to->dataset =
        file < 0 ? H5I_INVALID_HID : H5Dcreate2(file, "latent", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool fine = to->dataset >= 0 && write_hdf5_surroundings(to->group, file);
    ups_hdf5_leave();
    ups_status status = fine ? each_trajectory(to, progress, context, error) : hdf5_failed(to->path, error);
    ups_hdf5_enter();
    bool closed = to->dataset < 0 || H5Dclose(to->dataset) >= 0;
    H5Tclose(type);
    H5Sclose(space);
    closed &= file < 0 || H5Fclose(file) >= 0;
    ups_hdf5_leave();
    return status == UPS_OK && !closed ? hdf5_failed(to->path, error) : status;
}

ups_status ups_cache_export(const char *directory, ups_export_format format, const char *path,
                            void (*progress)(void *context, int64_t done, int64_t samples), void *context,
                            ups_error *error) {
    ups_cache_group *group;
    UPS_TRY(ups_cache_group_open(directory, &group, error));
    sink to = {.group = group, .path = path, .write = write_npy};
    ups_status status = UPS_OK;
    if (!group->complete) {
        status = ups_fail(error, UPS_ERR_FORMAT,
                          "%s: the build of this cache did not finish; run `ups cache build` again before exporting it",
                          directory);
    }
    if (status == UPS_OK) status = ups_publish_begin(path, &to.publication, error);
    if (status == UPS_OK && format == UPS_EXPORT_NPY) {
        status = write_npy_header(&to, error);
        if (status == UPS_OK) status = each_trajectory(&to, progress, context, error);
    } else if (status == UPS_OK) {
        status = export_hdf5(&to, progress, context, error);
    }
    ups_cache_group_close(group);
    if (status != UPS_OK) {
        ups_publish_abandon(to.publication);
        return status;
    }
    return ups_publish_commit(to.publication, error);
}
