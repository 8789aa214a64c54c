#include "tools/solvers/compressible/datagen.h"
#include "tools/solvers/compressible/compressible.h"
#include "tools/solvers/compressible/fields.h"

#include <math.h>

static const double gamma_gas = 5.0 / 3.0;

/* The parameters that all kinds have, in this order; those of a kind follow. */
enum { ETA, ZETA, T_END, OWN };
/* Of the kinds that choose their boundaries, and of those made of waves. */
enum { OUTGOING = OWN, LINE_COUNT };
enum { MACH = OWN };
enum { WAVES_K_MAX = MACH + 1, WAVES_OUTGOING, WAVES_COUNT };
enum { TURB_K_MAX = MACH + 1, TURB_COUNT };
enum { KH_RATIO = MACH + 1, KH_COUNT };
enum { SOD_TEST = OWN, SOD_COUNT };
enum { OTVORTEX_COUNT = OWN };

/* clang-format off: a table */
#define SHEAR(default_value) [ETA] = {"eta", default_value, 0.0, 10.0, false, "mass/(length*time)", "shear viscosity"}
#define BULK(default_value) [ZETA] = {"zeta", default_value, 0.0, 10.0, false, "mass/(length*time)", "bulk viscosity"}
#define END(default_value) [T_END] = {"t_end", default_value, 1e-6, 1e3, false, "time", "last stored time"}
#define MACH_NUMBER(default_value)                                                                                     \
    [MACH] = {"M", default_value, 1e-3, 10.0, false, "1", "mean speed over the speed of sound"}
/* clang-format on */

static const char k_max_help[] = "largest wavenumber along an axis";
static const char outgoing_help[] = "boundaries: 0 periodic, 1 outgoing";

static const ups_solver_parameter rand1d_parameters[LINE_COUNT] = {
    SHEAR(0.01), BULK(0.01), END(1.0), [OUTGOING] = {"outgoing", 0, 0, 1, true, "1", outgoing_help}};
static const ups_solver_parameter shock1d_parameters[LINE_COUNT] = {
    SHEAR(1e-8), BULK(1e-8), END(0.4), [OUTGOING] = {"outgoing", 1, 0, 1, true, "1", outgoing_help}};
static const ups_solver_parameter sod1d_parameters[SOD_COUNT] = {
    SHEAR(1e-8), BULK(1e-8),
    END(0.4), [SOD_TEST] = {"test", 1, 1, 7, true, "1", "which of Toro's problems; 1 is Sod's. All samples are alike"}};
static const ups_solver_parameter rand2d_parameters[WAVES_COUNT] = {
    SHEAR(1e-8),
    BULK(1e-8),
    END(1.0),
    MACH_NUMBER(0.1),
    [WAVES_K_MAX] = {"k_max", 4, 1, 16, true, "1", k_max_help},
    [WAVES_OUTGOING] = {"outgoing", 0, 0, 1, true, "1", outgoing_help}};
static const ups_solver_parameter rand3d_parameters[WAVES_COUNT] = {
    SHEAR(1e-8),
    BULK(1e-8),
    END(1.0),
    MACH_NUMBER(1.0),
    [WAVES_K_MAX] = {"k_max", 4, 1, 16, true, "1", k_max_help},
    [WAVES_OUTGOING] = {"outgoing", 0, 0, 1, true, "1", outgoing_help}};
static const ups_solver_parameter turb2d_parameters[TURB_COUNT] = {
    SHEAR(1e-8), BULK(1e-8), END(1.0), MACH_NUMBER(0.1), [TURB_K_MAX] = {"k_max", 4, 1, 16, true, "1", k_max_help}};
static const ups_solver_parameter turb3d_parameters[TURB_COUNT] = {
    SHEAR(1e-8), BULK(1e-8), END(1.0), MACH_NUMBER(1.0), [TURB_K_MAX] = {"k_max", 4, 1, 16, true, "1", k_max_help}};
static const ups_solver_parameter kh2d_parameters[KH_COUNT] = {
    SHEAR(1e-8), BULK(1e-8), END(2.0), MACH_NUMBER(0.1),
    [KH_RATIO] = {"ratio_max", 2.0, 1.0, 100.0, false, "1", "largest ratio of the streams' densities"}};
