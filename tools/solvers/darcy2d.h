/* Steady Darcy flow, -∇·(ν ∇u) = f on the unit square, u = 0 on its boundary.
 *
 * Conservative five-point scheme on n × n cells: the flux through a face is the harmonic mean of the two cells' ν times
 * the difference of u, exact for coefficients that jump at faces; at the boundary the wall is half a cell away. Second
 * order for smooth ν. The system is solved by conjugate gradients preconditioned with a modified incomplete Cholesky
 * factor (Gustafsson, BIT 18, 1978), which needs O(√n)
 * iterations where plain CG needs O(n). */
#ifndef UPS_SOLVERS_DARCY2D_H
#define UPS_SOLVERS_DARCY2D_H

#include "tools/solvers/solver.h"

extern const ups_solver ups_darcy2d;

/* Residual ‖f - A u‖ / ‖f‖ at which a solution is accepted. */
#define UPS_DARCY_TOLERANCE 1e-8

/* Doubles of working memory for n × n cells. */
size_t ups_darcy2d_scratch(int64_t n);

/* Solves for u (x, y), y fastest, given nu (x, y) > 0 and f = `source` (x, y) at the cell centres. UPS_ERR_NUMERIC when
 * the iteration does not reach UPS_DARCY_TOLERANCE, which positive finite coefficients do not cause; UPS_ERR_CANCELLED
 * on Ctrl-C. `iterations` may be NULL. */
ups_status ups_darcy2d_solve(int64_t n, const double *nu, const double *source, double *u, double *scratch,
                             int *iterations, ups_error *error);

#endif
