#include "testing.h"

#include "base/hash.h"
#include "base/random.h"

#include <math.h>
#include <time.h>

static void philox_gives_the_known_answers_of_random123(void **state) {
    const struct {
        uint32_t counter[4], key[2], out[4];
    } vectors[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t out[4];
        ups_philox(vectors[i].counter, vectors[i].key, out);
        assert_memory_equal(out, vectors[i].out, sizeof out);
    }
}

static void seed_purpose_item_and_index_each_change_the_number(void **state) {
    const uint64_t seed = 0x123456789abcdef0;
    uint32_t reference = ups_random_u32(ups_random_stream(seed, UPS_RANDOM_TEST, 3), 5);
    assert_int_equal(ups_random_u32(ups_random_stream(seed, UPS_RANDOM_TEST, 3), 5), reference);
    assert_int_not_equal(ups_random_u32(ups_random_stream(seed + 1, UPS_RANDOM_TEST, 3), 5), reference);
    assert_int_not_equal(ups_random_u32(ups_random_stream(seed ^ 1ull << 63, UPS_RANDOM_TEST, 3), 5), reference);
    assert_int_not_equal(ups_random_u32(ups_random_stream(seed, UPS_RANDOM_INIT, 3), 5), reference);
    assert_int_not_equal(ups_random_u32(ups_random_stream(seed, UPS_RANDOM_TEST, 4), 5), reference);
    assert_int_not_equal(ups_random_u32(ups_random_stream(seed, UPS_RANDOM_TEST, 3), 6), reference);
    assert_int_not_equal(ups_random_u32(ups_random_stream(seed, UPS_RANDOM_TEST, 3), 5 + (1ull << 32)), reference);
}

static void whole_numbers_below_a_bound_are_equally_frequent(void **state) {
    enum { BOUND = 7, DRAWS = 70000 };
    int seen[BOUND] = {0};
    ups_random stream = ups_random_stream(1, UPS_RANDOM_TEST, 0);
    for (uint64_t i = 0; i < DRAWS; i++) {
        uint64_t drawn = ups_random_below(stream, i, BOUND);
        assert_in_range(drawn, 0, BOUND - 1);
        seen[drawn]++;
    }
    for (int k = 0; k < BOUND; k++) assert_in_range(seen[k], 9600, 10400); /* 10000 ± 4.3 standard deviations */
    assert_int_equal(ups_random_below(stream, 0, 1), 0);
}

typedef struct moments {
    double mean, variance, skew, kurtosis, lowest, highest;
} moments;

static moments moments_of(const float *values, size_t count) {
    moments m = {.lowest = INFINITY, .highest = -INFINITY};
    for (size_t i = 0; i < count; i++) {
        m.mean += values[i] / (double)count;
        m.lowest = fmin(m.lowest, values[i]);
        m.highest = fmax(m.highest, values[i]);
    }
    for (size_t i = 0; i < count; i++) {
        double d = values[i] - m.mean;
        m.variance += d * d / (double)count;
        m.skew += d * d * d / (double)count;
        m.kurtosis += d * d * d * d / (double)count;
    }
    return m;
}

enum { MANY = 1 << 20 };

static void filled_normals_have_the_moments_of_the_normal_distribution(void **state) {
    float *values = malloc(MANY * sizeof *values);
    ups_random_fill_normal(ups_random_stream(42, UPS_RANDOM_TEST, 0), 2.0f, values, MANY);
    moments m = moments_of(values, MANY);
    assert_true(fabs(m.mean) < 2 * 5e-3);
    assert_true(fabs(m.variance / 4 - 1) < 7e-3);
    assert_true(fabs(m.skew / 8) < 1.2e-2);
    assert_true(fabs(m.kurtosis / 16 - 3) < 3e-2);
    assert_true(m.highest > 2 * 4.2 && m.highest < 2 * 6 && m.lowest < -2 * 4.2 && m.lowest > -2 * 6);
    double neighbours = 0; /* the two numbers of a pair share a radius, but are uncorrelated */
    for (size_t i = 0; i + 1 < MANY; i += 2) neighbours += (double)values[i] * values[i + 1] / 4 / (MANY / 2);
    assert_true(fabs(neighbours) < 7e-3);
    free(values);
}

static void filled_normals_are_those_of_box_and_muller_in_double_precision(void **state) {
    enum { COUNT = 40000 };
    static float values[COUNT];
    ups_random stream = ups_random_stream(7, UPS_RANDOM_TEST, 9);
    ups_random_fill_normal(stream, 1.0f, values, COUNT);
    for (uint32_t i = 0; i < COUNT; i += 4) {
        uint32_t counter[4] = {i / 4, 0, stream.stream[0], stream.stream[1]}, words[4];
        ups_philox(counter, stream.key, words);
        for (int pair = 0; pair < 4; pair += 2) {
            double radius = sqrt(-2 * log(((words[pair] >> 8) + 1) * 0x1p-24)),
                   angle = 2 * M_PI * words[pair + 1] * 0x1p-32;
            assert_true(fabs(values[i + pair] - radius * cos(angle)) < 2e-6);
            assert_true(fabs(values[i + pair + 1] - radius * sin(angle)) < 2e-6);
        }
    }
}

