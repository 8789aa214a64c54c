#include "tools/solvers/diffsorp1d.h"
#include "base/random.h"
#include "tools/solvers/implicit_diffusion.h"
#include "tools/solvers/initial/initial_fields.h"

#include <math.h>

/* Keeps the retardation finite at u = 0, as PDEBench does. */
static const double smallest = 1e-6;
/* Newton's iteration has converged when it moves no cell further; the solution is of order 1. */
static const double converged = 1e-13;
static const int most_iterations = 60;
/* A step is at most this share of the time since the jump at the wall. */
static const double share_of_time = 1.0 / 16.0;

double ups_sorption_held(const ups_sorption *medium, double u, double *retardation) {
    const double inside = u > 0.0 ? u : 0.0;
    const double power = pow(inside + smallest, medium->exponent - 1.0);
    *retardation = 1.0 + medium->capacity * medium->exponent * power;
    return inside + medium->capacity * (inside + smallest) * power + (u - inside) * *retardation;
}

enum { HELD, KNOWN, STAGE, RESIDUAL, UPPER, ARRAYS };

size_t ups_diffsorp1d_scratch(int64_t cells) {
    return ARRAYS * (size_t)cells;
}

/* The coefficients of γ Δt D u_xx: `inner` between cells, `left` to the wall's value. What leaves the last cell is
 * `right` times its value less `slope` times what the one before has more. */
typedef struct stage_matrix {
    int64_t cells;
    double inner, left, right, slope, wall;
} stage_matrix;

/* Walls at faces are half a cell from the centre, and u + D u_x = 0 holds in that half cell. A ghost cell is a whole
 * cell away; the right one holds -D u_x as the last two cells have it. */
static stage_matrix stage_of(int64_t cells, const ups_sorption *medium, double dt) {
    const double n = (double)cells, inner = UPS_SDIRK2_GAMMA * dt * medium->diffusivity * n * n;
    const double cell = medium->diffusivity * n; /* D over a cell */
    if (medium->ghost_cells) return (stage_matrix){cells, inner, inner, inner, inner * cell, medium->wall};
    return (stage_matrix){cells, inner, 2.0 * inner, 2.0 * inner / (1.0 + 2.0 * cell), 0.0, medium->wall};
}

static inline double diffused(const stage_matrix *matrix, const double *u, int64_t i) {
    const double from_left = i > 0 ? matrix->inner * (u[i - 1] - u[i]) : matrix->left * (matrix->wall - u[i]);
    const double from_right = i + 1 < matrix->cells ? matrix->inner * (u[i + 1] - u[i])
                                                    : matrix->slope * (u[i - 1] - u[i]) - matrix->right * u[i];
    return from_left + from_right;
}

/* Solves C(u) - γ Δt D u_xx = known by Newton's method, from the guess in u. The tridiagonal system is diagonally
 * dominant: no pivoting. */
static ups_status solve_stage(const stage_matrix *matrix, const ups_sorption *medium, const double *known, double *u,
                              double *scratch, ups_error *error) {
    const int64_t cells = matrix->cells;
    double *residual = scratch + RESIDUAL * cells, *upper = scratch + UPPER * cells;
    double moved = INFINITY;
    for (int n = 0; moved > converged && n < most_iterations; n++) {
        for (int64_t i = 0; i < cells; i++) { /* forward elimination as the system is built */
            double retardation;
            const double held = ups_sorption_held(medium, u[i], &retardation);
            const bool last = i + 1 == cells;
            const double before = (i > 0 ? matrix->inner : 0.0) + (last ? matrix->slope : 0.0);
            const double after = last ? 0.0 : matrix->inner;
            const double diagonal = retardation + (i > 0 ? matrix->inner : matrix->left) +
                                    (last ? matrix->right + matrix->slope : matrix->inner);
            const double wrong = known[i] + diffused(matrix, u, i) - held;
            const double pivot = 1.0 / (diagonal - before * (i > 0 ? upper[i - 1] : 0.0));
            residual[i] = (wrong + before * (i > 0 ? residual[i - 1] : 0.0)) * pivot;
            upper[i] = after * pivot;
        }
        moved = 0.0;
        double next = 0.0;
        for (int64_t i = cells - 1; i >= 0; i--) {
            next = residual[i] + upper[i] * next;
            u[i] += next;
            moved = fmax(moved, fabs(next));
        }
    }
    if (moved <= converged) return UPS_OK;
    return ups_fail(error, UPS_ERR_NUMERIC, "Newton's iteration did not converge (it still moves by %g)", moved);
}

