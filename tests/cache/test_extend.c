/* Caches that grow: more files of the same task extend what is there, to the bytes of a build from nothing; anything
 * else is refused with the reason. And caches that are mended, shard by shard. */
#include "base/files.h"
#include "cache/inspect/verify.h"
#include "cache/store/group.h"
#include "fixture.h"
#include "tests/base/testing.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { FEW = 11, MANY = 19, TIMES = 18, TOKENS = 4, DIM = 24, PER_SHARD = 4, FILES = 2 };

typedef struct fixture {
    char *root, *few, *files[FILES + 1];
    int64_t samples[MANY];
    json_t *source[FILES + 1]; /* by how many files there are */
} fixture;

/* A task's split over the first `files` files: the first FEW samples of MANY lie in the first. */
static ups_cache_description of_files(const fixture *f, int files) {
    ups_cache_description d = fixture_description(files == 1 ? FEW : MANY, TIMES, TOKENS, DIM, PER_SHARD);
    d.source_samples = f->samples;
    d.files = (const char *const *)f->files;
    d.file_count = files;
    d.source = f->source[files];
    ups_error error;
    if (ups_fingerprint_source(d.files, files, f->samples, d.samples, d.fingerprint.source, &error) != UPS_OK) {
        fail_msg("%s", error.message);
    }
    return d;
}

static void build_or_fail(const char *directory, const ups_cache_description *d) {
    ups_error error;
    if (fixture_build(directory, d, 2, &error) != UPS_OK) fail_msg("%s", error.message);
}

static int set_up(void **state) {
    fixture *f = calloc(1, sizeof *f);
    f->root = fixture_directory();
    f->few = fixture_join(f->root, "cache");
    for (int i = 0; i <= FILES; i++) {
        char name[20];
        snprintf(name, sizeof name, "file%d.h5", i);
        f->files[i] = fixture_join(f->root, name);
        assert_int_equal(ups_publish_bytes(f->files[i], name, strlen(name), NULL), UPS_OK);
        f->source[i] = json_array();
        for (int k = 0; k < i; k++) json_array_append_new(f->source[i], json_string(f->files[k]));
    }
    for (int i = 0; i < MANY; i++) f->samples[i] = 3 * i;
    ups_cache_description d = of_files(f, 1);
    build_or_fail(f->few, &d);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    for (int i = 0; i <= FILES; i++) {
        free(f->files[i]);
        json_decref(f->source[i]);
    }
    free(f->few);
    fixture_remove(f->root);
    free(f);
    return 0;
}

static struct timespec written_at(const char *directory, int64_t shard) {
    char path[4096];
    struct stat info;
    snprintf(path, sizeof path, "%s/waves/train/latent/c/%lld/0/0/0", directory, (long long)shard);
    assert_int_equal(stat(path, &info), 0);
    return info.st_mtim;
}

static void more_files_extend_a_cache_to_the_bytes_of_a_build_from_nothing(void **state) {
    fixture *f = *state;
    ups_cache_description d = of_files(f, 2);
    struct timespec before = written_at(f->few, 1);
    ups_cache_writer *writer;
    ups_error error;
    if (ups_cache_writer_open(f->few, &d, &writer, &error) != UPS_OK) fail_msg("%s", error.message);
    assert_int_equal(ups_cache_writer_look(writer).extended_from, FEW);
    /* Whole shards stay; the last, of 3 samples, is built again with the sample that it lacked. */
    for (int64_t i = 0; i < MANY; i++) assert_int_equal(ups_cache_writer_done(writer, i), i < 2 * PER_SHARD);
    ups_cache_writer_close(writer);
    build_or_fail(f->few, &d); /* as after a kill: the description of the cache is the longer one already */
    struct timespec after = written_at(f->few, 1);
    assert_true(before.tv_sec == after.tv_sec && before.tv_nsec == after.tv_nsec);
    char *anew = fixture_join(f->root, "anew");
    build_or_fail(anew, &d);
    fixture_assert_same_tree(anew, f->few);
    free(anew);
}

static void readers_see_an_extended_cache_as_incomplete_until_it_is_whole(void **state) {
    fixture *f = *state;
    ups_cache_description d = of_files(f, 2);
    ups_cache_writer *writer;
    ups_error error;
    assert_int_equal(ups_cache_writer_open(f->few, &d, &writer, &error), UPS_OK);
    ups_cache_writer_close(writer);
    char *path = fixture_join(f->few, "waves/train");
    ups_cache_group *group;
    assert_int_equal(ups_cache_group_open(path, &group, &error), UPS_OK);
    assert_false(group->complete);
    ups_cache_group_close(group);
    free(path);
}

