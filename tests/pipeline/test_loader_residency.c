/* Samples that stay in memory: the same windows as from disk, without the disk, within the memory given. */

#include <sys/stat.h>

#include "base/files.h"
#include "base/system/memory_limit.h"
#include "loader_fixture.h"
#include "tests/base/testing.h"

static const ups_residency kinds[] = {UPS_RESIDENCY_RAM_COMPRESSED, UPS_RESIDENCY_RAM};

static ups_store *open_store(const ups_source *source, ups_residency how, ups_dtype dtype, uint64_t most) {
    ups_store_options options = {.residency = how, .dtype = dtype, .max_bytes = most};
    ups_store *store = NULL;
    ups_error error = {0};
    if (ups_store_open(source, NULL, 0, &options, &store, &error) != UPS_OK) fail_msg("%s", error.message);
    return store;
}

static ups_loader_statistics run_kept(const ups_loader_options *options, const ups_source *source,
                                      const plain_options *plain, ups_store *store) {
    ups_loader *loader = open_kept(options, source, store);
    ups_loader_statistics statistics = check_batches(loader, options, plain);
    ups_loader_close(loader);
    return statistics;
}

static void samples_kept_in_memory_give_the_windows_that_the_disk_gives(void **state) {
    const ups_dtype types[][2] = {{UPS_F32, UPS_F32}, {UPS_F64, UPS_F32}, {UPS_F16, UPS_F32}, {UPS_F16, UPS_F16}};
    const int64_t shapes[][3] = {{0, 1, 1}, {1, 1, 1}, {2, 3, 1}, {5, 2, 4}, {0, 1, 2}}; /* window, stride, per draw */
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        plain_options plain = ordinary;
        plain.dtype = types[t][0];
        plain.scattered = t % 2;
        plain.as_stored = t == 0;
        ups_source *source = plain_source(&plain);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int way = 0; way < 16; way++) {
                ups_loader_options options = pairs;
                options.dtype = types[t][1];
                options.window = shapes[s][0];
                options.stride = shapes[s][1];
                options.windows_per_draw = shapes[s][2];
                options.io = way & 1 ? UPS_IO_THREADS : UPS_IO_AUTO;
                options.direct = way & 2;
                options.in_place = way & 4;
                ups_store *store = open_store(source, kinds[way >> 3], options.dtype, UINT64_MAX);
                for (int pass = 0; pass < 2; pass++) run_kept(&options, source, &plain, store);
                ups_store_close(store);
            }
        ups_source_close(source);
    }
}

static void order_does_not_depend_on_residency(void **state) {
    ups_source *source = plain_source(&ordinary);
    int64_t streamed[80][2];
    record_order(pairs, source, streamed);
    for (int k = 0; k < 2; k++) {
        ups_store *store = open_store(source, kinds[k], UPS_F32, UINT64_MAX);
        ups_loader *loader = open_kept(&pairs, source, store);
        for (const ups_batch *batch; (batch = next(loader)); ups_loader_release(loader, batch))
            for (int64_t w = 0; w < batch->windows; w++) {
                assert_int_equal(batch->window[w].sample, streamed[batch->index * 8 + w][0]);
                assert_int_equal(batch->window[w].start, streamed[batch->index * 8 + w][1]);
            }
        ups_loader_close(loader);
        ups_store_close(store);
    }
    ups_source_close(source);
}

static void what_was_read_once_is_not_read_again_also_by_another_loader(void **state) {
    ups_source *source = plain_source(&ordinary);
    for (int k = 0; k < 2; k++) {
        ups_store *store = open_store(source, kinds[k], UPS_F32, UINT64_MAX);
        ups_loader_options pass = pairs;
        pass.sequential = true;
        pass.batch = 1;
        pass.batch_count = 13;
        pass.window = 0;
        ups_loader_statistics first = run_kept(&pass, source, &ordinary, store);
        assert_true(first.bytes_read >= (uint64_t)13 * 11 * 33 * 4);
        assert_int_equal(first.resident, 0);
        assert_int_equal(ups_store_look(store).resident, 13);
        ups_loader_statistics second = run_kept(&pairs, source, &ordinary, store);
        assert_int_equal(second.bytes_read, 0);
        assert_int_equal(second.resident, second.trajectories);
        ups_store_close(store);
    }
    ups_source_close(source);
}

