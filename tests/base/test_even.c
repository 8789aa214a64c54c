/* Selections are evenly spaced, as many as asked for or a little fewer, and leave out less than a step at one end. */
#include "base/even.h"
#include "testing.h"

enum { MOST = 70 };

static void every_selection_is_even_and_reaches_both_ends(void **state) {
    (void)state;
    int64_t chosen[MOST];
    for (int64_t last = 0; last < 300; last++) {
        for (int64_t most = 1; most < MOST; most++) {
            for (int to_last = 0; to_last < 2; to_last++) {
                int64_t count = ups_even_choice(3, 3 + last, most, to_last, chosen);
                assert_in_range(count, 1, most);
                assert_int_equal(to_last ? chosen[count - 1] : chosen[0], to_last ? 3 + last : 3);
                if (count == 1) continue;
                int64_t step = chosen[1] - chosen[0];
                for (int64_t i = 1; i < count; i++) assert_int_equal(chosen[i] - chosen[i - 1], step);
                assert_in_range(to_last ? chosen[0] - 3 : 3 + last - chosen[count - 1], 0, step - 1);
                assert_true(2 * count > (most < last + 1 ? most : last + 1));
            }
        }
    }
}

static void fifty_steps_in_forty_eight_frames_are_every_other_one(void **state) {
    (void)state;
    int64_t chosen[MOST];
    assert_int_equal(ups_even_choice(0, 50, 48, false, chosen), 26);
    assert_int_equal(chosen[25], 50);
    assert_int_equal(ups_even_choice(0, 102, 3, false, chosen), 3);
    assert_int_equal(chosen[2], 102);
    assert_int_equal(ups_even_choice(1, 1, 6, true, chosen), 1);
    assert_int_equal(chosen[0], 1);
}

static void numbers_of_a_file_are_even_but_for_rounding(void **state) {
    (void)state;
    double even[100], squares[100], wrapped[] = {0, 1, 2, -2, -1};
    for (int i = 0; i < 100; i++) even[i] = (float)(3 - 0.1 * i), squares[i] = i * i;
    assert_true(ups_is_even(even, 100));
    assert_true(ups_is_even(squares, 2));
    assert_false(ups_is_even(squares, 3));
    assert_false(ups_is_even(squares, 100));
    assert_false(ups_is_even(wrapped, 5));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_selection_is_even_and_reaches_both_ends),
        cmocka_unit_test(fifty_steps_in_forty_eight_frames_are_every_other_one),
        cmocka_unit_test(numbers_of_a_file_are_even_but_for_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
