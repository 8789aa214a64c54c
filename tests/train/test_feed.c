/* Frames of batches come into a step the same from the host and from the device's memory, whatever part of them the
 * device has room for. */
#include "train/data/feed.h"

#include "model/devices/devices.h"
#include "model/ops.h"
#include "tests/model/claims.h"
#include "tests/pipeline/plain_source.h"

enum { SAMPLES = 12, TIMES = 11, BATCH = 4, WINDOW = 5, BATCHES = 40 };

typedef struct fixture {
    ups_device *device;
    ups_source *source;
    ups_store *store;
    ups_loader_task task;
    ups_loader *loader;
    ups_parameters *parameters;
    ups_graph *graph;
    ups_value input, seen;
    ups_step *step;
    ups_feed *feed;
    int64_t elements;
} fixture;

static void open_source(fixture *f, int64_t stride, uint64_t store_bytes, bool in_place) {
    const plain_options plain = {.directory = scratch("."),
                                 .name = "plain",
                                 .dtype = UPS_F16,
                                 .samples = SAMPLES,
                                 .times = TIMES,
                                 .elements = f->elements,
                                 .bad_sample = -1,
                                 .undecodable = -1};
    f->source = plain_source(&plain);
    const ups_store_options kept = {.residency = UPS_RESIDENCY_RAM, .dtype = UPS_F16, .max_bytes = store_bytes};
    ok(ups_store_open(f->source, NULL, 0, &kept, &f->store, &failure));
    f->task = (ups_loader_task){.name = "plain",
                                .source = f->source,
                                .sample_count = SAMPLES,
                                .weight = 1,
                                .store = f->store,
                                .stride = stride};
    const ups_loader_options options = {.seed = 3,
                                        .batch = BATCH,
                                        .windows_per_draw = 2,
                                        .window = WINDOW,
                                        .stride = 1,
                                        .dtype = UPS_F16,
                                        .batch_count = BATCHES,
                                        .ranks = 1,
                                        .decode_threads = 1,
                                        .in_place = in_place};
    ok(ups_loader_open(&options, &f->task, 1, &f->loader, &failure));
}

/* Windows of `frames` frames become float32. */
static void open_step(fixture *f, int64_t frames) {
    f->parameters = ups_parameters_create();
    f->graph = ups_graph_create(f->parameters, UPS_F32);
    f->input = ups_graph_input(f->graph, "frames", UPS_F16, UPS_SHAPE(BATCH, frames, f->elements));
    f->seen = ups_cast(f->graph, f->input, UPS_F32);
    ups_graph_keep(f->graph, f->seen);
    ok(ups_parameters_allocate(f->parameters, f->device, false, UPS_F32, 1, &failure));
    ok(ups_step_create(f->graph, f->device, &f->step, &failure));
}

static void close_all(fixture *f) {
    ok(f->device->class->synchronize(f->device, &failure));
    ups_feed_close(f->feed);
    ups_step_destroy(f->step);
    ups_graph_destroy(f->graph);
    ups_parameters_destroy(f->parameters);
    ups_loader_close(f->loader);
    ups_store_close(f->store);
    ups_source_close(f->source);
}

static void check(const fixture *f, const ups_batch *batch, const int64_t *first, int64_t count, int64_t spacing) {
    const int64_t rows = BATCH * count;
    float *seen = malloc((size_t)(rows * f->elements) * sizeof *seen);
    ok(ups_step_download(f->step, f->seen, seen, (size_t)(rows * f->elements) * sizeof *seen, &failure));
    for (int64_t row = 0; row < rows; row++) {
        const ups_window *window = &batch->window[row / count];
        const int64_t within = (first ? first[row / count] : 0) + row % count * spacing;
        const int64_t frame = window->start + within * (f->task.stride ? f->task.stride : 1);
        for (int64_t e = 0; e < f->elements; e++) {
            if (seen[row * f->elements + e] != plain_value(window->sample, frame, e))
                fail_msg("batch %lld, row %lld: not the frame %lld of sample %lld", (long long)batch->index,
                         (long long)row, (long long)frame, (long long)window->sample);
        }
    }
    free(seen);
}

