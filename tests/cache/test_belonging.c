/* A shard, a document or an array that is sound in itself, but another's, is refused; and what cannot be read is not
 * called broken. */
#include "base/files.h"
#include "cache/inspect/export.h"
#include "cache/inspect/verify.h"
#include "cache/store/document.h"
#include "cache/store/group.h"
#include "cache/store/source.h"
#include "fixture.h"
#include "tests/base/testing.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define SAMPLES 10
#define TIMES 20
#define TOKENS 4
#define DIM 16
#define PER_SHARD 4

/* `cache` is what is changed; each of the others differs from it in one thing. */
typedef struct fixture {
    char *root, *cache, *other_encoder, *other_split, *other_data;
    ups_pool *pool;
} fixture;

/* The trajectories of a cache made of other data, the fixture's in another order. */
static void build_other_data(const char *directory, const ups_cache_description *d) {
    ups_cache_writer *writer;
    ups_error error;
    float latents[TIMES * TOKENS * DIM];
    assert_int_equal(ups_cache_writer_open(directory, d, &writer, &error), UPS_OK);
    for (int64_t i = 0; i < SAMPLES; i++) {
        fixture_latents(SAMPLES - i, TIMES, TOKENS, DIM, latents);
        assert_int_equal(ups_cache_writer_put(writer, i, "x", latents, &error), UPS_OK);
    }
    assert_int_equal(ups_cache_writer_finish(writer, NULL, &error), UPS_OK);
    ups_cache_writer_close(writer);
}

static int set_up(void **state) {
    fixture *f = calloc(1, sizeof *f);
    f->root = fixture_directory();
    f->cache = fixture_join(f->root, "cache");
    f->other_encoder = fixture_join(f->root, "encoder");
    f->other_split = f->cache;
    f->other_data = fixture_join(f->root, "data");
    f->pool = ups_pool_create(2);
    ups_cache_description d = fixture_description(SAMPLES, TIMES, TOKENS, DIM, PER_SHARD);
    ups_error error;
    if (fixture_build(f->cache, &d, 2, &error) != UPS_OK) fail_msg("%s", error.message);
    d.split = "test";
    if (fixture_build(f->cache, &d, 2, &error) != UPS_OK) fail_msg("%s", error.message);
    d.split = "train";
    d.fingerprint.source[0] = 'f';
    build_other_data(f->other_data, &d);
    d.fingerprint.encoder_weights[0] = 'f';
    if (fixture_build(f->other_encoder, &d, 2, &error) != UPS_OK) fail_msg("%s", error.message);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    ups_pool_destroy(f->pool);
    free(f->cache);
    free(f->other_encoder);
    free(f->other_data);
    fixture_remove(f->root);
    free(f);
    return 0;
}

static char *in(const char *directory, const char *split, const char *name) {
    char *path = NULL;
    assert_true(asprintf(&path, "%s/waves/%s/%s", directory, split, name) > 0);
    return path;
}

static void copy_file(const char *from, const char *to) {
    char *bytes;
    size_t length;
    ups_error error;
    assert_int_equal(ups_read_file(from, 1 << 24, &bytes, &length, &error), UPS_OK);
    assert_int_equal(ups_publish_bytes(to, bytes, length, &error), UPS_OK);
    free(bytes);
}

static ups_verify_report verify(const fixture *f) {
    char *group = fixture_join(f->cache, "waves/train");
    ups_verify_report report;
    ups_error error;
    if (ups_cache_verify(group, f->pool, NULL, NULL, &report, &error) != UPS_OK) fail_msg("%s", error.message);
    free(group);
    return report;
}

static void assert_says(const char *message, const char *path, const char *words) {
    if (!strstr(message, path) || !strstr(message, words)) {
        fail_msg("\"%s\" does not name %s with \"%s\"", message, path, words);
    }
}

/* Training, export and verify name `path` and say `words` of it. */
static void assert_refused(const fixture *f, const char *path, const char *words) {
    char *group = fixture_join(f->cache, "waves/train"), *out = fixture_join(f->root, "out.npy");
    ups_source *source;
    ups_error error;
    assert_int_not_equal(ups_cache_source_open(group, NULL, &source, &error), UPS_OK);
    assert_says(error.message, path, words);
    ups_export_request request = {.format = UPS_EXPORT_NPY, .path = out};
    assert_int_not_equal(ups_cache_export(group, &request, &error), UPS_OK);
    assert_says(error.message, path, words);
    ups_verify_report report = verify(f);
    assert_true(report.finding_count > 0);
    assert_says(report.findings[0].message, path, words);
    ups_verify_report_free(&report);
    free(group);
    free(out);
}