ups_status ups_diffsorp1d_advance(int64_t cells, const ups_sorption *medium, double dt, int64_t steps, double *u,
                                  double *scratch, ups_error *error) {
    const stage_matrix matrix = stage_of(cells, medium, dt);
    const double g = UPS_SDIRK2_GAMMA;
    double *held = scratch + HELD * cells, *known = scratch + KNOWN * cells, *stage = scratch + STAGE * cells;
    double retardation;
    for (int64_t i = 0; i < cells; i++) held[i] = ups_sorption_held(medium, u[i], &retardation);
    for (int64_t n = 0; n < steps; n++) {
        /* C(Y₁) - γ Δt D Y₁'' = C(u) */
        for (int64_t i = 0; i < cells; i++) stage[i] = u[i];
        UPS_TRY(solve_stage(&matrix, medium, held, stage, scratch, error));
        /* C(u') - γ Δt D u'' = C(u) + (1 - γ) Δt D Y₁'' */
        for (int64_t i = 0; i < cells; i++) known[i] = held[i] + (1.0 - g) / g * diffused(&matrix, stage, i);
        for (int64_t i = 0; i < cells; i++) u[i] = stage[i];
        UPS_TRY(solve_stage(&matrix, medium, known, u, scratch, error));
        /* by the fluxes, not by C(u'): conserved whatever Newton left */
        for (int64_t i = 0; i < cells; i++) held[i] = known[i] + diffused(&matrix, u, i);
    }
    return UPS_OK;
}

ups_status ups_diffsorp1d_march(int64_t cells, const ups_sorption *medium, double begin, double end, double *u,
                                double *scratch, ups_error *error) {
    const double crossing = 1.0 / (medium->diffusivity * (double)cells * (double)cells);
    double now = begin;
    while (now < end) {
        /* Up to `until` equal steps: to twice the time reached, or to the end. */
        const double until = fmin(end, fmax(2.0 * now, crossing));
        const double share = share_of_time * until;
        const int64_t steps = (int64_t)fmax(2.0, ceil((until - now) / share));
        UPS_TRY(ups_diffsorp1d_advance(cells, medium, (until - now) / (double)steps, steps, u, scratch, error));
        now = until;
    }
    return UPS_OK;
}

/* ---- as `ups datagen` sees it ---- */

enum { D, POROSITY, DENSITY, K_F, N_F, SOLUBILITY, WALLS, T_END, PARAMETER_COUNT };
static const ups_solver_parameter parameters[PARAMETER_COUNT] = {
    [D] = {"D", 5e-4, 1e-8, 1.0, UPS_REAL, "length^2/time", "effective diffusion coefficient"},
    [POROSITY] = {"por", 0.29, 0.01, 1.0, UPS_REAL, "1", "porosity"},
    [DENSITY] = {"rho_s", 2880.0, 0.0, 1e5, UPS_REAL, "mass/length^3", "bulk density"},
    [K_F] = {"k_f", 3.5e-4, 0.0, 1.0, UPS_REAL, "1", "Freundlich's parameter"},
    [N_F] = {"n_f", 0.874, 0.1, 2.0, UPS_REAL, "1", "Freundlich's exponent"},
    [SOLUBILITY] = {"sol", 1.0, 0.0, 10.0, UPS_REAL, "u", "concentration at x = 0"},
    [WALLS] = {"walls", 0.0, 0.0, 1.0, UPS_CHOICE, "ghost|face",
               "values at the walls: in a cell beyond, as in PDEBench's files, or at the wall itself"},
    [T_END] = {"t_end", 500.0, 1e-6, 1e7, UPS_SHARED, "time", "last stored time"},
};

static const double highest_start = 0.2;

