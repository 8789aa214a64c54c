/* Damage anywhere in a cache is found, and told where. */
#include "base/files.h"
#include "base/random.h"
#include "cache/inspect/export.h"
#include "cache/inspect/verify.h"
#include "cache/store/shard.h"
#include "fixture.h"
#include "tests/base/testing.h"

#include <fcntl.h>

#define SAMPLES 10
#define PER_SHARD 4

typedef struct fixture {
    char *root, *group;
    ups_pool *pool;
} fixture;

static int set_up(void **state) {
    fixture *f = malloc(sizeof *f);
    f->root = fixture_directory();
    f->group = fixture_join(f->root, "waves/train");
    f->pool = ups_pool_create(2);
    ups_cache_description d = fixture_description(SAMPLES, 20, 4, 16, PER_SHARD);
    ups_error error;
    if (fixture_build(f->root, &d, 2, &error) != UPS_OK) fail_msg("%s", error.message);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    ups_pool_destroy(f->pool);
    free(f->group);
    fixture_remove(f->root);
    free(f);
    return 0;
}

static ups_verify_report verify(const fixture *f) {
    ups_verify_report report;
    ups_error error;
    if (ups_cache_verify(f->group, f->pool, NULL, NULL, &report, &error) != UPS_OK) fail_msg("%s", error.message);
    return report;
}

static void a_sound_cache_has_no_findings(void **state) {
    ups_verify_report report = verify(*state);
    assert_int_equal(report.finding_count, 0);
    assert_int_equal(report.shards, 3);
    assert_int_equal(report.samples, SAMPLES);
    assert_int_equal(report.skipped, 0);
    ups_verify_report_free(&report);
}

/* The sample whose chunk covers byte `at` of a shard, from the index at its end; −1 for what is behind the chunks. */
static int64_t sample_at(const char *bytes, size_t length, int64_t shard, size_t at) {
    size_t index = length - PER_SHARD * 16 - 4;
    for (int64_t i = 0; i < PER_SHARD; i++) {
        uint64_t place[2];
        memcpy(place, bytes + index + i * 16, 16);
        if (place[0] != UINT64_MAX && at >= place[0] && at < place[0] + place[1]) return shard * PER_SHARD + i;
    }
    assert_true(at >= length - ups_shard_tail_bytes(PER_SHARD));
    return -1;
}

static void a_thousand_random_bit_flips_are_all_found_with_shard_and_sample(void **state) {
    const fixture *f = *state;
    char *paths[3], *bytes[3];
    size_t lengths[3], total = 0;
    ups_error error;
    for (int s = 0; s < 3; s++) {
        assert_true(asprintf(&paths[s], "%s/latent/c/%d/0/0/0", f->group, s) > 0);
        assert_int_equal(ups_read_file(paths[s], 1 << 24, &bytes[s], &lengths[s], &error), UPS_OK);
        total += lengths[s];
    }
    ups_random stream = ups_random_stream(11, UPS_RANDOM_TEST, 0);
    for (uint64_t flip = 0; flip < 1000; flip++) {
        size_t at = ups_random_below(stream, 2 * flip, total);
        uint8_t mask = (uint8_t)(1 + ups_random_below(stream, 2 * flip + 1, 255));
        int shard = 0;
        while (at >= lengths[shard]) at -= lengths[shard++];
        int fd = open(paths[shard], O_WRONLY);
        uint8_t damaged = (uint8_t)bytes[shard][at] ^ mask;
        assert_int_equal(pwrite(fd, &damaged, 1, (off_t)at), 1);
        ups_verify_report report = verify(f);
        if (report.finding_count != 1)
            fail_msg("flip at byte %zu of shard %d: %lld findings", at, shard, (long long)report.finding_count);
        assert_int_equal(report.findings[0].shard, shard);
        assert_int_equal(report.findings[0].sample, sample_at(bytes[shard], lengths[shard], shard, at));
        assert_non_null(strstr(report.findings[0].message, paths[shard]));
        assert_int_equal(report.findings[0].code, UPS_ERR_CHECKSUM);
        ups_verify_report_free(&report);
        assert_int_equal(pwrite(fd, &bytes[shard][at], 1, (off_t)at), 1);
        close(fd);
    }
    for (int s = 0; s < 3; s++) {
        free(paths[s]);
        free(bytes[s]);
    }
}

static void a_damaged_index_entry_is_named_by_its_sample(void **state) {
    const fixture *f = *state;
    char *path = fixture_join(f->group, "latent/c/1/0/0/0");
    uint64_t size;
    ups_error error;
    assert_int_equal(ups_file_size(path, &size, &error), UPS_OK);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "\x77", 1, (off_t)(size - 4 - 16 * 2)), 1); /* the offset of the third of four */
    close(fd);
    ups_verify_report report = verify(f);
    assert_int_equal(report.finding_count, 1);
    assert_non_null(strstr(report.findings[0].message, "sample 6"));
    ups_verify_report_free(&report);
    free(path);
}

static void shards_that_traded_places_are_found(void **state) {
    const fixture *f = *state;
    char *one = fixture_join(f->group, "latent/c/0/0/0/0"), *two = fixture_join(f->group, "latent/c/1/0/0/0");
    char *aside = fixture_join(f->group, "aside");
    assert_int_equal(rename(one, aside) | rename(two, one) | rename(aside, two), 0);
    ups_verify_report report = verify(f);
    assert_true(report.finding_count >= 2);
    assert_non_null(strstr(report.findings[0].message, "0/0/0/0: is shard 1 of waves/train in the place of shard 0"));
    ups_verify_report_free(&report);
    free(one);
    free(two);
    free(aside);
}

