/* Building caches: the same bytes whatever happens on the way, and a sentence when it cannot be done. */
#include "base/files.h"
#include "base/random.h"
#include "cache/store/group.h"
#include "fixture.h"
#include "tests/base/testing.h"

#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#define SAMPLES 23
#define TIMES 18
#define TOKENS 4
#define DIM 24
#define PER_SHARD 4

static ups_cache_description usual(void) {
    return fixture_description(SAMPLES, TIMES, TOKENS, DIM, PER_SHARD);
}

static void any_number_of_threads_builds_the_same_bytes(void **state) {
    char *one = fixture_directory(), *four = fixture_directory();
    ups_cache_description d = usual();
    fixture_must_build(one, &d, 1);
    fixture_must_build(four, &d, 4);
    fixture_assert_same_tree(one, four);
}

static void samples_may_come_in_any_order(void **state) {
    char *forward = fixture_directory(), *backward = fixture_directory();
    ups_cache_description d = usual();
    fixture_must_build(forward, &d, 1);
    ups_cache_writer *writer = fixture_writer(backward, &d);
    for (int64_t i = SAMPLES - 1; i >= 0; i--) fixture_put(writer, &d, i);
    assert_int_equal(ups_cache_writer_done_count(writer), SAMPLES);
    fixture_finish(writer);
    fixture_assert_same_tree(forward, backward);
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
    fixture_must_build(undisturbed, &d, 2);
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
        fixture_must_build(disturbed, &d, 2);
        assert_int_equal(fixture_count_partials(disturbed), 0);
        fixture_assert_same_tree(undisturbed, disturbed);
    }
}

static void a_resumed_build_asks_only_for_what_is_missing(void **state) {
    char *directory = fixture_directory();
    ups_cache_description d = usual();
    ups_cache_writer *writer = fixture_writer(directory, &d);
    ups_error error;
    for (int64_t i = 0; i < 6; i++) fixture_put(writer, &d, i); /* one whole shard and half of the next */
    assert_fails(ups_cache_writer_finish(writer, NULL, &error), UPS_ERR_ARGUMENT, error, "6 of 23");
    ups_cache_writer_close(writer);
    writer = fixture_writer(directory, &d);
    for (int64_t i = 0; i < SAMPLES; i++) assert_int_equal(ups_cache_writer_done(writer, i), i < PER_SHARD);
    ups_cache_writer_close(writer);
}

/* The codec writes a block's length in 32 bits. */
static void trajectories_of_more_frames_than_the_codec_can_hold_are_refused_before_anything_is_made(void **state) {
    char *directory = fixture_directory();
    ups_cache_description d = usual();
    d.times = 33554432;
    d.tokens = d.dim = 1;
    ups_error error;
    ups_cache_writer *writer;
    assert_fails(ups_cache_writer_open(directory, &d, &writer, &error), UPS_ERR_ARGUMENT, error, "33554432 frames");
    assert_contains(error.message, "at most 33554431: take `cache.codec: portable`");
}

static void a_cache_of_another_encoder_is_not_continued_and_the_part_is_named(void **state) {
    char *directory = fixture_directory();
    ups_cache_description d = usual();
    fixture_must_build(directory, &d, 1);
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
    assert_fails(fixture_build(directory, &other, 1, &error), UPS_ERR_STALE, error, "'samples_per_shard' is 4, now 5");
    other = usual();
    double parameters[2 * SAMPLES] = {0};
    other.parameters = parameters;
    assert_int_equal(fixture_build(directory, &other, 1, &error), UPS_ERR_STALE);
}

