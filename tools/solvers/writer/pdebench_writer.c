#include "tools/solvers/writer/pdebench_writer.h"
#include "base/files.h"
#include "pipeline/hdf5/driver.h"
#include "pipeline/hdf5/writing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Large arrays begin at multiples of a page, so that readers can use O_DIRECT; small objects stay packed. */
enum { LARGE_BYTES = 64 * 1024, PAGE_BYTES = 4096 };
/* Groups, each with its few small objects: the library takes about 5 KB and 0.1 ms for one. */
static const int64_t most_groups = 1000000;

struct ups_pdebench_file {
    int descriptor;
    char *name;
    uint64_t bytes;
    const ups_pdebench_content *content; /* during creation only */
    int arrays;
    uint64_t sample_bytes[UPS_FILE_ARRAYS];
    uint64_t *offsets; /* where arrays begin: (arrays), or (samples, arrays) with seed groups */
    bool seed_groups;
};

/* ---- what the library writes, all between ups_hdf5_enter and ups_hdf5_leave ---- */

static ups_status written(bool fine, const char *file, const char *name, ups_error *error) {
    return fine ? UPS_OK : ups_hdf5_write_failed(file, name, error);
}

static ups_status write_attribute(hid_t object, const char *file, const char *name, hid_t stored, hid_t given,
                                  const void *value, ups_error *error) {
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(object, name, stored, space, H5P_DEFAULT, H5P_DEFAULT);
    bool fine = attribute >= 0 && H5Awrite(attribute, given, value) >= 0;
    if (attribute >= 0 && H5Aclose(attribute) < 0) fine = false;
    if (space >= 0) H5Sclose(space);
    return written(fine, file, name, error);
}

static ups_status write_text_attribute(hid_t object, const char *file, const char *name, const char *text,
                                       ups_error *error) {
    hid_t type = H5Tcopy(H5T_C_S1); /* of variable length: h5py reads it as str */
    ups_status status = UPS_OK;
    if (type < 0 || H5Tset_size(type, H5T_VARIABLE) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)
        status = ups_hdf5_write_failed(file, name, error);
    if (status == UPS_OK) status = write_attribute(object, file, name, type, type, &text, error);
    if (type >= 0) H5Tclose(type);
    return status;
}

static ups_status write_config(hid_t object, const char *file, const ups_pdebench_content *content, int64_t sample,
                               ups_error *error) {
    if (!content->solver->configure) return UPS_OK;
    char *text = NULL;
    size_t size = 0;
    FILE *yaml = open_memstream(&text, &size);
    ups_solver_setup own = *content->setup;
    if (sample >= 0) ups_solver_draw(content->setup, sample, &own);
    if (yaml) content->solver->configure(&own, sample, yaml);
    if (!yaml || fclose(yaml) != 0) {
        free(text);
        return ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", file);
    }
    ups_status status = write_text_attribute(object, file, "config", text, error);
    free(text);
    return status;
}

static ups_status write_coordinate(hid_t parent, const char *file, const ups_file_coordinate *coordinate,
                                   hid_t creation, hid_t links, ups_error *error) {
    const hsize_t shape[1] = {(hsize_t)coordinate->count};
    float *values = malloc(sizeof(float) * (size_t)coordinate->count);
    if (!values) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for its coordinates", file);
    for (int64_t i = 0; i < coordinate->count; i++) values[i] = (float)ups_file_coordinate_at(coordinate, i);
    hid_t space = H5Screate_simple(1, shape, NULL);
    hid_t set = H5Dcreate2(parent, coordinate->name, H5T_IEEE_F32LE, space, links, creation, H5P_DEFAULT);
    bool fine = set >= 0 && H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
    if (set >= 0 && H5Dclose(set) < 0) fine = false;
    if (space >= 0) H5Sclose(space);
    free(values);
    return written(fine, file, coordinate->name, error);
}

