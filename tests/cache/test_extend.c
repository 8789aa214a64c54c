/* Caches that grow: more files of the same task extend what is there, to the bytes of a build from nothing; anything
 * else is refused with the reason. And caches that are mended, shard by shard. */
#include "base/files.h"
#include "cache/inspect/verify.h"
#include "cache/store/group.h"
#include "fixture.h"
#include "tests/base/testing.h"

#include <sys/stat.h>

enum { FEW = 11, MANY = 19, TIMES = 18, TOKENS = 4, DIM = 24, PER_SHARD = 4, FILES = 2 };

static char *root, *cache, *files[FILES + 1];
static int64_t samples[MANY];
static json_t *source[FILES + 1]; /* by how many files there are */

/* A task's split over the first `count` files: the first FEW samples of MANY lie in the first. */
static ups_cache_description of_files(int count) {
    ups_cache_description d = fixture_description(count == 1 ? FEW : MANY, TIMES, TOKENS, DIM, PER_SHARD);
    d.source_samples = samples;
    d.files = (const char *const *)files;
    d.file_count = count;
    d.source = source[count];
    ups_error error;
    if (ups_fingerprint_source(d.files, count, samples, d.samples, d.fingerprint.source, &error) != UPS_OK)
        fail_msg("%s", error.message);
    return d;
}

static void must_build(const char *directory, const ups_cache_description *d) {
    fixture_must_build(directory, d, 2);
}

/* The same bytes as a build from nothing in a folder of its own makes. */
static void assert_as_built_anew(const ups_cache_description *d) {
    const char *anew = fixture_join(root, "anew");
    must_build(anew, d);
    fixture_assert_same_tree(anew, cache);
}

/* A cache of the first file. */
static int set_up(void **state) {
    root = fixture_directory();
    cache = fixture_join(root, "cache");
    for (int i = 0; i <= FILES; i++) {
        char name[20];
        snprintf(name, sizeof name, "file%d.h5", i);
        files[i] = fixture_join(root, name);
        write_text(files[i], name);
        json_decref(source[i]);
        source[i] = json_array();
        for (int k = 0; k < i; k++) json_array_append_new(source[i], json_string(files[k]));
    }
    for (int i = 0; i < MANY; i++) samples[i] = 3 * i;
    ups_cache_description d = of_files(1);
    must_build(cache, &d);
    return 0;
}

static char *shard_path(int64_t shard) {
    char name[60];
    snprintf(name, sizeof name, "waves/train/latent/c/%lld/0/0/0", (long long)shard);
    return fixture_join(cache, name);
}

static struct timespec written_at(int64_t shard) {
    struct stat info;
    assert_int_equal(stat(shard_path(shard), &info), 0);
    return info.st_mtim;
}

static void more_files_extend_a_cache_to_the_bytes_of_a_build_from_nothing(void **state) {
    ups_cache_description d = of_files(2);
    struct timespec before = written_at(1);
    ups_cache_writer *writer = fixture_writer(cache, &d);
    assert_int_equal(ups_cache_writer_look(writer).extended_from, FEW);
    /* Whole shards stay; the last, of 3 samples, is built again with the sample that it lacked. */
    for (int64_t i = 0; i < MANY; i++) assert_int_equal(ups_cache_writer_done(writer, i), i < 2 * PER_SHARD);
    ups_cache_writer_close(writer);
    must_build(cache, &d); /* as after a kill: the description of the cache is the longer one already */
    struct timespec after = written_at(1);
    assert_true(before.tv_sec == after.tv_sec && before.tv_nsec == after.tv_nsec);
    assert_as_built_anew(&d);
}

static void readers_see_an_extended_cache_as_incomplete_until_it_is_whole(void **state) {
    ups_cache_description d = of_files(2);
    ups_cache_writer_close(fixture_writer(cache, &d));
    ups_cache_group *group = fixture_group(cache);
    assert_false(group->complete);
    ups_cache_group_close(group);
}

static void a_cache_whose_trajectories_begin_to_differ_in_time_is_extended_too(void **state) {
    ups_cache_description d = of_files(2);
    double *time = malloc(MANY * TIMES * sizeof *time);
    for (int i = 0; i < MANY; i++) {
        for (int t = 0; t < TIMES; t++) time[i * TIMES + t] = d.time[t] * (i < FEW ? 1 : 2);
    }
    d.time = time;
    d.time_per_sample = true;
    must_build(cache, &d);
    assert_as_built_anew(&d);
    free(time);
}

static void refuse(const ups_cache_description *d, const char *why) {
    ups_error error;
    const char *before = fixture_join(root, "before");
    fixture_copy(cache, before);
    assert_fails(fixture_build(cache, d, 1, &error), UPS_ERR_STALE, error, why);
    fixture_assert_same_tree(before, cache); /* nothing was touched */
}

static void another_encoder_does_not_extend_a_cache(void **state) {
    ups_cache_description d = of_files(2);
    d.fingerprint.encoder_weights[0] = 'f';
    refuse(&d, "another encoder weights");
}

static void a_changed_file_does_not_extend_a_cache(void **state) {
    assert_int_equal(ups_publish_bytes(files[0], "other", 5, NULL), UPS_OK);
    ups_cache_description d = of_files(2);
    refuse(&d, "one of its files changed");
}

static void files_in_front_do_not_extend_a_cache(void **state) {
    char *first = files[0];
    files[0] = files[1];
    files[1] = first;
    ups_cache_description d = of_files(2);
    refuse(&d, "new files belong behind");
}

static void samples_in_other_splits_do_not_extend_a_cache(void **state) {
    samples[5]++;
    ups_cache_description d = of_files(2);
    refuse(&d, "not the first of this split");
}