/* Latents of two devices differ by rounding: one cache holds those of one. */
static void a_cache_that_another_device_began_is_not_continued(void **state) {
    char *directory = fixture_directory();
    ups_cache_description here = usual(), card = usual();
    strcpy(here.fingerprint.device, "cpu");
    strcpy(card.fingerprint.device, "cuda");
    ups_cache_writer *writer = fixture_writer(directory, &card);
    fixture_put(writer, &card, 0);
    ups_cache_writer_close(writer);
    ups_error error;
    assert_fails(fixture_build(directory, &here, 1, &error), UPS_ERR_STALE, error,
                 "another device (cuda… in the cache, cpu… now)");
    fixture_must_build(directory, &card, 1);
    size_t bytes;
    assert_contains(fixture_read(fixture_join(directory, "waves/train/zarr.json"), &bytes), "\"device\"");
    assert_int_equal(fixture_build(directory, &here, 1, NULL), UPS_ERR_STALE);

    char *other = fixture_directory(); /* the CPU goes without saying, as it did before there was another device */
    fixture_must_build(other, &here, 1);
    assert_null(strstr(fixture_read(fixture_join(other, "waves/train/zarr.json"), &bytes), "\"device\""));
    ups_cache_description silent = usual();
    fixture_must_build(other, &silent, 1);
}

static void shards_that_nobody_can_vouch_for_are_not_adopted(void **state) {
    char *directory = fixture_directory();
    ups_cache_description d = usual();
    fixture_must_build(directory, &d, 1);
    assert_int_equal(unlink(fixture_join(directory, "waves/train/zarr.json")), 0);
    assert_int_equal(fixture_build(directory, &d, 1, NULL), UPS_ERR_STALE);
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
    assert_fails(build_with_bad_samples(directory, &d, NULL, &error), UPS_ERR_NUMERIC, error, "waves.h5, sample 0005");
    assert_contains(error.message, "frame 2, token 1, dim 3");
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
    ups_cache_group *group = fixture_group(directory);
    const json_t *skipped = json_object_get(json_object_get(group->attributes, "result"), "skipped");
    static const struct {
        int64_t sample;
        const char *reason;
    } expected[] = {{5, "NaN"}, {9, "65504"}};
    assert_int_equal(json_array_size(skipped), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *entry = json_array_get(skipped, i);
        assert_int_equal(json_integer_value(json_object_get(entry, "sample")), expected[i].sample);
        assert_contains(json_string_value(json_object_get(entry, "reason")), expected[i].reason);
    }
    ups_cache_group_close(group);
}

static void the_rounding_error_recorded_is_that_of_the_values(void **state) {
    char *directory = fixture_directory();
    ups_cache_description d = fixture_description(3, TIMES, TOKENS, DIM, PER_SHARD);
    ups_cache_writer *writer = fixture_writer(directory, &d);
    ups_cache_summary summary;
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
        fixture_put(writer, &d, i);
    }
    assert_int_equal(ups_cache_writer_finish(writer, &summary, NULL), UPS_OK);
    assert_true(largest > 0 && summary.error_max == largest);
    assert_true(fabs(summary.error_rms / sqrt(squares / (3.0 * COUNT)) - 1) < 1e-5);
    ups_cache_writer_close(writer);
}

/* A build in a process of its own, where limits and rights can be given up. */
typedef struct build_apart {
    const char *directory;
    void (*prepare)(void);
    ups_error error;
} build_apart;

static int prepare_and_build(void *context) {
    build_apart *build = context;
    ups_cache_description d = fixture_description(SAMPLES, 60, 16, 64, PER_SHARD);
    if (build->prepare) build->prepare();
    return (int)fixture_build(build->directory, &d, 2, &build->error);
}

/* Fails as expected (UPS_OK: not at all), with a sentence that says `part`. */
static void assert_built_apart(const char *directory, void (*prepare)(void), ups_status expected, const char *part) {
    build_apart *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    *shared = (build_apart){.directory = directory, .prepare = prepare};
    assert_fails(exit_code_of(prepare_and_build, shared), expected, shared->error, part);
    munmap(shared, sizeof *shared);
}

/* Writes fail in the middle of a shard, as on a full disk. */
static void limit_file_size(void) {
    struct rlimit limit = {100000, 100000};
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_IGN);
}

static void become_nobody(void) {
    if (geteuid() == 0 && (setegid(65534) != 0 || seteuid(65534) != 0)) _exit(98);
}

static void a_disk_that_fills_up_leaves_no_half_shard_and_the_build_goes_on_later(void **state) {
    char *full = fixture_directory(), *roomy = fixture_directory();
    assert_built_apart(full, limit_file_size, UPS_ERR_IO, "latent/c/");
    assert_int_equal(fixture_count_partials(full), 0);
    assert_built_apart(full, NULL, UPS_OK, "");
    assert_built_apart(roomy, NULL, UPS_OK, "");
    fixture_assert_same_tree(full, roomy);
}