static void a_cache_whose_trajectories_begin_to_differ_in_time_is_extended_too(void **state) {
    fixture *f = *state;
    ups_cache_description d = of_files(f, 2);
    double *time = malloc(MANY * TIMES * sizeof *time);
    for (int i = 0; i < MANY; i++) {
        for (int t = 0; t < TIMES; t++) time[i * TIMES + t] = d.time[t] * (i < FEW ? 1 : 2);
    }
    d.time = time;
    d.time_per_sample = true;
    build_or_fail(f->few, &d);
    char *anew = fixture_join(f->root, "anew");
    build_or_fail(anew, &d);
    fixture_assert_same_tree(anew, f->few);
    free(anew);
    free(time);
}

static void refuse(const fixture *f, const ups_cache_description *d, const char *why) {
    ups_error error;
    char *before = fixture_join(f->root, "before"), command[8300];
    snprintf(command, sizeof command, "cp -r %s %s", f->few, before);
    assert_int_equal(system(command), 0);
    assert_int_equal(fixture_build(f->few, d, 1, &error), UPS_ERR_STALE);
    if (!strstr(error.message, why)) fail_msg("expected '%s' in: %s", why, error.message);
    fixture_assert_same_tree(before, f->few); /* nothing was touched */
    free(before);
}

static void another_encoder_does_not_extend_a_cache(void **state) {
    ups_cache_description d = of_files(*state, 2);
    d.fingerprint.encoder_weights[0] = 'f';
    refuse(*state, &d, "another encoder weights");
}

static void a_changed_file_does_not_extend_a_cache(void **state) {
    fixture *f = *state;
    assert_int_equal(ups_publish_bytes(f->files[0], "other", 5, NULL), UPS_OK);
    ups_cache_description d = of_files(f, 2);
    refuse(f, &d, "one of its files changed");
}

static void files_in_front_do_not_extend_a_cache(void **state) {
    fixture *f = *state;
    char *first = f->files[0];
    f->files[0] = f->files[1];
    f->files[1] = first;
    ups_cache_description d = of_files(f, 2);
    refuse(f, &d, "new files belong behind");
}

static void samples_in_other_splits_do_not_extend_a_cache(void **state) {
    fixture *f = *state;
    f->samples[5]++;
    ups_cache_description d = of_files(f, 2);
    refuse(f, &d, "not the first of this split");
}

static void fewer_files_do_not_extend_a_cache(void **state) {
    fixture *f = *state;
    ups_cache_description many = of_files(f, 2);
    build_or_fail(f->few, &many);
    ups_cache_description d = of_files(f, 1);
    refuse(f, &d, "made of 2 files, now there are 1");
}

static void changed_parameters_do_not_extend_a_cache(void **state) {
    fixture *f = *state;
    ups_cache_description d = of_files(f, 2);
    double parameters[2 * MANY];
    memcpy(parameters, d.parameters, sizeof parameters);
    parameters[6] = 5;
    d.parameters = parameters;
    refuse(f, &d, "parameters of its sample 3 changed");
}

static void a_cache_that_is_being_built_is_not_extended(void **state) {
    fixture *f = *state;
    ups_cache_description few = of_files(f, 1), many = of_files(f, 2);
    ups_cache_writer *at_work;
    ups_error error;
    assert_int_equal(ups_cache_writer_open(f->few, &few, &at_work, &error), UPS_OK);
    assert_int_equal(fixture_build(f->few, &many, 1, &error), UPS_ERR_IO);
    assert_non_null(strstr(error.message, "is at work in it"));
    ups_cache_writer_close(at_work);
    build_or_fail(f->few, &many);
}

/* ---- mending ---- */

