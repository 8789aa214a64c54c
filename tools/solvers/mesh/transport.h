/* A tracer that flow carries and diffusion spreads, on a mesh:
 *
 *     du/dt + v · grad u = nu Laplace(u),   u = 0 on the left wall,   du/dn = 0 on all other borders.
 *
 * Linear finite elements, stabilised along streamlines (SUPG: Brooks and Hughes, Comput. Methods Appl. Mech. Eng. 32,
 * 1982) with the consistent mass, and Crank and Nicolson's rule in time: of second order in both. The velocity is
 * linear in each cell between its values at the points. */
#ifndef UPS_TOOLS_SOLVERS_MESH_TRANSPORT_H
#define UPS_TOOLS_SOLVERS_MESH_TRANSPORT_H

#include "tools/solvers/mesh/sparse.h"

typedef struct ups_transport_problem {
    const ups_mesh *mesh;
    const ups_sparse *pattern; /* of the mesh */
    const double *vx, *vy;     /* (point): where the speed is `speed` times these */
    double speed, nu;
} ups_transport_problem;

typedef struct ups_transport {
    const ups_transport_problem *problem;
    double *left, *factors, *right; /* matrices: left u(t + step) = right u(t) */
    double *b, *scratch;
} ups_transport;

/* The longest step that keeps the error in time below that in space: half of the time in which flow crosses a
 * cell, and a tenth of that in which something `width` wide spreads by as much. */
double ups_transport_longest_step(const ups_transport_problem *problem, double width);

/* Doubles of working memory. */
size_t ups_transport_scratch(const ups_sparse *pattern);
/* Makes the matrices for steps of length `step`; the problem and the memory stay the caller's. */
void ups_transport_begin(const ups_transport_problem *problem, double step, double *scratch, ups_transport *transport);
/* Takes `steps` steps with u (point). Errors as ups_sparse_solve. */
ups_status ups_transport_advance(const ups_transport *transport, int64_t steps, double *u, ups_error *error);

#endif
