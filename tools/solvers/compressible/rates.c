/* Rates of change of the compressible solver. The fluxes of one plane (slots 1 and 2) are kept at a time, so that what
 * a plane needs lies in the cache while a stage passes through the grid once. */
#include "tools/solvers/compressible/flow.h"

#include <string.h>

/* Fluxes across `count` faces normal to `slot`, the lower cells of which begin at `cell`. `right` is a row buffer. */
static void row_fluxes(const ups_compressible *flow, const ups_flow_pass *with, int slot, int64_t count, ptrdiff_t cell,
                       const double *left, const double *right, double *flux, ptrdiff_t stride) {
    const int axes = flow->problem.axes, axis = flow->axis_of[slot];
    if (with->parts & UPS_FLOW_EULER) {
        ups_gas_fluxes(axes, axis, count, flow->problem.gamma, left, stride, right, flow->row, flux, stride);
    } else {
        for (int v = 1; v < flow->variables; v++) memset(flux + v * stride, 0, sizeof(double) * (size_t)count);
    }
    if (with->parts & UPS_FLOW_VISCOUS) {
        ups_gas_stress(axes, axis, count, &flow->viscosity, flow->gas + cell, flow->volume, flux, stride);
    }
}

/* Both ends of `count` cells from `cell` on: the lower ones into the row buffer `lower`. */
static void row_edges(const ups_compressible *flow, const ups_flow_pass *with, int slot, int64_t count, ptrdiff_t cell,
                      double *upper, ptrdiff_t stride) {
    if (!(with->parts & UPS_FLOW_EULER)) return;
    ups_gas_edges(flow->variables, count, flow->gas + cell, flow->volume, flow->step[slot],
                  with->order ? with->order + cell : NULL, flow->lower, flow->row, upper, stride);
}

/* Row (i, j) once its faces in slots 0 and 1 are known: slot 2, and what becomes of it. */
static void finish_row(ups_compressible *flow, const ups_flow_pass *with, int64_t i, int64_t j, const double *below0,
                       const double *above0, const double *below1, const double *above1) {
    const int64_t n = flow->n[2];
    const ptrdiff_t row = flow->row, at = ups_flow_row_at(flow, i, j);
    const int first = with->parts & UPS_FLOW_EULER ? 0 : 1, count = flow->variables - first;
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
    const ups_flow_outcome *to = &with->to;
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
static void finish_plane(ups_compressible *flow, const ups_flow_pass *with, int64_t i, const double *below0,
                         const double *above0) {
    if (flow->axis_of[1] < 0) {
        finish_row(flow, with, i, 0, below0, above0, NULL, NULL);
        return;
    }
    const int64_t n = flow->n[2];
    for (int64_t j = -1; j <= flow->n[1]; j++) {
        const int now = (int)(j & 1), before = 1 - now;
        row_edges(flow, with, 1, n, ups_flow_row_at(flow, i, j), flow->upper1[now], flow->row);
        if (j < 0) continue;
        row_fluxes(flow, with, 1, n, ups_flow_row_at(flow, i, j - 1), flow->upper1[before], flow->lower,
                   flow->flux1[now], flow->row);
        if (j > 0) finish_row(flow, with, i, j - 1, below0, above0, flow->flux1[before], flow->flux1[now]);
    }
}

void ups_flow_run_pass(ups_compressible *flow, const ups_flow_pass *with) {
    if (flow->axis_of[0] < 0) {
        finish_plane(flow, with, 0, NULL, NULL);
        return;
    }
    const int64_t n = flow->n[2];
    for (int64_t i = -1; i <= flow->n[0]; i++) {
        const int now = (int)(i & 1), before = 1 - now;
        for (int64_t j = 0; j < flow->n[1]; j++) {
            const ptrdiff_t place = (ptrdiff_t)j * flow->row;
            row_edges(flow, with, 0, n, ups_flow_row_at(flow, i, j), flow->upper0[now] + place, flow->plane);
            if (i < 0) continue;
            row_fluxes(flow, with, 0, n, ups_flow_row_at(flow, i - 1, j), flow->upper0[before] + place, flow->lower,
                       flow->flux0[now] + place, flow->plane);
        }
        if (i > 0) finish_plane(flow, with, i - 1, flow->flux0[before], flow->flux0[now]);
    }
}