static void truncated_missing_and_lengthened_shards_are_found(void **state) {
    const fixture *f = *state;
    char *path = fixture_join(f->group, "latent/c/2/0/0/0"), *bytes;
    size_t length;
    ups_error error;
    assert_int_equal(ups_read_file(path, 1 << 24, &bytes, &length, &error), UPS_OK);
    for (size_t kept = 0; kept < length; kept += 1 + length / 20) {
        assert_int_equal(truncate(path, (off_t)kept), 0);
        ups_verify_report report = verify(f);
        assert_int_equal(report.finding_count, 1);
        assert_int_equal(report.findings[0].shard, 2);
        ups_verify_report_free(&report);
        assert_int_equal(ups_publish_bytes(path, bytes, length, &error), UPS_OK);
    }
    assert_int_equal(truncate(path, (off_t)length + 1), 0);
    ups_verify_report report = verify(f);
    assert_int_equal(report.finding_count, 1);
    ups_verify_report_free(&report);
    assert_int_equal(unlink(path), 0);
    report = verify(f);
    assert_int_equal(report.finding_count, 1);
    assert_non_null(strstr(report.findings[0].message, "samples 8 to 9"));
    ups_verify_report_free(&report);
    free(bytes);
    free(path);
}

static void damaged_small_arrays_are_found(void **state) {
    const fixture *f = *state;
    static const char *const files[] = {"time/c/0", "condition/c/0/0", "source_sample/c/0", "statistics/c/1/0"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char *path = fixture_join(f->group, files[i]), *bytes;
        size_t length;
        ups_error error;
        assert_int_equal(ups_read_file(path, 1 << 24, &bytes, &length, &error), UPS_OK);
        bytes[length / 2] ^= 4;
        assert_int_equal(ups_publish_bytes(path, bytes, length, &error), UPS_OK);
        ups_verify_report report = verify(f);
        assert_int_equal(report.finding_count, 1);
        assert_int_equal(report.findings[0].code, UPS_ERR_CHECKSUM);
        assert_non_null(strstr(report.findings[0].message, path));
        ups_verify_report_free(&report);
        bytes[length / 2] ^= 4;
        assert_int_equal(ups_publish_bytes(path, bytes, length, &error), UPS_OK);
        free(bytes);
        free(path);
    }
}

static void a_changed_document_of_any_array_is_found(void **state) {
    const fixture *f = *state;
    static const char *const arrays[] = {"latent", "time", "condition", "source_sample", "statistics", "shards"};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        char name[40], *bytes;
        snprintf(name, sizeof name, "%s/zarr.json", arrays[i]);
        char *path = fixture_join(f->group, name);
        size_t length;
        ups_error error;
        assert_int_equal(ups_read_file(path, 1 << 24, &bytes, &length, &error), UPS_OK);
        char *kind = strstr(bytes, "\"regular\"");
        assert_non_null(kind);
        kind[1] = 'R';
        assert_int_equal(ups_publish_bytes(path, bytes, length, &error), UPS_OK);
        ups_verify_report report = verify(f);
        assert_int_equal(report.finding_count, 1);
        assert_true(report.findings[0].code == UPS_ERR_FORMAT || report.findings[0].code == UPS_ERR_CHECKSUM);
        assert_non_null(strstr(report.findings[0].message, path));
        ups_verify_report_free(&report);
        kind[1] = 'r';
        assert_int_equal(ups_publish_bytes(path, bytes, length, &error), UPS_OK);
        free(bytes);
        free(path);
    }
}

static void an_unfinished_build_is_found(void **state) {
    const fixture *f = *state;
    char *other = fixture_directory();
    ups_cache_description d = fixture_description(SAMPLES, 20, 4, 16, PER_SHARD);
    ups_cache_writer *writer;
    ups_error error;
    assert_int_equal(ups_cache_writer_open(other, &d, &writer, &error), UPS_OK);
    ups_cache_writer_close(writer);
    fixture unfinished = {other, fixture_join(other, "waves/train"), f->pool};
    ups_verify_report report = verify(&unfinished);
    assert_int_equal(report.finding_count, 1);
    assert_non_null(strstr(report.findings[0].message, "0 of 3 shards"));
    ups_verify_report_free(&report);
    free(unfinished.group);
    fixture_remove(other);
}

static void export_stops_at_damage_and_leaves_no_file(void **state) {
    const fixture *f = *state;
    char *path = fixture_join(f->group, "latent/c/1/0/0/0"), *out = fixture_join(f->root, "out.npy");
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "\x55\xaa\x55\xaa", 4, 40), 4);
    close(fd);
    for (int format = UPS_EXPORT_NPY; format <= UPS_EXPORT_HDF5; format++) {
        ups_error error;
        ups_export_request request = {.format = (ups_export_format)format, .path = out};
        assert_int_equal(ups_cache_export(f->group, &request, &error), UPS_ERR_CHECKSUM);
        assert_non_null(strstr(error.message, "sample 4"));
        assert_false(ups_path_exists(out));
    }
    assert_int_equal(fixture_count_partials(f->root), 0);
    free(path);
    free(out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_sound_cache_has_no_findings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_thousand_random_bit_flips_are_all_found_with_shard_and_sample, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_damaged_index_entry_is_named_by_its_sample, set_up, tear_down),
        cmocka_unit_test_setup_teardown(shards_that_traded_places_are_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(truncated_missing_and_lengthened_shards_are_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damaged_small_arrays_are_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_changed_document_of_any_array_is_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_unfinished_build_is_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(export_stops_at_damage_and_leaves_no_file, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
