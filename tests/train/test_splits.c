/* Splits of tasks of several files: no initial condition in both training and test, test files of their own, first and
 * last samples, and the warning where splits share beginnings. Files come from our own solvers: the same seed draws the
 * same initial conditions under other parameters. */
#include "base/files.h"
#include "tests/base/capture.h"
#include "tests/base/testing.h"
#include "tools/solvers/datagen.h"
#include "train/config/load.h"
#include "train/data/tasks.h"

enum { SAMPLES = 20, FRAMES = 4, POINTS = 16, LONG = 41 };

static void ok(ups_status status, const ups_error *error) {
    if (status != UPS_OK) fail_msg("%s", error->message);
}

static void generate(const char *name, const char *beta, uint64_t seed, int64_t samples, int64_t frames) {
    ups_error error;
    ups_datagen_request request = {.solver = ups_solver_find("advection1d"),
                                   .samples = samples,
                                   .threads = 1,
                                   .path = scratch(name),
                                   .replace = true};
    ups_solver_setup_begin(request.solver, &request.setup);
    request.setup.resolution = POINTS;
    request.setup.steps = frames;
    request.setup.seed = seed;
    ok(ups_solver_set(request.solver, &request.setup, beta, &error), &error);
    ups_datagen_result result;
    ok(ups_datagen_run(&request, &result, &error), &error);
}

static int make_data(void **state) {
    if (make_scratch(state) != 0) return -1;
    generate("slow.h5", "beta=0.4", 1, SAMPLES, FRAMES);
    generate("fast.h5", "beta=1.0", 1, SAMPLES, FRAMES);
    generate("other.h5", "beta=1.0", 2, SAMPLES, FRAMES);
    generate("short.h5", "beta=2.0", 1, SAMPLES / 2, FRAMES);
    generate("long.h5", "beta=0.4", 3, 1, LONG);
    generate("longer.h5", "beta=0.4", 4, 1, 2 * LONG);
    return 0;
}

typedef struct opened {
    ups_run_config *config;
    ups_tasks *tasks;
    const ups_sample_splits *splits;
} opened;

static ups_status try_open(const char *files, const char *data, opened *o, ups_error *error) {
    char text[1000];
    snprintf(text, sizeof text,
             "output: %s/run\ndata: {root: %s, decode_threads: 1, split: {%s}}\ntasks:\n  - name: wave\n    %s\n"
             "    patch: [4]\n",
             scratch_directory, scratch_directory, data, files);
    write_text(scratch("splits.yaml"), text);
    ok(ups_run_config_load(scratch("splits.yaml"), NULL, 0, &o->config, error), error);
    ups_status status = ups_tasks_open(o->config, &o->tasks, error);
    if (status == UPS_OK) o->splits = &o->tasks->task[0].splits;
    return status;
}

static opened open_task(const char *files, const char *data) {
    opened o = {0};
    ups_error error;
    ok(try_open(files, data, &o, &error), &error);
    return o;
}

static void close_task(opened *o) {
    ups_tasks_close(o->tasks);
    ups_run_config_free(o->config);
}

static bool is_in(const ups_sample_splits *splits, ups_split split, int64_t sample) {
    for (int64_t i = 0; i < splits->count[split]; i++) {
        if (splits->samples[split][i] == sample) return true;
    }
    return false;
}

/* How many pairs of files' samples of one index lie in different splits; all splits complete and in order. */
static int torn(const ups_sample_splits *splits, int files) {
    int64_t all = 0;
    int apart = 0;
    for (int s = 0; s < UPS_SPLIT_COUNT; s++) {
        all += splits->count[s];
        for (int64_t i = 0; i < splits->count[s]; i++) {
            if (i > 0) assert_true(splits->samples[s][i] > splits->samples[s][i - 1]);
            for (int f = 1; f < files && splits->samples[s][i] < SAMPLES; f++)
                apart += !is_in(splits, (ups_split)s, splits->samples[s][i] + f * SAMPLES);
        }
    }
    assert_int_equal(all, files * SAMPLES);
    return apart;
}

