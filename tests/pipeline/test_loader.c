/* The loader's claims, over sources whose every byte is known. */

#include <math.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "loader_fixture.h"
#include "tests/base/testing.h"

/* Counts allocations: the linker sends every call of the libraries under test through here (see CMakeLists.txt). */
static atomic_long allocations;
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
int __real_posix_memalign(void **memory, size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes) {
    atomic_fetch_add(&allocations, 1);
    return __real_malloc(bytes);
}
void *__wrap_calloc(size_t count, size_t bytes) {
    atomic_fetch_add(&allocations, 1);
    return __real_calloc(count, bytes);
}
void *__wrap_realloc(void *memory, size_t bytes) {
    atomic_fetch_add(&allocations, 1);
    return __real_realloc(memory, bytes);
}
void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    atomic_fetch_add(&allocations, 1);
    return __real_aligned_alloc(alignment, bytes);
}
int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes) {
    atomic_fetch_add(&allocations, 1);
    return __real_posix_memalign(memory, alignment, bytes);
}

/* The loader's tests read by threads and by what is chosen: where that is threads too, half of each is not what it
 * says. */
static void what_is_chosen_to_read_is_io_uring(void **state) {
    char reason[200];
    if (!ups_io_uring_available(reason))
        skip_because("no io_uring here: %s; all tests of loaders read by threads alone", reason);
    ups_source *source = plain_source(&ordinary);
    ups_loader_options options = pairs;
    options.io = UPS_IO_AUTO;
    ups_loader *loader = open_one(&options, source);
    ups_loader_statistics statistics;
    ups_loader_statistics_get(loader, &statistics);
    assert_int_equal(statistics.io, UPS_IO_URING);
    ups_loader_close(loader);
    ups_source_close(source);
}

static void every_window_holds_the_frames_it_names(void **state) {
    const ups_dtype types[][2] = {{UPS_F32, UPS_F32}, {UPS_F64, UPS_F32}, {UPS_F16, UPS_F32}, {UPS_F16, UPS_F16}};
    const int64_t shapes[][3] = {{0, 1, 1}, {1, 1, 1}, {2, 1, 1}, {2, 3, 1},
                                 {5, 2, 4}, {2, 1, 8}, {0, 1, 2}}; /* window, stride, per draw */
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        plain_options plain = ordinary;
        plain.dtype = types[t][0];
        plain.scattered = t % 2;
        ups_source *source = plain_source(&plain);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int way = 0; way < 4; way++) {
                ups_loader_options options = pairs;
                options.dtype = types[t][1];
                options.window = shapes[s][0];
                options.stride = shapes[s][1];
                options.windows_per_draw = shapes[s][2];
                options.io = way & 1 ? UPS_IO_THREADS : UPS_IO_AUTO;
                options.direct = way & 2;
                check_run(&options, source, &plain);
            }
        ups_source_close(source);
    }
}

static void a_source_without_extents_is_read_by_its_own_decode(void **state) {
    plain_options plain = ordinary;
    plain.without_extents = true;
    ups_source *source = plain_source(&plain);
    check_run(&pairs, source, &plain);
    ups_source_close(source);
}

static void a_queue_shorter_than_one_samples_extents_still_reads_it(void **state) {
    plain_options plain = ordinary;
    plain.chunk_frames = 1;
    plain.elements = 6000; /* chunks in reverse order and too far apart to merge */
    plain.scattered = true;
    ups_source *source = plain_source(&plain);
    ups_loader_options options = pairs;
    options.window = 0;
    options.queue_depth = 2;
    check_run(&options, source, &plain);
    ups_source_close(source);
}

static void a_sequential_pass_delivers_the_split_once_in_order(void **state) {
    ups_source *source = plain_source(&ordinary);
    const int64_t split[] = {9, 2, 4, 0, 12, 7, 1};
    ups_loader_task tasks[] = {{.name = "a", .source = source, .samples = split, .sample_count = 7},
                               {.name = "b", .source = source}};
    ups_loader_options options = pairs;
    options.sequential = true;
    options.batch = 6;
    options.batch_count = -1;
    for (int one_task = 0; one_task < 2; one_task++) {
        options.one_task_per_batch = one_task;
        ups_loader *loader = open_tasks(&options, tasks, 2);
        const ups_batch *batch;
        int64_t seen = 0, batches = 0;
        while ((batch = next(loader))) {
            check_batch(batch, 1);
            for (int64_t w = 0; w < batch->windows; w++, seen++) {
                assert_int_equal(batch->window[w].task, seen < 7 ? 0 : 1);
                assert_int_equal(batch->window[w].sample, seen < 7 ? split[seen] : seen - 7);
                assert_int_equal(batch->window[w].start, 0);
                if (one_task) assert_int_equal(batch->window[w].task, batch->window[0].task);
            }
            batches++;
            ups_loader_release(loader, batch);
        }
        assert_int_equal(seen, 7 + 13);
        assert_int_equal(batches, one_task ? 2 + 3 : 4);
        ups_loader_close(loader);
    }
    ups_source_close(source);
}

