/* The incompressible solver against Taylor and Green's vortices, a forced flow between walls that is known, and a bell
 * that is carried and spreads; its transforms and line solvers; and what it must keep. Orders and errors are printed.
 */
#include "tests/solvers/convergence.h"
#include "tools/solvers/incompressible/fourier.h"
#include "tools/solvers/incompressible/incompressible.h"
#include "tools/solvers/incompressible/lines.h"

static double scatter(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return (double)(*seed >> 8) / 16777216.0 - 0.5;
}

/* ---- parts ---- */

static void transforms_of_any_length_are_the_sums_they_stand_for(void **state) {
    static const int64_t lengths[] = {8, 9, 12, 13, 16, 30, 49, 64, 128};
    enum { WIDTH = 19, PITCH = 24 };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const int64_t n = lengths[i];
        double *given = malloc(sizeof(double) * (size_t)(n * PITCH)), *x = malloc(sizeof(double) * (size_t)(n * PITCH));
        for (int cosine = 0; cosine < 2; cosine++) {
            ups_columns *columns = ups_columns_create(n, cosine);
            double *scratch = aligned_alloc(64, (sizeof(double) * ups_columns_scratch(columns) + 63) / 64 * 64);
            uint32_t seed = 3;
            for (int64_t c = 0; c < n * PITCH; c++) x[c] = given[c] = scatter(&seed);
            ups_columns_forward(columns, WIDTH, PITCH, x, scratch);
            for (int64_t k = 0; k < n; k++) {
                for (int64_t c = 0; c < WIDTH; c += 6) {
                    double sum = 0.0;
                    for (int64_t m = 0; m < n; m++) {
                        const double angle = 2.0 * M_PI * (double)(k * m % n) / (double)n;
                        const double basis = cosine
                                                 ? cos(M_PI * (2.0 * (double)m + 1.0) * (double)k / (2.0 * (double)n))
                                             : 2 * k <= n ? cos(angle)
                                                          : sin(angle); /* row n - k holds Im X_k = -Σ x sin */
                        sum += basis * given[m * PITCH + c];
                    }
                    assert_float_equal(x[k * PITCH + c], sum, 1e-11);
                }
            }
            ups_columns_inverse(columns, WIDTH, PITCH, x, scratch);
            for (int64_t m = 0; m < n; m++) {
                for (int64_t c = 0; c < PITCH; c++)
                    assert_float_equal(x[m * PITCH + c], given[m * PITCH + c], c < WIDTH ? 1e-13 : 0.0);
            }
            free(scratch);
            ups_columns_destroy(columns);
        }
        free(given);
        free(x);
    }
}

static void line_solvers_solve_their_equations_for_all_ends(void **state) {
    enum { N = 11, LINES = 13 };
    static const ups_line_ends kinds[] = {UPS_LINE_PERIODIC, UPS_LINE_ODD, UPS_LINE_EVEN, UPS_LINE_NODE};
    for (int kind = 0; kind < 4; kind++) {
        for (int singular = 0; singular < 2; singular++) {
            const ups_line_ends ends = kinds[kind];
            if (singular && ends != UPS_LINE_PERIODIC && ends != UPS_LINE_EVEN) continue;
            const double r = 0.7, diagonal = singular ? 1.4 : 2.1;
            double given[LINES][N], fast[LINES][N], slow[N][LINES], table[UPS_LINE_TABLE * N];
            uint32_t seed = 5;
            for (int l = 0; l < LINES; l++) {
                double mean = 0.0;
                for (int j = 0; j < N; j++) mean += (given[l][j] = scatter(&seed)) / N;
                for (int j = 0; j < N; j++) given[l][j] -= singular ? mean : 0.0;
                if (ends == UPS_LINE_NODE) given[l][0] = 0.0;
                for (int j = 0; j < N; j++) slow[j][l] = fast[l][j] = given[l][j];
            }
            ups_line_factorize(ends, N, diagonal, r, table);
            ups_lines_solve_fast(ends, N, LINES, N, r, table, 0, fast[0]);
            ups_lines_solve_slow(ends, N, LINES, LINES, r, table, slow[0]);
            for (int l = 0; l < LINES; l++) {
                for (int j = 0; j < N; j++) {
                    const double *x = fast[l], sign = ends == UPS_LINE_ODD ? -1.0 : ends == UPS_LINE_EVEN ? 1.0 : 0.0;
                    const double before = j > 0 ? x[j - 1] : ends == UPS_LINE_PERIODIC ? x[N - 1] : sign * x[0];
                    const double after = j < N - 1 ? x[j + 1] : ends == UPS_LINE_PERIODIC ? x[0] : sign * x[N - 1];
                    const bool wall = ends == UPS_LINE_NODE && j == 0;
                    assert_float_equal(wall ? x[j] : diagonal * x[j] - r * (before + after), given[l][j], 1e-13);
                    assert_float_equal(slow[j][l], x[j], 1e-13);
                }
            }
        }
    }
}

