/* Burgers' solver against solutions known by other means: characteristics, Cole–Hopf, shocks, the heat equation. */
#include "tests/solvers/convergence.h"
#include "tools/solvers/burgers1d.h"
#include "tools/solvers/initial/initial_conditions.h"

typedef double (*profile_function)(double x);

static double wave(double x) {
    return 0.3 + sin(2.0 * M_PI * x);
}

/* u at `time` from `initial`; freed by the caller. */
static double *advanced(int64_t cells, double diffusivity, double time, profile_function initial) {
    double *u = malloc(sizeof(double) * (size_t)cells);
    double *scratch = malloc(sizeof(double) * ups_burgers1d_scratch(cells));
    for (int64_t i = 0; i < cells; i++) u[i] = initial(centre(i, cells));
    ups_burgers1d_advance(cells, diffusivity, time, u, scratch);
    free(scratch);
    return u;
}

/* u(t, x) = u0(ξ) with x = ξ + u0(ξ) t, before the first shock; by Newton's method. */
static double by_characteristics(double x, double t) {
    double foot = x;
    for (int n = 0; n < 100; n++) {
        const double slope = 1.0 + 2.0 * M_PI * cos(2.0 * M_PI * foot) * t;
        foot -= (foot + wave(foot) * t - x) / slope;
    }
    return wave(foot);
}

static double inviscid_error(int64_t cells, double time) {
    double *u = advanced(cells, 0.0, time, wave);
    double sum = 0.0;
    for (int64_t i = 0; i < cells; i++) sum += fabs(u[i] - by_characteristics(centre(i, cells), time));
    free(u);
    return sum / (double)cells;
}

static void smooth_inviscid_waves_converge_at_second_order(void **state) {
    const double time = 0.08; /* half the way to the shock, at 1/(2π) */
    expect_orders("inviscid wave", inviscid_error(128, time), inviscid_error(256, time), inviscid_error(512, time), 1.8,
                  1e-4);
}

/* Cole–Hopf: u = c - 2D φ_y/φ with y = x - ct, φ_t = D φ_yy, φ(0) = exp(cos(2πy)/(4πD)) for u0 = c + sin 2πx. φ's
 * cosine coefficients are taken by the trapezoidal rule, which is exact to rounding here. */
enum { HARMONICS = 128, QUADRATURE = 1024 };
typedef struct cole_hopf {
    double diffusivity, time, coefficient[HARMONICS];
} cole_hopf;

static void cole_hopf_begin(cole_hopf *reference, double diffusivity, double time) {
    reference->diffusivity = diffusivity;
    reference->time = time;
    for (int n = 0; n < HARMONICS; n++) {
        double sum = 0.0;
        for (int q = 0; q < QUADRATURE; q++) {
            const double y = 2.0 * M_PI * q / QUADRATURE;
            sum += exp((cos(y) - 1.0) / (4.0 * M_PI * diffusivity)) * cos(n * y);
        }
        const double decay = exp(-diffusivity * 4.0 * M_PI * M_PI * n * n * time);
        reference->coefficient[n] = (n == 0 ? 1.0 : 2.0) * sum / QUADRATURE * decay;
    }
}

static double cole_hopf_at(const cole_hopf *reference, double x) {
    const double drift = 0.3, y = 2.0 * M_PI * (x - drift * reference->time);
    double value = 0.0, derivative = 0.0;
    for (int n = 0; n < HARMONICS; n++) {
        value += reference->coefficient[n] * cos(n * y);
        derivative -= reference->coefficient[n] * 2.0 * M_PI * n * sin(n * y);
    }
    return drift - 2.0 * reference->diffusivity * derivative / value;
}

static double viscous_error(int64_t cells, double diffusivity, double time) {
    cole_hopf reference;
    cole_hopf_begin(&reference, diffusivity, time);
    double *u = advanced(cells, diffusivity, time, wave);
    double sum = 0.0;
    for (int64_t i = 0; i < cells; i++) sum += fabs(u[i] - cole_hopf_at(&reference, centre(i, cells)));
    free(u);
    return sum / (double)cells;
}

static void viscous_waves_converge_at_second_order_to_cole_hopf(void **state) {
    static const struct { double diffusivity, time; } cases[] = {{0.005, 0.3}, {0.02, 0.5}, {0.1, 0.1}, {0.5, 0.02}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double errors[3];
        char name[64];
        for (int n = 0; n < 3; n++) errors[n] = viscous_error(128 << n, cases[i].diffusivity, cases[i].time);
        snprintf(name, sizeof name, "viscous wave, D = %g", cases[i].diffusivity);
        expect_errors(name, errors, 2e-4);
        assert_true(log2(errors[0] / errors[2]) > 2.0 * 1.8);
    }
}

