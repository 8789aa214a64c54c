/* Memory: fields are padded by ghost cells and lie as (slot 0, slot 1, slot 2), slot 2 fastest. One axis uses slot 2;
 * two use slots 0 and 2; three use all. A slot that is not used has one cell and no ghosts. The fluxes of one plane
 * (slots 1 and 2) are kept at a time, so that what a plane needs lies in the cache while a stage passes through it
 * once. */
#include "tools/solvers/compressible.h"
#include "base/cancel.h"
#include "tools/solvers/compressible_rows.h"

#include <math.h>
#include <string.h>

/* Largest Δt Σ (|v| + c)/Δx; reconstruction and the two stages keep variation from growing up to 1/2. */
static const double courant = 0.45;
/* Viscous fluxes join the stages while Δt is below this part of their own limit. */
static const double explicit_share = 0.25;
static const int gentle_retries = 3, most_retries = 12;

enum { GHOSTS = 2, LEAD = 8, SLOTS = 3, EULER = 1, VISCOUS = 2 };

struct ups_compressible {
    ups_compressible_problem problem;
    int variables;
    int axis_of[SLOTS];                   /* -1 where the slot is not used */
    int64_t n[SLOTS];                     /* cells */
    ptrdiff_t step[SLOTS];                /* to the neighbour */
    ptrdiff_t volume;                     /* from a variable to the next */
    ptrdiff_t origin;                     /* of the first cell */
    double inverse_dx[SLOTS];             /* by slot */
    double axis_inverse_dx[UPS_GAS_AXES]; /* by axis */
    ups_gas_viscosity viscosity;
    /* Fields of all variables. `state` is conserved, `next` what a stage makes; `gas` is primitive, with ghosts. */
    double *state, *next, *gas;
    double *older, *slope; /* of RKL2; NULL without viscosity */
    double *order;         /* one variable: where reconstruction keeps its slopes */
    ptrdiff_t row, plane;  /* of the buffers: doubles a row of one variable, and of all rows of a plane */
    double *upper0[2], *flux0[2], *upper1[2], *flux1[2], *lower, *upper, *flux, *rate;
    ups_gas_limits limits; /* of `gas` */
};

static ptrdiff_t rounded(int64_t count) {
    return (ptrdiff_t)((count + 7) / 8 * 8);
}

/* From one variable to the next: not near a multiple of a page, or all variables of a cell would compete for one set of
 * the first-level cache. */
static ptrdiff_t apart(int64_t count) {
    enum { LINE = 8, PAGE_LINES = 64, ODD_LINES = 13 };
    ptrdiff_t lines = (ptrdiff_t)((count + LINE - 1) / LINE);
    if (lines >= PAGE_LINES) lines += (ODD_LINES - lines % PAGE_LINES + PAGE_LINES) % PAGE_LINES;
    return lines * LINE;
}

static void lay_out(ups_compressible *flow) {
    const ups_compressible_problem *problem = &flow->problem;
    static const int slots[3][3] = {{2, -1, -1}, {0, 2, -1}, {0, 1, 2}};
    flow->variables = problem->axes + 2;
    for (int s = 0; s < SLOTS; s++) {
        flow->axis_of[s] = -1;
        flow->n[s] = 1;
    }
    for (int a = 0; a < problem->axes; a++) {
        const int s = slots[problem->axes - 1][a];
        flow->axis_of[s] = a;
        flow->n[s] = problem->cells[a];
        flow->inverse_dx[s] = flow->axis_inverse_dx[a] = 1.0 / problem->width[a];
    }
    const int64_t pad0 = flow->axis_of[0] >= 0 ? GHOSTS : 0, pad1 = flow->axis_of[1] >= 0 ? GHOSTS : 0;
    flow->step[2] = 1;
    flow->step[1] = LEAD + rounded(flow->n[2] + GHOSTS);
    flow->step[0] = flow->step[1] * (ptrdiff_t)(flow->n[1] + 2 * pad1);
    flow->volume = apart(flow->step[0] * (flow->n[0] + 2 * pad0));
    flow->origin = (ptrdiff_t)pad0 * flow->step[0] + (ptrdiff_t)pad1 * flow->step[1] + LEAD;
    flow->row = apart(flow->n[2] + 2);
    flow->plane = apart(flow->row * flow->n[1]);
    flow->viscosity = (ups_gas_viscosity){.shear = problem->shear, .bulk = problem->bulk};
    for (int a = 0; a < problem->axes; a++) {
        flow->viscosity.step[a] = flow->step[slots[problem->axes - 1][a]];
        flow->viscosity.inverse_dx[a] = flow->axis_inverse_dx[a];
    }
}

