/* Both directions are swept by the same two loops over a line of cells: along y the neighbours of a cell lie beside it
 * in memory, along x a row away. */
#include "tools/solvers/swe2d.h"
#include "base/random.h"
#include "tools/solvers/initial/initial_fields.h"
#include "tools/solvers/limiter.h"

#include <math.h>
#include <string.h>

/* Largest Δt (max(|u| + c)/Δx + max(|v| + c)/Δy). Linear stability reaches to 1. */
static const double courant = 0.6;
/* An interval that takes more steps than this is not going to end well. */
static const double most_steps = 1e7;

enum { DEPTH, SURFACE, U, V, PRIMITIVES, GHOSTS = 2 };
enum { H, HU, HV, CONSERVED };

/* A line of cells or faces. */
typedef struct line {
    double *depth, *surface, *normal, *transverse;
} line;

/* What crosses a line of faces; momentum as the cell below and the cell above the face see it. */
typedef struct fluxes {
    double *mass, *below, *above, *transverse;
} fluxes;

typedef struct workspace {
    double *primitive[PRIMITIVES]; /* (nx + 4, ny + 4) each, with ghost cells */
    double *start, *rate;          /* (3, nx, ny) */
    line low, high, previous_high; /* faces of a line of cells, and of the row before */
    fluxes flux;
    int64_t stride; /* ny + 4 */
} workspace;

static int64_t line_doubles(int64_t ny) {
    return (ny + 2 * GHOSTS + 7) / 8 * 8;
}

size_t ups_swe2d_scratch(int64_t nx, int64_t ny) {
    const int64_t padded = (nx + 2 * GHOSTS) * line_doubles(ny);
    return (size_t)(PRIMITIVES * padded + 2 * CONSERVED * nx * ny + 16 * line_doubles(ny));
}

static line line_at(double *memory, int64_t length) {
    return (line){memory, memory + length, memory + 2 * length, memory + 3 * length};
}

static workspace divide(const ups_shallow_water *water, double *scratch) {
    const int64_t stride = line_doubles(water->ny), padded = (water->nx + 2 * GHOSTS) * stride;
    const int64_t state = CONSERVED * water->nx * water->ny;
    workspace work = {.stride = stride};
    for (int p = 0; p < PRIMITIVES; p++, scratch += padded) work.primitive[p] = scratch;
    work.start = scratch;
    work.rate = scratch + state;
    double *lines = scratch + 2 * state;
    work.low = line_at(lines, stride);
    work.high = line_at(lines + 4 * stride, stride);
    work.previous_high = line_at(lines + 8 * stride, stride);
    lines += 12 * stride;
    work.flux = (fluxes){lines, lines + stride, lines + 2 * stride, lines + 3 * stride};
    return work;
}

/* ---- one line ---- */

/* Values at the two faces of each cell. */
static void reconstruct(int64_t count, const double *before, const double *here, const double *after, double *low,
                        double *high) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        const double half = ups_half_slope(before[i], here[i], after[i]);
        low[i] = here[i] - half;
        high[i] = here[i] + half;
    }
}

/* Where a line's cells and their neighbours begin in the padded planes; `normal` is U or V. */
static void reconstruct_cells(const workspace *work, int64_t count, int64_t first, int64_t step, int normal, line low,
                              line high) {
    double *const lows[PRIMITIVES] = {low.depth, low.surface, low.normal, low.transverse};
    double *const highs[PRIMITIVES] = {high.depth, high.surface, high.normal, high.transverse};
    const int planes[PRIMITIVES] = {DEPTH, SURFACE, normal, normal == U ? V : U};
    for (int p = 0; p < PRIMITIVES; p++) {
        const double *here = work->primitive[planes[p]] + first;
        reconstruct(count, here - step, here, here + step, lows[p], highs[p]);
    }
}

