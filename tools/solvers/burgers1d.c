#include "tools/solvers/burgers1d.h"
#include "tools/solvers/implicit_diffusion.h"
#include "tools/solvers/initial/initial_conditions.h"
#include "tools/solvers/initial/initial_fields.h"
#include "tools/solvers/limiter.h"

#include <math.h>
#include <stdlib.h>

/* Largest max|u| Δt/Δx. The reconstruction keeps total variation from growing up to 1/2. */
static const double courant = 0.4;
/* Largest D (4π)² Δt: an accuracy limit only, so that waves of the domain's half length decay as they should. */
static const double diffusive = 0.1;
enum { PADDED, HALF_SLOPE, FLUX, STAGE, CONVECTION_1, CONVECTION_2, DIFFUSION, ARRAYS, GHOSTS = 2 };

static size_t array_doubles(int64_t cells) {
    return (size_t)(cells + 2 * GHOSTS + 7) / 8 * 8;
}

size_t ups_burgers1d_scratch(int64_t cells) {
    return ARRAYS * array_doubles(cells);
}

/* Godunov's flux of u²/2 between the states left and right of a face: exact, transonic rarefactions included. */
static inline double godunov(double left, double right) {
    const double from_left = ups_larger(left, 0.0), from_right = ups_smaller(right, 0.0);
    return 0.5 * ups_larger(from_left * from_left, from_right * from_right);
}

/* change = Δt · (-(u²/2)_x) in every cell; ratio = Δt/Δx. */
static void convection(int64_t cells, double ratio, const double *u, double *scratch, double *change) {
    const size_t stride = array_doubles(cells);
    double *padded = scratch + PADDED * stride, *half = scratch + HALF_SLOPE * stride, *flux = scratch + FLUX * stride;
    for (int g = 0; g < GHOSTS; g++) {
        padded[g] = u[cells - GHOSTS + g];
        padded[GHOSTS + cells + g] = u[g];
    }
    for (int64_t i = 0; i < cells; i++) padded[GHOSTS + i] = u[i];
    for (int64_t i = 1; i < cells + 3; i++) half[i] = ups_half_slope(padded[i - 1], padded[i], padded[i + 1]);
    for (int64_t face = 0; face <= cells; face++) { /* between padded cells face + 1 and face + 2 */
        flux[face] = godunov(padded[face + 1] + half[face + 1], padded[face + 2] - half[face + 2]);
    }
    for (int64_t i = 0; i < cells; i++) change[i] = -ratio * (flux[i + 1] - flux[i]);
}

/* One step. `f` is NULL without diffusion. */
static void step(int64_t cells, double ratio, const ups_periodic_factor *f, double *u, double *scratch) {
    const size_t stride = array_doubles(cells);
    double *stage = scratch + STAGE * stride, *first = scratch + CONVECTION_1 * stride;
    double *second = scratch + CONVECTION_2 * stride, *diffused = scratch + DIFFUSION * stride;
    const double g = UPS_SDIRK2_GAMMA;
    if (!f) { /* Heun's method */
        convection(cells, ratio, u, scratch, first);
        for (int64_t i = 0; i < cells; i++) stage[i] = u[i] + first[i];
        convection(cells, ratio, stage, scratch, second);
        for (int64_t i = 0; i < cells; i++) u[i] += 0.5 * (first[i] + second[i]);
        return;
    }
    /* Y₁ = u + γ Δt D Y₁'' */
    for (int64_t i = 0; i < cells; i++) stage[i] = u[i];
    ups_periodic_solve(cells, f, stage);
    convection(cells, ratio, stage, scratch, first);
    /* Y₂ = u + C(Y₁) + (1 - 2γ) K₁ + γ Δt D Y₂'', where K₁ = Δt D Y₁'' = (Y₁ - u)/γ. */
    for (int64_t i = 0; i < cells; i++) {
        diffused[i] = (stage[i] - u[i]) / g;
        const double known = u[i] + first[i] + (1.0 - 2.0 * g) * diffused[i];
        diffused[i] -= known / g; /* K₁ + K₂ once Y₂/γ is added */
        stage[i] = known;
    }
    ups_periodic_solve(cells, f, stage);
    convection(cells, ratio, stage, scratch, second);
    for (int64_t i = 0; i < cells; i++) {
        u[i] += 0.5 * (first[i] + second[i] + diffused[i] + stage[i] / g);
    }
}

