#include "tools/solvers/compressible/datagen.h"
#include "tools/solvers/compressible/compressible.h"
#include "tools/solvers/compressible/fields.h"
#include "tools/solvers/initial/initial_conditions.h"
#include "tools/solvers/initial/initial_fields.h"

#include <string.h>

static const double gamma_gas = 5.0 / 3.0;

/* Where the domain is open; elsewhere it is periodic. */
typedef enum open_ends { AS_ASKED, EVERYWHERE, ALONG_Y } open_ends; /* AS_ASKED: by the parameter "outgoing", if any */

/* What one kind of flow has of its own: what `kind` of its solver leads to. */
typedef struct flow_kind {
    int axes;
    double begin, length; /* of the domain along each axis */
    open_ends open;
    void (*fill)(const ups_solver_setup *setup, const ups_gas_waves *waves, int64_t sample, double *const *fields,
                 double *scratch);
} flow_kind;

static const flow_kind *kind_of(const ups_solver_setup *setup) {
    return setup->solver->kind;
}

/* ---- parameters ---- */

static const ups_solver_parameter *find(const ups_solver *solver, const char *name) {
    for (int i = 0; i < solver->parameter_count; i++) {
        if (strcmp(solver->parameters[i].name, name) == 0) return &solver->parameters[i];
    }
    return NULL;
}

/* The parameter of that name; 0 in a kind of flow that has none. */
static double value(const ups_solver_setup *setup, const char *name) {
    const ups_solver_parameter *parameter = find(setup->solver, name);
    return parameter ? setup->parameters[parameter - setup->solver->parameters] : 0.0;
}

static bool is_periodic(const ups_solver_setup *setup, int axis) {
    const open_ends open = kind_of(setup)->open;
    if (open == AS_ASKED) return value(setup, "outgoing") < 0.5;
    return open == ALONG_Y && axis == 0;
}

enum { BY_MASS, OF_NEWTON }; /* what the parameter `stress` chooses from */

static ups_compressible_problem problem_of(const ups_solver_setup *setup) {
    const flow_kind *kind = kind_of(setup);
    ups_compressible_problem problem = {
        .axes = kind->axes,
        .gamma = gamma_gas,
        .shear = value(setup, "eta"),
        .bulk = value(setup, "zeta"),
        .by_mass = value(setup, "stress") == BY_MASS,
    };
    for (int a = 0; a < kind->axes; a++) {
        problem.cells[a] = setup->resolution;
        problem.width[a] = kind->length / (double)setup->resolution;
        problem.periodic[a] = is_periodic(setup, a);
    }
    return problem;
}

static ups_wave_law law_of(const ups_solver_setup *setup) {
    return (ups_wave_law)value(setup, "initial");
}

static ups_gas_waves waves_of(const ups_solver_setup *setup) {
    return (ups_gas_waves){.axes = kind_of(setup)->axes,
                           .cells = setup->resolution,
                           .law = law_of(setup),
                           .k_max = (int)value(setup, "k_max"),
                           .mach = value(setup, "M"),
                           .gamma = gamma_gas};
}

/* ---- what flows begin as ---- */

static void fill_line(const ups_solver_setup *setup, const ups_gas_waves *waves, int64_t sample, double *const *fields,
                      double *scratch) {
    ups_gas_random_line(law_of(setup), setup->resolution, setup->seed, sample, fields);
}

static void fill_shock(const ups_solver_setup *setup, const ups_gas_waves *waves, int64_t sample, double *const *fields,
                       double *scratch) {
    ups_gas_random_shock(law_of(setup), setup->resolution, setup->seed, sample, fields);
}

static void fill_tube(const ups_solver_setup *setup, const ups_gas_waves *waves, int64_t sample, double *const *fields,
                      double *scratch) {
    ups_gas_shock_tube(setup->resolution, (int)value(setup, "test"), fields);
}

static void fill_waves(const ups_solver_setup *setup, const ups_gas_waves *waves, int64_t sample, double *const *fields,
                       double *scratch) {
    ups_gas_random_waves(waves, setup->seed, sample, fields, scratch);
}

