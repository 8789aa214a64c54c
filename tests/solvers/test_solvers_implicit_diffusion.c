/* Implicit diffusion against cosines, which the heat equation only damps. */
#include "tests/solvers/convergence.h"
#include "tools/solvers/implicit_diffusion.h"

/* Largest error for 1 + cos 2πx + ½ sin 4πx after time 0.01 at D = 1. */
static double periodic_error(int64_t cells, int steps) {
    const double end = 0.01, q = UPS_SDIRK2_GAMMA * end / steps * (double)cells * (double)cells;
    const ups_periodic_factor factor = ups_periodic_factorize(cells, q);
    double *u = malloc(sizeof(double) * (size_t)cells), *work = malloc(sizeof(double) * (size_t)cells);
    for (int64_t i = 0; i < cells; i++) {
        const double x = centre(i, cells);
        u[i] = 1.0 + cos(2.0 * M_PI * x) + 0.5 * sin(4.0 * M_PI * x);
    }
    for (int n = 0; n < steps; n++) ups_periodic_diffuse(cells, &factor, u, work);
    double worst = 0.0;
    for (int64_t i = 0; i < cells; i++) {
        const double x = centre(i, cells), decay = exp(-4.0 * M_PI * M_PI * end);
        const double exact = 1.0 + decay * cos(2.0 * M_PI * x) + 0.5 * pow(decay, 4.0) * sin(4.0 * M_PI * x);
        worst = fmax(worst, fabs(u[i] - exact));
    }
    free(work);
    free(u);
    return worst;
}

static void a_periodic_line_converges_at_second_order(void **state) {
    expect_orders("periodic", periodic_error(32, 8), periodic_error(64, 16), periodic_error(128, 32), 1.9, 2e-4);
}

/* Largest error for 1 + cos πx cos 2πy between walls. */
static double walled_error(int64_t cells, int steps) {
    const double end = 0.01, q = UPS_SDIRK2_GAMMA * end / steps * (double)cells * (double)cells;
    const size_t plane = (size_t)(cells * cells);
    double *u = malloc(sizeof(double) * plane), *work = malloc(2 * sizeof(double) * plane);
    double *pivots = malloc(sizeof(double) * (size_t)cells);
    ups_walled_factorize(cells, q, pivots);
    for (int64_t i = 0; i < cells; i++) {
        for (int64_t j = 0; j < cells; j++)
            u[i * cells + j] = 1.0 + cos(M_PI * centre(i, cells)) * cos(2.0 * M_PI * centre(j, cells));
    }
    for (int n = 0; n < steps; n++) ups_walled_diffuse_square(cells, q, pivots, u, work);
    double worst = 0.0;
    for (int64_t i = 0; i < cells; i++) {
        for (int64_t j = 0; j < cells; j++) {
            const double decay = exp(-5.0 * M_PI * M_PI * end);
            const double exact = 1.0 + decay * cos(M_PI * centre(i, cells)) * cos(2.0 * M_PI * centre(j, cells));
            worst = fmax(worst, fabs(u[i * cells + j] - exact));
        }
    }
    free(pivots);
    free(work);
    free(u);
    return worst;
}

static void a_walled_square_converges_at_second_order(void **state) {
    expect_orders("walled", walled_error(24, 8), walled_error(48, 16), walled_error(96, 32), 1.9, 1e-4);
}

static void nothing_is_lost_and_the_largest_step_only_levels(void **state) {
    enum { CELLS = 40 };
    double u[CELLS * CELLS], work[2 * CELLS * CELLS], pivots[CELLS], total = 0.0, after = 0.0;
    for (int i = 0; i < CELLS * CELLS; i++) total += u[i] = (i * 7919 % 101) * 0.01;
    const double q = 1e9;
    ups_walled_factorize(CELLS, q, pivots);
    ups_walled_diffuse_square(CELLS, q, pivots, u, work);
    for (int i = 0; i < CELLS * CELLS; i++) {
        after += u[i];
        assert_true(fabs(u[i] - total / (CELLS * CELLS)) < 1e-5);
    }
    assert_true(fabs(after - total) < 1e-6 * total);

    double line[CELLS], spare[CELLS], sum = 0.0, later = 0.0;
    for (int i = 0; i < CELLS; i++) sum += line[i] = i == 3;
    const ups_periodic_factor factor = ups_periodic_factorize(CELLS, 1e6);
    ups_periodic_diffuse(CELLS, &factor, line, spare);
    for (int i = 0; i < CELLS; i++) {
        later += line[i];
        assert_true(fabs(line[i] - 1.0 / CELLS) < 1e-3);
    }
    assert_true(fabs(later - sum) < 1e-9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_periodic_line_converges_at_second_order),
        cmocka_unit_test(a_walled_square_converges_at_second_order),
        cmocka_unit_test(nothing_is_lost_and_the_largest_step_only_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
