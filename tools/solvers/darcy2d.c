/* The matrix is kept as conductances: `next_y[i]` joins cell i with cell i + 1, its neighbour along y, and `next_x[i]`
 * with cell i + n, its neighbour along x; both are 0 at the boundary, whose share is in the diagonal alone. The system
 * is then scaled so that the factor's diagonal is 1: its two triangular sweeps are what costs, and without divisions
 * they wait only for one product and one sum a cell. */
#include "tools/solvers/darcy2d.h"
#include "base/random.h"
#include "base/system/cancel.h"
#include "tools/solvers/initial/gaussian_field.h"
#include "tools/solvers/initial/initial_fields.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* 1 - modified·h is the share of the dropped fill-in that is moved to the diagonal. All of it bounds the condition
 * number by O(1/h) on paper; a little less, vanishing with h, converges faster at every size from 32² to 1024². */
static const double modified = 0.5;
static const int most_iterations = 20000; /* 1024² cells take about 200 */

enum { DIAGONAL, NEXT_Y, NEXT_X, SCALE, RESIDUAL, DIRECTION, IMAGE, CORRECTION, ARRAYS };

size_t ups_darcy2d_scratch(int64_t n) {
    return ARRAYS * (size_t)(n * n);
}

typedef struct darcy_system {
    int64_t n;
    double *diagonal, *next_y, *next_x, *scale;
} darcy_system;

static double harmonic(double a, double b) {
    return 2.0 * a * b / (a + b);
}

static double arithmetic(double a, double b) {
    return 0.5 * (a + b);
}

static void assemble(const darcy_system *system, ups_darcy_scheme scheme, const double *nu) {
    const int64_t n = system->n;
    const bool as_pdebench = scheme == UPS_DARCY_PDEBENCH;
    double (*const mean)(double, double) = as_pdebench ? arithmetic : harmonic;
    const double nearness = as_pdebench ? 1.0 : 2.0; /* of the wall, over a cell's width */
    for (int64_t x = 0; x < n; x++) {
        for (int64_t y = 0; y < n; y++) {
            const int64_t i = x * n + y;
            const double wall = nearness * nu[i];
            system->next_y[i] = y + 1 < n ? mean(nu[i], nu[i + 1]) : 0.0;
            system->next_x[i] = x + 1 < n ? mean(nu[i], nu[i + n]) : 0.0;
            system->diagonal[i] = (y > 0 ? system->next_y[i - 1] : wall) + (y + 1 < n ? system->next_y[i] : wall) +
                                  (x > 0 ? system->next_x[i - n] : wall) + (x + 1 < n ? system->next_x[i] : wall);
        }
    }
}

/* Pivots of the modified incomplete factor, and the scaling by their square roots. Afterwards `scale` is 1/√pivot, and
 * diagonal, next_y and next_x are those of the scaled matrix; the scaled factor is (1 - L)(1 - Lᵀ), L its own lower
 * part. */
static void factorize(const darcy_system *system) {
    const int64_t n = system->n, count = n * n;
    const double modification = 1.0 - modified / (double)n;
    double *pivot = system->scale;
    for (int64_t i = 0; i < count; i++) {
        double value = system->diagonal[i];
        if (i >= 1) {
            const double joined = system->next_y[i - 1];
            value -= joined * (joined + modification * system->next_x[i - 1]) / pivot[i - 1];
        }
        if (i >= n) {
            const double joined = system->next_x[i - n];
            value -= joined * (joined + modification * system->next_y[i - n]) / pivot[i - n];
        }
        pivot[i] = value;
    }
    for (int64_t i = 0; i < count; i++) system->scale[i] = 1.0 / sqrt(pivot[i]);
    for (int64_t i = 0; i < count; i++) {
        system->diagonal[i] *= system->scale[i] * system->scale[i];
        if (i + 1 < count) system->next_y[i] *= system->scale[i] * system->scale[i + 1];
        if (i + n < count) system->next_x[i] *= system->scale[i] * system->scale[i + n];
    }
}