static const ups_solver_parameter otvortex2d_parameters[OTVORTEX_COUNT] = {SHEAR(1e-8), BULK(1e-8), END(1.0)};

/* ---- the kinds ---- */

/* What is shared by all samples of one kind; the `plan` of its solver. */
typedef enum boundaries { PERIODIC, OUTFLOW, PERIODIC_ALONG_X, AS_PARAMETER } boundaries;

typedef struct flow_kind {
    int axes;
    double begin, length; /* of the domain along each axis */
    boundaries boundaries;
    int outgoing; /* index of that parameter, for AS_PARAMETER */
    int mach;     /* index of that parameter; 0: it has none */
    int k_max;    /* index of that parameter; 0: not made of waves */
    void (*fill)(const ups_solver_setup *setup, int64_t sample, double *const *fields, double *scratch);
} flow_kind;

static ups_gas_waves waves_of(const ups_solver_setup *setup, int axes, int k_max) {
    return (ups_gas_waves){.axes = axes,
                           .cells = setup->resolution,
                           .k_max = (int)setup->parameters[k_max],
                           .mach = setup->parameters[MACH],
                           .gamma = gamma_gas};
}

static void fill_rand1d(const ups_solver_setup *setup, int64_t sample, double *const *fields, double *scratch) {
    ups_gas_random_line(setup->resolution, setup->seed, sample, fields);
}

static void fill_shock1d(const ups_solver_setup *setup, int64_t sample, double *const *fields, double *scratch) {
    ups_gas_random_shock(setup->resolution, setup->seed, sample, fields);
}

static void fill_sod1d(const ups_solver_setup *setup, int64_t sample, double *const *fields, double *scratch) {
    ups_gas_shock_tube(setup->resolution, (int)setup->parameters[SOD_TEST], fields);
}

static void fill_rand2d(const ups_solver_setup *setup, int64_t sample, double *const *fields, double *scratch) {
    const ups_gas_waves waves = waves_of(setup, 2, WAVES_K_MAX);
    ups_gas_random_waves(&waves, setup->seed, sample, fields, scratch);
}

static void fill_rand3d(const ups_solver_setup *setup, int64_t sample, double *const *fields, double *scratch) {
    const ups_gas_waves waves = waves_of(setup, 3, WAVES_K_MAX);
    ups_gas_random_waves(&waves, setup->seed, sample, fields, scratch);
}

static void fill_turb2d(const ups_solver_setup *setup, int64_t sample, double *const *fields, double *scratch) {
    const ups_gas_waves waves = waves_of(setup, 2, TURB_K_MAX);
    ups_gas_turbulence(&waves, setup->seed, sample, fields, scratch);
}

static void fill_turb3d(const ups_solver_setup *setup, int64_t sample, double *const *fields, double *scratch) {
    const ups_gas_waves waves = waves_of(setup, 3, TURB_K_MAX);
    ups_gas_turbulence(&waves, setup->seed, sample, fields, scratch);
}

static void fill_kh2d(const ups_solver_setup *setup, int64_t sample, double *const *fields, double *scratch) {
    ups_gas_kelvin_helmholtz(setup->resolution, setup->parameters[MACH], setup->parameters[KH_RATIO], gamma_gas,
                             setup->seed, sample, fields);
}

static void fill_otvortex2d(const ups_solver_setup *setup, int64_t sample, double *const *fields, double *scratch) {
    ups_gas_orszag_tang(setup->resolution, gamma_gas, fields);
}

/* clang-format off: a table */
static const flow_kind rand1d = {1, -1, 2, AS_PARAMETER, OUTGOING, 0, 0, fill_rand1d};
static const flow_kind shock1d = {1, -1, 2, AS_PARAMETER, OUTGOING, 0, 0, fill_shock1d};
static const flow_kind sod1d = {1, -1, 2, OUTFLOW, 0, 0, 0, fill_sod1d};
static const flow_kind rand2d = {2, 0, 1, AS_PARAMETER, WAVES_OUTGOING, MACH, WAVES_K_MAX, fill_rand2d};
static const flow_kind turb2d = {2, 0, 1, PERIODIC, 0, MACH, TURB_K_MAX, fill_turb2d};
static const flow_kind kh2d = {2, 0, 1, PERIODIC_ALONG_X, 0, MACH, 0, fill_kh2d};
static const flow_kind otvortex2d = {2, 0, 1, PERIODIC, 0, 0, 0, fill_otvortex2d};
static const flow_kind rand3d = {3, 0, 1, AS_PARAMETER, WAVES_OUTGOING, MACH, WAVES_K_MAX, fill_rand3d};
static const flow_kind turb3d = {3, 0, 1, PERIODIC, 0, MACH, TURB_K_MAX, fill_turb3d};
/* clang-format on */

