/* bf16 matrix products on AMX tiles.
 *
 * A tile holds 16 rows of 64 bytes. TDPBF16PS multiplies a tile of A (16 rows of 32 elements along k) by a tile of B
 * (16 rows of 16 column pairs: k and k + 1 of a column side by side) into a tile of C (16 x 16 float32). Four tiles of
 * C, 32 x 32 elements, stay in registers while k runs; each step of 32 along k loads two tiles of A and two of B and
 * multiplies four times.
 *
 * What limits these products is not the tile unit but memory beyond the second-level cache. So threads form a grid over
 * C, and each packs what it needs by itself and uses it while it is in its own cache: first its columns of B, as panels
 * of 32 laid out tile by tile in the order they are used; then, group by group of rows, A, where it is stored
 * transposed or is not a multiple of the tiles. k is cut so that a panel's part stays in the first-level cache. An
 * element of C is summed in an order that depends on the shape alone, so the bits do not depend on the number of
 * threads. */
#include "model/cpu/amx/matmul.h"
#include "model/cpu/amx/tiles.h"

enum {
    MAX_DEPTH = 512,             /* elements along k of a panel that are kept in the first-level cache: 32 KiB */
    GROUP_BYTES = 512 * 1024,    /* of A, kept in the second-level cache */
    MAX_GROUP = 32,              /* blocks of rows a group */
    STREAMED_BYTES = 512 * 1024, /* of C, from which on it is worth bypassing the caches */
};

typedef struct layout {
    int64_t row_blocks, panels, steps;            /* of BLOCK rows, BLOCK columns, STEP elements */
    int row_threads, column_threads;              /* the grid */
    int64_t group;                                /* row blocks worked on together */
    int64_t depth;                                /* steps worked on together */
    bool pack_all;                                /* A is packed; otherwise only its last, incomplete block of rows */
    int64_t b_elements, a_elements, sum_elements; /* of one thread's scratch */
} layout;

/* The grid in which threads pack least: a row of it packs the same B, a column the same A. A packed transposed costs as
 * much as B; otherwise it is only read. */
static void choose_grid(const ups_matmul_shape *s, int threads, layout *l) {
    double best = INFINITY;
    for (int rows = 1; rows <= threads; rows++) {
        if (threads % rows != 0) continue;
        double columns = (double)threads / rows,
               cost = rows * (double)s->n + columns * (double)(l->pack_all ? s->m : 0);
        if (rows > l->row_blocks) cost += (double)s->n * threads;
        if (columns > (double)l->panels) cost += (double)s->m * threads + (double)s->n * threads;
        if (cost >= best) continue;
        best = cost;
        l->row_threads = rows;
        l->column_threads = threads / rows;
    }
}

static layout layout_of(const ups_matmul_shape *s, int threads) {
    layout l = {
        ups_div_up(s->m, BLOCK), ups_div_up(s->n, BLOCK), ups_div_up(s->k, STEP), 1, threads, 1, 1, false, 0, 0, 0};
    l.pack_all = s->transpose_a || s->k % STEP != 0;
    choose_grid(s, threads, &l);
    int64_t fitting = GROUP_BYTES / (l.steps * PAIR_ELEMENTS * 2), mine = ups_div_up(l.row_blocks, l.row_threads);
    int64_t groups = ups_div_up(mine, ups_min(fitting < 1 ? 1 : fitting, MAX_GROUP));
    l.group = ups_div_up(mine, groups);
    l.depth = ups_div_up(l.steps, ups_div_up(l.steps, MAX_DEPTH / STEP));
    l.b_elements = ups_div_up(l.panels, l.column_threads) * l.steps * PAIR_ELEMENTS;
    l.a_elements = (l.pack_all ? l.group : 1) * l.steps * PAIR_ELEMENTS;
    l.sum_elements = l.group * BLOCK * BLOCK;
    return l;
}

static size_t thread_bytes(const layout *l) {
    return (size_t)(l->b_elements + l->a_elements) * sizeof(uint16_t) + (size_t)l->sum_elements * sizeof(float);
}

size_t ups_amx_matmul_scratch(const ups_matmul_shape *shape, int threads) {
    layout l = layout_of(shape, threads);
    return (size_t)threads * thread_bytes(&l);
}

/* Sixteen sums plus what C holds at `to`, to be written there. */
static inline __m512 with_old(const ups_matmul_shape *s, __m512 value, const void *to, __mmask16 mask) {
    if (!s->accumulate) return value;
    if (s->result == UPS_F32) return _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, to));
    __m512i old = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, to));
    return _mm512_add_ps(value, _mm512_castsi512_ps(_mm512_slli_epi32(old, 16)));
}

/* A block of sums on its way to C. It is written row by row between the multiplications of the next block: the vector
 * units work while the tile unit does. */
