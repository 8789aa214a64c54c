#include "tests/pipeline/hdf5_writer.h"

#include "tests/base/testing.h"

enum { MOST_AXES = 5, LZF_FILTER = 32000 };

static hid_t file_type(const written_form *form) {
    if (form->float64) return form->big_endian ? H5T_IEEE_F64BE : H5T_IEEE_F64LE;
    return form->big_endian ? H5T_IEEE_F32BE : H5T_IEEE_F32LE;
}

static hid_t creation_list(const written_form *form, int rank, const hsize_t *shape, hsize_t *chunk) {
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    if (form->compact) H5Pset_layout(list, H5D_COMPACT);
    if (!form->chunked) return list;
    for (int axis = 0; axis < rank; axis++)
        chunk[axis] = shape[axis] < 5 ? shape[axis] : 5; /* edge chunks almost always */
    chunk[rank - 1] = shape[rank - 1] < 32 ? shape[rank - 1] : 32;
    assert_true(H5Pset_chunk(list, rank, chunk) >= 0);
    if (form->shuffle) H5Pset_shuffle(list);
    if (form->gzip) H5Pset_deflate(list, 6);
    if (form->lzf) {
        unsigned parameters[3] = {4, 261, 4};
        for (int axis = 0; axis < rank; axis++) parameters[2] *= (unsigned)chunk[axis];
        H5Pset_filter(list, LZF_FILTER, H5Z_FLAG_OPTIONAL, 3, parameters);
    }
    if (form->fletcher32) H5Pset_fletcher32(list);
    return list;
}

/* Writes the chunk at `start` as LZF: runs of 32, a repeated run as a match. */
static void write_lzf_chunk(hid_t dataset, int rank, const hsize_t *start, const hsize_t *shape, const hsize_t *chunk,
                            const double *values) {
    static float plain[1 << 14];
    static uint8_t stream[1 << 17];
    size_t count = 1;
    for (int axis = 0; axis < rank; axis++) count *= chunk[axis];
    for (size_t e = 0; e < count; e++) {
        size_t rest = e, index = 0, stride = 1;
        bool inside = true;
        for (int axis = rank - 1; axis >= 0; axis--) {
            hsize_t at = start[axis] + rest % chunk[axis];
            rest /= chunk[axis];
            inside &= at < shape[axis];
            index += at * stride;
            stride *= shape[axis];
        }
        plain[e] = inside ? (float)values[index] : 0;
    }
    const uint8_t *bytes = (const uint8_t *)plain;
    size_t length = 0;
    for (size_t i = 0; i < 4 * count;) {
        size_t left = 4 * count - i, match = 0;
        while (i >= 4 && match < left && match < 264 && bytes[i + match] == bytes[i + match - 4]) match++;
        if (match >= 3) {
            stream[length++] = (uint8_t)((match - 2 < 7 ? match - 2 : 7) << 5);
            if (match - 2 >= 7) stream[length++] = (uint8_t)(match - 2 - 7);
            stream[length++] = 3;
            i += match;
        } else {
            size_t run = left < 4 ? left : 4;
            stream[length++] = (uint8_t)(run - 1);
            memcpy(stream + length, bytes + i, run);
            length += run;
            i += run;
        }
    }
    assert_true(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, start, length, stream) >= 0);
}

static void write_lzf(hid_t dataset, int rank, const hsize_t *shape, const hsize_t *chunk, const double *values) {
    hsize_t start[MOST_AXES] = {0};
    for (;;) {
        write_lzf_chunk(dataset, rank, start, shape, chunk, values);
        int axis = rank - 1;
        for (; axis >= 0; axis--) {
            start[axis] += chunk[axis];
            if (start[axis] < shape[axis]) break;
            start[axis] = 0;
        }
        if (axis < 0) return;
    }
}