/* ---- what is common ---- */

static bool is_periodic(const ups_solver_setup *setup, const flow_kind *kind, int axis) {
    switch (kind->boundaries) {
    case PERIODIC:
        return true;
    case OUTFLOW:
        return false;
    case PERIODIC_ALONG_X:
        return axis == 0;
    default:
        return setup->parameters[kind->outgoing] < 0.5;
    }
}

static ups_compressible_problem problem_of(const ups_solver_setup *setup, const flow_kind *kind) {
    ups_compressible_problem problem = {
        .axes = kind->axes,
        .gamma = gamma_gas,
        .shear = setup->parameters[ETA],
        .bulk = setup->parameters[ZETA],
    };
    for (int a = 0; a < kind->axes; a++) {
        problem.cells[a] = setup->resolution;
        problem.width[a] = kind->length / (double)setup->resolution;
        problem.periodic[a] = is_periodic(setup, kind, a);
    }
    return problem;
}

static int64_t all_cells(const ups_solver_setup *setup, int axes) {
    int64_t cells = 1;
    for (int a = 0; a < axes; a++) cells *= setup->resolution;
    return (cells + 7) / 8 * 8;
}

static size_t waves_doubles(const ups_solver_setup *setup, const flow_kind *kind) {
    if (kind->k_max == 0) return 0;
    const ups_gas_waves waves = waves_of(setup, kind->axes, kind->k_max);
    return ups_gas_waves_scratch(&waves);
}

/* Fields to begin with; then the flow, or before that the working memory of the fields, whichever is larger. */
static size_t scratch_bytes(const ups_solver_setup *setup, const void *plan) {
    const flow_kind *kind = plan;
    const ups_compressible_problem problem = problem_of(setup, kind);
    const size_t fields = sizeof(double) * (size_t)(kind->axes + 2) * (size_t)all_cells(setup, kind->axes);
    const size_t flow = ups_compressible_bytes(&problem), waves = sizeof(double) * waves_doubles(setup, kind);
    return fields + (flow > waves ? flow : waves);
}

static ups_status put_frame(const ups_compressible *flow, int axes, int64_t frame, double *field, ups_sink *sink,
                            ups_error *error) {
    /* in the file: density, pressure, velocities */
    for (int array = 0; array < axes + 2; array++) {
        ups_compressible_get(flow, array == 0 ? 0 : array == 1 ? axes + 1 : array - 1, field);
        UPS_TRY(ups_sink_put(sink, array, frame, field, error));
    }
    return UPS_OK;
}

static ups_status solve(const ups_solver_setup *setup, const void *plan, int64_t sample, void *scratch, ups_sink *sink,
                        ups_error *error) {
    const flow_kind *kind = plan;
    const ups_compressible_problem problem = problem_of(setup, kind);
    const int64_t all = all_cells(setup, kind->axes), steps = setup->steps;
    const double end = setup->parameters[T_END];
    double *fields[UPS_COMPRESSIBLE_VARIABLES] = {0}, *free_memory = scratch;
    for (int v = 0; v < kind->axes + 2; v++, free_memory += all) fields[v] = free_memory;
    kind->fill(setup, sample, fields, free_memory);
    ups_compressible *flow = ups_compressible_place(&problem, free_memory);
    ups_compressible_set(flow, (const double *const *)fields);
    UPS_TRY(put_frame(flow, kind->axes, 0, fields[0], sink, error));
    for (int64_t stored = 1; stored < steps; stored++) {
        const double interval = ups_solver_time(end, steps, stored) - ups_solver_time(end, steps, stored - 1);
        UPS_TRY(ups_compressible_advance(flow, interval, NULL, error));
        UPS_TRY(put_frame(flow, kind->axes, stored, fields[0], sink, error));
    }
    return UPS_OK;
}