static void a_directory_without_rights_is_a_sentence(void **state) {
    char *directory = fixture_directory();
    assert_int_equal(chmod(directory, 0555), 0);
    assert_built_apart(directory, become_nobody, UPS_ERR_IO, directory);
    assert_built_apart(directory, become_nobody, UPS_ERR_IO, "Permission denied");
    assert_int_equal(chmod(directory, 0755), 0);
}

static void a_file_in_the_way_is_a_sentence(void **state) {
    char *directory = fixture_directory(), *path = fixture_join(directory, "waves");
    ups_error error;
    write_text(path, "x");
    ups_cache_description d = usual();
    assert_fails(fixture_build(directory, &d, 1, &error), UPS_ERR_IO, error, path);
}

static void trajectories_may_come_in_parts_and_be_given_up(void **state) {
    char *whole = fixture_directory(), *parts = fixture_directory();
    ups_cache_description d = usual();
    ups_cache_writer *writer = fixture_writer(parts, &d);
    ups_cache_entry *entry;
    ups_error error;
    float latents[(TIMES + 1) * TOKENS * DIM] = {0};
    fixture_must_build(whole, &d, 1);
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
    fixture_finish(writer);
    fixture_assert_same_tree(whole, parts);
}

static void other_frames_than_a_trajectory_has_are_refused(void **state) {
    char *directory = fixture_directory();
    ups_cache_description d = usual();
    ups_cache_writer *writer = fixture_writer(directory, &d);
    ups_cache_entry *entry;
    ups_error error;
    float latents[(TIMES + 5) * TOKENS * DIM] = {0};
    for (int frames = TIMES - 1; frames <= TIMES + 5; frames += 6) {
        assert_int_equal(ups_cache_writer_begin(writer, frames > TIMES, &entry, &error), UPS_OK);
        ups_cache_writer_add(writer, entry, latents, frames);
        assert_fails(ups_cache_writer_end(writer, entry, "wave 7", &error), UPS_ERR_ARGUMENT, error, "wave 7");
    }
    ups_cache_writer_close(writer);
}

static void putting_twice_or_beyond_the_end_is_refused(void **state) {
    char *directory = fixture_directory();
    ups_cache_description d = usual();
    ups_cache_writer *writer = fixture_writer(directory, &d);
    ups_error error;
    float latents[TIMES * TOKENS * DIM] = {0};
    assert_int_equal(ups_cache_writer_put(writer, 3, "x", latents, &error), UPS_OK);
    assert_int_equal(ups_cache_writer_put(writer, 3, "x", latents, &error), UPS_ERR_ARGUMENT);
    assert_int_equal(ups_cache_writer_put(writer, SAMPLES, "x", latents, &error), UPS_ERR_ARGUMENT);
    assert_int_equal(ups_cache_writer_put(writer, -1, "x", latents, &error), UPS_ERR_ARGUMENT);
    ups_cache_writer_close(writer);
    d.task = "../escape";
    assert_int_equal(ups_cache_writer_open(directory, &d, &writer, &error), UPS_ERR_ARGUMENT);
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
        assert_fails(ups_cache_writer_open(directory, &d, &writer, &error), UPS_ERR_ARGUMENT, error, "waves/train: ");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_threads_builds_the_same_bytes),
        cmocka_unit_test(samples_may_come_in_any_order),
        cmocka_unit_test(cache_build_killed_at_any_point_resumes_to_the_same_bytes),
        cmocka_unit_test(a_resumed_build_asks_only_for_what_is_missing),
        cmocka_unit_test(trajectories_of_more_frames_than_the_codec_can_hold_are_refused_before_anything_is_made),
        cmocka_unit_test(a_cache_of_another_encoder_is_not_continued_and_the_part_is_named),
        cmocka_unit_test(a_cache_that_another_device_began_is_not_continued),
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
    return cmocka_run_group_tests(tests, NULL, fixture_clear);
}