static void windows_of_decoded_trajectories_are_handed_out_where_they_lie(void **state) {
    ups_source *source = plain_source(&ordinary);
    ups_store *store = open_store(source, UPS_RESIDENCY_RAM, UPS_F32, UINT64_MAX);
    ups_loader_options options = pairs;
    options.in_place = true;
    options.batch_count = 40;
    run_kept(&options, source, &ordinary, store);
    assert_int_equal(ups_store_look(store).resident, 13);
    ups_loader *loader = open_kept(&options, source, store);
    for (const ups_batch *batch; (batch = next(loader)); ups_loader_release(loader, batch)) {
        assert_null(batch->data);
        for (int64_t w = 0; w < batch->windows; w++) {
            const ups_window *window = &batch->window[w];
            const uint8_t *place = ups_store_find(store, window->sample);
            assert_ptr_equal(window->frames, place + (size_t)window->start * 33 * sizeof(float));
        }
    }
    ups_loader_statistics statistics;
    ups_loader_statistics_get(loader, &statistics);
    assert_int_equal(statistics.bytes_decoded, 0);
    ups_loader_close(loader);
    ups_store_close(store);
    ups_source_close(source);
}

static void a_store_keeps_what_fits_and_the_rest_is_streamed(void **state) {
    ups_source *source = plain_source(&ordinary);
    for (int k = 0; k < 2; k++) {
        ups_residency_need need;
        assert_int_equal(ups_residency_measure(source, NULL, 0, UPS_F32, &need, NULL), UPS_OK);
        uint64_t all = ups_residency_bytes(kinds[k], need);
        ups_store *store = open_store(source, kinds[k], UPS_F32, all / 2);
        ups_store_facts facts = ups_store_look(store);
        assert_int_equal(facts.places, 6);
        assert_true(facts.bytes <= all / 2);
        for (int pass = 0; pass < 3; pass++) run_kept(&pairs, source, &ordinary, store);
        assert_in_range(ups_store_look(store).resident, 1, 6);
        ups_store_close(store);
        store = open_store(source, kinds[k], UPS_F32, all);
        assert_int_equal(ups_store_look(store).bytes, all);
        assert_int_equal(ups_store_look(store).places, 13);
        ups_store_close(store);
        store = open_store(source, kinds[k], UPS_F32, 0);
        run_kept(&pairs, source, &ordinary, store);
        ups_store_close(store);
    }
    ups_source_close(source);
}

/* Its finite windows are served, the others skipped as they are from disk. */
static void a_trajectory_with_a_nan_is_not_kept_decoded(void **state) {
    plain_options plain = ordinary;
    plain.bad_sample = 9;
    plain.bad_frame = 5;
    ups_source *source = plain_source(&plain);
    ups_loader_options options = pairs;
    options.on_bad_sample = UPS_BAD_SAMPLE_SKIP;
    options.batch_count = 30;
    int64_t streamed[240][2];
    assert_int_equal(record_order(options, source, streamed), 240);
    for (int in_place = 0; in_place < 2; in_place++) {
        ups_store *store = open_store(source, UPS_RESIDENCY_RAM, UPS_F32, UINT64_MAX);
        options.in_place = in_place;
        ups_loader *loader = open_kept(&options, source, store);
        int64_t of_nine = 0;
        for (const ups_batch *batch; (batch = next(loader)); ups_loader_release(loader, batch)) {
            check_batch(batch, 1);
            for (int64_t w = 0; w < batch->windows; w++) {
                assert_int_equal(batch->window[w].sample, streamed[batch->index * 8 + w][0]);
                of_nine += batch->window[w].sample == 9;
            }
        }
        assert_true(of_nine > 0);
        const char *const *lines;
        assert_int_equal(ups_loader_bad_samples(loader, &lines), 1);
        assert_contains(lines[0], "sample 0009 (");
        ups_loader_close(loader);
        assert_null(ups_store_find(store, 9));
        assert_int_equal(ups_store_look(store).resident, 12);
        ups_store_close(store);
    }
    ups_source_close(source);
}

