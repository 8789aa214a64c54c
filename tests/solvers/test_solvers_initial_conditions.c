/* The family of initial conditions is the one that PDEBench describes: its shares, ranges and shapes, over many draws.
 */
#include "tests/base/testing.h"
#include "tools/solvers/initial_conditions.h"

#include <math.h>

enum { DRAWS = 20000, K_MAX = 8 };
static const ups_wave_family pdebench = {.waves = 2, .k_max = K_MAX, .p_absolute = 0.1, .p_window = 0.1};

/* Five standard deviations of a share of DRAWS. */
static double slack(double share) {
    return 5.0 * sqrt(share * (1.0 - share) / DRAWS);
}

static void a_tenth_are_absolute_a_tenth_windowed_half_flipped_and_independently_so(void **state) {
    int absolute = 0, windowed = 0, both = 0, flipped = 0;
    for (int i = 0; i < DRAWS; i++) {
        ups_wave_profile profile;
        ups_wave_profile_draw(&pdebench, 1, i, &profile);
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

static void wavenumbers_amplitudes_phases_and_windows_fill_their_ranges_evenly(void **state) {
    int of_wavenumber[K_MAX + 1] = {0};
    double amplitude = 0.0, amplitude_square = 0.0, phase = 0.0, left = 0.0, right = 0.0, product = 0.0;
    for (int i = 0; i < DRAWS; i++) {
        ups_wave_profile profile;
        ups_wave_profile_draw(&pdebench, 2, i, &profile);
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

static void the_profile_is_the_formula_and_repeats_with_period_one(void **state) {
    for (int i = 0; i < 500; i++) {
        ups_wave_profile p;
        ups_wave_profile_draw(&pdebench, 3, i, &p);
        for (int n = 0; n < 97; n++) {
            const double x = n / 97.0;
            double expected = p.amplitude[0] * sin(2.0 * M_PI * p.wavenumber[0] * x + p.phase[0]) +
                              p.amplitude[1] * sin(2.0 * M_PI * p.wavenumber[1] * x + p.phase[1]);
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

static void a_sample_is_fixed_by_its_seed_and_number(void **state) {
    ups_wave_profile first, again, neighbour, other_seed;
    ups_wave_profile_draw(&pdebench, 4, 11, &first);
    ups_wave_profile_draw(&pdebench, 4, 11, &again);
    ups_wave_profile_draw(&pdebench, 4, 12, &neighbour);
    ups_wave_profile_draw(&pdebench, 5, 11, &other_seed);
    assert_true(first.phase[0] == again.phase[0] && first.amplitude[1] == again.amplitude[1]);
    assert_true(first.phase[0] != neighbour.phase[0]);
    assert_true(first.phase[0] != other_seed.phase[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tenth_are_absolute_a_tenth_windowed_half_flipped_and_independently_so),
        cmocka_unit_test(wavenumbers_amplitudes_phases_and_windows_fill_their_ranges_evenly),
        cmocka_unit_test(the_profile_is_the_formula_and_repeats_with_period_one),
        cmocka_unit_test(a_sample_is_fixed_by_its_seed_and_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
