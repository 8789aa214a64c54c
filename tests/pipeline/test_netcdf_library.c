/* NetCDF-C, with variables that end within a chunk of their unlimited dimension: what it gives, and files that change
 * after they were opened, of which it would give fill values and zeros. The files are its own. */
#include "tests/base/testing.h"

#include "pipeline/layouts/layouts.h"
#include "pipeline/netcdf/storage.h"
#include <fcntl.h>
#include <math.h>
#include <netcdf.h>
#include <sys/stat.h>

enum { TIMES = 9, WRITTEN = 7, POINTS = 256, ROWS_A_CHUNK = 4 };

static void put_variable(int file, const char *name, const int dimensions[2], size_t times) {
    static float values[TIMES][POINTS];
    const size_t chunk[2] = {ROWS_A_CHUNK, POINTS / 4}, start[2] = {0, 0}, count[2] = {times, POINTS};
    int variable;
    for (int t = 0; t < TIMES; t++) {
        for (int x = 0; x < POINTS; x++) values[t][x] = (float)(1000 * t + x + 1); /* never zero */
    }
    assert_int_equal(nc_def_var(file, name, NC_FLOAT, 2, dimensions, &variable), NC_NOERR);
    assert_int_equal(nc_def_var_chunking(file, variable, NC_CHUNKED, chunk), NC_NOERR);
    assert_int_equal(nc_put_vara_float(file, variable, start, count, &values[0][0]), NC_NOERR);
}

/* `u` (time, x), and `v` that lacks the last times; written some time ago, so that a change now is one by the clock of
 * any file system. */
static void write_file(const char *path) {
    int file, dimensions[2];
    assert_int_equal(nc_create(path, NC_NETCDF4 | NC_CLOBBER, &file), NC_NOERR);
    assert_int_equal(nc_def_dim(file, "time", NC_UNLIMITED, &dimensions[0]), NC_NOERR);
    assert_int_equal(nc_def_dim(file, "x", POINTS, &dimensions[1]), NC_NOERR);
    put_variable(file, "u", dimensions, TIMES);
    put_variable(file, "v", dimensions, WRITTEN);
    assert_int_equal(nc_close(file), NC_NOERR);
    const struct timespec long_ago[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, long_ago, 0), 0);
}

static off_t size_of(const char *path) {
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    return status.st_size;
}

/* ---- what can happen to a file that is open ---- */

static void cut(const char *path) {
    assert_int_equal(truncate(path, size_of(path) / 2), 0);
}

static void cut_and_lengthen(const char *path) {
    off_t size = size_of(path);
    assert_int_equal(truncate(path, size / 2), 0);
    assert_int_equal(truncate(path, size), 0);
}

static void replace(const char *path) {
    write_file(scratch("another.nc"));
    assert_int_equal(rename(scratch("another.nc"), path), 0);
}

static void take_away(const char *path) {
    assert_int_equal(unlink(path), 0);
}

static void (*const mishaps[])(const char *path) = {cut, cut_and_lengthen, replace, take_away};

static void assert_told(const ups_error *error, ups_status status) {
    assert_int_equal(status, UPS_ERR_STALE);
    assert_contains(error->message, "ends.nc: was changed while it was being ");
    assert_contains(error->message, "Start again once nothing writes to it");
}

static void a_variable_that_ends_within_a_chunk_is_read_and_goes_on_with_nan(void **state) {
    ups_source *source;
    ups_error error;
    static float out[TIMES][2][POINTS];
    write_file(scratch("ends.nc"));
    assert_int_equal(ups_layout_open(scratch("ends.nc"), NULL, &source, &error), UPS_OK);
    assert_int_equal(ups_source_read(source, 0, (ups_frames){0, TIMES}, out, &error), UPS_OK);
    for (int t = 0; t < TIMES; t++) {
        for (int x = 0; x < POINTS; x++) {
            assert_true(out[t][0][x] == (float)(1000 * t + x + 1));
            assert_true(t < WRITTEN ? out[t][1][x] == out[t][0][x] : isnan(out[t][1][x]));
        }
    }
    ups_source_close(source);
}

