/* Burgers' equation, u_t + (u²/2)_x = D u_xx on the periodic [0, 1), D = ν/π as PDEBench defines ν.
 *
 * Finite volumes: monotonized-central reconstruction (van Leer 1977), Godunov's flux, which Burgers' equation has in
 * closed form, and in time the IMEX scheme SSP2(2,2,2) of Pareschi & Russo (J. Sci. Comput. 25, 2005): convection by
 * the strong-stability-preserving two-stage Runge–Kutta scheme, diffusion implicit and L-stable, so that ν neither
 * limits the step nor makes sharp edges ring. Second order in space and time where the solution is smooth; shocks stay
 * sharp and free of overshoot; Σu is conserved to rounding. */
#ifndef UPS_SOLVERS_BURGERS1D_H
#define UPS_SOLVERS_BURGERS1D_H

#include "tools/solvers/solver.h"

extern const ups_solver ups_burgers1d;

/* Doubles of working memory for `cells` cells. */
size_t ups_burgers1d_scratch(int64_t cells);

/* Advances u (cells; averages over cells of width 1/cells) by exactly `interval`, in equal steps that respect the
 * Courant limit. `diffusivity` is D, ≥ 0. At least 8 cells. Returns the number of steps taken. */
int64_t ups_burgers1d_advance(int64_t cells, double diffusivity, double interval, double *u, double *scratch);

#endif
