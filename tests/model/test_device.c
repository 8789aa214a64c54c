/* The contract of a device (model/device.h), on the CPU and on the device whose work runs late: what was issued runs in
 * order, events tell when host memory may be touched, and the copy stream waits where it is told to. */
#include "tests/base/testing.h"
#include "tests/model/async_device.h"
#include "tests/model/on_device.h"

#include <math.h>

enum { COUNT = 1000, ROUNDS = 50 };

static ups_device *device;

static void ok(ups_status status, const ups_error *error) {
    if (status != UPS_OK) fail_msg("%s", error->message);
}

static int open_device(void **state) {
    return ups_device_open(&(ups_device_options){.threads = 1}, &device, NULL) != UPS_OK;
}

static int close_device(void **state) {
    ups_device_close(device);
    return 0;
}

static float *memory(void) {
    ups_error error;
    void *made = NULL;
    ok(device->class->allocate(device, COUNT * sizeof(float), &made, &error), &error);
    return made;
}

static float *host_memory(void) {
    ups_error error;
    void *made = NULL;
    ok(device->class->allocate_host(device, COUNT * sizeof(float), &made, &error), &error);
    return made;
}

static ups_event *event(void) {
    ups_error error;
    ups_event *made = NULL;
    ok(device->class->event_create(device, &made, &error), &error);
    return made;
}

static void fill(float *host, float value) {
    for (int i = 0; i < COUNT; i++) host[i] = value;
}

static void assert_all(const float *host, float value) {
    for (int i = 0; i < COUNT; i++) assert_true(host[i] == value);
}

static void host_memory_may_be_filled_again_once_an_event_after_its_upload_has_passed(void **state) {
    const ups_device_class *class = device->class;
    ups_error error;
    float *x = memory(), *host = host_memory(), back[COUNT];
    ups_event *read = event();
    for (int round = 0; round < ROUNDS; round++) {
        ok(class->event_wait(device, read, &error), &error);
        fill(host, (float)round);
        ok(class->upload(device, x, host, sizeof back, &error), &error);
        ok(class->event_record(device, read, UPS_STREAM_COMPUTE, &error), &error);
    }
    ok(class->download(device, back, x, sizeof back, &error), &error);
    assert_all(back, ROUNDS - 1);
    class->release(device, x);
    class->release_host(device, host);
    class->event_destroy(device, read);
}

static void a_download_is_there_when_an_event_after_it_has_passed(void **state) {
    const ups_device_class *class = device->class;
    ups_error error;
    float *x = memory(), *y = memory(), *to = host_memory(), from[COUNT];
    ups_event *there = event();
    fill(from, 3);
    ok(class->upload(device, x, from, sizeof from, &error), &error);
    ok(class->copy(device, y, x, sizeof from, &error), &error);
    ok(class->download_later(device, to, y, sizeof from, &error), &error);
    ok(class->zero(device, y, sizeof from, &error), &error);
    ok(class->event_record(device, there, UPS_STREAM_COMPUTE, &error), &error);
    ok(class->event_wait(device, there, &error), &error);
    assert_all(to, 3);
    ok(class->download(device, from, y, sizeof from, &error), &error);
    assert_all(from, 0);
    class->release(device, x);
    class->release(device, y);
    class->release_host(device, to);
    class->event_destroy(device, there);
}

