/* Energy of a field by radial wave number:
 *
 *   E(k) = sum of |FFT(u)(κ) / N|² over all κ with k - 1/2 <= |κ| < k + 1/2
 *
 * κ counts waves across the grid along each axis, in both directions; N grid points. So E(0) is the square of the mean,
 * and the shells together are the mean square (Parseval), but for corners of the grid's spectrum that lie beyond the
 * last shell, k = floor(n / 2) of the shortest axis's n points.
 *
 * The FFT is kissfft's in single precision, of the field less its mean: shells of less than about 1e-13 of the
 * fluctuations' energy are rounding. */
#ifndef UPS_TRAIN_EVALUATION_SPECTRUM_H
#define UPS_TRAIN_EVALUATION_SPECTRUM_H

#include "base/error.h"
#include <stdint.h>

typedef struct ups_spectrum ups_spectrum;

/* For grids of `dims` axes, 1 to 3, of points grid[0 … dims). Errors: UPS_ERR_ARGUMENT for a grid without points,
 * UPS_ERR_MEMORY. */
ups_status ups_spectrum_create(int dims, const int64_t *grid, ups_spectrum **spectrum, ups_error *error);
void ups_spectrum_destroy(ups_spectrum *spectrum); /* NULL is fine */

int64_t ups_spectrum_shells(const ups_spectrum *spectrum); /* k = 0 … shells - 1 */

/* Adds a field's energy to `energy` (shells). Its values are `stride` apart, the last axis runs fastest. A value that
 * is not finite makes all shells NaN. Not thread-safe. */
void ups_spectrum_add(ups_spectrum *spectrum, const float *field, int64_t stride, double *energy);

#endif
