/* The loader through ups.h: batches hold what they name, runs resume exactly, and what is held stays valid whatever
 * happens to the loader. */
#include "tests/base/testing.h"

#include "base/half.h"
#include "tests/cache/fixture.h"
#include "tests/pipeline/hdf5_writer.h"
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <ups.h>

enum { SAMPLES = 10, TIMES = 9, TOKENS = 4, DIM = 16, FRAME = TOKENS * DIM, COUNT = TIMES * FRAME, POINTS = 64 };

static float latents[SAMPLES][COUNT]; /* as the cache gives them back */
static ups_data *cached, *simulated;

static int make_data(void **state) {
    if (make_scratch(state) != 0) return -1;
    ups_cache_description description = fixture_description(SAMPLES, TIMES, TOKENS, DIM, 4);
    ups_error error;
    if (fixture_build(scratch("cache"), &description, 1, &error) != UPS_OK) return -1;
    for (int64_t i = 0; i < SAMPLES; i++) {
        ups_f16 rounded[COUNT];
        fixture_latents(i, TIMES, TOKENS, DIM, latents[i]);
        ups_f32_to_f16(latents[i], rounded, COUNT);
        ups_f16_to_f32(rounded, latents[i], COUNT);
    }
    write_tensor_file(scratch("waves.h5"), &(written_form){.name = "plain"}, 6, TIMES, POINTS);
    return ups_data_open(scratch("cache/waves/train"), &cached, NULL) ||
           ups_data_open(scratch("waves.h5"), &simulated, NULL);
}

static int remove_data(void **state) {
    ups_data_close(cached);
    ups_data_close(simulated);
    return remove_scratch(state);
}

static ups_data_loader_options pairs(void) {
    ups_data_loader_options options = UPS_DATA_LOADER_OPTIONS;
    options.seed = 3;
    options.batch_size = 3;
    options.frames = 2;
    options.threads = 2;
    return options;
}

static ups_data_loader *open_one(const ups_data *data, const ups_data_loader_options *options) {
    ups_data_task task = {.data = data};
    ups_data_loader *loader;
    ups_data_error error;
    if (ups_data_loader_open(&task, 1, options, &loader, &error) != UPS_DATA_OK) fail_msg("%s", error.message);
    return loader;
}

static const ups_data_batch *next(ups_data_loader *loader) {
    const ups_data_batch *batch;
    ups_data_error error;
    if (ups_data_loader_next(loader, &batch, &error) != UPS_DATA_OK) fail_msg("%s", error.message);
    return batch;
}

/* Every window is what its sample, start and the stride say. */
static void check_latents(const ups_data_batch *batch, int64_t stride) {
    assert_int_equal(batch->frame_elements, FRAME);
    for (int64_t w = 0; w < batch->windows; w++) {
        const float *window = batch->window_values[w];
        for (int64_t f = 0; f < batch->frames; f++) {
            const float *expected = latents[batch->sample[w]] + (batch->start[w] + f * stride) * FRAME;
            assert_memory_equal(window + f * batch->frame_step[w], expected, FRAME * sizeof(float));
        }
        assert_true(fabs(batch->dt[w] - (batch->frames > 1 ? 0.05 * (double)stride : 0)) < 1e-12);
        assert_true(fabs(batch->parameters[w * batch->parameter_count] - 0.1 * (double)batch->sample[w]) < 1e-12);
    }
}