/* A batch after the other: brought in on the copy stream, taken on the compute stream. */
static void the_streams_take_turns_where_events_say_so(void **state) {
    const ups_device_class *class = device->class;
    ups_error error;
    float *staged = memory(), *taken[ROUNDS], *host = host_memory(), back[COUNT];
    ups_event *uploaded = event(), *consumed = event();
    for (int round = 0; round < ROUNDS; round++) {
        taken[round] = memory();
        ok(class->event_wait(device, uploaded, &error), &error);
        fill(host, (float)round);
        ok(class->stream_wait(device, UPS_STREAM_COPY, consumed, &error), &error);
        ok(class->upload_ahead(device, staged, host, sizeof back, &error), &error);
        ok(class->event_record(device, uploaded, UPS_STREAM_COPY, &error), &error);
        ok(class->stream_wait(device, UPS_STREAM_COMPUTE, uploaded, &error), &error);
        ok(class->copy(device, taken[round], staged, sizeof back, &error), &error);
        ok(class->event_record(device, consumed, UPS_STREAM_COMPUTE, &error), &error);
    }
    for (int round = 0; round < ROUNDS; round++) {
        ok(class->download(device, back, taken[round], sizeof back, &error), &error);
        assert_all(back, (float)round);
        class->release(device, taken[round]);
    }
    class->release(device, staged);
    class->release_host(device, host);
    class->event_destroy(device, uploaded);
    class->event_destroy(device, consumed);
}

static void results_come_back_in_the_order_they_were_taken_in(void **state) {
    ups_error error;
    ups_update_channel *channel = NULL;
    ups_update update;
    ok(ups_update_open(device, &channel, &error), &error);
    for (int64_t step = 0; step < ROUNDS; step++) {
        for (int64_t m = 0; m < 3; m++) {
            ok(ups_update_give(channel, &(ups_update_input){.step = step, .micro_batch = m}, &error), &error);
        }
        ok(ups_update_take(channel, &error), &error);
        if (step == 0) continue;
        ok(ups_update_read(channel, &update, &error), &error);
        assert_int_equal(update.input.step, step - 1);
        assert_int_equal(update.input.micro_batch, 2);
        assert_true(update.state.loss_scale == 1);
    }
    ok(ups_update_take(channel, &error), &error);
    assert_int_equal(ups_update_take(channel, &error), UPS_ERR_ARGUMENT);
    for (int i = 0; i < UPS_UPDATE_TAKEN; i++) ok(ups_update_read(channel, &update, &error), &error);
    assert_int_equal(ups_update_read(channel, &update, &error), UPS_ERR_ARGUMENT);
    ups_update_close(channel);
}

/* The test's own device finds what others forgive. */
static void the_late_device_takes_host_memory_and_refuses_what_is_not_its_own(void **state) {
    ups_device *const before = device;
    ups_error error;
    ok(ups_device_open(&(ups_device_options){.name = "test-async", .threads = 1}, &device, &error), &error);
    const ups_device_class *class = device->class;
    float *x = memory(), *host = host_memory();
    fill(host, 1);
    ok(class->upload(device, x, host, COUNT * sizeof *host, &error), &error);
    ok(class->synchronize(device, &error), &error);
    assert_true(isnan(host[0]) && isnan(host[COUNT - 1]));
    ok(class->capture_begin(device, &error), &error);
    assert_int_equal(class->upload(device, x, host, COUNT * sizeof *host, &error), UPS_ERR_ARGUMENT);
    ups_capture *capture = NULL;
    assert_int_equal(class->capture_end(device, &capture, &error), UPS_ERR_ARGUMENT); /* told by all that follows */
    assert_non_null(strstr(error.message, "cannot be captured"));
    class->capture_release(device, capture);
    class->release(device, x);
    class->release_host(device, host);
    ups_device_close(device);

    ok(ups_device_open(&(ups_device_options){.name = "test-async", .threads = 1}, &device, &error), &error);
    x = memory();
    float here[COUNT];
    assert_int_equal(device->class->copy(device, x, here, sizeof here, &error), UPS_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "host memory was handed"));
    device->class->release(device, x);
    ups_device_close(device);
    device = before;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_memory_may_be_filled_again_once_an_event_after_its_upload_has_passed),
        cmocka_unit_test(a_download_is_there_when_an_event_after_it_has_passed),
        cmocka_unit_test(the_streams_take_turns_where_events_say_so),
        cmocka_unit_test(results_come_back_in_the_order_they_were_taken_in),
        cmocka_unit_test(the_late_device_takes_host_memory_and_refuses_what_is_not_its_own),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
