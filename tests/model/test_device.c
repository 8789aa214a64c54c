/* The contract of a device (model/device.h), on the CPU and on the device whose work runs late: what was issued runs in
 * order, events tell when host memory may be touched, and the copy stream waits where it is told to. */
#include "model/devices/devices.h"
#include "model/update_channel.h"
#include "tests/base/skipping.h"
#include "tests/model/claims.h"
#include "tests/model/on_device.h"

#include <math.h>

enum { COUNT = 1000, ROUNDS = 50 };

static ups_device *device;

static int open_device(void **state) {
    return ups_device_open(&(ups_device_options){.name = getenv("UPS_TEST_DEVICE"), .threads = 1}, &device, NULL) !=
           UPS_OK;
}

static int close_device(void **state) {
    ups_device_close(device);
    return 0;
}

static float *memory(void) {
    void *made = NULL;
    ok(device->class->allocate(device, COUNT * sizeof(float), &made, &failure));
    return made;
}

static float *host_memory(void) {
    void *made = NULL;
    ok(device->class->allocate_host(device, COUNT * sizeof(float), &made, &failure));
    return made;
}

static ups_event *event(void) {
    ups_event *made = NULL;
    ok(device->class->event_create(device, &made, &failure));
    return made;
}

static void fill(float *host, float value) {
    for (int i = 0; i < COUNT; i++) host[i] = value;
}

static void assert_all(const float *host, float value) {
    for (int i = 0; i < COUNT; i++) assert_true(host[i] == value);
}

CLAIM(host_memory_may_be_filled_again_once_an_event_after_its_upload_has_passed) {
    const ups_device_class *class = device->class;
    float *x = memory(), *host = host_memory(), back[COUNT];
    ups_event *read = event();
    for (int round = 0; round < ROUNDS; round++) {
        ok(class->event_wait(device, read, &failure));
        fill(host, (float)round);
        ok(class->upload(device, x, host, sizeof back, &failure));
        ok(class->event_record(device, read, UPS_STREAM_COMPUTE, &failure));
    }
    ok(class->download(device, back, x, sizeof back, &failure));
    assert_all(back, ROUNDS - 1);
    class->release(device, x);
    class->release_host(device, host);
    class->event_destroy(device, read);
}

CLAIM(a_download_is_there_when_an_event_after_it_has_passed) {
    const ups_device_class *class = device->class;
    float *x = memory(), *y = memory(), *to = host_memory(), from[COUNT];
    ups_event *there = event();
    fill(from, 3);
    ok(class->upload(device, x, from, sizeof from, &failure));
    ok(class->copy(device, y, x, sizeof from, &failure));
    ok(class->download_later(device, to, y, sizeof from, &failure));
    ok(class->zero(device, y, sizeof from, &failure));
    ok(class->event_record(device, there, UPS_STREAM_COMPUTE, &failure));
    ok(class->event_wait(device, there, &failure));
    assert_all(to, 3);
    ok(class->download(device, from, y, sizeof from, &failure));
    assert_all(from, 0);
    class->release(device, x);
    class->release(device, y);
    class->release_host(device, to);
    class->event_destroy(device, there);
}

/* A batch after the other: brought in on the copy stream, taken on the compute stream. */
CLAIM(the_streams_take_turns_where_events_say_so) {
    const ups_device_class *class = device->class;
    float *staged = memory(), *taken[ROUNDS], *host = host_memory(), back[COUNT];
    ups_event *uploaded = event(), *consumed = event();
    for (int round = 0; round < ROUNDS; round++) {
        taken[round] = memory();
        ok(class->event_wait(device, uploaded, &failure));
        fill(host, (float)round);
        ok(class->stream_wait(device, UPS_STREAM_COPY, consumed, &failure));
        ok(class->upload_ahead(device, staged, host, sizeof back, &failure));
        ok(class->event_record(device, uploaded, UPS_STREAM_COPY, &failure));
        ok(class->stream_wait(device, UPS_STREAM_COMPUTE, uploaded, &failure));
        ok(class->copy(device, taken[round], staged, sizeof back, &failure));
        ok(class->event_record(device, consumed, UPS_STREAM_COMPUTE, &failure));
    }
    for (int round = 0; round < ROUNDS; round++) {
        ok(class->download(device, back, taken[round], sizeof back, &failure));
        assert_all(back, (float)round);
        class->release(device, taken[round]);
    }
    class->release(device, staged);
    class->release_host(device, host);
    class->event_destroy(device, uploaded);
    class->event_destroy(device, consumed);
}