static void batches_hold_the_frames_they_name(void **state) {
    for (int residency = UPS_DATA_STREAM; residency <= UPS_DATA_RESIDENCY_AUTO; residency++) {
        for (uint32_t flags = 0; flags <= UPS_DATA_IN_PLACE; flags += UPS_DATA_IN_PLACE) {
            ups_data_loader_options options = pairs();
            options.frames = 3;
            options.time_stride = 2;
            options.residency = (ups_data_residency)residency;
            options.flags = flags;
            ups_data_loader *loader = open_one(cached, &options);
            for (int64_t b = 0; b < 12; b++) {
                const ups_data_batch *batch = next(loader);
                assert_int_equal(batch->index, b);
                assert_int_equal(batch->rank, 4);
                assert_int_equal(batch->shape[0], 3);
                assert_int_equal(batch->shape[1], 3);
                assert_int_equal(batch->shape[2], TOKENS);
                assert_int_equal(batch->shape[3], DIM);
                if (flags)
                    assert_null(batch->values);
                else
                    assert_ptr_equal(batch->values, batch->window_values[0]);
                check_latents(batch, 2);
                ups_data_loader_release(loader, batch);
            }
            ups_data_loader_statistics facts = UPS_DATA_LOADER_STATISTICS;
            assert_int_equal(ups_data_loader_describe(loader, &facts, NULL), UPS_DATA_OK);
            assert_int_equal(facts.batches, 12);
            assert_int_equal(facts.threads, 2);
            assert_int_equal(facts.residency, residency == UPS_DATA_RESIDENCY_AUTO ? UPS_DATA_RAM : residency);
            assert_true((facts.kept > 0) == (residency != UPS_DATA_STREAM));
            assert_true((facts.resident > 0) == (residency != UPS_DATA_STREAM));
            ups_data_loader_close(loader);
        }
    }
}

static void every_sample_comes_once_an_epoch(void **state) {
    ups_data_loader_options options = pairs();
    options.batch_size = 5;
    ups_data_loader *loader = open_one(cached, &options);
    assert_int_equal(ups_data_loader_epoch_batches(loader), 2);
    for (int epoch = 0; epoch < 4; epoch++) {
        int seen[SAMPLES] = {0};
        for (int b = 0; b < 2; b++) {
            const ups_data_batch *batch = next(loader);
            for (int64_t w = 0; w < batch->windows; w++) seen[batch->sample[w]]++;
            ups_data_loader_release(loader, batch);
        }
        for (int i = 0; i < SAMPLES; i++) assert_int_equal(seen[i], 1);
    }
    ups_data_loader_close(loader);
}

/* (sample, start) of the first window of batches [from, from + count). */
static void record(ups_data_loader *loader, int64_t count, int64_t (*order)[2]) {
    for (int64_t b = 0; b < count; b++) {
        const ups_data_batch *batch = next(loader);
        order[b][0] = batch->sample[0];
        order[b][1] = batch->start[0];
        ups_data_loader_release(loader, batch);
    }
}

static void a_run_resumed_at_any_batch_goes_on_the_same(void **state) {
    ups_data_loader_options options = pairs();
    ups_data_loader *loader = open_one(cached, &options);
    int64_t whole[20][2], rest[20][2];
    record(loader, 20, whole);
    assert_int_equal(ups_data_loader_position(loader), 20);
    for (int64_t from = 1; from < 20; from += 6) {
        options.first_batch = from;
        options.threads = 1;
        ups_data_loader *resumed = open_one(cached, &options);
        assert_int_equal(ups_data_loader_position(resumed), from);
        record(resumed, 20 - from, rest);
        assert_memory_equal(rest, whole[from], (size_t)(20 - from) * sizeof *rest);
        ups_data_loader_close(resumed);
        assert_int_equal(ups_data_loader_seek(loader, from, NULL), UPS_DATA_OK);
        record(loader, 20 - from, rest);
        assert_memory_equal(rest, whole[from], (size_t)(20 - from) * sizeof *rest);
    }
    assert_int_equal(ups_data_loader_seek(loader, -1, NULL), UPS_DATA_ERR_ARGUMENT);
    ups_data_loader_close(loader);
}

static void ranks_share_the_batches_of_one(void **state) {
    ups_data_loader_options options = pairs();
    options.batch_size = 4;
    ups_data_loader *alone = open_one(cached, &options), *half[2];
    options.batch_size = 2;
    options.ranks = 2;
    for (options.rank = 0; options.rank < 2; options.rank++) half[options.rank] = open_one(cached, &options);
    for (int b = 0; b < 6; b++) {
        const ups_data_batch *whole = next(alone), *first = next(half[0]), *second = next(half[1]);
        for (int w = 0; w < 2; w++) {
            assert_int_equal(first->sample[w], whole->sample[w]);
            assert_int_equal(second->sample[w], whole->sample[2 + w]);
            assert_int_equal(second->start[w], whole->start[2 + w]);
        }
        ups_data_loader_release(alone, whole);
        ups_data_loader_release(half[0], first);
        ups_data_loader_release(half[1], second);
    }
    ups_data_loader_close(alone);
    ups_data_loader_close(half[0]);
    ups_data_loader_close(half[1]);
}

