#include "tools/solvers/compressible/rows.h"
#include "tools/solvers/compressible/riemann_hllc.h"
#include "tools/solvers/every_width.h"
#include "tools/solvers/limiter.h"

UPS_EVERY_WIDTH void ups_gas_edges(int variables, int64_t count, const double *cells, ptrdiff_t cell_stride,
                                   ptrdiff_t step, const double *order, double *lower, ptrdiff_t lower_stride,
                                   double *upper, ptrdiff_t upper_stride) {
    for (int v = 0; v < variables; v++) {
        const double *here = cells + v * cell_stride, *below = here - step, *above = here + step;
        double *restrict low = lower + v * lower_stride, *restrict high = upper + v * upper_stride;
        if (order) {
            for (int64_t i = 0; i < count; i++) {
                const double half = order[i] * ups_half_slope(below[i], here[i], above[i]);
                low[i] = here[i] - half;
                high[i] = here[i] + half;
            }
            continue;
        }
        for (int64_t i = 0; i < count; i++) {
            const double half = ups_half_slope(below[i], here[i], above[i]);
            low[i] = here[i] - half;
            high[i] = here[i] + half;
        }
    }
}

/* Calls `kernel` with `axes` and `normal` known at compile time. */
#define WITH_CONSTANTS(kernel, ...)                                                                                    \
    do {                                                                                                               \
        if (axes == 1) kernel(1, 0, __VA_ARGS__);                                                                      \
        if (axes == 2 && normal == 0) kernel(2, 0, __VA_ARGS__);                                                       \
        if (axes == 2 && normal == 1) kernel(2, 1, __VA_ARGS__);                                                       \
        if (axes == 3 && normal == 0) kernel(3, 0, __VA_ARGS__);                                                       \
        if (axes == 3 && normal == 1) kernel(3, 1, __VA_ARGS__);                                                       \
        if (axes == 3 && normal == 2) kernel(3, 2, __VA_ARGS__);                                                       \
    } while (0)

UPS_ALWAYS_INLINE void fluxes(int axes, int normal, int64_t count, double gamma, const double *left, ptrdiff_t ls,
                              const double *right, ptrdiff_t rs, double *restrict flux, ptrdiff_t stride) {
    const double inverse_gamma_1 = 1.0 / (gamma - 1.0);
    const int pressure = axes + 1;
    for (int64_t i = 0; i < count; i++) {
        ups_gas_side l = {left[i], left[(1 + normal) * ls + i], left[pressure * ls + i], 0.0};
        ups_gas_side r = {right[i], right[(1 + normal) * rs + i], right[pressure * rs + i], 0.0};
        for (int t = 0; t < axes; t++) {
            if (t == normal) continue;
            const double along_left = left[(1 + t) * ls + i], along_right = right[(1 + t) * rs + i];
            l.tangential_energy += 0.5 * along_left * along_left;
            r.tangential_energy += 0.5 * along_right * along_right;
        }
        const ups_gas_flux f = ups_hllc(&l, &r, gamma, inverse_gamma_1);
        flux[i] = f.mass;
        flux[(1 + normal) * stride + i] = f.normal_momentum;
        flux[pressure * stride + i] = f.energy;
        for (int t = 0; t < axes; t++) {
            if (t == normal) continue;
            const double along_left = left[(1 + t) * ls + i], along_right = right[(1 + t) * rs + i];
            flux[(1 + t) * stride + i] = f.mass * (f.from_left > 0.5 ? along_left : along_right);
        }
    }
}

UPS_EVERY_WIDTH void ups_gas_fluxes(int axes, int normal, int64_t count, double gamma, const double *left, ptrdiff_t ls,
                                    const double *right, ptrdiff_t rs, double *flux, ptrdiff_t stride) {
    WITH_CONSTANTS(fluxes, count, gamma, left, ls, right, rs, flux, stride);
}

/* τ_ab = η (∂_a v_b + ∂_b v_a - ⅔ δ_ab ∇·v) + ζ δ_ab ∇·v. Derivatives along the normal are compact; those along the
 * face are means of the central differences in both cells. */