static bool viscous(const ups_compressible_problem *problem) {
    return problem->shear > 0.0 || problem->bulk > 0.0;
}

size_t ups_compressible_bytes(const ups_compressible_problem *problem) {
    ups_compressible flow = {.problem = *problem};
    lay_out(&flow);
    const size_t fields = (viscous(problem) ? 5 : 3) * (size_t)flow.variables + 1;
    const size_t buffers = (size_t)flow.variables * (size_t)(4 * flow.plane + 8 * flow.row);
    return (sizeof flow + 63) / 64 * 64 + sizeof(double) * (fields * (size_t)flow.volume + buffers);
}

static double *take(double **free_memory, ptrdiff_t count) {
    double *taken = *free_memory;
    *free_memory += count;
    return taken;
}

ups_compressible *ups_compressible_place(const ups_compressible_problem *problem, void *memory) {
    memset(memory, 0, ups_compressible_bytes(problem));
    ups_compressible *flow = memory;
    flow->problem = *problem;
    lay_out(flow);
    double *free_memory = (double *)((char *)memory + (sizeof *flow + 63) / 64 * 64);
    const ptrdiff_t field = flow->variables * flow->volume, plane = flow->variables * flow->plane;
    const ptrdiff_t row = flow->variables * flow->row;
    flow->state = take(&free_memory, field);
    flow->next = take(&free_memory, field);
    flow->gas = take(&free_memory, field);
    if (viscous(problem)) {
        flow->older = take(&free_memory, field);
        flow->slope = take(&free_memory, field);
    }
    flow->order = take(&free_memory, flow->volume);
    for (int i = 0; i < 2; i++) {
        flow->upper0[i] = take(&free_memory, plane);
        flow->flux0[i] = take(&free_memory, plane);
        flow->upper1[i] = take(&free_memory, row);
        flow->flux1[i] = take(&free_memory, row);
    }
    flow->lower = take(&free_memory, row);
    flow->upper = take(&free_memory, row);
    flow->flux = take(&free_memory, row);
    flow->rate = take(&free_memory, row);
    return flow;
}

/* Where row (i, j) of cells begins in a field. */
static ptrdiff_t row_at(const ups_compressible *flow, int64_t i, int64_t j) {
    return flow->origin + (ptrdiff_t)i * flow->step[0] + (ptrdiff_t)j * flow->step[1];
}

/* ---- filling and reading ---- */

void ups_compressible_set(ups_compressible *flow, const double *const fields[UPS_COMPRESSIBLE_VARIABLES]) {
    const int axes = flow->problem.axes;
    const double inverse_gamma_1 = 1.0 / (flow->problem.gamma - 1.0);
    int64_t cell = 0;
    for (int64_t i = 0; i < flow->n[0]; i++) {
        for (int64_t j = 0; j < flow->n[1]; j++) {
            double *row = flow->state + row_at(flow, i, j);
            for (int64_t k = 0; k < flow->n[2]; k++, cell++) {
                const double density = fields[0][cell];
                double kinetic = 0.0;
                for (int a = 1; a <= axes; a++) {
                    row[a * flow->volume + k] = density * fields[a][cell];
                    kinetic += 0.5 * density * fields[a][cell] * fields[a][cell];
                }
                row[k] = density;
                row[(axes + 1) * flow->volume + k] = fields[axes + 1][cell] * inverse_gamma_1 + kinetic;
            }
        }
    }
}