static void a_pass_in_order_ends(void **state) {
    ups_data_loader_options options = pairs();
    options.frames = 0;
    options.flags = UPS_DATA_SEQUENTIAL;
    ups_data_loader *loader = open_one(cached, &options);
    assert_int_equal(ups_data_loader_epoch_batches(loader), 4);
    for (int pass = 0; pass < 2; pass++) {
        int64_t sample = 0;
        const ups_data_batch *batch;
        while ((batch = next(loader))) {
            assert_int_equal(batch->frames, TIMES);
            for (int64_t w = 0; w < batch->windows; w++) assert_int_equal(batch->sample[w], sample++);
            check_latents(batch, 1);
            ups_data_loader_release(loader, batch);
        }
        assert_int_equal(sample, SAMPLES);
        assert_int_equal(ups_data_loader_wait(loader, 60), 1);
        assert_null(next(loader));
        assert_int_equal(ups_data_loader_seek(loader, 0, NULL), UPS_DATA_OK);
    }
    ups_data_loader_close(loader);
}

static void what_is_held_outlives_seeking_and_closing(void **state) {
    for (int kept = 0; kept < 2; kept++) {
        ups_data_loader_options options = pairs();
        options.residency = kept ? UPS_DATA_RAM : UPS_DATA_STREAM;
        options.flags = kept ? UPS_DATA_IN_PLACE : 0;
        ups_data_loader *loader = open_one(cached, &options);
        for (int b = 0; b < 8; b++) ups_data_loader_release(loader, next(loader)); /* all of them are kept now */
        const ups_data_batch *first = next(loader);
        assert_int_equal(ups_data_loader_seek(loader, 100, NULL), UPS_DATA_OK);
        const ups_data_batch *second = next(loader), *third = next(loader);
        check_latents(first, 1);
        ups_data_loader_release(loader, first);
        ups_data_loader_close(loader);
        check_latents(second, 1);
        ups_data_loader_release(loader, second);
        check_latents(third, 1);
        ups_data_loader_release(loader, third);
    }
}

static void a_data_set_may_be_closed_before_its_loader(void **state) {
    ups_data *data;
    assert_int_equal(ups_data_open(scratch("cache/waves/train"), &data, NULL), UPS_DATA_OK);
    ups_data_loader_options options = pairs();
    ups_data_loader *loader = open_one(data, &options);
    ups_data_close(data);
    for (int b = 0; b < 6; b++) {
        const ups_data_batch *batch = next(loader);
        check_latents(batch, 1);
        ups_data_loader_release(loader, batch);
    }
    assert_int_equal(ups_data_loader_seek(loader, 0, NULL), UPS_DATA_OK);
    ups_data_loader_release(loader, next(loader));
    ups_data_loader_close(loader);
}

static void who_holds_every_batch_is_told_and_not_left_waiting(void **state) {
    ups_data_loader_options options = pairs();
    options.slots = 3;
    ups_data_loader *loader = open_one(cached, &options);
    const ups_data_batch *held[3], *more;
    for (int b = 0; b < 3; b++) held[b] = next(loader);
    ups_data_error error;
    assert_fails(ups_data_loader_next(loader, &more, &error), UPS_DATA_ERR_ARGUMENT, error,
                 "all 3 batches in flight are held");
    ups_data_loader_release(loader, held[1]);
    more = next(loader);
    assert_int_equal(more->index, 3);
    check_latents(held[0], 1);
    check_latents(more, 1);
    ups_data_loader_close(loader);
    ups_data_loader_release(loader, held[2]);
    ups_data_loader_release(loader, more);
    ups_data_loader_release(loader, held[0]);
}

