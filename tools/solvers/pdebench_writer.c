#include "tools/solvers/pdebench_writer.h"
#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Large arrays begin at multiples of a page, so that readers can use O_DIRECT; small objects stay packed. */
enum { LARGE_BYTES = 64 * 1024, PAGE_BYTES = 4096, MAX_ARRAYS = 2 };

struct ups_pdebench_file {
    ups_publication *publication;
    char *path;
    uint64_t bytes;
    struct {
        uint64_t offset, sample_bytes;
    } arrays[MAX_ARRAYS];
};

static ups_status library_failure(const char *path, const char *what, ups_error *error) {
    return ups_fail(error, UPS_ERR_IO, "%s: the HDF5 library could not write %s", path, what);
}

static ups_status write_coordinate(hid_t file, const char *path, const ups_pdebench_coordinate *coordinate,
                                   hid_t creation, ups_error *error) {
    const hsize_t shape[1] = {coordinate->count};
    hid_t space = H5Screate_simple(1, shape, NULL);
    hid_t set = H5Dcreate2(file, coordinate->name, H5T_IEEE_F32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    const herr_t wrote =
        set < 0 ? -1 : H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, coordinate->values);
    if (set >= 0) H5Dclose(set);
    if (space >= 0) H5Sclose(space);
    return wrote < 0 ? library_failure(path, coordinate->name, error) : UPS_OK;
}

/* Room for an array, not filled; its place in the file in *offset. */
static ups_status reserve_array(hid_t file, const char *path, const ups_pdebench_array *array, hid_t creation,
                                uint64_t *offset, ups_error *error) {
    hsize_t shape[UPS_PDEBENCH_MAX_RANK];
    for (int a = 0; a < array->rank; a++) shape[a] = array->shape[a];
    hid_t space = H5Screate_simple(array->rank, shape, NULL);
    hid_t set = H5Dcreate2(file, array->name, H5T_IEEE_F32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    const haddr_t place = set < 0 ? HADDR_UNDEF : H5Dget_offset(set);
    if (set >= 0) H5Dclose(set);
    if (space >= 0) H5Sclose(space);
    if (place == HADDR_UNDEF) return library_failure(path, array->name, error);
    *offset = place;
    return UPS_OK;
}

static ups_status write_attribute(hid_t file, const char *path, const char *name, hid_t stored, hid_t given,
                                  const void *value, ups_error *error) {
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(file, name, stored, space, H5P_DEFAULT, H5P_DEFAULT);
    const herr_t wrote = attribute < 0 ? -1 : H5Awrite(attribute, given, value);
    if (attribute >= 0) H5Aclose(attribute);
    if (space >= 0) H5Sclose(space);
    return wrote < 0 ? library_failure(path, name, error) : UPS_OK;
}

static ups_status write_text_attribute(hid_t file, const char *path, const char *name, const char *text,
                                       ups_error *error) {
    hid_t type = H5Tcopy(H5T_C_S1); /* of variable length: h5py reads it as str */
    ups_status status = UPS_OK;
    if (type < 0 || H5Tset_size(type, H5T_VARIABLE) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)
        status = library_failure(path, name, error);
    if (status == UPS_OK) status = write_attribute(file, path, name, type, type, &text, error);
    if (type >= 0) H5Tclose(type);
    return status;
}

/* What the library does: everything but the samples. */
static ups_status lay_out(ups_pdebench_file *file, const ups_pdebench_layout *layout, ups_error *error) {
    const char *name = ups_publish_temporary(file->publication), *path = file->path;
    ups_status status = UPS_OK;
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), creation = H5Pcreate(H5P_DATASET_CREATE), opened = -1;
    if (access < 0 || creation < 0 || H5Pset_alignment(access, LARGE_BYTES, PAGE_BYTES) < 0 ||
        H5Pset_obj_track_times(creation, false) < 0 || H5Pset_layout(creation, H5D_CONTIGUOUS) < 0 ||
        H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY) < 0 || H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER) < 0) {
        status = library_failure(path, "its settings", error);
        goto cleanup;
    }
    opened = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    if (opened < 0) {
        status = library_failure(path, "the file", error);
        goto cleanup;
    }
    status = write_attribute(opened, path, layout->parameter_name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE,
                             &layout->parameter, error);
    if (status == UPS_OK) status = write_text_attribute(opened, path, "ups_datagen", layout->provenance, error);
    for (int i = 0; status == UPS_OK && i < layout->coordinate_count; i++) {
        status = write_coordinate(opened, path, &layout->coordinates[i], creation, error);
    }
    for (int i = 0; status == UPS_OK && i < layout->array_count; i++) {
        const ups_pdebench_array *array = &layout->arrays[i];
        file->arrays[i].sample_bytes = sizeof(float);
        for (int a = 1; a < array->rank; a++) file->arrays[i].sample_bytes *= array->shape[a];
        status = reserve_array(opened, path, array, creation, &file->arrays[i].offset, error);
    }
