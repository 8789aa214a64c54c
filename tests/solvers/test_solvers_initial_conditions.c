/* The families of initial conditions are those that PDEBench describes, and that its scripts make: their shares, ranges
 * and shapes, over many draws. */
#include "tests/base/testing.h"
#include "tools/solvers/initial/initial_conditions.h"

#include <math.h>

enum { DRAWS = 20000, K_MAX = 8 };
static const ups_wave_family paper = {
    .law = UPS_WAVES_PLAIN, .waves = 2, .k_max = K_MAX, .p_absolute = 0.1, .p_window = 0.1};
static const ups_wave_family pdebench = {
    .law = UPS_WAVES_PDEBENCH, .waves = 2, .k_max = 4, .p_absolute = 0.1, .p_window = 0.1};

/* Five standard deviations of a share of DRAWS. */
static double slack(double share) {
    return 5.0 * sqrt(share * (1.0 - share) / DRAWS);
}

static void count_shares(const ups_wave_family *family) {
    int absolute = 0, windowed = 0, both = 0, flipped = 0;
    for (int i = 0; i < DRAWS; i++) {
        ups_wave_profile profile;
        ups_wave_profile_draw(family, 1, i, &profile);
        absolute += profile.absolute;
        windowed += profile.windowed;
        both += profile.absolute && profile.windowed;
        flipped += profile.sign < 0.0;
        assert_true(fabs(profile.sign) == 1.0);
    }
    assert_float_equal((double)absolute / DRAWS, 0.1, slack(0.1));
    assert_float_equal((double)windowed / DRAWS, 0.1, slack(0.1));
    assert_float_equal((double)both / DRAWS, 0.01, slack(0.01));
    assert_float_equal((double)flipped / DRAWS, 0.5, slack(0.5));
}

static void a_tenth_are_absolute_a_tenth_windowed_half_flipped_and_independently_so(void **state) {
    count_shares(&paper);
    count_shares(&pdebench);
}

static void wavenumbers_amplitudes_phases_and_windows_fill_their_ranges_evenly(void **state) {
    int of_wavenumber[K_MAX + 1] = {0};
    double amplitude = 0.0, amplitude_square = 0.0, phase = 0.0, left = 0.0, right = 0.0, product = 0.0;
    for (int i = 0; i < DRAWS; i++) {
        ups_wave_profile profile;
        ups_wave_profile_draw(&paper, 2, i, &profile);
        assert_int_equal(profile.waves, 2);
        for (int j = 0; j < 2; j++) {
            assert_in_range(profile.wavenumber[j], 1, K_MAX);
            of_wavenumber[profile.wavenumber[j]]++;
            assert_true(profile.amplitude[j] >= 0.0 && profile.amplitude[j] < 1.0);
            assert_true(profile.phase[j] >= 0.0 && profile.phase[j] < 2.0 * M_PI);
            amplitude += profile.amplitude[j];
            amplitude_square += profile.amplitude[j] * profile.amplitude[j];
            phase += profile.phase[j];
        }
        product += (profile.amplitude[0] - 0.5) * (profile.amplitude[1] - 0.5);
        assert_true(profile.window_left >= 0.1 && profile.window_left < 0.45);
        assert_true(profile.window_right >= 0.55 && profile.window_right < 0.9);
        left += profile.window_left;
        right += profile.window_right;
    }
    for (int k = 1; k <= K_MAX; k++) assert_float_equal(of_wavenumber[k] / (2.0 * DRAWS), 0.125, slack(0.125));
    assert_float_equal(amplitude / (2.0 * DRAWS), 0.5, 0.01);
    assert_float_equal(amplitude_square / (2.0 * DRAWS), 1.0 / 3.0, 0.01);
    assert_float_equal(phase / (2.0 * DRAWS), M_PI, 0.05);
    assert_float_equal(left / DRAWS, 0.275, 0.005);
    assert_float_equal(right / DRAWS, 0.725, 0.005);
    assert_float_equal(product / DRAWS, 0.0, 0.003); /* the two waves know nothing of each other */
}

