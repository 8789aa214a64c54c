/* What the layouts present: frames, windows of frames, coordinates, parameters, many files as one. */
#include "tests/base/testing.h"

#include "pipeline/layouts/layouts.h"
#include "pipeline/pde_parameters.h"
#include "tests/pipeline/hdf5_writer.h"
#include <math.h>

static const written_form forms[] = {
    {.name = "contiguous"},
    {.name = "chunked", .chunked = true},
    {.name = "gzip", .chunked = true, .gzip = true, .shuffle = true},
    {.name = "lzf", .chunked = true, .lzf = true},
    {.name = "big-endian float64", .chunked = true, .big_endian = true, .float64 = true, .shuffle = true, .gzip = true},
    {.name = "latest format", .chunked = true, .gzip = true, .fletcher32 = true, .latest = true},
};
enum { FORMS = sizeof forms / sizeof *forms };

static ups_source *open_one(const char *path, bool through_library) {
    ups_source *source;
    ups_error error;
    ups_layout_options options = {.through_library = through_library};
    if (ups_layout_open(path, &options, &source, &error) != UPS_OK) fail_msg("%s", error.message);
    return source;
}

/* Reads frames and returns them as doubles, whichever type the sample has; free with free(). */
static double *read_frames(const ups_source *source, int64_t index, int64_t start, int64_t count) {
    ups_sample sample;
    ups_error error;
    assert_int_equal(ups_source_describe(source, index, &sample, NULL), UPS_OK);
    int64_t elements = count * ups_sample_frame_elements(&sample);
    void *out = malloc((size_t)count * ups_sample_frame_bytes(&sample) + 1);
    double *wide = malloc((size_t)elements * sizeof *wide + 1);
    if (ups_source_read(source, index, (ups_frames){start, count}, out, &error) != UPS_OK)
        fail_msg("%s", error.message);
    for (int64_t i = 0; i < elements; i++)
        wide[i] = sample.dtype == UPS_F64 ? ((double *)out)[i] : (double)((float *)out)[i];
    free(out);
    return wide;
}

static void any_window_of_a_tensor_is_the_frames_asked_for(void **state) {
    enum { SAMPLES = 7, TIMES = 11, POINTS = 45 };
    for (int f = 0; f < FORMS; f++) {
        for (int library = 0; library < (forms[f].lzf ? 1 : 2); library++) {
            const char *path = scratch("tensor.h5");
            write_tensor_file(path, &forms[f], SAMPLES, TIMES, POINTS);
            ups_source *source = open_one(path, library);
            assert_string_equal(source->class->kind, "pdebench.tensor");
            assert_int_equal(source->count, SAMPLES);
            for (int64_t s = 0; s < SAMPLES; s += 3) {
                for (int64_t start = 0; start < TIMES; start++) {
                    for (int64_t count = 0; start + count <= TIMES; count += 3) {
                        double *found = read_frames(source, s, start, count);
                        for (int64_t i = 0; i < count * POINTS; i++)
                            assert_true(found[i] == written_value(s, start + i / POINTS, i % POINTS));
                        free(found);
                    }
                }
            }
            ups_source_close(source);
        }
    }
}

static void a_tensor_is_described_and_its_spare_time_cut_off(void **state) {
    write_tensor_file(scratch("1D_Burgers_Sols_Nu0.01.hdf5"), &forms[0], 3, 11, 45);
    ups_source *source = open_one(scratch("1D_Burgers_Sols_Nu0.01.hdf5"), false);
    ups_sample sample;
    assert_int_equal(ups_source_describe(source, 2, &sample, NULL), UPS_OK);
    assert_string_equal(sample.name, "tensor[2]");
    assert_int_equal(sample.times, 11);
    assert_int_equal(sample.channels, 1);
    assert_int_equal(sample.dims, 1);
    assert_int_equal(sample.grid[0], 45);
    assert_true(sample.periodic);
    assert_true(sample.time[10] == 5.0);
    assert_true(sample.coordinates[0][44] == 22.0);
    assert_int_equal(source->parameter_count, 1);
    assert_string_equal(source->parameter_names[0], "nu");
    assert_true(sample.parameters[0] == 0.01);
    assert_int_equal(source->limits.decoded_bytes, 11 * 45 * 4);
    ups_source_close(source);
}

