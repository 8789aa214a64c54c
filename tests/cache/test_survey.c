/* What is told of a cache without decoding it, and what is measured of its latents, is what was put in. */
#include "cache/inspect/survey.h"
#include "fixture.h"
#include "tests/base/testing.h"
#include <math.h>

enum { SAMPLES = 7, TIMES = 11, TOKENS = 3, DIM = 6, PER_SHARD = 3, EACH = TIMES * TOKENS * DIM };

/* Channel 4 is constant; channel 5 varies around a large mean. */
static void latents_of(int64_t sample, float *latents) {
    fixture_latents(sample, TIMES, TOKENS, DIM, latents);
    for (int64_t r = 0; r < TIMES * TOKENS; r++) {
        latents[r * DIM + 4] = 0.25f;
        latents[r * DIM + 5] = 1000 + (float)(r % 2);
    }
}

/* Samples up to `until`; sample 1 is skipped. */
static ups_cache_group *build(int64_t until) {
    const char *root = fixture_directory();
    ups_cache_description d = fixture_description(SAMPLES, TIMES, TOKENS, DIM, PER_SHARD);
    ups_cache_writer *writer = fixture_writer(root, &d);
    float latents[EACH];
    for (int64_t i = 0; i < until; i++) {
        latents_of(i, latents);
        if (i == 1)
            assert_int_equal(ups_cache_writer_skip(writer, i, NULL), UPS_OK);
        else
            assert_int_equal(ups_cache_writer_put(writer, i, "waves", latents, NULL), UPS_OK);
    }
    if (until == SAMPLES) assert_int_equal(ups_cache_writer_finish(writer, NULL, NULL), UPS_OK);
    ups_cache_writer_close(writer);
    return fixture_group(root);
}

static void a_survey_counts_what_is_there_skipped_and_missing(void **state) {
    ups_error error;
    ups_cache_group *group = build(5); /* one shard of three is whole */
    ups_cache_survey survey;
    assert_int_equal(ups_cache_survey_take(group, &survey, &error), UPS_OK);
    assert_int_equal(survey.shards, 1);
    assert_int_equal(survey.shard_count, 3);
    assert_int_equal(survey.present, 2);
    assert_int_equal(survey.skipped, 1);
    assert_int_equal(survey.samples[1].state, UPS_SAMPLE_SKIPPED);
    assert_int_equal(survey.samples[2].state, UPS_SAMPLE_PRESENT);
    assert_int_equal(survey.samples[4].state, UPS_SAMPLE_MISSING);
    assert_int_equal(survey.raw_bytes, 2 * EACH * 2);
    uint64_t chunks = survey.samples[0].stored_bytes + survey.samples[2].stored_bytes;
    assert_true(chunks > 0 && survey.stored_bytes > chunks && survey.stored_bytes < chunks + 200);
    assert_true(survey.totals.maximum == 1001);
    ups_cache_survey_free(&survey);
    ups_cache_group_close(group);
}

static void measured_channels_are_those_put_in_and_the_constant_one_is_dead(void **state) {
    ups_error error;
    ups_cache_group *group = build(SAMPLES);
    ups_cache_survey survey;
    ups_latent_measurement m;
    assert_int_equal(ups_cache_survey_take(group, &survey, &error), UPS_OK);
    assert_int_equal(ups_latent_measure(group, &survey, 100, &m, &error), UPS_OK);
    assert_int_equal(m.trajectories, SAMPLES - 1);
    assert_int_equal(m.values, (SAMPLES - 1) * EACH);
    assert_int_equal(m.orders[0] + m.orders[1] + m.orders[2], SAMPLES - 1);
    int64_t in_bins = 0;
    for (int i = 0; i < UPS_LATENT_BINS; i++) in_bins += m.bins[i];
    assert_int_equal(in_bins, m.values);
    assert_int_equal(m.dead, 1);
    assert_true(ups_channel_is_dead(&m, 4) && !ups_channel_is_dead(&m, 5));
    double share = (double)(TIMES * TOKENS / 2) / (TIMES * TOKENS); /* rows with 1001 */
    assert_true(fabs(m.channel[5].mean - 1000 - share) < 1e-9);
    assert_true(fabs(m.channel[5].deviation - sqrt(share * (1 - share))) < 1e-9);
    double sum = 0, squares = 0, low = INFINITY;
    for (int64_t s = 0; s < SAMPLES; s++) {
        float latents[EACH], back[EACH];
        ups_f16 rounded[EACH];
        if (s == 1) continue;
        latents_of(s, latents);
        ups_f32_to_f16(latents, rounded, EACH);
        ups_f16_to_f32(rounded, back, EACH);
        for (int64_t r = 0; r < TIMES * TOKENS; r++) {
            sum += back[r * DIM];
            squares += (double)back[r * DIM] * back[r * DIM];
            low = fmin(low, back[r * DIM]);
        }
    }
    double n = (SAMPLES - 1) * TIMES * TOKENS;
    assert_true(fabs(m.channel[0].mean - sum / n) < 1e-9 && m.channel[0].minimum == low);
    assert_true(fabs(m.channel[0].deviation - sqrt(squares / n - sum / n * sum / n)) < 1e-9);
    ups_latent_measurement_free(&m);
    assert_int_equal(ups_latent_measure(group, &survey, 3, &m, &error), UPS_OK);
    assert_int_equal(m.trajectories, 3);
    ups_latent_measurement_free(&m);
    ups_cache_survey_free(&survey);
    ups_cache_group_close(group);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_survey_counts_what_is_there_skipped_and_missing),
        cmocka_unit_test(measured_channels_are_those_put_in_and_the_constant_one_is_dead),
    };
    return cmocka_run_group_tests(tests, NULL, fixture_clear);
}