/* ---- flows ---- */

typedef struct fixture {
    int64_t n;
    ups_incompressible_plan *plan;
    void *memory;
    ups_incompressible *flow;
    double *a, *b; /* room for two fields */
} fixture;

typedef double (*field_function)(double x, double y);

static void begin(fixture *f, ups_incompressible_problem problem) {
    ups_error error;
    f->n = problem.cells;
    if (ups_incompressible_plan_create(&problem, &f->plan, &error) != UPS_OK) fail_msg("%s", error.message);
    f->memory = aligned_alloc(64, (ups_incompressible_bytes(f->plan) + 63) / 64 * 64);
    f->flow = ups_incompressible_place(f->plan, f->memory);
    f->a = malloc(sizeof(double) * (size_t)(f->n * f->n));
    f->b = malloc(sizeof(double) * (size_t)(f->n * f->n));
}

static void end(fixture *f) {
    free(f->a);
    free(f->b);
    free(f->memory);
    ups_incompressible_plan_destroy(f->plan);
}

static void sample(const fixture *f, field_function function, double dx, double dy, double *values) {
    for (int64_t i = 0; i < f->n; i++) {
        for (int64_t j = 0; j < f->n; j++)
            values[i * f->n + j] = function(((double)i + dx) / (double)f->n, ((double)j + dy) / (double)f->n);
    }
}

static void set_velocity(fixture *f, field_function u, field_function v) {
    sample(f, u, 0.0, 0.5, f->a);
    sample(f, v, 0.5, 0.0, f->b);
    ups_incompressible_set_velocity(f->flow, f->a, f->b);
}

static void set_force(fixture *f, field_function fx, field_function fy) {
    sample(f, fx, 0.0, 0.5, f->a);
    sample(f, fy, 0.5, 0.0, f->b);
    ups_incompressible_set_force(f->flow, f->a, f->b);
}

static void set_scalar(fixture *f, field_function s) {
    sample(f, s, 0.5, 0.5, f->a);
    ups_incompressible_set_scalar(f->flow, f->a);
}

static void advance(fixture *f, double time) {
    ups_error error;
    if (ups_incompressible_advance(f->flow, time, NULL, &error) != UPS_OK) fail_msg("%s", error.message);
}

/* Mean |u - factor exact| over the faces. */
static double velocity_error(fixture *f, field_function u, double factor) {
    double sum = 0.0;
    ups_incompressible_faces(f->flow, f->a, f->b);
    for (int64_t i = 0; i < f->n; i++) {
        for (int64_t j = 0; j < f->n; j++) {
            const double exact = factor * u((double)i / (double)f->n, ((double)j + 0.5) / (double)f->n);
            sum += fabs(f->a[i * f->n + j] - exact);
        }
    }
    return sum / (double)(f->n * f->n);
}

static double vortices_u(double x, double y) {
    return sin(2.0 * M_PI * (x + 0.1)) * cos(2.0 * M_PI * y);
}

static double vortices_v(double x, double y) {
    return -cos(2.0 * M_PI * (x + 0.1)) * sin(2.0 * M_PI * y);
}

static void taylor_green_vortices_decay_at_second_order(void **state) {
    static const double viscosities[] = {0.0, 0.05, 0.2};
    for (size_t i = 0; i < sizeof viscosities / sizeof viscosities[0]; i++) {
        const double nu = viscosities[i], time = nu > 0.0 ? 0.1 : 0.5;
        double errors[3];
        for (int m = 0; m < 3; m++) {
            fixture f;
            begin(&f, (ups_incompressible_problem){.cells = 16 << m, .periodic = true, .viscosity = nu});
            set_velocity(&f, vortices_u, vortices_v);
            ups_incompressible_begin(f.flow);
            advance(&f, time);
            errors[m] = velocity_error(&f, vortices_u, exp(-8.0 * M_PI * M_PI * nu * time));
            assert_true(ups_incompressible_divergence(f.flow) < 1e-11);
            end(&f);
        }
        char name[64];
        snprintf(name, sizeof name, "Taylor-Green, nu = %g", nu);
        expect_last_order(name, errors, 1.8, 4e-3);
    }
}

