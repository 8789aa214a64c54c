/* Two-dimensional diffusion–reaction of FitzHugh and Nagumo, as PDEBench has it (arXiv 2210.07182, section D.7):
 *
 *     u_t = D_u Δu + u - u³ - k - v,    v_t = D_v Δv + u - v    on [-1, 1]², nothing crosses the walls.
 *
 * Strang's splitting: reaction for half a step (classical Runge–Kutta of fourth order; it is not stiff), diffusion for
 * a step (implicit_diffusion.h), reaction for half a step. Second order in space and time. */
#ifndef UPS_SOLVERS_DIFFREACT2D_H
#define UPS_SOLVERS_DIFFREACT2D_H

#include "tools/solvers/solver.h"

extern const ups_solver ups_diffreact2d;

typedef struct ups_activation {
    double diffusion_u, diffusion_v; /* of activator and inhibitor, > 0 */
    double k;
} ups_activation;

/* Doubles of working memory for cells × cells. */
size_t ups_diffreact2d_scratch(int64_t cells);

/* Advances u and v (cells, cells; at the centres) by `steps` equal steps of `dt`. */
void ups_diffreact2d_advance(int64_t cells, const ups_activation *medium, double dt, int64_t steps, double *u,
                             double *v, double *scratch);

/* Advances from `begin` to `end` ≥ begin. Noise at time 0 changes as fast as t grows, and so do the steps, from the
 * time that diffusion takes to cross a cell up to what the reaction needs. Returns the number of steps. */
int64_t ups_diffreact2d_march(int64_t cells, const ups_activation *medium, double begin, double end, double *u,
                              double *v, double *scratch);

#endif