/* One wavenumber in four is drawn twice, and is then doubled; the others leave a constant. */
static void as_pdebench_draws_them_wavenumbers_double_and_those_not_drawn_leave_a_mean(void **state) {
    int of_wavenumber[9] = {0}, once = 0;
    double square = 0.0;
    for (int i = 0; i < DRAWS; i++) {
        ups_wave_profile profile;
        ups_wave_profile_draw(&pdebench, 6, i, &profile);
        assert_in_range(profile.waves, 1, 2);
        once += profile.waves == 1;
        for (int j = 0; j < profile.waves; j++) {
            const int k = profile.wavenumber[j];
            assert_in_range(k, 1, 8);
            if (profile.waves == 1) assert_true(k % 2 == 0);
            if (profile.waves == 2) assert_true(k <= 4);
            of_wavenumber[k]++;
        }
        square += profile.constant * profile.constant / DRAWS;
    }
    assert_float_equal((double)once / DRAWS, 0.25, slack(0.25));
    /* a pair of two that differ holds k = 1 with probability 6/16; 2 and 4 come doubled from 1 and 2 as well */
    assert_float_equal((double)of_wavenumber[1] / DRAWS, 6.0 / 16.0, slack(0.375));
    assert_float_equal((double)of_wavenumber[2] / DRAWS, 7.0 / 16.0, slack(0.4375));
    assert_float_equal((double)of_wavenumber[8] / DRAWS, 1.0 / 16.0, slack(0.0625));
    assert_int_equal(of_wavenumber[5] + of_wavenumber[7], 0);
    assert_float_equal(square, 2.25 / 6.0, 0.015); /* (2 · 3/4 + 3 · 1/4) · E A² · E sin² φ */
}

static void edges_of_pdebenchs_windows_move_together_and_not_far(void **state) {
    double farthest = 0.0;
    for (int i = 0; i < DRAWS; i++) {
        ups_wave_profile profile;
        ups_wave_profile_draw(&pdebench, 7, i, &profile);
        if (!profile.windowed) continue;
        assert_float_equal(profile.window_right - profile.window_left, 0.45, 1e-12);
        assert_true(profile.window_left >= 0.1 && profile.window_left < 0.135);
        farthest = fmax(farthest, profile.window_left);
    }
    assert_true(farthest > 0.134);
}

static void check_profiles(const ups_wave_family *family) {
    for (int i = 0; i < 500; i++) {
        ups_wave_profile p;
        ups_wave_profile_draw(family, 3, i, &p);
        for (int n = 0; n < 97; n++) {
            const double x = n / 97.0;
            double expected = p.constant;
            for (int j = 0; j < p.waves; j++)
                expected += p.amplitude[j] * sin(2.0 * M_PI * p.wavenumber[j] * x + p.phase[j]);
            if (p.absolute) expected = fabs(expected);
            expected *= p.sign;
            if (p.windowed) {
                expected *= 0.5 * (tanh((x - p.window_left) / 0.01) - tanh((x - p.window_right) / 0.01));
            }
            assert_float_equal(ups_wave_profile_at(&p, x), expected, 1e-12);
            assert_float_equal(ups_wave_profile_at(&p, x - 3.0), expected, 1e-9);
        }
    }
}

static void the_profile_is_the_formula_and_repeats_with_period_one(void **state) {
    check_profiles(&paper);
    check_profiles(&pdebench);
}

static void a_sample_is_fixed_by_its_seed_and_number(void **state) {
    ups_wave_profile first, again, neighbour, other_seed;
    ups_wave_profile_draw(&paper, 4, 11, &first);
    ups_wave_profile_draw(&paper, 4, 11, &again);
    ups_wave_profile_draw(&paper, 4, 12, &neighbour);
    ups_wave_profile_draw(&paper, 5, 11, &other_seed);
    assert_true(first.phase[0] == again.phase[0] && first.amplitude[1] == again.amplitude[1]);
    assert_true(first.phase[0] != neighbour.phase[0]);
    assert_true(first.phase[0] != other_seed.phase[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tenth_are_absolute_a_tenth_windowed_half_flipped_and_independently_so),
        cmocka_unit_test(wavenumbers_amplitudes_phases_and_windows_fill_their_ranges_evenly),
        cmocka_unit_test(as_pdebench_draws_them_wavenumbers_double_and_those_not_drawn_leave_a_mean),
        cmocka_unit_test(edges_of_pdebenchs_windows_move_together_and_not_far),
        cmocka_unit_test(the_profile_is_the_formula_and_repeats_with_period_one),
        cmocka_unit_test(a_sample_is_fixed_by_its_seed_and_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
