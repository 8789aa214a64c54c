/* What differs between two caches is found and named; what does not count is not counted. */
#include "cache/inspect/diff.h"
#include "fixture.h"
#include "tests/base/testing.h"
#include <math.h>

enum { SAMPLES = 7, TIMES = 9, TOKENS = 3, DIM = 8, PER_SHARD = 3 };

typedef struct pair {
    ups_cache_group *a, *b;
} pair;

/* A cache; `change` moves one value of samples 4, 14, 24, …: frame 5, token 1, dim 2. */
static ups_cache_group *made(const ups_cache_description *d, float change, int64_t skipped) {
    const char *root = fixture_directory();
    ups_cache_writer *writer = fixture_writer(root, d);
    float *latents = malloc(sizeof(float) * (size_t)(d->times * d->tokens * d->dim));
    for (int64_t i = 0; i < d->samples; i++) {
        int64_t source = d->source_samples ? d->source_samples[i] : i;
        fixture_latents(source, d->times, d->tokens, d->dim, latents);
        if (source % 10 == 4) latents[(5 * d->tokens + 1) * d->dim + 2] += change;
        if (source == skipped)
            assert_int_equal(ups_cache_writer_skip(writer, i, NULL), UPS_OK);
        else
            assert_int_equal(ups_cache_writer_put(writer, i, "waves", latents, NULL), UPS_OK);
    }
    free(latents);
    fixture_finish(writer);
    return fixture_group(root);
}

static ups_cache_difference differ(const pair *p, bool metadata_alone) {
    ups_error error;
    ups_cache_difference difference;
    ups_diff_options options = {.list = 2, .metadata_alone = metadata_alone};
    if (ups_cache_diff(p->a, p->b, &options, &difference, &error) != UPS_OK) fail_msg("%s", error.message);
    return difference;
}

static void finish(pair *p, ups_cache_difference *difference) {
    ups_cache_difference_free(difference);
    ups_cache_group_close(p->a);
    ups_cache_group_close(p->b);
}

static void the_same_latents_in_other_codecs_and_shards_are_the_same(void **state) {
    pair p;
    ups_cache_description d = fixture_description(SAMPLES, TIMES, TOKENS, DIM, PER_SHARD);
    p.a = made(&d, 0, -1);
    d.codec = (ups_chunk_codec){.portable = true, .level = 3};
    d.samples_per_shard = 5;
    p.b = made(&d, 0, -1);
    ups_cache_difference found = differ(&p, false);
    assert_false(ups_cache_differs(&found));
    assert_int_equal(found.equal, SAMPLES);
    finish(&p, &found);
}

static void one_value_in_one_sample_is_found_with_its_place_and_size(void **state) {
    pair p;
    ups_cache_description d = fixture_description(SAMPLES, TIMES, TOKENS, DIM, PER_SHARD);
    p.a = made(&d, 0, -1);
    p.b = made(&d, 0.5f, -1);
    ups_cache_difference found = differ(&p, false);
    assert_true(ups_cache_differs(&found));
    assert_int_equal(found.equal, SAMPLES - 1);
    assert_int_equal(found.differing, 1);
    assert_int_equal(found.list_count, 1);
    const ups_sample_difference *only = &found.list[0];
    assert_int_equal(only->source_sample, 4);
    assert_int_equal(only->values, 1);
    assert_int_equal(only->first[0], 5);
    assert_int_equal(only->first[1], 1);
    assert_int_equal(only->first[2], 2);
    assert_true(fabs(only->first_b - only->first_a - 0.5) < 2e-3);
    assert_true(fabs(only->max_abs - 0.5) < 2e-3 && found.max_abs == only->max_abs);
    assert_true(fabs(only->rms - only->max_abs / sqrt(TIMES * TOKENS * DIM)) < 1e-9);
    assert_true(fabs(found.rms - only->max_abs / sqrt(SAMPLES * TIMES * TOKENS * DIM)) < 1e-9);
    finish(&p, &found);
}

static void samples_are_matched_by_their_place_in_the_source(void **state) {
    static const int64_t shuffled[] = {9, 4, 2, 0};
    pair p;
    ups_cache_description d = fixture_description(SAMPLES, TIMES, TOKENS, DIM, PER_SHARD);
    d.parameter_count = 0;
    p.a = made(&d, 0, -1);
    d.samples = 4;
    d.source_samples = shuffled;
    p.b = made(&d, 0.5f, 2);
    ups_cache_difference found = differ(&p, false);
    assert_int_equal(found.common, 2); /* 0 and 4 */
    assert_int_equal(found.equal, 1);
    assert_int_equal(found.differing, 1);
    assert_int_equal(found.list[0].a, 4);
    assert_int_equal(found.list[0].b, 1);
    assert_int_equal(found.only_a, 5); /* 1, 2 (skipped in b), 3, 5, 6 */
    assert_int_equal(found.only_b, 1); /* 9 */
    finish(&p, &found);
}

