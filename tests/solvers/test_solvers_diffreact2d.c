/* FitzHugh–Nagumo against small waves, which obey a linear system exactly, and against its own reaction alone. */
#include "base/random.h"
#include "tests/solvers/convergence.h"
#include "tests/solvers/solved_sample.h"
#include "tools/solvers/diffreact2d.h"

/* a' = m00 a + m01 b - cubic a³ - k, b' = m10 a + m11 b by the classical Runge–Kutta scheme in steps so small that the
 * result is exact but for rounding. */
static void integrate(const double m[4], double cubic, double k, double end, double *a, double *b) {
    static const double share[4] = {0.0, 0.5, 0.5, 1.0}, weight[4] = {1.0 / 6, 1.0 / 3, 1.0 / 3, 1.0 / 6};
    enum { STEPS = 4000 };
    const double dt = end / STEPS;
    for (int n = 0; n < STEPS; n++) {
        double slope_a = 0.0, slope_b = 0.0, sum_a = 0.0, sum_b = 0.0;
        for (int s = 0; s < 4; s++) {
            const double x = *a + share[s] * dt * slope_a, y = *b + share[s] * dt * slope_b;
            slope_a = m[0] * x + m[1] * y - cubic * x * x * x - k;
            slope_b = m[2] * x + m[3] * y;
            sum_a += weight[s] * slope_a;
            sum_b += weight[s] * slope_b;
        }
        *a += dt * sum_a;
        *b += dt * sum_b;
    }
}

/* cos(πp(x + 1)/2) cos(πq(y + 1)/2): nothing crosses the walls. */
static double wave(int64_t i, int64_t j, int64_t cells, int p, int q) {
    return cos(M_PI * p * ((double)i + 0.5) / (double)cells) * cos(M_PI * q * ((double)j + 0.5) / (double)cells);
}

/* Relative error of u and v, which begin as a wave so small that its cube is nothing, at time 1. */
static double wave_error(int64_t cells, int64_t steps) {
    enum { P = 2, Q = 3 };
    const ups_activation medium = {.diffusion_u = 0.03, .diffusion_v = 0.08, .k = 0.0};
    const double small = 1e-6, rate = 0.25 * M_PI * M_PI * (P * P + Q * Q), end = 1.0;
    const size_t plane = (size_t)(cells * cells);
    double *u = malloc(sizeof(double) * plane), *v = calloc(plane, sizeof(double));
    double *scratch = malloc(sizeof(double) * ups_diffreact2d_scratch(cells));
    for (int64_t i = 0; i < cells * cells; i++) u[i] = small * wave(i / cells, i % cells, cells, P, Q);
    ups_diffreact2d_advance(cells, &medium, end / (double)steps, steps, u, v, scratch);
    double a = 1.0, b = 0.0, worst = 0.0;
    integrate((const double[4]){1.0 - medium.diffusion_u * rate, -1.0, 1.0, -1.0 - medium.diffusion_v * rate}, 0.0, 0.0,
              end, &a, &b);
    for (int64_t i = 0; i < cells * cells; i++) {
        const double shape = wave(i / cells, i % cells, cells, P, Q);
        worst = fmax(worst, fabs(u[i] / small - a * shape));
        worst = fmax(worst, fabs(v[i] / small - b * shape));
    }
    free(scratch);
    free(v);
    free(u);
    return worst;
}

static void small_waves_converge_at_second_order_in_space_and_time(void **state) {
    expect_orders("small waves", wave_error(24, 10), wave_error(48, 20), wave_error(96, 40), 1.9, 1e-3);
}

