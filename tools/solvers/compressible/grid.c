/* The grid of the compressible solver: its memory, its fields in and out, and its ghosts. Fields are padded by ghost
 * cells and lie as (slot 0, slot 1, slot 2), slot 2 fastest. One axis uses slot 2; two use slots 0 and 2; three use
 * all. A slot that is not used has one cell and no ghosts. */
#include "tools/solvers/compressible/flow.h"

#include <string.h>

enum { LEAD = 8 }; /* doubles before a row, so that its cells are aligned and its ghosts have room */

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
    for (int s = 0; s < UPS_FLOW_SLOTS; s++) {
        flow->axis_of[s] = -1;
        flow->n[s] = 1;
    }
    for (int a = 0; a < problem->axes; a++) {
        const int s = slots[problem->axes - 1][a];
        flow->axis_of[s] = a;
        flow->n[s] = problem->cells[a];
        flow->inverse_dx[s] = flow->axis_inverse_dx[a] = 1.0 / problem->width[a];
    }
    const int64_t pad0 = flow->axis_of[0] >= 0 ? UPS_FLOW_GHOSTS : 0,
                  pad1 = flow->axis_of[1] >= 0 ? UPS_FLOW_GHOSTS : 0;
    flow->step[2] = 1;
    flow->step[1] = LEAD + rounded(flow->n[2] + UPS_FLOW_GHOSTS);
    flow->step[0] = flow->step[1] * (ptrdiff_t)(flow->n[1] + 2 * pad1);
    flow->volume = apart(flow->step[0] * (flow->n[0] + 2 * pad0));
    flow->origin = (ptrdiff_t)pad0 * flow->step[0] + (ptrdiff_t)pad1 * flow->step[1] + LEAD;
    flow->row = apart(flow->n[2] + 2);
    flow->plane = apart(flow->row * flow->n[1]);
    flow->viscosity = (ups_gas_viscosity){.shear = problem->shear, .bulk = problem->bulk, .by_mass = problem->by_mass};
    for (int a = 0; a < problem->axes; a++) {
        flow->viscosity.step[a] = flow->step[slots[problem->axes - 1][a]];
        flow->viscosity.inverse_dx[a] = flow->axis_inverse_dx[a];
    }
}

bool ups_flow_is_viscous(const ups_compressible_problem *problem) {
    return problem->shear > 0.0 || problem->bulk > 0.0;
}

size_t ups_compressible_bytes(const ups_compressible_problem *problem) {
    ups_compressible flow = {.problem = *problem};
    lay_out(&flow);
    const size_t fields = (ups_flow_is_viscous(problem) ? 5 : 3) * (size_t)flow.variables + 1;
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
    if (ups_flow_is_viscous(problem)) {
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

/* ---- filling and reading ---- */

void ups_compressible_set(ups_compressible *flow, const double *const fields[UPS_COMPRESSIBLE_VARIABLES]) {
    const int axes = flow->problem.axes;
    const double inverse_gamma_1 = 1.0 / (flow->problem.gamma - 1.0);
    int64_t cell = 0;
    for (int64_t i = 0; i < flow->n[0]; i++) {
        for (int64_t j = 0; j < flow->n[1]; j++) {
            double *row = flow->state + ups_flow_row_at(flow, i, j);
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
            const double *row = flow->state + ups_flow_row_at(flow, i, j);
            for (int64_t k = 0; k < flow->n[2]; k++) *field++ = primitive_of(flow, row, k, variable);
        }
    }
}

void ups_compressible_get_f32(const ups_compressible *flow, int variable, float *field) {
    for (int64_t i = 0; i < flow->n[0]; i++) {
        for (int64_t j = 0; j < flow->n[1]; j++) {
            const double *row = flow->state + ups_flow_row_at(flow, i, j);
            for (int64_t k = 0; k < flow->n[2]; k++) *field++ = (float)primitive_of(flow, row, k, variable);
        }
    }
}

void ups_compressible_totals(const ups_compressible *flow, double totals[UPS_COMPRESSIBLE_VARIABLES]) {
    for (int v = 0; v < flow->variables; v++) {
        totals[v] = 0.0;
        for (int64_t i = 0; i < flow->n[0]; i++) {
            for (int64_t j = 0; j < flow->n[1]; j++) {
                const double *row = flow->state + v * flow->volume + ups_flow_row_at(flow, i, j);
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
        for (int64_t g = 1; g <= UPS_FLOW_GHOSTS; g++) {
            const int64_t low_from = periodic ? n - g : 0, high_from = periodic ? g - 1 : n - 1;
            memcpy(row - (ptrdiff_t)g * step, row + (ptrdiff_t)low_from * step, sizeof(double) * (size_t)length);
            memcpy(row + (ptrdiff_t)(n - 1 + g) * step, row + (ptrdiff_t)high_from * step,
                   sizeof(double) * (size_t)length);
        }
    }
}

void ups_flow_fill_ghosts(const ups_compressible *flow, double *fields, int first, int count) {
    const int64_t pad0 = flow->axis_of[0] >= 0 ? UPS_FLOW_GHOSTS : 0,
                  pad1 = flow->axis_of[1] >= 0 ? UPS_FLOW_GHOSTS : 0;
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
