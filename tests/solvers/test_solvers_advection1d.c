/* Advection is exact: what is stored is the initial condition, shifted. */
#include "tests/solvers/solved_sample.h"
#include "tools/solvers/advection1d.h"
#include "tools/solvers/initial/initial_conditions.h"

#include <math.h>

enum { CELLS = 200, STEPS = 41, SAMPLES = 60 };

/* Solves `sample` with the given parameters into a new (steps, cells) array. */
static float *solved(int64_t cells, int64_t steps, const char *const *assignments, int64_t sample) {
    const ups_solver_setup setup = setup_of(&ups_advection1d, cells, steps, 17, assignments);
    solved_sample made;
    solve_sample(&ups_advection1d, &setup, sample, &made);
    return made.arrays[0];
}

static void every_value_is_the_initial_function_at_the_shifted_point(void **state) {
    static const char *const often[] = {"beta=-0.73", "p_window=0.5", "p_absolute=0.5", "waves=3", "k_max=12", NULL};
    const ups_wave_family family = {
        .law = UPS_WAVES_PDEBENCH, .waves = 3, .k_max = 12, .p_absolute = 0.5, .p_window = 0.5};
    for (int64_t sample = 0; sample < SAMPLES; sample++) {
        ups_wave_profile profile;
        ups_wave_profile_draw(&family, 17, sample, &profile);
        float *u = solved(CELLS, STEPS, often, sample);
        for (int64_t step = 0; step < STEPS; step++) {
            const double shift = -0.73 * 2.0 * (double)step / (STEPS - 1);
            for (int64_t i = 0; i < CELLS; i++) {
                const double x = ((double)i + 0.5) / CELLS - shift;
                assert_float_equal(u[step * CELLS + i], ups_wave_profile_at(&profile, x), 3e-7);
            }
        }
        free(u);
    }
}

static void a_shift_by_whole_cells_moves_the_row_and_a_whole_turn_brings_it_back(void **state) {
    /* 41 times over t = 2 at velocity 0.4: 0.02 a step, which is 4 cells of 200; 50 steps would be a whole turn */
    static const char *const defaults[] = {NULL};
    static const char *const turn[] = {"beta=0.5", NULL};
    for (int64_t sample = 0; sample < SAMPLES; sample++) {
        float *u = solved(CELLS, STEPS, defaults, sample);
        for (int64_t step = 1; step < STEPS; step++) {
            for (int64_t i = 0; i < CELLS; i++) {
                const float moved = u[(step - 1) * CELLS + (i + CELLS - 4) % CELLS];
                assert_float_equal(u[step * CELLS + i], moved, 2.5e-7);
            }
        }
        free(u);
        u = solved(CELLS, STEPS, turn, sample);
        for (int64_t i = 0; i < CELLS; i++) assert_float_equal(u[(STEPS - 1) * CELLS + i], u[i], 2.5e-7);
        free(u);
    }
}

static void another_resolution_samples_the_same_function(void **state) {
    static const char *const defaults[] = {NULL};
    for (int64_t sample = 0; sample < 10; sample++) {
        float *coarse = solved(64, 5, defaults, sample), *fine = solved(192, 5, defaults, sample);
        for (int64_t step = 0; step < 5; step++) { /* the middle of three fine cells is a coarse cell's centre */
            for (int64_t i = 0; i < 64; i++)
                assert_float_equal(coarse[step * 64 + i], fine[step * 192 + 3 * i + 1], 2.5e-7);
        }
        free(fine);
        free(coarse);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_is_the_initial_function_at_the_shifted_point),
        cmocka_unit_test(a_shift_by_whole_cells_moves_the_row_and_a_whole_turn_brings_it_back),
        cmocka_unit_test(another_resolution_samples_the_same_function),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