static ups_status write_table(hid_t parent, const char *file, const ups_file_table *table, hid_t creation,
                              ups_error *error) {
    const bool whole = table->type == UPS_TABLE_INTEGER;
    const hsize_t shape[2] = {(hsize_t)table->rows, (hsize_t)table->columns};
    hid_t space = H5Screate_simple(2, shape, NULL);
    hid_t set = H5Dcreate2(parent, table->name, whole ? H5T_STD_I32LE : H5T_IEEE_F32LE, space, H5P_DEFAULT, creation,
                           H5P_DEFAULT);
    bool fine = set >= 0 && H5Dwrite(set, whole ? H5T_NATIVE_INT32 : H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                                     table->values) >= 0;
    if (set >= 0 && H5Dclose(set) < 0) fine = false;
    if (space >= 0) H5Sclose(space);
    return written(fine, file, table->name, error);
}

/* `parameters/NAME` (sample) of every parameter that is drawn; seed groups have them in their `config`. */
static ups_status write_drawn(hid_t root, const char *file, const ups_pdebench_content *content, hid_t creation,
                              hid_t links, ups_error *error) {
    const hsize_t shape[1] = {(hsize_t)content->samples};
    ups_status status = UPS_OK;
    double *values = malloc(sizeof(double) * (size_t)content->samples);
    if (!values) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for its parameters", file);
    for (int i = 0; status == UPS_OK && i < content->solver->parameter_count; i++) {
        if (!content->setup->ranges[i].drawn) continue;
        for (int64_t sample = 0; sample < content->samples; sample++) {
            ups_solver_setup own;
            ups_solver_draw(content->setup, sample, &own);
            values[sample] = own.parameters[i];
        }
        char name[96];
        snprintf(name, sizeof name, "parameters/%.64s", content->solver->parameters[i].name);
        hid_t space = H5Screate_simple(1, shape, NULL);
        hid_t set = H5Dcreate2(root, name, H5T_IEEE_F64LE, space, links, creation, H5P_DEFAULT);
        bool fine = set >= 0 && H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
        if (set >= 0 && H5Dclose(set) < 0) fine = false;
        if (space >= 0) H5Sclose(space);
        status = written(fine, file, name, error);
    }
    free(values);
    return status;
}

/* The axes of an array in the file; `samples` 0 leaves the sample's out. */
static int array_shape(const ups_file_array *array, int64_t samples, hsize_t shape[UPS_FILE_RANK]) {
    int rank = 0;
    if (samples > 0) shape[rank++] = (hsize_t)samples;
    if (array->times > 0) shape[rank++] = (hsize_t)array->times;
    for (int axis = 0; axis < array->dims; axis++) shape[rank++] = (hsize_t)array->cells;
    if (array->channels > 0) shape[rank++] = (hsize_t)array->channels;
    return rank;
}

