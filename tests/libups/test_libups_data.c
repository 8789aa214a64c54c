/* Data sets through ups.h: what goes in comes out, and mistakes are sentences. */
#include "tests/base/testing.h"

#include "base/half.h"
#include "tests/cache/fixture.h"
#include "tests/pipeline/hdf5_writer.h"
#include <math.h>
#include <sys/stat.h>
#include <ups.h>

enum { SAMPLES = 7, TIMES = 11, TOKENS = 4, DIM = 16, FRAME = TOKENS * DIM, COUNT = TIMES * FRAME };

static const char *cache_path, *file_path;

static int make_data(void **state) {
    static char cache[400], file[400];
    if (make_scratch(state) != 0) return -1;
    snprintf(cache, sizeof cache, "%s/cache/waves/train", scratch_directory);
    snprintf(file, sizeof file, "%s", scratch("waves.h5"));
    cache_path = cache;
    file_path = file;
    ups_cache_description description = fixture_description(SAMPLES, TIMES, TOKENS, DIM, 3);
    ups_error error;
    if (fixture_build(scratch("cache"), &description, 1, &error) != UPS_OK) return -1;
    write_tensor_file(file, &(written_form){.name = "plain"}, SAMPLES, TIMES, 32);
    return 0;
}

static ups_data *open_data(const char *path) {
    ups_data *data;
    ups_data_error error;
    if (ups_data_open(path, &data, &error) != UPS_DATA_OK) fail_msg("%s", error.message);
    return data;
}

static void latents_are_those_that_were_put_in(void **state) {
    ups_data *data = open_data(cache_path);
    assert_int_equal(ups_data_count(data), SAMPLES);
    static float expected[COUNT], whole[COUNT];
    static ups_f16 rounded[COUNT], stored[COUNT];
    for (int64_t i = 0; i < SAMPLES; i++) {
        fixture_latents(i, TIMES, TOKENS, DIM, expected);
        ups_f32_to_f16(expected, rounded, COUNT);
        ups_f16_to_f32(rounded, expected, COUNT);
        assert_int_equal(ups_data_read(data, i, 0, TIMES, UPS_DATA_F16, stored, sizeof stored, NULL), UPS_DATA_OK);
        assert_memory_equal(stored, rounded, sizeof stored);
        assert_int_equal(ups_data_read(data, i, 0, TIMES, UPS_DATA_F32, whole, sizeof whole, NULL), UPS_DATA_OK);
        assert_memory_equal(whole, expected, sizeof whole);
        float window[3 * FRAME];
        assert_int_equal(ups_data_read(data, i, 5, 3, UPS_DATA_F32, window, sizeof window, NULL), UPS_DATA_OK);
        assert_memory_equal(window, expected + 5 * FRAME, sizeof window);
    }
    ups_data_close(data);
}

static void a_cache_says_what_it_holds(void **state) {
    ups_data *data = open_data(cache_path);
    ups_data_info info = UPS_DATA_INFO;
    assert_int_equal(ups_data_describe(data, &info, NULL), UPS_DATA_OK);
    assert_string_equal(info.kind, "latent");
    assert_int_equal(info.count, SAMPLES);
    assert_int_equal(info.channels, DIM);
    assert_null(info.channel_names);
    assert_int_equal(info.parameter_count, 2);
    assert_string_equal(info.parameter_names[0], "beta");
    assert_int_equal(info.file_count, 3);
    assert_contains(info.attributes, "\"fingerprint\"");
    ups_data_sample sample = UPS_DATA_SAMPLE;
    assert_int_equal(ups_data_describe_sample(data, 3, &sample, NULL), UPS_DATA_OK);
    assert_string_equal(sample.name, "latent[3]");
    assert_int_equal(sample.rank, 3);
    assert_int_equal(sample.shape[0], TIMES);
    assert_int_equal(sample.shape[1], TOKENS);
    assert_int_equal(sample.shape[2], DIM);
    assert_string_equal(sample.axes[0], "time");
    assert_string_equal(sample.axes[1], "token");
    assert_string_equal(sample.axes[2], "channel");
    assert_int_equal(sample.channel_axis, 2);
    assert_int_equal(sample.dtype, UPS_DATA_F16);
    assert_true(fabs(sample.coordinates[0][4] - 0.2) < 1e-12);
    assert_null(sample.coordinates[1]);
    assert_true(fabs(sample.parameters[0] - 0.3) < 1e-12);
    assert_true(isnan(sample.parameters[1]));
    assert_int_equal(sample.origin, 3);
    ups_data_close(data);
}