/* HLLC between the states below and above each face, over the higher of the two bottoms. */
static void cross(int64_t count, double gravity, line below, line above, fluxes flux) {
    const double tiny = 1e-300; /* no depth on either side: no waves */
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        const double bottom = ups_larger(below.surface[i] - below.depth[i], above.surface[i] - above.depth[i]);
        const double h_b = ups_larger(0.0, below.surface[i] - bottom), h_a = ups_larger(0.0, above.surface[i] - bottom);
        const double u_b = below.normal[i], u_a = above.normal[i];
        const double c_b = sqrt(gravity * h_b), c_a = sqrt(gravity * h_a);
        const double mean_u = (c_b * u_b + c_a * u_a) / (c_b + c_a + tiny); /* Roe's averages: √h is as c */
        const double mean_c = sqrt(0.5 * gravity * (h_b + h_a));
        const double slowest = ups_smaller(0.0, ups_smaller(u_b - c_b, mean_u - mean_c));
        const double fastest = ups_larger(0.0, ups_larger(u_a + c_a, mean_u + mean_c));
        const double scale = 1.0 / (fastest - slowest + tiny);
        const double q_b = h_b * u_b, q_a = h_a * u_a;
        const double pressure_b = 0.5 * gravity * h_b * h_b, pressure_a = 0.5 * gravity * h_a * h_a;
        const double mass = scale * (fastest * q_b - slowest * q_a + slowest * fastest * (h_a - h_b));
        const double momentum = scale * (fastest * (q_b * u_b + pressure_b) - slowest * (q_a * u_a + pressure_a) +
                                         slowest * fastest * (q_a - q_b));
        flux.mass[i] = mass;
        const double v_b = below.transverse[i], v_a = above.transverse[i];
        flux.transverse[i] = mass * (mass >= 0.0 ? v_b : v_a);
        flux.below[i] = momentum + 0.5 * gravity * below.depth[i] * below.depth[i] - pressure_b;
        flux.above[i] = momentum + 0.5 * gravity * above.depth[i] * above.depth[i] - pressure_a;
    }
}

/* Adds what crosses `faces` to the cells below (sign -1) or above (+1), over the cells' width. */
static void collect(int64_t count, double sign_by_width, fluxes flux, const double *momentum, double *mass_rate,
                    double *normal_rate, double *transverse_rate) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        mass_rate[i] += sign_by_width * flux.mass[i];
        normal_rate[i] += sign_by_width * momentum[i];
        transverse_rate[i] += sign_by_width * flux.transverse[i];
    }
}

/* The slope of the bottom within cells. */
static void push(int64_t count, double gravity_by_width, line low, line high, double *normal_rate) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        const double rise = (high.surface[i] - high.depth[i]) - (low.surface[i] - low.depth[i]);
        normal_rate[i] -= 0.5 * gravity_by_width * (high.depth[i] + low.depth[i]) * rise;
    }
}

/* ---- the plane ---- */

static void fill_ghosts(const ups_shallow_water *water, const workspace *work, int plane) {
    const int64_t nx = water->nx, ny = water->ny, stride = work->stride;
    double *values = work->primitive[plane];
    const double across_x = water->walls && plane == U ? -1.0 : 1.0;
    const double across_y = water->walls && plane == V ? -1.0 : 1.0;
    for (int64_t g = 0; g < GHOSTS; g++) { /* walls mirror, else the edge goes on; g-th ghost cell from the edge */
        const int64_t in_x = water->walls && g < nx ? g : 0, in_y = water->walls && g < ny ? g : 0;
        for (int64_t i = GHOSTS; i < GHOSTS + nx; i++) {
            double *row = values + i * stride;
            row[GHOSTS - 1 - g] = across_y * row[GHOSTS + in_y];
            row[GHOSTS + ny + g] = across_y * row[GHOSTS + ny - 1 - in_y];
        }
        for (int64_t j = GHOSTS; j < GHOSTS + ny; j++) {
            values[(GHOSTS - 1 - g) * stride + j] = across_x * values[(GHOSTS + in_x) * stride + j];
            values[(GHOSTS + nx + g) * stride + j] = across_x * values[(GHOSTS + nx - 1 - in_x) * stride + j];
        }
    }
}

