/* Products of float32 matrices, a tile of the result in registers: what matrix products (matmul.c) and attention are
 * made of.
 *
 * A tile is UPS_TILE_ROWS rows by UPS_TILE_VECTORS vectors of the instruction set's own width. Each step along k loads
 * the vectors of B once and multiplies them by one element of A a row: 12 multiply-adds for 8 loads on AVX2, 24 for 11
 * on AVX-512, so that the multipliers are the limit and not the loads. An element of C is summed along k in order,
 * whatever tile it falls into: its bits do not depend on how a matrix is cut.
 *
 * Where the instruction set multiplies bf16 (VDPBF16PS), an element of A and B may also be a pair of them, (k, k + 1):
 * 32 bits, as a float32 has. An instruction multiplies twice as many, and adds them to sums in float32. */
#ifndef UPS_MODEL_CPU_PRODUCT_H
#define UPS_MODEL_CPU_PRODUCT_H

#include "model/cpu/vector.h"

#if defined(__AVX512F__)
enum { UPS_TILE_ROWS = 8, UPS_TILE_VECTORS = 3 }; /* 24 sums in 32 registers */
#elif defined(__AVX2__)
enum { UPS_TILE_ROWS = 6, UPS_TILE_VECTORS = 2 }; /* 12 in 16 */
#elif defined(__aarch64__)
enum { UPS_TILE_ROWS = 6, UPS_TILE_VECTORS = 4 }; /* 24 in 32 */
#else
enum { UPS_TILE_ROWS = 4, UPS_TILE_VECTORS = 2 }; /* 8 in 16 */
#endif
enum { UPS_TILE_COLUMNS = UPS_VECTOR * UPS_TILE_VECTORS };
/* Where a product has three vectors of columns left, tiles of fewer rows take them at once: tiles of one vector would
 * wait for their loads. 12 sums in 16 registers, too. */
#if defined(__AVX2__) && !defined(__AVX512F__)
enum { UPS_WIDE_VECTORS = 3, UPS_WIDE_ROWS = 4 };
#else
enum { UPS_WIDE_VECTORS = UPS_TILE_VECTORS, UPS_WIDE_ROWS = UPS_TILE_ROWS };
#endif

/* One tile of C (+)= A B + bias?. A's element (i, l) is a[i * row_stride + l * k_stride]; B's row l lies at b + l *
 * b_stride. */
typedef struct ups_tile_call {
    int64_t k; /* elements, or pairs */
    const float *a;
    int64_t row_stride, k_stride;
    const float *b;
    int64_t b_stride;
    float *c;
    int64_t c_stride;
    const float *bias; /* NULL: none */
    bool accumulate;
} ups_tile_call;

/* sum + left * right */
static inline __attribute__((always_inline)) f32v ups_tile_multiply(const bool pairs, f32v sum, const float *left,
                                                                    f32v right) {
#ifdef __AVX512BF16__
    if (pairs) {
        int32_t pair;
        memcpy(&pair, left, sizeof pair);
        return (f32v)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)right);
    }
#endif
    return sum + *left * right;
}

static inline __attribute__((always_inline)) void ups_tile_run(const bool pairs, const int rows, const int vectors,
                                                               const ups_tile_call *t) {
    f32v sum[UPS_TILE_ROWS][UPS_WIDE_VECTORS];
    const float *a[UPS_TILE_ROWS], *b = t->b, *const bias = t->bias;
    const bool accumulate = t->accumulate;
    float *const to = t->c;
    const int64_t k_stride = t->k_stride, b_stride = t->b_stride, end = t->k * k_stride, c_stride = t->c_stride;
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        a[i] = t->a + i * t->row_stride;
        __builtin_prefetch(to + i * c_stride, 1);
        for (int v = 0; v < vectors; v++) sum[i][v] = (f32v){0};
    }
    for (int64_t l = 0; l != end; l += k_stride, b += b_stride) {
        f32v right[UPS_WIDE_VECTORS];
        for (int v = 0; v < vectors; v++) right[v] = f32v_load(b + v * UPS_VECTOR);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const float *left = a[i] + l;
            for (int v = 0; v < vectors; v++) sum[i][v] = ups_tile_multiply(pairs, sum[i][v], left, right[v]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        float *c = to + i * c_stride;
        for (int v = 0; v < vectors; v++, c += UPS_VECTOR) {
            f32v value = sum[i][v];
            if (bias) value += f32v_load(bias + v * UPS_VECTOR);
            f32v_store(c, accumulate ? f32v_load(c) + value : value);
        }
    }
}

/* Every size of tile has a function, so that each keeps its sums in registers. */
#if defined(__AVX512F__)
#define UPS_TILES_OF(M, rows) M(rows, 1) M(rows, 2) M(rows, 3)
#elif defined(__aarch64__)
#define UPS_TILES_OF(M, rows) M(rows, 1) M(rows, 2) M(rows, 3) M(rows, 4)
#else
#define UPS_TILES_OF(M, rows) M(rows, 1) M(rows, 2)
#endif
#define UPS_TILES_OF_4(M) UPS_TILES_OF(M, 1) UPS_TILES_OF(M, 2) UPS_TILES_OF(M, 3) UPS_TILES_OF(M, 4)
#if defined(__AVX512F__)
#define UPS_TILE_SIZES(M) UPS_TILES_OF_4(M) UPS_TILES_OF(M, 5) UPS_TILES_OF(M, 6) UPS_TILES_OF(M, 7) UPS_TILES_OF(M, 8)
#elif defined(__AVX2__)
#define UPS_TILE_SIZES(M) UPS_TILES_OF_4(M) UPS_TILES_OF(M, 5) UPS_TILES_OF(M, 6) M(1, 3) M(2, 3) M(3, 3) M(4, 3)
#elif defined(__aarch64__)
#define UPS_TILE_SIZES(M) UPS_TILES_OF_4(M) UPS_TILES_OF(M, 5) UPS_TILES_OF(M, 6)
#else
#define UPS_TILE_SIZES(M) UPS_TILES_OF_4(M)
#endif