static void single_normals_and_uniforms_have_their_moments_too(void **state) {
    float *normal = malloc(MANY / 4 * sizeof *normal), *uniform = malloc(MANY / 4 * sizeof *uniform);
    ups_random stream = ups_random_stream(3, UPS_RANDOM_TEST, 1);
    for (size_t i = 0; i < MANY / 4; i++) {
        normal[i] = (float)ups_random_normal(stream, i);
        uniform[i] = (float)ups_random_uniform(stream, i);
    }
    moments n = moments_of(normal, MANY / 4), u = moments_of(uniform, MANY / 4);
    assert_true(fabs(n.mean) < 1e-2 && fabs(n.variance - 1) < 1.4e-2 && fabs(n.kurtosis - 3) < 6e-2);
    assert_true(fabs(u.mean - 0.5) < 3e-3 && fabs(u.variance - 1.0 / 12) < 1e-3);
    assert_true(u.lowest >= 0 && u.highest <= 1);
    free(normal);
    free(uniform);
}

static void filled_uniforms_keep_to_their_bounds(void **state) {
    float *values = malloc(MANY * sizeof *values);
    ups_random_fill_uniform(ups_random_stream(5, UPS_RANDOM_TEST, 0), -3.0f, 5.0f, values, MANY);
    moments m = moments_of(values, MANY);
    assert_true(m.lowest >= -3 && m.lowest < -2.999 && m.highest < 5 && m.highest > 4.999);
    assert_true(fabs(m.mean - 1) < 0.02 && fabs(m.variance - 64.0 / 12) < 0.03);
    free(values);
}

static void a_shorter_fill_is_the_beginning_of_a_longer_one(void **state) {
    float longer[1000], shorter[1000];
    ups_random stream = ups_random_stream(11, UPS_RANDOM_TEST, 2);
    for (size_t count = 0; count < 600; count += 37) {
        ups_random_fill_normal(stream, 1, longer, 1000);
        ups_random_fill_normal(stream, 1, shorter, count);
        assert_memory_equal(longer, shorter, count * sizeof(float));
        ups_random_fill_uniform(stream, 0, 1, longer, 1000);
        ups_random_fill_uniform(stream, 0, 1, shorter, count);
        assert_memory_equal(longer, shorter, count * sizeof(float));
    }
}

static void filled_numbers_have_the_same_bits_whatever_the_compiler_and_the_machine(void **state) {
    enum { COUNT = 100000 };
    float *values = malloc(COUNT * sizeof *values);
    char normal[33], uniform[33];
    ups_random stream = ups_random_stream(2024, UPS_RANDOM_TEST, 1);
    ups_random_fill_normal(stream, 0.02f, values, COUNT);
    ups_hash_hex(ups_hash_bytes(values, COUNT * sizeof *values), normal);
    ups_random_fill_uniform(stream, -0.1f, 0.3f, values, COUNT);
    ups_hash_hex(ups_hash_bytes(values, COUNT * sizeof *values), uniform);
    free(values);
    assert_string_equal(
        normal,
        "f17b1797cb98573de9e10a81e3bb0721"); /* as first computed; gcc and clang, with and without optimization */
    assert_string_equal(uniform, "2cce3df8c251e5369d8831dd523340ba");
}

static double processor_seconds(void) {
    struct timespec used;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used), 0);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

static void the_parameters_of_a_large_model_are_drawn_in_under_a_second_of_a_processor(void **state) {
#if !defined(__OPTIMIZE__) || defined(UPS_SANITIZED)
    skip_because("this build is slow: it is not optimized, or a sanitizer watches it");
#endif
    const size_t count = 21400000;
    float *values = malloc(count * sizeof *values);
    memset(values, 0, count * sizeof *values); /* the time to map the pages is not the generator's */
    double start = processor_seconds();
    ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_INIT, 0), 0.02f, values, count);
    double seconds = processor_seconds() - start;
    free(values);
    print_message("21.4 M normal numbers in %.3f s\n", seconds);
    assert_true(seconds < 1.0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_known_answers_of_random123),
        cmocka_unit_test(seed_purpose_item_and_index_each_change_the_number),
        cmocka_unit_test(whole_numbers_below_a_bound_are_equally_frequent),
        cmocka_unit_test(filled_normals_have_the_moments_of_the_normal_distribution),
        cmocka_unit_test(filled_normals_are_those_of_box_and_muller_in_double_precision),
        cmocka_unit_test(single_normals_and_uniforms_have_their_moments_too),
        cmocka_unit_test(filled_uniforms_keep_to_their_bounds),
        cmocka_unit_test(a_shorter_fill_is_the_beginning_of_a_longer_one),
        cmocka_unit_test(filled_numbers_have_the_same_bits_whatever_the_compiler_and_the_machine),
        cmocka_unit_test(the_parameters_of_a_large_model_are_drawn_in_under_a_second_of_a_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
