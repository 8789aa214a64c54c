/* The cache as a source: what the loader sees, and what it refuses to see. */
#include "base/arena.h"
#include "base/files.h"
#include "cache/store/document.h"
#include "cache/store/group.h"
#include "cache/store/source.h"
#include "fixture.h"
#include "tests/base/testing.h"

#include <math.h>

#define SAMPLES 11
#define TIMES 20
#define TOKENS 6
#define DIM 16
#define COUNT (TIMES * TOKENS * DIM)

/* A cache's group. */
static char *build(bool portable) {
    const char *root = fixture_directory();
    ups_cache_description d = fixture_description(SAMPLES, TIMES, TOKENS, DIM, 4);
    d.codec.portable = portable;
    fixture_must_build(root, &d, 2);
    return fixture_join(root, "waves/train");
}

static ups_source *open_source(const char *group) {
    ups_source *source;
    ups_error error;
    if (ups_cache_source_open(group, NULL, &source, &error) != UPS_OK) fail_msg("%s", error.message);
    return source;
}

static void expected_latents(int64_t sample, ups_f16 *rounded) {
    float latents[COUNT];
    fixture_latents(sample, TIMES, TOKENS, DIM, latents);
    ups_f32_to_f16(latents, rounded, COUNT);
}

static void latents_come_back_bit_for_bit_whole_and_by_frames(void **state) {
    for (int portable = 0; portable < 2; portable++) {
        ups_source *source = open_source(build(portable));
        ups_error error;
        assert_string_equal(source->class->kind, "latent");
        assert_int_equal(source->count, SAMPLES);
        assert_int_equal(source->limits.decoded_bytes, COUNT * 2);
        ups_f16 expected[COUNT], read[COUNT];
        for (int64_t i = 0; i < SAMPLES; i++) {
            expected_latents(i, expected);
            assert_int_equal(ups_source_read(source, i, (ups_frames){0, TIMES}, read, &error), UPS_OK);
            assert_memory_equal(read, expected, sizeof read);
            assert_int_equal(ups_source_read(source, i, (ups_frames){i, 3}, read, &error), UPS_OK);
            assert_memory_equal(read, expected + i * TOKENS * DIM, 3 * TOKENS * DIM * sizeof *read);
        }
        ups_source_close(source);
    }
}

static void samples_are_described_with_times_and_parameters(void **state) {
    ups_source *source = open_source(build(false));
    ups_error error;
    assert_int_equal(source->parameter_count, 2);
    assert_string_equal(source->parameter_names[0], "beta");
    assert_string_equal(source->parameter_names[1], "nu");
    for (int64_t i = 0; i < SAMPLES; i++) {
        ups_sample sample;
        assert_int_equal(ups_source_describe(source, i, &sample, &error), UPS_OK);
        assert_int_equal(sample.times, TIMES);
        assert_int_equal(sample.channels, DIM);
        assert_int_equal(sample.dims, 1);
        assert_int_equal(sample.grid[0], TOKENS);
        assert_int_equal(sample.dtype, UPS_F16);
        assert_int_equal(sample.order, UPS_CHANNELS_LAST);
        assert_true(sample.time[TIMES - 1] == 0.05 * (TIMES - 1));
        assert_true(sample.parameters[0] == 0.1 * (double)i);
        assert_int_equal(isnan(sample.parameters[1]) != 0, i % 3 == 0);
        assert_int_equal(ups_cache_source_origin(source, i), i);
    }
    ups_source_close(source);
}

