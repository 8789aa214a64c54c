/* What the parts of the compressible solver share; included by flow.c, grid.c and
 * rates.c alone. */
#ifndef UPS_TOOLS_SOLVERS_COMPRESSIBLE_FLOW_H
#define UPS_TOOLS_SOLVERS_COMPRESSIBLE_FLOW_H

#include "tools/solvers/compressible/compressible.h"
#include "tools/solvers/compressible/rows.h"

enum { UPS_FLOW_GHOSTS = 2, UPS_FLOW_SLOTS = 3 };

struct ups_compressible {
    ups_compressible_problem problem;
    int variables;
    int axis_of[UPS_FLOW_SLOTS];          /* -1 where the slot is not used */
    int64_t n[UPS_FLOW_SLOTS];            /* cells */
    ptrdiff_t step[UPS_FLOW_SLOTS];       /* to the neighbour */
    ptrdiff_t volume;                     /* from a variable to the next */
    ptrdiff_t origin;                     /* of the first cell */
    double inverse_dx[UPS_FLOW_SLOTS];    /* by slot */
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

bool ups_flow_is_viscous(const ups_compressible_problem *problem);

/* Where row (i, j) of cells begins in a field. */
static inline ptrdiff_t ups_flow_row_at(const ups_compressible *flow, int64_t i, int64_t j) {
    return flow->origin + (ptrdiff_t)i * flow->step[0] + (ptrdiff_t)j * flow->step[1];
}

/* Fills the ghosts of `count` variables of `fields` from `first` on: slot after slot, each including the ghosts of
 * those before, so that corners are right too. */
void ups_flow_fill_ghosts(const ups_compressible *flow, double *fields, int first, int count);

/* ---- rates of change ---- */

enum { UPS_FLOW_EULER = 1, UPS_FLOW_VISCOUS = 2 };

/* What becomes of the rates R of change: out = Σ weight_k term_k + rate_weight R. */
typedef struct ups_flow_outcome {
    int terms;
    const double *term[4]; /* fields, as conserved ones are laid out */
    double weight[4];
    double rate_weight;
    double *out;
} ups_flow_outcome;

/* Everything a pass over the grid is told. */
typedef struct ups_flow_pass {
    int parts;           /* UPS_FLOW_EULER, UPS_FLOW_VISCOUS or both */
    const double *order; /* NULL: slopes everywhere */
    ups_flow_outcome to;
} ups_flow_pass;

/* One pass: rates of change from `gas`, whose ghosts are filled, to with->to. */
void ups_flow_run_pass(ups_compressible *flow, const ups_flow_pass *with);

#endif
