/* The beginnings of compressible flows: in range, as asked for, the same at every resolution, and solenoidal where they
 * must be; and the noise that incompressible flows begin from. */
#include "tests/base/testing.h"
#include "tools/solvers/compressible/fields.h"
#include "tools/solvers/incompressible/noise.h"

#include <math.h>

enum { MOST = 5 };

typedef struct fields {
    int64_t all;
    double *of[MOST];
} fields;

static fields room(int variables, int64_t all) {
    fields made = {.all = all};
    for (int v = 0; v < variables; v++) made.of[v] = malloc(sizeof(double) * (size_t)all);
    return made;
}

static void leave(fields *made) {
    for (int v = 0; v < MOST; v++) free(made->of[v]);
}

static void lines_and_shocks_keep_to_their_ranges(void **state) {
    enum { N = 200, SAMPLES = 200 };
    fields f = room(3, N);
    double slowest = 0.0, fastest = 0.0;
    for (int sample = 0; sample < SAMPLES; sample++) {
        ups_gas_random_line(UPS_WAVES_PLAIN, N, 4, sample, f.of);
        for (int i = 0; i < N; i++) {
            assert_true(f.of[0][i] >= 1.0 && f.of[0][i] <= 20.0 + 1e-9);
            assert_true(f.of[2][i] >= 10.0 && f.of[2][i] <= 200.0 + 1e-9);
            assert_true(fabs(f.of[1][i]) < 2.0);
        }
        ups_gas_random_shock(UPS_WAVES_PLAIN, N, 4, sample, f.of);
        for (int v = 0; v < 3; v++) {
            int jumps = 0;
            for (int i = 1; i < N; i++) {
                if (f.of[v][i] == f.of[v][i - 1]) continue;
                jumps++;
                assert_true(i >= N / 4 && i <= 3 * N / 4 + 1);
            }
            assert_int_equal(jumps, 1);
        }
        assert_true(f.of[0][0] >= 1.0 && f.of[0][0] <= 10.0 && f.of[2][0] >= 10.0 && f.of[2][0] <= 100.0);
        slowest = fmin(slowest, f.of[1][0]);
        fastest = fmax(fastest, f.of[1][0]);
    }
    assert_true(slowest < -0.4 && slowest >= -0.5 && fastest > 0.4 && fastest <= 0.5);
    leave(&f);
}

/* Windows in the right half alone, velocities of jumps above 0, and the place of a jump fixed by its right side. */
static void as_pdebench_draws_them_lines_and_shocks_keep_to_its_ranges(void **state) {
    enum { N = 400, SAMPLES = 200 };
    fields f = room(3, N);
    int windowed = 0;
    for (int sample = 0; sample < SAMPLES; sample++) {
        ups_gas_random_line(UPS_WAVES_PDEBENCH, N, 4, sample, f.of);
        int still = 0;
        for (int i = 0; i < N; i++) {
            assert_true(f.of[0][i] >= 1.0 && f.of[0][i] <= 20.0 + 1e-9);
            assert_true(f.of[2][i] >= 10.0 && f.of[2][i] <= 200.0 + 1e-9);
            still += i < N / 2 && fabs(f.of[1][i]) < 1e-5;
        }
        windowed += still > N / 2 - 10;
        ups_gas_random_shock(UPS_WAVES_PDEBENCH, N, 4, sample, f.of);
        assert_true(f.of[1][0] >= exp(-0.5) && f.of[1][0] <= exp(0.5));
        int place = 0;
        while (f.of[2][place] == f.of[2][0]) place++;
        const double share = log(f.of[2][N - 1] / 10.0) / log(10.0);
        assert_float_equal((double)place / N, 0.25 + 0.5 * share, 1.5 / N);
    }
    assert_true(windowed > 75 && windowed < 125);
    leave(&f);
}

static void waves_have_the_mach_number_asked_for_and_are_positive(void **state) {
    for (int axes = 2; axes <= 3; axes++) {
        const int64_t n = axes == 2 ? 32 : 12;
        const ups_gas_waves waves = {.axes = axes,
                                     .cells = n,
                                     .law = axes == 2 ? UPS_WAVES_PDEBENCH : UPS_WAVES_PLAIN,
                                     .k_max = 3,
                                     .mach = 0.4,
                                     .gamma = 5.0 / 3.0};
        fields f = room(axes + 2, axes == 2 ? n * n : n * n * n);
        double *scratch = malloc(sizeof(double) * ups_gas_waves_scratch(&waves));
        int windowed = 0;
        for (int sample = 0; sample < 20; sample++) {
            ups_gas_random_waves(&waves, 9, sample, f.of, scratch);
            double sum = 0.0, density = 0.0, pressure = 0.0;
            for (int64_t c = 0; c < f.all; c++) {
                double square = 0.0;
                for (int a = 1; a <= axes; a++) square += f.of[a][c] * f.of[a][c];
                sum += sqrt(square) / (double)f.all;
                density += f.of[0][c] / (double)f.all;
                pressure += f.of[axes + 1][c] / (double)f.all;
                assert_true(f.of[0][c] > 0.0 && f.of[axes + 1][c] > 0.0);
            }
            const double mach = sum / sqrt(5.0 / 3.0 * pressure / density);
            if (mach < 0.35) windowed++;
            if (mach >= 0.35) assert_float_equal(mach, 0.4, 0.02);
        }
        assert_true(windowed >= 3 && windowed <= 17);
        free(scratch);
        leave(&f);
    }
}

