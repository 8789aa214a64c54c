/* Darcy's solver: order against manufactured solutions; residual, flux balance and a direct solution on rough
 * coefficients. */
#include "tests/solvers/convergence.h"
#include "tools/solvers/darcy2d.h"
#include "tools/solvers/initial/gaussian_field.h"

static double *doubles(size_t count) {
    double *made = calloc(count, sizeof *made);
    assert_non_null(made);
    return made;
}

/* u at the cell centres; freed by the caller. */
static double *solved(int64_t n, const double *nu, const double *source, int *iterations) {
    ups_error error = {0};
    double *u = doubles((size_t)(n * n)), *scratch = doubles(ups_darcy2d_scratch(n));
    const ups_status status = ups_darcy2d_solve(UPS_DARCY_CONSERVATIVE, n, nu, source, u, scratch, iterations, &error);
    if (status != UPS_OK) fail_msg("%s", error.message);
    free(scratch);
    return u;
}

/* A two-valued coefficient as `ups datagen` draws it. */
static double *random_coefficient(int64_t n, int64_t sample, double low, double high) {
    ups_error error = {0};
    ups_gaussian_field *field;
    assert_int_equal(ups_gaussian_field_create(n, 3.0, 2.0, &field, &error), UPS_OK);
    double *nu = doubles((size_t)(n * n)), *scratch = doubles(ups_gaussian_field_scratch(field));
    ups_gaussian_field_draw(field, 9, sample, nu, scratch);
    for (int64_t i = 0; i < n * n; i++) nu[i] = nu[i] < 0.0 ? low : high;
    free(scratch);
    ups_gaussian_field_destroy(field);
    return nu;
}

/* Manufactured: u = sin(πx) sin(2πy) e^x, ν = 1 + v sin(2πx + 1) cos(πy), f = -∇·(ν∇u). `v` = 0 makes ν constant. */
static double manufactured_error(int64_t n, double v) {
    double *nu = doubles((size_t)(n * n)), *source = doubles((size_t)(n * n)), *exact = doubles((size_t)(n * n));
    for (int64_t i = 0; i < n * n; i++) {
        const double x = ((double)(i / n) + 0.5) / (double)n, y = ((double)(i % n) + 0.5) / (double)n, pi = M_PI;
        const double a = sin(pi * x) * exp(x), b = sin(2 * pi * y);
        const double a_x = (pi * cos(pi * x) + sin(pi * x)) * exp(x), b_y = 2 * pi * cos(2 * pi * y);
        const double a_xx = ((1 - pi * pi) * sin(pi * x) + 2 * pi * cos(pi * x)) * exp(x);
        const double b_yy = -4 * pi * pi * sin(2 * pi * y);
        nu[i] = 1 + v * sin(2 * pi * x + 1) * cos(pi * y);
        const double nu_x = 2 * pi * v * cos(2 * pi * x + 1) * cos(pi * y);
        const double nu_y = -pi * v * sin(2 * pi * x + 1) * sin(pi * y);
        exact[i] = a * b;
        source[i] = -(nu[i] * (a_xx * b + a * b_yy) + nu_x * a_x * b + nu_y * a * b_y);
    }
    double *u = solved(n, nu, source, NULL), square = 0.0;
    for (int64_t i = 0; i < n * n; i++) square += (u[i] - exact[i]) * (u[i] - exact[i]);
    free(u);
    free(exact);
    free(source);
    free(nu);
    return sqrt(square) / (double)n;
}

static void assert_second_order(const char *what, double v) {
    expect_orders(what, manufactured_error(16, v), manufactured_error(32, v), manufactured_error(64, v), 1.9, 2e-3);
}

static void constant_coefficients_converge_at_second_order(void **state) {
    assert_second_order("constant coefficients", 0.0);
}

static void smooth_coefficients_converge_at_second_order(void **state) {
    assert_second_order("smooth coefficients", 0.6);
}

static void a_layered_medium_and_its_transpose_have_transposed_solutions(void **state) {
    enum { N = 24 };
    double along_x[N * N], along_y[N * N], source[N * N];
    for (int x = 0; x < N; x++) {
        for (int y = 0; y < N; y++) {
            along_x[x * N + y] = along_y[y * N + x] = x % 5 < 2 ? 0.1 : 1.0;
            source[x * N + y] = 1.0;
        }
    }
    double *u = solved(N, along_x, source, NULL), *transposed = solved(N, along_y, source, NULL);
    for (int x = 0; x < N; x++) {
        for (int y = 0; y < N; y++) assert_float_equal(u[x * N + y], transposed[y * N + x], 1e-9);
    }
    free(transposed);
    free(u);
}

