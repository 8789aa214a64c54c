#include "tools/solvers/diffreact2d.h"
#include "base/random.h"
#include "tools/solvers/implicit_diffusion.h"
#include "tools/solvers/initial/initial_fields.h"

#include <math.h>

/* A step is at most this share of the time since the start, while there is noise to be smoothed, */
static const double share_of_time = 1.0 / 8.0;
/* and never longer than this: the reaction's own rates are about 1. */
static const double longest_step = 0.0125;
/* [-1, 1] */
static const double width = 2.0;

static inline double rate_u(double u, double v, double k) {
    return u - u * u * u - k - v;
}

static inline double rate_v(double u, double v) {
    return u - v;
}

static void react(int64_t count, double dt, double k, double *restrict u, double *restrict v) {
    for (int64_t i = 0; i < count; i++) {
        const double u1 = rate_u(u[i], v[i], k), v1 = rate_v(u[i], v[i]);
        double a = u[i] + 0.5 * dt * u1, b = v[i] + 0.5 * dt * v1;
        const double u2 = rate_u(a, b, k), v2 = rate_v(a, b);
        a = u[i] + 0.5 * dt * u2, b = v[i] + 0.5 * dt * v2;
        const double u3 = rate_u(a, b, k), v3 = rate_v(a, b);
        a = u[i] + dt * u3, b = v[i] + dt * v3;
        const double u4 = rate_u(a, b, k), v4 = rate_v(a, b);
        u[i] += dt / 6.0 * (u1 + 2.0 * (u2 + u3) + u4);
        v[i] += dt / 6.0 * (v1 + 2.0 * (v2 + v3) + v4);
    }
}

size_t ups_diffreact2d_scratch(int64_t cells) {
    return 2 * (size_t)(cells * cells) + 2 * (size_t)cells;
}

void ups_diffreact2d_advance(int64_t cells, const ups_activation *medium, double dt, int64_t steps, double *u,
                             double *v, double *scratch) {
    const int64_t count = cells * cells;
    const double per_area = (double)cells * (double)cells / (width * width);
    const double q_u = UPS_SDIRK2_GAMMA * dt * medium->diffusion_u * per_area;
    const double q_v = UPS_SDIRK2_GAMMA * dt * medium->diffusion_v * per_area;
    double *pivots_u = scratch + 2 * count, *pivots_v = pivots_u + cells;
    ups_walled_factorize(cells, q_u, pivots_u);
    ups_walled_factorize(cells, q_v, pivots_v);
    react(count, 0.5 * dt, medium->k, u, v);
    for (int64_t n = 0; n < steps; n++) {
        ups_walled_diffuse_square(cells, q_u, pivots_u, u, scratch);
        ups_walled_diffuse_square(cells, q_v, pivots_v, v, scratch);
        react(count, n + 1 < steps ? dt : 0.5 * dt, medium->k, u, v); /* the halves of neighbouring steps are one */
    }
}

int64_t ups_diffreact2d_march(int64_t cells, const ups_activation *medium, double begin, double end, double *u,
                              double *v, double *scratch) {
    const double cell = width / (double)cells;
    const double crossing = cell * cell / fmax(medium->diffusion_u, medium->diffusion_v);
    double now = begin;
    int64_t taken = 0;
    while (now < end) {
        const double until = fmin(end, fmax(2.0 * now, crossing)); /* equal steps that far */
        const double longest = fmin(longest_step, share_of_time * until);
        const int64_t steps = (int64_t)fmax(1.0, ceil((until - now) / longest));
        ups_diffreact2d_advance(cells, medium, (until - now) / (double)steps, steps, u, v, scratch);
        now = until;
        taken += steps;
    }
    return taken;
}

/* ---- as `ups datagen` sees it ---- */