/* Room for an array, not filled; its place in the file in *offset. */
static ups_status reserve_array(hid_t parent, const char *file, const ups_file_array *array, int64_t samples,
                                hid_t creation, uint64_t *offset, ups_error *error) {
    hsize_t shape[UPS_FILE_RANK];
    const int rank = array_shape(array, samples, shape);
    hid_t space = H5Screate_simple(rank, shape, NULL);
    hid_t set = H5Dcreate2(parent, array->name, H5T_IEEE_F32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    *offset = set < 0 ? HADDR_UNDEF : H5Dget_offset(set);
    bool fine = *offset != HADDR_UNDEF;
    if (set >= 0 && H5Dclose(set) < 0) fine = false;
    if (space >= 0) H5Sclose(space);
    return written(fine, file, array->name, error);
}

/* Arrays, coordinates, tables and `config`: of the whole file (sample -1), or of one seed's group. */
static ups_status fill_group(hid_t group, const ups_pdebench_file *file, int64_t sample, hid_t creation, hid_t links,
                             uint64_t *offsets, ups_error *error) {
    const ups_pdebench_content *content = file->content;
    const ups_file_layout *layout = content->layout;
    UPS_TRY(write_config(group, file->name, content, sample, error));
    for (int i = 0; i < layout->coordinate_count; i++)
        UPS_TRY(write_coordinate(group, file->name, &layout->coordinates[i], creation, links, error));
    for (int i = 0; i < layout->table_count; i++)
        UPS_TRY(write_table(group, file->name, &layout->tables[i], creation, error));
    const int64_t samples = sample < 0 ? content->samples : 0;
    for (int i = 0; i < layout->array_count; i++)
        UPS_TRY(reserve_array(group, file->name, &layout->arrays[i], samples, creation, &offsets[i], error));
    return UPS_OK;
}

static void seed_name(int64_t sample, char name[24]) {
    snprintf(name, 24, "%04lld", (long long)sample);
}

static ups_status fill_seed_groups(hid_t root, ups_pdebench_file *file, hid_t creation, hid_t links, ups_error *error) {
    for (int64_t sample = 0; sample < file->content->samples; sample++) {
        char name[24];
        seed_name(sample, name);
        hid_t group = H5Gcreate2(root, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        if (group < 0) return ups_hdf5_write_failed(file->name, name, error);
        ups_status status =
            fill_group(group, file, sample, creation, links, file->offsets + sample * file->arrays, error);
        if (H5Gclose(group) < 0 && status == UPS_OK) status = ups_hdf5_write_failed(file->name, name, error);
        if (status != UPS_OK) return status;
    }
    return UPS_OK;
}

static ups_status fill_file(hid_t root, ups_pdebench_file *file, hid_t creation, hid_t links, ups_error *error) {
    const ups_file_layout *layout = file->content->layout;
    for (int i = 0; i < layout->attribute_count; i++) {
        const ups_file_attribute *attribute = &layout->attributes[i];
        if (attribute->text)
            UPS_TRY(write_text_attribute(root, file->name, attribute->name, attribute->text, error));
        else
            UPS_TRY(write_attribute(root, file->name, attribute->name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE,
                                    &attribute->value, error));
    }
    UPS_TRY(write_text_attribute(root, file->name, "ups_datagen", file->content->provenance, error));
    if (layout->seed_groups) return fill_seed_groups(root, file, creation, links, error);
    if (ups_solver_draws(file->content->setup, 0))
        UPS_TRY(write_drawn(root, file->name, file->content, creation, links, error));
    return fill_group(root, file, -1, creation, links, file->offsets, error);
}

/* What the library does: everything but the samples. */
static ups_status lay_out(const char *storage, ups_pdebench_file *file, ups_error *error) {
    ups_status status = UPS_OK;
    ups_hdf5_enter_to_write();
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), creation = H5Pcreate(H5P_DATASET_CREATE);
    hid_t links = H5Pcreate(H5P_LINK_CREATE), root = -1;
    if (access < 0 || creation < 0 || links < 0 || H5Pset_alignment(access, LARGE_BYTES, PAGE_BYTES) < 0 ||
        H5Pset_create_intermediate_group(links, 1) < 0 || H5Pset_obj_track_times(creation, false) < 0 ||
        H5Pset_layout(creation, H5D_CONTIGUOUS) < 0 || H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY) < 0 ||
        H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER) < 0) {
        status = ups_hdf5_write_failed(file->name, "its settings", error);
        goto cleanup;
    }
    root = H5Fcreate(storage, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    status =
        root < 0 ? ups_hdf5_write_failed(file->name, "the file", error) : fill_file(root, file, creation, links, error);
cleanup:
    if (root >= 0 && H5Fclose(root) < 0 && status == UPS_OK)
        status = ups_hdf5_write_failed(file->name, "the file", error);
    if (links >= 0) H5Pclose(links);
    if (creation >= 0) H5Pclose(creation);
    if (access >= 0) H5Pclose(access);
    ups_hdf5_leave();
    return status;
}

/* ---- finding the arrays of a file that was laid out before ---- */

static ups_status damaged(const char *name, const char *what, ups_error *error) {
    return ups_fail(error, UPS_ERR_FORMAT, "%s: the unfinished file does not hold '%s' as it should", name, what);
}