static void darcy_is_a_step_from_nu_and_zero_to_nu_and_u(void **state) {
    enum { SAMPLES = 6, X = 9, Y = 37, PLANE = X * Y };
    for (int f = 0; f < FORMS; f++) {
        write_darcy_file(scratch("darcy.h5"), &forms[f], SAMPLES, X, Y);
        ups_source *source = open_one(scratch("darcy.h5"), false);
        ups_sample sample;
        assert_int_equal(ups_source_describe(source, 5, &sample, NULL), UPS_OK);
        assert_int_equal(sample.order, UPS_CHANNELS_FIRST);
        assert_int_equal(sample.times, 2);
        assert_false(sample.periodic);
        assert_string_equal(source->channel_names[0], "nu");
        assert_string_equal(source->channel_names[1], "u");
        for (int64_t start = 0; start < 2; start++) {
            for (int64_t count = 1; start + count <= 2; count++) {
                double *found = read_frames(source, 5, start, count);
                for (int64_t i = 0; i < count * 2 * PLANE; i++) {
                    int64_t frame = start + i / (2 * PLANE), channel = i / PLANE % 2, p = i % PLANE;
                    double expected = channel == 0 ? written_value(5, 0, p) : frame ? written_value(5, 1, p) : 0;
                    assert_true(found[i] == expected);
                }
                free(found);
            }
        }
        ups_source_close(source);
    }
}

static void the_zeros_of_darcys_first_frame_cost_no_reading(void **state) {
    write_darcy_file(scratch("darcy.h5"), &forms[0], 3, 8, 8);
    ups_source *source = open_one(scratch("darcy.h5"), false);
    ups_extent extents[2];
    int64_t count;
    assert_int_equal(source->class->extents(source, 0, (ups_frames){0, 1}, extents, &count, NULL), UPS_OK);
    assert_int_equal(count, 1);
    assert_int_equal(extents[0].length, 8 * 8 * 4);
    assert_int_equal(source->class->extents(source, 0, (ups_frames){0, 2}, extents, &count, NULL), UPS_OK);
    assert_int_equal(count, 2);
    ups_source_close(source);
}

static void seed_groups_keep_their_order_and_their_settings(void **state) {
    enum { SEEDS = 12, TIMES = 6, POINTS = 33, CHANNELS = 2 };
    for (int f = 0; f < FORMS; f++) {
        write_seed_file(scratch("seeds.h5"), &forms[f], SEEDS, TIMES, POINTS, CHANNELS);
        ups_source *source = open_one(scratch("seeds.h5"), false);
        assert_int_equal(source->count, SEEDS);
        assert_int_equal(source->parameter_count, 1);
        assert_string_equal(source->parameter_names[0], "D");
        ups_sample sample;
        assert_int_equal(ups_source_describe(source, 4, &sample, NULL), UPS_OK);
        assert_string_equal(sample.name, "0004");
        assert_true(sample.parameters[0] == 0.005);
        assert_int_equal(sample.channels, CHANNELS);
        double *found = read_frames(source, 11, 2, 3);
        for (int64_t i = 0; i < 3 * POINTS * CHANNELS; i++)
            assert_true(found[i] == written_value(11, 2 + i / (POINTS * CHANNELS), i % (POINTS * CHANNELS)));
        free(found);
        ups_source_close(source);
    }
}

static void fields_of_several_datasets_become_channels_in_any_window(void **state) {
    enum { SAMPLES = 3, TIMES = 6, X = 9, Y = 17, PLANE = X * Y };
    for (int f = 0; f < FORMS; f++) {
        write_compressible_file(scratch("flow_periodic.h5"), &forms[f], SAMPLES, TIMES, X, Y);
        ups_source *source = open_one(scratch("flow_periodic.h5"), false);
        ups_sample sample;
        assert_string_equal(source->class->kind, "pdebench.compressible");
        assert_int_equal(ups_source_describe(source, 2, &sample, NULL), UPS_OK);
        assert_int_equal(sample.order, UPS_CHANNELS_FIRST);
        assert_int_equal(sample.channels, 4);
        assert_true(sample.periodic);
        assert_true(sample.parameters[0] == 0.25);
        for (int64_t start = 0; start < TIMES; start += 2) {
            double *found = read_frames(source, 2, start, TIMES - start);
            for (int64_t i = 0; i < (TIMES - start) * 4 * PLANE; i++) {
                int64_t frame = start + i / (4 * PLANE), channel = i / PLANE % 4, p = i % PLANE;
                assert_true(found[i] == written_value(2, frame, p) + (double)channel);
            }
            free(found);
        }
        ups_source_close(source);
    }
}