typedef struct finished {
    const ups_matmul_shape *shape;
    const float *sum, *bias;
    void *c;
    int64_t row, column; /* of its first element in C */
    int64_t written, rows;
} finished;

static inline bool streams(const ups_matmul_shape *s) {
    return s->streamed && s->m * s->n * (int64_t)ups_dtype_size(s->result) >= STREAMED_BYTES;
}

/* Adds the bias and what C holds, and converts to C's dtype. */
static inline void write_rows(finished *f, int64_t count) {
    const ups_matmul_shape *s = f->shape;
    int64_t end = ups_min(f->written + count, f->rows), width = ups_min(BLOCK, s->n - f->column);
    if (f->written >= end) return;
    __mmask32 mask = (__mmask32)((UINT64_C(1) << width) - 1);
    __mmask16 low = (__mmask16)mask, high = (__mmask16)(mask >> TILE);
    size_t size = s->result == UPS_F32 ? sizeof(float) : sizeof(uint16_t);
    bool streamed = streams(s) && width == BLOCK && s->n % BLOCK == 0 && (uintptr_t)f->c % 64 == 0;
    char *to = (char *)f->c + (size_t)((f->row + f->written) * s->n + f->column) * size;
    for (; f->written < end; f->written++, to += (size_t)s->n * size) {
        __m512 first = _mm512_load_ps(f->sum + f->written * BLOCK);
        __m512 second = _mm512_load_ps(f->sum + f->written * BLOCK + TILE);
        if (f->bias) {
            first = _mm512_add_ps(first, _mm512_maskz_loadu_ps(low, f->bias + f->column));
            second = _mm512_add_ps(second, _mm512_maskz_loadu_ps(high, f->bias + f->column + TILE));
        }
        first = with_old(s, first, to, low);
        second = with_old(s, second, to + TILE * size, high);
        if (streamed && s->result != UPS_F32) {
            _mm512_stream_si512((void *)to, (__m512i)_mm512_cvtne2ps_pbh(second, first));
        } else if (streamed) {
            _mm512_stream_ps((float *)(void *)to, first);
            _mm512_stream_ps((float *)(void *)to + TILE, second);
        } else if (s->result == UPS_F32) {
            _mm512_mask_storeu_ps(to, low, first);
            _mm512_mask_storeu_ps(to + TILE * size, high, second);
        } else {
            _mm512_mask_storeu_epi16(to, mask, (__m512i)_mm512_cvtne2ps_pbh(second, first));
        }
    }
}

/* One block of C over `steps` steps, and what is left of writing the block before it. The rows of a tile of A lie
 * `a_stride` elements behind each other, its second tile `a_half` behind the first, the next step's `a_next`. */
static inline void multiply_block(int64_t steps, const uint16_t *a, int64_t a_stride, int64_t a_half, int64_t a_next,
                                  const uint16_t *b, float *sum, bool first, finished *before) {
    enum { SUM_STRIDE = BLOCK * sizeof(float), TILE_STRIDE = STEP * 2 };
    int64_t rows = ups_div_up(BLOCK, steps);
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
    for (int64_t step = 0; step < steps; step++, a += a_next, b += PAIR_ELEMENTS) {
        _tile_loadd(4, a, a_stride * 2);
        _tile_loadd(6, b, TILE_STRIDE);
        _tile_loadd(7, b + TILE_ELEMENTS, TILE_STRIDE);
        _tile_loadd(5, a + a_half, a_stride * 2);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        write_rows(before, rows);
    }
    _tile_stored(0, sum, SUM_STRIDE);
    _tile_stored(1, sum + TILE, SUM_STRIDE);
    _tile_stored(2, sum + TILE * BLOCK, SUM_STRIDE);
    _tile_stored(3, sum + TILE * BLOCK + TILE, SUM_STRIDE);
}

/* Asks for a range of memory in the second-level cache, in the order it lies: tiles then find it there, which read
 * rows far apart, each too short for the processor to foresee. */
static void fetch(const uint16_t *from, int64_t count) {
    for (int64_t i = 0; i < count; i += STEP) _mm_prefetch((const char *)(from + i), _MM_HINT_T1);
}

/* Blocks [first, end) of 32 rows or columns, all steps. Both kinds of matrix are read as they lie in memory. */
static void pack(const uint16_t *from, int64_t k, int64_t extent, bool fast_k, bool as_a, int64_t first, int64_t end,
                 int64_t steps, uint16_t *to) {
    int64_t blocks = end - first, outer = fast_k ? blocks : steps, inner = fast_k ? steps : blocks;
    for (int64_t i = 0; i < outer; i++) {
        if (fast_k) {
            int64_t row = (first + i + 1) * BLOCK; /* of the next block */
            if (i + 1 < outer) fetch(from + row * k, ups_min(BLOCK, extent - row) * k);
        } else {
            int64_t width = ups_min(blocks * BLOCK, extent - first * BLOCK);
            for (int64_t row = (i + 1) * STEP; row < ups_min((i + 2) * STEP, k); row++) {
                fetch(from + row * extent + first * BLOCK, width);
            }
        }
        for (int64_t j = 0; j < inner; j++) {
            int64_t block = fast_k ? i : j, step = fast_k ? j : i;
            uint16_t *pair = to + (block * steps + step) * PAIR_ELEMENTS;
            if (fast_k)
                pack_fast_k(from, k, extent, (first + block) * BLOCK, step, as_a, pair);
            else
                pack_slow_k(from, k, extent, (first + block) * BLOCK, step, as_a, pair);
        }
    }
}

