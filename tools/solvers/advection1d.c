/* The sum of sines is the cost. sin(2πkx + θ) = sin(2πkx) cos θ + cos(2πkx) sin θ, with θ = φ - 2πkβt constant along a
 * row: tables of the first factors, shared by all samples, leave two products a wave and point. */
#include "tools/solvers/advection1d.h"
#include "tools/solvers/incompressible/fourier.h"
#include "tools/solvers/initial/initial_conditions.h"
#include "tools/solvers/initial/initial_fields.h"

#include <math.h>
#include <stdlib.h>

enum { BETA, T_END, WAVES, PARAMETER_COUNT = WAVES + UPS_WAVE_PARAMETERS };
static const ups_solver_parameter parameters[PARAMETER_COUNT] = {
    [BETA] = {"beta", 0.4, -100.0, 100.0, UPS_REAL, "length/time", "advection velocity"},
    [T_END] = {"t_end", 2.0, 1e-6, 1e6, UPS_SHARED, "time", "last stored time"},
    UPS_WAVE_FAMILY_PARAMETERS(WAVES),
};

typedef struct advection_plan {
    ups_columns *columns; /* of fields that are given: their Fourier transform; else NULL */
    int64_t wavenumbers; /* of the tables: from 1; 0 where they would be too large, and sines are computed one by one */
    double waves[];      /* sines, then cosines, (wavenumbers, resolution) each: of 2πkx at the cell centres */
} advection_plan;

enum { MOST_IN_TABLES = 1 << 24 };

static ups_status prepare(const ups_solver_setup *setup, void **opaque, ups_error *error) {
    const ups_wave_family family = ups_wave_family_of(setup, WAVES);
    const int64_t cells = setup->resolution, highest = ups_wave_family_highest(&family);
    const int64_t wavenumbers = highest * cells <= MOST_IN_TABLES ? highest : 0, count = wavenumbers * cells;
    advection_plan *plan = malloc(sizeof *plan + 2 * sizeof(double) * (size_t)count);
    if (!plan)
        return ups_fail(error, UPS_ERR_MEMORY, "advection1d: no memory for tables of %lld cells", (long long)cells);
    plan->wavenumbers = wavenumbers;
    plan->columns = setup->initial ? ups_columns_create(cells, false) : NULL;
    if (setup->initial && !plan->columns) {
        free(plan);
        return ups_fail(error, UPS_ERR_MEMORY, "advection1d: no memory to transform %lld cells", (long long)cells);
    }
    for (int64_t k = 1; k <= wavenumbers; k++) {
        for (int64_t i = 0; i < cells; i++) {
            /* k(2i + 1) modulo 2·cells in whole numbers: the angle is exact before it is rounded */
            const double turns = (double)(k * (2 * i + 1) % (2 * cells)) / (double)(2 * cells);
            plan->waves[(k - 1) * cells + i] = sin(2.0 * M_PI * turns);
            plan->waves[count + (k - 1) * cells + i] = cos(2.0 * M_PI * turns);
        }
    }
    *opaque = plan;
    return UPS_OK;
}

static void release(void *opaque) {
    advection_plan *plan = opaque;
    if (plan) ups_columns_destroy(plan->columns);
    free(plan);
}

static void describe(const ups_solver_setup *setup, const void *plan, ups_file_layout *layout) {
    ups_file_describe_tensor(layout, setup->steps, setup->resolution, setup->parameters[T_END]);
    ups_solver_keep(setup, BETA, "beta", layout);
}

static size_t scratch_bytes(const ups_solver_setup *setup, const void *plan) {
    const advection_plan *made = plan;
    const size_t row = ((size_t)setup->resolution + 7) / 8 * 8;
    return sizeof(double) * (2 * row + (made->columns ? ups_columns_scratch(made->columns) : 0));
}

/* sum = c + Σ A sin(2πk(x - shift) + φ) at the cell centres. */
static void add_waves(const advection_plan *plan, const ups_wave_profile *profile, int64_t cells, double shift,
                      double *sum) {
    for (int64_t i = 0; i < cells; i++) sum[i] = profile->constant;
    for (int j = 0; j < profile->waves; j++) {
        const int64_t k = profile->wavenumber[j];
        const double angle = profile->phase[j] - 2.0 * M_PI * (double)k * shift;
        const double with_sine = profile->amplitude[j] * cos(angle), with_cosine = profile->amplitude[j] * sin(angle);
        const double *sine = plan->waves + (k - 1) * cells, *cosine = sine + plan->wavenumbers * cells;
        for (int64_t i = 0; i < cells; i++) sum[i] += with_sine * sine[i] + with_cosine * cosine[i];
    }
}

