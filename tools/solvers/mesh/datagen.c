#include "tools/solvers/mesh/datagen.h"
#include "base/random.h"
#include "tools/solvers/mesh/flow.h"
#include "tools/solvers/mesh/transport.h"

#include <math.h>
#include <stdlib.h>

enum { NU, SPEED, OBSTACLES, T_END, PARAMETER_COUNT };
static const ups_solver_parameter parameters[PARAMETER_COUNT] = {
    [NU] = {"nu", 0.002, 0.0, 0.1, UPS_REAL, "length^2/time", "diffusion coefficient"},
    [SPEED] = {"speed", 1.0, 0.0, 10.0, UPS_REAL, "length/time", "mean speed of the flow over the area"},
    [OBSTACLES] = {"obstacles", 2, 0, UPS_MOST_OBSTACLES, UPS_WHOLE | UPS_SHARED, "1", "round holes in the mesh"},
    [T_END] = {"t_end", 0.5, 1e-6, 1e3, UPS_SHARED, "time", "last stored time"},
};

/* Arrays, in the order of the file. */
enum { FIELD, VX, VY };

/* What all samples share. */
typedef struct mesh_plan {
    ups_mesh *mesh;
    ups_sparse *pattern;
    double *vx, *vy; /* (point): the flow of speed 1 */
} mesh_plan;

static void release(void *plan) {
    mesh_plan *made = plan;
    if (!made) return;
    free(made->vx);
    ups_sparse_destroy(made->pattern);
    ups_mesh_destroy(made->mesh);
    free(made);
}

static ups_status fill_plan(const ups_solver_setup *setup, mesh_plan *plan, ups_error *error) {
    ups_obstacles obstacles;
    ups_obstacles_draw(setup->seed, (int)setup->parameters[OBSTACLES], &obstacles);
    UPS_TRY(ups_mesh_create(setup->seed, setup->resolution, &obstacles, &plan->mesh, error));
    UPS_TRY(ups_sparse_create(plan->mesh, &plan->pattern, error));
    const int64_t points = plan->mesh->point_count;
    plan->vx = malloc(sizeof(double) * 2 * (size_t)points);
    if (!plan->vx)
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for the flow through %lld points", (long long)points);
    plan->vy = plan->vx + points;
    return ups_flow_through(plan->mesh, plan->pattern, plan->vx, plan->vy, error);
}

static ups_status prepare(const ups_solver_setup *setup, void **plan, ups_error *error) {
    mesh_plan *made = calloc(1, sizeof *made);
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    const ups_status status = fill_plan(setup, made, error);
    if (status != UPS_OK) {
        release(made);
        return status;
    }
    *plan = made;
    return UPS_OK;
}

static void describe(const ups_solver_setup *setup, const void *plan, ups_file_layout *layout) {
    const mesh_plan *made = plan;
    const int64_t points = made->mesh->point_count;
    ups_solver_keep(setup, NU, "nu", layout);
    ups_solver_keep(setup, SPEED, "speed", layout);
    ups_file_add_table(layout, "points", UPS_TABLE_FLOAT, points, 2, made->mesh->points);
    ups_file_add_table(layout, "cells", UPS_TABLE_INTEGER, made->mesh->cell_count, 3, made->mesh->cells);
    ups_file_add_times(layout, "t", setup->steps, setup->steps, setup->parameters[T_END]);
    ups_file_add_array(layout, "u", setup->steps, 1, points, 0);
    ups_file_add_array(layout, "vx", 0, 1, points, 0);
    ups_file_add_array(layout, "vy", 0, 1, points, 0);
}

/* ---- what a sample begins as ---- */

enum { LEAST_BUMPS = 4, MOST_BUMPS = 8 };
static const double least_width = 0.04, largest_width = 0.1; /* of a bump: its standard deviation */
static const double least_height = 0.5, largest_height = 1.0;
static const double farthest = 0.8;    /* of their centres along the flow, which carries them out on the right */
static const double inlet_layer = 0.1; /* over this length from the inlet, u rises from 0 */

typedef struct bump {
    double x, y, width, height;
} bump;

/* The next bump whose centre is not in an obstacle; *drawn counts the numbers used. */
static bump draw_bump(ups_random stream, const ups_obstacles *obstacles, uint64_t *drawn) {
    for (;; *drawn += 4) {
        const double x = farthest * ups_random_uniform(stream, *drawn), y = ups_random_uniform(stream, *drawn + 1);
        if (ups_obstacles_distance(obstacles, x, y) < 0.0) continue;
        const double width = ups_random_uniform(stream, *drawn + 2);
        const double height = 2.0 * ups_random_uniform(stream, *drawn + 3) - 1.0;
        *drawn += 4;
        return (bump){
            .x = x,
            .y = y,
            .width = least_width + (largest_width - least_width) * width,
            .height = copysign(least_height + (largest_height - least_height) * fabs(height), height),
        };
    }
}

