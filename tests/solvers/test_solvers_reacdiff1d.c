/* Reaction–diffusion against its exact travelling wave, exact growth and exact decay. */
#include "tests/solvers/convergence.h"
#include "tests/solvers/solved_sample.h"
#include "tools/solvers/reacdiff1d.h"

/* Ablowitz & Zeppetella (Bull. Math. Biol. 41, 1979): u = (1 + e^{(x - ct)/δ})⁻², δ = √(6ν/ρ), c = 5√(νρ/6). Here two
 * of them run away from the middle of the domain; where they meet, and where they would wrap around, they are 1 and 0
 * to rounding. */
static double fronts(double x, double t, double nu, double rho) {
    const double width = sqrt(6.0 * nu / rho), speed = 5.0 * sqrt(nu * rho / 6.0);
    const double front = 1.0 + exp((fabs(x - 0.5) - 0.25 - speed * t) / width);
    return 1.0 / (front * front);
}

/* Largest error after the fronts have gone seven widths. */
static double front_error(int64_t cells, int64_t steps) {
    const double rho = 20.0, width = 0.008, nu = width * width * rho / 6.0, end = 0.4;
    double *u = malloc(sizeof(double) * (size_t)cells), *work = malloc(sizeof(double) * (size_t)cells);
    for (int64_t i = 0; i < cells; i++) u[i] = fronts(centre(i, cells), 0.0, nu, rho);
    ups_reacdiff1d_advance(cells, nu, rho, end, steps, u, work);
    double worst = 0.0;
    for (int64_t i = 0; i < cells; i++) worst = fmax(worst, fabs(u[i] - fronts(centre(i, cells), end, nu, rho)));
    free(work);
    free(u);
    return worst;
}

static void the_travelling_wave_converges_at_second_order_in_space_and_time(void **state) {
    expect_orders("Fisher's wave", front_error(512, 100), front_error(1024, 200), front_error(2048, 400), 1.9, 1e-3);
}

/* Largest difference between two numbers of steps, of a smooth initial state at the parameters of a PDEBench file. */
static double difference(int64_t steps, int64_t reference_steps) {
    enum { CELLS = 256 };
    double u[CELLS], v[CELLS], work[CELLS], worst = 0.0;
    for (int64_t i = 0; i < CELLS; i++) u[i] = v[i] = 0.5 + 0.5 * sin(2.0 * M_PI * centre(i, CELLS));
    ups_reacdiff1d_advance(CELLS, 0.5, 10.0, 0.05, steps, u, work);
    ups_reacdiff1d_advance(CELLS, 0.5, 10.0, 0.05, reference_steps, v, work);
    for (int64_t i = 0; i < CELLS; i++) worst = fmax(worst, fabs(u[i] - v[i]));
    return worst;
}

static void the_steps_taken_are_enough_and_converge_at_second_order(void **state) {
    const int64_t steps = ups_reacdiff1d_steps(0.5, 10.0, 0.05);
    const double middle = difference(steps, 4096);
    print_message("%lld steps\n", (long long)steps);
    expect_orders("errors in time", difference(steps / 2, 4096), middle, difference(2 * steps, 4096), 1.8, 1e-4);
    assert_true(middle < 1e-4);
}

static void without_diffusion_every_cell_follows_the_logistic_curve(void **state) {
    enum { CELLS = 16 };
    double u[CELLS], work[CELLS];
    for (int i = 0; i < CELLS; i++) u[i] = i / 15.0;
    ups_reacdiff1d_advance(CELLS, 0.0, 3.0, 0.7, 5, u, work);
    for (int i = 0; i < CELLS; i++) {
        const double u0 = i / 15.0, growth = exp(2.1);
        assert_true(fabs(u[i] - u0 * growth / (1.0 - u0 + u0 * growth)) < 1e-14);
    }
}

static void without_growth_waves_decay_as_heat_does(void **state) {
    enum { CELLS = 1024 };
    double u[CELLS], work[CELLS];
    for (int64_t i = 0; i < CELLS; i++) u[i] = 1.0 + cos(2.0 * M_PI * centre(i, CELLS));
    ups_reacdiff1d_advance(CELLS, 1.0, 0.0, 0.02, ups_reacdiff1d_steps(1.0, 0.0, 0.02), u, work);
    for (int64_t i = 0; i < CELLS; i++) {
        const double exact = 1.0 + exp(-4.0 * M_PI * M_PI * 0.02) * cos(2.0 * M_PI * centre(i, CELLS));
        assert_true(fabs(u[i] - exact) < 1e-5);
    }
}

static void samples_begin_and_stay_within_zero_and_one(void **state) {
    static const char *const sharp[] = {"nu=0.5", "rho=10", "p_window=1", NULL};
    const ups_solver_setup setup = setup_of(&ups_reacdiff1d, 128, 21, 3, sharp);
    for (int64_t sample = 0; sample < 8; sample++) {
        solved_sample solved;
        solve_sample(&ups_reacdiff1d, &setup, sample, &solved);
        float low = 2.0f, high = -2.0f;
        for (int i = 0; i < 128; i++) {
            low = fminf(low, solved.arrays[0][i]);
            high = fmaxf(high, solved.arrays[0][i]);
        }
        assert_float_equal(low, 0.0f, 0.0f);
        assert_float_equal(high, 1.0f, 0.0f);
        for (int i = 0; i < 21 * 128; i++) assert_in_range(1000000 * (solved.arrays[0][i] + 1e-6f), 0, 1000002);
        release_sample(&solved);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_travelling_wave_converges_at_second_order_in_space_and_time),
        cmocka_unit_test(the_steps_taken_are_enough_and_converge_at_second_order),
        cmocka_unit_test(without_diffusion_every_cell_follows_the_logistic_curve),
        cmocka_unit_test(without_growth_waves_decay_as_heat_does),
        cmocka_unit_test(samples_begin_and_stay_within_zero_and_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