/* The boundaries in the words of PDEBench's own settings. */
static const char *boundary_word(const ups_solver_setup *setup, const flow_kind *kind) {
    if (kind->boundaries == PERIODIC_ALONG_X) return "KHI";
    return is_periodic(setup, kind, 0) ? "periodic" : "trans";
}

static void describe(const ups_solver_setup *setup, ups_file_layout *layout, const flow_kind *kind) {
    static const char *const velocities[3] = {"Vx", "Vy", "Vz"};
    static const char *const coordinates[3] = {"x-coordinate", "y-coordinate", "z-coordinate"};
    const int axes = kind->axes;
    ups_file_add_array(layout, "density", setup->steps, axes, setup->resolution, 0);
    ups_file_add_array(layout, "pressure", setup->steps, axes, setup->resolution, 0);
    for (int a = 0; a < axes; a++) ups_file_add_array(layout, velocities[a], setup->steps, axes, setup->resolution, 0);
    for (int a = 0; a < axes; a++)
        ups_file_add_centres(layout, coordinates[a], setup->resolution, kind->begin, kind->begin + kind->length);
    ups_file_add_times(layout, "t-coordinate", setup->steps + 1, setup->steps, setup->parameters[T_END]);
    ups_file_add_attribute(layout, "eta", setup->parameters[ETA]);
    ups_file_add_attribute(layout, "zeta", setup->parameters[ZETA]);
    if (kind->mach) ups_file_add_attribute(layout, "M", setup->parameters[kind->mach]);
    ups_file_add_text(layout, "bc", boundary_word(setup, kind));
}

/* What differs between solvers is their kind: it is the plan, and nothing is to be released. */
#define ENTRANCES(kind)                                                                                                \
    static ups_status prepare_##kind(const ups_solver_setup *setup, void **plan, ups_error *error) {                   \
        *plan = (void *)&kind;                                                                                         \
        return UPS_OK;                                                                                                 \
    }                                                                                                                  \
    static void describe_##kind(const ups_solver_setup *setup, ups_file_layout *layout) {                              \
        describe(setup, layout, &kind);                                                                                \
    }

ENTRANCES(rand1d)
ENTRANCES(shock1d)
ENTRANCES(sod1d)
ENTRANCES(rand2d)
ENTRANCES(turb2d)
ENTRANCES(kh2d)
ENTRANCES(otvortex2d)
ENTRANCES(rand3d)
ENTRANCES(turb3d)

#define EQUATIONS                                                                                                      \
    "rho_t + div(rho v) = 0, (rho v)_t + div(rho v v) + grad p = div tau, E_t + div((E + p) v) = div(tau v),\n"        \
    "an ideal gas with ratio 5/3 of specific heats, shear viscosity eta, bulk viscosity zeta and no conduction of\n"   \
    "heat. Finite volumes, second order in space and time: limited linear reconstruction, the HLLC solver, "           \
    "two-stage\n"                                                                                                      \
    "Runge-Kutta; stiff viscosity by RKL2. The step follows the Courant limit and every stored time is met exactly.\n"

const ups_solver ups_cfd1d_rand = {
    .name = "cfd1d_rand",
    .summary = "compressible Navier-Stokes 1D from random waves; MUSCL-HLLC",
    .equation = EQUATIONS
    "On [-1, 1); density and pressure begin as random sines scaled to random ranges, velocity as random sines.",
    .parameters = rand1d_parameters,
    .parameter_count = LINE_COUNT,
    .default_resolution = 1024,
    .minimum_resolution = 8,
    .maximum_resolution = 1 << 17,
    .default_steps = 101,
    .describe = describe_rand1d,
    .prepare = prepare_rand1d,
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};

const ups_solver ups_cfd1d_shock = {
    .name = "cfd1d_shock",
    .summary = "compressible Navier-Stokes 1D from random jumps; MUSCL-HLLC",
    .equation = EQUATIONS "On [-1, 1]; density, velocity and pressure begin with one random jump each.",
    .parameters = shock1d_parameters,
    .parameter_count = LINE_COUNT,
    .default_resolution = 1024,
    .minimum_resolution = 8,
    .maximum_resolution = 1 << 17,
    .default_steps = 101,
    .describe = describe_shock1d,
    .prepare = prepare_shock1d,
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};