static void ranks_together_see_the_order_that_one_rank_sees(void **state) {
    ups_source *source = plain_source(&ordinary);
    int64_t alone[480][2], together[480][2];
    ups_loader_options options = pairs;
    options.batch = 48;
    options.windows_per_draw = 2;
    assert_int_equal(record_order(options, source, alone), 480);
    const int32_t ranks[] = {2, 3, 8};
    for (int r = 0; r < 3; r++) {
        memset(together, 0xff, sizeof together);
        options.ranks = ranks[r];
        options.batch = 48 / ranks[r];
        options.decode_threads = r + 1; /* nor do threads matter */
        for (options.rank = 0; options.rank < options.ranks; options.rank++)
            assert_int_equal(record_order(options, source, together), 480 / ranks[r]);
        assert_memory_equal(alone, together, sizeof alone);
    }
    ups_source_close(source);
}

static void resuming_at_a_batch_goes_on_with_the_same_windows(void **state) {
    ups_source *source = plain_source(&ordinary);
    int64_t whole[80][2], resumed[80][2];
    record_order(pairs, source, whole);
    ups_loader_options options = pairs;
    options.first_batch = 6;
    memcpy(resumed, whole, sizeof whole);
    memset(resumed + 48, 0xff, 32 * sizeof *resumed);
    assert_int_equal(record_order(options, source, resumed), 32);
    assert_memory_equal(whole, resumed, sizeof whole);
    ups_source_close(source);
}

static void tasks_of_different_shapes_get_batches_of_their_own(void **state) {
    plain_options other = ordinary;
    other.name = "other";
    other.elements = 100;
    other.dtype = UPS_F64;
    ups_source *a = plain_source(&ordinary), *b = plain_source(&other);
    ups_loader_task tasks[] = {{.name = "a", .source = a, .weight = 1}, {.name = "b", .source = b, .weight = 3}};
    ups_loader_options options = pairs;
    options.strategy = UPS_SAMPLER_BALANCED;
    options.batch_count = 40;
    options.one_task_per_batch = true;
    ups_loader *loader = open_tasks(&options, tasks, 2);
    const ups_batch *batch;
    int64_t of_b = 0;
    while ((batch = next(loader))) {
        int32_t task = batch->window[0].task;
        assert_int_equal(batch->frame_elements, task ? 100 : 33);
        for (int64_t w = 0; w < batch->windows; w++) assert_int_equal(batch->window[w].task, task);
        check_batch(batch, 1);
        of_b += task;
        ups_loader_release(loader, batch);
    }
    assert_int_equal(of_b, 30);
    ups_loader_close(loader);

    options.one_task_per_batch = false;
    ups_error error = {0};
    assert_fails(ups_loader_open(&options, tasks, 2, &loader, &error), UPS_ERR_ARGUMENT, error, "2 × 100");
    assert_null(loader);
    ups_source_close(a);
    ups_source_close(b);
}

static void a_task_may_have_a_window_and_a_stride_of_its_own(void **state) {
    ups_source *source = plain_source(&ordinary);
    ups_loader_task tasks[] = {{.name = "pairs", .source = source},
                               {.name = "strided", .source = source, .window = 4, .stride = 3}};
    ups_loader_options options = pairs;
    options.strategy = UPS_SAMPLER_BALANCED;
    options.one_task_per_batch = true;
    ups_loader *loader = open_tasks(&options, tasks, 2);
    int64_t of_each[2] = {0};
    for (const ups_batch *batch; (batch = next(loader));) {
        bool strided = batch->window[0].task == 1;
        assert_int_equal(batch->frames, strided ? 4 : 2);
        assert_true(batch->window[0].dt == (strided ? 0.75 : 0.25));
        check_batch(batch, strided ? 3 : 1);
        of_each[strided]++;
        ups_loader_release(loader, batch);
    }
    assert_int_equal(of_each[0], 5);
    assert_int_equal(of_each[1], 5);
    ups_loader_close(loader);
    ups_source_close(source);
}

/* Step t takes 0.25 + t / 2 seconds. */
static void times_are_those_of_the_frames_of_a_window(void **state) {
    plain_options slowing = ordinary;
    slowing.slowing = 0.5;
    ups_source *source = plain_source(&slowing);
    enum { WINDOW = 4 };
    ups_loader_task task = {.name = "plain", .source = source, .window = WINDOW};
    ups_loader_options options = pairs;
    for (task.stride = 1; task.stride < 4; task.stride++) {
        ups_loader *loader = open_tasks(&options, &task, 1);
        for (const ups_batch *batch; (batch = next(loader));) {
            for (int64_t w = 0; w < batch->windows; w++) {
                const ups_window *window = &batch->window[w];
                assert_true(window->dt == window->time[task.stride] - window->time[0]);
                for (int64_t i = 0; i < (WINDOW - 1) * task.stride; i++) {
                    double expected = 0.25 + 0.5 * (double)(window->start + i);
                    assert_true(fabs(window->time[i + 1] - window->time[i] - expected) < 1e-9);
                }
            }
            ups_loader_release(loader, batch);
        }
        ups_loader_close(loader);
    }
    ups_source_close(source);
}