/* ψ = sin²πx sin²πy: a vortex at rest on all walls, kept up by the force v·∇v - νΔv (less a gradient, as p takes it).
 */
static const double kept_viscosity = 0.02;

static double kept_u(double x, double y) {
    return M_PI * sin(M_PI * x) * sin(M_PI * x) * sin(2.0 * M_PI * y);
}

static double kept_v(double x, double y) {
    return -kept_u(y, x);
}

static double kept_fx(double x, double y) {
    const double p = M_PI, s = sin(p * x), sx = sin(2.0 * p * x), sy = sin(2.0 * p * y);
    const double u = p * s * s * sy, v = -p * sin(p * y) * sin(p * y) * sx;
    const double u_x = p * p * sx * sy, u_y = 2.0 * p * p * s * s * cos(2.0 * p * y);
    const double laplacian = 2.0 * p * p * p * cos(2.0 * p * x) * sy - 4.0 * p * p * p * s * s * sy;
    return u * u_x + v * u_y - kept_viscosity * laplacian;
}

static double kept_fy(double x, double y) {
    /* the flow with x and y exchanged is its own reverse: transport keeps its sign, diffusion changes it */
    const double p = M_PI, s = sin(p * y), sy = sin(2.0 * p * x);
    const double laplacian = 2.0 * p * p * p * cos(2.0 * p * y) * sy - 4.0 * p * p * p * s * s * sy;
    return kept_fx(y, x) + 2.0 * kept_viscosity * laplacian;
}

static void a_forced_vortex_between_walls_converges_at_second_order(void **state) {
    double errors[3];
    for (int m = 0; m < 3; m++) {
        fixture f;
        begin(&f, (ups_incompressible_problem){.cells = 16 << m, .viscosity = kept_viscosity});
        set_velocity(&f, kept_u, kept_v);
        set_force(&f, kept_fx, kept_fy);
        ups_incompressible_begin(f.flow);
        advance(&f, 0.5);
        errors[m] = velocity_error(&f, kept_u, 1.0);
        assert_true(ups_incompressible_divergence(f.flow) < 1e-11);
        end(&f);
    }
    expect_last_order("forced vortex, no-slip walls", errors, 1.7, 1e-2);
}

/* Self-convergence in time alone: unsteady flow between walls, from the same field on one grid with different steps. */
static double swirl_u(double x, double y) {
    return kept_u(x, y) + 0.5 * M_PI * sin(2.0 * M_PI * x) * sin(2.0 * M_PI * x) * sin(2.0 * M_PI * y);
}

static double swirl_v(double x, double y) {
    return kept_v(x, y) - M_PI * sin(4.0 * M_PI * x) * sin(M_PI * y) * sin(M_PI * y);
}

static void time_steps_between_walls_converge_at_second_order(void **state) {
    enum { N = 16, RUNS = 4 };
    double *found[RUNS], errors[3];
    for (int run = 0; run < RUNS; run++) {
        fixture f;
        begin(&f, (ups_incompressible_problem){.cells = N, .viscosity = 0.02});
        set_velocity(&f, swirl_u, swirl_v);
        ups_incompressible_begin(f.flow);
        const int pieces = run == RUNS - 1 ? 2560 : 80 << run;
        for (int piece = 0; piece < pieces; piece++) advance(&f, 0.2 / pieces);
        found[run] = malloc(sizeof(double) * N * N);
        ups_incompressible_faces(f.flow, found[run], f.b);
        end(&f);
    }
    for (int run = 0; run < 3; run++) {
        errors[run] = 0.0;
        for (int c = 0; c < N * N; c++) errors[run] += fabs(found[run][c] - found[RUNS - 1][c]) / (N * N);
    }
    expect_last_order("time steps, no-slip walls", errors, 1.8, 1e-3);
    for (int run = 0; run < RUNS; run++) free(found[run]);
}

/* ---- the scalar ---- */

static const double bell_width = 0.005, bell_diffusivity = 0.01;
static double bell_time;

static double bell(double x, double y) {
    double sum = 0.0;
    const double spread = bell_width + 2.0 * bell_diffusivity * bell_time;
    for (int a = -2; a <= 2; a++) {
        for (int b = -2; b <= 2; b++) {
            const double dx = x - 0.5 - 0.6 * bell_time + a, dy = y - 0.5 + 0.3 * bell_time + b;
            sum += bell_width / spread * exp(-0.5 * (dx * dx + dy * dy) / spread);
        }
    }
    return sum;
}

static double drift_u(double x, double y) {
    return 0.6;
}

static double drift_v(double x, double y) {
    return -0.3;
}