/* One cell's variable from the conserved row it lies in. */
static double primitive_of(const ups_compressible *flow, const double *row, int64_t k, int variable) {
    const int axes = flow->problem.axes;
    if (variable == 0) return row[k];
    if (variable <= axes) return row[variable * flow->volume + k] / row[k];
    double kinetic = 0.0;
    for (int a = 1; a <= axes; a++) kinetic += row[a * flow->volume + k] * row[a * flow->volume + k];
    return (flow->problem.gamma - 1.0) * (row[(axes + 1) * flow->volume + k] - 0.5 * kinetic / row[k]);
}

void ups_compressible_get(const ups_compressible *flow, int variable, double *field) {
    for (int64_t i = 0; i < flow->n[0]; i++) {
        for (int64_t j = 0; j < flow->n[1]; j++) {
            const double *row = flow->state + row_at(flow, i, j);
            for (int64_t k = 0; k < flow->n[2]; k++) *field++ = primitive_of(flow, row, k, variable);
        }
    }
}

void ups_compressible_get_f32(const ups_compressible *flow, int variable, float *field) {
    for (int64_t i = 0; i < flow->n[0]; i++) {
        for (int64_t j = 0; j < flow->n[1]; j++) {
            const double *row = flow->state + row_at(flow, i, j);
            for (int64_t k = 0; k < flow->n[2]; k++) *field++ = (float)primitive_of(flow, row, k, variable);
        }
    }
}

void ups_compressible_totals(const ups_compressible *flow, double totals[UPS_COMPRESSIBLE_VARIABLES]) {
    for (int v = 0; v < flow->variables; v++) {
        totals[v] = 0.0;
        for (int64_t i = 0; i < flow->n[0]; i++) {
            for (int64_t j = 0; j < flow->n[1]; j++) {
                const double *row = flow->state + v * flow->volume + row_at(flow, i, j);
                for (int64_t k = 0; k < flow->n[2]; k++) totals[v] += row[k];
            }
        }
    }
}

/* ---- ghosts ---- */

/* Fills the ghost layers of one slot from its cells, over `rows` stretches of `length` values that lie `apart`. */
static void fill_slot(const ups_compressible *flow, double *field, int slot, int64_t first_row, int64_t rows,
                      ptrdiff_t apart, ptrdiff_t first, ptrdiff_t length) {
    const ptrdiff_t step = flow->step[slot];
    const int64_t n = flow->n[slot];
    const bool periodic = flow->problem.periodic[flow->axis_of[slot]];
    for (int64_t r = first_row; r < first_row + rows; r++) {
        double *row = field + flow->origin + (ptrdiff_t)r * apart + first;
        for (int64_t g = 1; g <= GHOSTS; g++) {
            const int64_t low_from = periodic ? n - g : 0, high_from = periodic ? g - 1 : n - 1;
            memcpy(row - (ptrdiff_t)g * step, row + (ptrdiff_t)low_from * step, sizeof(double) * (size_t)length);
            memcpy(row + (ptrdiff_t)(n - 1 + g) * step, row + (ptrdiff_t)high_from * step,
                   sizeof(double) * (size_t)length);
        }
    }
}

/* Slot after slot, each including the ghosts of those before, so that corners are right too. */
static void fill_ghosts(const ups_compressible *flow, double *fields, int first, int count) {
    const int64_t pad0 = flow->axis_of[0] >= 0 ? GHOSTS : 0, pad1 = flow->axis_of[1] >= 0 ? GHOSTS : 0;
    for (int v = first; v < first + count; v++) {
        double *field = fields + v * flow->volume;
        if (pad0 > 0) fill_slot(flow, field, 0, 0, flow->n[1], flow->step[1], 0, (ptrdiff_t)flow->n[2]);
        if (pad1 > 0) {
            fill_slot(flow, field, 1, -pad0, flow->n[0] + 2 * pad0, flow->step[0], 0, (ptrdiff_t)flow->n[2]);
        }
        for (int64_t i = -pad0; i < flow->n[0] + pad0; i++) {
            fill_slot(flow, field + (ptrdiff_t)i * flow->step[0], 2, -pad1, flow->n[1] + 2 * pad1, flow->step[1], 0, 1);
        }
    }
}

