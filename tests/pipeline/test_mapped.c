/* Arrays whose axes are in any order, as a mapping has it: windows of every sample are what plain indexing gives, and
 * no more is read than the source said. */
#include "tests/base/testing.h"

#include "base/arena.h"
#include "pipeline/layouts/layouts.h"
#include "pipeline/layouts/mapping.h"
#include <stdio.h>
#include <stdlib.h>

/* x is long enough that entries of the axes before it lie more than a read apart. */
enum { SAMPLES = 3, TIMES = 6, POINTS = 2500, CHANNELS = 2, AXES = 4, ELEMENTS = SAMPLES * TIMES * POINTS * CHANNELS };

static const char *const names[AXES] = {"sample", "time", "x", "channel"};
static const int64_t lengths[AXES] = {SAMPLES, TIMES, POINTS, CHANNELS};

/* What stands at (sample, time, x, channel). */
static float value_at(const int64_t at[AXES]) {
    return (float)(((at[0] * TIMES + at[1]) * POINTS + at[2]) * CHANNELS + at[3]);
}

/* u.npy with its axes in this order. */
static void write_npy(const char *path, const int order[AXES]) {
    static float values[ELEMENTS];
    for (int64_t e = 0; e < ELEMENTS; e++) {
        int64_t rest = e, at[AXES];
        for (int axis = AXES - 1; axis >= 0; axis--) {
            at[order[axis]] = rest % lengths[order[axis]];
            rest /= lengths[order[axis]];
        }
        values[e] = value_at(at);
    }
    char text[118];
    snprintf(text, sizeof text, "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld, %lld, %lld), }",
             (long long)lengths[order[0]], (long long)lengths[order[1]], (long long)lengths[order[2]],
             (long long)lengths[order[3]]);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file);
    fprintf(file, "%-117s\n", text);
    assert_int_equal(fwrite(values, sizeof *values, ELEMENTS, file), ELEMENTS);
    fclose(file);
}

static ups_source *open_mapped(const int order[AXES], const char *fields, ups_arena *arena) {
    char text[300];
    ups_error error;
    ups_mapping mapping;
    ups_source *source;
    write_npy(scratch("u.npy"), order);
    snprintf(text, sizeof text, "{fields: %s, axes: [%s, %s, %s, %s]}", fields, names[order[0]], names[order[1]],
             names[order[2]], names[order[3]]);
    if (ups_mapping_parse("test", text, arena, &mapping, &error) != UPS_OK) fail_msg("%s", error.message);
    const ups_layout_options options = {.mapping = &mapping};
    if (ups_layout_open(scratch("u.npy"), &options, &source, &error) != UPS_OK) fail_msg("%s", error.message);
    return source;
}

/* Reads frames and compares; `channel` is which of the array's the sample's first is. */
static void check_window(const ups_source *source, int64_t index, ups_frames frames, int64_t channel) {
    static float out[ELEMENTS];
    static ups_extent extents[ELEMENTS];
    ups_error error;
    ups_sample sample;
    int64_t count;
    uint64_t bytes = 0;
    assert_int_equal(ups_source_describe(source, index, &sample, &error), UPS_OK);
    const ups_source_limits limits = ups_source_window_limits(source, frames.count);
    assert_int_equal(source->class->extents(source, index, frames, extents, &count, &error), UPS_OK);
    for (int64_t i = 0; i < count; i++) bytes += extents[i].length;
    assert_true(count <= limits.extents && bytes <= limits.stored_bytes);
    if (ups_source_read(source, index, frames, out, &error) != UPS_OK) fail_msg("%s", error.message);
    for (int64_t t = 0; t < frames.count; t++) {
        for (int64_t x = 0; x < POINTS; x++) {
            for (int64_t c = 0; c < sample.channels; c++) {
                int64_t place = sample.order == UPS_CHANNELS_LAST ? x * sample.channels + c : c * POINTS + x;
                const int64_t at[AXES] = {index, frames.start + t, x, channel + c};
                assert_true(out[t * sample.channels * POINTS + place] == value_at(at));
            }
        }
    }
}

static void check_order(const int order[AXES]) {
    static const ups_frames windows[] = {{0, TIMES}, {0, 1}, {2, 3}, {TIMES - 1, 1}};
    static const struct {
        const char *fields;
        int64_t channel;
    } takes[] = {{"{a: 0, b: 1}", 0}, {"{b: 1}", 1}};
    for (size_t take = 0; take < sizeof takes / sizeof *takes; take++) {
        ups_arena *arena = ups_arena_create(0);
        ups_source *source = open_mapped(order, takes[take].fields, arena);
        assert_int_equal(source->count, SAMPLES);
        for (int64_t index = 0; index < SAMPLES; index++) {
            for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
                check_window(source, index, windows[w], takes[take].channel);
        }
        ups_source_close(source);
        ups_arena_destroy(arena);
    }
}

static void windows_of_axes_in_every_order_are_what_indexing_gives(void **state) {
    for (int code = 0; code < 256; code++) {
        const int order[AXES] = {code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6 & 3};
        unsigned seen = 0;
        for (int axis = 0; axis < AXES; axis++) seen |= 1u << order[axis];
        if (seen == 15) check_order(order);
    }
}

static void a_sample_is_read_without_what_lies_between_its_pieces(void **state) {
    static const int time_first[AXES] = {1, 0, 2, 3};
    ups_arena *arena = ups_arena_create(0);
    ups_source *source = open_mapped(time_first, "{a: 0, b: 1}", arena);
    const uint64_t frame = sizeof(float) * POINTS * CHANNELS;
    assert_int_equal(source->limits.extents, TIMES);
    assert_int_equal(source->limits.stored_bytes, TIMES * frame);
    ups_source_limits window = ups_source_window_limits(source, 2);
    assert_int_equal(window.extents, 2);
    assert_int_equal(window.stored_bytes, 2 * frame);
    ups_source_close(source);
    ups_arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_of_axes_in_every_order_are_what_indexing_gives),
        cmocka_unit_test(a_sample_is_read_without_what_lies_between_its_pieces),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