/* The flux through the face between two cells, from nu and u alone: written anew here, not taken from the solver. */
static double face_flux(double nu_here, double nu_there, double u_here, double u_there) {
    return (u_here - u_there) / (0.5 / nu_here + 0.5 / nu_there);
}

/* Outflow of cell (x, y); `wall` receives what of it leaves the domain. */
static double outflow(int64_t n, const double *nu, const double *u, int64_t x, int64_t y, double *wall) {
    static const int steps[4][2] = {{1, 0}, {-1, 0}, {0, 1}, {0, -1}};
    const int64_t here = x * n + y;
    double sum = 0.0;
    for (int side = 0; side < 4; side++) {
        const int64_t nx = x + steps[side][0], ny = y + steps[side][1], there = nx * n + ny;
        if (nx < 0 || nx >= n || ny < 0 || ny >= n) {
            const double out = u[here] * nu[here] / 0.5;
            sum += out;
            *wall += out;
        } else {
            sum += face_flux(nu[here], nu[there], u[here], u[there]);
        }
    }
    return sum;
}

static void random_media_leave_no_residual_and_what_is_fed_in_flows_out(void **state) {
    static const int64_t sizes[] = {31, 64};
    for (int sample = 0; sample < 20; sample++) {
        const int64_t n = sizes[sample % 2];
        const double beta = sample % 3 == 0 ? 0.01 : 10.0, area = 1.0 / (double)(n * n);
        double *nu = random_coefficient(n, sample, 0.1, 1.0), *source = doubles((size_t)(n * n));
        for (int64_t i = 0; i < n * n; i++) source[i] = beta;
        double *u = solved(n, nu, source, NULL), square = 0.0, wall = 0.0;
        for (int64_t x = 0; x < n; x++) {
            for (int64_t y = 0; y < n; y++) {
                const double left = beta * area - outflow(n, nu, u, x, y, &wall);
                square += left * left;
                assert_true(u[x * n + y] > 0.0); /* the maximum principle */
            }
        }
        assert_true(sqrt(square) <= 1.01e-8 * beta * area * (double)n); /* ‖f‖ = β h² n */
        assert_float_equal(wall / beta, 1.0, 1e-7);                     /* ∫β over the unit square is β */
        free(u);
        free(source);
        free(nu);
    }
}

static void the_iteration_finds_what_gaussian_elimination_finds(void **state) {
    enum { N = 9, COUNT = N * N };
    double *nu = random_coefficient(N, 5, 0.001, 1.0), *matrix = doubles(COUNT * (COUNT + 1)), source[COUNT];
    for (int i = 0; i < COUNT; i++) source[i] = 1.0 + 0.1 * i;
    for (int i = 0; i < COUNT; i++) { /* columns by applying the fluxes to unit vectors; right-hand side last */
        double unit[COUNT] = {0.0}, wall = 0.0;
        unit[i] = 1.0;
        for (int row = 0; row < COUNT; row++)
            matrix[row * (COUNT + 1) + i] = outflow(N, nu, unit, row / N, row % N, &wall);
        matrix[i * (COUNT + 1) + COUNT] = source[i] / COUNT;
    }
    for (int pivot = 0; pivot < COUNT; pivot++) { /* an M-matrix needs no exchange of rows */
        double *with = matrix + pivot * (COUNT + 1);
        for (int row = 0; row < COUNT; row++) {
            double *from = matrix + row * (COUNT + 1);
            const double share = from[pivot] / with[pivot];
            for (int column = pivot; row != pivot && column <= COUNT; column++) from[column] -= share * with[column];
        }
    }
    double *u = solved(N, nu, source, NULL);
    for (int i = 0; i < COUNT; i++) {
        const double direct = matrix[i * (COUNT + 1) + COUNT] / matrix[i * (COUNT + 1) + i];
        assert_float_equal(u[i] / direct, 1.0, 1e-6);
    }
    free(u);
    free(matrix);
    free(nu);
}

static void iterations_grow_with_the_square_root_of_the_resolution(void **state) {
    int iterations[2] = {0, 0};
    for (int level = 0; level < 2; level++) {
        const int64_t n = level == 0 ? 32 : 128;
        double *nu = random_coefficient(n, 3, 0.1, 1.0), *source = doubles((size_t)(n * n));
        for (int64_t i = 0; i < n * n; i++) source[i] = 1.0;
        free(solved(n, nu, source, &iterations[level]));
        free(source);
        free(nu);
    }
    assert_true(iterations[1] < 3 * iterations[0]); /* plain conjugate gradients: 4 ×, from several hundred */
    assert_true(iterations[1] < 100);
}