static void a_simulation_file_is_the_same_to_its_reader(void **state) {
    ups_data *data = open_data(file_path);
    ups_data_info info = UPS_DATA_INFO;
    assert_int_equal(ups_data_describe(data, &info, NULL), UPS_DATA_OK);
    assert_string_equal(info.kind, "pdebench.tensor");
    assert_null(info.attributes);
    assert_string_equal(info.channel_names[0], "u");
    ups_data_sample sample = UPS_DATA_SAMPLE;
    assert_int_equal(ups_data_describe_sample(data, 2, &sample, NULL), UPS_DATA_OK);
    assert_int_equal(sample.rank, 3);
    assert_string_equal(sample.axes[1], "x");
    assert_non_null(sample.coordinates[1]);
    float values[4 * 32];
    assert_int_equal(ups_data_read(data, 2, 7, 4, UPS_DATA_F32, values, sizeof values, NULL), UPS_DATA_OK);
    for (int t = 0; t < 4; t++)
        for (int x = 0; x < 32; x++) assert_true(values[t * 32 + x] == (float)written_value(2, 7 + t, x));
    ups_data_close(data);
}

static void float64_is_read_as_it_is_or_as_float32(void **state) {
    const char *path = scratch("double.h5");
    write_tensor_file(path, &(written_form){.name = "double", .float64 = true}, 2, 3, 8);
    ups_data *data = open_data(path);
    double wide[24];
    float narrow[24];
    assert_int_equal(ups_data_read(data, 1, 0, 3, UPS_DATA_F64, wide, sizeof wide, NULL), UPS_DATA_OK);
    assert_int_equal(ups_data_read(data, 1, 0, 3, UPS_DATA_F32, narrow, sizeof narrow, NULL), UPS_DATA_OK);
    for (int i = 0; i < 24; i++) {
        assert_true(wide[i] == written_value(1, i / 8, i % 8));
        assert_true(narrow[i] == (float)wide[i]);
    }
    ups_data_error error;
    assert_fails(ups_data_read(data, 1, 0, 3, UPS_DATA_F16, narrow, sizeof narrow, &error), UPS_DATA_ERR_UNSUPPORTED,
                 error, "double.h5");
    assert_contains(error.message, "float64");
    ups_data_close(data);
}

static void several_files_are_one_data_set(void **state) {
    const char *paths[] = {scratch("a.h5"), scratch("b.h5")};
    write_tensor_file(paths[0], &(written_form){.name = "plain"}, 2, 3, 8);
    write_tensor_file(paths[1], &(written_form){.name = "plain"}, 3, 3, 8);
    ups_data *data;
    assert_int_equal(ups_data_open_files(paths, 2, &data, NULL), UPS_DATA_OK);
    assert_int_equal(ups_data_count(data), 5);
    float value[24];
    assert_int_equal(ups_data_read(data, 4, 0, 3, UPS_DATA_F32, value, sizeof value, NULL), UPS_DATA_OK);
    assert_true(value[23] == (float)written_value(2, 2, 7));
    ups_data_close(data);
    char pattern[400];
    snprintf(pattern, sizeof pattern, "%s/[ab].h5", scratch_directory);
    data = open_data(pattern);
    assert_int_equal(ups_data_count(data), 5);
    ups_data_close(data);
}

static void a_layout_says_what_a_file_holds(void **state) {
    const char *path = scratch("own.h5");
    write_tensor_file(path, &(written_form){.name = "plain"}, 2, 3, 8);
    ups_data *data;
    ups_data_error error;
    ups_data_info info = UPS_DATA_INFO;
    const char *layout = "{fields: {height: /tensor}, axes: [sample, time, x]}";
    assert_int_equal(ups_data_open_layout(&path, 1, layout, &data, &error), UPS_DATA_OK);
    assert_int_equal(ups_data_describe(data, &info, &error), UPS_DATA_OK);
    assert_string_equal(info.kind, "mapped");
    assert_string_equal(info.channel_names[0], "height");
    float value[24];
    assert_int_equal(ups_data_read(data, 1, 0, 3, UPS_DATA_F32, value, sizeof value, NULL), UPS_DATA_OK);
    assert_true(value[23] == (float)written_value(1, 2, 7));
    ups_data_close(data);
    assert_fails(ups_data_open_layout(&path, 1, "{fields: {u: /w}, axes: [sample, time, x]}", &data, &error),
                 UPS_DATA_ERR_FORMAT, error, "holds no array 'w'");
    assert_fails(ups_data_open_layout(&path, 1, "{fields: {u: /tensor}}", &data, &error), UPS_DATA_ERR_ARGUMENT, error,
                 "axes: the key is missing");
    assert_int_equal(ups_data_open_layout(&path, 1, NULL, &data, &error), UPS_DATA_OK);
    ups_data_close(data);
}

