/* Diffusion–sorption against eigenfunctions, the error function, and another scheme on a fine grid. */
#include "tests/solvers/convergence.h"
#include "tests/solvers/solved_sample.h"
#include "tools/solvers/diffsorp1d.h"

typedef double (*start_function)(const ups_sorption *medium, double x);

static double *advanced(int64_t cells, const ups_sorption *medium, start_function start, double end, int64_t steps) {
    ups_error error = {0};
    double *u = malloc(sizeof(double) * (size_t)cells);
    double *scratch = malloc(sizeof(double) * ups_diffsorp1d_scratch(cells));
    for (int64_t i = 0; i < cells; i++) u[i] = start(medium, centre(i, cells));
    if (ups_diffsorp1d_advance(cells, medium, end / (double)steps, steps, u, scratch, &error) != UPS_OK)
        fail_msg("%s", error.message);
    free(scratch);
    return u;
}

/* The smallest μ > 0 with sin μ + D μ cos μ = 0: sin μx and its flux fit the walls. It lies in (π/2, π). */
static double wavenumber(double diffusivity) {
    double low = 0.5 * M_PI, high = M_PI;
    for (int n = 0; n < 200; n++) {
        const double middle = 0.5 * (low + high);
        if (sin(middle) + diffusivity * middle * cos(middle) > 0.0)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static double steady(const ups_sorption *medium, double x) {
    return medium->wall * (1.0 - x / (1.0 + medium->diffusivity));
}

/* Steady state and one mode, which both fit the walls: smooth from the first moment. */
static double smooth(const ups_sorption *medium, double x) {
    return steady(medium, x) + 0.3 * sin(wavenumber(medium->diffusivity) * x);
}

static double mode_error(int64_t cells, int64_t steps) {
    const ups_sorption medium = {.diffusivity = 0.2, .capacity = 0.0, .exponent = 0.8, .wall = 1.0};
    const double end = 0.5, mu = wavenumber(medium.diffusivity), decay = exp(-medium.diffusivity * mu * mu * end);
    double *u = advanced(cells, &medium, smooth, end, steps), worst = 0.0;
    for (int64_t i = 0; i < cells; i++) {
        const double x = centre(i, cells);
        worst = fmax(worst, fabs(u[i] - steady(&medium, x) - 0.3 * decay * sin(mu * x)));
    }
    free(u);
    return worst;
}

static void without_sorption_an_eigenfunction_decays_at_second_order(void **state) {
    expect_orders("eigenfunction", mode_error(16, 4), mode_error(32, 8), mode_error(64, 16), 1.9, 1e-4);
}

/* ---- another scheme: R(u) u_t = D u_xx as it stands, on nodes with the walls among them, explicit fourth order ----
 */

static void slope_of(int64_t n, const ups_sorption *medium, const double *u, double *slope) {
    const double dx = 1.0 / (double)n;
    slope[0] = 0.0;
    for (int64_t i = 1; i <= n; i++) {
        double retardation;
        ups_sorption_held(medium, u[i], &retardation);
        const double beyond = i < n ? u[i + 1] : u[n - 1] - 2.0 * dx / medium->diffusivity * u[n];
        slope[i] = medium->diffusivity / retardation * (u[i - 1] - 2.0 * u[i] + beyond) / (dx * dx);
    }
}

static void reference_on_nodes(int64_t n, const ups_sorption *medium, start_function start, double end, int64_t steps,
                               double *u) {
    static const double share[4] = {0.0, 0.5, 0.5, 1.0}, weight[4] = {1.0 / 6, 1.0 / 3, 1.0 / 3, 1.0 / 6};
    const double dt = end / (double)steps;
    const size_t bytes = sizeof(double) * (size_t)(n + 1);
    double *stage = malloc(bytes), *slope = calloc((size_t)n + 1, sizeof *slope), *sum = malloc(bytes);
    for (int64_t i = 0; i <= n; i++) u[i] = start(medium, (double)i / (double)n);
    for (int64_t step = 0; step < steps; step++) {
        memcpy(sum, u, bytes);
        for (int k = 0; k < 4; k++) {
            for (int64_t i = 0; i <= n; i++) stage[i] = u[i] + share[k] * dt * (k > 0 ? slope[i] : 0.0);
            slope_of(n, medium, stage, slope);
            for (int64_t i = 0; i <= n; i++) sum[i] += weight[k] * dt * slope[i];
        }
        memcpy(u, sum, bytes);
    }
    free(sum);
    free(slope);
    free(stage);
}

static void with_sorption_it_agrees_with_another_scheme_at_second_order(void **state) {
    enum { NODES = 256 };
    const ups_sorption medium = {.diffusivity = 0.2, .capacity = 2.47, .exponent = 0.874, .wall = 1.0};
    const double end = 1.0;
    double reference[NODES + 1], error[3];
    reference_on_nodes(NODES, &medium, smooth, end, 16000, reference);
    for (int level = 0; level < 3; level++) {
        const int64_t cells = INT64_C(16) << level, nodes_a_cell = NODES / cells;
        double *u = advanced(cells, &medium, smooth, end, INT64_C(6) << level);
        error[level] = 0.0;
        for (int64_t i = 0; i < cells; i++)
            error[level] = fmax(error[level], fabs(u[i] - reference[i * nodes_a_cell + nodes_a_cell / 2]));
        free(u);
    }
    expect_orders("Freundlich", error[0], error[1], error[2], 1.8, 2e-4);
}

/* ---- walls in ghost cells ---- */

/* As PDEBench's generator has it: R(u) u_t = D u_xx over cells, u_wall in the cell before the first, and in the one
 * behind the last D times the slope between the last two, with its sign turned. Explicit, fourth order. */
static void ghost_slope_of(int64_t cells, const ups_sorption *medium, const double *u, double *slope) {
    const double n = (double)cells;
    for (int64_t i = 0; i < cells; i++) {
        double retardation;
        ups_sorption_held(medium, u[i], &retardation);
        const double before = i > 0 ? u[i - 1] : medium->wall;
        const double after = i + 1 < cells ? u[i + 1] : medium->diffusivity * n * (u[i - 1] - u[i]);
        slope[i] = medium->diffusivity / retardation * (before - 2.0 * u[i] + after) * n * n;
    }
}

static void with_ghost_cells_it_solves_what_pdebench_solves(void **state) {
    enum { CELLS = 32, STEPS = 8000 };
    const ups_sorption medium = {
        .diffusivity = 0.2, .capacity = 2.47, .exponent = 0.874, .wall = 1.0, .ghost_cells = true};
    static const double share[4] = {0.0, 0.5, 0.5, 1.0}, weight[4] = {1.0 / 6, 1.0 / 3, 1.0 / 3, 1.0 / 6};
    const double end = 1.0, dt = end / STEPS;
    double reference[CELLS], stage[CELLS], slope[CELLS] = {0}, sum[CELLS], error[3] = {0};
    for (int64_t i = 0; i < CELLS; i++) reference[i] = smooth(&medium, centre(i, CELLS));
    for (int step = 0; step < STEPS; step++) {
        memcpy(sum, reference, sizeof sum);
        for (int k = 0; k < 4; k++) {
            for (int64_t i = 0; i < CELLS; i++) stage[i] = reference[i] + share[k] * dt * slope[i];
            ghost_slope_of(CELLS, &medium, stage, slope);
            for (int64_t i = 0; i < CELLS; i++) sum[i] += weight[k] * dt * slope[i];
        }
        memcpy(reference, sum, sizeof sum);
    }
    for (int level = 0; level < 3; level++) { /* in time alone: the cells are the same */
        double *u = advanced(CELLS, &medium, smooth, end, INT64_C(8) << level);
        for (int i = 0; i < CELLS; i++) error[level] = fmax(error[level], fabs(u[i] - reference[i]));
        free(u);
    }
    expect_orders("ghost cells", error[0], error[1], error[2], 1.8, 2e-4);
}

static void ghost_cells_are_half_a_cell_off(void **state) {
    ups_sorption medium = {.diffusivity = 0.2, .capacity = 2.47, .exponent = 0.874, .wall = 1.0};
    double apart[2];
    for (int level = 0; level < 2; level++) {
        const int64_t cells = INT64_C(64) << level;
        medium.ghost_cells = false;
        double *faces = advanced(cells, &medium, smooth, 1.0, 256);
        medium.ghost_cells = true;
        double *ghosts = advanced(cells, &medium, smooth, 1.0, 256);
        apart[level] = 0.0;
        for (int64_t i = 0; i < cells; i++) apart[level] = fmax(apart[level], fabs(faces[i] - ghosts[i]));
        free(faces);
        free(ghosts);
    }
    print_message("walls in ghost cells and at faces: %.1e apart on 64 cells, %.1e on 128\n", apart[0], apart[1]);
    assert_true(apart[0] > 1e-3 && fabs(apart[0] / apart[1] - 2.0) < 0.1);
}

/* With n_f = 1 the retardation is constant, and while the front is far from x = 1 the answer to the jump at the wall is
 * u0 + (1 - u0) erfc(x / √(4Dt/R)). */
static double jump_error(int64_t cells, double end) {
    ups_error error = {0};
    const ups_sorption medium = {.diffusivity = 5e-4, .capacity = 2.47, .exponent = 1.0, .wall = 1.0};
    double *u = malloc(sizeof(double) * (size_t)cells), worst = 0.0;
    double *scratch = malloc(sizeof(double) * ups_diffsorp1d_scratch(cells));
    for (int64_t i = 0; i < cells; i++) u[i] = 0.1;
    assert_int_equal(ups_diffsorp1d_march(cells, &medium, 0.0, end, u, scratch, &error), UPS_OK);
    for (int64_t i = 0; i < cells / 2; i++) {
        const double far = centre(i, cells) / sqrt(4.0 * 5e-4 * end / 3.47);
        worst = fmax(worst, fabs(u[i] - 0.1 - 0.9 * erfc(far)));
    }
    free(scratch);
    free(u);
    return worst;
}

static void the_jump_at_the_wall_becomes_the_error_function(void **state) {
    const double first = jump_error(1024, 5.0), later = jump_error(1024, 50.0);
    print_message("jump at the wall, 1024 cells: error %.1e at the first stored time, %.1e at the tenth\n", first,
                  later);
    assert_true(first < 1e-3 && later < 1e-3);
}

static void in_the_end_only_the_straight_line_is_left(void **state) {
    const ups_sorption medium = {.diffusivity = 0.5, .capacity = 2.47, .exponent = 0.874, .wall = 1.0};
    double *u = advanced(64, &medium, smooth, 400.0, 100);
    for (int64_t i = 0; i < 64; i++) assert_true(fabs(u[i] - steady(&medium, centre(i, 64))) < 1e-11);
    free(u);
}

static void what_is_held_has_the_retardation_as_its_slope(void **state) {
    const ups_sorption medium = {.diffusivity = 1.0, .capacity = 2.47, .exponent = 0.874, .wall = 1.0};
    for (double u = -0.1; u < 1.0; u += 0.0371) {
        double retardation, unused;
        const double held = ups_sorption_held(&medium, u, &retardation), step = 1e-6;
        const double above = ups_sorption_held(&medium, u + step, &unused);
        const double below = ups_sorption_held(&medium, u - step, &unused);
        assert_true(below < held && held < above);
        assert_true(fabs((above - below) / (2.0 * step) - retardation) < 1e-4 * retardation);
    }
}

static void samples_begin_flat_and_rise_from_the_wall(void **state) {
    const ups_solver_setup setup = setup_of(&ups_diffsorp1d, 64, 11, 5, NULL);
    for (int64_t sample = 0; sample < 4; sample++) {
        solved_sample solved;
        solve_sample(&ups_diffsorp1d, &setup, sample, &solved);
        const float *u = solved.arrays[0];
        assert_true(u[0] >= 0.0f && u[0] < 0.2f);
        for (int i = 0; i < 64; i++) assert_float_equal(u[i], u[0], 0.0f);
        for (int t = 1; t < 11; t++) {
            for (int i = 1; i < 64; i++) assert_true(u[t * 64 + i] <= u[t * 64 + i - 1] + 1e-6f);
            for (int i = 0; i < 16; i++) assert_true(u[t * 64 + i] >= u[(t - 1) * 64 + i] - 1e-6f);
        }
        release_sample(&solved);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_sorption_an_eigenfunction_decays_at_second_order),
        cmocka_unit_test(with_sorption_it_agrees_with_another_scheme_at_second_order),
        cmocka_unit_test(with_ghost_cells_it_solves_what_pdebench_solves),
        cmocka_unit_test(ghost_cells_are_half_a_cell_off),
        cmocka_unit_test(the_jump_at_the_wall_becomes_the_error_function),
        cmocka_unit_test(in_the_end_only_the_straight_line_is_left),
        cmocka_unit_test(what_is_held_has_the_retardation_as_its_slope),
        cmocka_unit_test(samples_begin_flat_and_rise_from_the_wall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