/* PDEBench's scheme: arithmetic means between cells, and 0 a whole cell outside the outermost centres. */
static void pdebenchs_scheme_leaves_no_residual(void **state) {
    enum { N = 33 };
    double *nu = random_coefficient(N, 11, 0.1, 1.0), *source = doubles(N * N), *u = doubles(N * N);
    double *scratch = doubles(ups_darcy2d_scratch(N)), worst = 0.0;
    ups_error error = {0};
    for (int i = 0; i < N * N; i++) source[i] = 2.0;
    assert_int_equal(ups_darcy2d_solve(UPS_DARCY_PDEBENCH, N, nu, source, u, scratch, NULL, &error), UPS_OK);
    for (int x = 0; x < N; x++) {
        for (int y = 0; y < N; y++) {
            static const int steps[4][2] = {{1, 0}, {-1, 0}, {0, 1}, {0, -1}};
            double out = 0.0;
            for (int side = 0; side < 4; side++) {
                const int nx = x + steps[side][0], ny = y + steps[side][1];
                const bool wall = nx < 0 || nx >= N || ny < 0 || ny >= N;
                const double there = wall ? nu[x * N + y] : nu[nx * N + ny], beyond = wall ? 0.0 : u[nx * N + ny];
                out += 0.5 * (nu[x * N + y] + there) * (u[x * N + y] - beyond);
            }
            worst = fmax(worst, fabs(out * N * N - 2.0));
        }
    }
    assert_true(worst < 1e-5);
    free(scratch);
    free(u);
    free(source);
    free(nu);
}

/* exp(-d²/s) summed with the same five centres and widths at two resolutions gives the same medium. */
static void a_medium_of_blobs_is_the_same_at_every_resolution_and_takes_two_values(void **state) {
    enum { COARSE = 21, FINE = 3 * COARSE };
    double *coarse = doubles(COARSE * COARSE), *fine = doubles(FINE * FINE), *scratch = doubles(2 * FINE);
    int high = 0;
    for (int sample = 0; sample < 30; sample++) {
        ups_darcy2d_blobs(COARSE, 8, sample, 0.2, 3.0, coarse, scratch);
        ups_darcy2d_blobs(FINE, 8, sample, 0.2, 3.0, fine, scratch);
        for (int x = 0; x < COARSE; x++) {
            for (int y = 0; y < COARSE; y++) {
                assert_true(coarse[x * COARSE + y] == fine[(3 * x + 1) * FINE + 3 * y + 1]);
                assert_true(coarse[x * COARSE + y] == 0.2 || coarse[x * COARSE + y] == 3.0);
                high += coarse[x * COARSE + y] == 3.0;
            }
        }
    }
    assert_true(high > 30 * COARSE * COARSE / 4 && high < 30 * COARSE * COARSE * 3 / 4);
    free(scratch);
    free(fine);
    free(coarse);
}

static void nothing_fed_in_is_nothing_flowing(void **state) {
    double nu[64], source[64] = {0.0};
    for (int i = 0; i < 64; i++) nu[i] = 1.0;
    int iterations = -1;
    double *u = solved(8, nu, source, &iterations);
    for (int i = 0; i < 64; i++) assert_true(u[i] == 0.0);
    assert_int_equal(iterations, 0);
    free(u);
}

static void coefficients_that_are_no_numbers_are_an_error(void **state) {
    double nu[64], source[64], u[64], *scratch = doubles(ups_darcy2d_scratch(8));
    for (int i = 0; i < 64; i++) nu[i] = source[i] = 1.0;
    nu[20] = NAN;
    ups_error error = {0};
    assert_int_equal(ups_darcy2d_solve(UPS_DARCY_CONSERVATIVE, 8, nu, source, u, scratch, NULL, &error),
                     UPS_ERR_NUMERIC);
    free(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_coefficients_converge_at_second_order),
        cmocka_unit_test(smooth_coefficients_converge_at_second_order),
        cmocka_unit_test(a_layered_medium_and_its_transpose_have_transposed_solutions),
        cmocka_unit_test(random_media_leave_no_residual_and_what_is_fed_in_flows_out),
        cmocka_unit_test(the_iteration_finds_what_gaussian_elimination_finds),
        cmocka_unit_test(iterations_grow_with_the_square_root_of_the_resolution),
        cmocka_unit_test(pdebenchs_scheme_leaves_no_residual),
        cmocka_unit_test(a_medium_of_blobs_is_the_same_at_every_resolution_and_takes_two_values),
        cmocka_unit_test(nothing_fed_in_is_nothing_flowing),
        cmocka_unit_test(coefficients_that_are_no_numbers_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