static void fill_turbulence(const ups_solver_setup *setup, const ups_gas_waves *waves, int64_t sample,
                            double *const *fields, double *scratch) {
    ups_gas_turbulence(waves, setup->seed, sample, fields, scratch);
}

static void fill_streams(const ups_solver_setup *setup, const ups_gas_waves *waves, int64_t sample,
                         double *const *fields, double *scratch) {
    ups_gas_kelvin_helmholtz(setup->resolution, waves->mach, value(setup, "ratio_max"), gamma_gas, setup->seed, sample,
                             fields);
}

static void fill_vortex(const ups_solver_setup *setup, const ups_gas_waves *waves, int64_t sample,
                        double *const *fields, double *scratch) {
    ups_gas_orszag_tang(setup->resolution, gamma_gas, fields);
}

/* ---- what is common ---- */

static int64_t all_cells(const ups_solver_setup *setup, int axes) {
    int64_t cells = 1;
    for (int a = 0; a < axes; a++) cells *= setup->resolution;
    return (cells + 7) / 8 * 8;
}

/* Fields to begin with; then the flow, or before that the working memory of the fields, whichever is larger. */
static size_t scratch_bytes(const ups_solver_setup *setup, const void *plan) {
    const ups_compressible_problem problem = problem_of(setup);
    const ups_gas_waves waves = waves_of(setup);
    const size_t fields = sizeof(double) * (size_t)(problem.axes + 2) * (size_t)all_cells(setup, problem.axes);
    const size_t flow = ups_compressible_bytes(&problem);
    const size_t working = waves.k_max > 0 ? sizeof(double) * ups_gas_waves_scratch(&waves) : 0;
    return fields + (flow > working ? flow : working);
}