static void fewer_files_do_not_extend_a_cache(void **state) {
    ups_cache_description many = of_files(2);
    must_build(cache, &many);
    ups_cache_description d = of_files(1);
    refuse(&d, "made of 2 files, now there are 1");
}

static void changed_parameters_do_not_extend_a_cache(void **state) {
    ups_cache_description d = of_files(2);
    double parameters[2 * MANY];
    memcpy(parameters, d.parameters, sizeof parameters);
    parameters[6] = 5;
    d.parameters = parameters;
    refuse(&d, "parameters of its sample 3 changed");
}

static void a_cache_that_is_being_built_is_not_extended(void **state) {
    ups_cache_description few = of_files(1), many = of_files(2);
    ups_cache_writer *at_work = fixture_writer(cache, &few);
    ups_error error;
    assert_fails(fixture_build(cache, &many, 1, &error), UPS_ERR_IO, error, "is at work in it");
    ups_cache_writer_close(at_work);
    must_build(cache, &many);
}

/* ---- mending ---- */

static void broken_shards_are_built_again_and_nothing_else(void **state) {
    ups_cache_description d = of_files(1);
    write_over(shard_path(0), 40, "\x55\xaa\x55\xaa", 4);
    assert_int_equal(unlink(shard_path(2)), 0);
    struct timespec before = written_at(1);

    const char *group = fixture_join(cache, "waves/train");
    int64_t shards[8], count;
    ups_verify_broken_shards(fixture_verify(group), shards, &count);
    assert_int_equal(count, 2);
    assert_true(shards[0] == 0 && shards[1] == 2);
    d.broken = shards;
    d.broken_count = count;
    must_build(cache, &d);
    struct timespec after = written_at(1);
    assert_true(before.tv_sec == after.tv_sec && before.tv_nsec == after.tv_nsec);
    d.broken_count = 0;
    assert_as_built_anew(&d);
    ups_pool *pool = ups_pool_create(2);
    ups_verify_report report;
    assert_int_equal(ups_cache_verify_shards(group, shards, count, pool, &report, NULL), UPS_OK);
    assert_int_equal(report.finding_count, 0);
    assert_int_equal(report.shards, 2);
    ups_verify_report_free(&report);
    ups_pool_destroy(pool);
}

static void a_shard_is_not_given_up_before_it_is_known_that_it_can_be_mended(void **state) {
    ups_cache_description d = of_files(1);
    d.fingerprint.encoder_weights[0] = 'f';
    d.broken = (const int64_t[]){1};
    d.broken_count = 1;
    refuse(&d, "another encoder weights");
}

static void a_repair_does_not_extend_a_cache(void **state) {
    ups_cache_description d = of_files(2);
    d.repair = true;
    refuse(&d, "`ups cache build` extends it");
}

static void a_repair_that_stops_leaves_what_there_was(void **state) {
    const char *before = fixture_join(root, "before");
    ups_cache_description d = of_files(1);
    write_over(shard_path(0), 40, "\x55\xaa\x55\xaa", 4);
    fixture_copy(cache, before);
    d.repair = true;
    d.broken = (const int64_t[]){0};
    d.broken_count = 1;
    ups_cache_writer *writer = fixture_writer(cache, &d);
    assert_false(ups_cache_writer_done(writer, 0));
    ups_cache_writer_close(writer);
    fixture_assert_same_tree(before, cache);
    must_build(cache, &d);
}

static void a_repair_builds_shards_that_it_finds_broken_itself(void **state) {
    const char *sound = fixture_join(root, "sound");
    ups_cache_description d = of_files(1);
    fixture_copy(cache, sound);
    assert_int_equal(truncate(shard_path(1), 30), 0);
    assert_int_equal(truncate(fixture_join(cache, "waves/train/zarr.json"), 30), 0);
    ups_error error;
    assert_int_equal(fixture_build(cache, &d, 1, &error), UPS_ERR_FORMAT); /* a build is no repair */
    d.repair = true;
    must_build(cache, &d);
    fixture_assert_same_tree(sound, cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(more_files_extend_a_cache_to_the_bytes_of_a_build_from_nothing, set_up),
        cmocka_unit_test_setup(readers_see_an_extended_cache_as_incomplete_until_it_is_whole, set_up),
        cmocka_unit_test_setup(a_cache_whose_trajectories_begin_to_differ_in_time_is_extended_too, set_up),
        cmocka_unit_test_setup(another_encoder_does_not_extend_a_cache, set_up),
        cmocka_unit_test_setup(a_changed_file_does_not_extend_a_cache, set_up),
        cmocka_unit_test_setup(files_in_front_do_not_extend_a_cache, set_up),
        cmocka_unit_test_setup(samples_in_other_splits_do_not_extend_a_cache, set_up),
        cmocka_unit_test_setup(fewer_files_do_not_extend_a_cache, set_up),
        cmocka_unit_test_setup(changed_parameters_do_not_extend_a_cache, set_up),
        cmocka_unit_test_setup(a_cache_that_is_being_built_is_not_extended, set_up),
        cmocka_unit_test_setup(broken_shards_are_built_again_and_nothing_else, set_up),
        cmocka_unit_test_setup(a_repair_builds_shards_that_it_finds_broken_itself, set_up),
        cmocka_unit_test_setup(a_repair_does_not_extend_a_cache, set_up),
        cmocka_unit_test_setup(a_repair_that_stops_leaves_what_there_was, set_up),
        cmocka_unit_test_setup(a_shard_is_not_given_up_before_it_is_known_that_it_can_be_mended, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, fixture_clear);
}