static void a_shard_of_another_place_split_encoder_or_data_is_refused_by_name(void **state) {
    fixture *f = *state;
    const struct {
        const char *cache, *split, *shard, *words;
    } from[] = {
        {f->cache, "train", "latent/c/0/0/0/0", "is shard 0 of waves/train in the place of shard 1"},
        {f->other_split, "test", "latent/c/1/0/0/0", "is shard 1 of another cache, of waves/test"},
        {f->other_encoder, "train", "latent/c/1/0/0/0", "of waves/train as well, but of another encoder"},
        {f->other_data, "train", "latent/c/1/0/0/0", "is not the shard with which the build of waves/train ended"},
    };
    char *path = in(f->cache, "train", "latent/c/1/0/0/0"), *kept = fixture_join(f->root, "kept");
    copy_file(path, kept);
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        char *other = in(from[i].cache, from[i].split, from[i].shard);
        copy_file(other, path);
        assert_refused(f, path, from[i].words);
        free(other);
    }
    copy_file(kept, path);
    ups_verify_report report = verify(f);
    assert_int_equal(report.finding_count, 0);
    ups_verify_report_free(&report);
    free(path);
    free(kept);
}

/* Bytes of another cache where a chunk of this one lies, with a CRC32C that fits them. */
static void a_chunk_of_another_cache_within_a_shard_is_refused(void **state) {
    fixture *f = *state;
    char *group = fixture_join(f->cache, "waves/train"), *other = in(f->other_data, "train", "latent/c/0/0/0/0");
    ups_source *source;
    ups_error error;
    ups_extent extent;
    int64_t count;
    ups_f16 read[TIMES * TOKENS * DIM];
    assert_int_equal(ups_cache_source_open(group, NULL, &source, &error), UPS_OK);
    assert_int_equal(source->class->extents(source, 2, (ups_frames){0, TIMES}, &extent, &count, &error), UPS_OK);
    uint8_t *bytes = malloc(extent.length);
    int fd = open(other, O_RDONLY);
    assert_int_equal(pread(fd, bytes, extent.length - 4, 0), extent.length - 4);
    close(fd);
    uint32_t crc = ups_crc32c(0, bytes, extent.length - 4);
    memcpy(bytes + extent.length - 4, &crc, 4);
    fd = open(source->files[extent.file], O_WRONLY);
    assert_int_equal(pwrite(fd, bytes, extent.length, (off_t)extent.offset), extent.length);
    close(fd);
    assert_int_equal(ups_source_read(source, 2, (ups_frames){0, TIMES}, read, &error), UPS_ERR_CHECKSUM);
    assert_non_null(strstr(error.message, "not the one that its shard was written with"));
    ups_source_close(source);
    ups_verify_report report = verify(f);
    assert_int_equal(report.finding_count, 1);
    assert_int_equal(report.findings[0].sample, 2);
    ups_verify_report_free(&report);
    free(bytes);
    free(other);
    free(group);
}

static void arrays_and_documents_of_another_cache_are_found(void **state) {
    fixture *f = *state;
    ups_cache_description d = fixture_description(SAMPLES, TIMES, TOKENS, DIM, PER_SHARD);
    char *third = fixture_join(f->root, "third");
    int64_t origins[SAMPLES] = {5, 7};
    double times[TIMES] = {1}, parameters[2 * SAMPLES] = {3};
    d.time = times;
    d.parameters = parameters;
    d.source_samples = origins;
    d.fingerprint.encoder_configuration[0] = 'e';
    build_other_data(third, &d);
    static const char *const names[] = {"zarr.json",    "latent/zarr.json",  "time/c/0",        "condition/c/0/0",
                                        "shards/c/0/0", "source_sample/c/0", "statistics/c/1/0"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = in(f->cache, "train", names[i]), *other = in(third, "train", names[i]);
        char *kept = fixture_join(f->root, "kept"), *group = fixture_join(f->cache, "waves/train");
        copy_file(path, kept);
        copy_file(other, path);
        ups_verify_report report = verify(f);
        if (report.finding_count == 0) fail_msg("%s of another cache was not found", names[i]);
        ups_verify_report_free(&report);
        ups_source *source;
        ups_error error;
        bool training_reads_it = strncmp(names[i], "statistics", 10) != 0;
        assert_int_equal(ups_cache_source_open(group, NULL, &source, &error) != UPS_OK, training_reads_it);
        if (!training_reads_it) ups_source_close(source);
        copy_file(kept, path);
        free(path);
        free(other);
        free(kept);
        free(group);
    }
    free(third);
}

static void groups_that_changed_their_names_are_found_and_not_trained_on(void **state) {
    fixture *f = *state;
    char *train = fixture_join(f->cache, "waves/train"), *test = fixture_join(f->cache, "waves/test");
    char *aside = fixture_join(f->cache, "waves/aside");
    assert_int_equal(rename(train, aside) | rename(test, train) | rename(aside, test), 0);
    ups_verify_report report = verify(f);
    assert_int_equal(report.finding_count, 1);
    assert_says(report.findings[0].message, train, "is the cache of task waves, split test, in the place of another");
    ups_verify_report_free(&report);
    ups_source *source;
    ups_error error;
    assert_int_equal(ups_cache_source_open(train, &(ups_fingerprint){.encoder_weights = ""}, &source, &error),
                     UPS_ERR_FORMAT);
    assert_says(error.message, train, "in the place of another");
    assert_int_equal(ups_cache_source_open(train, NULL, &source, &error), UPS_OK); /* whoever looks at it alone */
    ups_source_close(source);
    free(train);
    free(test);
    free(aside);
}

