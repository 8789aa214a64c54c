#include "tools/solvers/reacdiff1d.h"
#include "tools/solvers/implicit_diffusion.h"
#include "tools/solvers/initial/initial_conditions.h"
#include "tools/solvers/initial/initial_fields.h"

#include <math.h>

/* Largest ν (4π)² Δt: waves of half the domain's length decay as they should. Largest ρ Δt: growth and diffusion, which
 * do not commute, take turns often enough. */
static const double diffusive = 0.1, reactive = 0.1;

int64_t ups_reacdiff1d_steps(double nu, double rho, double interval) {
    const double by_diffusion = interval * nu * (4.0 * M_PI) * (4.0 * M_PI) / diffusive;
    const double by_reaction = interval * rho / reactive;
    return (int64_t)ceil(fmax(1.0, fmax(by_diffusion, by_reaction)));
}

/* u' = ρ u(1 - u) exactly; growth = e^{ρ Δt} - 1. Nothing grows from less than nothing: what rounding left below zero
 * stays. */
static void grow(int64_t cells, double growth, double *u) {
    for (int64_t i = 0; i < cells; i++) {
        const double grown = u[i] * (1.0 + growth) / (1.0 + u[i] * growth);
        u[i] = u[i] > 0.0 ? grown : u[i];
    }
}

void ups_reacdiff1d_advance(int64_t cells, double nu, double rho, double interval, int64_t steps, double *u,
                            double *work) {
    const double dt = interval / (double)steps;
    const double q = UPS_SDIRK2_GAMMA * dt * nu * (double)cells * (double)cells;
    const double half = expm1(0.5 * rho * dt), whole = expm1(rho * dt);
    const bool diffuses = q > 1e-16; /* below, the implicit solve would change no bit */
    ups_periodic_factor factor = {0};
    if (diffuses) factor = ups_periodic_factorize(cells, q);
    grow(cells, half, u);
    for (int64_t n = 0; n < steps; n++) {
        if (diffuses) ups_periodic_diffuse(cells, &factor, u, work);
        grow(cells, n + 1 < steps ? whole : half, u); /* the halves of neighbouring steps are one */
    }
}

/* ---- as `ups datagen` sees it ---- */

enum { NU, RHO, T_END, WAVES, PARAMETER_COUNT = WAVES + UPS_WAVE_PARAMETERS };
static const ups_solver_parameter parameters[PARAMETER_COUNT] = {
    [NU] = {"nu", 0.5, 0.0, 100.0, UPS_REAL, "length^2/time", "diffusion coefficient"},
    [RHO] = {"rho", 1.0, 0.0, 100.0, UPS_REAL, "1/time", "growth rate"},
    [T_END] = {"t_end", 1.0, 1e-6, 1e3, UPS_SHARED, "time", "last stored time"},
    UPS_WAVE_FAMILY_PARAMETERS(WAVES),
};

static void describe(const ups_solver_setup *setup, const void *plan, ups_file_layout *layout) {
    ups_file_describe_tensor(layout, setup->steps, setup->resolution, setup->parameters[T_END]);
    ups_solver_keep(setup, NU, "Nu", layout);
    ups_solver_keep(setup, RHO, "rho", layout);
}

static size_t scratch_bytes(const ups_solver_setup *setup, const void *plan) {
    return 2 * sizeof(double) * (size_t)setup->resolution;
}

/* Into [0, 1], by the smallest and the largest value on the grid. */
static void normalize(int64_t cells, double *u) {
    double low = u[0], high = u[0];
    for (int64_t i = 1; i < cells; i++) {
        low = u[i] < low ? u[i] : low;
        high = u[i] > high ? u[i] : high;
    }
    const double scale = high > low ? 1.0 / (high - low) : 0.0;
    for (int64_t i = 0; i < cells; i++) u[i] = (u[i] - low) * scale;
}

static ups_status solve(const ups_solver_setup *setup, const void *plan, int64_t sample, void *scratch, ups_sink *sink,
                        ups_error *error) {
    const int64_t cells = setup->resolution;
    const double nu = setup->parameters[NU], rho = setup->parameters[RHO], end = setup->parameters[T_END];
    const ups_wave_family family = ups_wave_family_of(setup, WAVES);
    double *u = scratch, *work = u + cells;
    if (setup->initial) {
        UPS_TRY(ups_initial_fields_read(setup->initial, sample, &u, error));
    } else {
        ups_wave_profile_fill(&family, setup->seed, sample, cells, u);
        normalize(cells, u);
    }
    const double interval = end / (double)(setup->steps - 1);
    const int64_t steps = ups_reacdiff1d_steps(nu, rho, interval);
    UPS_TRY(ups_sink_put(sink, 0, 0, u, error));
    for (int64_t stored = 1; stored < setup->steps; stored++) {
        ups_reacdiff1d_advance(cells, nu, rho, interval, steps, u, work);
        UPS_TRY(ups_sink_put(sink, 0, stored, u, error));
    }
    return UPS_OK;
}

const ups_solver ups_reacdiff1d = {
    .name = "reacdiff1d",
    .summary = "reaction-diffusion with logistic growth (Fisher, KPP), periodic",
    .equation =
        "u_t = nu u_xx + rho u(1 - u) on [0, 1), periodic. Strang splitting of exact growth and implicit, L-stable\n"
        "diffusion; second order in space and time. Initial conditions as for advection1d, moved and scaled into\n"
        "[0, 1].",
    .parameters = parameters,
    .parameter_count = PARAMETER_COUNT,
    .default_resolution = 1024,
    .minimum_resolution = 4,
    .maximum_resolution = 1 << 17,
    .default_steps = 101,
    .dims = 1,
    .state = (const char *const[]){"u", NULL},
    .describe = describe,
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};