static double block(double x) {
    return x > 0.25 && x < 0.5 ? 1.0 : 0.0;
}

static void shocks_move_at_their_speed_and_do_not_overshoot(void **state) {
    const int64_t cells = 400;
    const double time = 0.2; /* shock from 0.5 to 0.6, rarefaction from 0.25 to 0.45 */
    double *u = advanced(cells, 0.0, time, block);
    double sum = 0.0;
    for (int64_t i = 0; i < cells; i++) {
        const double x = centre(i, cells);
        double exact = 0.0;
        if (x > 0.25 && x < 0.6) exact = fmin(1.0, (x - 0.25) / time);
        sum += fabs(u[i] - exact);
        assert_true(u[i] > -1e-12 && u[i] < 1.0 + 1e-12);
        if (fabs(x - 0.6) > 0.01) assert_float_equal(u[i], exact, 0.05);
    }
    assert_true(sum / (double)cells < 2e-3);
    free(u);
}

static double transonic(double x) {
    return x < 0.5 ? -1.0 : 1.0;
}

static void a_rarefaction_through_zero_has_no_entropy_glitch(void **state) {
    const int64_t cells = 400;
    const double time = 0.2;
    double *u = advanced(cells, 0.0, time, transonic);
    for (int64_t i = 0; i < cells; i++) {
        const double x = centre(i, cells);
        if (fabs(x - 0.5) < 0.15) assert_float_equal(u[i], (x - 0.5) / time, 0.01);
    }
    free(u);
}

static double tiny_step(double x) {
    return x < 0.5 ? 1e-9 : 0.0;
}

static void stiff_diffusion_of_a_jump_follows_the_heat_equation(void **state) {
    /* so small that convection is nothing; D Δt/Δx² is above a hundred */
    const int64_t cells = 512;
    const double diffusivity = 3.0, time = 0.01;
    double *u = advanced(cells, diffusivity, time, tiny_step);
    for (int64_t i = 0; i < cells; i++) {
        double exact = 0.5;
        for (int n = 1; n < 40; n += 2) {
            const double k = 2.0 * M_PI * n;
            exact += 4.0 / k * sin(k * centre(i, cells)) * exp(-diffusivity * k * k * time);
        }
        assert_float_equal(1e9 * u[i], exact, 2e-3);
    }
    free(u);
}

static void mass_is_conserved_and_variation_does_not_grow(void **state) {
    const ups_wave_family family = {.waves = 3, .k_max = 8, .p_absolute = 0.5, .p_window = 0.7};
    static const double diffusivities[] = {0.0, 1e-4, 3e-3, 0.3};
    enum { CELLS = 257 }; /* odd: nothing relies on powers of two */
    double *scratch = malloc(sizeof(double) * ups_burgers1d_scratch(CELLS));
    for (int sample = 0; sample < 40; sample++) {
        ups_wave_profile profile;
        ups_wave_profile_draw(&family, 3, sample, &profile);
        double u[CELLS], mass = 0.0, variation = INFINITY;
        for (int i = 0; i < CELLS; i++) mass += u[i] = ups_wave_profile_at(&profile, centre(i, CELLS));
        for (int interval = 0; interval < 10; interval++) {
            double now = 0.0, total = 0.0;
            for (int i = 0; i < CELLS; i++) {
                now += fabs(u[i] - u[(i + 1) % CELLS]);
                total += u[i];
            }
            assert_float_equal(total, mass, 1e-10);
            assert_true(now <= variation + 1e-9);
            variation = now;
            ups_burgers1d_advance(CELLS, diffusivities[sample % 4], 0.02, u, scratch);
        }
    }
    free(scratch);
}

static void a_field_of_zeros_stays_zero_in_one_step(void **state) {
    double u[16] = {0.0}, *scratch = malloc(sizeof(double) * ups_burgers1d_scratch(16));
    assert_int_equal(ups_burgers1d_advance(16, 0.0, 1.0, u, scratch), 1);
    for (int i = 0; i < 16; i++) assert_true(u[i] == 0.0);
    free(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smooth_inviscid_waves_converge_at_second_order),
        cmocka_unit_test(viscous_waves_converge_at_second_order_to_cole_hopf),
        cmocka_unit_test(shocks_move_at_their_speed_and_do_not_overshoot),
        cmocka_unit_test(a_rarefaction_through_zero_has_no_entropy_glitch),
        cmocka_unit_test(stiff_diffusion_of_a_jump_follows_the_heat_equation),
        cmocka_unit_test(mass_is_conserved_and_variation_does_not_grow),
        cmocka_unit_test(a_field_of_zeros_stays_zero_in_one_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
