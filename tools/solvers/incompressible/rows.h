/* The inner loops of the incompressible solver, over rows of a field along y. Fields have ghost cells: neighbours along
 * x lie `pitch` away, along y beside. Compiled for several widths of vectors with the same results, as
 * compressible_rows.h. */
#ifndef UPS_TOOLS_SOLVERS_INCOMPRESSIBLE_ROWS_H
#define UPS_TOOLS_SOLVERS_INCOMPRESSIBLE_ROWS_H

#include <stdint.h>

/* rate = -∇·(v q) + ν Δq for a velocity component q. `along`: distance to the neighbour along q's own axis, `across`:
 * along the other; `other` is the other component. */
void ups_momentum_rate(int64_t count, int64_t along, int64_t across, double inverse_h, double viscosity,
                       const double *q, const double *other, double *rate);
/* rate = -∇·(s v) + κ Δs */
void ups_scalar_rate(int64_t count, int64_t pitch, double inverse_h, double diffusivity, const double *s,
                     const double *u, const double *v, double *rate);
/* rate += ½(s + its neighbour `back`) f, or f where s is NULL */
void ups_add_force(int64_t count, int64_t back, const double *s, const double *f, double *rate);
/* q += factor (p - its neighbour `back`) */
void ups_add_gradient(int64_t count, int64_t back, double factor, const double *p, double *q);
/* out = factor ∇·v h */
void ups_net_outflow(int64_t count, int64_t pitch, double factor, const double *u, const double *v, double *out);
/* out = a x + b y; out may be x or y */
void ups_weigh(int64_t count, double a, const double *x, double b, const double *y, double *out);

#endif
