/* u_t = D Δu over one time step, implicit and L-stable: no limit on the step, no ringing of sharp edges.
 *
 * In time the two-stage singly diagonally implicit Runge–Kutta scheme with γ = 1 - 1/√2 (Alexander, SIAM J. Numer.
 * Anal. 14, 1977), second order. For a linear operator L it is u' = (1 + √2) S²u - √2 Su, S = (1 - γ Δt D L)⁻¹: two
 * solves and a sum; Σu is conserved to rounding. In space the three-point Laplacian on cells, second order; in two
 * dimensions one axis after the other, which is exact, since the two commute. */
#ifndef UPS_SOLVERS_IMPLICIT_DIFFUSION_H
#define UPS_SOLVERS_IMPLICIT_DIFFUSION_H

#include <stdint.h>

/* γ = 1 - 1/√2. */
#define UPS_SDIRK2_GAMMA 0.29289321881345247560

/* ---- a periodic line ---- */

/* (1 + 2q) - q(shift + shift⁻¹) is (q/a)(1 - a shift)(1 - a shift⁻¹) with a the smaller root of q a² - (1 + 2q) a + q
 * = 0. Both factors are undone by a running sum that forgets as aⁿ: no pivots, no division. */
typedef struct ups_periodic_factor {
    double a;
    double scale;  /* a/q */
    double turns;  /* 1/(1 - aⁿ): what the turns of the domain before this one add */
    int64_t reach; /* cells after which aⁿ is below rounding, or all of them */
} ups_periodic_factor;

/* q > 0. */
ups_periodic_factor ups_periodic_factorize(int64_t cells, double q);
/* Solves (1 + 2q) x_i - q(x_{i-1} + x_{i+1}) = x_i(given), in place. */
void ups_periodic_solve(int64_t cells, const ups_periodic_factor *factor, double *x);
/* One step of u; `factor` was made with q = γ Δt D / Δx². `work`: cells doubles. */
void ups_periodic_diffuse(int64_t cells, const ups_periodic_factor *factor, double *u, double *work);

/* ---- between walls that nothing crosses ---- */

/* `pivots`: cells doubles, for ups_walled_diffuse with the same cells and q = γ Δt D / Δx². */
void ups_walled_factorize(int64_t cells, double q, double *pivots);
/* One step of u (cells, width) along its first axis; all columns at once. `work`: cells · width doubles. */
void ups_walled_diffuse(int64_t cells, int64_t width, double q, const double *pivots, double *u, double *work);
/* One step of u (cells, cells) along both axes. `work`: twice as much. */
void ups_walled_diffuse_square(int64_t cells, double q, const double *pivots, double *u, double *work);

#endif