static void a_bell_is_carried_and_spreads_at_second_order(void **state) {
    double errors[3];
    for (int m = 0; m < 3; m++) {
        fixture f;
        begin(&f, (ups_incompressible_problem){.cells = 32 << m, .periodic = true, .diffusivity = bell_diffusivity});
        set_velocity(&f, drift_u, drift_v);
        bell_time = 0.0;
        set_scalar(&f, bell);
        ups_incompressible_begin(f.flow);
        advance(&f, 0.5);
        bell_time = 0.5;
        ups_incompressible_scalar(f.flow, f.a);
        sample(&f, bell, 0.5, 0.5, f.b);
        errors[m] = 0.0;
        for (int64_t c = 0; c < f.n * f.n; c++) errors[m] += fabs(f.a[c] - f.b[c]) / (double)(f.n * f.n);
        end(&f);
    }
    expect_last_order("carried and spreading bell", errors, 1.7, 1e-3);
}

static double block(double x, double y) {
    return x > 0.3 && x < 0.6 && y > 0.2 && y < 0.7 ? 1.0 : 0.0;
}

static void the_scalar_is_conserved_and_keeps_its_range(void **state) {
    for (int kind = 0; kind < 4; kind++) {
        fixture f;
        const bool periodic = kind & 1;
        begin(&f, (ups_incompressible_problem){
                      .cells = 33, .periodic = periodic, .viscosity = 0.003, .diffusivity = kind & 2 ? 0.002 : 0.0});
        set_velocity(&f, periodic ? vortices_u : kept_u, periodic ? vortices_v : kept_v);
        set_scalar(&f, block);
        ups_incompressible_begin(f.flow);
        double before = 0.0, after = 0.0;
        for (int64_t c = 0; c < f.n * f.n; c++) before += f.a[c];
        advance(&f, 0.4);
        ups_incompressible_scalar(f.flow, f.a);
        for (int64_t c = 0; c < f.n * f.n; c++) {
            after += f.a[c];
            assert_true(f.a[c] > -1e-3 && f.a[c] < 1.0 + 1e-3);
        }
        assert_float_equal(before, after, 1e-10 * before);
        end(&f);
    }
}

static double rough_u(double x, double y) {
    uint32_t seed = (uint32_t)(1000.0 * x) * 7919u + (uint32_t)(1000.0 * y);
    scatter(&seed);
    return 4.0 * scatter(&seed);
}

static double rough_v(double x, double y) {
    return rough_u(y + 0.3, x);
}

static void a_rough_beginning_is_projected_and_runs_without_divergence(void **state) {
    static const int64_t sizes[] = {8, 15, 32, 37};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int periodic = 0; periodic < 2; periodic++) {
            fixture f;
            begin(&f, (ups_incompressible_problem){
                          .cells = sizes[i], .periodic = periodic, .viscosity = 1e-4, .carried_force = true});
            set_velocity(&f, rough_u, rough_v);
            set_scalar(&f, rough_u);
            set_force(&f, rough_v, rough_u);
            ups_incompressible_begin(f.flow);
            assert_true(ups_incompressible_divergence(f.flow) < 1e-11);
            advance(&f, 0.3);
            assert_true(ups_incompressible_divergence(f.flow) < 1e-10);
            end(&f);
        }
    }
}

static void without_force_energy_only_falls(void **state) {
    fixture f;
    begin(&f, (ups_incompressible_problem){.cells = 32, .viscosity = 1e-3});
    set_velocity(&f, rough_u, rough_v);
    ups_incompressible_begin(f.flow);
    double last = HUGE_VAL;
    for (int n = 0; n < 10; n++) {
        ups_incompressible_faces(f.flow, f.a, f.b);
        double energy = 0.0;
        for (int64_t c = 0; c < f.n * f.n; c++) energy += f.a[c] * f.a[c] + f.b[c] * f.b[c];
        assert_true(energy < last);
        last = energy;
        advance(&f, 0.02);
    }
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transforms_of_any_length_are_the_sums_they_stand_for),
        cmocka_unit_test(line_solvers_solve_their_equations_for_all_ends),
        cmocka_unit_test(taylor_green_vortices_decay_at_second_order),
        cmocka_unit_test(a_forced_vortex_between_walls_converges_at_second_order),
        cmocka_unit_test(time_steps_between_walls_converge_at_second_order),
        cmocka_unit_test(a_bell_is_carried_and_spreads_at_second_order),
        cmocka_unit_test(the_scalar_is_conserved_and_keeps_its_range),
        cmocka_unit_test(a_rough_beginning_is_projected_and_runs_without_divergence),
        cmocka_unit_test(without_force_energy_only_falls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
