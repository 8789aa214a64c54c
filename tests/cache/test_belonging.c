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

#include <sys/resource.h>
#include <sys/stat.h>

#define SAMPLES 10
#define TIMES 20
#define TOKENS 4
#define DIM 16
#define PER_SHARD 4

/* `cache` is what is changed, its splits train (`group`) and test; each of the others differs from it in one thing. */
static char *root, *cache, *group, *other_encoder, *other_data;

/* The trajectories of a cache made of other data, the fixture's in another order. */
static void build_other_data(const char *directory, const ups_cache_description *d) {
    ups_cache_writer *writer = fixture_writer(directory, d);
    float latents[TIMES * TOKENS * DIM];
    for (int64_t i = 0; i < SAMPLES; i++) {
        fixture_latents(SAMPLES - i, TIMES, TOKENS, DIM, latents);
        assert_int_equal(ups_cache_writer_put(writer, i, "x", latents, NULL), UPS_OK);
    }
    fixture_finish(writer);
}

static int set_up(void **state) {
    root = fixture_directory();
    cache = fixture_join(root, "cache");
    group = fixture_join(cache, "waves/train");
    other_encoder = fixture_join(root, "encoder");
    other_data = fixture_join(root, "data");
    ups_cache_description d = fixture_description(SAMPLES, TIMES, TOKENS, DIM, PER_SHARD);
    fixture_must_build(cache, &d, 2);
    d.split = "test";
    fixture_must_build(cache, &d, 2);
    d.split = "train";
    d.fingerprint.source[0] = 'f';
    build_other_data(other_data, &d);
    d.fingerprint.encoder_weights[0] = 'f';
    fixture_must_build(other_encoder, &d, 2);
    return 0;
}

static char *in(const char *directory, const char *split, const char *name) {
    return fixture_join(fixture_join(fixture_join(directory, "waves"), split), name);
}

static void copy_file(const char *from, const char *to) {
    size_t length;
    const char *bytes = fixture_read(from, &length);
    assert_int_equal(ups_publish_bytes(to, bytes, length, NULL), UPS_OK);
}

static void assert_sound(void) {
    assert_int_equal(fixture_verify(group)->finding_count, 0);
}

static void assert_says(const char *message, const char *path, const char *words) {
    if (!strstr(message, path) || !strstr(message, words)) {
        fail_msg("\"%s\" does not name %s with \"%s\"", message, path, words);
    }
}

static void assert_found(int64_t at_least, int64_t at_most, const char *path, const char *words) {
    const ups_verify_report *report = fixture_verify(group);
    assert_in_range(report->finding_count, at_least, at_most);
    assert_says(report->findings[0].message, path, words);
}

/* Training, export and verify name `path` and say `words` of it. */
static void assert_refused(const char *path, const char *words) {
    ups_export_request request = {.format = UPS_EXPORT_NPY, .path = fixture_join(root, "out.npy")};
    ups_source *source;
    ups_error error;
    assert_int_not_equal(ups_cache_source_open(group, NULL, &source, &error), UPS_OK);
    assert_says(error.message, path, words);
    assert_int_not_equal(ups_cache_export(group, &request, &error), UPS_OK);
    assert_says(error.message, path, words);
    assert_found(1, INT64_MAX, path, words);
}

static void a_shard_of_another_place_split_encoder_or_data_is_refused_by_name(void **state) {
    const struct {
        const char *cache, *split, *shard, *words;
    } from[] = {
        {cache, "train", "latent/c/0/0/0/0", "is shard 0 of waves/train in the place of shard 1"},
        {cache, "test", "latent/c/1/0/0/0", "is shard 1 of another cache, of waves/test"},
        {other_encoder, "train", "latent/c/1/0/0/0", "of waves/train as well, but of another encoder"},
        {other_data, "train", "latent/c/1/0/0/0", "is not the shard with which the build of waves/train ended"},
    };
    char *path = fixture_join(group, "latent/c/1/0/0/0"), *kept = fixture_join(root, "kept");
    copy_file(path, kept);
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        copy_file(in(from[i].cache, from[i].split, from[i].shard), path);
        assert_refused(path, from[i].words);
    }
    copy_file(kept, path);
    assert_sound();
}

/* Bytes of another cache where a chunk of this one lies, with a CRC32C that fits them. */
static void a_chunk_of_another_cache_within_a_shard_is_refused(void **state) {
    ups_source *source;
    ups_error error;
    ups_extent extent;
    int64_t count;
    ups_f16 read[TIMES * TOKENS * DIM];
    assert_int_equal(ups_cache_source_open(group, NULL, &source, &error), UPS_OK);
    assert_int_equal(source->class->extents(source, 2, (ups_frames){0, TIMES}, &extent, &count, &error), UPS_OK);
    size_t length;
    char *bytes = fixture_read(in(other_data, "train", "latent/c/0/0/0/0"), &length);
    uint32_t crc = ups_crc32c(0, bytes, extent.length - 4);
    memcpy(bytes + extent.length - 4, &crc, 4);
    write_over(source->files[extent.file], extent.offset, bytes, extent.length);
    assert_fails(ups_source_read(source, 2, (ups_frames){0, TIMES}, read, &error), UPS_ERR_CHECKSUM, error,
                 "not the one that its shard was written with");
    ups_source_close(source);
    assert_int_equal(fixture_verify(group)->finding_count, 1);
    assert_int_equal(fixture_verify(group)->findings[0].sample, 2);
}

