/* The random field has the covariance it claims, and is one function at every resolution. */
#include "tests/base/testing.h"
#include "tools/solvers/initial/gaussian_field.h"

#include <math.h>

static double eigenfunction(int k, double x) {
    return k == 0 ? 1.0 : sqrt(2.0) * cos(M_PI * k * x);
}

/* Covariance of the field's values at two points, straight from the series. */
static double covariance(double tau, double alpha, double x1, double y1, double x2, double y2) {
    double sum = 0.0;
    for (int k = 0; k < UPS_FIELD_MODES; k++) {
        for (int l = 0; l < UPS_FIELD_MODES; l++) {
            if (k == 0 && l == 0) continue;
            const double eigenvalue = pow(M_PI * M_PI * (k * k + l * l) + tau * tau, -alpha);
            sum +=
                eigenvalue * eigenfunction(k, x1) * eigenfunction(k, x2) * eigenfunction(l, y1) * eigenfunction(l, y2);
        }
    }
    return sum;
}

static void values_have_the_covariance_of_the_series(void **state) {
    enum { N = 8, DRAWS = 4000 };
    static const int points[][2] = {{0, 0}, {3, 4}, {3, 6}, {7, 1}}; /* corner, middle, near it, far away */
    enum { POINTS = sizeof points / sizeof points[0] };
    const double tau = 3.0, alpha = 2.0;
    ups_error error = {0};
    ups_gaussian_field *field;
    assert_int_equal(ups_gaussian_field_create(N, tau, alpha, &field, &error), UPS_OK);
    double *scratch = malloc(sizeof(double) * ups_gaussian_field_scratch(field));
    double sums[POINTS][POINTS] = {{0.0}}, means[POINTS] = {0.0};
    for (int draw = 0; draw < DRAWS; draw++) {
        double values[N * N];
        ups_gaussian_field_draw(field, 5, draw, values, scratch);
        for (int a = 0; a < POINTS; a++) {
            const double here = values[points[a][0] * N + points[a][1]];
            means[a] += here / DRAWS;
            for (int b = 0; b < POINTS; b++) sums[a][b] += here * values[points[b][0] * N + points[b][1]] / DRAWS;
        }
    }
    for (int a = 0; a < POINTS; a++) {
        const double xa = (points[a][0] + 0.5) / N, ya = (points[a][1] + 0.5) / N;
        const double variance_a = covariance(tau, alpha, xa, ya, xa, ya);
        assert_float_equal(means[a], 0.0, 5.0 * sqrt(variance_a / DRAWS));
        for (int b = 0; b < POINTS; b++) {
            const double xb = (points[b][0] + 0.5) / N, yb = (points[b][1] + 0.5) / N;
            const double variance_b = covariance(tau, alpha, xb, yb, xb, yb);
            /* a sample covariance strays by at most √(2 σa² σb² / n) */
            const double stray = 5.0 * sqrt(2.0 * variance_a * variance_b / DRAWS);
            assert_float_equal(sums[a][b], covariance(tau, alpha, xa, ya, xb, yb), stray);
        }
    }
    free(scratch);
    ups_gaussian_field_destroy(field);
}

static void another_resolution_samples_the_same_field(void **state) {
    ups_error error = {0};
    ups_gaussian_field *coarse, *fine;
    assert_int_equal(ups_gaussian_field_create(20, 3.0, 2.0, &coarse, &error), UPS_OK);
    assert_int_equal(ups_gaussian_field_create(60, 3.0, 2.0, &fine, &error), UPS_OK);
    double *scratch = malloc(sizeof(double) * ups_gaussian_field_scratch(fine));
    double few[20 * 20], *many = malloc(sizeof(double) * 60 * 60);
    ups_gaussian_field_draw(coarse, 1, 3, few, scratch);
    ups_gaussian_field_draw(fine, 1, 3, many, scratch);
    for (int x = 0; x < 20; x++) { /* the middle of 3 × 3 fine cells is a coarse cell's centre */
        for (int y = 0; y < 20; y++) assert_float_equal(few[x * 20 + y], many[(3 * x + 1) * 60 + 3 * y + 1], 1e-12);
    }
    free(many);
    free(scratch);
    ups_gaussian_field_destroy(fine);
    ups_gaussian_field_destroy(coarse);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_have_the_covariance_of_the_series),
        cmocka_unit_test(another_resolution_samples_the_same_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
