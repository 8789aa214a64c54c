/* NetCDF-4 files, written with HDF5 alone as the format has it: dimension scales and references to them; whole, and
 * with flipped bits, of which each gives an error in words or data, never a crash. The sanitizer build watches. */
#include "tests/base/testing.h"

#include "base/files.h"
#include "base/random.h"
#include "pipeline/layouts/layouts.h"
#include "tests/pipeline/damaged.h"
#include "tests/pipeline/hdf5_writer.h"
#include <math.h>

enum { TIMES = 7, ROWS = 3, POINTS = 5 };

/* ---- writing ---- */

static void put_text(hid_t object, const char *name, const char *text) {
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, strlen(text) + 1);
    write_attribute(object, name, type, 0, text);
    H5Tclose(type);
}

/* A dataset whose first axis is unlimited where `chunked`. */
static hid_t put_dataset(hid_t file, const char *name, hid_t type, int rank, const hsize_t *shape, bool chunked) {
    hsize_t most[3], chunk[3];
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_attr_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED); /* as NetCDF-C does */
    for (int axis = 0; axis < rank; axis++) {
        most[axis] = chunked && axis == 0 ? H5S_UNLIMITED : shape[axis];
        chunk[axis] = axis == 0 ? 2 : shape[axis];
    }
    if (chunked) {
        H5Pset_chunk(creation, rank, chunk);
        H5Pset_shuffle(creation);
        H5Pset_deflate(creation, 1);
    }
    hid_t space = H5Screate_simple(rank, shape, most);
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    assert_true(dataset >= 0);
    H5Sclose(space);
    H5Pclose(creation);
    return dataset;
}

static void put_scale(hid_t file, const char *name, hsize_t length, bool unlimited, bool bare) {
    double values[TIMES];
    hid_t dataset = put_dataset(file, name, H5T_IEEE_F64LE, 1, &length, unlimited);
    for (hsize_t i = 0; i < length; i++) values[i] = (double)i / 4;
    assert_true(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    put_text(dataset, "CLASS", "DIMENSION_SCALE");
    put_text(dataset, "NAME", bare ? "This is a netCDF dimension but not a netCDF variable.         3" : name);
    H5Dclose(dataset);
}

typedef struct scale_use {
    hobj_ref_t dataset;
    unsigned axis;
} scale_use;

/* Says of a scale that it is dimension `axis` of both variables. */
static void put_uses(hid_t file, const char *scale, unsigned axis) {
    scale_use uses[2] = {{.axis = axis}, {.axis = axis}};
    assert_true(H5Rcreate(&uses[0].dataset, file, "u", H5R_OBJECT, -1) >= 0);
    assert_true(H5Rcreate(&uses[1].dataset, file, "k", H5R_OBJECT, -1) >= 0);
    hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(scale_use));
    H5Tinsert(type, "dataset", HOFFSET(scale_use, dataset), H5T_STD_REF_OBJ);
    H5Tinsert(type, "dimension", HOFFSET(scale_use, axis), H5T_NATIVE_UINT);
    hid_t dataset = H5Dopen2(file, scale, H5P_DEFAULT);
    write_attribute(dataset, "REFERENCE_LIST", type, 2, uses);
    H5Dclose(dataset);
    H5Tclose(type);
}

/* `u` float (time, y, x) = 100 t + 10 y + x; `k` short (time, y, x), scaled by 0.5, written for three times fewer, a
 * whole number of chunks. */