static void a_uniform_state_follows_the_reaction_alone(void **state) {
    enum { CELLS = 8 };
    const ups_activation medium = {.diffusion_u = 1e-3, .diffusion_v = 5e-3, .k = 5e-3};
    double u[CELLS * CELLS], v[CELLS * CELLS], scratch[2 * CELLS * CELLS + 2 * CELLS], a = 1.7, b = -0.4;
    for (int i = 0; i < CELLS * CELLS; i++) u[i] = a, v[i] = b;
    ups_diffreact2d_march(CELLS, &medium, 0.0, 5.0, u, v, scratch);
    integrate((const double[4]){1.0, -1.0, 1.0, -1.0}, 1.0, medium.k, 5.0, &a, &b);
    for (int i = 0; i < CELLS * CELLS; i++) {
        assert_true(fabs(u[i] - a) < 1e-6);
        assert_true(fabs(v[i] - b) < 1e-6);
    }
}

/* Root mean square difference of u at `end`, from noise, between the steps that are taken and four times as many. */
static double noise_error(double end) {
    enum { CELLS = 64 };
    const ups_activation medium = {.diffusion_u = 1e-3, .diffusion_v = 5e-3, .k = 5e-3};
    static double u[2][CELLS * CELLS], v[2][CELLS * CELLS], scratch[2 * CELLS * CELLS + 2 * CELLS];
    const ups_random stream = ups_random_stream(1, UPS_RANDOM_TEST, 0);
    for (int i = 0; i < CELLS * CELLS; i++) {
        u[0][i] = u[1][i] = ups_random_normal(stream, 2 * (uint64_t)i);
        v[0][i] = v[1][i] = ups_random_normal(stream, 2 * (uint64_t)i + 1);
    }
    const int64_t steps = ups_diffreact2d_march(CELLS, &medium, 0.0, end, u[0], v[0], scratch);
    ups_diffreact2d_advance(CELLS, &medium, end / (double)(8 * steps), 8 * steps, u[1], v[1], scratch);
    double sum = 0.0, size = 0.0;
    for (int i = 0; i < CELLS * CELLS; i++) {
        sum += (u[0][i] - u[1][i]) * (u[0][i] - u[1][i]);
        size += u[1][i] * u[1][i];
    }
    return sqrt(sum / size);
}

static void noise_is_followed_from_the_first_stored_time_on(void **state) {
    const double first = noise_error(0.05), later = noise_error(1.0);
    print_message("from noise: relative error in time %.1e at the first stored time, %.1e at the twentieth\n", first,
                  later);
    assert_true(first < 2e-3 && later < 1e-3);
}

static void samples_begin_as_normal_noise_and_become_smooth(void **state) {
    enum { CELLS = 64, STEPS = 5 };
    const ups_solver_setup setup = setup_of(&ups_diffreact2d, CELLS, STEPS, 5, NULL);
    solved_sample solved;
    solve_sample(&ups_diffreact2d, &setup, 3, &solved);
    const float *start = solved.arrays[0], *end = start + (STEPS - 1) * CELLS * CELLS * 2;
    double mean = 0.0, square = 0.0, neighbours = 0.0, later_square = 0.0, later_neighbours = 0.0;
    for (int i = 0; i < 2 * CELLS * CELLS; i++) {
        mean += start[i];
        square += start[i] * start[i];
    }
    for (int i = 0; i + 1 < CELLS * CELLS; i++) {
        neighbours += start[2 * i] * start[2 * i + 2];
        later_square += end[2 * i] * end[2 * i];
        later_neighbours += end[2 * i] * end[2 * i + 2];
    }
    assert_true(fabs(mean) < 4.0 * sqrt(2.0) * CELLS);
    assert_true(fabs(square / (2 * CELLS * CELLS) - 1.0) < 0.05);
    assert_true(fabs(neighbours) < 4.0 * CELLS);
    assert_true(later_neighbours > 0.8 * later_square);
    release_sample(&solved);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_waves_converge_at_second_order_in_space_and_time),
        cmocka_unit_test(a_uniform_state_follows_the_reaction_alone),
        cmocka_unit_test(noise_is_followed_from_the_first_stored_time_on),
        cmocka_unit_test(samples_begin_as_normal_noise_and_become_smooth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
