/* Damage anywhere in a cache is found, and told where. */
#include "base/files.h"
#include "base/random.h"
#include "cache/inspect/export.h"
#include "cache/inspect/verify.h"
#include "cache/store/shard.h"
#include "fixture.h"
#include "tests/base/testing.h"

#define SAMPLES 10
#define PER_SHARD 4

static char *root, *group;

static int set_up(void **state) {
    root = fixture_directory();
    group = fixture_join(root, "waves/train");
    ups_cache_description d = fixture_description(SAMPLES, 20, 4, 16, PER_SHARD);
    fixture_must_build(root, &d, 2);
    return 0;
}

/* The only finding in the group says `words`. */
static const ups_verify_finding *only_finding(const char *words) {
    const ups_verify_report *report = fixture_verify(group);
    assert_int_equal(report->finding_count, 1);
    assert_contains(report->findings[0].message, words);
    return &report->findings[0];
}

static void a_sound_cache_has_no_findings(void **state) {
    const ups_verify_report *report = fixture_verify(group);
    assert_int_equal(report->finding_count, 0);
    assert_int_equal(report->shards, 3);
    assert_int_equal(report->samples, SAMPLES);
    assert_int_equal(report->skipped, 0);
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
    char *paths[3], *bytes[3];
    size_t lengths[3], total = 0;
    for (int s = 0; s < 3; s++) {
        paths[s] = ups_cache_shard_path(group, s);
        bytes[s] = fixture_read(paths[s], &lengths[s]);
        total += lengths[s];
    }
    ups_random stream = ups_random_stream(11, UPS_RANDOM_TEST, 0);
    for (uint64_t flip = 0; flip < 1000; flip++) {
        size_t at = ups_random_below(stream, 2 * flip, total);
        uint8_t mask = (uint8_t)(1 + ups_random_below(stream, 2 * flip + 1, 255));
        int shard = 0;
        while (at >= lengths[shard]) at -= lengths[shard++];
        uint8_t damaged = (uint8_t)bytes[shard][at] ^ mask;
        write_over(paths[shard], at, &damaged, 1);
        const ups_verify_report *report = fixture_verify(group);
        if (report->finding_count != 1)
            fail_msg("flip at byte %zu of shard %d: %lld findings", at, shard, (long long)report->finding_count);
        assert_int_equal(report->findings[0].shard, shard);
        assert_int_equal(report->findings[0].sample, sample_at(bytes[shard], lengths[shard], shard, at));
        assert_contains(report->findings[0].message, paths[shard]);
        assert_int_equal(report->findings[0].code, UPS_ERR_CHECKSUM);
        write_over(paths[shard], at, &bytes[shard][at], 1);
    }
    for (int s = 0; s < 3; s++) free(paths[s]);
}

static void a_damaged_index_entry_is_named_by_its_sample(void **state) {
    char *path = fixture_join(group, "latent/c/1/0/0/0");
    uint64_t size;
    assert_int_equal(ups_file_size(path, &size, NULL), UPS_OK);
    write_over(path, size - 4 - 16 * 2, "\x77", 1); /* the offset of the third of four */
    only_finding("sample 6");
}

static void shards_that_traded_places_are_found(void **state) {
    char *one = fixture_join(group, "latent/c/0/0/0/0"), *two = fixture_join(group, "latent/c/1/0/0/0");
    char *aside = fixture_join(group, "aside");
    assert_int_equal(rename(one, aside) | rename(two, one) | rename(aside, two), 0);
    const ups_verify_report *report = fixture_verify(group);
    assert_true(report->finding_count >= 2);
    assert_contains(report->findings[0].message, "0/0/0/0: is shard 1 of waves/train in the place of shard 0");
}

static void truncated_missing_and_lengthened_shards_are_found(void **state) {
    size_t length;
    char *path = fixture_join(group, "latent/c/2/0/0/0"), *bytes = fixture_read(path, &length);
    for (size_t kept = 0; kept < length; kept += 1 + length / 20) {
        assert_int_equal(truncate(path, (off_t)kept), 0);
        assert_int_equal(only_finding("")->shard, 2);
        write_bytes(path, bytes, length);
    }
    assert_int_equal(truncate(path, (off_t)length + 1), 0);
    only_finding("");
    assert_int_equal(unlink(path), 0);
    only_finding("samples 8 to 9");
}

static void damaged_small_arrays_are_found(void **state) {
    static const char *const files[] = {"time/c/0", "condition/c/0/0", "source_sample/c/0", "statistics/c/1/0"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        size_t length;
        char *path = fixture_join(group, files[i]), *bytes = fixture_read(path, &length);
        flip_bit(path, length / 2, 2);
        assert_int_equal(only_finding(path)->code, UPS_ERR_CHECKSUM);
        write_bytes(path, bytes, length);
    }
}

static void a_changed_document_of_any_array_is_found(void **state) {
    static const char *const arrays[] = {"latent", "time", "condition", "source_sample", "statistics", "shards"};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        size_t length;
        char *path = fixture_join(fixture_join(group, arrays[i]), "zarr.json"), *bytes = fixture_read(path, &length);
        const char *kind = strstr(bytes, "\"regular\"");
        assert_non_null(kind);
        write_over(path, (size_t)(kind + 1 - bytes), "R", 1);
        const ups_status code = only_finding(path)->code;
        assert_true(code == UPS_ERR_FORMAT || code == UPS_ERR_CHECKSUM);
        write_bytes(path, bytes, length);
    }
}

static void an_unfinished_build_is_found(void **state) {
    ups_cache_description d = fixture_description(SAMPLES, 20, 4, 16, PER_SHARD);
    char *other = fixture_directory();
    ups_cache_writer_close(fixture_writer(other, &d));
    group = fixture_join(other, "waves/train");
    only_finding("0 of 3 shards");
}

static void export_stops_at_damage_and_leaves_no_file(void **state) {
    char *out = fixture_join(root, "out.npy");
    write_over(fixture_join(group, "latent/c/1/0/0/0"), 40, "\x55\xaa\x55\xaa", 4);
    for (int format = UPS_EXPORT_NPY; format <= UPS_EXPORT_HDF5; format++) {
        ups_error error;
        ups_export_request request = {.format = (ups_export_format)format, .path = out};
        assert_fails(ups_cache_export(group, &request, &error), UPS_ERR_CHECKSUM, error, "sample 4");
        assert_false(ups_path_exists(out));
    }
    assert_int_equal(fixture_count_partials(root), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_sound_cache_has_no_findings, set_up),
        cmocka_unit_test_setup(a_thousand_random_bit_flips_are_all_found_with_shard_and_sample, set_up),
        cmocka_unit_test_setup(a_damaged_index_entry_is_named_by_its_sample, set_up),
        cmocka_unit_test_setup(shards_that_traded_places_are_found, set_up),
        cmocka_unit_test_setup(truncated_missing_and_lengthened_shards_are_found, set_up),
        cmocka_unit_test_setup(damaged_small_arrays_are_found, set_up),
        cmocka_unit_test_setup(a_changed_document_of_any_array_is_found, set_up),
        cmocka_unit_test_setup(an_unfinished_build_is_found, set_up),
        cmocka_unit_test_setup(export_stops_at_damage_and_leaves_no_file, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, fixture_clear);
}
