/* Smooth random fields on the periodic unit square, as PhiFlow's `Noise`, from which PDEBench's incompressible flows
 * begin:
 *
 *     g(x, y) = Σ_k w(k) (ξ_k cos 2πk·x + η_k sin 2πk·x),   w = (scale² |k|²)^-smoothness where scale² |k|² > 0.1, else
 * 0,
 *
 * with ξ, η normal, over the wavenumbers of a half plane up to UPS_NOISE_MODES along each axis, scaled to mean 0 and
 * variance 1. `scale` is a length: smaller moves the largest waves to shorter ones. The series, and so the field, is
 * the same at every resolution. */
#ifndef UPS_TOOLS_SOLVERS_INCOMPRESSIBLE_NOISE_H
#define UPS_TOOLS_SOLVERS_INCOMPRESSIBLE_NOISE_H

#include <stddef.h>
#include <stdint.h>

/* With smoothness 1 those beyond carry less than a thousandth of the variance. */
#define UPS_NOISE_MODES 32

typedef struct ups_noise {
    double scale, smoothness; /* scale ≥ 0.01, or no wave is left */
    int components;           /* scaled together: 2 for a vector field */
} ups_noise;

/* Doubles of working memory. */
size_t ups_noise_scratch(int64_t cells);

/* Component `component` of field number `field` of (seed, sample), at ((i + dx)/cells, (j + dy)/cells): values (x, y),
 * y fastest. */
void ups_noise_draw(const ups_noise *noise, uint64_t seed, int64_t sample, int field, int component, int64_t cells,
                    double dx, double dy, double *values, double *scratch);

#endif