static void write_dataset(hid_t where, const char *name, const written_form *form, int rank, const hsize_t *shape,
                          const double *values) {
    hsize_t chunk[MOST_AXES];
    hid_t space = H5Screate_simple(rank, shape, NULL), list = creation_list(form, rank, shape, chunk);
    hid_t dataset = H5Dcreate2(where, name, file_type(form), space, H5P_DEFAULT, list, H5P_DEFAULT);
    assert_true(dataset >= 0);
    if (form->lzf) {
        write_lzf(dataset, rank, shape, chunk, values);
    } else {
        assert_true(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    }
    H5Dclose(dataset);
    H5Pclose(list);
    H5Sclose(space);
}

static void write_axis(hid_t where, const char *name, int64_t count) {
    double *values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++) values[i] = 0.5 * (double)i;
    write_dataset(where, name, &(written_form){0}, 1, &(hsize_t){(hsize_t)count}, values);
    free(values);
}

static hid_t create_file(const char *path, const written_form *form) {
    H5dont_atexit(); /* or HDF5 complains at exit about files that were damaged on purpose */
    hid_t creation = H5Pcreate(H5P_FILE_CREATE), access = H5Pcreate(H5P_FILE_ACCESS);
    if (form->latest) H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    if (form->narrow) H5Pset_sizes(creation, 4, 4);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, creation, access);
    assert_true(file >= 0);
    H5Pclose(access);
    H5Pclose(creation);
    return file;
}

/* (samples, frames, points) of written_value, frames counted from `first_frame`. */
static double *make_values(int64_t samples, int64_t first_frame, int64_t frames, int64_t points) {
    double *values = malloc((size_t)(samples * frames * points) * sizeof *values), *to = values;
    for (int64_t s = 0; s < samples; s++) {
        for (int64_t t = 0; t < frames; t++) {
            for (int64_t p = 0; p < points; p++) *to++ = written_value(s, first_frame + t, p);
        }
    }
    return values;
}

void write_tensor_file(const char *path, const written_form *form, int64_t samples, int64_t times, int64_t points) {
    hid_t file = create_file(path, form);
    double *values = make_values(samples, 0, times, points);
    write_dataset(file, "tensor", form, 3, (hsize_t[]){(hsize_t)samples, (hsize_t)times, (hsize_t)points}, values);
    write_axis(file, "x-coordinate", points);
    write_axis(file, "t-coordinate", times + 1);
    free(values);
    H5Fclose(file);
}

void write_darcy_file(const char *path, const written_form *form, int64_t samples, int64_t x, int64_t y) {
    hid_t file = create_file(path, form);
    double *nu = make_values(samples, 0, 1, x * y), *u = make_values(samples, 1, 1, x * y);
    write_dataset(file, "nu", form, 3, (hsize_t[]){(hsize_t)samples, (hsize_t)x, (hsize_t)y}, nu);
    write_dataset(file, "tensor", form, 4, (hsize_t[]){(hsize_t)samples, 1, (hsize_t)x, (hsize_t)y}, u);
    free(u);
    free(nu);
    H5Fclose(file);
}

void write_attribute(hid_t object, const char *name, hid_t type, hsize_t count, const void *values) {
    hid_t space = count ? H5Screate_simple(1, &count, NULL) : H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(attribute, type, values) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
}

/* Texts of variable length. */
static void write_texts(hid_t object, const char *name, hsize_t count, const char *const *texts) {
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    write_attribute(object, name, type, count, texts);
    H5Tclose(type);
}

void write_text_attribute(hid_t object, const char *name, const char *text) {
    write_texts(object, name, 0, &text);
}

void write_number(hid_t object, const char *name, double value) {
    write_attribute(object, name, H5T_NATIVE_DOUBLE, 0, &value);
}

void write_flag(hid_t object, const char *name, bool value) {
    int8_t bytes[] = {0, 1};
    hid_t type = H5Tenum_create(H5T_STD_I8LE);
    H5Tenum_insert(type, "FALSE", &bytes[0]);
    H5Tenum_insert(type, "TRUE", &bytes[1]);
    write_attribute(object, name, type, 0, &bytes[value]);
    H5Tclose(type);
}

static void write_config(hid_t group, int64_t seed) {
    char text[100];
    snprintf(text, sizeof text, "sim:\n  D: 0.00%lld\n  seed: %lld\n  scheme: upwind\n", (long long)seed + 1,
             (long long)seed);
    write_text_attribute(group, "config", text);
}