/* `samples` as in array_shape. */
static ups_status find_array(hid_t root, const ups_pdebench_file *file, const char *path, int index, int64_t samples,
                             uint64_t *offset, ups_error *error) {
    hsize_t expected[UPS_FILE_RANK], found[UPS_FILE_RANK] = {0};
    const int rank = array_shape(&file->content->layout->arrays[index], samples, expected);
    const uint64_t bytes = file->sample_bytes[index] * (uint64_t)(samples > 0 ? samples : 1);
    hid_t set = H5Dopen2(root, path, H5P_DEFAULT), space = set < 0 ? -1 : H5Dget_space(set);
    bool same = space >= 0 && H5Sget_simple_extent_ndims(space) == rank &&
                H5Sget_simple_extent_dims(space, found, NULL) == rank;
    for (int axis = 0; same && axis < rank; axis++) same = found[axis] == expected[axis];
    const haddr_t place = same ? H5Dget_offset(set) : HADDR_UNDEF;
    if (space >= 0) H5Sclose(space);
    if (set >= 0) H5Dclose(set);
    if (place == HADDR_UNDEF || place > file->bytes || bytes > file->bytes - place)
        return damaged(file->name, path, error);
    *offset = place;
    return UPS_OK;
}

static ups_status find_arrays(const char *storage, ups_pdebench_file *file, ups_error *error) {
    const ups_pdebench_content *content = file->content;
    ups_status status = UPS_OK;
    ups_hdf5_note note = {0};
    char reason[300];
    ups_hdf5_enter();
    hid_t root = ups_hdf5_driver_open(storage, &note, reason);
    if (root < 0) status = damaged(file->name, "/", error);
    const int64_t groups = file->seed_groups ? content->samples : 1;
    for (int64_t g = 0; status == UPS_OK && g < groups; g++) {
        for (int i = 0; status == UPS_OK && i < file->arrays; i++) {
            char path[96], group[24];
            seed_name(g, group);
            snprintf(path, sizeof path, "%s%s%.64s", file->seed_groups ? group : "", file->seed_groups ? "/" : "",
                     content->layout->arrays[i].name);
            status = find_array(root, file, path, i, file->seed_groups ? 0 : content->samples,
                                &file->offsets[g * file->arrays + i], error);
        }
    }
    if (root >= 0) H5Fclose(root);
    ups_hdf5_leave();
    return status;
}

/* ---- the file ---- */

/* The end of opening: the file is the caller's, or closed after a failure. */
static ups_status hand_over(ups_pdebench_file *made, ups_status status, ups_pdebench_file **file) {
    made->content = NULL;
    if (status == UPS_OK)
        *file = made;
    else
        ups_pdebench_close(made);
    return status;
}

/* Takes `bytes` from the file system without writing them. One that cannot do that is asked for the file's length only;
 * its lack of space is then found while writing. */
static ups_status reserve_space(const ups_pdebench_file *file, uint64_t bytes, ups_error *error) {
    int refused = bytes > INT64_MAX ? EFBIG : 0;
    do {
        if (refused == 0 || refused == EINTR)
            refused = fallocate(file->descriptor, 0, 0, (off_t)bytes) == 0 ? 0 : errno;
    } while (refused == EINTR);
    if (refused == EOPNOTSUPP || refused == ENOSYS)
        refused = ftruncate(file->descriptor, (off_t)bytes) == 0 ? 0 : errno;
    if (refused == 0) return UPS_OK;
    errno = refused;
    const bool large = bytes >= 1000000000;
    return ups_fail_errno(error, "%s: no room for its %.1f %s; fewer samples need less", file->name,
                          (large ? 1e-9 : 1e-6) * (double)bytes, large ? "GB" : "MB");
}

/* Fewer bytes than the file will have, by what is not in the large arrays. */
static ups_status array_bytes(const ups_pdebench_file *file, uint64_t *bytes, ups_error *error) {
    *bytes = 0;
    for (int i = 0; i < file->arrays; i++) {
        uint64_t all;
        if (__builtin_mul_overflow(file->sample_bytes[i], (uint64_t)file->content->samples, &all) ||
            __builtin_add_overflow(*bytes, all, bytes)) {
            return ups_fail(error, UPS_ERR_ARGUMENT, "%s: %s is larger than any file can be", file->name,
                            file->content->layout->arrays[i].name);
        }
    }
    return UPS_OK;
}

