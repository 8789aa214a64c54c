/* Cosine and Fourier transforms down the columns of a matrix, in float64 and for any number of rows.
 *
 * kissfft, which this project uses elsewhere, is packaged in float32 only, and a projection in float32 leaves a
 * divergence that float64 fields would keep. Transforming many columns at once also makes every loop a loop over
 * columns, which is vectorized without effort.
 *
 * Two real columns make one complex column; complex transforms are Stockham's, of radix 4, 2 and whatever primes are
 * left. The cosine transform is Makhoul's (IEEE Trans. Acoust. Speech Signal Process. 28, 1980). */
#ifndef UPS_TOOLS_SOLVERS_INCOMPRESSIBLE_FOURIER_H
#define UPS_TOOLS_SOLVERS_INCOMPRESSIBLE_FOURIER_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ups_columns ups_columns;

/* Tables for columns of `rows` numbers. `cosine`: X_k = Σ_n x_n cos(π(2n + 1)k/2N); otherwise the real Fourier
 * transform, with Re X_k in row k ≤ N/2 and Im X_k in row N - k. NULL when out of memory; freed by ups_columns_destroy.
 */
ups_columns *ups_columns_create(int64_t rows, bool cosine);
void ups_columns_destroy(ups_columns *columns); /* NULL is fine */

/* Doubles of working memory, aligned to 64 bytes. */
size_t ups_columns_scratch(const ups_columns *columns);

/* In place, on `width` columns of a matrix whose rows lie `pitch` apart. `inverse` undoes `forward`. */
void ups_columns_forward(const ups_columns *columns, int64_t width, int64_t pitch, double *matrix, double *scratch);
void ups_columns_inverse(const ups_columns *columns, int64_t width, int64_t pitch, double *matrix, double *scratch);

#endif
