#include "tools/solvers/incompressible/datagen.h"
#include "tools/solvers/incompressible/incompressible.h"
#include "tools/solvers/incompressible/noise.h"

enum { NU, DIFFUSIVITY, T_END, PERIODIC, CARRIED, SCALE, SMOOTHNESS, FORCE_SCALE, FORCE_SMOOTHNESS, PARAMETER_COUNT };
static const ups_solver_parameter parameters[PARAMETER_COUNT] = {
    [NU] = {"nu", 0.01, 0.0, 1.0, UPS_REAL | UPS_PLANNED, "length^2/time", "kinematic viscosity"},
    [DIFFUSIVITY] = {"diffusivity", 0.0, 0.0, 1.0, UPS_REAL | UPS_PLANNED, "length^2/time", "of the particles"},
    [T_END] = {"t_end", 5.0, 1e-6, 1e3, UPS_SHARED, "time", "last stored time"},
    [PERIODIC] = {"periodic", 0, 0, 1, UPS_WHOLE | UPS_SHARED, "1", "boundaries: 0 no-slip walls, 1 periodic"},
    [CARRIED] = {"carried_force", 1, 0, 1, UPS_WHOLE | UPS_PLANNED, "1",
                 "what the force acts on: 1 the particles, 0 the fluid"},
    [SCALE] = {"scale", 0.4, 0.05, 10.0, UPS_REAL, "length", "of the noise that velocity and particles begin as"},
    [SMOOTHNESS] = {"smoothness", 1.0, 0.5, 8.0, UPS_REAL, "1", "of that noise"},
    [FORCE_SCALE] = {"force_scale", 0.15, 0.05, 10.0, UPS_REAL, "length", "of the noise that the force is"},
    [FORCE_SMOOTHNESS] = {"force_smoothness", 3.0, 0.5, 8.0, UPS_REAL, "1", "of that noise"},
};

/* Arrays, in the order of the file; and the noises, each from its own part of the random stream. */
enum { VELOCITY, PARTICLES, FORCE, TIME };
enum { VELOCITY_NOISE, PARTICLE_NOISE, FORCE_NOISE };

static void describe(const ups_solver_setup *setup, const void *plan, ups_file_layout *layout) {
    ups_file_add_array(layout, "velocity", setup->steps, 2, setup->resolution, 2);
    ups_file_add_array(layout, "particles", setup->steps, 2, setup->resolution, 1);
    ups_file_add_array(layout, "force", 0, 2, setup->resolution, 2);
    ups_file_add_array(layout, "t", setup->steps, 0, setup->resolution, 0);
}

static void configure(const ups_solver_setup *setup, int64_t sample, FILE *yaml) {
    const double *p = setup->parameters;
    fprintf(yaml, "sim_name: ns_sim_2d\ndomain_size: [1, 1]\ngrid_size: [%lld, %lld]\n", (long long)setup->resolution,
            (long long)setup->resolution);
    fprintf(yaml, "velocity_extrapolation: %s\nparticle_extrapolation: %s\n", p[PERIODIC] > 0.5 ? "PERIODIC" : "ZERO",
            p[PERIODIC] > 0.5 ? "PERIODIC" : "BOUNDARY");
    fprintf(yaml, "seed: %llu\n", (unsigned long long)setup->seed);
    static const struct {
        int parameter;
        const char *name;
    } kept[] = {{NU, "NU"},
                {DIFFUSIVITY, "diffusivity"},
                {SCALE, "scale"},
                {SMOOTHNESS, "smoothness"},
                {FORCE_SCALE, "force_scale"},
                {FORCE_SMOOTHNESS, "force_smoothness"}};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) { /* what is drawn is each sample's own */
        if (!setup->ranges[kept[i].parameter].drawn) fprintf(yaml, "%s: %.15g\n", kept[i].name, p[kept[i].parameter]);
    }
}

static ups_status prepare(const ups_solver_setup *setup, void **plan, ups_error *error) {
    const ups_incompressible_problem problem = {
        .cells = setup->resolution,
        .periodic = setup->parameters[PERIODIC] > 0.5,
        .viscosity = setup->parameters[NU],
        .diffusivity = setup->parameters[DIFFUSIVITY],
        .carried_force = setup->parameters[CARRIED] > 0.5,
    };
    ups_incompressible_plan *made;
    UPS_TRY(ups_incompressible_plan_create(&problem, &made, error));
    *plan = made;
    return UPS_OK;
}

static void release(void *plan) {
    ups_incompressible_plan_destroy(plan);
}

static size_t field_doubles(const ups_solver_setup *setup) {
    return (size_t)((setup->resolution * setup->resolution + 7) / 8 * 8);
}