static void what_a_closed_loader_left_half_done_the_next_one_does(void **state) {
    ups_source *source = plain_source(&ordinary);
    for (int k = 0; k < 2; k++) {
        ups_store *store = open_store(source, kinds[k], UPS_F32, UINT64_MAX);
        for (int round = 0; round < 30; round++) {
            ups_loader_options options = pairs;
            options.first_batch = round % 10;
            options.io = round % 2 ? UPS_IO_THREADS : UPS_IO_AUTO;
            options.direct = round % 3 == 0;
            ups_loader *loader = open_kept(&options, source, store);
            if (round % 3) ups_loader_release(loader, next(loader));
            ups_loader_close(loader);
        }
        run_kept(&pairs, source, &ordinary, store);
        assert_int_equal(ups_store_look(store).resident, 13);
        ups_store_close(store);
    }
    ups_source_close(source);
}

static void a_source_that_reads_by_itself_can_be_kept_decoded_only(void **state) {
    plain_options plain = ordinary;
    plain.without_extents = true;
    ups_source *source = plain_source(&plain);
    for (int k = 0; k < 2; k++) {
        ups_store *store = open_store(source, kinds[k], UPS_F32, UINT64_MAX);
        assert_int_equal(ups_store_look(store).places, k ? 13 : 0);
        for (int pass = 0; pass < 2; pass++) run_kept(&pairs, source, &plain, store);
        ups_store_close(store);
    }
    ups_source_close(source);
}

static void a_store_of_another_type_is_refused(void **state) {
    plain_options plain = ordinary;
    plain.dtype = UPS_F16;
    ups_source *source = plain_source(&plain);
    ups_store *store = open_store(source, UPS_RESIDENCY_RAM, UPS_F16, UINT64_MAX);
    ups_loader_task task = {.name = "ordinary", .source = source, .store = store};
    ups_loader *loader = NULL;
    ups_error error = {0};
    assert_fails(ups_loader_open(&pairs, &task, 1, &loader, &error), UPS_ERR_ARGUMENT, error,
                 "its store keeps float16 values, the batches are float32");
    ups_store_close(store);
    ups_source_close(source);
}

static void auto_takes_the_fastest_residency_that_fits(void **state) {
    ups_residency_need need = {.decoded = 1000, .stored = 300};
    assert_int_equal(ups_residency_choose(UPS_RESIDENCY_AUTO, need, 1000), UPS_RESIDENCY_RAM);
    assert_int_equal(ups_residency_choose(UPS_RESIDENCY_AUTO, need, 999), UPS_RESIDENCY_RAM_COMPRESSED);
    assert_int_equal(ups_residency_choose(UPS_RESIDENCY_AUTO, need, 299), UPS_RESIDENCY_STREAM);
    assert_int_equal(ups_residency_choose(UPS_RESIDENCY_RAM, need, 1), UPS_RESIDENCY_RAM);
    need.stored = 0; /* read through a library: nothing to keep */
    assert_int_equal(ups_residency_choose(UPS_RESIDENCY_AUTO, need, 999), UPS_RESIDENCY_STREAM);
    ups_residency residency;
    assert_true(ups_residency_parse("ram_compressed", &residency));
    assert_int_equal(residency, UPS_RESIDENCY_RAM_COMPRESSED);
    assert_string_equal(ups_residency_name(UPS_RESIDENCY_STREAM), "stream");
    assert_false(ups_residency_parse("disk", &residency));
}

/* ---- free memory ---- */

static char machine[] = "ups-test-machine-XXXXXX";

/* As a damaged file may claim. */
static ups_status describe_absurd(const ups_source *source, int64_t index, ups_sample *sample, ups_error *error) {
    *sample = (ups_sample){.times = (INT64_C(1) << 62) + 1, .channels = 1, .grid = {1, 1, 1}, .dtype = UPS_F32};
    return UPS_OK;
}

static ups_status list_absurd(const ups_source *source, int64_t index, ups_frames frames, ups_extent *extents,
                              int64_t *count, ups_error *error) {
    extents[0] = (ups_extent){0, 0, UINT64_MAX};
    *count = 1;
    return UPS_OK;
}

