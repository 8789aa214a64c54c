#include "testing.h"

#include "base/half.h"

#include <math.h>

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* IEEE 754's definition of binary16, in double precision. */
static double meaning_of(ups_f16 half) {
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    double magnitude = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    return half & 0x8000 ? -magnitude : magnitude;
}

static bool is_nan16(ups_f16 half) {
    return (half & 0x7fff) > 0x7c00;
}

/* One of the ways to convert; what this processor lacks is skipped. */
typedef struct way {
    ups_half_path path;
    const char *name;
} way;

static const way plain = {UPS_HALF_SCALAR, "plain C"};
#if defined(__aarch64__)
static const way neon = {UPS_HALF_NEON, "NEON"};
#else
static const way f16c = {UPS_HALF_F16C, "F16C"}, avx512 = {UPS_HALF_AVX512, "AVX-512"};
#endif

static ups_half_path path_of(const char *claim, const way *w) {
    if (!ups_half_path_runs_here(w->path))
        skip_claim_because(claim, "this processor has no %s to convert FP16 with", w->name);
    return w->path;
}

static void every_fp16_value_means_what_ieee_754_says_and_survives_the_round_trip(void **state) {
    ups_half_path path = path_of(__func__, *state);
    static ups_f16 all[65536], back[65536];
    static float wide[65536];
    for (int i = 0; i < 65536; i++) all[i] = (ups_f16)i;
    ups_f16_to_f32_on(path, all, wide, 65536);
    ups_f32_to_f16_on(path, wide, back, 65536);
    for (int i = 0; i < 65536; i++) {
        if (is_nan16(all[i])) {
            assert_true(isnan(wide[i]));
            assert_int_equal(back[i], all[i] | 0x200); /* a signalling NaN becomes a quiet one */
        } else {
            if ((all[i] & 0x7fff) == 0x7c00)
                assert_true(isinf(wide[i]));
            else
                assert_true((double)wide[i] == meaning_of(all[i]));
            assert_int_equal(signbit(wide[i]) != 0, all[i] >> 15);
            assert_int_equal(back[i], all[i]);
        }
    }
}

/* Checks `value` by the definition: no other FP16 number is nearer, and of two equally near the even one is taken. */
static void assert_nearest_even(float value, ups_f16 half) {
    if (isnan(value)) {
        assert_true(is_nan16(half));
        return;
    }
    double magnitude = fabs((double)value);
    ups_f16 low = half & 0x7fff;
    assert_int_equal(half >> 15, signbit(value) != 0);
    if (magnitude >= 65520.0) { /* half-way from 65504 to what would be 65536, which is even */
        assert_int_equal(low, 0x7c00);
        return;
    }
    assert_true(low < 0x7c00);
    double distance = fabs(meaning_of(low) - magnitude);
    double above = fabs(low + 1 == 0x7c00 ? 65536.0 - magnitude : meaning_of((ups_f16)(low + 1)) - magnitude);
    double below = low == 0 ? INFINITY : fabs(meaning_of((ups_f16)(low - 1)) - magnitude);
    assert_true(distance < above || (distance == above && low % 2 == 0));
    assert_true(distance < below || (distance == below && low % 2 == 0));
}

static void fp32_is_rounded_to_the_nearest_fp16_and_ties_to_even(void **state) {
    /* every FP16 magnitude, every midpoint between two, and their FP32 neighbours on both sides; both signs */
    for (int i = 0; i < 0x7c00; i++) {
        double here = meaning_of((ups_f16)i), next = i + 1 == 0x7c00 ? 65536.0 : meaning_of((ups_f16)(i + 1));
        float centres[2] = {(float)here, (float)((here + next) / 2)};
        for (int c = 0; c < 2; c++) {
            float values[6] = {centres[c], nextafterf(centres[c], INFINITY), nextafterf(centres[c], -INFINITY)};
            for (int k = 0; k < 3; k++) values[3 + k] = -values[k];
            ups_f16 halves[6];
            ups_f32_to_f16_on(UPS_HALF_SCALAR, values, halves, 6);
            for (int k = 0; k < 6; k++) assert_nearest_even(values[k], halves[k]);
        }
    }
}

static void fp32_is_rounded_to_the_bits_of_plain_c(void **state) {
    enum { COUNT = 1 << 20 };
    ups_half_path path = path_of(__func__, *state);
    float *values = malloc(COUNT * sizeof *values);
    ups_f16 *scalar = malloc(COUNT * sizeof *scalar), *other = malloc(COUNT * sizeof *other);
    for (uint32_t offset = 0; offset < 4096; offset += 1365) { /* FP32 patterns evenly spread: NaN, Inf, subnormal, … */
        for (uint32_t i = 0; i < COUNT; i++) values[i] = float_of(i * 4096 + offset);
        ups_f32_to_f16_on(UPS_HALF_SCALAR, values, scalar, COUNT);
        memset(other, 0, COUNT * sizeof *other);
        ups_f32_to_f16_on(path, values, other, COUNT);
        assert_memory_equal(other, scalar, COUNT * sizeof *other);
    }
    free(values);
    free(scalar);
    free(other);
}

