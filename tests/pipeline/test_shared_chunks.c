/* Decoded chunks that samples share: each is decoded once in a pass, and nobody reads one that is not whole, or was
 * replaced. */
#include "tests/base/testing.h"

#include "pipeline/layouts/layouts.h"
#include "pipeline/loader/loader.h"
#include "pipeline/storage/shared_chunks.h"
#include "tests/pipeline/hdf5_writer.h"
#include <pthread.h>
#include <stdatomic.h>

enum { BYTES = 64, PLACES = 4, CHUNKS = 64 };

static void a_pass_over_the_chunks_fills_each_once(void **state) {
    ups_shared_chunks *shared = ups_shared_chunks_create(BYTES, PLACES);
    uint8_t *bytes;
    for (int64_t chunk = 0; chunk < CHUNKS; chunk++) {
        assert_int_equal(ups_shared_chunks_take(shared, chunk, true, &bytes), UPS_SHARED_FILL);
        memset(bytes, (int)chunk, BYTES);
        ups_shared_chunks_filled(shared, chunk, true);
        for (int sample = 0; sample < 5; sample++) {
            assert_int_equal(ups_shared_chunks_take(shared, chunk, true, &bytes), UPS_SHARED_THERE);
            assert_int_equal(bytes[BYTES - 1], chunk);
            ups_shared_chunks_release(shared, chunk);
        }
    }
    ups_shared_chunks_destroy(shared);
}

static void a_chunk_that_is_read_keeps_its_place(void **state) {
    ups_shared_chunks *shared = ups_shared_chunks_create(BYTES, PLACES);
    uint8_t *bytes, *other;
    assert_int_equal(ups_shared_chunks_take(shared, 1, true, &bytes), UPS_SHARED_FILL);
    assert_int_equal(ups_shared_chunks_take(shared, 1, false, &other), UPS_SHARED_BUSY);
    assert_int_equal(ups_shared_chunks_take(shared, 1 + PLACES, true, &other), UPS_SHARED_REFUSED);
    ups_shared_chunks_filled(shared, 1, true);
    assert_int_equal(ups_shared_chunks_take(shared, 1, true, &bytes), UPS_SHARED_THERE);
    assert_int_equal(ups_shared_chunks_take(shared, 1 + PLACES, true, &other), UPS_SHARED_REFUSED);
    ups_shared_chunks_release(shared, 1);
    assert_int_equal(ups_shared_chunks_take(shared, 1 + PLACES, true, &other), UPS_SHARED_FILL);
    ups_shared_chunks_filled(shared, 1 + PLACES, true);
    ups_shared_chunks_destroy(shared);
}

static void a_chunk_that_could_not_be_decoded_is_not_there(void **state) {
    ups_shared_chunks *shared = ups_shared_chunks_create(BYTES, PLACES);
    uint8_t *bytes;
    for (int attempt = 0; attempt < 3; attempt++) {
        assert_int_equal(ups_shared_chunks_take(shared, 2, true, &bytes), UPS_SHARED_FILL);
        ups_shared_chunks_filled(shared, 2, false);
    }
    ups_shared_chunks_destroy(shared);
}

typedef struct contest {
    ups_shared_chunks *shared;
    atomic_int filled[CHUNKS];
    atomic_bool wrong;
} contest;

static void *read_all(void *context) {
    contest *c = context;
    for (int64_t chunk = 0; chunk < CHUNKS; chunk++) {
        uint8_t *bytes;
        ups_shared_chunk taken = ups_shared_chunks_take(c->shared, chunk, true, &bytes);
        if (taken == UPS_SHARED_FILL) {
            memset(bytes, (int)chunk, BYTES);
            atomic_fetch_add(&c->filled[chunk], 1);
            ups_shared_chunks_filled(c->shared, chunk, true);
        } else if (taken == UPS_SHARED_THERE) {
            for (int i = 0; i < BYTES; i++)
                if (bytes[i] != chunk) atomic_store(&c->wrong, true);
            ups_shared_chunks_release(c->shared, chunk);
        }
    }
    return NULL;
}

static void threads_read_what_one_of_them_filled(void **state) {
    enum { THREADS = 6 };
    contest c = {.shared = ups_shared_chunks_create(BYTES, CHUNKS)};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, read_all, &c), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_false(atomic_load(&c.wrong));
    for (int i = 0; i < CHUNKS; i++) assert_int_equal(atomic_load(&c.filled[i]), 1);
    ups_shared_chunks_destroy(c.shared);
}

static void check_trajectory(const ups_batch *batch, int64_t times, int64_t points) {
    for (int64_t w = 0; w < batch->windows; w++) {
        const float *values = batch->window[w].frames;
        for (int64_t t = 0; t < times; t++)
            for (int64_t p = 0; p < points; p++)
                assert_float_equal(values[t * points + p], (float)written_value(batch->window[w].sample, t, p), 0);
    }
}

static void samples_that_share_chunks_are_loaded_as_they_were_written(void **state) {
    enum { SAMPLES = 23, TIMES = 7, POINTS = 40 };
    static const written_form form = {.name = "gzip", .chunked = true, .gzip = true, .shuffle = true};
    char path[] = "/tmp/ups-shared-XXXXXX";
    close(mkstemp(path));
    write_tensor_file(path, &form, SAMPLES, TIMES, POINTS);
    ups_error error;
    ups_source *source = NULL;
    assert_int_equal(ups_layout_open(path, NULL, &source, &error), UPS_OK);
    assert_true(source->limits.fixed_bytes > 0);
    for (int sequential = 0; sequential < 2; sequential++) {
        ups_loader_options options = {.batch = 2,
                                      .dtype = UPS_F32,
                                      .sequential = sequential,
                                      .batch_count = sequential ? -1 : 100,
                                      .decode_threads = 4,
                                      .slots = 8};
        ups_loader_task task = {.name = "shared", .source = source, .weight = 1};
        ups_loader *loader = NULL;
        assert_int_equal(ups_loader_open(&options, &task, 1, &loader, &error), UPS_OK);
        int64_t windows = 0;
        for (const ups_batch *batch;; ups_loader_release(loader, batch)) {
            assert_int_equal(ups_loader_next(loader, &batch, &error), UPS_OK);
            if (!batch) break;
            check_trajectory(batch, TIMES, POINTS);
            windows += batch->windows;
        }
        assert_int_equal(windows, sequential ? SAMPLES : 200);
        ups_loader_close(loader);
    }
    ups_source_close(source);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pass_over_the_chunks_fills_each_once),
        cmocka_unit_test(a_chunk_that_is_read_keeps_its_place),
        cmocka_unit_test(a_chunk_that_could_not_be_decoded_is_not_there),
        cmocka_unit_test(threads_read_what_one_of_them_filled),
        cmocka_unit_test(samples_that_share_chunks_are_loaded_as_they_were_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