/* Of any length that rows may have: short ones, and ones that a card's blocks go round for. */
CLAIM(rows_are_gathered_from_anywhere) {
    static const size_t lengths[] = {2, 6, 1036, 8202, 16396, 65568};
    enum { ROWS = 5, MOST = 65568 };
    const ups_device_class *class = device->class;
    if (!class->gather_ahead) skip_because("memory of the device '%s' is the host's", class->name);
    unsigned char *host = malloc(ROWS * MOST), *back = malloc(ROWS * MOST);
    void *from = NULL, *to = NULL, *places = NULL;
    ups_event *gathered = event();
    for (size_t i = 0; i < (size_t)ROWS * MOST; i++) host[i] = (unsigned char)(i * 7 + i / 251);
    ok(class->allocate(device, ROWS * MOST, &from, &failure));
    ok(class->allocate(device, ROWS * MOST, &to, &failure));
    ok(class->allocate(device, ROWS * sizeof(void *), &places, &failure));
    write_device(device, from, host, ROWS * MOST);
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
        const void *rows[ROWS];
        const int order[ROWS] = {3, 0, 4, 4, 1};
        for (int i = 0; i < ROWS; i++) rows[i] = (char *)from + (size_t)order[i] * lengths[n];
        write_device(device, places, rows, sizeof rows);
        ok(class->gather_ahead(device, to, places, ROWS, lengths[n], &failure));
        ok(class->event_record(device, gathered, UPS_STREAM_COPY, &failure));
        ok(class->stream_wait(device, UPS_STREAM_COMPUTE, gathered, &failure));
        ok(class->download(device, back, to, ROWS * lengths[n], &failure));
        for (int i = 0; i < ROWS; i++)
            assert_memory_equal(back + (size_t)i * lengths[n], host + (size_t)order[i] * lengths[n], lengths[n]);
    }
    class->event_destroy(device, gathered);
    class->release(device, from);
    class->release(device, to);
    class->release(device, places);
    free(host);
    free(back);
}

CLAIM(results_come_back_in_the_order_they_were_taken_in) {
    ups_update_channel *channel = NULL;
    ups_update update;
    ok(ups_update_open(device, &channel, &failure));
    for (int64_t step = 0; step < ROUNDS; step++) {
        for (int64_t m = 0; m < 3; m++) {
            ok(ups_update_give(channel, &(ups_update_input){.step = step, .micro_batch = m}, &failure));
        }
        ok(ups_update_take(channel, &failure));
        if (step == 0) continue;
        ok(ups_update_read(channel, &update, &failure));
        assert_int_equal(update.input.step, step - 1);
        assert_int_equal(update.input.micro_batch, 2);
        assert_true(update.state.loss_scale == 1);
    }
    ok(ups_update_take(channel, &failure));
    assert_int_equal(ups_update_take(channel, &failure), UPS_ERR_ARGUMENT);
    for (int i = 0; i < UPS_UPDATE_TAKEN; i++) ok(ups_update_read(channel, &update, &failure));
    assert_int_equal(ups_update_read(channel, &update, &failure), UPS_ERR_ARGUMENT);
    ups_update_close(channel);
}

/* The test's own device finds what others forgive. */
CLAIM(the_late_device_takes_host_memory_and_refuses_what_is_not_its_own) {
    ups_device *const before = device;
    if (ups_device_open(&(ups_device_options){.name = "test-async", .threads = 1}, &device, &failure) != UPS_OK) {
        device = before;
        skip_because("this program is without the device test-async");
    }
    const ups_device_class *class = device->class;
    float *x = memory(), *host = host_memory();
    fill(host, 1);
    ok(class->upload(device, x, host, COUNT * sizeof *host, &failure));
    ok(class->synchronize(device, &failure));
    assert_true(isnan(host[0]) && isnan(host[COUNT - 1]));
    ok(class->capture_begin(device, &failure));
    assert_int_equal(class->upload(device, x, host, COUNT * sizeof *host, &failure), UPS_ERR_ARGUMENT);
    ups_capture *capture = NULL;
    assert_int_equal(class->capture_end(device, &capture, &failure), UPS_ERR_ARGUMENT); /* told by all that follows */
    assert_contains(failure.message, "cannot be captured");
    class->capture_release(device, capture);
    class->release(device, x);
    class->release_host(device, host);
    ups_device_close(device);

    ok(ups_device_open(&(ups_device_options){.name = "test-async", .threads = 1}, &device, &failure));
    x = memory();
    float here[COUNT];
    refused(device->class->copy(device, x, here, sizeof here, &failure), UPS_ERR_ARGUMENT, "host memory was handed");
    device->class->release(device, x);
    ups_device_close(device);
    device = before;
}

int main(void) {
    return run_claims(open_device, close_device, NULL);
}
