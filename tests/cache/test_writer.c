/* Building caches: the same bytes whatever happens on the way, and a sentence when it cannot be done. */
#include "base/files.h"
#include "base/random.h"
#include "cache/store/group.h"
#include "fixture.h"
#include "tests/base/testing.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define SAMPLES 23
#define TIMES 18
#define TOKENS 4
#define DIM 24
#define PER_SHARD 4

static ups_cache_description usual(void) {
    return fixture_description(SAMPLES, TIMES, TOKENS, DIM, PER_SHARD);
}

static void build_or_fail(const char *directory, const ups_cache_description *d, int threads) {
    ups_error error;
    if (fixture_build(directory, d, threads, &error) != UPS_OK) fail_msg("%s", error.message);
}

static void any_number_of_threads_builds_the_same_bytes(void **state) {
    char *one = fixture_directory(), *four = fixture_directory();
    ups_cache_description d = usual();
    build_or_fail(one, &d, 1);
    build_or_fail(four, &d, 4);
    fixture_assert_same_tree(one, four);
    fixture_remove(one);
    fixture_remove(four);
}

static void samples_may_come_in_any_order(void **state) {
    char *forward = fixture_directory(), *backward = fixture_directory();
    ups_cache_description d = usual();
    build_or_fail(forward, &d, 1);
    ups_cache_writer *writer;
    ups_error error;
    assert_int_equal(ups_cache_writer_open(backward, &d, &writer, &error), UPS_OK);
    float latents[TIMES * TOKENS * DIM];
    for (int64_t i = SAMPLES - 1; i >= 0; i--) {
        fixture_latents(i, TIMES, TOKENS, DIM, latents);
        assert_int_equal(ups_cache_writer_put(writer, i, "x", latents, &error), UPS_OK);
    }
    assert_int_equal(ups_cache_writer_done_count(writer), SAMPLES);
    assert_int_equal(ups_cache_writer_finish(writer, NULL, &error), UPS_OK);
    ups_cache_writer_close(writer);
    fixture_assert_same_tree(forward, backward);
    fixture_remove(forward);
    fixture_remove(backward);
}

/* Builds in a child until it is done or killed; true when it was done. */
static bool build_until_killed(const char *directory, const ups_cache_description *d, long microseconds) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(fixture_build(directory, d, 2, NULL) == UPS_OK ? 0 : 1);
    struct timespec pause = {0, microseconds * 1000};
    nanosleep(&pause, NULL);
    kill(child, SIGKILL);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) fail_msg("the build failed by itself");
    return WIFEXITED(status);
}

static void cache_build_killed_at_any_point_resumes_to_the_same_bytes(void **state) {
    char *undisturbed = fixture_directory();
    ups_cache_description d = usual();
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    build_or_fail(undisturbed, &d, 2);
    clock_gettime(CLOCK_MONOTONIC, &to);
    long whole = (to.tv_sec - from.tv_sec) * 1000000 + (to.tv_nsec - from.tv_nsec) / 1000;
    ups_random stream = ups_random_stream((uint64_t)from.tv_nsec, UPS_RANDOM_TEST, 0);
    int killed = 0;
    for (int round = 0, moment = 0; killed < 20; round++) {
        assert_true(round < 200);
        char *disturbed = fixture_directory();
        bool done = false;
        while (!done && killed < 20) {
            done = build_until_killed(disturbed, &d,
                                      (long)(ups_random_uniform(stream, (uint64_t)moment++) * (double)whole));
            killed += !done;
        }
        build_or_fail(disturbed, &d, 2);
        assert_int_equal(fixture_count_partials(disturbed), 0);
        fixture_assert_same_tree(undisturbed, disturbed);
        fixture_remove(disturbed);
    }
    fixture_remove(undisturbed);
}

