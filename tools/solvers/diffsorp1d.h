/* Diffusion–sorption, R(u) u_t = D u_xx on [0, 1], with Freundlich's retardation
 *
 *     R(u) = 1 + (1 - φ)/φ ρ_s k n_f (u + 1e-6)^(n_f - 1),
 *
 * u = u_wall at x = 0 and u + D u_x = 0 at x = 1 (PDEBench, arXiv 2210.07182, section D.2, as its generator has it: the
 * text there prints another sign). Solved in conservative form, C(u)_t = D u_xx with C' = R: what the medium holds,
 * dissolved and sorbed, changes by what crosses the walls and by nothing else.
 *
 * Finite volumes, the walls at faces: second order. PDEBench's solver puts what holds at a wall into a cell beyond it,
 * half a cell off, which is first order: that is `ghost_cells`. In time the two-stage L-stable SDIRK scheme
 * (implicit_diffusion.h), a tridiagonal Newton iteration a stage. */
#ifndef UPS_SOLVERS_DIFFSORP1D_H
#define UPS_SOLVERS_DIFFSORP1D_H

#include "tools/solvers/solver.h"

extern const ups_solver ups_diffsorp1d;

typedef struct ups_sorption {
    double diffusivity; /* D > 0 */
    double capacity;    /* (1 - φ)/φ ρ_s k ≥ 0 */
    double exponent;    /* n_f > 0 */
    double wall;        /* u at x = 0 */
    bool ghost_cells;   /* the walls' values are those of cells beyond them */
} ups_sorption;

/* What a unit of volume holds where the concentration is u, and R, its derivative. Below u = 0, where no solution goes,
 * both go on as a straight line. */
double ups_sorption_held(const ups_sorption *medium, double u, double *retardation);

/* Doubles of working memory. */
size_t ups_diffsorp1d_scratch(int64_t cells);

/* Advances u (cells; at the centres of cells of width 1/cells) by `steps` equal steps of `dt`. UPS_ERR_NUMERIC when
 * Newton's iteration does not converge. */
ups_status ups_diffsorp1d_advance(int64_t cells, const ups_sorption *medium, double dt, int64_t steps, double *u,
                                  double *scratch, ups_error *error);

/* Advances from `begin` to `end` ≥ begin: the solution of a jump at time 0 changes as fast as t grows, and so do the
 * steps, from the time that diffusion takes to cross a cell. */
ups_status ups_diffsorp1d_march(int64_t cells, const ups_sorption *medium, double begin, double end, double *u,
                                double *scratch, ups_error *error);

#endif
