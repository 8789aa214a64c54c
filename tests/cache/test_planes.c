/* Prediction and planes: the same bytes and values from every instruction set and from the plain loops. */
#include "base/arena.h"
#include "base/random.h"
#include "cache/planes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int64_t shapes[][2] = {{1, 1},   {1, 64},  {2, 64},   {2, 16384}, {15, 65},   {16, 63},
                                    {16, 64}, {17, 64}, {17, 130}, {31, 256},  {101, 192}, {201, 320}};
#define SHAPES (sizeof shapes / sizeof shapes[0])
enum { PLAIN = -1, MOST_FORMS = 3 };

static ups_f16 *random_bits(uint32_t item, size_t count) {
    ups_f16 *bits = malloc(count * sizeof *bits);
    ups_random stream = ups_random_stream(3, UPS_RANDOM_TEST, item);
    for (size_t i = 0; i < count; i++) bits[i] = (ups_f16)ups_random_u32(stream, i); /* NaN and Inf among them */
    return bits;
}

static ups_planes allocate(int64_t times, int64_t series) {
    size_t pairs = (size_t)(series * ups_planes_pairs(times)) + UPS_PLANES_SLACK;
    return (ups_planes){malloc(pairs), malloc(pairs), malloc((size_t)(series * times) + UPS_PLANES_SLACK)};
}

static void release(ups_planes planes) {
    free(planes.low);
    free(planes.middle);
    free(planes.high);
}

static int fastest(void **state) {
    return ups_planes_use(0) ? 0 : -1;
}

static void any_bit_pattern_comes_back_in_every_order_shape_and_form(void **state) {
    for (int form = PLAIN; form < MOST_FORMS; form++) {
        if (!ups_planes_use(form)) continue; /* not on this machine */
        for (size_t i = 0; i < SHAPES; i++) {
            int64_t times = shapes[i][0], series = shapes[i][1];
            size_t count = (size_t)(times * series);
            ups_f16 *bits = random_bits((uint32_t)i, count), *back = malloc(count * sizeof *back);
            ups_planes planes = allocate(times, series);
            for (int order = 0; order <= UPS_PLANES_MAX_ORDER; order++) {
                ups_planes_split(bits, series, times, series, order, planes);
                memset(back, 0xee, count * sizeof *back);
                ups_planes_join_f16(planes, times, series, order, 0, times, back, series);
                assert_memory_equal(bits, back, count * sizeof *back);
            }
            release(planes);
            free(bits);
            free(back);
        }
    }
}

static void every_form_splits_into_the_same_bytes_as_the_plain_loops(void **state) {
    for (size_t i = 0; i < SHAPES; i++) {
        int64_t times = shapes[i][0], series = shapes[i][1];
        size_t pairs = (size_t)(series * ups_planes_pairs(times));
        ups_f16 *bits = random_bits(100 + (uint32_t)i, (size_t)(times * series));
        ups_planes plain = allocate(times, series), fast = allocate(times, series);
        for (int form = 0; form < MOST_FORMS; form++) {
            ups_planes_use(PLAIN);
            ups_planes_split(bits, series, times, series, (int)(i % 3), plain);
            if (!ups_planes_use(form)) continue;
            ups_planes_split(bits, series, times, series, (int)(i % 3), fast);
            assert_memory_equal(plain.low, fast.low, pairs);
            assert_memory_equal(plain.middle, fast.middle, pairs);
            assert_memory_equal(plain.high, fast.high, (size_t)(series * times));
        }
        release(plain);
        release(fast);
        free(bits);
    }
}

/* What the planes hold is always a trajectory: nothing depends on who wrote them. */
static void every_form_joins_any_run_of_frames_as_the_plain_loops_do(void **state) {
    for (size_t i = 0; i < SHAPES; i++) {
        int64_t times = shapes[i][0], series = shapes[i][1], stride = (series + 15) / 16 * 16;
        size_t pairs = (size_t)(series * ups_planes_pairs(times)) + UPS_PLANES_SLACK;
        size_t room = (size_t)(times * stride) * sizeof(float);
        ups_planes planes = {(uint8_t *)random_bits(200 + (uint32_t)i, pairs),
                             (uint8_t *)random_bits(300 + (uint32_t)i, pairs),
                             (uint8_t *)random_bits(400 + (uint32_t)i, (size_t)(times * series) + UPS_PLANES_SLACK)};
        float *plain = ups_aligned_alloc(64, room), *fast = ups_aligned_alloc(64, room);
        ups_f16 *halves = malloc(room);
        for (int64_t start = 0; start < times; start += 1 + times / 7) {
            int64_t end = start + 1 + (times - start - 1) / 2;
            size_t bytes = (size_t)((end - start) * stride) * sizeof(float);
            for (int form = 0; form < 2 * MOST_FORMS; form++) {
                memset(plain, 0, bytes);
                memset(fast, 0, bytes);
                memset(halves, 0, bytes / 2);
                ups_planes_use(PLAIN);
                bool finite =
                    ups_planes_join_f32(planes, times, series, (int)(i % 3), start, end, false, plain, stride);
                if (!ups_planes_use(form / 2)) continue;
                assert_int_equal(
                    ups_planes_join_f32(planes, times, series, (int)(i % 3), start, end, form % 2, fast, stride),
                    finite);
                assert_memory_equal(fast, plain, bytes);
                assert_int_equal(ups_planes_join_f16(planes, times, series, (int)(i % 3), start, end, halves, stride),
                                 finite);
                ups_f16_to_f32(halves, fast, bytes / sizeof(float));
                assert_memory_equal(fast, plain, bytes);
            }
        }
        free(planes.low);
        free(planes.middle);
        free(planes.high);
        ups_aligned_free(plain);
        ups_aligned_free(fast);
        free(halves);
    }
}