/* What one thread works on. */
typedef struct part {
    const ups_matmul_shape *shape;
    const layout *layout;
    const uint16_t *a, *b, *packed_a; /* packed_a: from row block `first_packed` on */
    const float *bias;
    void *c;
    float *sums;
    int64_t first_packed;
} part;

/* Row blocks [first, end) by one panel: `panel` of C, packed at `b`. */
static void multiply_panel(const part *p, int64_t first, int64_t end, int64_t panel, const uint16_t *b) {
    const ups_matmul_shape *s = p->shape;
    const layout *l = p->layout;
    finished before = {.shape = s, .bias = p->bias, .c = p->c, .column = panel * BLOCK};
    for (int64_t start = 0; start < l->steps; start += l->depth) {
        int64_t steps = ups_min(l->depth, l->steps - start);
        for (int64_t block = first; block < end; block++) {
            /* Sums wait for the next block of k; where there is but one, they take the same place, which stays in the
             * cache. */
            float *sum = l->depth == l->steps ? p->sums : p->sums + (block - first) * BLOCK * BLOCK;
            const uint16_t *right = b + start * PAIR_ELEMENTS;
            if (block >= p->first_packed) {
                const uint16_t *left = p->packed_a + ((block - p->first_packed) * l->steps + start) * PAIR_ELEMENTS;
                multiply_block(steps, left, STEP, TILE_ELEMENTS, PAIR_ELEMENTS, right, sum, start == 0, &before);
            } else {
                const uint16_t *left = p->a + block * BLOCK * s->k + start * STEP;
                multiply_block(steps, left, s->k, TILE * s->k, STEP, right, sum, start == 0, &before);
            }
            if (start + steps < l->steps) continue;
            before.sum = sum;
            before.row = block * BLOCK;
            before.written = 0;
            before.rows = ups_min(BLOCK, s->m - before.row);
        }
    }
    write_rows(&before, BLOCK);
    if (streams(s)) _mm_sfence();
}

/* A thread's rectangle of C, at (row, column) of the grid. */
static void multiply_part(part p, int row, int column, uint16_t *packed_a, uint16_t *packed_b) {
    const ups_matmul_shape *s = p.shape;
    const layout *l = p.layout;
    int64_t row_first = l->row_blocks * row / l->row_threads, row_end = l->row_blocks * (row + 1) / l->row_threads;
    int64_t first = l->panels * column / l->column_threads, end = l->panels * (column + 1) / l->column_threads;
    if (row_first == row_end || first == end) return;
    pack(p.b, s->k, s->n, s->transpose_b, false, first, end, l->steps, packed_b);
    configure_tiles();
    for (int64_t group = row_first; group < row_end; group += l->group) {
        int64_t group_end = ups_min(group + l->group, row_end), complete = s->m / BLOCK;
        p.first_packed = l->pack_all ? group : complete;
        if (p.first_packed < group_end) {
            pack(p.a, s->k, s->m, !s->transpose_a, true, p.first_packed, group_end, l->steps, packed_a);
        }
        if (!l->pack_all) fetch(p.a + group * BLOCK * s->k, (ups_min(group_end * BLOCK, s->m) - group * BLOCK) * s->k);
        p.packed_a = packed_a;
        for (int64_t panel = first; panel < end; panel++) {
            multiply_panel(&p, group, group_end, panel, packed_b + (panel - first) * l->steps * PAIR_ELEMENTS);
        }
    }
    _tile_release();
}

void ups_amx_matmul_run(const ups_matmul_shape *s, int threads, const uint16_t *a, const uint16_t *b, const float *bias,
                        void *c, void *scratch) {
    layout l = layout_of(s, threads);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int thread = 0; thread < threads; thread++) {
        uint16_t *packed_b = (uint16_t *)((char *)scratch + (size_t)thread * thread_bytes(&l));
        uint16_t *packed_a = packed_b + l.b_elements;
        part p = {.shape = s, .layout = &l, .a = a, .b = b, .bias = bias, .c = c};
        p.sums = (float *)(packed_a + l.a_elements);
        multiply_part(p, thread / l.column_threads, thread % l.column_threads, packed_a, packed_b);
    }
}
