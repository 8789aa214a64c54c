/* Trajectories cut into segments: samples of their own, whose frames, times and windows are those of the whole. */
#include "tests/base/testing.h"

#include "base/arena.h"
#include "pipeline/layouts/layouts.h"
#include "pipeline/layouts/mapping.h"
#include "tests/pipeline/hdf5_writer.h"
#include <stdio.h>
#include <string.h>

enum { SAMPLES = 3, TIMES = 11, SEGMENT = 4, SEGMENTS = TIMES / SEGMENT };

static const written_form forms[] = {
    {.name = "contiguous"},
    {.name = "chunked", .chunked = true},
    {.name = "gzip", .chunked = true, .gzip = true, .shuffle = true},
    {.name = "big-endian float64", .chunked = true, .big_endian = true, .float64 = true},
};

static void write_tensor(const char *path, const written_form *form) {
    write_tensor_file(path, form, SAMPLES, TIMES, 45);
}

static void write_seeds(const char *path, const written_form *form) {
    write_seed_file(path, form, SAMPLES, TIMES, 6, 2);
}

static void write_gas(const char *path, const written_form *form) {
    write_compressible_file(path, form, SAMPLES, TIMES, 5, 6);
}

static void write_well(const char *path, const written_form *form) {
    write_well_file(path, form, SAMPLES, TIMES, 5, 6);
}

/* An NPY of zeros, float32 (2, 4, 3, 1). */
static void write_array(const char *path) {
    static const char head[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4, 3, 1), }";
    unsigned char bytes[128 + 2 * 4 * 3 * 4] = "\x93NUMPY\x01";
    bytes[8] = 118;
    memset(bytes + 10, ' ', 118);
    memcpy(bytes + 10, head, sizeof head - 1);
    bytes[127] = '\n';
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, sizeof bytes, file), sizeof bytes);
    assert_int_equal(fclose(file), 0);
}

static ups_source *open_cut(const char *path, int64_t segment, bool through_library) {
    ups_source *source;
    ups_error error;
    const ups_layout_options options = {.through_library = through_library, .segment = segment};
    if (ups_layout_open(path, &options, &source, &error) != UPS_OK) fail_msg("%s", error.message);
    return source;
}

static ups_sample describe(const ups_source *source, int64_t index) {
    ups_sample sample;
    assert_int_equal(ups_source_describe(source, index, &sample, NULL), UPS_OK);
    return sample;
}

/* Malloc'ed. */
static void *read_frames(const ups_source *source, int64_t index, ups_frames frames) {
    const ups_sample sample = describe(source, index);
    ups_error error;
    void *out = malloc((size_t)frames.count * ups_sample_frame_bytes(&sample) + 1);
    if (ups_source_read(source, index, frames, out, &error) != UPS_OK) fail_msg("%s", error.message);
    return out;
}

/* Every window of a sample is the whole trajectory's, and fits what the source says that windows take. */
static void compare(const ups_source *whole, const ups_source *cut, int64_t index) {
    const int64_t row = index / SEGMENTS, start = index % SEGMENTS * SEGMENT;
    const ups_sample all = describe(whole, row), sample = describe(cut, index);
    assert_int_equal(sample.times, SEGMENT);
    assert_int_equal(sample.first_frame, start);
    assert_int_equal(all.first_frame, 0);
    assert_int_equal(ups_layout_stored_times(cut, index), TIMES);
    assert_int_equal(ups_layout_stored_times(whole, row), TIMES);
    assert_int_equal(sample.as_stored, all.as_stored);
    for (int64_t t = 0; t < SEGMENT; t++) assert_true(sample.time[t] == all.time[start + t]);
    for (int64_t first = 0; first < SEGMENT; first++) {
        for (int64_t count = 1; first + count <= SEGMENT; count++) {
            ups_extent extents[1000];
            int64_t extent_count;
            assert_true(cut->limits.extents <= 1000);
            assert_int_equal(cut->class->extents(cut, index, (ups_frames){first, count}, extents, &extent_count, NULL),
                             UPS_OK);
            uint64_t stored = 0;
            for (int64_t e = 0; e < extent_count; e++) stored += extents[e].length;
            const ups_source_limits limits = ups_source_window_limits(cut, count);
            assert_true(extent_count <= limits.extents && stored <= limits.stored_bytes);
            void *found = read_frames(cut, index, (ups_frames){first, count});
            void *expected = read_frames(whole, row, (ups_frames){start + first, count});
            assert_memory_equal(found, expected, (size_t)count * ups_sample_frame_bytes(&sample));
            free(found);
            free(expected);
        }
    }
}