UPS_ALWAYS_INLINE void stress(int axes, int normal, int64_t count, const ups_gas_viscosity *viscosity,
                              const double *cells, ptrdiff_t cell_stride, double *restrict flux, ptrdiff_t stride) {
    const double shear = viscosity->shear, bulk = viscosity->bulk;
    const ptrdiff_t up = viscosity->step[normal];
    for (int64_t i = 0; i < count; i++) {
        const double *across = cells + (1 + normal) * cell_stride + i;
        const double stretch = (across[up] - across[0]) * viscosity->inverse_dx[normal];
        double divergence = stretch, work = 0.0;
        for (int b = 0; b < axes; b++) {
            if (b == normal) continue;
            const ptrdiff_t side = viscosity->step[b];
            const double quarter = 0.25 * viscosity->inverse_dx[b];
            const double *along = cells + (1 + b) * cell_stride + i;
            divergence += quarter * ((along[side] - along[-side]) + (along[up + side] - along[up - side]));
            const double turned = quarter * ((across[side] - across[-side]) + (across[up + side] - across[up - side]));
            const double tau = shear * ((along[up] - along[0]) * viscosity->inverse_dx[normal] + turned);
            flux[(1 + b) * stride + i] -= tau;
            work += tau * 0.5 * (along[0] + along[up]);
        }
        const double tau = shear * (2.0 * stretch - 2.0 / 3.0 * divergence) + bulk * divergence;
        flux[(1 + normal) * stride + i] -= tau;
        flux[(1 + axes) * stride + i] -= work + tau * 0.5 * (across[0] + across[up]);
    }
}

/* τ_ab = ρ (η ∂_a v_b + δ_ab (⅓η + ζ) ∂_a v_a), with the mean density of both cells. */
UPS_ALWAYS_INLINE void stress_by_mass(int axes, int normal, int64_t count, const ups_gas_viscosity *viscosity,
                                      const double *cells, ptrdiff_t cell_stride, double *restrict flux,
                                      ptrdiff_t stride) {
    const double shear = viscosity->shear, along_normal = 4.0 / 3.0 * viscosity->shear + viscosity->bulk;
    const ptrdiff_t up = viscosity->step[normal];
    for (int64_t i = 0; i < count; i++) {
        const double by_dx = 0.5 * (cells[i] + cells[up + i]) * viscosity->inverse_dx[normal];
        double work = 0.0;
        for (int b = 0; b < axes; b++) {
            const double *velocity = cells + (1 + b) * cell_stride + i;
            const double tau = (b == normal ? along_normal : shear) * by_dx * (velocity[up] - velocity[0]);
            flux[(1 + b) * stride + i] -= tau;
            work += tau * 0.5 * (velocity[0] + velocity[up]);
        }
        flux[(1 + axes) * stride + i] -= work;
    }
}

UPS_EVERY_WIDTH void ups_gas_stress(int axes, int normal, int64_t count, const ups_gas_viscosity *viscosity,
                                    const double *cells, ptrdiff_t cell_stride, double *flux, ptrdiff_t stride) {
    const ups_gas_viscosity own = *viscosity;
    if (own.by_mass) {
        WITH_CONSTANTS(stress_by_mass, count, &own, cells, cell_stride, flux, stride);
    } else {
        WITH_CONSTANTS(stress, count, &own, cells, cell_stride, flux, stride);
    }
}

UPS_EVERY_WIDTH void ups_gas_difference(int variables, int64_t count, double inverse_dx, const double *below,
                                        const double *above, ptrdiff_t stride, int add, double *rate,
                                        ptrdiff_t rate_stride) {
    for (int v = 0; v < variables; v++) {
        const double *low = below + v * stride, *high = above + v * stride;
        double *restrict to = rate + v * rate_stride;
        if (add) {
            for (int64_t i = 0; i < count; i++) to[i] += inverse_dx * (low[i] - high[i]);
        } else {
            for (int64_t i = 0; i < count; i++) to[i] = inverse_dx * (low[i] - high[i]);
        }
    }
}