/* ---- rates of change ---- */

/* What becomes of the rates R of change: out = Σ weight_k term_k + rate_weight R. */
typedef struct outcome {
    int terms;
    const double *term[4]; /* fields, as conserved ones are laid out */
    double weight[4];
    double rate_weight;
    double *out;
} outcome;

/* Everything a pass over the grid is told. */
typedef struct pass {
    int parts;           /* EULER, VISCOUS or both */
    const double *order; /* NULL: slopes everywhere */
    outcome to;
} pass;

/* Fluxes across `count` faces normal to `slot`, the lower cells of which begin at `cell`. `right` is a row buffer. */
static void row_fluxes(const ups_compressible *flow, const pass *with, int slot, int64_t count, ptrdiff_t cell,
                       const double *left, const double *right, double *flux, ptrdiff_t stride) {
    const int axes = flow->problem.axes, axis = flow->axis_of[slot];
    if (with->parts & EULER) {
        ups_gas_fluxes(axes, axis, count, flow->problem.gamma, left, stride, right, flow->row, flux, stride);
    } else {
        for (int v = 1; v < flow->variables; v++) memset(flux + v * stride, 0, sizeof(double) * (size_t)count);
    }
    if (with->parts & VISCOUS) {
        ups_gas_stress(axes, axis, count, &flow->viscosity, flow->gas + cell, flow->volume, flux, stride);
    }
}

/* Both ends of `count` cells from `cell` on: the lower ones into the row buffer `lower`. */
static void row_edges(const ups_compressible *flow, const pass *with, int slot, int64_t count, ptrdiff_t cell,
                      double *upper, ptrdiff_t stride) {
    if (!(with->parts & EULER)) return;
    ups_gas_edges(flow->variables, count, flow->gas + cell, flow->volume, flow->step[slot],
                  with->order ? with->order + cell : NULL, flow->lower, flow->row, upper, stride);
}

/* Row (i, j) once its faces in slots 0 and 1 are known: slot 2, and what becomes of it. */
static void finish_row(ups_compressible *flow, const pass *with, int64_t i, int64_t j, const double *below0,
                       const double *above0, const double *below1, const double *above1) {
    const int64_t n = flow->n[2];
    const ptrdiff_t row = flow->row, at = row_at(flow, i, j);
    const int first = with->parts & EULER ? 0 : 1, count = flow->variables - first;
    int begun = 0;
    if (below0) {
        const ptrdiff_t place = first * flow->plane + (ptrdiff_t)j * row;
        ups_gas_difference(count, n, flow->inverse_dx[0], below0 + place, above0 + place, flow->plane, begun,
                           flow->rate + first * row, row);
        begun = 1;
    }
    if (below1) {
        ups_gas_difference(count, n, flow->inverse_dx[1], below1 + first * row, above1 + first * row, row, begun,
                           flow->rate + first * row, row);
        begun = 1;
    }
    row_edges(flow, with, 2, n + 2, at - 1, flow->upper, row);
    row_fluxes(flow, with, 2, n + 1, at - 1, flow->upper, flow->lower + 1, flow->flux, row);
    ups_gas_difference(count, n, flow->inverse_dx[2], flow->flux + first * row, flow->flux + first * row + 1, row,
                       begun, flow->rate + first * row, row);
    const outcome *to = &with->to;
    for (int v = first; v < flow->variables; v++) {
        const double *term[5];
        double weight[5];
        for (int k = 0; k < to->terms; k++) {
            term[k] = to->term[k] + v * flow->volume + at;
            weight[k] = to->weight[k];
        }
        term[to->terms] = flow->rate + v * row;
        weight[to->terms] = to->rate_weight;
        ups_gas_combine(n, to->terms + 1, term, weight, to->out + v * flow->volume + at);
    }
}