enum { DU, DV, K, T_END, PARAMETER_COUNT };
static const ups_solver_parameter parameters[PARAMETER_COUNT] = {
    [DU] = {"Du", 1e-3, 1e-8, 1.0, UPS_REAL, "length^2/time", "diffusion coefficient of the activator"},
    [DV] = {"Dv", 5e-3, 1e-8, 1.0, UPS_REAL, "length^2/time", "diffusion coefficient of the inhibitor"},
    [K] = {"k", 5e-3, -1.0, 1.0, UPS_REAL, "1", "reaction parameter"},
    [T_END] = {"t_end", 5.0, 1e-6, 1e4, UPS_SHARED, "time", "last stored time"},
};

static void describe(const ups_solver_setup *setup, const void *plan, ups_file_layout *layout) {
    layout->seed_groups = true;
    ups_file_add_array(layout, "data", setup->steps, 2, setup->resolution, 2);
    ups_file_add_centres(layout, "grid/x", setup->resolution, -1.0, 1.0);
    ups_file_add_centres(layout, "grid/y", setup->resolution, -1.0, 1.0);
    ups_file_add_times(layout, "grid/t", setup->steps, setup->steps, setup->parameters[T_END]);
}

static void configure(const ups_solver_setup *setup, int64_t sample, FILE *yaml) {
    const double *p = setup->parameters;
    const long long cells = setup->resolution;
    fprintf(yaml, "name: 2d_diff-react\nsim:\n  Du: %.15g\n  Dv: %.15g\n  k: %.15g\n  t: %.15g\n  tdim: %lld\n", p[DU],
            p[DV], p[K], p[T_END], (long long)setup->steps);
    fprintf(yaml, "  x_left: -1.0\n  x_right: 1.0\n  xdim: %lld\n  y_bottom: -1.0\n  y_top: 1.0\n  ydim: %lld\n", cells,
            cells);
    fprintf(yaml, "  n: 1\n  seed: %lld\n", (long long)sample);
}

static size_t scratch_bytes(const ups_solver_setup *setup, const void *plan) {
    const size_t plane = (size_t)(setup->resolution * setup->resolution);
    return sizeof(double) * (2 * plane + ups_diffreact2d_scratch(setup->resolution));
}

static ups_status solve(const ups_solver_setup *setup, const void *plan, int64_t sample, void *scratch, ups_sink *sink,
                        ups_error *error) {
    const int64_t cells = setup->resolution, count = cells * cells, steps = setup->steps;
    const double *p = setup->parameters;
    const ups_activation medium = {p[DU], p[DV], p[K]};
    double *u = scratch, *v = u + count, *work = v + count;
    double *const planes[2] = {u, v};
    const ups_random stream = ups_random_stream(setup->seed, UPS_RANDOM_DATAGEN, (uint32_t)sample);
    for (int64_t i = 0; i < 2 * count; i++) u[i] = ups_random_normal(stream, (uint64_t)i);
    if (setup->initial) UPS_TRY(ups_initial_fields_read(setup->initial, sample, planes, error));
    UPS_TRY(ups_sink_put_channels(sink, 0, 0, (const double *const *)planes, error));
    for (int64_t stored = 1; stored < steps; stored++) {
        ups_diffreact2d_march(cells, &medium, ups_solver_time(p[T_END], steps, stored - 1),
                              ups_solver_time(p[T_END], steps, stored), u, v, work);
        UPS_TRY(ups_sink_put_channels(sink, 0, stored, (const double *const *)planes, error));
    }
    return UPS_OK;
}

const ups_solver ups_diffreact2d = {
    .name = "diffreact2d",
    .summary = "diffusion-reaction of FitzHugh and Nagumo, between walls",
    .equation = "u_t = Du Laplace(u) + u - u^3 - k - v, v_t = Dv Laplace(v) + u - v on [-1, 1]^2, nothing crosses the\n"
                "walls. Strang splitting of reaction (Runge-Kutta) and implicit, L-stable diffusion; second order in\n"
                "space and time. Both fields begin as normal noise, cell by cell.",
    .parameters = parameters,
    .parameter_count = PARAMETER_COUNT,
    .default_resolution = 128,
    .minimum_resolution = 4,
    .maximum_resolution = 4096,
    .default_steps = 101,
    .dims = 2,
    .state = (const char *const[]){"activator", "inhibitor", NULL},
    .describe = describe,
    .configure = configure,
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};