static void components_of_a_wells_vectors_become_channels(void **state) {
    enum { SAMPLES = 3, TIMES = 5, X = 9, Y = 7, PLANE = X * Y };
    for (int f = 0; f < FORMS; f++) {
        write_well_file(scratch("well.h5"), &forms[f], SAMPLES, TIMES, X, Y);
        ups_source *source = open_one(scratch("well.h5"), false);
        ups_sample sample;
        assert_string_equal(source->class->kind, "the_well");
        assert_string_equal(source->channel_names[2], "velocity_y");
        assert_int_equal(ups_source_describe(source, 2, &sample, NULL), UPS_OK);
        assert_string_equal(sample.name, "trajectory[2]");
        assert_string_equal(source->parameter_names[0], "forcing");
        assert_true(sample.parameters[0] == 1.0);
        assert_false(sample.periodic);
        assert_string_equal(ups_layout_boundary(source, 0), "periodic in x, open in y");
        double *found = read_frames(source, 1, 2, 3);
        for (int64_t i = 0; i < 3 * 3 * PLANE; i++) {
            int64_t frame = 2 + i / (3 * PLANE), channel = i / PLANE % 3, p = i % PLANE;
            double expected = channel ? written_value(1, frame, 2 * p + channel - 1) : written_value(1, frame, p);
            assert_true(found[i] == expected);
        }
        free(found);
        ups_source_close(source);
    }
}

static void several_files_are_one_source_with_samples_one_after_the_other(void **state) {
    const char *paths[] = {scratch("a_Nu0.1.h5"), scratch("b_Nu0.2.h5")};
    write_tensor_file(paths[0], &forms[0], 3, 6, 10);
    write_tensor_file(paths[1], &forms[2], 5, 6, 10);
    ups_source *source;
    ups_error error;
    assert_int_equal(ups_layout_open_many(paths, 2, NULL, &source, &error), UPS_OK);
    assert_int_equal(source->count, 8);
    assert_int_equal(source->file_count, 2);
    ups_sample sample;
    assert_int_equal(ups_source_describe(source, 2, &sample, NULL), UPS_OK);
    assert_true(sample.parameters[0] == 0.1);
    assert_int_equal(ups_source_describe(source, 7, &sample, NULL), UPS_OK);
    assert_string_equal(sample.name, "tensor[4]");
    assert_int_equal(sample.times, 6);
    assert_true(sample.parameters[0] == 0.2);
    double *found = read_frames(source, 7, 5, 1);
    for (int64_t p = 0; p < 10; p++) assert_true(found[p] == written_value(4, 5, p));
    free(found);
    ups_source_close(source);
}

static void a_pattern_stands_for_the_files_that_match_in_the_order_of_their_names(void **state) {
    write_tensor_file(scratch("many_Nu0.3.h5"), &forms[0], 1, 4, 8);
    write_tensor_file(scratch("many_Nu0.1.h5"), &forms[0], 1, 4, 8);
    write_tensor_file(scratch("many_Nu0.2.h5"), &forms[0], 1, 4, 8);
    ups_source *source;
    ups_error error;
    assert_int_equal(ups_layout_open_many(&(const char *){scratch("many_Nu*.h5")}, 1, NULL, &source, &error), UPS_OK);
    assert_int_equal(source->file_count, 3);
    static const double expected[] = {0.1, 0.2, 0.3};
    for (int64_t i = 0; i < 3; i++) {
        ups_sample sample;
        assert_int_equal(ups_source_describe(source, i, &sample, NULL), UPS_OK);
        assert_true(sample.parameters[0] == expected[i]);
    }
    ups_source_close(source);
    assert_fails(ups_layout_open(scratch("none_*.h5"), NULL, &source, &error), UPS_ERR_IO, error, "no file matches");
}