static size_t scratch_bytes(const ups_solver_setup *setup, const void *plan) {
    const size_t noise = sizeof(double) * ups_noise_scratch(setup->resolution), flow = ups_incompressible_bytes(plan);
    return sizeof(double) * 2 * field_doubles(setup) + flow + noise;
}

/* Both components of a vector field at the faces. */
static void draw_vector(const ups_solver_setup *setup, const ups_noise *noise, int64_t sample, int field,
                        double *const planes[2], double *scratch) {
    const int64_t cells = setup->resolution;
    ups_noise_draw(noise, setup->seed, sample, field, 0, cells, 0.0, 0.5, planes[0], scratch);
    ups_noise_draw(noise, setup->seed, sample, field, 1, cells, 0.5, 0.0, planes[1], scratch);
}

static void fill(const ups_solver_setup *setup, int64_t sample, ups_incompressible *flow, double *const planes[2],
                 double *scratch) {
    const double *p = setup->parameters;
    const ups_noise begin = {p[SCALE], p[SMOOTHNESS], 2}, particles = {p[SCALE], p[SMOOTHNESS], 1};
    const ups_noise force = {p[FORCE_SCALE], p[FORCE_SMOOTHNESS], 2};
    draw_vector(setup, &begin, sample, VELOCITY_NOISE, planes, scratch);
    ups_incompressible_set_velocity(flow, planes[0], planes[1]);
    draw_vector(setup, &force, sample, FORCE_NOISE, planes, scratch);
    ups_incompressible_set_force(flow, planes[0], planes[1]);
    ups_noise_draw(&particles, setup->seed, sample, PARTICLE_NOISE, 0, setup->resolution, 0.5, 0.5, planes[0], scratch);
    ups_incompressible_set_scalar(flow, planes[0]);
    ups_incompressible_begin(flow);
}

static ups_status put_frame(const ups_incompressible *flow, int64_t frame, double time, double *const planes[2],
                            ups_sink *sink, ups_error *error) {
    ups_incompressible_velocity(flow, planes[0], planes[1]);
    UPS_TRY(ups_sink_put_channels(sink, VELOCITY, frame, (const double *const *)planes, error));
    ups_incompressible_scalar(flow, planes[0]);
    UPS_TRY(ups_sink_put_channels(sink, PARTICLES, frame, (const double *const *)planes, error));
    return ups_sink_put(sink, TIME, frame, &time, error);
}

static ups_status solve(const ups_solver_setup *setup, const void *plan, int64_t sample, void *scratch, ups_sink *sink,
                        ups_error *error) {
    const int64_t steps = setup->steps;
    const double end = setup->parameters[T_END];
    const size_t field = field_doubles(setup), flow_bytes = ups_incompressible_bytes(plan);
    double *const planes[2] = {scratch, (double *)scratch + field};
    void *memory = planes[1] + field;
    ups_incompressible *flow = ups_incompressible_place(plan, memory);
    fill(setup, sample, flow, planes, (double *)((char *)memory + flow_bytes));
    ups_incompressible_force(flow, planes[0], planes[1]);
    UPS_TRY(ups_sink_put_channels(sink, FORCE, 0, (const double *const *)planes, error));
    UPS_TRY(put_frame(flow, 0, 0.0, planes, sink, error));
    for (int64_t stored = 1; stored < steps; stored++) {
        const double before = ups_solver_time(end, steps, stored - 1), now = ups_solver_time(end, steps, stored);
        UPS_TRY(ups_incompressible_advance(flow, now - before, NULL, error));
        UPS_TRY(put_frame(flow, stored, now, planes, sink, error));
    }
    return UPS_OK;
}

const ups_solver ups_ns_incom2d = {
    .name = "ns_incom2d",
    .summary = "incompressible Navier-Stokes 2D with particles; projection on a staggered grid",
    .equation =
        "v_t + div(v v) = -grad p + nu lap v + s f(x, y), div v = 0, s_t + div(s v) = diffusivity lap s on the unit\n"
        "square between no-slip walls (or periodic): velocity v, density s of particles, a random force f. Staggered\n"
        "grid, Heun's method with implicit diffusion, projection to rounding; second order in space and time. The "
        "step\n"
        "follows the Courant limit and every stored time is met exactly. Velocity, particles and force begin as "
        "smooth\n"
        "noise of mean 0 and variance 1, the velocity then made free of divergence.",
    .parameters = parameters,
    .parameter_count = PARAMETER_COUNT,
    .default_resolution = 512,
    .minimum_resolution = 8,
    .maximum_resolution = 4096,
    .default_steps = 1001,
    .dims = 2,
    .describe = describe,
    .configure = configure,
    .prepare = prepare,
    .release = release,
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};
