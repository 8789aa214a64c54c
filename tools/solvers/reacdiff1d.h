/* Reaction–diffusion with logistic growth (Fisher, KPP), u_t = ν u_xx + ρ u(1 - u) on the periodic [0, 1).
 *
 * Strang's splitting: half a step of growth, which has an exact solution, one of diffusion (implicit_diffusion.h), half
 * a step of growth. Second order in space and time; neither ν nor ρ limits the step's stability. */
#ifndef UPS_SOLVERS_REACDIFF1D_H
#define UPS_SOLVERS_REACDIFF1D_H

#include "tools/solvers/solver.h"

extern const ups_solver ups_reacdiff1d;

/* Equal steps that an interval should take for an error well below a thousandth. */
int64_t ups_reacdiff1d_steps(double nu, double rho, double interval);

/* Advances u (cells; at the centres of cells of width 1/cells) by `interval` in `steps` equal steps. nu, rho ≥ 0.
 * `work`: cells doubles. */
void ups_reacdiff1d_advance(int64_t cells, double nu, double rho, double interval, int64_t steps, double *u,
                            double *work);

#endif