static void sizes_beyond_any_memory_are_measured_as_such(void **state) {
    ups_loader_options options = pairs;
    options.batch = 256;
    ups_loader_load load = {.frames = 1 << 20, .stride = 1, .frame_elements = INT64_C(1) << 36, .dtype = UPS_F32};
    ups_loader_memory memory = ups_loader_measure(&options, &load, 1); /* 2^66 bytes */
    assert_true(memory.slot == UINT64_MAX && memory.total == UINT64_MAX);
}

static void several_batches_can_be_held_and_released_in_any_order(void **state) {
    ups_source *source = plain_source(&ordinary);
    ups_loader_options options = pairs;
    options.slots = 3;
    options.batch_count = 30;
    ups_loader *loader = open_one(&options, source);
    const ups_batch *kept = next(loader), *previous = next(loader), *batch;
    while ((batch = next(loader))) {
        check_batch(kept, 1);
        check_batch(previous, 1);
        ups_loader_release(loader, previous);
        previous = batch;
    }
    assert_int_equal(previous->index, 29);
    assert_int_equal(kept->index, 0);
    ups_loader_close(loader);
    ups_source_close(source);
}

static void nothing_is_allocated_after_the_first_batch(void **state) {
    ups_source *source = plain_source(&ordinary);
    for (int way = 0; way < 2; way++) {
        ups_loader_options options = pairs;
        options.io = way ? UPS_IO_THREADS : UPS_IO_AUTO;
        options.batch_count = 300;
        options.windows_per_draw = 4;
        ups_loader *loader = open_one(&options, source);
        ups_loader_release(loader, next(loader));
        long before = atomic_load(&allocations);
        assert_true(before > 0);
        for (const ups_batch *batch; (batch = next(loader));) ups_loader_release(loader, batch);
        assert_int_equal(atomic_load(&allocations), before);
        ups_loader_close(loader);
    }
    ups_source_close(source);
}

typedef struct counted {
    int taken, given;
    size_t bytes;
} counted;

static void *take(void *context, size_t bytes) {
    counted *count = context;
    count->taken++;
    count->bytes = bytes;
    return ups_aligned_alloc(4096, bytes);
}

static void give(void *context, void *memory) {
    ((counted *)context)->given++;
    ups_aligned_free(memory);
}

static void slot_memory_comes_from_the_given_allocator(void **state) {
    ups_source *source = plain_source(&ordinary);
    counted count = {0};
    ups_loader_options options = pairs;
    options.allocate = take;
    options.release = give;
    options.allocator_context = &count;
    options.slots = 5;
    check_run(&options, source, &ordinary);
    assert_int_equal(count.taken, 5);
    assert_int_equal(count.given, 5);
    assert_int_equal(count.bytes, 8 * 2 * 33 * sizeof(float));
    ups_source_close(source);
}

static void assert_refused(const ups_loader_options *options, const ups_source *source, const char *why) {
    ups_loader_task task = {.name = "ordinary", .source = source};
    ups_loader *loader = NULL;
    ups_error error = {0};
    assert_int_not_equal(ups_loader_open(options, &task, 1, &loader, &error), UPS_OK);
    assert_null(loader);
    assert_contains(error.message, why);
}

static void options_that_cannot_work_are_refused_with_a_sentence(void **state) {
    ups_source *source = plain_source(&ordinary);
    ups_loader_options options = pairs;
    options.windows_per_draw = 3;
    assert_refused(&options, source, "8 windows is no multiple of 3");
    options = pairs;
    options.window = 12;
    assert_refused(&options, source, "sample 0000 has 11 frames; 12 are needed");
    options = pairs;
    options.dtype = UPS_F16;
    assert_refused(&options, source, "float32 frames cannot be handed out as float16");
    options = pairs;
    options.rank = 4;
    options.ranks = 4;
    assert_refused(&options, source, "rank 4 is not one of 4");
    unlink(source->files[1]);
    assert_refused(&pairs, source, "ordinary-1.bin");
    ups_source_close(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_chosen_to_read_is_io_uring),
        cmocka_unit_test(every_window_holds_the_frames_it_names),
        cmocka_unit_test(a_source_without_extents_is_read_by_its_own_decode),
        cmocka_unit_test(a_queue_shorter_than_one_samples_extents_still_reads_it),
        cmocka_unit_test(a_sequential_pass_delivers_the_split_once_in_order),
        cmocka_unit_test(ranks_together_see_the_order_that_one_rank_sees),
        cmocka_unit_test(resuming_at_a_batch_goes_on_with_the_same_windows),
        cmocka_unit_test(tasks_of_different_shapes_get_batches_of_their_own),
        cmocka_unit_test(a_task_may_have_a_window_and_a_stride_of_its_own),
        cmocka_unit_test(times_are_those_of_the_frames_of_a_window),
        cmocka_unit_test(sizes_beyond_any_memory_are_measured_as_such),
        cmocka_unit_test(several_batches_can_be_held_and_released_in_any_order),
        cmocka_unit_test(nothing_is_allocated_after_the_first_batch),
        cmocka_unit_test(slot_memory_comes_from_the_given_allocator),
        cmocka_unit_test(options_that_cannot_work_are_refused_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
