/* bf16 matrix products on AMX tiles.
 *
 * A tile holds 16 rows of 64 bytes. TDPBF16PS multiplies a tile of A (16 rows of 32 elements along k) by a tile of B
 * (16 rows of 16 column pairs: k and k + 1 of a column side by side) into a tile of C (16 x 16 float32). Four tiles of
 * C, 32 x 32 elements, stay in registers while k runs; each step of 32 along k loads two tiles of A and two of B and
 * multiplies four times.
 *
 * B is packed first, into panels of 32 columns laid out tile by tile in the order they are used, and so is A where it
 * is stored transposed or not a multiple of the tiles. Work is cut into groups of rows that keep their part of A in the
 * second-level cache; k is cut so that a panel's part stays in the first. What a thread computes of C depends on the
 * shape alone, so the bits do not depend on the number of threads. */
#include "model/cpu/matmul_amx.h"
#include "model/cpu/vector.h"
#include <immintrin.h>

enum {
    TILE = 16,                /* rows of a tile, and columns of C's */
    STEP = 32,                /* elements along k of one multiplication */
    BLOCK = 32,               /* rows and columns of C kept in registers */
    TILE_ELEMENTS = 512,      /* bf16 */
    MAX_DEPTH = 512,          /* elements along k of a panel that are kept in the first-level cache: 32 KiB */
    GROUP_BYTES = 768 * 1024, /* of A, kept in the second-level cache */
    MAX_GROUP = 32,           /* blocks of rows a group */
};

typedef struct layout {
    int64_t row_blocks, panels, steps; /* of BLOCK rows, BLOCK columns, STEP elements */
    int64_t group;                     /* row blocks worked on together */
    int64_t depth;                     /* steps worked on together */
    bool pack_all;                     /* A is packed; otherwise only its last, incomplete block of rows */
    size_t b_bytes, a_bytes, sum_bytes;
} layout;

static layout layout_of(const ups_matmul_shape *s, int threads) {
    layout l = {ups_div_up(s->m, BLOCK), ups_div_up(s->n, BLOCK), ups_div_up(s->k, STEP), 0, 0, 0, 0, 0, 0};
    int64_t fitting = GROUP_BYTES / (l.steps * STEP * BLOCK * 2);
    int64_t chunks = ups_div_up(l.steps, MAX_DEPTH / STEP);
    l.group = ups_min(ups_min(fitting < 1 ? 1 : fitting, MAX_GROUP), ups_div_up(l.row_blocks, threads));
    l.depth = ups_div_up(l.steps, chunks);
    l.pack_all = s->transpose_a || s->k % STEP != 0;
    l.b_bytes = (size_t)(l.panels * l.steps * 2 * TILE_ELEMENTS) * 2;
    l.a_bytes = (size_t)((l.pack_all ? l.row_blocks : 1) * l.steps * 2 * TILE_ELEMENTS) * 2;
    l.sum_bytes = (size_t)(l.group * BLOCK * BLOCK) * sizeof(float);
    return l;
}

size_t ups_amx_matmul_scratch(const ups_matmul_shape *shape, int threads) {
    layout l = layout_of(shape, threads);
    return l.b_bytes + l.a_bytes + (size_t)threads * l.sum_bytes;
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
static inline __m512i load_row(const uint16_t *from, int64_t count) {
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
        __m512i even = row < k ? load_row(at, columns - column) : _mm512_setzero_si512();
        __m512i odd = row + 1 < k ? load_row(at + columns, columns - column) : _mm512_setzero_si512();
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
            lines[i] = inside ? load_row(from + (row + i) * k + step * STEP, k - step * STEP) : _mm512_setzero_si512();
        }
        if (!as_a) transpose_16x16(lines);
        for (int i = 0; i < TILE; i++) _mm512_store_si512(to + i * STEP, lines[i]);
    }
}

/* One block of C over `steps` steps. The tiles of A and B lie `a_next` and `b_next` elements behind each other. */
static inline void multiply_block(int64_t steps, const uint16_t *a, int64_t a_stride, int64_t a_half, int64_t a_next,
                                  const uint16_t *b, float *sum, bool first) {
    enum { SUM_STRIDE = BLOCK * sizeof(float), TILE_STRIDE = STEP * 2 };
    if (first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, sum, SUM_STRIDE);
        _tile_loadd(1, sum + TILE, SUM_STRIDE);
        _tile_loadd(2, sum + TILE * BLOCK, SUM_STRIDE);
        _tile_loadd(3, sum + TILE * BLOCK + TILE, SUM_STRIDE);
    }
    for (int64_t step = 0; step < steps; step++, a += a_next, b += 2 * TILE_ELEMENTS) {
        _tile_loadd(4, a, a_stride * 2);
        _tile_loadd(6, b, TILE_STRIDE);
        _tile_loadd(7, b + TILE_ELEMENTS, TILE_STRIDE);
        _tile_loadd(5, a + a_half, a_stride * 2);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sum, SUM_STRIDE);
    _tile_stored(1, sum + TILE, SUM_STRIDE);
    _tile_stored(2, sum + TILE * BLOCK, SUM_STRIDE);
    _tile_stored(3, sum + TILE * BLOCK + TILE, SUM_STRIDE);
}