static void arrays_and_documents_of_another_cache_are_found(void **state) {
    ups_cache_description d = fixture_description(SAMPLES, TIMES, TOKENS, DIM, PER_SHARD);
    char *third = fixture_join(root, "third"), *kept = fixture_join(root, "kept");
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
        char *path = fixture_join(group, names[i]);
        copy_file(path, kept);
        copy_file(in(third, "train", names[i]), path);
        if (fixture_verify(group)->finding_count == 0) fail_msg("%s of another cache was not found", names[i]);
        ups_source *source;
        bool training_reads_it = strncmp(names[i], "statistics", 10) != 0;
        assert_int_equal(ups_cache_source_open(group, NULL, &source, NULL) != UPS_OK, training_reads_it);
        if (!training_reads_it) ups_source_close(source);
        copy_file(kept, path);
    }
}

static void groups_that_changed_their_names_are_found_and_not_trained_on(void **state) {
    char *test = fixture_join(cache, "waves/test"), *aside = fixture_join(cache, "waves/aside");
    assert_int_equal(rename(group, aside) | rename(test, group) | rename(aside, test), 0);
    assert_found(1, 1, group, "is the cache of task waves, split test, in the place of another");
    ups_source *source;
    ups_error error;
    assert_int_equal(ups_cache_source_open(group, &(ups_fingerprint){.encoder_weights = ""}, &source, &error),
                     UPS_ERR_FORMAT);
    assert_says(error.message, group, "in the place of another");
    assert_int_equal(ups_cache_source_open(group, NULL, &source, &error), UPS_OK); /* whoever looks at it alone */
    ups_source_close(source);
}

static void the_documents_above_a_group_are_verified(void **state) {
    const char *const above[] = {cache, fixture_join(cache, "waves")};
    ups_error error;
    for (int i = 0; i < 2; i++) {
        char *path = fixture_join(above[i], "zarr.json");
        assert_int_equal(ups_publish_bytes(path, "{}", 2, &error), UPS_OK);
        assert_found(1, 1, path, "is not the document of a group");
        assert_int_equal(unlink(path), 0);
        const ups_verify_report *report = fixture_verify(group);
        assert_int_equal(report->finding_count, 1);
        assert_false(report->findings[0].unread);
        assert_int_equal(ups_document_publish_parent(above[i], &error), UPS_OK);
    }
    assert_sound();
}

/* A document with a check that fits, whose shape no file can hold. */
static void a_claimed_shape_that_the_files_cannot_hold_is_a_sentence_and_costs_no_memory(void **state) {
#ifdef UPS_SANITIZED
    skip_because("a sanitizer needs more address space than this leaves");
#else
    const struct {
        const char *key;
        int64_t value;
    } claims[] = {{"samples", 1000000000}, {"tokens", 1 << 20}, {"dim", 1 << 24}, {"times", 1 << 30}};
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
        const ups_verify_report *report = fixture_verify(group);
        assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
        if (status == UPS_OK || status == UPS_ERR_MEMORY) fail_msg("%s: status %d", claims[i].key, status);
        assert_true(report->finding_count > 0 && !report->findings[0].unread);
    }
    json_decref(attributes);
#endif
}

static void pipes_in_the_place_of_files_are_refused_at_once(void **state) {
    static const char *const names[] = {
        "zarr.json",        "latent/zarr.json", "time/c/0",        "statistics/zarr.json",
        "latent/c/1/0/0/0", "shards/c/0/0",     "statistics/c/0/0"};
    char *kept = fixture_join(root, "kept");
    alarm(60);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = fixture_join(group, names[i]);
        copy_file(path, kept);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkfifo(path, 0600), 0);
        assert_found(1, INT64_MAX, path, "is a named pipe");
        assert_int_equal(unlink(path), 0);
        copy_file(kept, path);
    }
    alarm(0);
}

static void without_descriptors_nothing_is_called_broken(void **state) {
    struct rlimit before, few;
    int64_t shards[16], count;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (rlim_t left = 3; left < 9; left++) {
        few = (struct rlimit){left, before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        const ups_verify_report *report = fixture_verify(group);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        ups_verify_broken_shards(report, shards, &count);
        assert_int_equal(count, 0);
        if (report->finding_count > 0) assert_says(ups_verify_unread(report)->message, cache, "raise `ulimit -n`");
    }
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

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
    return cmocka_run_group_tests(tests, NULL, fixture_clear);
}