static void assert_refused(const char *path, ups_data_status expected, const char *part) {
    ups_data *data = (ups_data *)&data;
    ups_data_error error;
    assert_int_equal(ups_data_open(path, &data, &error), expected);
    assert_int_equal(error.status, expected);
    assert_null(data);
    assert_contains(error.message, part);
    assert_int_equal(ups_data_open(path, &data, NULL), expected);
}

static void what_cannot_be_opened_is_a_sentence(void **state) {
    assert_refused(scratch("nowhere.h5"), UPS_DATA_ERR_IO, "nowhere.h5 cannot be opened");
    write_text(scratch("text.h5"), "no HDF5 at all, and long enough to be looked at in earnest");
    assert_refused(scratch("text.h5"), UPS_DATA_ERR_FORMAT, "text.h5 is not an HDF5 file");
    assert_refused(scratch("cache"), UPS_DATA_ERR_ARGUMENT, "open one of waves/train");
    assert_int_equal(mkdir(scratch("empty"), 0777), 0);
    assert_refused(scratch("empty"), UPS_DATA_ERR_IO, "empty");
    assert_refused(NULL, UPS_DATA_ERR_ARGUMENT, "NULL");
    const char *paths[] = {file_path, cache_path};
    ups_data *data;
    ups_data_error error;
    assert_fails(ups_data_open_files(paths, 2, &data, &error), UPS_DATA_ERR_ARGUMENT, error, "is a directory");
    assert_int_equal(ups_data_open_files(paths, 0, &data, &error), UPS_DATA_ERR_ARGUMENT);
}

static void what_cannot_be_read_is_a_sentence(void **state) {
    ups_data *data = open_data(cache_path);
    static ups_f16 values[COUNT];
    ups_data_error error;
    assert_fails(ups_data_read(data, SAMPLES, 0, 1, UPS_DATA_F16, values, sizeof values, &error), UPS_DATA_ERR_ARGUMENT,
                 error, "there is no sample 7");
    assert_fails(ups_data_read(data, 0, 8, 4, UPS_DATA_F16, values, sizeof values, &error), UPS_DATA_ERR_ARGUMENT,
                 error, "11 frames, numbered from 0; 4 from frame 8 on");
    assert_int_equal(ups_data_read(data, 0, INT64_MAX, 4, UPS_DATA_F16, values, sizeof values, &error),
                     UPS_DATA_ERR_ARGUMENT);
    assert_int_equal(ups_data_read(data, 0, -1, 4, UPS_DATA_F16, values, sizeof values, &error), UPS_DATA_ERR_ARGUMENT);
    assert_fails(ups_data_read(data, 0, 0, 4, UPS_DATA_F16, values, 4 * FRAME * 2 - 1, &error), UPS_DATA_ERR_ARGUMENT,
                 error, "room for 511 bytes");
    assert_int_equal(ups_data_read(data, 0, 0, 1, (ups_data_dtype)9, values, sizeof values, &error),
                     UPS_DATA_ERR_ARGUMENT);
    assert_int_equal(ups_data_read(data, 0, 3, 0, UPS_DATA_F16, NULL, 0, &error), UPS_DATA_OK);
    ups_data_close(data);
}

static void a_changed_byte_is_a_checksum_error(void **state) {
    char shard[500];
    snprintf(shard, sizeof shard, "%s/latent/c/1/0/0/0", cache_path);
    flip_bit(shard, 100, 0);
    ups_data *data = open_data(cache_path);
    static ups_f16 values[COUNT];
    ups_data_error error;
    assert_int_equal(ups_data_read(data, 2, 0, TIMES, UPS_DATA_F16, values, sizeof values, &error), UPS_DATA_OK);
    assert_fails(ups_data_read(data, 3, 0, TIMES, UPS_DATA_F16, values, sizeof values, &error), UPS_DATA_ERR_CHECKSUM,
                 error, "latent/c/1/0/0/0");
    ups_data_close(data);
}

/* A caller built against a header whose struct ends after `count`, and one whose struct goes on. */
static void structs_are_filled_as_far_as_the_caller_knows_them(void **state) {
    ups_data *data = open_data(file_path);
    struct {
        ups_data_info info;
        char beyond[32];
    } wide;
    memset(&wide, 0x55, sizeof wide);
    wide.info.size = sizeof(size_t) + sizeof(int64_t);
    assert_int_equal(ups_data_describe(data, &wide.info, NULL), UPS_DATA_OK);
    assert_int_equal(wide.info.count, SAMPLES);
    assert_int_equal(((unsigned char *)&wide.info)[sizeof(size_t) + sizeof(int64_t)], 0x55);
    wide.info.size = sizeof wide;
    assert_int_equal(ups_data_describe(data, &wide.info, NULL), UPS_DATA_OK);
    assert_int_equal(wide.info.size, sizeof wide);
    assert_int_equal(wide.beyond[0], 0);
    wide.info.size = 0;
    ups_data_error error;
    assert_fails(ups_data_describe(data, &wide.info, &error), UPS_DATA_ERR_ARGUMENT, error, "sizeof(ups_data_info)");
    ups_data_close(data);
}