static void parameter_names_unite_across_files_and_are_nan_where_a_file_does_not_say(void **state) {
    const char *paths[] = {scratch("g_Nu0.1.h5"), scratch("h_Rho3.h5")};
    write_tensor_file(paths[0], &forms[0], 3, 4, 20);
    write_tensor_file(paths[1], &forms[0], 3, 4, 20);
    ups_source *source;
    ups_error error;
    ups_sample sample;
    assert_int_equal(ups_layout_open_many(paths, 2, NULL, &source, &error), UPS_OK);
    assert_int_equal(source->parameter_count, 2);
    assert_int_equal(ups_source_describe(source, 0, &sample, NULL), UPS_OK);
    assert_true(sample.parameters[0] == 0.1 && isnan(sample.parameters[1]));
    assert_int_equal(ups_source_describe(source, 5, &sample, NULL), UPS_OK);
    assert_true(isnan(sample.parameters[0]) && sample.parameters[1] == 3);
    ups_source_close(source);
}

static void files_that_do_not_belong_together_are_refused_with_the_difference(void **state) {
    const char *paths[] = {scratch("c_Nu0.1.h5"), scratch("d.h5")};
    ups_source *source;
    ups_error error;
    write_tensor_file(paths[0], &forms[0], 3, 4, 20);
    write_darcy_file(paths[1], &forms[0], 3, 4, 20);
    assert_fails(ups_layout_open_many(paths, 2, NULL, &source, &error), UPS_ERR_FORMAT, error, "one layout");
    write_tensor_file(paths[1], &forms[0], 3, 4, 24);
    assert_fails(ups_layout_open_many(paths, 2, NULL, &source, &error), UPS_ERR_FORMAT, error,
                 "d.h5 has grid (24) and 4 frames");
    assert_contains(error.message, "c_Nu0.1.h5 has grid (20) and 4 frames");
    const char *seeds[] = {scratch("e.h5"), scratch("f.h5")};
    write_seed_file(seeds[0], &forms[0], 2, 4, 8, 1);
    write_seed_file(seeds[1], &forms[0], 2, 4, 8, 3);
    assert_fails(ups_layout_open_many(seeds, 2, NULL, &source, &error), UPS_ERR_FORMAT, error,
                 "f.h5 has 3 channels (field0, field1, field2)");
    assert_null(source);
}

static void frames_and_samples_out_of_range_are_refused(void **state) {
    write_tensor_file(scratch("range.h5"), &forms[0], 3, 4, 20);
    ups_source *source = open_one(scratch("range.h5"), false);
    ups_sample sample;
    ups_error error;
    char out[4 * 20 * 4];
    assert_int_equal(ups_source_describe(source, 3, &sample, &error), UPS_ERR_ARGUMENT);
    assert_int_equal(ups_source_describe(source, -1, &sample, &error), UPS_ERR_ARGUMENT);
    assert_fails(ups_source_read(source, 0, (ups_frames){2, 3}, out, &error), UPS_ERR_ARGUMENT, error, "4 frames");
    ups_source_close(source);
}

static void a_file_cut_after_it_was_opened_is_an_error_that_names_it(void **state) {
    const char *path = scratch("later.h5");
    write_tensor_file(path, &forms[0], 3, 40, 200);
    ups_source *source = open_one(path, false);
    assert_int_equal(truncate(path, 50000), 0);
    static char out[40 * 200 * 4];
    ups_error error;
    assert_int_not_equal(ups_source_read(source, 2, (ups_frames){0, 40}, out, &error), UPS_OK);
    assert_contains(error.message, "later.h5");
    ups_source_close(source);
}

/* What was never written costs no bytes, so a small file may claim any shape. */
static void write_unwritten(hid_t file, const char *name, int rank, const hsize_t *shape) {
    hid_t space = H5Screate_simple(rank, shape, NULL);
    hid_t dataset = H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(dataset >= 0);
    H5Dclose(dataset);
    H5Sclose(space);
}