static void a_resumed_build_asks_only_for_what_is_missing(void **state) {
    char *directory = fixture_directory();
    ups_cache_description d = usual();
    ups_cache_writer *writer;
    ups_error error;
    assert_int_equal(ups_cache_writer_open(directory, &d, &writer, &error), UPS_OK);
    float latents[TIMES * TOKENS * DIM];
    for (int64_t i = 0; i < 6; i++) { /* one whole shard and half of the next */
        fixture_latents(i, TIMES, TOKENS, DIM, latents);
        assert_int_equal(ups_cache_writer_put(writer, i, "x", latents, &error), UPS_OK);
    }
    assert_int_equal(ups_cache_writer_finish(writer, NULL, &error), UPS_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "6 of 23"));
    ups_cache_writer_close(writer);
    assert_int_equal(ups_cache_writer_open(directory, &d, &writer, &error), UPS_OK);
    for (int64_t i = 0; i < SAMPLES; i++) assert_int_equal(ups_cache_writer_done(writer, i), i < PER_SHARD);
    ups_cache_writer_close(writer);
    fixture_remove(directory);
}

/* The codec writes a block's length in 32 bits. */
static void trajectories_of_more_frames_than_the_codec_can_hold_are_refused_before_anything_is_made(void **state) {
    char *directory = fixture_directory();
    ups_cache_description d = usual();
    d.times = 33554432;
    d.tokens = d.dim = 1;
    ups_error error;
    ups_cache_writer *writer;
    assert_int_equal(ups_cache_writer_open(directory, &d, &writer, &error), UPS_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "33554432 frames"));
    assert_non_null(strstr(error.message, "at most 33554431: take `cache.codec: portable`"));
    fixture_remove(directory);
}

static void a_cache_of_another_encoder_is_not_continued_and_the_part_is_named(void **state) {
    char *directory = fixture_directory();
    ups_cache_description d = usual();
    build_or_fail(directory, &d, 1);
    ups_error error;
    const char *const words[] = {"encoder weights", "encoder configuration", "normalisation", "source data"};
    for (int part = 0; part < 4; part++) {
        ups_cache_description other = d;
        char *parts[] = {other.fingerprint.encoder_weights, other.fingerprint.encoder_configuration,
                         other.fingerprint.normalisation, other.fingerprint.source};
        parts[part][0] = 'f';
        assert_int_equal(fixture_build(directory, &other, 1, &error), UPS_ERR_STALE);
        for (int word = 0; word < 4; word++) assert_int_equal(strstr(error.message, words[word]) != NULL, word == part);
    }
    ups_cache_description other = usual();
    other.samples_per_shard = 5;
    assert_int_equal(fixture_build(directory, &other, 1, &error), UPS_ERR_STALE);
    assert_non_null(strstr(error.message, "'samples_per_shard' is 4, now 5"));
    other = usual();
    double parameters[2 * SAMPLES] = {0};
    other.parameters = parameters;
    assert_int_equal(fixture_build(directory, &other, 1, &error), UPS_ERR_STALE);
    fixture_remove(directory);
}

static void shards_that_nobody_can_vouch_for_are_not_adopted(void **state) {
    char *directory = fixture_directory();
    ups_cache_description d = usual();
    build_or_fail(directory, &d, 1);
    char *document = fixture_join(directory, "waves/train/zarr.json");
    assert_int_equal(unlink(document), 0);
    ups_error error;
    assert_int_equal(fixture_build(directory, &d, 1, &error), UPS_ERR_STALE);
    free(document);
    fixture_remove(directory);
}

/* Puts all samples; sample 5 has a NaN at frame 2, token 1, dim 3, sample 9 is too large for FP16. */
static ups_status build_with_bad_samples(const char *directory, const ups_cache_description *d,
                                         ups_cache_summary *summary, ups_error *error) {
    ups_cache_writer *writer;
    UPS_TRY(ups_cache_writer_open(directory, d, &writer, error));
    float latents[TIMES * TOKENS * DIM];
    ups_status status = UPS_OK;
    for (int64_t i = 0; i < SAMPLES && status == UPS_OK; i++) {
        if (ups_cache_writer_done(writer, i)) continue;
        fixture_latents(i, TIMES, TOKENS, DIM, latents);
        if (i == 5) latents[(2 * TOKENS + 1) * DIM + 3] = NAN;
        if (i == 9) latents[7] = -65520.0f;
        if (i == 10) latents[7] = -65519.0f; /* rounds to −65504 */
        char name[40];
        snprintf(name, sizeof name, "waves.h5, sample %04lld", (long long)i);
        status = ups_cache_writer_put(writer, i, name, latents, error);
    }
    if (status == UPS_OK) status = ups_cache_writer_finish(writer, summary, error);
    ups_cache_writer_close(writer);
    return status;
}