static void find_primitives(const ups_shallow_water *water, const workspace *work, const double *state) {
    const int64_t nx = water->nx, ny = water->ny, count = nx * ny;
    for (int64_t i = 0; i < nx; i++) {
        const double *h = state + i * ny, *hu = h + count, *hv = hu + count;
        const int64_t at = (i + GHOSTS) * work->stride + GHOSTS;
        double *depth = work->primitive[DEPTH] + at, *surface = work->primitive[SURFACE] + at;
        double *u = work->primitive[U] + at, *v = work->primitive[V] + at;
        for (int64_t j = 0; j < ny; j++) {
            depth[j] = h[j];
            surface[j] = water->bottom ? h[j] + water->bottom[i * ny + j] : h[j];
            u[j] = hu[j] / h[j];
            v[j] = hv[j] / h[j];
        }
    }
    for (int p = 0; p < PRIMITIVES; p++) fill_ghosts(water, work, p);
}

static void sweep_x(const ups_shallow_water *water, workspace *work) {
    const int64_t nx = water->nx, ny = water->ny, count = nx * ny;
    const double by_width = 1.0 / water->dx;
    for (int64_t i = -1; i <= nx; i++) {
        const int64_t first = (i + GHOSTS) * work->stride + GHOSTS;
        reconstruct_cells(work, ny, first, work->stride, U, work->low, work->high);
        double *rate = work->rate + (i > 0 ? i * ny : 0);
        if (i >= 0) { /* the face between rows i - 1 and i */
            cross(ny, water->gravity, work->previous_high, work->low, work->flux);
            if (i > 0)
                collect(ny, -by_width, work->flux, work->flux.below, rate - ny, rate - ny + count,
                        rate - ny + 2 * count);
            if (i < nx) collect(ny, by_width, work->flux, work->flux.above, rate, rate + count, rate + 2 * count);
        }
        if (i >= 0 && i < nx && water->bottom) push(ny, water->gravity * by_width, work->low, work->high, rate + count);
        const line swapped = work->previous_high;
        work->previous_high = work->high;
        work->high = swapped;
    }
}

/* The line without its first `skip` entries. */
static line line_from(line whole, int64_t skip) {
    return (line){whole.depth + skip, whole.surface + skip, whole.normal + skip, whole.transverse + skip};
}

static void sweep_y(const ups_shallow_water *water, const workspace *work) {
    const int64_t nx = water->nx, ny = water->ny, count = nx * ny;
    const double by_width = 1.0 / water->dy;
    for (int64_t i = 0; i < nx; i++) {
        const int64_t first = (i + GHOSTS) * work->stride + GHOSTS - 1; /* from the first ghost cell on */
        reconstruct_cells(work, ny + 2, first, 1, V, work->low, work->high);
        cross(ny + 1, water->gravity, work->high, line_from(work->low, 1), work->flux);
        double *mass = work->rate + i * ny, *along_x = mass + count, *along_y = along_x + count;
        const fluxes f = work->flux, next = {f.mass + 1, f.below + 1, f.above + 1, f.transverse + 1};
        collect(ny, by_width, f, f.above, mass, along_y, along_x);
        collect(ny, -by_width, next, next.below, mass, along_y, along_x);
        if (water->bottom)
            push(ny, water->gravity * by_width, line_from(work->low, 1), line_from(work->high, 1), along_y);
    }
}

/* The rates of change of `state`, of which the primitive variables are known. */
static void find_rates(const ups_shallow_water *water, workspace *work) {
    memset(work->rate, 0, sizeof(double) * (size_t)(CONSERVED * water->nx * water->ny));
    if (water->nx > 1) sweep_x(water, work);
    if (water->ny > 1) sweep_y(water, work);
}

/* Of the fastest waves: cells crossed along x and along y in a unit of time. */
static double crossings(const ups_shallow_water *water, const workspace *work) {
    double along_x = 0.0, along_y = 0.0;
    for (int64_t i = 0; i < water->nx; i++) {
        const int64_t at = (i + GHOSTS) * work->stride + GHOSTS;
        const double *depth = work->primitive[DEPTH] + at;
        const double *u = work->primitive[U] + at, *v = work->primitive[V] + at;
        for (int64_t j = 0; j < water->ny; j++) {
            const double c = sqrt(water->gravity * depth[j]);
            along_x = ups_larger(along_x, fabs(u[j]) + c);
            along_y = ups_larger(along_y, fabs(v[j]) + c);
        }
    }
    return (water->nx > 1 ? along_x / water->dx : 0.0) + (water->ny > 1 ? along_y / water->dy : 0.0);
}

