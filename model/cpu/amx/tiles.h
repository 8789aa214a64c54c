/* AMX tiles: their shape, how matrices are laid out for them, and transpositions in registers. Included by what is
 * compiled for the instruction set "amx" alone.
 *
 * TDPBF16PS multiplies a tile of A (16 rows of 32 elements along k) by a tile of B (16 rows of 16 column pairs: k and k
 * + 1 of a column side by side) into a tile of C (16 x 16 float32). Tiles come in pairs here: 32 rows of A, or 32
 * columns of B, a step of 32 along k. */
#ifndef UPS_MODEL_CPU_AMX_TILES_H
#define UPS_MODEL_CPU_AMX_TILES_H

#include "model/cpu/vector.h"
#include <immintrin.h>

enum {
    TILE = 16,            /* rows of a tile, and columns of C's */
    STEP = 32,            /* elements along k of one multiplication */
    BLOCK = 32,           /* rows and columns of C kept in registers */
    TILE_ELEMENTS = 512,  /* bf16 */
    PAIR_ELEMENTS = 1024, /* two tiles: a step of a block of rows or columns */
};

typedef struct tile_configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_configuration;

static inline void configure_tiles(void) {
    tile_configuration all = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        all.row_bytes[tile] = 64;
        all.rows[tile] = TILE;
    }
    _tile_loadconfig(&all);
}

/* Sixteen rows of sixteen 32-bit elements, transposed in registers: pairs, fours, then 128-bit quarters change places.
 */
static inline void transpose_16x16(__m512i row[16]) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(row[i], row[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(row[i], row[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        row[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        row[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        row[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        row[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(row[i], row[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(row[i], row[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(row[i + 8], row[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(row[i + 8], row[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        row[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        row[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    }
}

/* The first `count` (at most 32, also below 0) elements at `from`; zeros behind them. */
static inline __m512i load_line(const uint16_t *from, int64_t count) {
    if (count >= STEP) return _mm512_loadu_si512(from);
    if (count <= 0) return _mm512_setzero_si512();
    return _mm512_maskz_loadu_epi16((__mmask32)((1u << count) - 1), from);
}

/* Two tiles that hold, row by row, pairs (k, k + 1) of 32 neighbouring columns of a matrix stored with k as its slow
 * axis. */
static inline void interleave(__m512i even, __m512i odd, __m512i *low, __m512i *high) {
    const __m512i first = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                                           37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
    *low = _mm512_permutex2var_epi16(even, first, odd);
    *high = _mm512_permutex2var_epi16(even, second, odd);
}

/* The two tiles of step `step` from a matrix (k, columns), columns from `column` on, as B wants them (pairs of k in
 * rows) or, transposed, as A wants them. */
static inline void pack_slow_k(const uint16_t *from, int64_t k, int64_t columns, int64_t column, int64_t step,
                               bool as_a, uint16_t *to) {
    __m512i low[TILE], high[TILE];
    for (int pair = 0; pair < TILE; pair++) {
        int64_t row = step * STEP + 2 * pair;
        const uint16_t *at = from + row * columns + column;
        __m512i even = row < k ? load_line(at, columns - column) : _mm512_setzero_si512();
        __m512i odd = row + 1 < k ? load_line(at + columns, columns - column) : _mm512_setzero_si512();
        interleave(even, odd, &low[pair], &high[pair]);
    }
    if (as_a) {
        transpose_16x16(low);
        transpose_16x16(high);
    }
    for (int i = 0; i < TILE; i++) {
        _mm512_store_si512(to + i * STEP, low[i]);
        _mm512_store_si512(to + TILE_ELEMENTS + i * STEP, high[i]);
    }
}

/* The two tiles of step `step` from a matrix (rows, k), rows from `row` on, as A wants them or, transposed, as B wants
 * them. */
static inline void pack_fast_k(const uint16_t *from, int64_t k, int64_t rows, int64_t row, int64_t step, bool as_a,
                               uint16_t *to) {
    for (int half = 0; half < 2; half++, row += TILE, to += TILE_ELEMENTS) {
        __m512i lines[TILE];
        for (int i = 0; i < TILE; i++) {
            bool inside = row + i < rows;
            lines[i] = inside ? load_line(from + (row + i) * k + step * STEP, k - step * STEP) : _mm512_setzero_si512();
        }
        if (!as_a) transpose_16x16(lines);
        for (int i = 0; i < TILE; i++) _mm512_store_si512(to + i * STEP, lines[i]);
    }
}

#endif