static void a_single_nan_or_infinity_is_noticed_wherever_it_is(void **state) {
    enum { TIMES = 19, SERIES = 150 };
    ups_f16 latents[TIMES * SERIES] = {0}, back[TIMES * SERIES];
    ups_planes planes = allocate(TIMES, SERIES);
    for (int form = PLAIN; form < MOST_FORMS; form++) {
        if (!ups_planes_use(form)) continue;
        for (int at = 0; at < TIMES * SERIES; at += 7) {
            latents[at] = at % 2 ? 0x7c00 : 0xfe01;
            ups_planes_split(latents, SERIES, TIMES, SERIES, 2, planes);
            assert_false(ups_planes_join_f16(planes, TIMES, SERIES, 2, 0, TIMES, back, SERIES));
            latents[at] = 0x7bff; /* the largest number there is */
            ups_planes_split(latents, SERIES, TIMES, SERIES, 2, planes);
            assert_true(ups_planes_join_f16(planes, TIMES, SERIES, 2, 0, TIMES, back, SERIES));
            latents[at] = 0;
        }
    }
    release(planes);
}

/* By hand: 0.0, 1.0 (0x3c00), 2.0 (0x4000), −0.0 (0x8000) map to 0, 15360, 16384, −1. First differences 0, 15360, 1024,
 * −16385; second ones 0, 15360, −14336, −17409; zigzagged 0, 30720, 28671, 34817 = 0x0000, 0x7800, 0x6fff, 0x8801. */
static void bytes_are_those_of_the_format_document(void **state) {
    static const ups_f16 latents[4] = {0x0000, 0x3c00, 0x4000, 0x8000};
    uint8_t low[2 + UPS_PLANES_SLACK], middle[2 + UPS_PLANES_SLACK], high[4 + UPS_PLANES_SLACK];
    ups_planes_split(latents, 1, 4, 1, 2, (ups_planes){low, middle, high});
    assert_memory_equal(low, ((uint8_t[]){0x00, 0x1f}), 2);
    assert_memory_equal(middle, ((uint8_t[]){0x00, 0x0f}), 2);
    assert_memory_equal(high, ((uint8_t[]){0x00, 0x78, 0x6f, 0x88}), 4);
}

static void the_order_chosen_is_the_one_that_fits(void **state) {
    enum { TIMES = 64, SERIES = 128 };
    ups_f16 *noise = random_bits(50, TIMES * SERIES), latents[TIMES * SERIES];
    for (int i = 0; i < TIMES * SERIES; i++) latents[i] = (ups_f16)(0x3c00 + noise[i] % 64); /* nothing to predict */
    assert_int_equal(ups_planes_choose_order(latents, SERIES, TIMES, SERIES), 0);
    for (int i = 0; i < TIMES * SERIES; i++) latents[i] = (ups_f16)(0x3c00 + i % SERIES + (i / SERIES) * (i % SERIES));
    assert_int_equal(ups_planes_choose_order(latents, SERIES, TIMES, SERIES), 2); /* straight lines of many slopes */
    for (int i = SERIES; i < TIMES * SERIES; i++) latents[i] = (ups_f16)(latents[i - SERIES] + noise[i] % 64);
    assert_int_equal(ups_planes_choose_order(latents, SERIES, TIMES, SERIES), 1); /* random walks */
    free(noise);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(any_bit_pattern_comes_back_in_every_order_shape_and_form, fastest),
        cmocka_unit_test_teardown(every_form_splits_into_the_same_bytes_as_the_plain_loops, fastest),
        cmocka_unit_test_teardown(every_form_joins_any_run_of_frames_as_the_plain_loops_do, fastest),
        cmocka_unit_test_teardown(a_single_nan_or_infinity_is_noticed_wherever_it_is, fastest),
        cmocka_unit_test(bytes_are_those_of_the_format_document),
        cmocka_unit_test(the_order_chosen_is_the_one_that_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