/* A's row i times x; next_y is 0 at the end of a grid line, so lines need not be told apart. */
static inline double row_times(const darcy_system *system, const double *x, int64_t i, bool lower_x, bool upper_x) {
    const int64_t n = system->n;
    double sum = system->diagonal[i] * x[i];
    if (i > 0) sum -= system->next_y[i - 1] * x[i - 1];
    if (i + 1 < n * n) sum -= system->next_y[i] * x[i + 1];
    if (lower_x) sum -= system->next_x[i - n] * x[i - n];
    if (upper_x) sum -= system->next_x[i] * x[i + n];
    return sum;
}

/* out = A x. */
static void apply(const darcy_system *system, const double *restrict x, double *restrict out) {
    const int64_t n = system->n, count = n * n;
    const double *diagonal = system->diagonal, *next_y = system->next_y, *next_x = system->next_x;
    for (int64_t i = 0; i < n; i++) out[i] = row_times(system, x, i, false, true);
    for (int64_t i = n; i < count - n; i++) {
        out[i] = diagonal[i] * x[i] - (next_y[i - 1] * x[i - 1] + next_y[i] * x[i + 1]) -
                 (next_x[i - n] * x[i - n] + next_x[i] * x[i + n]);
    }
    for (int64_t i = count - n; i < count; i++) out[i] = row_times(system, x, i, true, false);
}

/* out = (1 - Lᵀ)⁻¹ (1 - L)⁻¹ r. */
static void precondition(const darcy_system *system, const double *restrict r, double *restrict out) {
    const int64_t n = system->n, count = n * n;
    const double *next_y = system->next_y, *next_x = system->next_x;
    out[0] = r[0];
    for (int64_t i = 1; i < n; i++) out[i] = r[i] + next_y[i - 1] * out[i - 1];
    for (int64_t i = n; i < count; i++) out[i] = (r[i] + next_x[i - n] * out[i - n]) + next_y[i - 1] * out[i - 1];
    for (int64_t i = count - 2; i >= count - n; i--) out[i] += next_y[i] * out[i + 1];
    for (int64_t i = count - n - 1; i >= 0; i--) out[i] = (out[i] + next_x[i] * out[i + n]) + next_y[i] * out[i + 1];
}

