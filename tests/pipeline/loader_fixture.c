#include "loader_fixture.h"

#include "base/half.h"
#include "tests/base/testing.h"

static char directory[] = "ups-test-loader-XXXXXX";

const plain_options ordinary = {.directory = directory,
                                .name = "ordinary",
                                .dtype = UPS_F32,
                                .samples = 13,
                                .times = 11,
                                .elements = 33,
                                .chunk_frames = 4,
                                .bad_sample = -1,
                                .undecodable = -1};

const ups_loader_options pairs = {.seed = 3,
                                  .batch = 8,
                                  .windows_per_draw = 1,
                                  .window = 2,
                                  .stride = 1,
                                  .batch_count = 10,
                                  .ranks = 1,
                                  .decode_threads = 3};

int make_directory(void **state) {
    return mkdtemp(directory) ? 0 : -1;
}

int remove_directory(void **state) {
    return rmdir(directory);
}

ups_loader *open_tasks(const ups_loader_options *options, const ups_loader_task *tasks, int32_t count) {
    ups_loader *loader = NULL;
    ups_error error = {0};
    if (ups_loader_open(options, tasks, count, &loader, &error) != UPS_OK) fail_msg("%s", error.message);
    return loader;
}

ups_loader *open_one(const ups_loader_options *options, const ups_source *source) {
    return open_kept(options, source, NULL);
}

ups_loader *open_kept(const ups_loader_options *options, const ups_source *source, ups_store *store) {
    ups_loader_task task = {.name = "ordinary", .source = source, .store = store};
    return open_tasks(options, &task, 1);
}

const ups_batch *next(ups_loader *loader) {
    const ups_batch *batch = NULL;
    ups_error error = {0};
    if (ups_loader_next(loader, &batch, &error) != UPS_OK) fail_msg("%s", error.message);
    return batch;
}

void check_batch(const ups_batch *batch, int64_t stride) {
    for (int64_t w = 0; w < batch->windows; w++) {
        const ups_window *window = &batch->window[w];
        for (int64_t f = 0; f < batch->frames; f++)
            for (int64_t e = 0; e < batch->frame_elements; e++) {
                size_t at = (size_t)(f * window->frame_step + e);
                float found;
                if (batch->dtype == UPS_F16)
                    ups_f16_to_f32((const ups_f16 *)window->frames + at, &found, 1);
                else
                    found = ((const float *)window->frames)[at];
                float expected = plain_value(window->sample, window->start + f * stride, e);
                if (found != expected)
                    fail_msg("batch %d, window %d, frame %d, element %d: %g instead of %g", (int)batch->index, (int)w,
                             (int)f, (int)e, (double)found, (double)expected);
            }
        if (!batch->data) continue;
        size_t window_bytes = (size_t)(batch->frames * batch->frame_elements) * ups_dtype_size(batch->dtype);
        assert_ptr_equal(window->frames, (const uint8_t *)batch->data + (size_t)w * window_bytes);
        assert_int_equal(window->frame_step, batch->frame_elements);
    }
}

ups_loader_statistics check_batches(ups_loader *loader, const ups_loader_options *options, const plain_options *plain) {
    const ups_batch *batch;
    int64_t batches = 0;
    int64_t frames = options->window ? options->window : plain->times;
    while ((batch = next(loader))) {
        assert_int_equal(batch->index, batches++);
        assert_int_equal(batch->windows, options->batch);
        assert_int_equal(batch->frames, frames);
        assert_int_equal(batch->frame_elements, plain->elements);
        check_batch(batch, options->stride);
        for (int64_t w = 0; w < batch->windows; w++) {
            const ups_window *window = &batch->window[w];
            assert_in_range(window->start, 0, plain->times - 1 - (frames - 1) * options->stride);
            assert_true(window->dt == (frames > 1 ? 0.25 * (double)options->stride : 0.0));
            assert_true(window->parameters[0] == 0.5 * (double)window->sample);
        }
        ups_loader_release(loader, batch);
    }
    assert_int_equal(batches, options->batch_count);
    ups_loader_statistics statistics;
    ups_loader_statistics_get(loader, &statistics);
    assert_int_equal(statistics.batches, batches);
    assert_int_equal(statistics.windows, batches * options->batch);
    assert_int_equal(statistics.trajectories, batches * options->batch / options->windows_per_draw);
    return statistics;
}

void check_run(const ups_loader_options *options, const ups_source *source, const plain_options *plain) {
    ups_loader *loader = open_one(options, source);
    check_batches(loader, options, plain);
    ups_loader_close(loader);
}

int64_t record_order(ups_loader_options options, const ups_source *source, int64_t (*order)[2]) {
    ups_loader *loader = open_one(&options, source);
    const ups_batch *batch;
    int64_t count = 0;
    while ((batch = next(loader))) {
        check_batch(batch, options.stride);
        int64_t global = batch->index * options.batch * options.ranks + options.rank * options.batch;
        for (int64_t w = 0; w < batch->windows; w++, count++) {
            order[global + w][0] = batch->window[w].sample;
            order[global + w][1] = batch->window[w].start;
        }
        ups_loader_release(loader, batch);
    }
    ups_loader_close(loader);
    return count;
}

int64_t run_to_failure(ups_loader *loader, ups_status expected, ups_error *error) {
    const ups_batch *batch = NULL;
    int64_t batches = 0;
    ups_status status;
    while ((status = ups_loader_next(loader, &batch, error)) == UPS_OK) {
        assert_non_null(batch);
        check_batch(batch, 1);
        batches++;
        ups_loader_release(loader, batch);
    }
    assert_int_equal(status, expected);
    assert_null(batch);
    ups_error again = {0};
    assert_int_equal(ups_loader_next(loader, &batch, &again), expected); /* and it stays that way */
    assert_string_equal(again.message, error->message);
    return batches;
}