/* Central differences over a fine grid: exact waves of wavenumber ≤ 2 leave an error of second order in h, and no more.
 */
static void turbulence_is_solenoidal_and_of_mean_speed_one(void **state) {
    double divergence[2];
    for (int fine = 0; fine < 2; fine++) {
        const int64_t n = 64 << fine;
        const ups_gas_waves waves = {.axes = 2, .cells = n, .k_max = 2, .mach = 0.1, .gamma = 5.0 / 3.0};
        fields f = room(4, n * n);
        double *scratch = malloc(sizeof(double) * ups_gas_waves_scratch(&waves));
        ups_gas_turbulence(&waves, 1, 3, f.of, scratch);
        double speed = 0.0, sum = 0.0;
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < n; j++) {
                const int64_t c = i * n + j;
                const double net = f.of[1][(i + 1) % n * n + j] - f.of[1][(i + n - 1) % n * n + j] +
                                   f.of[2][i * n + (j + 1) % n] - f.of[2][i * n + (j + n - 1) % n];
                sum += fabs(0.5 * net * (double)n) / (double)f.all;
                speed += hypot(f.of[1][c], f.of[2][c]) / (double)f.all;
                assert_true(f.of[0][c] == 1.0 && fabs(f.of[3][c] - 60.0) < 1e-9);
            }
        }
        divergence[fine] = sum;
        assert_float_equal(speed, 1.0, 1e-12);
        free(scratch);
        leave(&f);
    }
    print_message("mean |div v| by central differences: %.3e, %.3e\n", divergence[0], divergence[1]);
    assert_true(divergence[0] < 0.2 && divergence[1] < 0.3 * divergence[0]);
}

static void a_wave_is_the_same_at_every_resolution(void **state) {
    /* centres of 12 cells are centres of 36 */
    const ups_gas_waves coarse = {.axes = 3, .cells = 12, .k_max = 2, .mach = 1.0, .gamma = 1.4};
    ups_gas_waves fine = coarse;
    fine.cells = 36;
    fields a = room(5, 12 * 12 * 12), b = room(5, 36 * 36 * 36);
    double *scratch = malloc(sizeof(double) * ups_gas_waves_scratch(&fine));
    ups_gas_turbulence(&coarse, 5, 7, a.of, scratch);
    ups_gas_turbulence(&fine, 5, 7, b.of, scratch);
    const double scale = b.of[2][(1 * 36 + 1) * 36 + 1] / a.of[2][0]; /* means over the grids differ a little */
    assert_float_equal(scale, 1.0, 0.05);
    for (int64_t i = 0; i < 12; i++) {
        for (int64_t k = 0; k < 12; k++) {
            assert_float_equal(b.of[1][((3 * i + 1) * 36 + 13) * 36 + 3 * k + 1],
                               scale * a.of[1][(i * 12 + 4) * 12 + k], 1e-11);
        }
    }
    free(scratch);
    leave(&a);
    leave(&b);
}

static void the_shear_layer_is_waved_even_on_a_coarse_grid(void **state) {
    enum { N = 32 };
    fields f = room(4, N * N);
    ups_gas_kelvin_helmholtz(N, 0.1, 2.0, 5.0 / 3.0, 3, 5, f.of);
    int differs = 0;
    for (int i = 1; i < N; i++) differs += f.of[1][i * N + N / 2] != f.of[1][N / 2];
    assert_true(differs > N / 2);
    assert_true(f.of[1][0] == -1.0 && f.of[1][N - 1] == 1.0);
    assert_float_equal(f.of[0][0] + f.of[0][N - 1], 2.0, 1e-12);
    leave(&f);
}

static void noise_has_mean_zero_and_variance_one_at_every_resolution(void **state) {
    const ups_noise noise = {.scale = 0.4, .smoothness = 1.0, .components = 2};
    enum { COARSE = 96, FINE = 288 };
    double *coarse = malloc(sizeof(double) * COARSE * COARSE), *fine = malloc(sizeof(double) * FINE * FINE);
    double *scratch = malloc(sizeof(double) * ups_noise_scratch(FINE));
    double square = 0.0;
    for (int component = 0; component < 2; component++) {
        ups_noise_draw(&noise, 2, 1, 0, component, COARSE, 0.5, 0.5, coarse, scratch);
        ups_noise_draw(&noise, 2, 1, 0, component, FINE, 0.5, 0.5, fine, scratch);
        double mean = 0.0;
        for (int c = 0; c < COARSE * COARSE; c++) {
            mean += coarse[c] / (COARSE * COARSE);
            square += coarse[c] * coarse[c] / (COARSE * COARSE);
        }
        assert_float_equal(mean, 0.0, 1e-12);
        for (int i = 0; i < COARSE; i++)
            assert_float_equal(coarse[i * COARSE + 7], fine[(3 * i + 1) * FINE + 22], 1e-10);
    }
    assert_float_equal(square, 2.0, 1e-9);
    free(coarse);
    free(fine);
    free(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_and_shocks_keep_to_their_ranges),
        cmocka_unit_test(as_pdebench_draws_them_lines_and_shocks_keep_to_its_ranges),
        cmocka_unit_test(waves_have_the_mach_number_asked_for_and_are_positive),
        cmocka_unit_test(turbulence_is_solenoidal_and_of_mean_speed_one),
        cmocka_unit_test(a_wave_is_the_same_at_every_resolution),
        cmocka_unit_test(the_shear_layer_is_waved_even_on_a_coarse_grid),
        cmocka_unit_test(noise_has_mean_zero_and_variance_one_at_every_resolution),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