static void parameters_of_many_samples_are_told_at_once(void **state) {
    ups_data *data = open_data(cache_path);
    double values[SAMPLES][2];
    ups_data_error error;
    assert_int_equal(ups_data_parameters(data, 0, SAMPLES, values[0], sizeof values, NULL), UPS_DATA_OK);
    for (int i = 0; i < SAMPLES; i++) {
        ups_data_sample sample = UPS_DATA_SAMPLE;
        assert_int_equal(ups_data_describe_sample(data, i, &sample, NULL), UPS_DATA_OK);
        assert_memory_equal(values[i], sample.parameters, sizeof *values);
        assert_true(fabs(values[i][0] - 0.1 * i) < 1e-12);
    }
    assert_true(isnan(values[3][1]));
    assert_int_equal(ups_data_parameters(data, 4, 2, values[0], 2 * sizeof *values, NULL), UPS_DATA_OK);
    assert_true(fabs(values[1][0] - 0.5) < 1e-12);
    assert_int_equal(ups_data_parameters(data, SAMPLES, 0, NULL, 0, NULL), UPS_DATA_OK);
    assert_fails(ups_data_parameters(data, 4, 4, values[0], sizeof values, &error), UPS_DATA_ERR_ARGUMENT, error,
                 "7 samples, numbered from 0; parameters of 4 from sample 4 on");
    assert_int_equal(ups_data_parameters(data, INT64_MAX, 4, values[0], sizeof values, NULL), UPS_DATA_ERR_ARGUMENT);
    assert_int_equal(ups_data_parameters(data, -1, 1, values[0], sizeof values, NULL), UPS_DATA_ERR_ARGUMENT);
    assert_fails(ups_data_parameters(data, 0, 2, values[0], 31, &error), UPS_DATA_ERR_ARGUMENT, error,
                 "room for 31 bytes");
    assert_int_equal(ups_data_parameters(data, 0, 2, NULL, 32, &error), UPS_DATA_ERR_ARGUMENT);
    ups_data_close(data);
}

static void nowhere_to_write_to_is_a_sentence(void **state) {
    ups_data *data = open_data(cache_path);
    ups_data_error error;
    assert_fails(ups_data_describe(data, NULL, &error), UPS_DATA_ERR_ARGUMENT, error,
                 "ups_data_info to be filled in is NULL");
    assert_fails(ups_data_describe_sample(data, 0, NULL, &error), UPS_DATA_ERR_ARGUMENT, error,
                 "ups_data_sample to be filled in is NULL");
    assert_fails(ups_data_read(data, 0, 0, 1, UPS_DATA_F16, NULL, COUNT * sizeof(ups_f16), &error),
                 UPS_DATA_ERR_ARGUMENT, error, "values is NULL");
    ups_data_close(data);
    assert_fails(ups_data_open_files(NULL, 1, &data, &error), UPS_DATA_ERR_ARGUMENT, error, "list of paths is NULL");
    assert_null(data);
}

static void header_and_library_are_of_one_version(void **state) {
    assert_int_equal(ups_data_version(), UPS_DATA_VERSION);
    assert_string_equal(ups_data_status_name(UPS_DATA_ERR_CHECKSUM), "checksum");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_and_library_are_of_one_version),
        cmocka_unit_test(latents_are_those_that_were_put_in),
        cmocka_unit_test(a_cache_says_what_it_holds),
        cmocka_unit_test(a_simulation_file_is_the_same_to_its_reader),
        cmocka_unit_test(float64_is_read_as_it_is_or_as_float32),
        cmocka_unit_test(several_files_are_one_data_set),
        cmocka_unit_test(a_layout_says_what_a_file_holds),
        cmocka_unit_test(what_cannot_be_opened_is_a_sentence),
        cmocka_unit_test(what_cannot_be_read_is_a_sentence),
        cmocka_unit_test(parameters_of_many_samples_are_told_at_once),
        cmocka_unit_test(nowhere_to_write_to_is_a_sentence),
        cmocka_unit_test(structs_are_filled_as_far_as_the_caller_knows_them),
        cmocka_unit_test(a_changed_byte_is_a_checksum_error),
    };
    return cmocka_run_group_tests(tests, make_data, remove_scratch);
}