static ups_status open_storage(const char *storage, const char *name, const ups_pdebench_content *content, int flags,
                               ups_pdebench_file **file, ups_error *error) {
    const ups_file_layout *layout = content->layout;
    if (layout->seed_groups && content->samples > most_groups) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: %lld samples; a file of one group a sample takes up to %lld",
                        name, (long long)content->samples, (long long)most_groups);
    }
    const size_t places = (size_t)layout->array_count * (layout->seed_groups ? (size_t)content->samples : 1);
    ups_pdebench_file *made = calloc(1, sizeof *made);
    if (made) {
        made->descriptor = -1;
        made->name = strdup(name);
        made->offsets = calloc(places, sizeof *made->offsets);
    }
    if (!made || !made->name || !made->offsets) {
        ups_pdebench_close(made);
        return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to write it", name);
    }
    made->content = content;
    made->seed_groups = layout->seed_groups;
    made->arrays = layout->array_count;
    for (int i = 0; i < made->arrays; i++)
        made->sample_bytes[i] = sizeof(float) * (uint64_t)ups_file_sample_values(&layout->arrays[i]);
    made->descriptor = open(storage, O_RDWR | O_CLOEXEC | flags, 0666);
    if (made->descriptor < 0) {
        ups_status status = ups_fail_errno(error, "%s: cannot be created", name);
        ups_pdebench_close(made);
        return status;
    }
    *file = made;
    return UPS_OK;
}

static ups_status measure(ups_pdebench_file *file, ups_error *error) {
    struct stat found;
    if (fstat(file->descriptor, &found) != 0) return ups_fail_errno(error, "%s", file->name);
    file->bytes = (uint64_t)found.st_size;
    return UPS_OK;
}

ups_status ups_pdebench_create(const char *storage, const char *name, const ups_pdebench_content *content,
                               ups_pdebench_file **file, ups_error *error) {
    ups_pdebench_file *made = NULL;
    UPS_TRY(open_storage(storage, name, content, O_CREAT | O_TRUNC, &made, error));
    /* First without the library: a file that it cannot bring to its full length leaves it in no state to go on. */
    ups_status status = array_bytes(made, &made->bytes, error);
    if (status == UPS_OK) status = reserve_space(made, made->bytes, error);
    if (status == UPS_OK) status = lay_out(storage, made, error);
    if (status == UPS_OK) status = measure(made, error);
    if (status == UPS_OK) status = reserve_space(made, made->bytes, error);
    return hand_over(made, status, file);
}

ups_status ups_pdebench_reopen(const char *storage, const char *name, const ups_pdebench_content *content,
                               ups_pdebench_file **file, ups_error *error) {
    ups_pdebench_file *made = NULL;
    UPS_TRY(open_storage(storage, name, content, 0, &made, error));
    ups_status status = measure(made, error);
    if (status == UPS_OK) status = find_arrays(storage, made, error);
    return hand_over(made, status, file);
}

ups_status ups_pdebench_write(const ups_pdebench_file *file, int array, int64_t sample, int64_t first,
                              const float *values, int64_t count, ups_error *error) {
    const uint64_t begin = file->seed_groups ? file->offsets[sample * file->arrays + array]
                                             : file->offsets[array] + (uint64_t)sample * file->sample_bytes[array];
    return ups_write_at(file->descriptor, file->name, begin + sizeof(float) * (uint64_t)first, values,
                        sizeof(float) * (size_t)count, error);
}

uint64_t ups_pdebench_bytes(const ups_pdebench_file *file) {
    return file->bytes;
}

void ups_pdebench_close(ups_pdebench_file *file) {
    if (!file) return;
    if (file->descriptor >= 0) close(file->descriptor);
    free(file->offsets);
    free(file->name);
    free(file);
}