static void sizes_beyond_all_memory_are_streamed_and_never_kept_in_little(void **state) {
    static const ups_source_class absurd = {.kind = "test.absurd", .describe = describe_absurd, .extents = list_absurd};
    const ups_source source = {.class = &absurd, .count = 2, .limits = {.extents = 1}};
    ups_residency_need need;
    assert_int_equal(ups_residency_measure(&source, NULL, 0, UPS_F32, &need, NULL), UPS_OK);
    assert_true(need.decoded == UINT64_MAX && need.stored == UINT64_MAX);
    assert_int_equal(ups_residency_choose(UPS_RESIDENCY_AUTO, need, (uint64_t)1 << 50), UPS_RESIDENCY_STREAM);
    for (int k = 0; k < 2; k++) {
        ups_store_options options = {.residency = kinds[k], .dtype = UPS_F32, .max_bytes = UINT64_MAX};
        ups_store *store = NULL;
        ups_error error = {0};
        assert_fails(ups_store_open(&source, NULL, 0, &options, &store, &error), UPS_ERR_MEMORY, error,
                     "of memory to keep samples in; `residency: stream` needs none");
        options.max_bytes = (uint64_t)1 << 50;
        assert_int_equal(ups_store_open(&source, NULL, 0, &options, &store, &error), UPS_OK);
        assert_int_equal(ups_store_look(store).places, 0);
        ups_store_close(store);
    }
}

static void put(const char *path, const char *text) {
    char whole[300], folder[300];
    snprintf(whole, sizeof whole, "%s/%s", machine, path);
    snprintf(folder, sizeof folder, "%s", whole);
    *strrchr(folder, '/') = '\0';
    assert_int_equal(ups_make_directories(folder, NULL), UPS_OK);
    assert_int_equal(ups_publish_bytes(whole, text, strlen(text), NULL), UPS_OK);
}

static void free_memory_is_what_the_tightest_limit_above_leaves(void **state) {
    assert_non_null(mkdtemp(machine));
    assert_true(ups_memory_free_below(machine) == 0);
    put("proc/meminfo", "MemTotal:       1000 kB\nMemAvailable:    800 kB\n");
    assert_true(ups_memory_free_below(machine) == 800 * 1024);
    put("proc/self/cgroup", "0::/job/step\n");
    put("sys/fs/cgroup/job/step/memory.max", "max\n");
    assert_true(ups_memory_free_below(machine) == 800 * 1024);
    put("sys/fs/cgroup/job/memory.max", "500000\n");
    put("sys/fs/cgroup/job/memory.current", "450000\n");
    put("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 40000\nactive_file 9\n");
    assert_true(ups_memory_free_below(machine) == 500000 - 410000);
    put("proc/self/cgroup",
        "5:cpu,memory:/elsewhere\n1:name=systemd:/\n"); /* a container that sees its own at the mount */
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "70000\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "20000\n");
    assert_true(ups_memory_free_below(machine) == 50000);
    assert_true(ups_memory_free() > 0);
    assert_int_equal(ups_remove_tree(machine, NULL), UPS_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_kept_in_memory_give_the_windows_that_the_disk_gives),
        cmocka_unit_test(order_does_not_depend_on_residency),
        cmocka_unit_test(what_was_read_once_is_not_read_again_also_by_another_loader),
        cmocka_unit_test(windows_of_decoded_trajectories_are_handed_out_where_they_lie),
        cmocka_unit_test(a_store_keeps_what_fits_and_the_rest_is_streamed),
        cmocka_unit_test(a_trajectory_with_a_nan_is_not_kept_decoded),
        cmocka_unit_test(what_a_closed_loader_left_half_done_the_next_one_does),
        cmocka_unit_test(a_source_that_reads_by_itself_can_be_kept_decoded_only),
        cmocka_unit_test(a_store_of_another_type_is_refused),
        cmocka_unit_test(auto_takes_the_fastest_residency_that_fits),
        cmocka_unit_test(sizes_beyond_all_memory_are_streamed_and_never_kept_in_little),
        cmocka_unit_test(free_memory_is_what_the_tightest_limit_above_leaves),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