typedef struct given_back {
    ups_data_loader *loader;
    const ups_data_batch *batch;
} given_back;

static void *release_elsewhere(void *context) {
    given_back *what = context;
    ups_data_loader_release(what->loader, what->batch);
    return NULL;
}

static void another_thread_may_release(void **state) {
    ups_data_loader_options options = pairs();
    ups_data_loader *loader = open_one(cached, &options);
    pthread_t thread[3];
    given_back what[3];
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 3; i++) what[i] = (given_back){loader, next(loader)};
        for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&thread[i], NULL, release_elsewhere, &what[i]), 0);
        if (round == 4) ups_data_loader_close(loader);
        if (round == 2) assert_int_equal(ups_data_loader_seek(loader, 7, NULL), UPS_DATA_OK);
        for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    }
}

static void waiting_ends_when_there_is_something_to_say(void **state) {
    ups_data_loader_options options = pairs();
    options.slots = 2;
    options.batches = 3;
    ups_data_loader *loader = open_one(cached, &options);
    for (int b = 0; b < 3; b++) {
        assert_int_equal(ups_data_loader_wait(loader, 60), 1);
        ups_data_loader_release(loader, next(loader));
    }
    assert_int_equal(ups_data_loader_wait(loader, 60), 1);
    assert_null(next(loader));
    assert_int_equal(ups_data_loader_seek(loader, 0, NULL), UPS_DATA_OK);
    const ups_data_batch *held[] = {next(loader), next(loader)};
    assert_int_equal(ups_data_loader_wait(loader, 60), 1); /* that both are held */
    ups_data_loader_release(loader, held[0]);
    ups_data_loader_release(loader, held[1]);
    ups_data_loader_close(loader);
}

typedef struct own_memory {
    pthread_mutex_t lock; /* the last batch may be released by any thread */
    int taken, given, fail_after;
    size_t bytes;
} own_memory;

static void *take_own(void *context, size_t bytes) {
    own_memory *own = context;
    pthread_mutex_lock(&own->lock);
    bool refused = own->taken == own->fail_after;
    own->taken += !refused;
    own->bytes = bytes;
    pthread_mutex_unlock(&own->lock);
    return refused ? NULL : aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
}

static void give_own(void *context, void *memory) {
    own_memory *own = context;
    pthread_mutex_lock(&own->lock);
    own->given++;
    pthread_mutex_unlock(&own->lock);
    free(memory);
}

static void batches_lie_in_the_callers_memory(void **state) {
    own_memory own = {.lock = PTHREAD_MUTEX_INITIALIZER, .fail_after = -1};
    ups_data_loader_options options = pairs();
    options.slots = 3;
    options.allocate = take_own;
    options.release = give_own;
    options.allocator_context = &own;
    ups_data_loader *loader = open_one(cached, &options);
    assert_int_equal(own.taken, 3);
    assert_int_equal(own.bytes, 3 * 2 * FRAME * sizeof(float));
    const ups_data_batch *batch = next(loader);
    check_latents(batch, 1);
    ups_data_loader_close(loader);
    assert_int_equal(own.given, 2);
    check_latents(batch, 1);
    ups_data_loader_release(loader, batch);
    assert_int_equal(own.given, 3);
    own = (own_memory){.lock = PTHREAD_MUTEX_INITIALIZER, .fail_after = 2};
    ups_data_task task = {.data = cached};
    ups_data_error error;
    assert_fails(ups_data_loader_open(&task, 1, &options, &loader, &error), UPS_DATA_ERR_MEMORY, error,
                 "no memory for 3 batches");
    assert_int_equal(own.given, 2);
    options.release = NULL;
    assert_fails(ups_data_loader_open(&task, 1, &options, &loader, &error), UPS_DATA_ERR_ARGUMENT, error,
                 "belong together");
}