/* u(x - shift) of a row whose transform is `given`, as the trigonometric polynomial through its cells. */
static void shift_given(const advection_plan *plan, int64_t cells, double shift, const double *given, double *u,
                        double *work) {
    u[0] = given[0];
    for (int64_t k = 1; 2 * k <= cells; k++) {
        const double c = cos(2.0 * M_PI * (double)k * shift), s = sin(2.0 * M_PI * (double)k * shift);
        if (2 * k == cells) {
            u[k] = c * given[k];
            continue;
        }
        u[k] = c * given[k] + s * given[cells - k];
        u[cells - k] = c * given[cells - k] - s * given[k];
    }
    ups_columns_inverse(plan->columns, 1, 1, u, work);
}

static ups_status solve_given(const ups_solver_setup *setup, const advection_plan *plan, int64_t sample, double *given,
                              ups_sink *sink, ups_error *error) {
    const int64_t cells = setup->resolution, row = (cells + 7) / 8 * 8;
    double *u = given + row, *work = u + row;
    UPS_TRY(ups_initial_fields_read(setup->initial, sample, &given, error));
    UPS_TRY(ups_sink_put(sink, 0, 0, given, error));
    ups_columns_forward(plan->columns, 1, 1, given, work);
    for (int64_t step = 1; step < setup->steps; step++) {
        const double path = setup->parameters[BETA] * ups_solver_time(setup->parameters[T_END], setup->steps, step);
        shift_given(plan, cells, path - floor(path), given, u, work);
        UPS_TRY(ups_sink_put(sink, 0, step, u, error));
    }
    return UPS_OK;
}

static ups_status solve(const ups_solver_setup *setup, const void *opaque, int64_t sample, void *scratch,
                        ups_sink *sink, ups_error *error) {
    const advection_plan *plan = opaque;
    const int64_t cells = setup->resolution, steps = setup->steps;
    const double beta = setup->parameters[BETA], end = setup->parameters[T_END];
    if (setup->initial) return solve_given(setup, plan, sample, scratch, sink, error);
    double *sum = scratch, *u = sum + cells;
    const ups_wave_family family = ups_wave_family_of(setup, WAVES);
    ups_wave_profile profile;
    ups_wave_profile_draw(&family, setup->seed, sample, &profile);
    for (int64_t step = 0; step < steps; step++) {
        const double path = beta * ups_solver_time(end, steps, step);
        const double shift = path - floor(path); /* whole turns change nothing but the rounding */
        if (plan->wavenumbers > 0) add_waves(plan, &profile, cells, shift, sum);
        for (int64_t i = 0; i < cells; i++) {
            const double x = ((double)i + 0.5) / (double)cells - shift;
            u[i] =
                plan->wavenumbers > 0 ? ups_wave_profile_shape(&profile, x, sum[i]) : ups_wave_profile_at(&profile, x);
        }
        UPS_TRY(ups_sink_put(sink, 0, step, u, error));
    }
    return UPS_OK;
}

const ups_solver ups_advection1d = {
    .name = "advection1d",
    .summary = "linear advection, periodic; the exact solution",
    .equation =
        "u_t + beta u_x = 0 on [0, 1), periodic. The exact solution u0(x - beta t), evaluated as a function: no\n"
        "numerical diffusion at any resolution. u0 is a constant and sines of random wavenumber, amplitude and phase, "
        "with\n"
        "random sign; some samples are absolute values or seen through a sharp window: as the scripts of PDEBench "
        "draw\n"
        "them. initial=waves has no constant and no doubled wavenumbers (PDEBench's paper, arXiv 2210.07182: "
        "k_max=8).\n"
        "Given fields are moved as the trigonometric polynomial through their cells.",
    .parameters = parameters,
    .parameter_count = PARAMETER_COUNT,
    .default_resolution = 1024,
    .minimum_resolution = 8,
    .maximum_resolution = 1 << 20,
    .default_steps = 201,
    .dims = 1,
    .state = (const char *const[]){"u", NULL},
    .describe = describe,
    .prepare = prepare,
    .release = release,
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};