/* A finished block to C: bias, what C holds, its dtype, its edge. */
static inline void write_block(const ups_matmul_shape *s, const float *sum, const float *bias, int64_t row,
                               int64_t column, void *c) {
    int64_t rows = ups_min(BLOCK, s->m - row);
    for (int64_t half = 0; half < BLOCK && column + half < s->n; half += TILE) {
        int64_t width = ups_min(TILE, s->n - column - half), at = row * s->n + column + half;
        __mmask16 mask = (__mmask16)((1u << width) - 1);
        __m512 shift = bias ? _mm512_maskz_loadu_ps(mask, bias + column + half) : _mm512_setzero_ps();
        for (int64_t i = 0; i < rows; i++, at += s->n) {
            __m512 value = _mm512_add_ps(_mm512_load_ps(sum + i * BLOCK + half), shift);
            if (s->result == UPS_F32) {
                float *to = (float *)c + at;
                if (s->accumulate) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, to));
                _mm512_mask_storeu_ps(to, mask, value);
                continue;
            }
            uint16_t *to = (uint16_t *)c + at;
            if (s->accumulate) {
                __m512i old = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, to));
                value = _mm512_add_ps(value, _mm512_castsi512_ps(_mm512_slli_epi32(old, 16)));
            }
            _mm256_mask_storeu_epi16(to, mask, (__m256i)_mm512_cvtneps_pbh(value));
        }
    }
}

typedef struct tile_configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_configuration;

static void configure_tiles(void) {
    tile_configuration all = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        all.row_bytes[tile] = 64;
        all.rows[tile] = TILE;
    }
    _tile_loadconfig(&all);
}

/* One panel of columns for one group of row blocks. */
static void multiply_panel(const ups_matmul_shape *s, const layout *l, const uint16_t *a, const uint16_t *packed_a,
                           const uint16_t *packed_b, const float *bias, void *c, float *sums, int64_t group,
                           int64_t panel) {
    int64_t first = group * l->group, end = ups_min(first + l->group, l->row_blocks);
    for (int64_t start = 0; start < l->steps; start += l->depth) {
        int64_t steps = ups_min(l->depth, l->steps - start);
        const uint16_t *b = packed_b + (panel * l->steps + start) * 2 * TILE_ELEMENTS;
        for (int64_t block = first; block < end; block++) {
            float *sum = sums + (block - first) * BLOCK * BLOCK;
            bool packed = l->pack_all || (block + 1) * BLOCK > s->m;
            if (packed) {
                int64_t at = (l->pack_all ? block : 0) * l->steps + start;
                multiply_block(steps, packed_a + at * 2 * TILE_ELEMENTS, STEP, TILE_ELEMENTS, 2 * TILE_ELEMENTS, b, sum,
                               start == 0);
            } else {
                multiply_block(steps, a + block * BLOCK * s->k + start * STEP, s->k, TILE * s->k, STEP, b, sum,
                               start == 0);
            }
            if (start + steps == l->steps) write_block(s, sum, bias, block * BLOCK, panel * BLOCK, c);
        }
    }
}

void ups_amx_matmul_run(const ups_matmul_shape *s, int threads, const uint16_t *a, const uint16_t *b, const float *bias,
                        void *c, void *scratch) {
    layout l = layout_of(s, threads);
    uint16_t *packed_b = scratch, *packed_a = packed_b + l.b_bytes / 2;
    float *sums = (float *)(packed_a + l.a_bytes / 2);
    int64_t first_packed = l.pack_all ? 0 : s->m / BLOCK, groups = ups_div_up(l.row_blocks, l.group);
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static) nowait
        for (int64_t panel = 0; panel < l.panels; panel++) {
            for (int64_t step = 0; step < l.steps; step++) {
                uint16_t *to = packed_b + (panel * l.steps + step) * 2 * TILE_ELEMENTS;
                if (s->transpose_b)
                    pack_fast_k(b, s->k, s->n, panel * BLOCK, step, false, to);
                else
                    pack_slow_k(b, s->k, s->n, panel * BLOCK, step, false, to);
            }
        }
#pragma omp for schedule(static)
        for (int64_t block = first_packed; block < l.row_blocks; block++) {
            for (int64_t step = 0; step < l.steps; step++) {
                uint16_t *to = packed_a + ((block - first_packed) * l.steps + step) * 2 * TILE_ELEMENTS;
                if (s->transpose_a)
                    pack_slow_k(a, s->k, s->m, block * BLOCK, step, true, to);
                else
                    pack_fast_k(a, s->k, s->m, block * BLOCK, step, true, to);
            }
        }
        configure_tiles();
#pragma omp for schedule(static) nowait
        for (int64_t item = 0; item < groups * l.panels; item++) {
            multiply_panel(s, &l, a, packed_a, packed_b, bias, c,
                           sums + (size_t)omp_get_thread_num() * l.sum_bytes / sizeof(float), item / l.panels,
                           item % l.panels);
        }
        _tile_release();
    }
}