static void a_damaged_sample_ends_the_run_and_is_named_again_and_again(void **state) {
    ups_cache_description description = fixture_description(SAMPLES, TIMES, TOKENS, DIM, 4);
    fixture_must_build(scratch("damaged"), &description, 1);
    flip_bit(scratch("damaged/waves/train/latent/c/1/0/0/0"), 60, 0);
    ups_data *data;
    assert_int_equal(ups_data_open(scratch("damaged/waves/train"), &data, NULL), UPS_DATA_OK);
    ups_data_loader_options options = pairs();
    options.flags = UPS_DATA_SEQUENTIAL;
    options.batch_size = 2;
    ups_data_loader *loader = open_one(data, &options);
    for (int b = 0; b < 2; b++) ups_data_loader_release(loader, next(loader)); /* samples 0 to 3 are sound */
    for (int again = 0; again < 3; again++) {
        const ups_data_batch *batch;
        ups_data_error error;
        assert_int_equal(ups_data_loader_wait(loader, 60), 1);
        assert_int_equal(ups_data_loader_next(loader, &batch, &error), UPS_DATA_ERR_CHECKSUM);
        assert_null(batch);
        assert_contains(error.message, "damaged/waves/train/latent/c/1/0/0/0");
        assert_contains(error.message, "sample 4");
    }
    assert_int_equal(ups_data_loader_seek(loader, 4, NULL), UPS_DATA_OK); /* samples 8 and 9 */
    ups_data_loader_release(loader, next(loader));
    ups_data_loader_close(loader);
    ups_data_close(data);
}

static void no_options_are_the_defaults(void **state) {
    ups_data_task task = {.data = cached};
    ups_data_loader *loader;
    ups_data_error error;
    if (ups_data_loader_open(&task, 1, NULL, &loader, &error) != UPS_DATA_OK) fail_msg("%s", error.message);
    for (int b = 0; b < 3; b++) {
        const ups_data_batch *batch = next(loader);
        assert_int_equal(batch->windows, 1);
        assert_int_equal(batch->frames, TIMES);
        check_latents(batch, 1);
        ups_data_loader_release(loader, batch);
    }
    assert_fails(ups_data_loader_describe(loader, NULL, &error), UPS_DATA_ERR_ARGUMENT, error,
                 "ups_data_loader_statistics to be filled in is NULL");
    ups_data_loader_close(loader);
    assert_fails(ups_data_loader_open(NULL, 1, NULL, &loader, &error), UPS_DATA_ERR_ARGUMENT, error,
                 "list of tasks is NULL");
}

/* What is left of the loader after the batch's second release is not taken for unused: `other` is still held. */
static void a_batch_released_twice_is_released_once(void **state) {
    ups_data_loader_options options = pairs();
    options.slots = 3;
    ups_data_loader *loader = open_one(cached, &options), *another = open_one(cached, &options);
    const ups_data_batch *twice = next(loader), *other = next(loader), *foreign = next(another);
    for (int again = 0; again < 3; again++) ups_data_loader_release(loader, twice);
    ups_data_loader_release(loader, foreign);
    check_latents(other, 1);
    check_latents(foreign, 1);
    const ups_data_batch *more[] = {next(loader), next(loader)};
    assert_int_equal(more[0]->index, 2);
    assert_int_equal(more[1]->index, 3);
    check_latents(other, 1);
    ups_data_loader_release(loader, more[0]);
    ups_data_loader_close(loader);
    for (int again = 0; again < 3; again++) ups_data_loader_release(loader, more[0]);
    check_latents(other, 1);
    check_latents(more[1], 1);
    ups_data_loader_release(loader, other);
    ups_data_loader_release(loader, other);
    check_latents(more[1], 1);
    ups_data_loader_release(loader, more[1]);
    ups_data_loader_release(another, foreign);
    ups_data_loader_close(another);
}