static void write_file(const char *path) {
    const hsize_t shape[3] = {TIMES, ROWS, POINTS}, shorter[3] = {TIMES - 3, ROWS, POINTS};
    float values[TIMES * ROWS * POINTS];
    for (int i = 0; i < TIMES * ROWS * POINTS; i++)
        values[i] = (float)(i / (ROWS * POINTS) * 100 + i / POINTS % ROWS * 10 + i % POINTS);
    hid_t creation = H5Pcreate(H5P_FILE_CREATE), access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_link_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    H5Pset_attr_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_LATEST);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, creation, access);
    H5Pclose(creation);
    H5Pclose(access);
    assert_true(file >= 0);
    put_scale(file, "time", TIMES, true, false);
    put_scale(file, "y", ROWS, false, true);
    put_scale(file, "x", POINTS, false, false);
    hid_t u = put_dataset(file, "u", H5T_IEEE_F32BE, 3, shape, true);
    assert_true(H5Dwrite(u, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(u);
    hid_t k = put_dataset(file, "k", H5T_STD_I16LE, 3, shorter, true);
    write_number(k, "scale_factor", 0.5);
    assert_true(H5Dwrite(k, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(k);
    put_uses(file, "time", 0);
    put_uses(file, "y", 1);
    put_uses(file, "x", 2);
    write_number(file, "beta", 0.125);
    H5Fclose(file);
}

static void dimension_scales_give_axes_and_shorter_variables_end_in_nan(void **state) {
    ups_source *source;
    ups_sample sample;
    ups_error error;
    float out[TIMES][2][ROWS][POINTS];
    write_file(scratch("whole.nc"));
    assert_int_equal(ups_layout_open(scratch("whole.nc"), NULL, &source, &error), UPS_OK);
    assert_string_equal(source->class->kind, "netcdf");
    assert_int_equal(ups_source_describe(source, 0, &sample, &error), UPS_OK);
    assert_int_equal(sample.times, TIMES);
    assert_int_equal(sample.dims, 2);
    assert_string_equal(sample.axis_names[0], "y");
    assert_null(sample.coordinates[0]); /* a dimension that is no variable */
    assert_true(sample.coordinates[1][2] == 0.5);
    assert_true(sample.time[TIMES - 1] == (TIMES - 1) / 4.0);
    assert_string_equal(source->parameter_names[0], "beta");
    assert_int_equal(ups_source_read(source, 0, (ups_frames){0, TIMES}, out, &error), UPS_OK);
    assert_string_equal(source->channel_names[0], "u"); /* in the order of their creation */
    for (int t = 0; t < TIMES; t++) {
        for (int i = 0; i < ROWS * POINTS; i++) {
            float u = (float)(100 * t + i / POINTS * 10 + i % POINTS);
            float k = out[t][1][i / POINTS][i % POINTS];
            assert_true(out[t][0][i / POINTS][i % POINTS] == u);
            assert_true(t < TIMES - 3 ? k == u / 2 : isnan(k));
        }
    }
    ups_source_close(source);
}

static void flipped_bits_give_errors_or_data_and_never_a_crash(void **state) {
    enum { FLIPS = 400, MOST_BYTES = 1 << 20 };
    char *whole;
    size_t length;
    ups_error error;
    damaged_files seen = {0};
    write_file(scratch("whole.nc"));
    assert_int_equal(ups_read_file(scratch("whole.nc"), MOST_BYTES, &whole, &length, &error), UPS_OK);
    ups_random stream = ups_random_stream(21, UPS_RANDOM_TEST, 0);
    for (uint64_t n = 0; n < FLIPS; n++) {
        uint64_t at = ups_random_below(stream, 4 * n, length);
        char mask = (char)(1u << ups_random_below(stream, 4 * n + 1, 8));
        whole[at] ^= mask;
        read_damaged("damaged.nc", whole, length, &seen);
        whole[at] ^= mask;
    }
    free(whole);
    assert_true(seen.refused > 20); /* or the damage did not reach anything */
    assert_true(seen.unread + seen.read > 20);
}

/* Absurd sizes in damaged metadata make the HDF5 library ask for absurd memory, and cope with getting none. It also
 * forgets to free some of what it read before it saw the damage. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "allocator_may_return_null=1:detect_leaks=0";
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dimension_scales_give_axes_and_shorter_variables_end_in_nan),
        cmocka_unit_test(flipped_bits_give_errors_or_data_and_never_a_crash),
    };
    H5dont_atexit(); /* the library cannot close what it found damaged, and says so at length */
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