/* All rows of plane i; below0 and above0 are its fluxes in slot 0, or NULL. */
static void finish_plane(ups_compressible *flow, const pass *with, int64_t i, const double *below0,
                         const double *above0) {
    if (flow->axis_of[1] < 0) {
        finish_row(flow, with, i, 0, below0, above0, NULL, NULL);
        return;
    }
    const int64_t n = flow->n[2];
    for (int64_t j = -1; j <= flow->n[1]; j++) {
        const int now = (int)(j & 1), before = 1 - now;
        row_edges(flow, with, 1, n, row_at(flow, i, j), flow->upper1[now], flow->row);
        if (j < 0) continue;
        row_fluxes(flow, with, 1, n, row_at(flow, i, j - 1), flow->upper1[before], flow->lower, flow->flux1[now],
                   flow->row);
        if (j > 0) finish_row(flow, with, i, j - 1, below0, above0, flow->flux1[before], flow->flux1[now]);
    }
}

/* One pass: rates of change from `gas`, whose ghosts are filled, to with->to. */
static void run_pass(ups_compressible *flow, const pass *with) {
    if (flow->axis_of[0] < 0) {
        finish_plane(flow, with, 0, NULL, NULL);
        return;
    }
    const int64_t n = flow->n[2];
    for (int64_t i = -1; i <= flow->n[0]; i++) {
        const int now = (int)(i & 1), before = 1 - now;
        for (int64_t j = 0; j < flow->n[1]; j++) {
            const ptrdiff_t place = (ptrdiff_t)j * flow->row;
            row_edges(flow, with, 0, n, row_at(flow, i, j), flow->upper0[now] + place, flow->plane);
            if (i < 0) continue;
            row_fluxes(flow, with, 0, n, row_at(flow, i - 1, j), flow->upper0[before] + place, flow->lower,
                       flow->flux0[now] + place, flow->plane);
        }
        if (i > 0) finish_plane(flow, with, i - 1, flow->flux0[before], flow->flux0[now]);
    }
}

/* ---- time ---- */

/* `gas` from the conserved fields, ghosts included, and its limits. Returns how many cells are broken. */
static int64_t make_gas(ups_compressible *flow, const double *conserved) {
    flow->limits = (ups_gas_limits){{0.0}, {0.0}, {0.0}};
    for (int lane = 0; lane < UPS_GAS_LANES; lane++) flow->limits.thinnest[lane] = HUGE_VAL;
    for (int64_t i = 0; i < flow->n[0]; i++) {
        for (int64_t j = 0; j < flow->n[1]; j++) {
            const ptrdiff_t at = row_at(flow, i, j);
            ups_gas_primitive(flow->problem.axes, flow->n[2], flow->problem.gamma, flow->axis_inverse_dx,
                              conserved + at, flow->gas + at, flow->volume, &flow->limits);
        }
    }
    fill_ghosts(flow, flow->gas, 0, flow->variables);
    double broken = 0.0;
    for (int lane = 0; lane < UPS_GAS_LANES; lane++) broken += flow->limits.broken[lane];
    return (int64_t)broken;
}

static double largest(const double lanes[UPS_GAS_LANES]) {
    double found = lanes[0];
    for (int lane = 1; lane < UPS_GAS_LANES; lane++) found = lanes[lane] > found ? lanes[lane] : found;
    return found;
}

/* Largest stable step of the viscous terms by themselves in the explicit Euler scheme: 2 over the largest eigenvalue,
 * (4η/3 + ζ)/ρ Σ 4/Δx². Infinite without viscosity. */
static double viscous_limit(const ups_compressible *flow) {
    double thinnest = flow->limits.thinnest[0], grid = 0.0;
    for (int lane = 1; lane < UPS_GAS_LANES; lane++) {
        thinnest = flow->limits.thinnest[lane] < thinnest ? flow->limits.thinnest[lane] : thinnest;
    }
    for (int a = 0; a < flow->problem.axes; a++) grid += flow->axis_inverse_dx[a] * flow->axis_inverse_dx[a];
    const double strongest = 4.0 / 3.0 * flow->problem.shear + flow->problem.bulk;
    return strongest > 0.0 ? thinnest / (2.0 * strongest * grid) : HUGE_VAL;
}