static void the_part_of_the_fingerprint_that_differs_is_named(void **state) {
    pair p;
    ups_cache_description d = fixture_description(SAMPLES, TIMES, TOKENS, DIM, PER_SHARD);
    p.a = made(&d, 0, -1);
    strcpy(d.fingerprint.normalisation, "00000000000000000000000000000009");
    p.b = made(&d, 0.5f, -1);
    ups_cache_difference found = differ(&p, true); /* the differing value is not looked at */
    assert_true(ups_cache_differs(&found));
    assert_int_equal(found.fingerprint_parts, 1);
    assert_int_equal(found.common, 0);
    int64_t parts;
    json_t *named = ups_fingerprint_difference(&p.a->fingerprint, &p.b->fingerprint, &parts);
    assert_true(json_is_false(json_object_get(json_object_get(named, "normalisation"), "same")));
    assert_true(json_is_true(json_object_get(json_object_get(named, "encoder_weights"), "same")));
    json_decref(named);
    ups_fingerprint card = p.a->fingerprint;
    strcpy(card.device, "cuda");
    for (int order = 0; order < 2; order++) { /* a device is told of where it is not the CPU */
        named = order ? ups_fingerprint_difference(&card, &p.a->fingerprint, &parts)
                      : ups_fingerprint_difference(&p.a->fingerprint, &card, &parts);
        assert_int_equal(parts, 1);
        assert_string_equal(json_string_value(json_object_get(json_object_get(named, "device"), order ? "b" : "a")),
                            "cpu");
        json_decref(named);
    }
    finish(&p, &found);
}

static void other_shapes_times_and_parameters_are_told_apart(void **state) {
    pair p;
    ups_cache_description d = fixture_description(SAMPLES, TIMES, TOKENS, DIM, PER_SHARD);
    p.a = made(&d, 0, -1);
    double later[TIMES];
    for (int t = 0; t < TIMES; t++) later[t] = d.time[t] + 1;
    d.time = later;
    p.b = made(&d, 0, -1);
    ups_cache_difference found = differ(&p, false);
    assert_true(found.surroundings && !found.shape && ups_cache_differs(&found));
    assert_int_equal(found.equal, SAMPLES);
    ups_cache_difference_free(&found);
    ups_cache_group_close(p.b);
    d = fixture_description(SAMPLES, TIMES - 1, TOKENS, DIM, PER_SHARD);
    p.b = made(&d, 0, -1);
    found = differ(&p, false);
    assert_true(found.shape);
    assert_int_equal(found.common, 0);
    finish(&p, &found);
}

static void what_is_found_does_not_depend_on_threads(void **state) {
    enum { MANY = 150, FEWER = 140, SHIFT = 20 }; /* more than are compared at once */
    pair p;
    ups_cache_description d = fixture_description(MANY, TIMES, TOKENS, DIM, 40);
    p.a = made(&d, 0, 33);
    int64_t sources[FEWER];
    for (int64_t i = 0; i < FEWER; i++) sources[i] = SHIFT + i;
    d = fixture_description(FEWER, TIMES, TOKENS, DIM, 11);
    d.source_samples = sources;
    p.b = made(&d, 0.5f, 77);
    ups_cache_difference first = {0};
    for (int threads = 1; threads <= 7; threads += 3) {
        ups_error error;
        ups_diff_options options = {.list = 5, .threads = threads};
        ups_cache_difference found;
        if (ups_cache_diff(p.a, p.b, &options, &found, &error) != UPS_OK) fail_msg("%s", error.message);
        assert_int_equal(found.common, MANY - SHIFT - 2);
        assert_int_equal(found.differing, 13);
        assert_int_equal(found.only_a, SHIFT + 1);
        assert_int_equal(found.only_b, FEWER + SHIFT - MANY + 1);
        assert_int_equal(found.list_count, 5);
        for (int k = 0; k < 5; k++) assert_int_equal(found.list[k].source_sample, 24 + 10 * k);
        if (threads == 1) {
            first = found;
            continue;
        }
        assert_memory_equal(&found.rms, &first.rms, sizeof first.rms);
        assert_memory_equal(&found.max_abs, &first.max_abs, sizeof first.max_abs);
        assert_memory_equal(found.list, first.list, 5 * sizeof *first.list);
        ups_cache_difference_free(&found);
    }
    finish(&p, &first);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_latents_in_other_codecs_and_shards_are_the_same),
        cmocka_unit_test(one_value_in_one_sample_is_found_with_its_place_and_size),
        cmocka_unit_test(what_is_found_does_not_depend_on_threads),
        cmocka_unit_test(samples_are_matched_by_their_place_in_the_source),
        cmocka_unit_test(the_part_of_the_fingerprint_that_differs_is_named),
        cmocka_unit_test(other_shapes_times_and_parameters_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, fixture_clear);
}