static void every_sample_may_have_its_own_times(void **state) {
    char *root = fixture_directory();
    ups_cache_description d = fixture_description(SAMPLES, TIMES, TOKENS, DIM, 4);
    double times[SAMPLES * TIMES];
    int64_t origins[SAMPLES];
    for (int i = 0; i < SAMPLES * TIMES; i++) times[i] = i;
    for (int i = 0; i < SAMPLES; i++) origins[i] = 100 + 2 * i;
    d.time = times;
    d.time_per_sample = true;
    d.source_samples = origins;
    d.parameter_count = 0;
    fixture_must_build(root, &d, 1);
    ups_source *source = open_source(fixture_join(root, "waves/train"));
    ups_sample sample;
    assert_int_equal(ups_source_describe(source, 7, &sample, NULL), UPS_OK);
    assert_memory_equal(sample.time, times + 7 * TIMES, TIMES * sizeof *times);
    assert_int_equal(ups_cache_source_origin(source, 7), 114);
    assert_int_equal(source->parameter_count, 0);
    ups_source_close(source);
}

static void skipped_samples_are_left_out_and_the_others_keep_their_origin(void **state) {
    char *root = fixture_directory();
    ups_cache_description d = fixture_description(SAMPLES, TIMES, TOKENS, DIM, 4);
    ups_cache_writer *writer = fixture_writer(root, &d);
    ups_error error;
    for (int64_t i = 0; i < SAMPLES; i++) {
        if (i >= 4 && i < 8) /* a whole shard is empty */
            assert_int_equal(ups_cache_writer_skip(writer, i, &error), UPS_OK);
        else
            fixture_put(writer, &d, i);
    }
    fixture_finish(writer);
    ups_source *source = open_source(fixture_join(root, "waves/train"));
    assert_int_equal(source->count, SAMPLES - 4);
    ups_f16 expected[COUNT], read[COUNT];
    for (int64_t i = 0; i < source->count; i++) {
        int64_t origin = i < 4 ? i : i + 4;
        ups_sample sample;
        assert_int_equal(ups_cache_source_origin(source, i), origin);
        assert_int_equal(ups_source_describe(source, i, &sample, &error), UPS_OK);
        assert_true(sample.parameters[0] == 0.1 * (double)origin);
        expected_latents(origin, expected);
        assert_int_equal(ups_source_read(source, i, (ups_frames){0, TIMES}, read, &error), UPS_OK);
        assert_memory_equal(read, expected, sizeof read);
    }
    ups_source_close(source);
}

static void a_stale_cache_is_refused_with_the_part_that_differs(void **state) {
    const char *group = build(false);
    ups_source *source;
    ups_error error;
    ups_fingerprint expected = {.encoder_weights = "00000000000000000000000000000001"};
    assert_int_equal(ups_cache_source_open(group, &expected, &source, &error), UPS_OK);
    ups_source_close(source);
    expected.encoder_weights[31] = '7';
    assert_fails(ups_cache_source_open(group, &expected, &source, &error), UPS_ERR_STALE, error,
                 "another encoder weights");
    assert_null(strstr(error.message, "normalisation"));
    assert_null(source);
}

static void an_unfinished_cache_is_refused(void **state) {
    char *root = fixture_directory();
    ups_cache_description d = fixture_description(SAMPLES, TIMES, TOKENS, DIM, 4);
    ups_cache_writer_close(fixture_writer(root, &d));
    ups_source *source;
    ups_error error;
    assert_fails(ups_cache_source_open(fixture_join(root, "waves/train"), NULL, &source, &error), UPS_ERR_FORMAT, error,
                 "did not finish");
}

static void a_damaged_trajectory_is_an_error_with_file_and_sample(void **state) {
    ups_source *source = open_source(build(false));
    ups_error error;
    ups_extent extent;
    int64_t count;
    assert_int_equal(source->class->extents(source, 6, (ups_frames){0, TIMES}, &extent, &count, &error), UPS_OK);
    flip_bit(source->files[extent.file], extent.offset + extent.length / 2, 4);
    ups_f16 read[COUNT];
    assert_fails(ups_source_read(source, 6, (ups_frames){0, TIMES}, read, &error), UPS_ERR_CHECKSUM, error,
                 "latent/c/1/0/0/0, sample 6");
    assert_int_equal(ups_source_read(source, 5, (ups_frames){0, TIMES}, read, &error), UPS_OK);
    ups_source_close(source);
}