static void the_documents_above_a_group_are_verified(void **state) {
    fixture *f = *state;
    char *const above[] = {strdup(f->cache), fixture_join(f->cache, "waves")};
    ups_error error;
    for (int i = 0; i < 2; i++) {
        char *path = fixture_join(above[i], "zarr.json");
        assert_int_equal(ups_publish_bytes(path, "{}", 2, &error), UPS_OK);
        ups_verify_report report = verify(f);
        assert_int_equal(report.finding_count, 1);
        assert_says(report.findings[0].message, path, "is not the document of a group");
        ups_verify_report_free(&report);
        assert_int_equal(unlink(path), 0);
        report = verify(f);
        assert_int_equal(report.finding_count, 1);
        assert_false(report.findings[0].unread);
        ups_verify_report_free(&report);
        assert_int_equal(ups_document_publish_parent(above[i], &error), UPS_OK);
        free(path);
    }
    ups_verify_report report = verify(f);
    assert_int_equal(report.finding_count, 0);
    ups_verify_report_free(&report);
    free(above[0]);
    free(above[1]);
}

/* A document with a check that fits, whose shape no file can hold. */
static void a_claimed_shape_that_the_files_cannot_hold_is_a_sentence_and_costs_no_memory(void **state) {
#ifdef UPS_SANITIZED
    skip_because("a sanitizer needs more address space than this leaves");
#else
    fixture *f = *state;
    const struct {
        const char *key;
        int64_t value;
    } claims[] = {{"samples", 1000000000}, {"tokens", 1 << 20}, {"dim", 1 << 24}, {"times", 1 << 30}};
    char *group = fixture_join(f->cache, "waves/train"), *latent = in(f->cache, "train", "latent/zarr.json");
    json_t *attributes;
    ups_error error, changed;
    assert_int_equal(ups_document_read_group(group, &attributes, &changed, &error), UPS_OK);
    struct rlimit before, little;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    little = (struct rlimit){UINT64_C(2) << 30, before.rlim_max};
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        json_t *claiming = json_deep_copy(attributes);
        json_object_set_new(claiming, claims[i].key, json_integer(claims[i].value));
        assert_int_equal(ups_document_publish_group(group, claiming, &error), UPS_OK);
        assert_int_equal(ups_document_publish_arrays(group, claiming, &error), UPS_OK);
        json_decref(claiming);
        ups_source *source;
        assert_int_equal(setrlimit(RLIMIT_AS, &little), 0);
        ups_status status = ups_cache_source_open(group, NULL, &source, &error);
        ups_verify_report report = verify(f);
        assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
        if (status == UPS_OK || status == UPS_ERR_MEMORY) fail_msg("%s: status %d", claims[i].key, status);
        assert_true(report.finding_count > 0 && !report.findings[0].unread);
        ups_verify_report_free(&report);
    }
    json_decref(attributes);
    free(latent);
    free(group);
#endif
}

static void pipes_in_the_place_of_files_are_refused_at_once(void **state) {
    fixture *f = *state;
    static const char *const names[] = {
        "zarr.json",        "latent/zarr.json", "time/c/0",        "statistics/zarr.json",
        "latent/c/1/0/0/0", "shards/c/0/0",     "statistics/c/0/0"};
    alarm(60);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = in(f->cache, "train", names[i]), *kept = fixture_join(f->root, "kept");
        copy_file(path, kept);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkfifo(path, 0600), 0);
        ups_verify_report report = verify(f);
        assert_true(report.finding_count > 0);
        assert_says(report.findings[0].message, path, "is a named pipe");
        ups_verify_report_free(&report);
        assert_int_equal(unlink(path), 0);
        copy_file(kept, path);
        free(path);
        free(kept);
    }
    alarm(0);
}

static void without_descriptors_nothing_is_called_broken(void **state) {
    fixture *f = *state;
    struct rlimit before, few;
    int64_t shards[16], count;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (rlim_t left = 3; left < 9; left++) {
        few = (struct rlimit){left, before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        ups_verify_report report = verify(f);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        ups_verify_broken_shards(&report, shards, &count);
        assert_int_equal(count, 0);
        if (report.finding_count > 0) assert_says(ups_verify_unread(&report)->message, f->cache, "raise `ulimit -n`");
        ups_verify_report_free(&report);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_shard_of_another_place_split_encoder_or_data_is_refused_by_name),
        TEST(a_chunk_of_another_cache_within_a_shard_is_refused),
        TEST(arrays_and_documents_of_another_cache_are_found),
        TEST(groups_that_changed_their_names_are_found_and_not_trained_on),
        TEST(the_documents_above_a_group_are_verified),
        TEST(a_claimed_shape_that_the_files_cannot_hold_is_a_sentence_and_costs_no_memory),
        TEST(pipes_in_the_place_of_files_are_refused_at_once),
        TEST(without_descriptors_nothing_is_called_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
