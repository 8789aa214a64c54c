/* The shallow-water equations over a bottom b(x, y),
 *
 *     h_t + ∇·(h u) = 0,    (h u)_t + ∇·(h u ⊗ u) + ∇(g h²/2) = -g h ∇b.
 *
 * Finite volumes, unsplit: monotonized-central reconstruction of depth, surface and velocities, the HLLC flux with
 * Einfeldt's wave speeds (SIAM J. Numer. Anal. 25, 1988), and in time the strong-stability-preserving two-stage
 * Runge–Kutta scheme. Second order where the solution is smooth. Faces are rebuilt hydrostatically (Audusse et al.,
 * SIAM J. Sci. Comput. 25, 2004): a lake at rest stays at rest to rounding over any bottom. Σh is conserved to rounding
 * between walls. The depth is positive everywhere: no dry ground. */
#ifndef UPS_SOLVERS_SWE2D_H
#define UPS_SOLVERS_SWE2D_H

#include "tools/solvers/solver.h"

extern const ups_solver ups_swe2d;

typedef struct ups_shallow_water {
    int64_t nx, ny; /* at least 1; at one cell the axis drops out */
    double dx, dy;  /* of a cell */
    double gravity;
    const double *bottom; /* (nx, ny); NULL: flat */
    bool walls;           /* that reflect; otherwise water leaves freely */
} ups_shallow_water;

/* Doubles of working memory. */
size_t ups_swe2d_scratch(int64_t nx, int64_t ny);

/* Advances depth h and discharges hu, hv (nx, ny; averages over cells; side by side in `state`: (3, nx, ny)) by exactly
 * `interval`, in steps that respect the Courant limit. UPS_ERR_NUMERIC when waves become too fast to follow. `steps`
 * may be NULL. */
ups_status ups_swe2d_advance(const ups_shallow_water *water, double interval, double *state, double *scratch,
                             int64_t *steps, ups_error *error);

#endif