/* Each edit replaces the first `from` in a document; "" means the document is emptied. */
static const struct edit {
    const char *document, *from, *to;
    ups_status expected;
} edits[] = {
    {"zarr.json", "", "", UPS_ERR_FORMAT},
    {"zarr.json", "{", "[", UPS_ERR_FORMAT},
    {"zarr.json", "\"ups\"", "\"usp\"", UPS_ERR_FORMAT},
    {"zarr.json", "\"attributes\"", "\"a\"", UPS_ERR_FORMAT},
    {"zarr.json", "\"fingerprint\"", "\"f\"", UPS_ERR_FORMAT},
    {"zarr.json", "\"format\": 4", "\"format\": 3", UPS_ERR_STALE},
    {"zarr.json", "\"format\": 4", "\"format\": \"2\"", UPS_ERR_FORMAT},
    {"zarr.json", "\"max_abs_error\"", "\"bound\"", UPS_ERR_STALE}, /* as caches had none once */
    {"zarr.json", "\"encoder_weights\": \"", "\"encoder_weights\": \"00000000", UPS_ERR_FORMAT},
    {"zarr.json", "\"complete\": true", "\"complete\": 1", UPS_ERR_FORMAT},
    {"zarr.json", "\"complete\": true", "\"complete\": false", UPS_ERR_CHECKSUM},
    {"zarr.json", "\"beta\"", "3", UPS_ERR_FORMAT},
    {"zarr.json", "\"parameters\": [", "\"parameters\": [\"gamma\", ", UPS_ERR_CHECKSUM},
    {"zarr.json", "\"times\": 20", "\"times\": 21", UPS_ERR_CHECKSUM},
    {"latent/zarr.json", "", "", UPS_ERR_FORMAT},
    {"latent/zarr.json", "11,", "\"11\",", UPS_ERR_FORMAT},
    {"latent/zarr.json", "11,", "-11,", UPS_ERR_FORMAT},
    {"latent/zarr.json", "11,", "9000000000000000000,", UPS_ERR_FORMAT},
    {"latent/zarr.json", "11,", "1000000000,", UPS_ERR_FORMAT},
    {"latent/zarr.json", "11,", "11, 1,", UPS_ERR_FORMAT},
    {"latent/zarr.json", "float16", "float32", UPS_ERR_FORMAT},
    {"latent/zarr.json", "ups.latent", "blosc", UPS_ERR_UNSUPPORTED},
    {"latent/zarr.json", "sharding_indexed", "bytes", UPS_ERR_FORMAT},
    {"latent/zarr.json", "\"codecs\"", "\"codec\"", UPS_ERR_FORMAT},
    {"latent/zarr.json", "\"version\": 3", "\"version\": true", UPS_ERR_FORMAT},
    {"latent/zarr.json", "\"version\": 3", "\"zstd_level\": 1", UPS_ERR_UNSUPPORTED}, /* the format before */
    {"latent/zarr.json", "\"version\": 3", "\"version\": 4", UPS_ERR_UNSUPPORTED},
    {"latent/zarr.json", "\"end\"", "\"start\"", UPS_ERR_FORMAT},
    {"latent/zarr.json", "\"crc32c\"", "\"crc32\"", UPS_ERR_FORMAT},
    {"time/zarr.json", "float64", "float32", UPS_ERR_FORMAT},
    {"time/zarr.json", "20", "19", UPS_ERR_FORMAT},
    {"condition/zarr.json", "", "", UPS_ERR_FORMAT},
    {"source_sample/zarr.json", "int64", "int32", UPS_ERR_FORMAT},
    {"time/c/0", "", "", UPS_ERR_FORMAT},
    {"condition/c/0/0", "", "", UPS_ERR_FORMAT},
    {"latent/c/2/0/0/0", "", "", UPS_ERR_FORMAT},
};