static const char *warning_of(opened *o) {
    ups_error error;
    capture caught = capture_begin(0);
    ups_status status =
        ups_splits_compare(&o->config->data, o->tasks->task[0].config, o->tasks->task[0].source, o->splits, &error);
    const char *text = capture_end(&caught);
    ok(status, &error);
    return text;
}

static void files_that_begin_alike_are_split_by_index(void **state) {
    opened o = open_task("files: [slow.h5, fast.h5]", "train: 0.6, validation: 0.2, test: 0.2");
    assert_int_equal(torn(o.splits, 2), 0);
    assert_int_equal(o.splits->count[UPS_SPLIT_TRAIN], 24);
    assert_int_equal(o.splits->count[UPS_SPLIT_TEST], 8);
    assert_string_equal(warning_of(&o), "");
    close_task(&o);
}

static void files_that_begin_otherwise_are_split_each_by_itself(void **state) {
    opened o = open_task("files: [slow.h5, other.h5]", "train: 0.6, validation: 0.2, test: 0.2");
    assert_true(torn(o.splits, 2) > 0);
    assert_string_equal(warning_of(&o), "");
    opened by_index = open_task("files: [slow.h5, other.h5]", "by: index");
    assert_int_equal(torn(by_index.splits, 2), 0);
    close_task(&o), close_task(&by_index);
}

static void initial_conditions_in_training_and_test_are_warned_of(void **state) {
    opened o = open_task("files: [slow.h5, fast.h5]", "train: 0.6, validation: 0.2, test: 0.2, by: sample");
    int shared = 0;
    for (int64_t i = 0; i < o.splits->count[UPS_SPLIT_TEST]; i++) {
        int64_t other = (o.splits->samples[UPS_SPLIT_TEST][i] + SAMPLES) % (2 * SAMPLES);
        shared += is_in(o.splits, UPS_SPLIT_TRAIN, other);
    }
    char expected[60];
    snprintf(expected, sizeof expected, "%d of 8 test samples begin", shared);
    assert_true(shared > 0);
    assert_contains(warning_of(&o), expected);
    close_task(&o);
}

static void a_file_that_comes_later_changes_no_split(void **state) {
    opened one = open_task("files: [slow.h5]", "by: auto"), two = open_task("files: [slow.h5, fast.h5]", "by: auto");
    for (int s = 0; s < UPS_SPLIT_COUNT; s++) {
        for (int64_t i = 0; i < one.splits->count[s]; i++)
            assert_true(is_in(two.splits, (ups_split)s, one.splits->samples[s][i]));
    }
    close_task(&one), close_task(&two);
}

static void by_index_wants_files_of_equal_length(void **state) {
    opened o = {0};
    ups_error error;
    assert_int_equal(try_open("files: [slow.h5, short.h5]", "by: index", &o, &error), UPS_ERR_CONFIG);
    assert_contains(error.message, "holds 20 samples");
    assert_contains(error.message, "short.h5 10");
    ups_run_config_free(o.config);
    opened apart = open_task("files: [slow.h5, short.h5]", "by: auto"); /* auto does not take it */
    assert_int_equal(apart.splits->count[UPS_SPLIT_TRAIN], 24);
    close_task(&apart);
    opened cut = open_task("files: [slow.h5, fast.h5]\n    max_samples: 30", "by: index");
    int64_t all = 0;
    for (int s = 0; s < UPS_SPLIT_COUNT; s++) all += cut.splits->count[s];
    assert_int_equal(all, 30);
    close_task(&cut);
}

static void test_samples_may_be_the_first_or_the_last_of_each_file(void **state) {
    const struct {
        const char *split;
        int64_t first;
    } cases[] = {{"test: first 10%", 0}, {"test: last 0.1", SAMPLES - 2}, {"test: last 10%", SAMPLES - 2}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        opened o = open_task("files: [slow.h5, other.h5]", cases[c].split);
        assert_int_equal(o.splits->count[UPS_SPLIT_TEST], 4);
        for (int i = 0; i < 4; i++)
            assert_int_equal(o.splits->samples[UPS_SPLIT_TEST][i], cases[c].first + i % 2 + i / 2 * SAMPLES);
        torn(o.splits, 2); /* complete and in order */
        close_task(&o);
    }
}