static ups_status read_given(const ups_solver_setup *setup, int64_t sample, double *const *fields, ups_error *error) {
    const int pressure = kind_of(setup)->axes + 1;
    UPS_TRY(ups_initial_fields_read(setup->initial, sample, fields, error));
    UPS_TRY(ups_initial_fields_check_positive(setup->initial, sample, "density", fields[0], error));
    return ups_initial_fields_check_positive(setup->initial, sample, "pressure", fields[pressure], error);
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
    const flow_kind *kind = kind_of(setup);
    const ups_compressible_problem problem = problem_of(setup);
    const ups_gas_waves waves = waves_of(setup);
    const int64_t all = all_cells(setup, kind->axes), steps = setup->steps;
    const double end = value(setup, "t_end");
    double *fields[UPS_COMPRESSIBLE_VARIABLES] = {0}, *free_memory = scratch;
    for (int v = 0; v < kind->axes + 2; v++, free_memory += all) fields[v] = free_memory;
    if (setup->initial)
        UPS_TRY(read_given(setup, sample, fields, error));
    else
        kind->fill(setup, &waves, sample, fields, free_memory);
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
static const char *boundary_word(const ups_solver_setup *setup) {
    if (kind_of(setup)->open == ALONG_Y) return "KHI";
    return is_periodic(setup, 0) ? "periodic" : "trans";
}

static void describe(const ups_solver_setup *setup, const void *plan, ups_file_layout *layout) {
    const flow_kind *kind = kind_of(setup);
    static const char *const velocities[3] = {"Vx", "Vy", "Vz"};
    static const char *const coordinates[3] = {"x-coordinate", "y-coordinate", "z-coordinate"};
    const int axes = kind->axes;
    ups_file_add_array(layout, "density", setup->steps, axes, setup->resolution, 0);
    ups_file_add_array(layout, "pressure", setup->steps, axes, setup->resolution, 0);
    for (int a = 0; a < axes; a++) ups_file_add_array(layout, velocities[a], setup->steps, axes, setup->resolution, 0);
    for (int a = 0; a < axes; a++)
        ups_file_add_centres(layout, coordinates[a], setup->resolution, kind->begin, kind->begin + kind->length);
    ups_file_add_times(layout, "t-coordinate", setup->steps + 1, setup->steps, value(setup, "t_end"));
    static const char *const kept[] = {"eta", "zeta", "M"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const ups_solver_parameter *parameter = find(setup->solver, kept[i]);
        if (parameter) ups_solver_keep(setup, (int)(parameter - setup->solver->parameters), kept[i], layout);
    }
    ups_file_add_text(layout, "bc", boundary_word(setup));
}

/* ---- the solvers ---- */

/* In the order in which the flow has them, by the number of axes. */
static const char *const fields_of[3][6] = {
    {"density", "Vx", "pressure"}, {"density", "Vx", "Vy", "pressure"}, {"density", "Vx", "Vy", "Vz", "pressure"}};

#define EQUATIONS                                                                                                      \
    "rho_t + div(rho v) = 0, (rho v)_t + div(rho v v) + grad p = div tau, E_t + div((E + p) v) = div(tau v),\n"        \
    "an ideal gas with ratio 5/3 of specific heats and no conduction of heat. tau_ab is rho times eta d_a v_b, with\n" \
    "4/3 eta + zeta for a = b, as PDEBench's script has it, or (stress=newton) Newton's, without rho.\n"               \
    "Finite volumes, second order in space and time: limited linear reconstruction, the HLLC solver, "                 \
    "two-stage\n"                                                                                                      \
    "Runge-Kutta; stiff viscosity by RKL2. The step follows the Courant limit and every stored time is met exactly.\n"

/* clang-format off */
#define FLOW(flow_name, begins)                                                                                        \
    .name = flow_name, .summary = "compressible Navier-Stokes " begins "; MUSCL-HLLC", .minimum_resolution = 8,        \
    .describe = describe, .scratch_bytes = scratch_bytes, .solve = solve
#define SIZES(resolution, most, steps)                                                                                 \
    .default_resolution = resolution, .maximum_resolution = most, .default_steps = steps
#define PARAMETERS(...)                                                                                                \
    .parameters = (const ups_solver_parameter[]){__VA_ARGS__},                                                         \
    .parameter_count = sizeof((const ups_solver_parameter[]){__VA_ARGS__}) / sizeof(ups_solver_parameter)
#define KIND(axes, ...)                                                                                                \
    .dims = axes, .state = fields_of[(axes) - 1], .kind = &(const flow_kind){axes, __VA_ARGS__}

/* Parameters that several kinds have, by their default values. All kinds begin with the first two lines. */
#define VISCOSITY(value)                                                                                               \
    {"eta", value, 0.0, 10.0, UPS_REAL, "length^2/time", "shear viscosity"},                                           \
    {"zeta", value, 0.0, 10.0, UPS_REAL, "length^2/time", "bulk viscosity"},                                           \
    {"stress", BY_MASS, 0, 1, UPS_CHOICE, "pdebench|newton",                                                           \
     "what eta and zeta count for: a unit of mass, as in PDEBench's script, or of volume"}
#define END(value) {"t_end", value, 1e-6, 1e3, UPS_SHARED, "time", "last stored time"}
#define MACH(value) {"M", value, 1e-3, 10.0, UPS_REAL, "1", "mean speed over the speed of sound"}
#define K_MAX(value) {"k_max", value, 1, 16, UPS_WHOLE, "1", "largest wavenumber along an axis"}
#define OUTGOING(value) {"outgoing", value, 0, 1, UPS_WHOLE | UPS_SHARED, "1", "boundaries: 0 periodic, 1 outgoing"}
/* clang-format on */

const ups_solver ups_cfd1d_rand = {
    FLOW("cfd1d_rand", "1D from random waves"),
    .equation = EQUATIONS
    "On [-1, 1); density and pressure begin as random sines scaled to random ranges, velocity as random sines.",
    PARAMETERS(VISCOSITY(0.01), END(1.0), OUTGOING(0), UPS_WAVE_INITIAL_PARAMETER),
    SIZES(1024, 1 << 17, 101),
    KIND(1, -1, 2, AS_ASKED, fill_line),
};

const ups_solver ups_cfd1d_shock = {
    FLOW("cfd1d_shock", "1D from random jumps"),
    .equation = EQUATIONS "On [-1, 1]; density, velocity and pressure begin with one random jump each.",
    PARAMETERS(VISCOSITY(1e-8), END(0.4), OUTGOING(1), UPS_WAVE_INITIAL_PARAMETER),
    SIZES(1024, 1 << 17, 101),
    KIND(1, -1, 2, AS_ASKED, fill_shock),
};

const ups_solver ups_cfd1d_sod = {
    FLOW("cfd1d_sod", "1D, shock tubes of Sod and Toro"),
    .equation = EQUATIONS "On [-1, 1] with open ends; param test chooses the shock tube.",
    PARAMETERS(VISCOSITY(1e-8), END(0.4),
               {"test", 1, 1, 7, UPS_WHOLE, "1", "which of Toro's problems; 1 is Sod's. All samples are alike"}),
    SIZES(1024, 1 << 17, 101),
    KIND(1, -1, 2, EVERYWHERE, fill_tube),
};

const ups_solver ups_cfd2d_rand = {
    FLOW("cfd2d_rand", "2D from random waves"),
    .equation = EQUATIONS "On the unit square; random waves in all fields, half of the samples seen through a window.",
    PARAMETERS(VISCOSITY(1e-8), END(1.0), MACH(0.1), K_MAX(4), OUTGOING(0), UPS_WAVE_INITIAL_PARAMETER),
    SIZES(128, 4096, 21),
    KIND(2, 0, 1, AS_ASKED, fill_waves),
};

const ups_solver ups_cfd2d_turb = {
    FLOW("cfd2d_turb", "2D, decaying turbulence"),
    .equation = EQUATIONS "On the periodic unit square; solenoidal waves of mean speed 1 in a uniform gas.",
    PARAMETERS(VISCOSITY(1e-8), END(1.0), MACH(0.1), K_MAX(4)),
    SIZES(512, 4096, 21),
    KIND(2, 0, 1, AS_ASKED, fill_turbulence),
};

const ups_solver ups_cfd2d_kh = {
    FLOW("cfd2d_kh", "2D, Kelvin-Helmholtz instability"),
    .equation =
        EQUATIONS "On the unit square, periodic along x, open along y; two streams slide along a wavy interface.",
    PARAMETERS(VISCOSITY(1e-8), END(2.0), MACH(0.1),
               {"ratio_max", 2.0, 1.0, 100.0, UPS_REAL, "1", "largest ratio of the streams' densities"}),
    SIZES(1024, 4096, 51),
    KIND(2, 0, 1, ALONG_Y, fill_streams),
};

const ups_solver ups_cfd2d_otvortex = {
    FLOW("cfd2d_otvortex", "2D, Orszag-Tang vortex"),
    .equation = EQUATIONS "On the periodic unit square; all samples are alike.",
    PARAMETERS(VISCOSITY(1e-8), END(1.0)),
    SIZES(1024, 4096, 101),
    KIND(2, 0, 1, AS_ASKED, fill_vortex),
};

const ups_solver ups_cfd3d_rand = {
    FLOW("cfd3d_rand", "3D from random waves"),
    .equation = EQUATIONS "On the unit cube; random waves in all fields, half of the samples seen through a window.",
    PARAMETERS(VISCOSITY(1e-8), END(1.0), MACH(1.0), K_MAX(4), OUTGOING(0), UPS_WAVE_INITIAL_PARAMETER),
    SIZES(128, 1024, 21),
    KIND(3, 0, 1, AS_ASKED, fill_waves),
};

const ups_solver ups_cfd3d_turb = {
    FLOW("cfd3d_turb", "3D, decaying turbulence"),
    .equation = EQUATIONS "On the periodic unit cube; solenoidal waves of mean speed 1 in a uniform gas.",
    PARAMETERS(VISCOSITY(1e-8), END(1.0), MACH(1.0), K_MAX(4)),
    SIZES(64, 1024, 21),
    KIND(3, 0, 1, AS_ASKED, fill_turbulence),
};