/* How many equal steps an interval takes. max|u| never grows, so what holds at its beginning holds throughout. */
static int64_t step_count(int64_t cells, double diffusivity, double interval, const double *u) {
    double fastest = 0.0;
    for (int64_t i = 0; i < cells; i++) fastest = ups_larger(fastest, fabs(u[i]));
    const double by_convection = interval * fastest * (double)cells / courant;
    const double by_diffusion = interval * diffusivity * (4.0 * M_PI) * (4.0 * M_PI) / diffusive;
    return (int64_t)ceil(ups_larger(1.0, ups_larger(by_convection, by_diffusion)));
}

int64_t ups_burgers1d_advance(int64_t cells, double diffusivity, double interval, double *u, double *scratch) {
    const int64_t steps = step_count(cells, diffusivity, interval, u);
    const double dt = interval / (double)steps;
    const double r = UPS_SDIRK2_GAMMA * dt * diffusivity * (double)cells * (double)cells;
    const bool diffusive_enough = r > 1e-16; /* below, the implicit solve would change no bit */
    ups_periodic_factor f = {0};
    if (diffusive_enough) f = ups_periodic_factorize(cells, r);
    for (int64_t n = 0; n < steps; n++) step(cells, dt * (double)cells, diffusive_enough ? &f : NULL, u, scratch);
    return steps;
}

/* ---- as `ups datagen` sees it ---- */

enum { NU, T_END, WAVES, PARAMETER_COUNT = WAVES + UPS_WAVE_PARAMETERS };
static const ups_solver_parameter parameters[PARAMETER_COUNT] = {
    [NU] = {"nu", 0.01, 0.0, 10.0, UPS_REAL, "length^2/time", "viscosity; the diffusion coefficient is nu/pi"},
    [T_END] = {"t_end", 2.0, 1e-6, 1e3, UPS_SHARED, "time", "last stored time"},
    UPS_WAVE_FAMILY_PARAMETERS(WAVES),
};

static void describe(const ups_solver_setup *setup, const void *plan, ups_file_layout *layout) {
    ups_file_describe_tensor(layout, setup->steps, setup->resolution, setup->parameters[T_END]);
    ups_solver_keep(setup, NU, "Nu", layout);
}

static size_t scratch_bytes(const ups_solver_setup *setup, const void *plan) {
    return sizeof(double) * (array_doubles(setup->resolution) + ups_burgers1d_scratch(setup->resolution));
}

static ups_status solve(const ups_solver_setup *setup, const void *plan, int64_t sample, void *scratch, ups_sink *sink,
                        ups_error *error) {
    const int64_t cells = setup->resolution, steps = setup->steps;
    const double diffusivity = setup->parameters[NU] / M_PI, end = setup->parameters[T_END];
    const ups_wave_family family = ups_wave_family_of(setup, WAVES);
    double *u = scratch, *work = u + array_doubles(cells);
    if (setup->initial)
        UPS_TRY(ups_initial_fields_read(setup->initial, sample, &u, error));
    else
        ups_wave_profile_fill(&family, setup->seed, sample, cells, u);
    UPS_TRY(ups_sink_put(sink, 0, 0, u, error));
    for (int64_t stored = 1; stored < steps; stored++) {
        const double interval = ups_solver_time(end, steps, stored) - ups_solver_time(end, steps, stored - 1);
        ups_burgers1d_advance(cells, diffusivity, interval, u, work);
        UPS_TRY(ups_sink_put(sink, 0, stored, u, error));
    }
    return UPS_OK;
}

const ups_solver ups_burgers1d = {
    .name = "burgers1d",
    .summary = "viscous Burgers, periodic; second-order finite volumes",
    .equation =
        "u_t + (u^2/2)_x = (nu/pi) u_xx on [0, 1), periodic. Finite volumes, second order in space and time: limited\n"
        "linear reconstruction, Godunov's flux, implicit diffusion; the step follows the Courant limit and every "
        "stored\n"
        "time is met exactly. nu = 0 gives the inviscid equation. Initial conditions as for advection1d.",
    .parameters = parameters,
    .parameter_count = PARAMETER_COUNT,
    .default_resolution = 1024,
    .minimum_resolution = 8,
    .maximum_resolution = 1 << 17,
    .default_steps = 201,
    .dims = 1,
    .state = (const char *const[]){"u", NULL},
    .describe = describe,
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};