static void a_bad_sample_stops_the_build_with_file_sample_and_place(void **state) {
    char *directory = fixture_directory();
    ups_cache_description d = usual();
    ups_error error;
    assert_int_equal(build_with_bad_samples(directory, &d, NULL, &error), UPS_ERR_NUMERIC);
    assert_non_null(strstr(error.message, "waves.h5, sample 0005"));
    assert_non_null(strstr(error.message, "frame 2, token 1, dim 3"));
    fixture_remove(directory);
}

static void bad_samples_can_be_skipped_and_are_recorded(void **state) {
    char *directory = fixture_directory();
    ups_cache_description d = usual();
    d.on_bad_sample = UPS_BAD_SAMPLE_SKIP;
    ups_error error;
    ups_cache_summary summary;
    assert_int_equal(build_with_bad_samples(directory, &d, &summary, &error), UPS_OK);
    assert_int_equal(summary.skipped, 2);
    assert_true(summary.minimum == -65519.0 && summary.error_max == 15.0);
    char *path = fixture_join(directory, "waves/train");
    ups_cache_group *group;
    assert_int_equal(ups_cache_group_open(path, &group, &error), UPS_OK);
    const json_t *skipped = json_object_get(json_object_get(group->attributes, "result"), "skipped");
    assert_int_equal(json_array_size(skipped), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(skipped, 0), "sample")), 5);
    assert_non_null(strstr(json_string_value(json_object_get(json_array_get(skipped, 0), "reason")), "NaN"));
    assert_int_equal(json_integer_value(json_object_get(json_array_get(skipped, 1), "sample")), 9);
    assert_non_null(strstr(json_string_value(json_object_get(json_array_get(skipped, 1), "reason")), "65504"));
    ups_cache_group_close(group);
    free(path);
    fixture_remove(directory);
}

static void the_rounding_error_recorded_is_that_of_the_values(void **state) {
    char *directory = fixture_directory();
    ups_cache_description d = fixture_description(3, TIMES, TOKENS, DIM, PER_SHARD);
    ups_cache_writer *writer;
    ups_cache_summary summary;
    ups_error error;
    assert_int_equal(ups_cache_writer_open(directory, &d, &writer, &error), UPS_OK);
    enum { COUNT = TIMES * TOKENS * DIM };
    float latents[COUNT], back;
    ups_f16 rounded;
    double largest = 0, squares = 0;
    for (int64_t i = 0; i < 3; i++) {
        fixture_latents(i, TIMES, TOKENS, DIM, latents);
        for (int k = 0; k < COUNT; k++) {
            ups_f32_to_f16(&latents[k], &rounded, 1);
            ups_f16_to_f32(&rounded, &back, 1);
            largest = fmax(largest, fabs((double)back - latents[k]));
            squares += ((double)back - latents[k]) * ((double)back - latents[k]);
        }
        assert_int_equal(ups_cache_writer_put(writer, i, "x", latents, &error), UPS_OK);
    }
    assert_int_equal(ups_cache_writer_finish(writer, &summary, &error), UPS_OK);
    assert_true(largest > 0 && summary.error_max == largest);
    assert_true(fabs(summary.error_rms / sqrt(squares / (3.0 * COUNT)) - 1) < 1e-5);
    ups_cache_writer_close(writer);
    fixture_remove(directory);
}

/* In a child, where limits and rights can be given up: the message of a build that failed, or of one that should have.
 */
static void build_in_child(const char *directory, void (*prepare)(void), char *message, size_t size, int *status) {
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prepare();
        ups_cache_description d = fixture_description(SAMPLES, 60, 16, 64, PER_SHARD);
        ups_error error = {.code = UPS_OK, .message = "it was built"};
        ups_status built = fixture_build(directory, &d, 2, &error);
        ssize_t written = write(pipes[1], error.message, strlen(error.message));
        _exit(written < 0 ? 99 : (int)built);
    }
    close(pipes[1]);
    ssize_t got = read(pipes[0], message, size - 1);
    message[got > 0 ? got : 0] = '\0';
    close(pipes[0]);
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code));
    *status = WEXITSTATUS(code);
}