#define UPS_TILE(rows, vectors)                                                                                        \
    static void ups_tile_##rows##x##vectors(const ups_tile_call *call) {                                               \
        ups_tile_run(false, rows, vectors, call);                                                                      \
    }
#define UPS_TILE_ENTRY(rows, vectors) [rows - 1][vectors - 1] = ups_tile_##rows##x##vectors,
UPS_TILE_SIZES(UPS_TILE)

typedef void ups_tile_function(const ups_tile_call *call);
static ups_tile_function *const ups_tiles[UPS_TILE_ROWS][UPS_WIDE_VECTORS] = {UPS_TILE_SIZES(UPS_TILE_ENTRY)};

#ifdef __AVX512BF16__
#define UPS_PAIR_TILE(rows, vectors)                                                                                   \
    static void ups_pair_tile_##rows##x##vectors(const ups_tile_call *call) {                                          \
        ups_tile_run(true, rows, vectors, call);                                                                       \
    }
#define UPS_PAIR_TILE_ENTRY(rows, vectors) [rows - 1][vectors - 1] = ups_pair_tile_##rows##x##vectors,
UPS_TILE_SIZES(UPS_PAIR_TILE)
static ups_tile_function *const ups_pair_tiles[UPS_TILE_ROWS][UPS_WIDE_VECTORS] = {UPS_TILE_SIZES(UPS_PAIR_TILE_ENTRY)};
#undef UPS_PAIR_TILE
#undef UPS_PAIR_TILE_ENTRY
#endif
#undef UPS_TILES_OF
#undef UPS_TILES_OF_4
#undef UPS_TILE_SIZES
#undef UPS_TILE
#undef UPS_TILE_ENTRY

/* A product of matrices that lie in the cache: C (m, n) (+)= A (m, k) B (k, n), n a multiple of UPS_VECTOR. */
static inline void ups_product(int64_t m, int64_t n, int64_t k, const float *a, int64_t row_stride, int64_t k_stride,
                               const float *b, int64_t b_stride, float *c, int64_t c_stride, bool accumulate) {
    ups_tile_call t = {k, NULL, row_stride, k_stride, b, b_stride, NULL, c_stride, NULL, accumulate};
    for (int64_t left = n / UPS_VECTOR, vectors; left > 0; left -= vectors) {
        const bool wide = left == UPS_WIDE_VECTORS;
        const int64_t most = wide ? UPS_WIDE_ROWS : UPS_TILE_ROWS;
        vectors = wide ? left : ups_min(UPS_TILE_VECTORS, left);
        for (int64_t i = 0; i < m; i += most) {
            t.a = a + i * row_stride;
            t.c = c + i * c_stride;
            ups_tiles[ups_min(most, m - i) - 1][vectors - 1](&t);
        }
        t.b += vectors * UPS_VECTOR;
        c += vectors * UPS_VECTOR;
    }
}

typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x4_any __attribute__((vector_size(16), aligned(4), may_alias));

/* Four rows of four at `from` to four columns at `to`. */
static inline void ups_transpose_4x4(const float *from, int64_t from_stride, float *to, int64_t to_stride) {
    f32x4 r0 = *(const f32x4_any *)(const void *)from, r1 = *(const f32x4_any *)(const void *)(from + from_stride);
    f32x4 r2 = *(const f32x4_any *)(const void *)(from + 2 * from_stride);
    f32x4 r3 = *(const f32x4_any *)(const void *)(from + 3 * from_stride);
    f32x4 a = __builtin_shufflevector(r0, r1, 0, 4, 1, 5), b = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
    f32x4 c = __builtin_shufflevector(r0, r1, 2, 6, 3, 7), d = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
    *(f32x4_any *)(void *)to = __builtin_shufflevector(a, b, 0, 1, 4, 5);
    *(f32x4_any *)(void *)(to + to_stride) = __builtin_shufflevector(a, b, 2, 3, 6, 7);
    *(f32x4_any *)(void *)(to + 2 * to_stride) = __builtin_shufflevector(c, d, 0, 1, 4, 5);
    *(f32x4_any *)(void *)(to + 3 * to_stride) = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

/* (rows, columns) to (columns, rows); multiples of four. */
static inline void ups_transpose(int64_t rows, int64_t columns, const float *from, int64_t from_stride, float *to,
                                 int64_t to_stride) {
    for (int64_t i = 0; i < rows; i += 4) {
        for (int64_t j = 0; j < columns; j += 4) {
            ups_transpose_4x4(from + i * from_stride + j, from_stride, to + j * to_stride + i, to_stride);
        }
    }
}

#endif