/* The two-stage scheme: next = u + Δt R(u), then next = ½ u + ½ (next + Δt R(next)); `gas` holds u at the beginning and
 * the result at the end. False: a density or pressure is not positive; `state` is untouched, `gas` shows where. */
static bool two_stages(ups_compressible *flow, double dt, int parts, const double *order) {
    pass stage = {.parts = parts, .order = order};
    stage.to = (outcome){.terms = 1, .term = {flow->state}, .weight = {1.0}, .rate_weight = dt, .out = flow->next};
    run_pass(flow, &stage);
    if (make_gas(flow, flow->next) > 0) return false;
    stage.to = (outcome){.terms = 2,
                         .term = {flow->state, flow->next},
                         .weight = {0.5, 0.5},
                         .rate_weight = 0.5 * dt,
                         .out = flow->next};
    run_pass(flow, &stage);
    if (make_gas(flow, flow->next) > 0) return false;
    double *const before = flow->state;
    flow->state = flow->next;
    flow->next = before;
    return true;
}

/* Flattens the cells around those of `gas` that are broken: each row's neighbours at distance up to GHOSTS. */
static void flatten_around_broken(ups_compressible *flow) {
    const double *density = flow->gas, *pressure = flow->gas + (flow->variables - 1) * flow->volume;
    int64_t reach[SLOTS];
    for (int s = 0; s < SLOTS; s++) reach[s] = flow->axis_of[s] >= 0 ? GHOSTS : 0;
    for (int64_t i = 0; i < flow->n[0]; i++) {
        for (int64_t j = 0; j < flow->n[1]; j++) {
            for (int64_t k = 0; k < flow->n[2]; k++) {
                const ptrdiff_t at = row_at(flow, i, j) + (ptrdiff_t)k;
                if (density[at] > 0.0 && pressure[at] > 0.0) continue;
                for (int64_t di = -reach[0]; di <= reach[0]; di++) {
                    for (int64_t dj = -reach[1]; dj <= reach[1]; dj++) {
                        double *row = flow->order + at + di * flow->step[0] + dj * flow->step[1];
                        for (int64_t dk = -reach[2]; dk <= reach[2]; dk++) row[dk] = 0.0;
                    }
                }
            }
        }
    }
}

/* Exactly dt of inviscid, and where `parts` says so viscous, flow: one step, or where that breaks as many careful ones
 * as it takes. False: none was careful enough. */
static bool careful_step(ups_compressible *flow, double dt, int parts) {
    if (two_stages(flow, dt, parts, NULL)) return true;
    for (ptrdiff_t c = 0; c < flow->volume; c++) flow->order[c] = 1.0;
    double remaining = dt, piece = dt;
    for (int retry = 0; retry < most_retries; retry++) {
        if (retry < gentle_retries) {
            flatten_around_broken(flow);
            fill_ghosts(flow, flow->order, 0, 1);
        } else {
            memset(flow->order, 0, sizeof(double) * (size_t)flow->volume);
            piece *= 0.5;
        }
        make_gas(flow, flow->state);
        while (two_stages(flow, piece < remaining ? piece : remaining, parts, flow->order)) {
            if (piece >= remaining) return true;
            remaining -= piece;
        }
    }
    return false;
}

/* How many stages RKL2 takes for `interval`; odd, at least 3. */
static int legendre_stages(double interval, double limit) {
    int stages = 3;
    while (interval > limit * (double)(stages * stages + stages - 2) / 4.0) stages += 2;
    return stages;
}

static double legendre_b(int j) {
    return j < 2 ? 1.0 / 3.0 : (double)(j * j + j - 2) / (double)(2 * j * (j + 1));
}

static void gas_velocities(ups_compressible *flow, const double *conserved) {
    for (int64_t i = 0; i < flow->n[0]; i++) {
        for (int64_t j = 0; j < flow->n[1]; j++) {
            const ptrdiff_t at = row_at(flow, i, j);
            ups_gas_velocities(flow->problem.axes, flow->n[2], conserved + at, flow->gas + at, flow->volume);
        }
    }
    fill_ghosts(flow, flow->gas, 1, flow->problem.axes);
}