const ups_solver ups_cfd1d_sod = {
    .name = "cfd1d_sod",
    .summary = "compressible Navier-Stokes 1D, shock tubes of Sod and Toro; MUSCL-HLLC",
    .equation = EQUATIONS "On [-1, 1] with open ends; param test chooses the shock tube.",
    .parameters = sod1d_parameters,
    .parameter_count = SOD_COUNT,
    .default_resolution = 1024,
    .minimum_resolution = 8,
    .maximum_resolution = 1 << 17,
    .default_steps = 101,
    .describe = describe_sod1d,
    .prepare = prepare_sod1d,
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};

const ups_solver ups_cfd2d_rand = {
    .name = "cfd2d_rand",
    .summary = "compressible Navier-Stokes 2D from random waves; MUSCL-HLLC",
    .equation = EQUATIONS "On the unit square; random waves in all fields, half of the samples seen through a window.",
    .parameters = rand2d_parameters,
    .parameter_count = WAVES_COUNT,
    .default_resolution = 128,
    .minimum_resolution = 8,
    .maximum_resolution = 4096,
    .default_steps = 21,
    .describe = describe_rand2d,
    .prepare = prepare_rand2d,
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};

const ups_solver ups_cfd2d_turb = {
    .name = "cfd2d_turb",
    .summary = "compressible Navier-Stokes 2D, decaying turbulence; MUSCL-HLLC",
    .equation = EQUATIONS "On the periodic unit square; solenoidal waves of mean speed 1 in a uniform gas.",
    .parameters = turb2d_parameters,
    .parameter_count = TURB_COUNT,
    .default_resolution = 512,
    .minimum_resolution = 8,
    .maximum_resolution = 4096,
    .default_steps = 21,
    .describe = describe_turb2d,
    .prepare = prepare_turb2d,
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};

const ups_solver ups_cfd2d_kh = {
    .name = "cfd2d_kh",
    .summary = "compressible Navier-Stokes 2D, Kelvin-Helmholtz instability; MUSCL-HLLC",
    .equation =
        EQUATIONS "On the unit square, periodic along x, open along y; two streams slide along a wavy interface.",
    .parameters = kh2d_parameters,
    .parameter_count = KH_COUNT,
    .default_resolution = 1024,
    .minimum_resolution = 8,
    .maximum_resolution = 4096,
    .default_steps = 51,
    .describe = describe_kh2d,
    .prepare = prepare_kh2d,
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};

const ups_solver ups_cfd2d_otvortex = {
    .name = "cfd2d_otvortex",
    .summary = "compressible Navier-Stokes 2D, Orszag-Tang vortex; MUSCL-HLLC",
    .equation = EQUATIONS "On the periodic unit square; all samples are alike.",
    .parameters = otvortex2d_parameters,
    .parameter_count = OTVORTEX_COUNT,
    .default_resolution = 1024,
    .minimum_resolution = 8,
    .maximum_resolution = 4096,
    .default_steps = 101,
    .describe = describe_otvortex2d,
    .prepare = prepare_otvortex2d,
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};

const ups_solver ups_cfd3d_rand = {
    .name = "cfd3d_rand",
    .summary = "compressible Navier-Stokes 3D from random waves; MUSCL-HLLC",
    .equation = EQUATIONS "On the unit cube; random waves in all fields, half of the samples seen through a window.",
    .parameters = rand3d_parameters,
    .parameter_count = WAVES_COUNT,
    .default_resolution = 128,
    .minimum_resolution = 8,
    .maximum_resolution = 1024,
    .default_steps = 21,
    .describe = describe_rand3d,
    .prepare = prepare_rand3d,
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};

const ups_solver ups_cfd3d_turb = {
    .name = "cfd3d_turb",
    .summary = "compressible Navier-Stokes 3D, decaying turbulence; MUSCL-HLLC",
    .equation = EQUATIONS "On the periodic unit cube; solenoidal waves of mean speed 1 in a uniform gas.",
    .parameters = turb3d_parameters,
    .parameter_count = TURB_COUNT,
    .default_resolution = 64,
    .minimum_resolution = 8,
    .maximum_resolution = 1024,
    .default_steps = 21,
    .describe = describe_turb3d,
    .prepare = prepare_turb3d,
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};