ups_status ups_swe2d_advance(const ups_shallow_water *water, double interval, double *state, double *scratch,
                             int64_t *steps, ups_error *error) {
    const int64_t values = CONSERVED * water->nx * water->ny;
    workspace work = divide(water, scratch);
    int64_t taken = 0;
    for (double left = interval; left > 0.0; taken++) {
        find_primitives(water, &work, state);
        const double needed = ceil(ups_larger(1.0, left * crossings(water, &work) / courant));
        if (!(needed < most_steps))
            return ups_fail(error, UPS_ERR_NUMERIC, "the water's waves became too fast to follow");
        const double dt = left / needed;
        memcpy(work.start, state, sizeof(double) * (size_t)values);
        find_rates(water, &work);
        for (int64_t i = 0; i < values; i++) state[i] += dt * work.rate[i];
        find_primitives(water, &work, state);
        find_rates(water, &work);
        for (int64_t i = 0; i < values; i++) state[i] = 0.5 * (work.start[i] + state[i] + dt * work.rate[i]);
        left = needed > 1.0 ? left - dt : 0.0;
    }
    if (steps) *steps = taken;
    return UPS_OK;
}

/* ---- as `ups datagen` sees it ---- */

enum { GRAVITY, INNER_HEIGHT, RADIUS_LOW, RADIUS_HIGH, T_END, INITIAL, PARAMETER_COUNT };
enum { BY_CENTRES, AVERAGED }; /* how a circle is drawn */
static const ups_solver_parameter parameters[PARAMETER_COUNT] = {
    [GRAVITY] = {"gravity", 1.0, 1e-3, 1e3, UPS_REAL, "length/time^2", "acceleration of gravity"},
    [INNER_HEIGHT] = {"inner_height", 2.0, 0.01, 100.0, UPS_REAL, "length", "depth behind the dam; 1 outside"},
    [RADIUS_LOW] = {"radius_low", 0.3, 0.0, 3.0, UPS_REAL, "length", "smallest radius of the dam"},
    [RADIUS_HIGH] = {"radius_high", 0.7, 0.0, 3.0, UPS_REAL, "length", "largest radius of the dam"},
    [T_END] = {"t_end", 1.0, 1e-6, 1e4, UPS_SHARED, "time", "last stored time"},
    [INITIAL] = {"initial", BY_CENTRES, 0, 1, UPS_CHOICE, "pdebench|averaged",
                 "cells on the dam: within it or not, by their centres, or averages"},
};

static const double half_width = 2.5;

static ups_status check(const ups_solver_setup *setup, ups_error *error) {
    if (setup->parameters[RADIUS_LOW] <= setup->parameters[RADIUS_HIGH]) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT, "radius_low = %g exceeds radius_high = %g", setup->parameters[RADIUS_LOW],
                    setup->parameters[RADIUS_HIGH]);
}

static double dam_radius(const ups_solver_setup *setup, int64_t sample) {
    const ups_random stream = ups_random_stream(setup->seed, UPS_RANDOM_DATAGEN, (uint32_t)sample);
    const double low = setup->parameters[RADIUS_LOW], high = setup->parameters[RADIUS_HIGH];
    return low + (high - low) * ups_random_uniform(stream, 0);
}

static void describe(const ups_solver_setup *setup, const void *plan, ups_file_layout *layout) {
    layout->seed_groups = true;
    ups_file_add_array(layout, "data", setup->steps, 2, setup->resolution, 1);
    ups_file_add_centres(layout, "grid/x", setup->resolution, -half_width, half_width);
    ups_file_add_centres(layout, "grid/y", setup->resolution, -half_width, half_width);
    ups_file_add_times(layout, "grid/t", setup->steps, setup->steps, setup->parameters[T_END]);
}