static void several_tasks_are_mixed_by_weight(void **state) {
    const int64_t chosen[] = {1, 4};
    ups_data_task tasks[] = {{.data = cached, .name = "latents", .weight = 3},
                             {.data = simulated, .name = "fields", .samples = chosen, .sample_count = 2}};
    ups_data_loader_options options = pairs();
    options.strategy = UPS_DATA_BALANCED;
    ups_data_loader *loader;
    ups_data_error error;
    options.batch_size = 4;
    assert_int_equal(ups_data_loader_open(tasks, 2, &options, &loader, &error), UPS_DATA_OK);
    int fields = 0;
    for (int b = 0; b < 8; b++) {
        const ups_data_batch *batch = next(loader);
        assert_int_equal(batch->rank, 3); /* frames of 4 × 16 and of 64 × 1 */
        assert_int_equal(batch->shape[2], FRAME);
        assert_int_equal(batch->parameter_count, 2);
        for (int64_t w = 0; w < batch->windows; w++) {
            if (batch->task[w] == 0) continue;
            fields++;
            assert_true(batch->sample[w] == 1 || batch->sample[w] == 4);
            const float *window = batch->window_values[w];
            assert_true(window[FRAME + 9] == (float)written_value(batch->sample[w], batch->start[w] + 1, 9));
            assert_true(isnan(batch->parameters[2 * w + 1]));
        }
        ups_data_loader_release(loader, batch);
    }
    assert_int_equal(fields, 8);
    ups_data_loader_close(loader);
}

static void memory_is_bound(void **state) {
    ups_data_loader_options options = pairs();
    options.threads = 0;
    options.slots = 0;
    options.batch_size = 64;
    ups_data_loader *loader = open_one(cached, &options);
    ups_data_loader_statistics free_one = UPS_DATA_LOADER_STATISTICS, bound = UPS_DATA_LOADER_STATISTICS;
    ups_data_loader_describe(loader, &free_one, NULL);
    ups_data_loader_close(loader);
    options.memory = free_one.memory - 1;
    options.residency = UPS_DATA_RESIDENCY_AUTO;
    loader = open_one(cached, &options);
    ups_data_loader_describe(loader, &bound, NULL);
    assert_true(bound.memory + bound.kept <= options.memory);
    assert_true(bound.slots < free_one.slots || bound.threads < free_one.threads);
    const ups_data_batch *batch = next(loader);
    check_latents(batch, 1);
    ups_data_loader_release(loader, batch);
    ups_data_loader_close(loader);
    options.memory = 1000;
    ups_data_task task = {.data = cached};
    ups_data_error error;
    assert_fails(ups_data_loader_open(&task, 1, &options, &loader, &error), UPS_DATA_ERR_MEMORY, error,
                 "memory is bound");
    assert_null(loader);
}

static void assert_refused(ups_data_loader_options options, const ups_data_task *task, ups_data_status expected,
                           const char *part) {
    ups_data_loader *loader;
    ups_data_error error;
    assert_int_equal(ups_data_loader_open(task, 1, &options, &loader, &error), expected);
    assert_null(loader);
    assert_contains(error.message, part);
}

static void mistakes_are_sentences(void **state) {
    ups_data_task task = {.data = cached, .name = "waves"}, other;
    ups_data_loader_options options = pairs();
#define REFUSED(field, value, status, part)                                                                            \
    options = pairs();                                                                                                 \
    options.field = (value);                                                                                           \
    assert_refused(options, &task, (status), (part))
    REFUSED(batch_size, -1, UPS_DATA_ERR_ARGUMENT, "batch_size is -1");
    REFUSED(batch_size, INT64_MAX, UPS_DATA_ERR_ARGUMENT, "batch_size is 9223372036854775807");
    REFUSED(frames, 10, UPS_DATA_ERR_ARGUMENT, "waves: sample latent[0] has 9 frames; windows of 10");
    REFUSED(time_stride, 9, UPS_DATA_ERR_ARGUMENT, "a time stride of 9 need more");
    REFUSED(time_stride, INT32_MAX, UPS_DATA_ERR_ARGUMENT, "need more");
    REFUSED(windows_per_sample, 2, UPS_DATA_ERR_ARGUMENT, "no multiple of windows_per_sample, 2");
    REFUSED(first_batch, -2, UPS_DATA_ERR_ARGUMENT, "first_batch is -2");
    REFUSED(rank, 1, UPS_DATA_ERR_ARGUMENT, "rank is 1");
    REFUSED(slots, 1, UPS_DATA_ERR_ARGUMENT, "slots is 1");
    REFUSED(flags, 1u << 20, UPS_DATA_ERR_ARGUMENT, "flags has bits");
    REFUSED(temperature, NAN, UPS_DATA_ERR_ARGUMENT, "temperature is");
    REFUSED(dtype, (ups_data_dtype)7, UPS_DATA_ERR_ARGUMENT, "dtype is 7");
    REFUSED(size, 4, UPS_DATA_ERR_ARGUMENT, "sizeof(ups_data_loader_options)");
    REFUSED(strategy, (ups_data_strategy)5, UPS_DATA_ERR_ARGUMENT, "strategy is 5");
#undef REFUSED
    const int64_t wrong[] = {0, SAMPLES};
    options = pairs();
    other = (ups_data_task){.data = cached, .samples = wrong, .sample_count = 2};
    assert_refused(options, &other, UPS_DATA_ERR_ARGUMENT, "there is no sample 10");
    other = (ups_data_task){.data = cached, .samples = wrong};
    assert_refused(options, &other, UPS_DATA_ERR_ARGUMENT, "a list of 0 samples");
    other = (ups_data_task){.data = NULL};
    assert_refused(options, &other, UPS_DATA_ERR_ARGUMENT, "no data set");
    other = (ups_data_task){.data = cached, .later = {&other}};
    assert_refused(options, &other, UPS_DATA_ERR_UNSUPPORTED, "zero it");
    options.dtype = UPS_DATA_F16;
    other = (ups_data_task){.data = simulated};
    assert_refused(options, &other, UPS_DATA_ERR_UNSUPPORTED, "without loss");
}