/* Momentum and energy by `interval` of viscous terms alone: RKL2, equations 16 and 17 of Meyer et al. `gas` is that of
 * `state` before and after. False: a pressure is not positive; `state` is untouched, `gas` is not its. */
static bool viscous_step(ups_compressible *flow, double interval, int stages) {
    const size_t field = sizeof(double) * (size_t)flow->volume;
    const double w = 4.0 / (double)(stages * stages + stages - 2);
    pass with = {.parts = VISCOUS};
    with.to = (outcome){.terms = 1, .term = {flow->state}, .weight = {0.0}, .rate_weight = 1.0, .out = flow->slope};
    run_pass(flow, &with);
    memcpy(flow->next, flow->state, field);
    memcpy(flow->older, flow->state, field);
    for (int v = 1; v < flow->variables; v++) {
        const ptrdiff_t at = v * flow->volume;
        const double *const term[2] = {flow->state + at, flow->slope + at};
        const double weight[2] = {1.0, legendre_b(1) * w * interval};
        ups_gas_combine(flow->volume, 2, term, weight, flow->next + at);
    }
    for (int j = 2; j <= stages; j++) {
        const double b = legendre_b(j), b1 = legendre_b(j - 1), b2 = legendre_b(j - 2);
        const double mu = (2.0 * j - 1.0) / j * b / b1, nu = -(j - 1.0) / j * b / b2, mu_w = mu * w;
        const double gamma_w = -(1.0 - b1) * mu_w;
        gas_velocities(flow, flow->next);
        with.to = (outcome){.terms = 4,
                            .term = {flow->next, j == 2 ? flow->state : flow->older, flow->state, flow->slope},
                            .weight = {mu, nu, 1.0 - mu - nu, gamma_w * interval},
                            .rate_weight = mu_w * interval,
                            .out = flow->older};
        run_pass(flow, &with);
        double *const newest = flow->older;
        flow->older = flow->next;
        flow->next = newest;
    }
    if (make_gas(flow, flow->next) > 0) return false;
    double *const before = flow->state;
    flow->state = flow->next;
    flow->next = before;
    return true;
}

/* Exactly `interval`, in pieces as short as keep pressures positive: where viscosity stops streams that are much faster
 * than sound, what they lose and the heat they leave must not get apart. */
static bool careful_viscous_step(ups_compressible *flow, double interval, double limit) {
    double remaining = interval, piece = interval;
    for (int retry = 0; retry < most_retries; retry++) {
        for (;;) {
            const double now = piece < remaining ? piece : remaining;
            if (!viscous_step(flow, now, legendre_stages(now, limit))) break;
            if (piece >= remaining) return true;
            remaining -= piece;
        }
        piece *= 0.25;
        make_gas(flow, flow->state);
    }
    return false;
}

ups_status ups_compressible_advance(ups_compressible *flow, double interval, int64_t *steps, ups_error *error) {
    if (make_gas(flow, flow->state) > 0) {
        return ups_fail(error, UPS_ERR_NUMERIC, "a density or pressure is not positive at the beginning");
    }
    double remaining = interval;
    while (remaining > 0.0) {
        if (ups_cancel_requested()) return ups_fail(error, UPS_ERR_CANCELLED, "cancelled");
        const double limit = viscous_limit(flow);
        const double pieces = ceil(remaining * largest(flow->limits.fastest) / courant);
        double dt = pieces > 1.0 ? remaining / pieces : remaining;
        const bool split = dt > explicit_share * limit;
        const int parts = viscous(&flow->problem) && !split ? EULER | VISCOUS : EULER;
        bool kept = !split || careful_viscous_step(flow, 0.5 * dt, limit);
        kept = kept && careful_step(flow, dt, parts);
        kept = kept && (!split || careful_viscous_step(flow, 0.5 * dt, limit));
        if (!kept) {
            return ups_fail(error, UPS_ERR_NUMERIC,
                            "density or pressure would not stay positive, however short the time step; a smaller Mach "
                            "number is needed");
        }
        remaining = pieces > 1.0 ? remaining - dt : 0.0;
        if (steps) ++*steps;
    }
    return UPS_OK;
}