static void a_sample_larger_than_any_memory_is_refused(void **state) {
    const hsize_t x = 1u << 30, y = 1u << 29;
    hid_t file = H5Fcreate(scratch("huge.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    write_unwritten(file, "nu", 3, (hsize_t[]){1, x, y});
    write_unwritten(file, "tensor", 4, (hsize_t[]){1, 1, x, y});
    H5Fclose(file);
    ups_source *source;
    ups_error error;
    assert_fails(ups_layout_open(scratch("huge.h5"), NULL, &source, &error), UPS_ERR_FORMAT, error,
                 "huge.h5: a sample of it claims more values");
}

static void yaml_gives_numbers_and_nothing_about_grid_or_run(void **state) {
    ups_pde_parameters parameters = {.arena = ups_arena_create(0)};
    ups_pde_parameters_from_yaml(&parameters, "sim:\n  Du: 1e-3\n  Dv: 5\n  seed: 7\n  xdim: 128\n  name: fhn\n"
                                              "  nested: {k: -0.5}\n  quoted: '3'\n  inf: .inf\ntop: 2\n");
    assert_int_equal(parameters.count, 4);
    assert_string_equal(parameters.list[0].name, "Du");
    assert_true(parameters.list[0].value == 1e-3);
    assert_string_equal(parameters.list[2].name, "nested.k");
    assert_true(parameters.list[2].value == -0.5);
    assert_string_equal(parameters.list[3].name, "top");
    ups_pde_parameters_from_yaml(&parameters, "sim: [unclosed\n\t: {");
    assert_int_equal(parameters.count, 4);
    ups_arena_destroy(parameters.arena);
}

static void yaml_whose_aliases_describe_a_huge_tree_is_read_in_part(void **state) {
    ups_pde_parameters parameters = {.arena = ups_arena_create(0)};
    char text[2000];
    int used = snprintf(text, sizeof text, "nu: 1\na0: &a0 {b: 1}\n");
    for (int level = 1; level <= 12; level++) { /* ten times as many values a level */
        used += snprintf(text + used, sizeof text - (size_t)used, "a%d: &a%d {", level, level);
        for (int i = 0; i < 10; i++)
            used += snprintf(text + used, sizeof text - (size_t)used, "k%d: *a%d, ", i, level - 1);
        used += snprintf(text + used, sizeof text - (size_t)used, "}\n");
    }
    assert_true((size_t)used < sizeof text);
    ups_pde_parameters_from_yaml(&parameters, text);
    assert_string_equal(parameters.list[0].name, "nu");
    assert_in_range(parameters.count, 2, 4096);
    ups_arena_destroy(parameters.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_window_of_a_tensor_is_the_frames_asked_for),
        cmocka_unit_test(a_tensor_is_described_and_its_spare_time_cut_off),
        cmocka_unit_test(darcy_is_a_step_from_nu_and_zero_to_nu_and_u),
        cmocka_unit_test(the_zeros_of_darcys_first_frame_cost_no_reading),
        cmocka_unit_test(seed_groups_keep_their_order_and_their_settings),
        cmocka_unit_test(fields_of_several_datasets_become_channels_in_any_window),
        cmocka_unit_test(components_of_a_wells_vectors_become_channels),
        cmocka_unit_test(several_files_are_one_source_with_samples_one_after_the_other),
        cmocka_unit_test(a_pattern_stands_for_the_files_that_match_in_the_order_of_their_names),
        cmocka_unit_test(parameter_names_unite_across_files_and_are_nan_where_a_file_does_not_say),
        cmocka_unit_test(files_that_do_not_belong_together_are_refused_with_the_difference),
        cmocka_unit_test(frames_and_samples_out_of_range_are_refused),
        cmocka_unit_test(a_file_cut_after_it_was_opened_is_an_error_that_names_it),
        cmocka_unit_test(a_sample_larger_than_any_memory_is_refused),
        cmocka_unit_test(yaml_gives_numbers_and_nothing_about_grid_or_run),
        cmocka_unit_test(yaml_whose_aliases_describe_a_huge_tree_is_read_in_part),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