/* Writes fail in the middle of a shard, as on a full disk. */
static void limit_file_size(void) {
    struct rlimit limit = {100000, 100000};
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_IGN);
}

static void nothing(void) {}

static void become_nobody(void) {
    if (geteuid() == 0 && (setegid(65534) != 0 || seteuid(65534) != 0)) _exit(98);
}

static void a_disk_that_fills_up_leaves_no_half_shard_and_the_build_goes_on_later(void **state) {
    char *full = fixture_directory(), *roomy = fixture_directory(), message[1200];
    int status;
    build_in_child(full, limit_file_size, message, sizeof message, &status);
    assert_int_equal(status, UPS_ERR_IO);
    assert_non_null(strstr(message, "latent/c/"));
    assert_int_equal(fixture_count_partials(full), 0);
    build_in_child(full, nothing, message, sizeof message, &status);
    assert_int_equal(status, UPS_OK);
    build_in_child(roomy, nothing, message, sizeof message, &status);
    fixture_assert_same_tree(full, roomy);
    fixture_remove(full);
    fixture_remove(roomy);
}

static void a_directory_without_rights_is_a_sentence(void **state) {
    char *directory = fixture_directory(), message[1200];
    int status;
    assert_int_equal(chmod(directory, 0555), 0);
    build_in_child(directory, become_nobody, message, sizeof message, &status);
    assert_int_equal(status, UPS_ERR_IO);
    if (!strstr(message, directory) || !strstr(message, "Permission denied")) fail_msg("%s", message);
    assert_int_equal(chmod(directory, 0755), 0);
    fixture_remove(directory);
}

static void a_file_in_the_way_is_a_sentence(void **state) {
    char *directory = fixture_directory(), *path = fixture_join(directory, "waves");
    ups_error error;
    assert_int_equal(ups_publish_bytes(path, "x", 1, &error), UPS_OK);
    ups_cache_description d = usual();
    assert_int_equal(fixture_build(directory, &d, 1, &error), UPS_ERR_IO);
    assert_non_null(strstr(error.message, path));
    free(path);
    fixture_remove(directory);
}

static void trajectories_may_come_in_parts_and_be_given_up(void **state) {
    char *whole = fixture_directory(), *parts = fixture_directory();
    ups_cache_description d = usual();
    ups_cache_writer *writer;
    ups_cache_entry *entry;
    ups_error error;
    float latents[(TIMES + 1) * TOKENS * DIM] = {0};
    assert_int_equal(fixture_build(whole, &d, 1, &error), UPS_OK);
    assert_int_equal(ups_cache_writer_open(parts, &d, &writer, &error), UPS_OK);
    for (int64_t i = 0; i < SAMPLES; i++) {
        fixture_latents(i, TIMES, TOKENS, DIM, latents);
        assert_int_equal(ups_cache_writer_begin(writer, i, &entry, &error), UPS_OK);
        ups_cache_writer_add(writer, entry, latents + TOKENS * DIM, 3); /* something else */
        ups_cache_writer_abandon(writer, entry);
        assert_int_equal(ups_cache_writer_begin(writer, i, &entry, &error), UPS_OK);
        for (int64_t t = 0, next; t < TIMES; t = next) {
            next = t + 1 + i % 4 < TIMES ? t + 1 + i % 4 : TIMES;
            ups_cache_writer_add(writer, entry, latents + t * TOKENS * DIM, next - t);
        }
        assert_int_equal(ups_cache_writer_end(writer, entry, "x", &error), UPS_OK);
    }
    assert_int_equal(ups_cache_writer_finish(writer, NULL, &error), UPS_OK);
    ups_cache_writer_close(writer);
    fixture_assert_same_tree(whole, parts);
    fixture_remove(whole);
    fixture_remove(parts);
}