static void malformed_metadata_is_a_sentence_that_names_the_file(void **state) {
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        size_t length;
        const char *group = build(false), *path = fixture_join(group, edits[i].document);
        const char *text = fixture_read(path, &length), *at = strstr(text, edits[i].from);
        if (!at) fail_msg("%s has no %s", edits[i].document, edits[i].from);
        FILE *file = fopen(path, "w");
        if (*edits[i].from) fprintf(file, "%.*s%s%s", (int)(at - text), text, edits[i].to, at + strlen(edits[i].from));
        assert_int_equal(fclose(file), 0);
        ups_source *source;
        ups_error error;
        ups_status status = ups_cache_source_open(group, NULL, &source, &error);
        if (status != edits[i].expected) {
            fail_msg("%s: %s for %s gave %s: %s", edits[i].document, edits[i].to, edits[i].from,
                     ups_status_name(status), status ? error.message : "");
        }
        assert_contains(error.message, group);
    }
}

static void a_claimed_shape_whose_bytes_overflow_is_refused(void **state) {
    const char *group = build(false);
    ups_cache_shape shape = {1 << 21, {INT64_C(1) << 40, 1, 1}, 4}; /* 2^64 bytes of times */
    const char *directory = fixture_join(group, "time/c/0");
    json_t *document;
    ups_error error;
    assert_int_equal(ups_json_read(fixture_join(group, "zarr.json"), &document, &error), UPS_OK);
    json_t *ups = json_object_get(json_object_get(document, "attributes"), "ups");
    json_object_set_new(ups, "samples", json_integer(shape.samples));
    json_object_set_new(ups, "times", json_integer(shape.trajectory.times));
    json_object_set_new(ups, "tokens", json_integer(1));
    json_object_set_new(ups, "dim", json_integer(1));
    json_object_set_new(ups, "time_per_sample", json_true());
    assert_int_equal(ups_document_publish_group(group, ups, &error), UPS_OK); /* with checks that fit */
    assert_int_equal(ups_document_publish_arrays(group, ups, &error), UPS_OK);
    json_decref(document);
    assert_int_equal(unlink(directory), 0); /* the chunk of the times that all samples share */
    assert_int_equal(ups_make_directories(directory, &error), UPS_OK);
    write_bytes(fixture_join(directory, "0"), "\0\0\0\0", 4); /* nothing, and its CRC32C */

    ups_source *source;
    assert_fails(ups_cache_source_open(group, NULL, &source, &error), UPS_ERR_FORMAT, error,
                 "time/c/0/0: holds 4 bytes");
}

static void missing_files_are_sentences(void **state) {
    static const char *const files[] = {"zarr.json",       "latent/zarr.json",  "time/zarr.json",  "time/c/0",
                                        "condition/c/0/0", "source_sample/c/0", "latent/c/1/0/0/0"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        const char *group = build(false);
        assert_int_equal(unlink(fixture_join(group, files[i])), 0);
        ups_source *source;
        ups_error error;
        assert_fails(ups_cache_source_open(group, NULL, &source, &error), UPS_ERR_IO, error, group);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latents_come_back_bit_for_bit_whole_and_by_frames),
        cmocka_unit_test(samples_are_described_with_times_and_parameters),
        cmocka_unit_test(every_sample_may_have_its_own_times),
        cmocka_unit_test(skipped_samples_are_left_out_and_the_others_keep_their_origin),
        cmocka_unit_test(a_stale_cache_is_refused_with_the_part_that_differs),
        cmocka_unit_test(an_unfinished_cache_is_refused),
        cmocka_unit_test(a_damaged_trajectory_is_an_error_with_file_and_sample),
        cmocka_unit_test(malformed_metadata_is_a_sentence_that_names_the_file),
        cmocka_unit_test(a_claimed_shape_whose_bytes_overflow_is_refused),
        cmocka_unit_test(missing_files_are_sentences),
    };
    return cmocka_run_group_tests(tests, NULL, fixture_clear);
}