static void fill(const ups_solver_setup *setup, const ups_mesh *mesh, int64_t sample, double *u) {
    const ups_random stream = ups_random_stream(setup->seed, UPS_RANDOM_DATAGEN, (uint32_t)sample);
    const uint64_t count = LEAST_BUMPS + ups_random_below(stream, 0, MOST_BUMPS - LEAST_BUMPS + 1);
    bump bumps[MOST_BUMPS];
    uint64_t drawn = 1;
    for (uint64_t b = 0; b < count; b++) bumps[b] = draw_bump(stream, &mesh->obstacles, &drawn);
    for (int64_t i = 0; i < mesh->point_count; i++) {
        const double x = mesh->points[2 * i], y = mesh->points[2 * i + 1];
        double sum = 0.0;
        for (uint64_t b = 0; b < count; b++) {
            const double dx = (x - bumps[b].x) / bumps[b].width, dy = (y - bumps[b].y) / bumps[b].width;
            sum += bumps[b].height * exp(-0.5 * (dx * dx + dy * dy));
        }
        u[i] = sum * (1.0 - exp(-(x / inlet_layer) * (x / inlet_layer)));
    }
}

/* ---- the solver ---- */

static size_t scratch_bytes(const ups_solver_setup *setup, const void *plan) {
    const mesh_plan *made = plan;
    return sizeof(double) * ((size_t)made->mesh->point_count + ups_transport_scratch(made->pattern));
}

/* vx and vy of the sample; `values` (point) is overwritten. */
static ups_status put_flow(const mesh_plan *plan, double speed, double *values, ups_sink *sink, ups_error *error) {
    for (int axis = 0; axis < 2; axis++) {
        const double *unit = axis == 0 ? plan->vx : plan->vy;
        for (int64_t i = 0; i < plan->mesh->point_count; i++) values[i] = speed * unit[i];
        UPS_TRY(ups_sink_put(sink, axis == 0 ? VX : VY, 0, values, error));
    }
    return UPS_OK;
}

static ups_status solve(const ups_solver_setup *setup, const void *plan, int64_t sample, void *scratch, ups_sink *sink,
                        ups_error *error) {
    const mesh_plan *made = plan;
    const double *p = setup->parameters;
    const ups_transport_problem problem = {made->mesh, made->pattern, made->vx, made->vy, p[SPEED], p[NU]};
    double *u = scratch, *work = u + made->mesh->point_count;
    UPS_TRY(put_flow(made, p[SPEED], u, sink, error));
    fill(setup, made->mesh, sample, u);
    UPS_TRY(ups_sink_put(sink, FIELD, 0, u, error));
    const double interval = p[T_END] / (double)(setup->steps - 1);
    const double longest = ups_transport_longest_step(&problem, least_width);
    const int64_t inner = (int64_t)fmax(1.0, ceil(interval / longest));
    ups_transport transport;
    ups_transport_begin(&problem, interval / (double)inner, work, &transport);
    for (int64_t stored = 1; stored < setup->steps; stored++) {
        UPS_TRY(ups_transport_advance(&transport, inner, u, error));
        UPS_TRY(ups_sink_put(sink, FIELD, stored, u, error));
    }
    return UPS_OK;
}

const ups_solver ups_transport_mesh2d = {
    .name = "transport_mesh2d",
    .summary = "a tracer in the flow around obstacles, on a triangular mesh",
    .equation =
        "u_t + v . grad u = nu Laplace(u) on the unit square around round obstacles; u = 0 where the flow enters "
        "(left),\n"
        "du/dn = 0 on all other borders. v is the potential flow from left to right, the same for all times. Linear\n"
        "finite elements, stabilised along streamlines (SUPG), and Crank-Nicolson in time; second order in space and\n"
        "time. u begins as four to eight Gaussian bumps. --resolution is the inverse spacing of points. The mesh and\n"
        "its obstacles are drawn from the seed; all samples of a file share them.",
    .parameters = parameters,
    .parameter_count = PARAMETER_COUNT,
    .default_resolution = 32,
    .minimum_resolution = 16,
    .maximum_resolution = 512,
    .default_steps = 21,
    .dims = 2,
    .describe = describe,
    .prepare = prepare,
    .release = release,
    .scratch_bytes = scratch_bytes,
    .solve = solve,
};