static void configure(const ups_solver_setup *setup, int64_t sample, FILE *yaml) {
    const double *p = setup->parameters;
    const long long cells = setup->resolution;
    fprintf(yaml, "name: 2d_rdb\nsim:\n  T_end: %.15g\n  n_time_steps: %lld\n  xdim: %lld\n  ydim: %lld\n", p[T_END],
            (long long)setup->steps - 1, cells, cells);
    fprintf(yaml, "  gravity: %.15g\n  dam_radius: %.15g\n  inner_height: %.15g\n", p[GRAVITY],
            dam_radius(setup, sample), p[INNER_HEIGHT]);
    fprintf(yaml, "  x_left: %g\n  x_right: %g\n  y_bottom: %g\n  y_top: %g\n  seed: %lld\n", -half_width, half_width,
            -half_width, half_width, (long long)sample);
}

static size_t scratch_bytes(const ups_solver_setup *setup, const void *plan) {
    const int64_t cells = setup->resolution;
    return sizeof(double) * (CONSERVED * (size_t)(cells * cells) + ups_swe2d_scratch(cells, cells));
}

/* The share of the cell whose lower corner is (x, y) that lies within the circle: exact along x, by lines along y. */
static double covered(double x, double y, double width, double radius) {
    enum { LINES = 16 };
    double inside = 0.0;
    for (int i = 0; i < LINES; i++) {
        const double height = y + width * (i + 0.5) / LINES, square = radius * radius - height * height;
        const double half = square > 0.0 ? sqrt(square) : 0.0;
        const double low = ups_larger(x, -half), high = ups_smaller(x + width, half);
        inside += ups_larger(0.0, high - low) / width;
    }
    return inside / LINES;
}

static ups_status solve(const ups_solver_setup *setup, const void *plan, int64_t sample, void *scratch, ups_sink *sink,
                        ups_error *error) {
    const int64_t cells = setup->resolution, count = cells * cells, steps = setup->steps;
    const double width = 2.0 * half_width / (double)cells, radius = dam_radius(setup, sample);
    const bool averaged = setup->parameters[INITIAL] == AVERAGED;
    const double end = setup->parameters[T_END], above = setup->parameters[INNER_HEIGHT] - 1.0;
    const ups_shallow_water water = {
        .nx = cells, .ny = cells, .dx = width, .dy = width, .gravity = setup->parameters[GRAVITY]};
    double *state = scratch, *work = state + CONSERVED * count;
    memset(state, 0, CONSERVED * sizeof(double) * (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        const double x = (double)(i / cells) * width - half_width, y = (double)(i % cells) * width - half_width;
        const bool inside = hypot(x + 0.5 * width, y + 0.5 * width) <= radius;
        state[i] = 1.0 + above * (averaged ? covered(x, y, width, radius) : (double)inside);
    }
    if (setup->initial) {
        UPS_TRY(ups_initial_fields_read(setup->initial, sample, &state, error));
        UPS_TRY(ups_initial_fields_check_positive(setup->initial, sample, "h", state, error));
    }
    UPS_TRY(ups_sink_put(sink, 0, 0, state, error));
    for (int64_t stored = 1; stored < steps; stored++) {
        const double interval = ups_solver_time(end, steps, stored) - ups_solver_time(end, steps, stored - 1);
        UPS_TRY(ups_swe2d_advance(&water, interval, state, work, NULL, error));
        UPS_TRY(ups_sink_put(sink, 0, stored, state, error));
    }
    return UPS_OK;
}

const ups_solver ups_swe2d = {
    .name = "swe2d",
    .summary = "shallow water: a radial dam breaks; second-order finite volumes",
    .equation =
        "h_t + div(h u) = 0, (h u)_t + div(h u u) + grad(gravity h^2/2) = 0 on [-2.5, 2.5]^2; water leaves freely.\n"
        "Finite volumes: limited linear reconstruction, HLLC flux, SSP Runge-Kutta; second order where smooth, well\n"
        "balanced. h begins as inner_height within a circle of random radius and 1 outside, at rest. The depth h is\n"
        "stored.",
    .parameters = parameters,
    .parameter_count = PARAMETER_COUNT,
    .default_resolution = 128,
    .minimum_resolution = 8,
    .maximum_resolution = 4096,
    .default_steps = 101,
    .check = check,
    .dims = 2,
    .state = (const char *const[]){"h", NULL},
    .describe = describe,
    .configure = configure,
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};