/* Four partial sums: one would wait for itself. */
static double dot(int64_t count, const double *a, const double *b) {
    double sums[4] = {0.0, 0.0, 0.0, 0.0};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        for (int lane = 0; lane < 4; lane++) sums[lane] += a[i + lane] * b[i + lane];
    }
    for (; i < count; i++) sums[0] += a[i] * b[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* ‖r‖² of the unscaled system. */
static double unscaled_square(const darcy_system *system, const double *residual) {
    double sum = 0.0;
    for (int64_t i = 0; i < system->n * system->n; i++) {
        const double value = residual[i] / system->scale[i];
        sum += value * value;
    }
    return sum;
}

/* r = b - A u in the scaled system; h² is the cell's area. */
static void residual_of(const darcy_system *system, const double *source, const double *u, double *residual) {
    const int64_t n = system->n;
    const double area = 1.0 / ((double)n * (double)n);
    apply(system, u, residual);
    for (int64_t i = 0; i < n * n; i++) residual[i] = source[i] * area * system->scale[i] - residual[i];
}

ups_status ups_darcy2d_solve(ups_darcy_scheme scheme, int64_t n, const double *nu, const double *source, double *u,
                             double *scratch, int *iterations, ups_error *error) {
    const int64_t count = n * n;
    const darcy_system system = {n, scratch + DIAGONAL * count, scratch + NEXT_Y * count, scratch + NEXT_X * count,
                                 scratch + SCALE * count};
    double *residual = scratch + RESIDUAL * count, *direction = scratch + DIRECTION * count;
    double *image = scratch + IMAGE * count, *correction = scratch + CORRECTION * count;
    assemble(&system, scheme, nu);
    factorize(&system);
    memset(u, 0, sizeof(double) * (size_t)count);
    residual_of(&system, source, u, residual);
    const double target = UPS_DARCY_TOLERANCE * UPS_DARCY_TOLERANCE * unscaled_square(&system, residual);

    int done = 0;
    double square = target, descent = 0.0;
    bool restart = true;
    if (target > 0.0) square = INFINITY; /* else f = 0, and u = 0 solves it */
    while (square > target && done < most_iterations) {
        if (ups_cancel_requested()) return ups_fail(error, UPS_ERR_CANCELLED, "cancelled");
        precondition(&system, residual, correction);
        const double next = dot(count, residual, correction);
        const double along = restart ? 0.0 : next / descent;
        descent = next;
        if (restart) memset(direction, 0, sizeof(double) * (size_t)count);
        for (int64_t i = 0; i < count; i++) direction[i] = correction[i] + along * direction[i];
        apply(&system, direction, image);
        const double length = descent / dot(count, direction, image);
        if (!isfinite(length)) break;
        for (int64_t i = 0; i < count; i++) u[i] += length * direction[i];
        for (int64_t i = 0; i < count; i++) residual[i] -= length * image[i];
        done++;
        square = unscaled_square(&system, residual);
        restart = square <= target;
        if (restart) { /* the residual carried along has drifted by rounding: the true one decides */
            residual_of(&system, source, u, residual);
            square = unscaled_square(&system, residual);
        }
    }
    for (int64_t i = 0; i < count; i++) u[i] *= system.scale[i];
    if (iterations) *iterations = done;
    if (square <= target) return UPS_OK;
    return ups_fail(
        error, UPS_ERR_NUMERIC,
        "the Darcy system of %lld x %lld cells was not solved to %g within %d iterations; are all coefficients "
        "positive and finite?",
        (long long)n, (long long)n, UPS_DARCY_TOLERANCE, done);
}

/* ---- as `ups datagen` sees it ---- */

enum { BETA, MEDIUM, NU_LOW, NU_HIGH, TAU, ALPHA, SCHEME, PARAMETER_COUNT };
enum { BLOBS, FIELD }; /* media */
static const ups_solver_parameter parameters[PARAMETER_COUNT] = {
    [BETA] = {"beta", 1.0, -1e6, 1e6, UPS_REAL, "u/time", "constant source"},
    [MEDIUM] = {"medium", BLOBS, 0, 1, UPS_CHOICE | UPS_PLANNED, "blobs|field",
                "where nu is high: in PDEBench's blobs, or where a Gaussian random field is positive"},
    [NU_LOW] = {"nu_low", 0.1, 1e-3, 1e3, UPS_REAL, "length^2/time", "the lower of the coefficient's two values"},
    [NU_HIGH] = {"nu_high", 1.0, 1e-3, 1e3, UPS_REAL, "length^2/time", "the higher"},
    [TAU] = {"tau", 3.0, 0.0, 100.0, UPS_REAL | UPS_PLANNED, "1/length", "medium=field: inverse grain size"},
    [ALPHA] = {"alpha", 2.0, 1.1, 8.0, UPS_REAL | UPS_PLANNED, "1", "medium=field: smoothness"},
    [SCHEME] = {"scheme", UPS_DARCY_PDEBENCH, 0, 1, UPS_CHOICE, "pdebench|conservative",
                "means at faces: arithmetic with the wall a cell away, or harmonic and half a cell"},
};

/* ---- PDEBench's media ---- */

enum { BLOB_COUNT = 5 };
static const double widest = 0.5; /* s is below it */
/* What the sum of blobs is on average, over the square and over all blobs: 5 ∫₀¹ g(s/2)² ds, where g(s), the mean of
 * exp(-(x - m)²/s) over x and m in [0, 1], is √(πs) erf(1/√s) - s (1 - e^(-1/s)). */
static const double mean_of_blobs = 1.85214533;

void ups_darcy2d_blobs(int64_t n, uint64_t seed, int64_t sample, double low, double high, double *nu, double *scratch) {
    const ups_random stream = ups_random_stream(seed, UPS_RANDOM_DATAGEN, (uint32_t)sample);
    double *along_x = scratch, *along_y = scratch + n;
    memset(nu, 0, sizeof(double) * (size_t)(n * n));
    for (uint64_t blob = 0; blob < BLOB_COUNT; blob++) {
        const double x = ups_random_uniform(stream, 3 * blob), y = ups_random_uniform(stream, 3 * blob + 1);
        const double s = fmax(widest * ups_random_uniform(stream, 3 * blob + 2), 1e-12); /* 0 would be no number */
        for (int64_t i = 0; i < n; i++) {
            const double centre = ((double)i + 0.5) / (double)n;
            along_x[i] = exp(-(centre - x) * (centre - x) / s);
            along_y[i] = exp(-(centre - y) * (centre - y) / s);
        }
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < n; j++) nu[i * n + j] += along_x[i] * along_y[j];
        }
    }
    for (int64_t i = 0; i < n * n; i++) nu[i] = nu[i] > mean_of_blobs ? high : low;
}

