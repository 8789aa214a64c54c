/* The sum of sines is the cost. sin(2πkx + θ) = sin(2πkx) cos θ + cos(2πkx) sin θ, with θ = φ - 2πkβt constant along a
 * row: tables of the first factors, shared by all samples, leave two products a wave and point. */
#include "tools/solvers/advection1d.h"
#include "tools/solvers/initial_conditions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BETA, T_END, WAVES, K_MAX, P_ABSOLUTE, P_WINDOW, PARAMETER_COUNT };
static const ups_solver_parameter parameters[PARAMETER_COUNT] = {
    [BETA] = {"beta", 0.4, -100.0, 100.0, false, "length/time", "advection velocity"},
    [T_END] = {"t_end", 2.0, 1e-6, 1e6, false, "time", "last stored time"},
    [WAVES] = {"waves", 2, 1, UPS_MAX_WAVES, true, "1", "sines in an initial condition"},
    [K_MAX] = {"k_max", 8, 1, 512, true, "1", "largest wavenumber; drawn from 1 to k_max"},
    [P_ABSOLUTE] = {"p_absolute", 0.1, 0.0, 1.0, false, "1", "share of samples that are absolute values"},
    [P_WINDOW] = {"p_window", 0.1, 0.0, 1.0, false, "1", "share of samples seen through a window"},
};

typedef struct advection_plan {
    ups_solver_setup setup;
    ups_wave_family family;
    double *sine, *cosine; /* (k_max, resolution): of 2πkx at the cell centres, k from 1 */
} advection_plan;

static void release(void *opaque) {
    advection_plan *plan = opaque;
    if (!plan) return;
    free(plan->sine);
    free(plan->cosine);
    free(plan);
}

static ups_status prepare(const ups_solver_setup *setup, void **opaque, ups_error *error) {
    advection_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return ups_fail(error, UPS_ERR_MEMORY, "advection1d: out of memory");
    plan->setup = *setup;
    plan->family = (ups_wave_family){
        .waves = (int)setup->parameters[WAVES],
        .k_max = (int)setup->parameters[K_MAX],
        .p_absolute = setup->parameters[P_ABSOLUTE],
        .p_window = setup->parameters[P_WINDOW],
    };
    const int64_t cells = setup->resolution;
    plan->sine = malloc(sizeof(double) * (size_t)(plan->family.k_max * cells));
    plan->cosine = malloc(sizeof(double) * (size_t)(plan->family.k_max * cells));
    if (!plan->sine || !plan->cosine) {
        release(plan);
        return ups_fail(error, UPS_ERR_MEMORY, "advection1d: no memory for tables of %lld cells", (long long)cells);
    }
    for (int k = 1; k <= plan->family.k_max; k++) {
        for (int64_t i = 0; i < cells; i++) {
            /* k(2i + 1) modulo 2·cells in whole numbers: the angle is exact before it is rounded */
            const double turns = (double)(k * (2 * i + 1) % (2 * cells)) / (double)(2 * cells);
            plan->sine[(k - 1) * cells + i] = sin(2.0 * M_PI * turns);
            plan->cosine[(k - 1) * cells + i] = cos(2.0 * M_PI * turns);
        }
    }
    *opaque = plan;
    return UPS_OK;
}

static size_t scratch_bytes(const void *opaque) {
    const advection_plan *plan = opaque;
    return sizeof(double) * (size_t)plan->setup.resolution;
}

static ups_status solve(const void *opaque, int64_t sample, void *scratch, float *out, ups_error *error) {
    const advection_plan *plan = opaque;
    const int64_t cells = plan->setup.resolution, steps = plan->setup.steps;
    const double beta = plan->setup.parameters[BETA], end = plan->setup.parameters[T_END];
    double *sum = scratch;
    ups_wave_profile profile;
    ups_wave_profile_draw(&plan->family, plan->setup.seed, sample, &profile);
    for (int64_t step = 0; step < steps; step++) {
        const double path = beta * ups_solver_time(end, steps, step);
        const double shift = path - floor(path); /* whole turns change nothing but the rounding */
        memset(sum, 0, sizeof(double) * (size_t)cells);
        for (int j = 0; j < profile.waves; j++) {
            const int k = profile.wavenumber[j];
            const double angle = profile.phase[j] - 2.0 * M_PI * k * shift;
            const double with_sine = profile.amplitude[j] * cos(angle), with_cosine = profile.amplitude[j] * sin(angle);
            const double *sine = plan->sine + (k - 1) * cells, *cosine = plan->cosine + (k - 1) * cells;
            for (int64_t i = 0; i < cells; i++) sum[i] += with_sine * sine[i] + with_cosine * cosine[i];
        }
        float *row = out + step * cells;
        for (int64_t i = 0; i < cells; i++) {
            const double x = ((double)i + 0.5) / (double)cells - shift;
            row[i] = (float)ups_wave_profile_shape(&profile, x, sum[i]);
        }
    }
    return UPS_OK;
}

const ups_solver ups_advection1d = {
    .name = "advection1d",
    .summary = "linear advection, periodic; the exact solution",
    .equation =
        "u_t + beta u_x = 0 on [0, 1), periodic. The exact solution u0(x - beta t), evaluated as a function: no\n"
        "numerical diffusion at any resolution. u0 is a sum of sines of random wavenumber, amplitude and phase, with\n"
        "random sign; some samples are absolute values or seen through a sharp window (PDEBench, arXiv 2210.07182).",
    .parameters = parameters,
    .parameter_count = PARAMETER_COUNT,
    .default_resolution = 1024,
    .minimum_resolution = 8,
    .maximum_resolution = 1 << 20,
    .default_steps = 201,
    .layout = UPS_LAYOUT_TENSOR,
    .end_time = T_END,
    .attribute = BETA,
    .attribute_name = "beta",
    .prepare = prepare,
    .release = release,
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};
