/* Products of small float32 matrices that lie in the cache: C (m, n) (+)= A (m, k) B (k, n), n a multiple of sixteen.
 *
 * A's element (i, l) is a[i * row_stride + l * k_stride], so that A may be read transposed. A tile of C stays in
 * registers while k runs. */
#ifndef UPS_MODEL_CPU_PRODUCT_H
#define UPS_MODEL_CPU_PRODUCT_H

#include "model/cpu/vector.h"

#if defined(__AVX512F__)
enum { UPS_TILE_ROWS = 8, UPS_TILE_VECTORS = 3 }; /* 24 of 32 registers */
#else
enum { UPS_TILE_ROWS = 4, UPS_TILE_VECTORS = 1 };
#endif

static inline __attribute__((always_inline)) void ups_product_tile(const int rows, const int vectors, int64_t k,
                                                                   const float *a, int64_t row_stride, int64_t k_stride,
                                                                   const float *b, int64_t b_stride, float *c,
                                                                   int64_t c_stride, bool accumulate) {
    f32x16 sum[UPS_TILE_ROWS][UPS_TILE_VECTORS];
    for (int i = 0; i < rows; i++) {
        for (int v = 0; v < vectors; v++) {
            sum[i][v] = accumulate ? f32x16_load(c + i * c_stride + v * UPS_LANES) : f32x16_zero();
        }
    }
    for (int64_t l = 0; l < k; l++) {
        f32x16 right[UPS_TILE_VECTORS];
        for (int v = 0; v < vectors; v++) right[v] = f32x16_load(b + l * b_stride + v * UPS_LANES);
        for (int i = 0; i < rows; i++) {
            f32x16 left = f32x16_all(a[i * row_stride + l * k_stride]);
            for (int v = 0; v < vectors; v++) sum[i][v] += left * right[v];
        }
    }
    for (int i = 0; i < rows; i++) {
        for (int v = 0; v < vectors; v++) f32x16_store(c + i * c_stride + v * UPS_LANES, sum[i][v]);
    }
}

static void ups_product(int64_t m, int64_t n, int64_t k, const float *a, int64_t row_stride, int64_t k_stride,
                        const float *b, int64_t b_stride, float *c, int64_t c_stride, bool accumulate) {
    for (int64_t j = 0; j < n;) {
        int64_t vectors = ups_min((n - j) / UPS_LANES, UPS_TILE_VECTORS);
        for (int64_t i = 0; i < m;) {
            int64_t rows = m - i < UPS_TILE_ROWS ? 1 : UPS_TILE_ROWS;
            const float *left = a + i * row_stride;
            float *to = c + i * c_stride + j;
#define UPS_TILE(r, v) ups_product_tile(r, v, k, left, row_stride, k_stride, b + j, b_stride, to, c_stride, accumulate)
            if (vectors == UPS_TILE_VECTORS) {
                if (rows == 1)
                    UPS_TILE(1, UPS_TILE_VECTORS);
                else
                    UPS_TILE(UPS_TILE_ROWS, UPS_TILE_VECTORS);
            } else if (vectors == 2) {
                if (rows == 1)
                    UPS_TILE(1, UPS_TILE_VECTORS < 2 ? 1 : 2);
                else
                    UPS_TILE(UPS_TILE_ROWS, UPS_TILE_VECTORS < 2 ? 1 : 2);
            } else {
                if (rows == 1)
                    UPS_TILE(1, 1);
                else
                    UPS_TILE(UPS_TILE_ROWS, 1);
            }
#undef UPS_TILE
            i += rows;
        }
        j += vectors * UPS_LANES;
    }
}

#endif
