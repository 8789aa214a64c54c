#include "tools/solvers/incompressible/rows.h"
#include "tools/solvers/every_width.h"
#include "tools/solvers/limiter.h"

/* The value halfway between b and c in the row a, b, c, d of points, from the side the flow comes from: the parabola
 * through two points upstream and one downstream, as a mean over cells has it (κ = 1/3). */
UPS_ALWAYS_INLINE double upwind(double flow, double a, double b, double c, double d) {
    const double ahead = (2.0 * c + 5.0 * b - a) * (1.0 / 6.0), behind = (2.0 * b + 5.0 * c - d) * (1.0 / 6.0);
    return flow >= 0.0 ? ahead : behind;
}

/* The same place, without new extrema. */
UPS_ALWAYS_INLINE double limited_upwind(double flow, double a, double b, double c, double d) {
    const double ahead = b + ups_half_slope(a, b, c), behind = c - ups_half_slope(b, c, d);
    return flow >= 0.0 ? ahead : behind;
}

UPS_EVERY_WIDTH void ups_momentum_rate(int64_t count, int64_t along, int64_t across, double inverse_h, double viscosity,
                                       const double *q, const double *other, double *rate) {
    const double spread = viscosity * inverse_h * inverse_h;
    const int64_t a = along, c = across;
    UPS_SAME_PLACE
    for (int64_t i = 0; i < count; i++) {
        const double *x = q + i, *y = other + i;
        const double ahead = 0.5 * (x[0] + x[a]), behind = 0.5 * (x[-a] + x[0]);
        const double over = 0.5 * (y[c - a] + y[c]), under = 0.5 * (y[-a] + y[0]);
        const double carried =
            ahead * upwind(ahead, x[-a], x[0], x[a], x[2 * a]) - behind * upwind(behind, x[-2 * a], x[-a], x[0], x[a]);
        const double crossed =
            over * upwind(over, x[-c], x[0], x[c], x[2 * c]) - under * upwind(under, x[-2 * c], x[-c], x[0], x[c]);
        const double curved = (x[a] - 2.0 * x[0] + x[-a]) + (x[c] - 2.0 * x[0] + x[-c]);
        rate[i] = spread * curved - inverse_h * (carried + crossed);
    }
}

UPS_EVERY_WIDTH void ups_scalar_rate(int64_t count, int64_t pitch, double inverse_h, double diffusivity,
                                     const double *s, const double *u, const double *v, double *rate) {
    const double spread = diffusivity * inverse_h * inverse_h;
    const int64_t p = pitch;
    UPS_SAME_PLACE
    for (int64_t i = 0; i < count; i++) {
        const double *x = s + i;
        const double carried = u[i + p] * limited_upwind(u[i + p], x[-p], x[0], x[p], x[2 * p]) -
                               u[i] * limited_upwind(u[i], x[-2 * p], x[-p], x[0], x[p]);
        const double crossed = v[i + 1] * limited_upwind(v[i + 1], x[-1], x[0], x[1], x[2]) -
                               v[i] * limited_upwind(v[i], x[-2], x[-1], x[0], x[1]);
        const double curved = (x[p] - 2.0 * x[0] + x[-p]) + (x[1] - 2.0 * x[0] + x[-1]);
        rate[i] = spread * curved - inverse_h * (carried + crossed);
    }
}

UPS_EVERY_WIDTH void ups_add_force(int64_t count, int64_t back, const double *s, const double *f, double *rate) {
    if (!s) {
        UPS_SAME_PLACE
        for (int64_t i = 0; i < count; i++) rate[i] += f[i];
        return;
    }
    UPS_SAME_PLACE
    for (int64_t i = 0; i < count; i++) rate[i] += 0.5 * (s[i] + s[i - back]) * f[i];
}

UPS_EVERY_WIDTH void ups_add_gradient(int64_t count, int64_t back, double factor, const double *p, double *q) {
    UPS_SAME_PLACE
    for (int64_t i = 0; i < count; i++) q[i] += factor * (p[i] - p[i - back]);
}

UPS_EVERY_WIDTH void ups_net_outflow(int64_t count, int64_t pitch, double factor, const double *u, const double *v,
                                     double *out) {
    UPS_SAME_PLACE
    for (int64_t i = 0; i < count; i++) out[i] = factor * ((u[i + pitch] - u[i]) + (v[i + 1] - v[i]));
}

UPS_EVERY_WIDTH void ups_weigh(int64_t count, double a, const double *x, double b, const double *y, double *out) {
    UPS_SAME_PLACE
    for (int64_t i = 0; i < count; i++) out[i] = a * x[i] + b * y[i];
}
