/* Gaussian random fields on the unit square with covariance (-Δ + τ²)^-α and zero-flux boundaries, as a cosine series:
 *
 *     g(x, y) = Σ_{k,l} (π²(k² + l²) + τ²)^{-α/2} ξ_kl ψ_k(x) ψ_l(y),    ψ_0 = 1, ψ_k = √2 cos πkx,    ξ_kl normal,
 *
 * without the constant (0, 0), for k and l below UPS_FIELD_MODES. τ is an inverse length (larger: finer grains), α the
 * smoothness. The series is the same at every resolution, so a field drawn on a finer grid is the same field.
 * Source: Li et al., "Fourier neural operator", arXiv 2010.08895, appendix A.3.2 (τ = 3, α = 2). */
#ifndef UPS_SOLVERS_GAUSSIAN_FIELD_H
#define UPS_SOLVERS_GAUSSIAN_FIELD_H

#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

/* Modes along each axis. With α = 2 those beyond carry less than a ten-thousandth of the variance. */
#define UPS_FIELD_MODES 64

typedef struct ups_gaussian_field ups_gaussian_field;

/* Tables for a grid of resolution × resolution cell centres; α > 1 makes the variance finite. */
ups_status ups_gaussian_field_create(int64_t resolution, double tau, double alpha, ups_gaussian_field **field,
                                     ups_error *error);
void ups_gaussian_field_destroy(ups_gaussian_field *field); /* NULL is fine */

/* Doubles of working memory of one draw. */
size_t ups_gaussian_field_scratch(const ups_gaussian_field *field);

/* The field of (seed, sample): values (x, y) at the cell centres, y fastest. */
void ups_gaussian_field_draw(const ups_gaussian_field *field, uint64_t seed, int64_t sample, double *values,
                             double *scratch);

#endif
