/* max_abs_error: nothing moves farther than was allowed, what cannot be held is said, and it pays. */
#include "base/arena.h"
#include "base/random.h"
#include "cache/store/reader.h"
#include "cache/store/statistics.h"
#include "fixture.h"
#include "tests/base/testing.h"

#include <math.h>

enum { SAMPLES = 6, TIMES = 60, TOKENS = 8, DIM = 16, COUNT = TIMES * TOKENS * DIM };

static void every_value_that_is_kept_is_within_the_bound_and_the_others_cannot_be(void **state) {
    static const double bounds[] = {1e-7, 3e-5, 1e-4, 0.00048828125, 1e-3, 0.01, 0.3, 7.5};
    enum { N = 40000 };
    float *values = malloc(N * sizeof *values), *back = malloc(N * sizeof *back);
    ups_f16 *rounded = malloc(N * sizeof *rounded), nearest;
    ups_random stream = ups_random_stream(6, UPS_RANDOM_TEST, 0);
    for (uint64_t i = 0; i < N; i++) { /* of all magnitudes: 2^-30 to 2^18 */
        double sign = ups_random_uniform(stream, 3 * i) < 0.5 ? -1 : 1;
        values[i] = (float)(sign * exp2(48 * ups_random_uniform(stream, 3 * i + 1) - 30));
    }
    values[77] = NAN, values[78] = INFINITY, values[79] = -0.0F;
    for (size_t b = 0; b < sizeof bounds / sizeof bounds[0]; b++) {
        ups_cache_statistics row;
        ups_cache_rounding rounding;
        size_t lost = 0, first = N;
        double largest = 0;
        for (size_t start = 0; start < N; start += N / 2) { /* the second half without NaN and Inf */
            rounding = ups_cache_rounding_begin(bounds[b]);
            for (size_t part = 0; part < N / 2; part += N / 8)
                ups_cache_rounding_add(&rounding, values + start + part, N / 8, rounded + start + part);
            row = ups_cache_rounding_end(&rounding);
            if (start == 0) assert_true(row.non_finite == 2 && rounding.first_lost <= 77);
        }
        ups_f16_to_f32(rounded, back, N);
        for (size_t i = N / 2; i < N; i++) {
            double error = fabs((double)back[i] - (double)values[i]);
            float best;
            ups_f32_to_f16(&values[i], &nearest, 1);
            ups_f16_to_f32(&nearest, &best, 1);
            bool possible = fabs((double)best - (double)values[i]) <= bounds[b];
            if (!possible && first == N) first = i - N / 2;
            lost += !possible;
            assert_true(!possible || error <= bounds[b]);
            if (possible && error > largest) largest = error;
        }
        assert_true(row.overflowing == (double)lost);
        assert_int_equal(rounding.lost, lost);
        if (lost) assert_true(rounding.first_lost == first && rounding.lost_value == values[N / 2 + first]);
        assert_true(lost > 0 || row.error_max == largest);
    }
    free(values);
    free(back);
    free(rounded);
}

static ups_cache_description bounded(double bound, bool portable) {
    ups_cache_description d = fixture_description(SAMPLES, TIMES, TOKENS, DIM, 4);
    d.max_abs_error = bound;
    ups_fingerprint_bound(bound, d.fingerprint.max_abs_error);
    d.codec.portable = portable;
    return d;
}

/* Size of the cache; every latent is compared. */
static uint64_t build_and_check(const char *directory, double bound, bool portable) {
    ups_cache_description d = bounded(bound, portable);
    ups_error error;
    ups_cache_writer *writer = fixture_writer(directory, &d);
    ups_cache_summary summary;
    float latents[COUNT], back[COUNT];
    for (int64_t i = 0; i < SAMPLES; i++) fixture_put(writer, &d, i);
    assert_int_equal(ups_cache_writer_finish(writer, &summary, &error), UPS_OK);
    ups_cache_writer_close(writer);
    ups_cache_group *group = fixture_group(directory);
    assert_true(json_real_value(json_object_get(group->attributes, "max_abs_error")) == bound);
    ups_cache_reader *reader = ups_cache_reader_create(group);
    double largest = 0;
    for (int64_t i = 0; i < SAMPLES; i++) {
        ups_cache_trajectory read;
        assert_int_equal(ups_cache_read(reader, i, &read, &error), UPS_OK);
        fixture_latents(i, TIMES, TOKENS, DIM, latents);
        ups_f16_to_f32(read.latents, back, COUNT);
        for (int k = 0; k < COUNT; k++) {
            double error_of = fabs((double)back[k] - (double)latents[k]);
            if (error_of > largest) largest = error_of;
        }
    }
    assert_true(bound == 0 || largest <= bound);
    assert_true(summary.error_max == largest);
    ups_cache_reader_destroy(reader);
    ups_cache_group_close(group);
    return summary.stored_bytes;
}

static void caches_of_either_codec_hold_the_bound_and_shrink_with_it(void **state) {
    static const double bounds[] = {0, 0.0015, 0.01, 0.05};
    for (int portable = 0; portable < 2; portable++) {
        uint64_t last = UINT64_MAX;
        for (size_t b = 0; b < sizeof bounds / sizeof bounds[0]; b++) {
            uint64_t bytes = build_and_check(fixture_directory(), bounds[b], portable);
            assert_true(bytes < last - last / 10);
            last = bytes;
        }
    }
}

static void a_cache_of_another_bound_is_stale(void **state) {
    char *directory = fixture_directory();
    build_and_check(directory, 0.0015, false);
    ups_error error;
    static const double others[] = {0, 0.001};
    for (int i = 0; i < 2; i++) {
        ups_cache_description other = bounded(others[i], false);
        assert_fails(fixture_build(directory, &other, 1, &error), UPS_ERR_STALE, error, "max_abs_error");
    }
}

static void a_bound_that_fp16_cannot_keep_is_refused_with_sample_place_and_value(void **state) {
    ups_error error;
    ups_cache_description d = bounded(1e-4, false);
    float latents[COUNT];
    fixture_latents(0, TIMES, TOKENS, DIM, latents);
    for (int k = 0; k < COUNT; k++) latents[k] *= 0.01F;
    latents[(3 * TOKENS + 2) * DIM + 5] = 1.00025F; /* FP16 has 1 and 1.00098 */
    ups_cache_writer *writer = fixture_writer(fixture_directory(), &d);
    assert_int_equal(ups_cache_writer_put(writer, 0, "waves.h5, sample 0000", latents, &error), UPS_ERR_NUMERIC);
    static const char *const said[] = {"waves.h5, sample 0000", "max_abs_error", "1.00025", "frame 3, token 2, dim 5"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) assert_contains(error.message, said[i]);
    ups_cache_writer_close(writer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_that_is_kept_is_within_the_bound_and_the_others_cannot_be),
        cmocka_unit_test(caches_of_either_codec_hold_the_bound_and_shrink_with_it),
        cmocka_unit_test(a_cache_of_another_bound_is_stale),
        cmocka_unit_test(a_bound_that_fp16_cannot_keep_is_refused_with_sample_place_and_value),
    };
    return cmocka_run_group_tests(tests, NULL, fixture_clear);
}