cleanup:
    if (opened >= 0 && H5Fclose(opened) < 0 && status == UPS_OK) status = library_failure(path, "the file", error);
    if (creation >= 0) H5Pclose(creation);
    if (access >= 0) H5Pclose(access);
    return status;
}

/* Takes `bytes` from the file system without writing them. One that cannot do that is asked for the file's length only;
 * its lack of space is then found while writing. */
static ups_status reserve_space(const ups_pdebench_file *file, uint64_t bytes, ups_error *error) {
    const int descriptor = ups_publish_descriptor(file->publication);
    int refused = bytes > INT64_MAX ? EFBIG : 0;
    do {
        if (refused == 0 || refused == EINTR) refused = fallocate(descriptor, 0, 0, (off_t)bytes) == 0 ? 0 : errno;
    } while (refused == EINTR);
    if (refused == EOPNOTSUPP || refused == ENOSYS) refused = ftruncate(descriptor, (off_t)bytes) == 0 ? 0 : errno;
    if (refused == 0) return UPS_OK;
    errno = refused;
    const bool large = bytes >= 1000000000;
    return ups_fail_errno(error, "%s: no room for its %.1f %s; fewer samples need less", file->path,
                          (large ? 1e-9 : 1e-6) * (double)bytes, large ? "GB" : "MB");
}

/* Fewer bytes than the file will have, by what is not in the large arrays. */
static ups_status array_bytes(const char *path, const ups_pdebench_layout *layout, uint64_t *bytes, ups_error *error) {
    *bytes = 0;
    for (int i = 0; i < layout->array_count; i++) {
        const ups_pdebench_array *array = &layout->arrays[i];
        uint64_t product = sizeof(float);
        bool overflow = false;
        for (int a = 0; a < array->rank; a++)
            overflow = overflow || __builtin_mul_overflow(product, array->shape[a], &product);
        if (overflow || __builtin_add_overflow(*bytes, product, bytes)) {
            return ups_fail(error, UPS_ERR_ARGUMENT, "%s: %s is larger than any file can be", path, array->name);
        }
    }
    return UPS_OK;
}

ups_status ups_pdebench_create(const char *path, const ups_pdebench_layout *layout, ups_pdebench_file **file,
                               ups_error *error) {
    if (layout->array_count > MAX_ARRAYS) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: %d arrays in one file; at most %d were expected", path,
                        layout->array_count, MAX_ARRAYS);
    }
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* the library would print by itself */
    ups_pdebench_file *made = calloc(1, sizeof *made);
    if (made) made->path = strdup(path);
    if (!made || !made->path) {
        free(made);
        return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to write it", path);
    }
    ups_status status = ups_publish_begin(path, &made->publication, error);
    /* First without the library: a file that it cannot bring to its full length leaves it in no state to go on. */
    if (status == UPS_OK) status = array_bytes(path, layout, &made->bytes, error);
    if (status == UPS_OK) status = reserve_space(made, made->bytes, error);
    if (status == UPS_OK) status = lay_out(made, layout, error);
    if (status == UPS_OK) status = ups_file_size(ups_publish_temporary(made->publication), &made->bytes, error);
    if (status == UPS_OK) status = reserve_space(made, made->bytes, error);
    if (status != UPS_OK) {
        ups_pdebench_abandon(made);
        return status;
    }
    *file = made;
    return UPS_OK;
}

ups_status ups_pdebench_write(const ups_pdebench_file *file, int array, int64_t sample, const float *values,
                              ups_error *error) {
    const uint64_t bytes = file->arrays[array].sample_bytes;
    return ups_write_at(ups_publish_descriptor(file->publication), file->path,
                        file->arrays[array].offset + (uint64_t)sample * bytes, values, bytes, error);
}

uint64_t ups_pdebench_bytes(const ups_pdebench_file *file) {
    return file->bytes;
}

ups_status ups_pdebench_commit(ups_pdebench_file *file, ups_error *error) {
    ups_status status = ups_publish_commit(file->publication, error);
    free(file->path);
    free(file);
    return status;
}

void ups_pdebench_abandon(ups_pdebench_file *file) {
    if (!file) return;
    ups_publish_abandon(file->publication);
    free(file->path);
    free(file);
}