static void broken_shards_are_built_again_and_nothing_else(void **state) {
    fixture *f = *state;
    char *sound = fixture_join(f->root, "sound"), *group = fixture_join(f->few, "waves/train"), path[4096];
    ups_cache_description d = of_files(f, 1);
    build_or_fail(sound, &d);
    snprintf(path, sizeof path, "%s/latent/c/0/0/0/0", group);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "\x55\xaa\x55\xaa", 4, 40), 4);
    close(fd);
    snprintf(path, sizeof path, "%s/latent/c/2/0/0/0", group);
    assert_int_equal(unlink(path), 0);
    struct timespec before = written_at(f->few, 1);

    ups_pool *pool = ups_pool_create(2);
    ups_verify_report report;
    ups_error error;
    int64_t shards[8], count;
    assert_int_equal(ups_cache_verify(group, pool, NULL, NULL, &report, &error), UPS_OK);
    ups_verify_broken_shards(&report, shards, &count);
    ups_verify_report_free(&report);
    assert_int_equal(count, 2);
    assert_true(shards[0] == 0 && shards[1] == 2);
    d.broken = shards;
    d.broken_count = count;
    build_or_fail(f->few, &d);
    struct timespec after = written_at(f->few, 1);
    assert_true(before.tv_sec == after.tv_sec && before.tv_nsec == after.tv_nsec);
    fixture_assert_same_tree(sound, f->few);
    assert_int_equal(ups_cache_verify_shards(group, shards, count, pool, &report, &error), UPS_OK);
    assert_int_equal(report.finding_count, 0);
    assert_int_equal(report.shards, 2);
    ups_verify_report_free(&report);
    ups_pool_destroy(pool);
    free(sound);
    free(group);
}

static void a_shard_is_not_given_up_before_it_is_known_that_it_can_be_mended(void **state) {
    fixture *f = *state;
    ups_cache_description d = of_files(f, 1);
    d.fingerprint.encoder_weights[0] = 'f';
    d.broken = (const int64_t[]){1};
    d.broken_count = 1;
    refuse(f, &d, "another encoder weights");
}

static void a_repair_does_not_extend_a_cache(void **state) {
    fixture *f = *state;
    ups_cache_description d = of_files(f, 2);
    d.repair = true;
    refuse(f, &d, "`ups cache build` extends it");
}

static void a_repair_that_stops_leaves_what_there_was(void **state) {
    fixture *f = *state;
    char *before = fixture_join(f->root, "before"), command[5000];
    ups_cache_description d = of_files(f, 1);
    snprintf(command, sizeof command, "%s/waves/train/latent/c/0/0/0/0", f->few);
    int fd = open(command, O_WRONLY);
    assert_int_equal(pwrite(fd, "\x55\xaa\x55\xaa", 4, 40), 4);
    close(fd);
    snprintf(command, sizeof command, "cp -r '%s' '%s'", f->few, before);
    assert_int_equal(system(command), 0);
    d.repair = true;
    d.broken = (const int64_t[]){0};
    d.broken_count = 1;
    ups_cache_writer *writer;
    ups_error error;
    assert_int_equal(ups_cache_writer_open(f->few, &d, &writer, &error), UPS_OK);
    assert_false(ups_cache_writer_done(writer, 0));
    ups_cache_writer_close(writer);
    fixture_assert_same_tree(before, f->few);
    build_or_fail(f->few, &d);
    free(before);
}

static void a_repair_builds_shards_that_it_finds_broken_itself(void **state) {
    fixture *f = *state;
    char *sound = fixture_join(f->root, "sound"), path[4096];
    ups_cache_description d = of_files(f, 1);
    build_or_fail(sound, &d);
    snprintf(path, sizeof path, "%s/waves/train/latent/c/1/0/0/0", f->few);
    assert_int_equal(truncate(path, 30), 0);
    snprintf(path, sizeof path, "%s/waves/train/zarr.json", f->few);
    assert_int_equal(truncate(path, 30), 0);
    ups_error error;
    assert_int_equal(fixture_build(f->few, &d, 1, &error), UPS_ERR_FORMAT); /* a build is no repair */
    d.repair = true;
    build_or_fail(f->few, &d);
    fixture_assert_same_tree(sound, f->few);
    free(sound);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(more_files_extend_a_cache_to_the_bytes_of_a_build_from_nothing, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(readers_see_an_extended_cache_as_incomplete_until_it_is_whole, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_cache_whose_trajectories_begin_to_differ_in_time_is_extended_too, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(another_encoder_does_not_extend_a_cache, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_changed_file_does_not_extend_a_cache, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_in_front_do_not_extend_a_cache, set_up, tear_down),
        cmocka_unit_test_setup_teardown(samples_in_other_splits_do_not_extend_a_cache, set_up, tear_down),
        cmocka_unit_test_setup_teardown(fewer_files_do_not_extend_a_cache, set_up, tear_down),
        cmocka_unit_test_setup_teardown(changed_parameters_do_not_extend_a_cache, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_cache_that_is_being_built_is_not_extended, set_up, tear_down),
        cmocka_unit_test_setup_teardown(broken_shards_are_built_again_and_nothing_else, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_repair_builds_shards_that_it_finds_broken_itself, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_repair_does_not_extend_a_cache, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_repair_that_stops_leaves_what_there_was, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_shard_is_not_given_up_before_it_is_known_that_it_can_be_mended, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