static void test_files_are_for_tests_alone(void **state) {
    opened o =
        open_task("files: [slow.h5, fast.h5]\n    test_files: ['oth*.h5']", "train: 0.6, validation: 0.2, test: 0.2");
    assert_int_equal(o.splits->count[UPS_SPLIT_TEST], SAMPLES);
    for (int i = 0; i < SAMPLES; i++) assert_int_equal(o.splits->samples[UPS_SPLIT_TEST][i], 2 * SAMPLES + i);
    assert_int_equal(o.splits->count[UPS_SPLIT_TRAIN], 30);
    assert_int_equal(o.splits->count[UPS_SPLIT_VALIDATION], 10);
    close_task(&o);
}

/* What is left out lies between the files that are shared out and those of the tests. */
static void max_samples_leaves_test_files_whole(void **state) {
    opened o = open_task("files: [slow.h5]\n    test_files: [other.h5]\n    max_samples: 10", "by: auto");
    assert_int_equal(o.splits->count[UPS_SPLIT_TRAIN] + o.splits->count[UPS_SPLIT_VALIDATION], 10);
    assert_true(o.splits->samples[UPS_SPLIT_TRAIN][o.splits->count[UPS_SPLIT_TRAIN] - 1] < 10);
    assert_int_equal(o.splits->count[UPS_SPLIT_TEST], SAMPLES);
    for (int i = 0; i < SAMPLES; i++) assert_int_equal(o.splits->samples[UPS_SPLIT_TEST][i], SAMPLES + i);
    close_task(&o);
}

/* Samples of a split, as text. */
static const char *list_of(const ups_sample_splits *splits, ups_split split) {
    static char text[400];
    size_t length = 0;
    text[0] = '\0';
    for (int64_t i = 0; i < splits->count[split] && length < sizeof text - 30; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%lld", i ? " " : "",
                                   (long long)splits->samples[split][i]);
    return text;
}