static void fp16_is_widened_to_the_bits_of_plain_c_at_any_length(void **state) {
    ups_half_path path = path_of(__func__, *state);
    static ups_f16 all[65536];
    static float scalar[65536], other[65536];
    for (int i = 0; i < 65536; i++) all[i] = (ups_f16)i;
    ups_f16_to_f32_on(UPS_HALF_SCALAR, all, scalar, 65536);
    ups_f16_to_f32_on(path, all, other, 65536);
    assert_memory_equal(other, scalar, sizeof scalar);
    for (size_t count = 0; count < 40; count++) { /* the tail is left to the scalar code; nothing beyond is touched */
        memset(other, 0x55, sizeof(float) * 64);
        ups_f16_to_f32_on(path, all + 31744 - 20, other, count);
        assert_memory_equal(other, scalar + 31744 - 20, count * sizeof(float));
        assert_int_equal(bits_of(other[count]), 0x55555555);
    }
}

static void bf16_rounds_to_nearest_even_and_keeps_nan(void **state) {
    const struct {
        uint32_t in;
        ups_bf16 out;
    } cases[] = {
        {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80},                       /* 1; a tie goes to the even number below */
        {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x3f807fff, 0x3f80}, /* a tie to the even above; nearest */
        {0x7f7fffff, 0x7f80}, {0xff7fffff, 0xff80},                       /* FLT_MAX overflows to Inf */
        {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x80000000, 0x8000}, /* Inf, -Inf, -0 */
        {0x7f800001, 0x7fc0}, {0xffffffff, 0xffff}, {0x7fc00000, 0x7fc0}, /* NaN stays NaN, made quiet */
        {0x00000001, 0x0000}, {0x00018000, 0x0002}, {0x007fffff, 0x0080}, /* subnormal numbers */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float value = float_of(cases[i].in);
        ups_bf16 out;
        ups_f32_to_bf16(&value, &out, 1);
        assert_int_equal(out, cases[i].out);
    }
    for (uint32_t i = 0; i < 65536; i++) {
        ups_bf16 in = (ups_bf16)i, back;
        float wide;
        ups_bf16_to_f32(&in, &wide, 1);
        assert_int_equal(bits_of(wide), i << 16);
        ups_f32_to_bf16(&wide, &back, 1);
        assert_int_equal(back, isnan(wide) ? in | 0x40 : in);
    }
}

static void the_range_is_over_finite_values_and_names_the_first_that_is_not(void **state) {
    float values[1000];
    for (int i = 0; i < 1000; i++) values[i] = sinf((float)i) * 10;
    values[417] = -123.5f;
    values[900] = 77.25f;
    ups_f32_range_result range = ups_f32_range(values, 1000);
    assert_true(range.minimum == -123.5f && range.maximum == 77.25f);
    assert_int_equal(range.non_finite, 0);
    assert_int_equal(range.first_non_finite, 1000);

    values[5] = INFINITY;
    values[3] = NAN;
    values[999] = -INFINITY;
    range = ups_f32_range(values, 1000);
    assert_true(range.minimum == -123.5f && range.maximum == 77.25f);
    assert_int_equal(range.non_finite, 3);
    assert_int_equal(range.first_non_finite, 3);

    const float nothing[2] = {NAN, INFINITY};
    range = ups_f32_range(nothing, 2);
    assert_true(range.minimum == INFINITY && range.maximum == -INFINITY);
    range = ups_f32_range(NULL, 0);
    assert_true(range.minimum == INFINITY && range.maximum == -INFINITY);
    assert_int_equal(range.first_non_finite, 0);
}

#if defined(__aarch64__)
#define by_the_processor(claim) cmocka_unit_test_prestate(claim, (void *)&neon)
#else
#define by_the_processor(claim)                                                                                        \
    cmocka_unit_test_prestate(claim, (void *)&f16c), cmocka_unit_test_prestate(claim, (void *)&avx512)
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(every_fp16_value_means_what_ieee_754_says_and_survives_the_round_trip,
                                  (void *)&plain),
        by_the_processor(every_fp16_value_means_what_ieee_754_says_and_survives_the_round_trip),
        cmocka_unit_test(fp32_is_rounded_to_the_nearest_fp16_and_ties_to_even),
        by_the_processor(fp32_is_rounded_to_the_bits_of_plain_c),
        by_the_processor(fp16_is_widened_to_the_bits_of_plain_c_at_any_length),
        cmocka_unit_test(bf16_rounds_to_nearest_even_and_keeps_nan),
        cmocka_unit_test(the_range_is_over_finite_values_and_names_the_first_that_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