/* ---- the solver ---- */

static void describe(const ups_solver_setup *setup, const void *plan, ups_file_layout *layout) {
    ups_solver_keep(setup, BETA, "beta", layout);
    ups_file_add_centres(layout, "x-coordinate", setup->resolution, 0.0, 1.0);
    ups_file_add_centres(layout, "y-coordinate", setup->resolution, 0.0, 1.0);
    ups_file_add_array(layout, "nu", 0, 2, setup->resolution, 0);
    ups_file_add_array(layout, "tensor", 1, 2, setup->resolution, 0);
}

/* The plan is the random field, or nothing. */
static ups_status prepare(const ups_solver_setup *setup, void **plan, ups_error *error) {
    if (setup->parameters[MEDIUM] != FIELD) return UPS_OK;
    ups_gaussian_field *field = NULL;
    UPS_TRY(
        ups_gaussian_field_create(setup->resolution, setup->parameters[TAU], setup->parameters[ALPHA], &field, error));
    *plan = field;
    return UPS_OK;
}

static void release(void *plan) {
    ups_gaussian_field_destroy(plan);
}

/* nu, source and u side by side, then what the field and the solver need, one after the other. */
static size_t scratch_bytes(const ups_solver_setup *setup, const void *plan) {
    const int64_t n = setup->resolution;
    const size_t field = plan ? ups_gaussian_field_scratch(plan) : 2 * (size_t)n, solver = ups_darcy2d_scratch(n);
    return sizeof(double) * (3 * (size_t)(n * n) + (field > solver ? field : solver));
}

static ups_status solve(const ups_solver_setup *setup, const void *plan, int64_t sample, void *scratch, ups_sink *sink,
                        ups_error *error) {
    const int64_t n = setup->resolution, count = n * n;
    const double *chosen = setup->parameters;
    double *nu = scratch, *source = nu + count, *u = source + count, *work = u + count;
    if (setup->initial) {
        UPS_TRY(ups_initial_fields_read(setup->initial, sample, &nu, error));
        UPS_TRY(ups_initial_fields_check_positive(setup->initial, sample, "nu", nu, error));
    } else if (plan) {
        ups_gaussian_field_draw(plan, setup->seed, sample, nu, work);
        for (int64_t i = 0; i < count; i++) nu[i] = nu[i] < 0.0 ? chosen[NU_LOW] : chosen[NU_HIGH];
    } else {
        ups_darcy2d_blobs(n, setup->seed, sample, chosen[NU_LOW], chosen[NU_HIGH], nu, work);
    }
    for (int64_t i = 0; i < count; i++) source[i] = chosen[BETA];
    UPS_TRY(ups_darcy2d_solve((ups_darcy_scheme)chosen[SCHEME], n, nu, source, u, work, NULL, error));
    UPS_TRY(ups_sink_put(sink, 0, 0, nu, error));
    return ups_sink_put(sink, 1, 0, u, error);
}

const ups_solver ups_darcy2d = {
    .name = "darcy2d",
    .summary = "steady Darcy flow through a random two-valued medium",
    .equation =
        "-div(nu grad u) = beta on the unit square, u = 0 on its boundary. nu takes two values: high within blobs as "
        "the\n"
        "script of PDEBench draws them, or (medium=field) by the sign of a Gaussian random field of covariance\n"
        "(-Laplace + tau^2)^-alpha. Five-point scheme as PDEBench's, or (scheme=conservative) one of second order "
        "that\n"
        "is exact where nu jumps at faces; solved to a relative residual of 1e-8.",
    .parameters = parameters,
    .parameter_count = PARAMETER_COUNT,
    .default_resolution = 128,
    .minimum_resolution = 4,
    .maximum_resolution = 4096,
    .default_steps = 0,
    .dims = 2,
    .state = (const char *const[]){"nu", NULL},
    .describe = describe,
    .prepare = prepare,
    .release = release,
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};