static void a_file_that_changes_after_it_was_opened_is_said_not_served(void **state) {
    static float out[TIMES][2][POINTS];
    for (size_t i = 0; i < sizeof mishaps / sizeof *mishaps; i++) {
        ups_source *source;
        ups_error error;
        write_file(scratch("ends.nc"));
        assert_int_equal(ups_layout_open(scratch("ends.nc"), NULL, &source, &error), UPS_OK);
        mishaps[i](scratch("ends.nc"));
        assert_int_not_equal(ups_source_read(source, 0, (ups_frames){0, TIMES}, out, &error), UPS_OK);
        assert_contains(error.message, "ends.nc"); /* of `u`, whose bytes are read by us, or of `v` */
        ups_source_close(source);
    }
}

static ups_netcdf_file *open_netcdf(ups_hdf5_file **hdf5) {
    ups_netcdf_file *file;
    ups_error error;
    write_file(scratch("ends.nc"));
    assert_int_equal(ups_hdf5_open(scratch("ends.nc"), NULL, false, hdf5, &error), UPS_OK);
    assert_int_equal(ups_netcdf_open_hdf5(*hdf5, &file, &error), UPS_OK);
    return file;
}

static void map_v(ups_netcdf_file *file, ups_arena *arena, ups_stored_array *array) {
    const ups_netcdf_header *header = ups_netcdf_contents(file);
    ups_error error;
    assert_string_equal(header->variables[1].name, "v");
    assert_int_equal(ups_netcdf_map(file, &header->variables[1], UPS_F32, 0, arena, array, &error), UPS_OK);
    assert_int_equal(array->storage, UPS_STORAGE_LIBRARY);
}

static ups_status read_v(const ups_stored_array *array, ups_error *error) {
    static float out[TIMES][POINTS];
    const ups_region all = {{0}, {TIMES, POINTS}};
    return array->read_through(array, &all, out, error);
}

static void a_variable_of_a_file_that_changes_after_it_was_mapped_is_said_not_served(void **state) {
    for (size_t i = 0; i < sizeof mishaps / sizeof *mishaps; i++) {
        ups_hdf5_file *hdf5;
        ups_stored_array array;
        ups_error error;
        ups_netcdf_file *file = open_netcdf(&hdf5);
        ups_arena *arena = ups_arena_create(0);
        map_v(file, arena, &array);
        assert_int_equal(read_v(&array, &error), UPS_OK);
        mishaps[i](scratch("ends.nc"));
        assert_told(&error, read_v(&array, &error));
        assert_contains(error.message, "variable 'v'");
        ups_arena_destroy(arena);
        ups_netcdf_close(file);
        ups_hdf5_close(hdf5);
    }
}

/* What was mapped belongs to the header, whatever the file has become since. */
static void a_file_that_changes_between_its_header_and_the_mapping_is_said_not_served(void **state) {
    ups_hdf5_file *hdf5;
    ups_stored_array array;
    ups_error error;
    ups_netcdf_file *file = open_netcdf(&hdf5);
    ups_arena *arena = ups_arena_create(0);
    replace(scratch("ends.nc"));
    map_v(file, arena, &array);
    assert_told(&error, read_v(&array, &error));
    ups_arena_destroy(arena);
    ups_netcdf_close(file);
    ups_hdf5_close(hdf5);
}

static void a_file_that_changes_while_it_is_opened_is_said(void **state) {
    ups_hdf5_file *hdf5;
    ups_netcdf_file *file;
    ups_error error;
    write_file(scratch("ends.nc"));
    assert_int_equal(ups_hdf5_open(scratch("ends.nc"), NULL, false, &hdf5, &error), UPS_OK);
    cut_and_lengthen(scratch("ends.nc"));
    assert_told(&error, ups_netcdf_open_hdf5(hdf5, &file, &error));
    assert_null(file);
    ups_hdf5_close(hdf5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_variable_that_ends_within_a_chunk_is_read_and_goes_on_with_nan),
        cmocka_unit_test(a_file_that_changes_after_it_was_opened_is_said_not_served),
        cmocka_unit_test(a_variable_of_a_file_that_changes_after_it_was_mapped_is_said_not_served),
        cmocka_unit_test(a_file_that_changes_between_its_header_and_the_mapping_is_said_not_served),
        cmocka_unit_test(a_file_that_changes_while_it_is_opened_is_said),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