static void other_frames_than_a_trajectory_has_are_refused(void **state) {
    char *directory = fixture_directory();
    ups_cache_description d = usual();
    ups_cache_writer *writer;
    ups_cache_entry *entry;
    ups_error error;
    float latents[(TIMES + 5) * TOKENS * DIM] = {0};
    assert_int_equal(ups_cache_writer_open(directory, &d, &writer, &error), UPS_OK);
    for (int frames = TIMES - 1; frames <= TIMES + 5; frames += 6) {
        assert_int_equal(ups_cache_writer_begin(writer, frames > TIMES, &entry, &error), UPS_OK);
        ups_cache_writer_add(writer, entry, latents, frames);
        assert_int_equal(ups_cache_writer_end(writer, entry, "wave 7", &error), UPS_ERR_ARGUMENT);
        assert_non_null(strstr(error.message, "wave 7"));
    }
    ups_cache_writer_close(writer);
    fixture_remove(directory);
}

static void putting_twice_or_beyond_the_end_is_refused(void **state) {
    char *directory = fixture_directory();
    ups_cache_description d = usual();
    ups_cache_writer *writer;
    ups_error error;
    float latents[TIMES * TOKENS * DIM] = {0};
    assert_int_equal(ups_cache_writer_open(directory, &d, &writer, &error), UPS_OK);
    assert_int_equal(ups_cache_writer_put(writer, 3, "x", latents, &error), UPS_OK);
    assert_int_equal(ups_cache_writer_put(writer, 3, "x", latents, &error), UPS_ERR_ARGUMENT);
    assert_int_equal(ups_cache_writer_put(writer, SAMPLES, "x", latents, &error), UPS_ERR_ARGUMENT);
    assert_int_equal(ups_cache_writer_put(writer, -1, "x", latents, &error), UPS_ERR_ARGUMENT);
    ups_cache_writer_close(writer);
    d.task = "../escape";
    assert_int_equal(ups_cache_writer_open(directory, &d, &writer, &error), UPS_ERR_ARGUMENT);
    fixture_remove(directory);
}

static void shapes_that_cannot_be_are_refused(void **state) {
    char *directory = fixture_directory();
    const struct {
        int64_t samples, times, tokens, dim, samples_per_shard;
    } shapes[] = {
        {0, 1, 1, 1, 0},
        {1, 1, -1, 1, 0},
        {1, INT64_C(1) << 21, INT64_C(1) << 21, INT64_C(1) << 21, 0}, /* 2^64 bytes */
        {INT64_C(1) << 41, 1, 1, 1, 0},
        {1, 1, 1, 1, 2 * UPS_CACHE_MAX_SAMPLES_PER_SHARD},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        ups_cache_description d = usual();
        d.samples = shapes[i].samples;
        d.times = shapes[i].times;
        d.tokens = shapes[i].tokens;
        d.dim = shapes[i].dim;
        d.samples_per_shard = shapes[i].samples_per_shard;
        ups_cache_writer *writer;
        ups_error error;
        assert_int_equal(ups_cache_writer_open(directory, &d, &writer, &error), UPS_ERR_ARGUMENT);
        assert_non_null(strstr(error.message, "waves/train: "));
    }
    fixture_remove(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_threads_builds_the_same_bytes),
        cmocka_unit_test(samples_may_come_in_any_order),
        cmocka_unit_test(cache_build_killed_at_any_point_resumes_to_the_same_bytes),
        cmocka_unit_test(a_resumed_build_asks_only_for_what_is_missing),
        cmocka_unit_test(trajectories_of_more_frames_than_the_codec_can_hold_are_refused_before_anything_is_made),
        cmocka_unit_test(a_cache_of_another_encoder_is_not_continued_and_the_part_is_named),
        cmocka_unit_test(shards_that_nobody_can_vouch_for_are_not_adopted),
        cmocka_unit_test(a_bad_sample_stops_the_build_with_file_sample_and_place),
        cmocka_unit_test(bad_samples_can_be_skipped_and_are_recorded),
        cmocka_unit_test(the_rounding_error_recorded_is_that_of_the_values),
        cmocka_unit_test(a_disk_that_fills_up_leaves_no_half_shard_and_the_build_goes_on_later),
        cmocka_unit_test(a_directory_without_rights_is_a_sentence),
        cmocka_unit_test(a_file_in_the_way_is_a_sentence),
        cmocka_unit_test(trajectories_may_come_in_parts_and_be_given_up),
        cmocka_unit_test(other_frames_than_a_trajectory_has_are_refused),
        cmocka_unit_test(putting_twice_or_beyond_the_end_is_refused),
        cmocka_unit_test(shapes_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
