/* Steady Darcy flow, -∇·(ν ∇u) = f on the unit square, u = 0 on its boundary.
 *
 * Five-point scheme on n × n cells, in one of two forms. Conservative: the flux through a face is the harmonic mean of
 * the two cells' ν times the difference of u, exact for coefficients that jump at faces; at the boundary the wall is
 * half a cell away. Second order for smooth ν. PDEBench's: the arithmetic mean, which lets more through where ν jumps,
 * and u is 0 a whole cell outside the outermost centres; what its published script comes to rest at.
 *
 * The system is solved by conjugate gradients preconditioned with a modified incomplete Cholesky factor (Gustafsson,
 * BIT 18, 1978), which needs O(√n) iterations where plain CG needs O(n). */
#ifndef UPS_SOLVERS_DARCY2D_H
#define UPS_SOLVERS_DARCY2D_H

#include "tools/solvers/solver.h"

extern const ups_solver ups_darcy2d;

/* Residual ‖f - A u‖ / ‖f‖ at which a solution is accepted. */
#define UPS_DARCY_TOLERANCE 1e-8

typedef enum ups_darcy_scheme { UPS_DARCY_PDEBENCH, UPS_DARCY_CONSERVATIVE } ups_darcy_scheme;

/* Doubles of working memory for n × n cells. */
size_t ups_darcy2d_scratch(int64_t n);

/* Solves for u (x, y), y fastest, given nu (x, y) > 0 and f = `source` (x, y) at the cell centres. UPS_ERR_NUMERIC when
 * the iteration does not reach UPS_DARCY_TOLERANCE, which positive finite coefficients do not cause; UPS_ERR_CANCELLED
 * on Ctrl-C. `iterations` may be NULL. */
ups_status ups_darcy2d_solve(ups_darcy_scheme scheme, int64_t n, const double *nu, const double *source, double *u,
                             double *scratch, int *iterations, ups_error *error);

/* A medium of PDEBench's: the sum of five blobs exp(-|x - m|²/s), each with its m anywhere in the unit square and s in
 * [0, ½), is compared with its mean over all media; ν (x, y) is `high` where it is larger, else `low`. `scratch`: 2 n
 * doubles. */
void ups_darcy2d_blobs(int64_t n, uint64_t seed, int64_t sample, double low, double high, double *nu, double *scratch);

#endif
