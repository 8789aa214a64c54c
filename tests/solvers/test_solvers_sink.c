/* Frames become float32 values in the file's order, in bounded pieces; what is wrong with them is said. */
#include "base/system/cancel.h"
#include "tests/base/testing.h"
#include "tools/solvers/writer/sink.h"

#include <math.h>

/* velocity (times, cells, cells, 2), force (cells, cells, 2), t (times): an incompressible file's arrays. */
enum { TIMES = 7, CELLS = 200, COUNT = CELLS * CELLS, VELOCITY = 0, FORCE = 1, CLOCK = 2 };

typedef struct received {
    float *values[3];
    int64_t next[3], longest;
    int64_t sample;
} received;

static ups_status receive(void *context, int array, int64_t sample, int64_t first, const float *values, int64_t count,
                          ups_error *error) {
    received *got = context;
    assert_int_equal(first, got->next[array]);
    assert_int_equal(sample, got->sample);
    memcpy(got->values[array] + first, values, sizeof(float) * (size_t)count);
    got->next[array] += count;
    if (count > got->longest) got->longest = count;
    return UPS_OK;
}

static ups_file_layout layout_of_flow(void) {
    ups_file_layout layout = {0};
    ups_file_add_array(&layout, "velocity", TIMES, 2, CELLS, 2);
    ups_file_add_array(&layout, "force", 0, 2, CELLS, 2);
    ups_file_add_array(&layout, "t", TIMES, 0, 0, 0);
    return layout;
}

static double value_of(int64_t frame, int64_t point, int channel) {
    return (double)frame + 1e-3 * (double)(point % 977) + 100.0 * channel;
}

static void frames_arrive_in_order_with_channels_woven_and_in_bounded_pieces(void **state) {
    ups_error error = {0};
    const ups_file_layout layout = layout_of_flow();
    received got = {.sample = 5};
    for (int a = 0; a < 3; a++)
        got.values[a] = malloc(sizeof(float) * (size_t)ups_file_sample_values(&layout.arrays[a]));
    double *planes[2] = {malloc(sizeof(double) * COUNT), malloc(sizeof(double) * COUNT)};
    ups_sink *sink = ups_sink_create(&layout, receive, &got);
    ups_sink_begin(sink, 5);
    for (int64_t frame = 0; frame < TIMES; frame++) {
        for (int64_t i = 0; i < COUNT; i++) {
            planes[0][i] = value_of(frame, i, 0);
            planes[1][i] = value_of(frame, i, 1);
        }
        const double now = 0.25 * (double)frame;
        assert_int_equal(ups_sink_put_channels(sink, VELOCITY, frame, (const double *const *)planes, &error), UPS_OK);
        assert_int_equal(ups_sink_put(sink, CLOCK, frame, &now, &error), UPS_OK);
    }
    assert_int_equal(ups_sink_put_channels(sink, FORCE, 0, (const double *const *)planes, &error), UPS_OK);
    assert_int_equal(ups_sink_end(sink, &error), UPS_OK);
    for (int64_t i = 0; i < TIMES * COUNT; i++) {
        assert_float_equal(got.values[VELOCITY][2 * i], (float)value_of(i / COUNT, i % COUNT, 0), 0.0f);
        assert_float_equal(got.values[VELOCITY][2 * i + 1], (float)value_of(i / COUNT, i % COUNT, 1), 0.0f);
    }
    for (int64_t i = 0; i < COUNT; i++)
        assert_float_equal(got.values[FORCE][2 * i + 1], (float)value_of(TIMES - 1, i, 1), 0.0f);
    for (int t = 0; t < TIMES; t++) assert_float_equal(got.values[CLOCK][t], 0.25f * (float)t, 0.0f);
    assert_true(got.longest < 2 * TIMES * COUNT / 3);
    ups_sink_destroy(sink);
    free(planes[1]);
    free(planes[0]);
    for (int a = 0; a < 3; a++) free(got.values[a]);
}

static ups_status forget(void *context, int array, int64_t sample, int64_t first, const float *values, int64_t count,
                         ups_error *error) {
    return UPS_OK;
}

static void a_value_that_is_no_float_is_told_with_its_array_and_frame(void **state) {
    ups_file_layout layout = {0};
    ups_file_add_array(&layout, "density", 4, 1, 3, 0);
    static const double wrong[] = {NAN, INFINITY, -1e300};
    for (int w = 0; w < 3; w++) {
        ups_error error = {0};
        ups_sink *sink = ups_sink_create(&layout, forget, NULL);
        ups_sink_begin(sink, 0);
        ups_status status = UPS_OK;
        for (int frame = 0; status == UPS_OK && frame < 4; frame++) {
            const double values[3] = {1.0, frame == 2 ? wrong[w] : 2.0, 3.0};
            status = ups_sink_put(sink, 0, frame, values, &error);
        }
        if (status == UPS_OK) status = ups_sink_end(sink, &error);
        assert_int_equal(status, UPS_ERR_NUMERIC);
        assert_contains(error.message, "density, frame 2");
        ups_sink_destroy(sink);
    }
}

static void a_frame_that_is_missing_or_out_of_order_is_refused(void **state) {
    ups_error error = {0};
    ups_file_layout layout = {0};
    ups_file_add_array(&layout, "tensor", 3, 1, 2, 0);
    const double values[2] = {0.0, 1.0};
    ups_sink *sink = ups_sink_create(&layout, forget, NULL);
    ups_sink_begin(sink, 0);
    assert_int_equal(ups_sink_put(sink, 0, 1, values, &error), UPS_ERR_ARGUMENT);
    assert_int_equal(ups_sink_put(sink, 0, 0, values, &error), UPS_OK);
    assert_int_equal(ups_sink_put(sink, 0, 0, values, &error), UPS_ERR_ARGUMENT);
    assert_int_equal(ups_sink_end(sink, &error), UPS_ERR_ARGUMENT);
    ups_sink_destroy(sink);
}

static void after_ctrl_c_no_frame_is_taken(void **state) {
    ups_error error = {0};
    ups_file_layout layout = {0};
    ups_file_add_array(&layout, "tensor", 3, 1, 2, 0);
    const double values[2] = {0.0, 1.0};
    ups_sink *sink = ups_sink_create(&layout, forget, NULL);
    ups_sink_begin(sink, 0);
    ups_cancel_request();
    assert_int_equal(ups_sink_put(sink, 0, 0, values, &error), UPS_ERR_CANCELLED);
    ups_cancel_reset();
    ups_sink_destroy(sink);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_arrive_in_order_with_channels_woven_and_in_bounded_pieces),
        cmocka_unit_test(a_value_that_is_no_float_is_told_with_its_array_and_frame),
        cmocka_unit_test(a_frame_that_is_missing_or_out_of_order_is_refused),
        cmocka_unit_test(after_ctrl_c_no_frame_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