/* A program of tomorrow with today's library: what it leaves 0 is fine, what it sets is not passed over. */
static void an_option_of_a_newer_header_is_refused_when_it_is_set(void **state) {
    struct {
        ups_data_loader_options options;
        int64_t tomorrow;
    } newer = {pairs(), 0};
    newer.options.size = sizeof newer;
    ups_data_task task = {.data = cached};
    ups_data_loader *loader;
    ups_data_error error;
    assert_int_equal(ups_data_loader_open(&task, 1, &newer.options, &loader, &error), UPS_DATA_OK);
    ups_data_loader_close(loader);
    newer.tomorrow = 1;
    assert_fails(ups_data_loader_open(&task, 1, &newer.options, &loader, &error), UPS_DATA_ERR_UNSUPPORTED, error,
                 "needs a newer one");
    newer.options.size =
        offsetof(ups_data_loader_options, time_stride); /* and one of yesterday: defaults for the rest */
    assert_int_equal(ups_data_loader_open(&task, 1, &newer.options, &loader, &error), UPS_DATA_OK);
    const ups_data_batch *batch = next(loader);
    assert_int_equal(batch->windows, 3);
    ups_data_loader_release(loader, batch);
    ups_data_loader_close(loader);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_hold_the_frames_they_name),
        cmocka_unit_test(every_sample_comes_once_an_epoch),
        cmocka_unit_test(a_run_resumed_at_any_batch_goes_on_the_same),
        cmocka_unit_test(ranks_share_the_batches_of_one),
        cmocka_unit_test(a_pass_in_order_ends),
        cmocka_unit_test(what_is_held_outlives_seeking_and_closing),
        cmocka_unit_test(a_data_set_may_be_closed_before_its_loader),
        cmocka_unit_test(who_holds_every_batch_is_told_and_not_left_waiting),
        cmocka_unit_test(another_thread_may_release),
        cmocka_unit_test(waiting_ends_when_there_is_something_to_say),
        cmocka_unit_test(batches_lie_in_the_callers_memory),
        cmocka_unit_test(a_damaged_sample_ends_the_run_and_is_named_again_and_again),
        cmocka_unit_test(no_options_are_the_defaults),
        cmocka_unit_test(a_batch_released_twice_is_released_once),
        cmocka_unit_test(several_tasks_are_mixed_by_weight),
        cmocka_unit_test(memory_is_bound),
        cmocka_unit_test(mistakes_are_sentences),
        cmocka_unit_test(an_option_of_a_newer_header_is_refused_when_it_is_set),
    };
    return cmocka_run_group_tests(tests, make_data, remove_data);
}