static void describe(const ups_solver_setup *setup, const void *plan, ups_file_layout *layout) {
    layout->seed_groups = true;
    ups_file_add_array(layout, "data", setup->steps, 1, setup->resolution, 1);
    ups_file_add_centres(layout, "grid/x", setup->resolution, 0.0, 1.0);
    ups_file_add_times(layout, "grid/t", setup->steps, setup->steps, setup->parameters[T_END]);
}

static void configure(const ups_solver_setup *setup, int64_t sample, FILE *yaml) {
    const double *p = setup->parameters;
    fprintf(yaml, "name: 1d_diff-sorp\nsim:\n  D: %.15g\n  por: %.15g\n  rho_s: %.15g\n  k_f: %.15g\n  n_f: %.15g\n",
            p[D], p[POROSITY], p[DENSITY], p[K_F], p[N_F]);
    fprintf(yaml, "  sol: %.15g\n  t: %.15g\n  tdim: %lld\n  x_left: 0.0\n  x_right: 1.0\n  xdim: %lld\n  n: 1\n",
            p[SOLUBILITY], p[T_END], (long long)setup->steps, (long long)setup->resolution);
    const char *walls;
    const int length = ups_solver_word(&parameters[WALLS], (int)p[WALLS], &walls);
    fprintf(yaml, "  walls: %.*s\n  seed: %lld\n", length, walls, (long long)sample);
}

static size_t scratch_bytes(const ups_solver_setup *setup, const void *plan) {
    return sizeof(double) * ((size_t)setup->resolution + ups_diffsorp1d_scratch(setup->resolution));
}

static ups_status solve(const ups_solver_setup *setup, const void *plan, int64_t sample, void *scratch, ups_sink *sink,
                        ups_error *error) {
    const int64_t cells = setup->resolution, steps = setup->steps;
    const double *p = setup->parameters;
    const ups_sorption medium = {.diffusivity = p[D],
                                 .capacity = (1.0 - p[POROSITY]) / p[POROSITY] * p[DENSITY] * p[K_F],
                                 .exponent = p[N_F],
                                 .wall = p[SOLUBILITY],
                                 .ghost_cells = p[WALLS] == 0.0};
    double *u = scratch, *work = u + cells;
    const double start =
        highest_start * ups_random_uniform(ups_random_stream(setup->seed, UPS_RANDOM_DATAGEN, (uint32_t)sample), 0);
    for (int64_t i = 0; i < cells; i++) u[i] = start;
    if (setup->initial) UPS_TRY(ups_initial_fields_read(setup->initial, sample, &u, error));
    UPS_TRY(ups_sink_put(sink, 0, 0, u, error));
    for (int64_t stored = 1; stored < steps; stored++) {
        UPS_TRY(ups_diffsorp1d_march(cells, &medium, ups_solver_time(p[T_END], steps, stored - 1),
                                     ups_solver_time(p[T_END], steps, stored), u, work, error));
        UPS_TRY(ups_sink_put(sink, 0, stored, u, error));
    }
    return UPS_OK;
}

const ups_solver ups_diffsorp1d = {
    .name = "diffsorp1d",
    .summary = "diffusion-sorption with Freundlich's retardation, between walls",
    .equation =
        "R(u) u_t = D u_xx on [0, 1], R = 1 + (1 - por)/por rho_s k_f n_f (u + 1e-6)^(n_f - 1), u = sol at x = 0 and\n"
        "u + D u_x = 0 at x = 1. Conservative finite volumes and an L-stable implicit scheme; steps grow with the "
        "time\n"
        "since the start. Second order with walls=face; walls=ghost has the values of the walls in cells beyond them, "
        "as\n"
        "PDEBench's solver does, which is first order there. u begins constant, drawn from 0 to 0.2.",
    .parameters = parameters,
    .parameter_count = PARAMETER_COUNT,
    .default_resolution = 1024,
    .minimum_resolution = 4,
    .maximum_resolution = 1 << 16,
    .default_steps = 101,
    .dims = 1,
    .state = (const char *const[]){"u", NULL},
    .describe = describe,
    .configure = configure,
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};