/* One cell; `lane` is where its limits are kept. */
UPS_ALWAYS_INLINE void primitive_cell(int axes, int64_t i, int lane, double gamma, const double *inverse_dx,
                                      const double *conserved, double *primitive, ptrdiff_t stride,
                                      ups_gas_limits *limits) {
    const double density = conserved[i], inverse = 1.0 / density;
    double kinetic = 0.0, crossing = 0.0, grid = 0.0;
    for (int a = 0; a < axes; a++) {
        const double momentum = conserved[(1 + a) * stride + i], velocity = momentum * inverse;
        primitive[(1 + a) * stride + i] = velocity;
        kinetic += momentum * velocity;
        crossing += fabs(velocity) * inverse_dx[a];
        grid += inverse_dx[a];
    }
    const double pressure = (gamma - 1.0) * (conserved[(1 + axes) * stride + i] - 0.5 * kinetic);
    primitive[i] = density;
    primitive[(1 + axes) * stride + i] = pressure;
    const double sound = sqrt(ups_larger(gamma * pressure * inverse, 0.0));
    limits->fastest[lane] = ups_larger(crossing + sound * grid, limits->fastest[lane]);
    limits->thinnest[lane] = ups_smaller(density, limits->thinnest[lane]);
    limits->broken[lane] += density > 0.0 ? (pressure > 0.0 ? 0.0 : 1.0) : 1.0;
}

UPS_ALWAYS_INLINE void primitives(int axes, int64_t count, double gamma, const double *inverse_dx,
                                  const double *restrict conserved, double *restrict primitive, ptrdiff_t stride,
                                  ups_gas_limits *limits) {
    ups_gas_limits own = *limits;
    int64_t i = 0;
    for (; i + UPS_GAS_LANES <= count; i += UPS_GAS_LANES) {
        for (int lane = 0; lane < UPS_GAS_LANES; lane++)
            primitive_cell(axes, i + lane, lane, gamma, inverse_dx, conserved, primitive, stride, &own);
    }
    for (int lane = 0; i < count; i++, lane++)
        primitive_cell(axes, i, lane, gamma, inverse_dx, conserved, primitive, stride, &own);
    *limits = own;
}

UPS_EVERY_WIDTH void ups_gas_primitive(int axes, int64_t count, double gamma, const double inverse_dx[UPS_GAS_AXES],
                                       const double *conserved, double *primitive, ptrdiff_t stride,
                                       ups_gas_limits *limits) {
    switch (axes) {
    case 1:
        primitives(1, count, gamma, inverse_dx, conserved, primitive, stride, limits);
        break;
    case 2:
        primitives(2, count, gamma, inverse_dx, conserved, primitive, stride, limits);
        break;
    default:
        primitives(3, count, gamma, inverse_dx, conserved, primitive, stride, limits);
        break;
    }
}

UPS_EVERY_WIDTH void ups_gas_velocities(int axes, int64_t count, const double *conserved, double *primitive,
                                        ptrdiff_t stride) {
    for (int a = 1; a <= axes; a++) {
        double *restrict to = primitive + a * stride;
        for (int64_t i = 0; i < count; i++) to[i] = conserved[a * stride + i] * (1.0 / conserved[i]);
    }
}

UPS_EVERY_WIDTH void ups_gas_combine(int64_t count, int terms, const double *const *term, const double *weight,
                                     double *out) {
    const double *a = term[0], *b = term[1];
    const double p = weight[0], q = weight[1];
    if (terms == 2) {
        UPS_SAME_PLACE
        for (int64_t i = 0; i < count; i++) out[i] = p * a[i] + q * b[i];
        return;
    }
    const double *c = term[2];
    const double r = weight[2];
    if (terms == 3) {
        UPS_SAME_PLACE
        for (int64_t i = 0; i < count; i++) out[i] = p * a[i] + q * b[i] + r * c[i];
        return;
    }
    const double *d = term[3];
    const double s = weight[3];
    if (terms == 4) {
        UPS_SAME_PLACE
        for (int64_t i = 0; i < count; i++) out[i] = p * a[i] + q * b[i] + r * c[i] + s * d[i];
        return;
    }
    const double *e = term[4];
    const double t = weight[4];
    UPS_SAME_PLACE
    for (int64_t i = 0; i < count; i++) out[i] = p * a[i] + q * b[i] + r * c[i] + s * d[i] + t * e[i];
}
