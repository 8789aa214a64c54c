/* What the loader does with data that are bad, damaged or gone, and with readers and files that fail. */

#include "loader_fixture.h"
#include "tests/base/testing.h"

/* `ordinary` with a NaN in one frame. */
static plain_options with_nan(int64_t sample, int64_t frame) {
    plain_options plain = ordinary;
    plain.bad_sample = sample;
    plain.bad_frame = frame;
    return plain;
}

/* Whole trajectories, of which bad ones are passed over. */
static ups_loader_options skipping(void) {
    ups_loader_options options = pairs;
    options.window = 0;
    options.on_bad_sample = UPS_BAD_SAMPLE_SKIP;
    return options;
}

/* Takes every batch there is; how many samples were bad, and what is said of each. */
static int64_t bad_samples(ups_loader *loader, const char *const **lines) {
    for (const ups_batch *batch; (batch = next(loader));) ups_loader_release(loader, batch);
    return ups_loader_bad_samples(loader, lines);
}

static void a_nan_stops_the_run_and_names_task_sample_file_and_frame(void **state) {
    plain_options plain = with_nan(9, 5);
    ups_source *source = plain_source(&plain);
    ups_loader_options options = pairs;
    options.sequential = true;
    options.window = 0;
    options.batch = 2;
    options.batch_count = -1;
    for (int threads = 1; threads < 5; threads++) {
        options.decode_threads = threads;
        ups_loader *loader = open_one(&options, source);
        ups_error error = {0};
        assert_int_equal(run_to_failure(loader, UPS_ERR_NUMERIC, &error), 4); /* samples 0 to 7 come first */
        assert_contains(error.message, "task ordinary, sample 0009 (");
        assert_contains(error.message, "ordinary-1.bin): 1 NaN value, first at frame 5");
        ups_loader_close(loader);
    }
    options.window = 2; /* windows that start at 0 do not touch frame 5 */
    ups_loader *loader = open_one(&options, source);
    int64_t batches = 0;
    for (const ups_batch *batch; (batch = next(loader)); batches++) ups_loader_release(loader, batch);
    assert_int_equal(batches, 7);
    ups_loader_close(loader);
    ups_source_close(source);
}

static void skipping_replaces_a_bad_sample_the_same_way_on_any_number_of_threads(void **state) {
    plain_options plain = with_nan(9, 5);
    ups_source *source = plain_source(&plain);
    ups_loader_options options = skipping();
    int64_t first[80][2], again[80][2];
    record_order(options, source, first);
    for (int i = 0; i < 80; i++) assert_int_not_equal(first[i][0], 9);
    options.decode_threads = 1;
    options.io = UPS_IO_THREADS;
    record_order(options, source, again);
    assert_memory_equal(first, again, sizeof first);

    ups_loader *loader = open_one(&options, source);
    const char *const *lines;
    assert_int_equal(bad_samples(loader, &lines), 1);
    assert_contains(lines[0], "task ordinary, sample 0009 (");
    assert_contains(lines[0], "1 NaN value, first at frame 5");
    ups_loader_statistics statistics;
    ups_loader_statistics_get(loader, &statistics);
    assert_int_equal(statistics.bad_samples, 1);
    ups_loader_close(loader);
    ups_source_close(source);
}

static void a_bad_sample_is_reported_with_its_own_file_also_when_it_was_drawn_as_a_replacement(void **state) {
    plain_options plain = with_nan(7, 5);
    plain.bad_onward = true;
    ups_source *source = plain_source(&plain);
    ups_loader_options options = skipping();
    ups_loader *loader = open_one(&options, source);
    const char *const *lines;
    assert_int_equal(bad_samples(loader, &lines), 6);
    for (int i = 0; i < 6; i++) {
        int sample = atoi(strstr(lines[i], "sample ") + strlen("sample "));
        char file[40];
        snprintf(file, sizeof file, "ordinary-%d.bin)", sample % 2);
        if (!strstr(lines[i], file)) fail_msg("%s: %s was expected", lines[i], file);
    }
    ups_loader_close(loader);
    ups_source_close(source);
}

static void data_that_is_bad_throughout_ends_in_an_error_even_when_skipping(void **state) {
    plain_options plain = with_nan(0, 0);
    plain.samples = 1;
    ups_source *source = plain_source(&plain);
    ups_loader_options options = skipping();
    ups_loader *loader = open_one(&options, source);
    ups_error error = {0};
    assert_int_equal(run_to_failure(loader, UPS_ERR_NUMERIC, &error), 0);
    assert_contains(error.message, "task ordinary");
    ups_loader_close(loader);
    ups_source_close(source);
}

static void a_truncated_file_is_named_after_the_batches_before_it(void **state) {
    ups_source *source = plain_source(&ordinary);
    assert_int_equal(truncate(source->files[1], 45000), 0); /* samples 1 and 3 remain whole, 5 is cut */
    ups_loader_options options = pairs;
    options.sequential = true;
    options.window = 0;
    options.batch = 1;
    options.batch_count = -1;
    for (int way = 0; way < 4; way++) {
        options.io = way & 1 ? UPS_IO_THREADS : UPS_IO_AUTO;
        options.direct = way & 2;
        ups_loader *loader = open_one(&options, source);
        ups_error error = {0};
        assert_int_equal(run_to_failure(loader, UPS_ERR_FORMAT, &error), 5);
        assert_contains(error.message, "task ordinary, sample 0005");
        assert_contains(error.message, "ordinary-1.bin: truncated: ");
        ups_loader_close(loader);
    }
    ups_source_close(source);
}