/* The datagen of LONG steps writes a frame more: 42 are ten segments of 4, and two frames are left over. */
static void a_single_trajectory_in_segments_is_split_by_time(void **state) {
    const struct {
        const char *files, *split, *train, *validation, *test;
    } cases[] = {
        {"files: [long.h5]\n    segment: 4", "by: auto", "0 1 2 3 4 5 6 7", "8", "9"},
        {"files: [long.h5]\n    segment: 4", "train: 0.7, test: last 20%", "0 1 2 3 4 5 6", "7", "8 9"},
        {"files: [long.h5]\n    segment: 4", "train: 0.7, test: first 20%", "3 4 5 6 7 8 9", "2", "0 1"},
        {"files: [long.h5]\n    segment: 4", "train: 1, validation: 0, test: 0", "0 1 2 3 4 5 6 7 8 9", "", ""},
        {"files: [long.h5]\n    segment: 4\n    max_samples: 5", "by: auto", "0 1 2", "3", "4"},
        {"files: [long.h5]\n    segment: 4\n    test_files: [longer.h5]\n    max_samples: 5", "by: time", "0 1 2 3",
         "4", "10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29"},
        {"files: [long.h5, longer.h5]\n    segment: 8", "by: time", "0 1 2 5 6 7 8 9 10 11 12", "3 13", "4 14"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        opened o = open_task(cases[c].files, cases[c].split);
        assert_string_equal(list_of(o.splits, UPS_SPLIT_TRAIN), cases[c].train);
        assert_string_equal(list_of(o.splits, UPS_SPLIT_VALIDATION), cases[c].validation);
        assert_string_equal(list_of(o.splits, UPS_SPLIT_TEST), cases[c].test);
        close_task(&o);
    }
}

/* Those that stay whole and those in segments are in the same splits. */
static void segments_of_a_trajectory_stay_together(void **state) {
    static const char *const splits[] = {"by: auto", "by: sample", "by: index", "train: 0.7, test: first 20%",
                                         "train: 0.7, test: last 20%"};
    for (size_t c = 0; c < sizeof splits / sizeof *splits; c++) {
        opened whole = open_task("files: [slow.h5, fast.h5]", splits[c]);
        opened cut = open_task("files: [slow.h5, fast.h5]\n    segment: 2", splits[c]);
        for (int s = 0; s < UPS_SPLIT_COUNT; s++) {
            assert_int_equal(cut.splits->count[s], 2 * whole.splits->count[s]);
            for (int64_t i = 0; i < cut.splits->count[s]; i++)
                assert_int_equal(cut.splits->samples[s][i], 2 * whole.splits->samples[s][i / 2] + i % 2);
        }
        close_task(&whole), close_task(&cut);
    }
}

/* Shares are those of all segments where single trajectories have too few for them. */
static void few_segments_of_many_trajectories_are_shared_out(void **state) {
    opened o = open_task("files: [slow.h5]\n    segment: 2", "by: time"); /* twenty of two each */
    assert_int_equal(o.splits->count[UPS_SPLIT_TRAIN], 32);
    assert_int_equal(o.splits->count[UPS_SPLIT_VALIDATION], 4);
    assert_int_equal(o.splits->count[UPS_SPLIT_TEST], 4);
    for (int64_t i = 0; i < 4; i++) {
        assert_int_equal(o.splits->samples[UPS_SPLIT_TEST][i] % 2, 1); /* the later one */
        assert_false(is_in(o.splits, UPS_SPLIT_TEST, o.splits->samples[UPS_SPLIT_VALIDATION][i]));
    }
    opened more = open_task("files: [slow.h5, other.h5]\n    segment: 2", "by: time");
    for (int s = 0; s < UPS_SPLIT_COUNT; s++) { /* what comes later changes nothing */
        for (int64_t i = 0; i < o.splits->count[s]; i++)
            assert_true(is_in(more.splits, (ups_split)s, o.splits->samples[s][i]));
    }
    close_task(&o), close_task(&more);
}

static void by_time_wants_segments(void **state) {
    opened o = {0};
    ups_error error;
    assert_int_equal(try_open("files: [long.h5]", "by: time", &o, &error), UPS_ERR_CONFIG);
    assert_contains(error.message, "its key `segment` cuts them");
    ups_run_config_free(o.config);
}

static void what_holds_out_nothing_is_told_of_segments(void **state) {
    opened o = open_task("files: [long.h5]", "by: auto");
    assert_contains(warning_of(&o), "shorter segments of a long trajectory (tasks[].segment)");
    close_task(&o);
}

static void shares_that_are_none_are_refused(void **state) {
    static const char *const wrong[] = {"middle 10%", "first", "10%%", "1.5", "first -0.1", "a tenth"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[500];
        ups_error error;
        ups_run_config *config = NULL;
        snprintf(text, sizeof text, "data: {split: {test: '%s'}}\ntasks: [{name: a, files: [b.h5]}]\n", wrong[i]);
        write_text(scratch("wrong.yaml"), text);
        assert_int_equal(ups_run_config_load(scratch("wrong.yaml"), NULL, 0, &config, &error), UPS_ERR_CONFIG);
        assert_contains(error.message, "data.split.test");
        assert_contains(error.message, "is no share between 0 and 1");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_begin_alike_are_split_by_index),
        cmocka_unit_test(files_that_begin_otherwise_are_split_each_by_itself),
        cmocka_unit_test(initial_conditions_in_training_and_test_are_warned_of),
        cmocka_unit_test(a_file_that_comes_later_changes_no_split),
        cmocka_unit_test(by_index_wants_files_of_equal_length),
        cmocka_unit_test(test_samples_may_be_the_first_or_the_last_of_each_file),
        cmocka_unit_test(test_files_are_for_tests_alone),
        cmocka_unit_test(max_samples_leaves_test_files_whole),
        cmocka_unit_test(a_single_trajectory_in_segments_is_split_by_time),
        cmocka_unit_test(segments_of_a_trajectory_stay_together),
        cmocka_unit_test(few_segments_of_many_trajectories_are_shared_out),
        cmocka_unit_test(by_time_wants_segments),
        cmocka_unit_test(what_holds_out_nothing_is_told_of_segments),
        cmocka_unit_test(shares_that_are_none_are_refused),
    };
    return cmocka_run_group_tests_name("splits", tests, make_data, remove_scratch);
}