static hid_t create_group(hid_t where, const char *name) {
    hid_t group = H5Gcreate2(where, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(group >= 0);
    return group;
}

void write_seed_file(const char *path, const written_form *form, int64_t seeds, int64_t times, int64_t points,
                     int64_t channels) {
    hid_t file = create_file(path, form);
    double *values = make_values(seeds, 0, times, points * channels);
    for (int64_t seed = 0; seed < seeds; seed++) {
        char name[24];
        snprintf(name, sizeof name, "%04lld", (long long)seed);
        hid_t group = create_group(file, name);
        write_dataset(group, "data", form, 3, (hsize_t[]){(hsize_t)times, (hsize_t)points, (hsize_t)channels},
                      values + seed * times * points * channels);
        hid_t grid = create_group(group, "grid");
        write_axis(grid, "t", times);
        write_axis(grid, "x", points);
        H5Gclose(grid);
        write_config(group, seed);
        H5Gclose(group);
    }
    free(values);
    H5Fclose(file);
}

void write_compressible_file(const char *path, const written_form *form, int64_t samples, int64_t times, int64_t x,
                             int64_t y) {
    static const char *const names[] = {"density", "pressure", "Vx", "Vy"};
    hid_t file = create_file(path, form);
    int64_t count = samples * times * x * y;
    double *values = make_values(samples, 0, times, x * y);
    for (int field = 0; field < 4; field++) {
        write_dataset(file, names[field], form, 4,
                      (hsize_t[]){(hsize_t)samples, (hsize_t)times, (hsize_t)x, (hsize_t)y}, values);
        for (int64_t i = 0; i < count; i++) values[i] += 1;
    }
    write_axis(file, "t-coordinate", times + 1);
    write_axis(file, "x-coordinate", x);
    write_axis(file, "y-coordinate", y);
    write_number(file, "eta", 0.25);
    free(values);
    H5Fclose(file);
}

static void mark_varying(hid_t group, const char *name, bool by_sample, bool by_time) {
    hid_t dataset = H5Dopen2(group, name, H5P_DEFAULT);
    write_flag(dataset, "sample_varying", by_sample);
    write_flag(dataset, "time_varying", by_time);
    H5Dclose(dataset);
}

/* A scalar field (rank 4), or one of vectors (rank 5), in the group of its kind. */
static void write_well_field(hid_t file, const char *kind, const char *name, const written_form *form, int rank,
                             const hsize_t *shape) {
    int64_t points = (int64_t)(shape[2] * shape[3] * (rank > 4 ? shape[4] : 1));
    double *values = make_values((int64_t)shape[0], 0, (int64_t)shape[1], points);
    hid_t group = create_group(file, kind);
    write_texts(group, "field_names", 1, &name);
    write_dataset(group, name, form, rank, shape, values);
    mark_varying(group, name, true, true);
    H5Gclose(group);
    free(values);
}

void write_well_file(const char *path, const written_form *form, int64_t samples, int64_t times, int64_t x, int64_t y) {
    hid_t file = create_file(path, form);
    write_number(file, "n_trajectories", (double)samples);
    const hsize_t shape[] = {(hsize_t)samples, (hsize_t)times, (hsize_t)x, (hsize_t)y, 2};
    write_well_field(file, "t1_fields", "velocity", form, 5, shape);
    write_well_field(file, "t0_fields", "pressure", form, 4, shape);
    hid_t group = create_group(file, "dimensions");
    write_texts(group, "spatial_dims", 2, (const char *[]){"x", "y"});
    write_axis(group, "time", times);
    write_axis(group, "x", x);
    write_axis(group, "y", y);
    H5Gclose(group);
    group = create_group(file, "scalars");
    write_texts(group, "field_names", 1, (const char *[]){"forcing"});
    write_axis(group, "forcing", samples);
    mark_varying(group, "forcing", true, false);
    H5Gclose(group);
    group = create_group(file, "boundary_conditions");
    hid_t condition = create_group(group, "x_periodic");
    write_texts(condition, "bc_type", 1, (const char *[]){"PERIODIC"});
    write_texts(condition, "associated_dims", 1, (const char *[]){"x"});
    H5Gclose(condition);
    H5Gclose(group);
    H5Fclose(file);
}