static void a_sample_that_cannot_be_decoded_is_named(void **state) {
    plain_options plain = ordinary;
    plain.undecodable = 3;
    ups_source *source = plain_source(&plain);
    ups_loader_options options = pairs;
    options.sequential = true;
    options.on_bad_sample = UPS_BAD_SAMPLE_SKIP; /* which is for NaN, not for broken bytes */
    ups_loader *loader = open_one(&options, source);
    ups_error error = {0};
    assert_int_equal(run_to_failure(loader, UPS_ERR_CHECKSUM, &error), 0);
    assert_string_equal(error.message, "task ordinary, sample 0003: its bytes changed");
    ups_loader_close(loader);
    ups_source_close(source);
}

/* Bad samples of several tasks, each drawn many times, and some with the numbers of others. */
static void each_of_many_bad_samples_is_reported_once(void **state) {
    enum { SAMPLES = 900, FIRST_BAD = 300, TASKS = 2 };
    plain_options plain = with_nan(FIRST_BAD, 5);
    plain.samples = SAMPLES;
    plain.bad_onward = true;
    ups_source *source = plain_source(&plain);
    ups_loader_task tasks[TASKS] = {{.name = "one", .source = source}, {.name = "two", .source = source}};
    ups_loader_options options = skipping();
    options.batch_count = 2000;
    ups_loader *loader = open_tasks(&options, tasks, TASKS);
    const char *const *lines;
    assert_int_equal(bad_samples(loader, &lines), TASKS * (SAMPLES - FIRST_BAD));
    bool seen[TASKS][SAMPLES] = {{false}};
    for (int i = 0; i < TASKS * (SAMPLES - FIRST_BAD); i++) {
        int task = strncmp(lines[i], "task two", strlen("task two")) == 0;
        int sample = atoi(strstr(lines[i], "sample ") + strlen("sample "));
        assert_in_range(sample, FIRST_BAD, SAMPLES - 1);
        assert_false(seen[task][sample]);
        seen[task][sample] = true;
    }
    ups_loader_close(loader);
    ups_source_close(source);
}

/* What a damaged file may claim: sizes whose sums and products do not fit into 64 bits. */
static void sizes_that_no_memory_holds_end_in_a_sentence(void **state) {
    static const struct {
        ups_source_limits limits;
        const char *said;
    } claims[] = {
        {{.extents = 3, .stored_bytes = UINT64_MAX}, "no memory for "},
        {{.extents = 3, .stored_bytes = UINT64_MAX - 3 * 28672}, "no memory for "}, /* with room for gaps: nothing */
        {{.extents = 3, .stored_bytes = UINT64_MAX - 3 * 28672 - 8192}, "no memory for "},
        {{.extents = 3, .stored_bytes = (uint64_t)1 << 62}, "no memory for "}, /* times four: almost nothing */
        {{.extents = INT64_MAX / 2, .stored_bytes = 1}, "no memory for "},
        {{.extents = 3, .stored_bytes = 4096, .scratch_bytes = UINT64_MAX}, "decode threads"},
        {{.extents = 3, .stored_bytes = 4096, .decoded_bytes = UINT64_MAX - 4096}, "decode threads"},
    };
    ups_source *source = plain_source(&ordinary);
    ups_loader_task task = {.name = "ordinary", .source = source};
    ups_loader_options options = pairs;
    options.batch = 16;
    options.windows_per_draw = 2; /* from staging memory */
    options.decode_threads = 2;   /* four reads at once */
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        source->limits = claims[i].limits;
        ups_loader *loader = NULL;
        ups_error error = {0};
        ups_status status = ups_loader_open(&options, &task, 1, &loader, &error);
        if (status != UPS_ERR_MEMORY || !strstr(error.message, claims[i].said))
            fail_msg("claim %zu: %d %s", i, (int)status, error.message);
        assert_null(loader);
    }
    ups_source_close(source);
}

static void closing_at_any_moment_neither_hangs_nor_leaks(void **state) {
    plain_options plain = ordinary;
    plain.undecodable = 11;
    ups_source *source = plain_source(&plain);
    srand(1);
    alarm(600); /* a hang ends the test */
    for (int round = 0; round < 150; round++) {
        ups_loader_options options = pairs;
        options.window = round % 3;
        options.batch_count = round % 2 ? -1 : 3;
        options.io = round % 5 ? UPS_IO_AUTO : UPS_IO_THREADS;
        options.slots = 2 + round % 3;
        ups_loader *loader = open_one(&options, source);
        int taken = rand() % 6;
        for (int i = 0; i < taken; i++) {
            const ups_batch *batch = NULL;
            if (ups_loader_next(loader, &batch, NULL) != UPS_OK || !batch) break;
            if (i + 1 < taken) ups_loader_release(loader, batch); /* the last one is still held */
        }
        if (round % 4 == 0) usleep((useconds_t)(rand() % 2000));
        ups_loader_close(loader);
    }
    alarm(0);
    ups_loader_close(NULL);
    ups_source_close(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_nan_stops_the_run_and_names_task_sample_file_and_frame),
        cmocka_unit_test(skipping_replaces_a_bad_sample_the_same_way_on_any_number_of_threads),
        cmocka_unit_test(a_bad_sample_is_reported_with_its_own_file_also_when_it_was_drawn_as_a_replacement),
        cmocka_unit_test(data_that_is_bad_throughout_ends_in_an_error_even_when_skipping),
        cmocka_unit_test(a_truncated_file_is_named_after_the_batches_before_it),
        cmocka_unit_test(a_sample_that_cannot_be_decoded_is_named),
        cmocka_unit_test(each_of_many_bad_samples_is_reported_once),
        cmocka_unit_test(sizes_that_no_memory_holds_end_in_a_sentence),
        cmocka_unit_test(closing_at_any_moment_neither_hangs_nor_leaks),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