static void segments_hold_what_the_whole_does(void **state) {
    static void (*const writers[])(const char *, const written_form *) = {write_tensor, write_seeds, write_gas,
                                                                          write_well};
    for (size_t w = 0; w < sizeof writers / sizeof *writers; w++) {
        for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
            for (int library = 0; library < 2; library++) {
                writers[w](scratch("data.h5"), &forms[f]);
                ups_source *whole = open_cut(scratch("data.h5"), 0, library);
                ups_source *cut = open_cut(scratch("data.h5"), SEGMENT, library);
                assert_int_equal(whole->count, SAMPLES);
                assert_int_equal(cut->count, SAMPLES * SEGMENTS);
                for (int64_t i = 0; i < cut->count; i++) compare(whole, cut, i);
                ups_source_close(whole);
                ups_source_close(cut);
            }
        }
    }
}

static void segments_are_named_by_their_frames(void **state) {
    write_tensor(scratch("tensor.h5"), &forms[0]);
    ups_source *source = open_cut(scratch("tensor.h5"), SEGMENT, false);
    assert_string_equal(describe(source, 0).name, "tensor[0][0:4]");
    assert_string_equal(describe(source, 3).name, "tensor[1][4:8]");
    ups_source_close(source);
    write_seeds(scratch("seeds.h5"), &forms[0]);
    source = open_cut(scratch("seeds.h5"), SEGMENT, false);
    assert_string_equal(describe(source, 5).name, "0002[4:8]");
    ups_source_close(source);
    source = open_cut(scratch("seeds.h5"), TIMES, false); /* one is the whole */
    assert_string_equal(describe(source, 2).name, "0002");
    ups_source_close(source);
}

static void long_names_are_whole(void **state) {
    static const char name[] = "a_run_whose_name_is_longer_than_most";
    char path[400];
    snprintf(path, sizeof path, "%s/%s.npy", scratch_directory, name);
    write_array(path);
    ups_mapping mapping;
    ups_error error;
    ups_arena *arena = ups_arena_create(0);
    assert_int_equal(
        ups_mapping_parse("the layout", "{fields: {u: 0}, axes: [sample, time, x, channel]}", arena, &mapping, &error),
        UPS_OK);
    char expected[400];
    for (int64_t segment = 0; segment <= 2; segment += 2) {
        ups_source *source;
        const ups_layout_options options = {.mapping = &mapping, .segment = segment};
        if (ups_layout_open(path, &options, &source, &error) != UPS_OK) fail_msg("%s", error.message);
        snprintf(expected, sizeof expected, segment ? "%s[1][2:4]" : "%s[1]", name);
        assert_string_equal(describe(source, segment ? 3 : 1).name, expected);
        ups_source_close(source);
    }
    ups_arena_destroy(arena);
}

static void trajectories_of_different_lengths_become_one_task(void **state) {
    write_tensor(scratch("short.h5"), &forms[0]);
    write_tensor_file(scratch("long.h5"), &forms[1], 2, 3 * TIMES, 45);
    const char *paths[] = {scratch("short.h5"), scratch("long.h5")};
    ups_source *source;
    ups_error error;
    assert_fails(ups_layout_open_many(paths, 2, NULL, &source, &error), UPS_ERR_FORMAT, error,
                 "segments of one length");
    assert_int_equal(ups_layout_open_many(paths, 2, &(ups_layout_options){.segment = 5}, &source, &error), UPS_OK);
    assert_int_equal(source->count, SAMPLES * 2 + 2 * 6);
    const ups_sample last = describe(source, source->count - 1);
    assert_int_equal(last.times, 5);
    assert_int_equal(last.first_frame, 25);
    float *frames = read_frames(source, source->count - 1, (ups_frames){0, 5});
    for (int64_t i = 0; i < 5 * 45; i++) assert_true((double)frames[i] == written_value(1, 25 + i / 45, i % 45));
    free(frames);
    ups_source_close(source);
}

static void a_trajectory_that_is_too_short_is_refused(void **state) {
    write_tensor(scratch("tensor.h5"), &forms[0]);
    ups_source *source;
    ups_error error;
    assert_fails(ups_layout_open(scratch("tensor.h5"), &(ups_layout_options){.segment = TIMES + 1}, &source, &error),
                 UPS_ERR_FORMAT, error, "11 frames, too few for a segment of 12");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_hold_what_the_whole_does),
        cmocka_unit_test(segments_are_named_by_their_frames),
        cmocka_unit_test(long_names_are_whole),
        cmocka_unit_test(trajectories_of_different_lengths_become_one_task),
        cmocka_unit_test(a_trajectory_that_is_too_short_is_refused),
    };
    return cmocka_run_group_tests_name("segments", tests, make_scratch, remove_scratch);
}