/* Batches as they come, whole or in parts; what lies on the device in the end. */
static ups_feed_facts feed_all(fixture *f, const int64_t *first, int64_t count, int64_t spacing,
                               uint64_t device_bytes) {
    const ups_stores_list list = {&f->task, 1};
    const ups_feed_options options = {.device = f->device,
                                      .lists = &list,
                                      .list_count = 1,
                                      .dtype = UPS_F16,
                                      .rows = BATCH * count,
                                      .elements = BATCH * count * f->elements,
                                      .draws = ups_feed_can_keep_on(f->device),
                                      .device_bytes = device_bytes};
    ok(ups_feed_open(&options, &f->feed, &failure));
    int64_t batches = 0;
    for (const ups_batch *batch;; batches++) {
        ok(ups_loader_next(f->loader, &batch, &failure));
        if (!batch) break;
        ups_feed_take(f->feed, batch, &f->task);
        ok(ups_feed_upload(f->feed, f->step, f->input, first, count, spacing, &failure));
        ok(ups_step_run(f->step, &(ups_step_run_options){0}, &failure));
        ok(ups_step_wait_uploaded(f->step, &failure));
        check(f, batch, first, count, spacing);
        ups_loader_release(f->loader, batch);
    }
    assert_int_equal(batches, BATCHES);
    return ups_feed_look(f->feed);
}

static ups_device *open_device(void) {
    const char *name = getenv("UPS_TEST_DEVICE");
    ups_device *device = NULL;
    ok(ups_device_open(&(ups_device_options){.name = name ? name : "cpu", .threads = 1}, &device, &failure));
    return device;
}

/* `elements`: of a frame; rows of 16, 4 and 2 bytes at once. */
static void check_room(int64_t elements, int64_t stride, uint64_t store_samples, uint64_t device_samples) {
    static const int64_t places[BATCH] = {1, 0, 2, 1};
    const uint64_t trajectory =
        ((uint64_t)(TIMES * elements) * 2 + UPS_STORE_ALIGNMENT - 1) / UPS_STORE_ALIGNMENT * UPS_STORE_ALIGNMENT;
    for (int parts = 0; parts < 2; parts++) {
        fixture f = {.device = open_device(), .elements = elements};
        const bool stays = ups_feed_can_keep_on(f.device);
        open_source(&f, stride, store_samples * trajectory, stays);
        open_step(&f, parts ? 2 : WINDOW);
        ups_feed_facts facts = feed_all(&f, parts ? places : NULL, parts ? 2 : WINDOW, parts ? 2 : 1,
                                        stays ? device_samples * trajectory : 0);
        const uint64_t kept = store_samples < device_samples ? store_samples : device_samples;
        const int64_t most = kept < SAMPLES ? (int64_t)kept : SAMPLES;
        assert_true(facts.bytes <= facts.room);
        assert_int_equal(facts.drawn + facts.sent, BATCHES * BATCH);
        if (!stays) {
            assert_true(facts.trajectories == 0 && facts.drawn == 0);
        } else if (most == SAMPLES) { /* but what was not in the store yet */
            assert_true(facts.trajectories == SAMPLES && facts.drawn > BATCHES * BATCH / 2);
        } else {
            assert_true(facts.trajectories <= most && (facts.trajectories > 0) == (most > 0));
            assert_true((facts.drawn > 0) == (most > 0) && facts.sent > 0);
        }
        close_all(&f);
        ups_device_close(f.device);
    }
}

CLAIM(windows_are_the_same_where_all_trajectories_stay_on_the_device) {
    check_room(32, 1, 100, 100);
    check_room(6, 2, 100, 100);
    check_room(3, 1, 100, 100);
}

CLAIM(windows_are_the_same_where_some_do) {
    check_room(32, 1, 100, 5);
    check_room(3, 2, 100, 11);
    check_room(8, 1, 7, 100);
    check_room(8, 2, 9, 4);
}

CLAIM(windows_are_the_same_where_none_does) {
    check_room(8, 1, 100, 0);
    check_room(8, 2, 0, 100);
}

CLAIM(more_than_was_said_is_refused) {
    fixture f = {.device = open_device(), .elements = 8};
    open_source(&f, 1, 0, true);
    open_step(&f, WINDOW);
    const ups_feed_options options = {.device = f.device, .dtype = UPS_F16, .rows = 1, .elements = 8};
    ok(ups_feed_open(&options, &f.feed, &failure));
    const ups_batch *batch;
    ok(ups_loader_next(f.loader, &batch, &failure));
    ups_feed_take(f.feed, batch, &f.task);
    refused(ups_feed_upload(f.feed, f.step, f.input, NULL, WINDOW, 1, &failure), UPS_ERR_ARGUMENT,
            "more than was said");
    ups_loader_release(f.loader, batch);
    close_all(&f);
    ups_device_close(f.device);
}

int main(void) {
    return run_claims(make_scratch, remove_scratch, NULL);
}
