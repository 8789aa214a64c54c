/* Blocked matrix products; see the header. The scheme is that of Goto and van de Geijn (Anatomy of High-Performance
 * Matrix Multiplication, 2008): B is packed into panels as wide as a tile; a block of one panel stays in the
 * first-level cache while a group of A's rows passes from the second-level cache through the registers. The blocks
 * along k follow each other within a group, so that C is still in the first-level cache when it is added to.
 *
 * Threads form a grid over C. Each packs what it needs by itself and waits for nobody. A is read where it lies unless
 * it is of a 16-bit dtype that is not multiplied as it is, or transposed and read often; so is a B that is one panel,
 * and lies as if it was packed. Where bf16 is (product.h), what is called an
 * element along k below is a pair of them. What is written in an unusual way (16 bits, incomplete vectors) takes a
 * detour through a small buffer. */
#include "model/cpu/matmul.h"
#include "model/cpu/amx/matmul.h"
#include "model/cpu/gelu.h"
#include "model/cpu/product.h"

enum {
    DEPTH =
        6144 / UPS_TILE_COLUMNS, /* elements of k a block, at most: a panel's 24 KiB stay in the first-level cache */
    SPAN = 2048,                 /* elements of k that are packed together, at most */
    TRANSPOSED_SPAN = 384,       /* the same where A is packed, too */
    ROWS_TOGETHER = 8,           /* of a matrix whose slow axis is k, packed panel by panel; the next are asked for */
    A_ELEMENTS = 32 * 1024,      /* of A worked on together: 128 KiB of the second-level cache */
    DIRECT_ROWS = 256,           /* of a transposed A that is read where it lies, for one panel; */
    DIRECT_ELEMENTS = 96 * 1024, /* of it, for two: as much as stays in the second-level cache */
    FEW_ROWS = UPS_TILE_COLUMNS < 16 ? UPS_TILE_COLUMNS : 16, /* of A, for which B is not packed */
    SMALL_PRODUCT = 1 << 18, /* multiplications below which starting threads costs more than it saves */
    ALIGNMENT = 16,          /* floats */
};

typedef struct layout {
    bool pairs; /* of bf16 are multiplied */
    int64_t k;  /* elements, or pairs */
    int64_t row_tiles, panels;
    int row_threads, column_threads; /* the grid */
    int64_t span, depth;             /* of k: packed together; in a block */
    int64_t group;                   /* row tiles worked on together */
    bool pack_a, pack_b;             /* otherwise read where they lie */
    int64_t b_elements, a_elements;  /* of one thread's scratch */
} layout;

/* What the busiest of `threads` has of `size` rows or columns, in tiles of `tile`: thread i those from tiles i /
 * threads on. The last has one of the larger shares, and its last tile may be cut short. */
static int64_t largest_share(int64_t size, int64_t tile, int threads) {
    const int64_t tiles = ups_div_up(size, tile), share = ups_div_up(tiles, threads), larger = tiles % threads;
    if (larger != 1 && threads > 1) return share * tile; /* some other thread has as many tiles, all whole */
    const int64_t last = size - (tiles - share) * tile, others = (share - 1) * tile;
    return last > others ? last : others;
}

/* The grid in which threads pack least: a row of it packs the same B, a column the same A. */
static void choose_grid(const ups_matmul_shape *s, int threads, layout *l) {
    double best = INFINITY;
    const double multiplications = (double)s->m * (double)s->n;
    l->row_threads = l->column_threads = 1;
    if (multiplications * (double)s->k < SMALL_PRODUCT) return;
    for (int rows = 1; rows <= threads; rows++) {
        if (threads % rows != 0) continue;
        int columns = threads / rows;
        double cost = (l->pack_b ? rows * (double)s->n : 0.0) + (l->pack_a ? columns * (double)s->m : 0.0);
        /* What the busiest thread multiplies beyond its share weighs as much as packing it would. A tile at the edge
         * takes as long as its rows and columns: of 64 columns one thread may have 48 and the other 16. */
        double most =
            (double)largest_share(s->m, UPS_TILE_ROWS, rows) * (double)largest_share(s->n, UPS_TILE_COLUMNS, columns);
        cost += most * threads - multiplications;
        if (cost >= best) continue;
        best = cost;
        l->row_threads = rows;
        l->column_threads = columns;
    }
}

static bool multiplies_pairs(const ups_matmul_shape *s) {
#ifdef __AVX512BF16__
    return s->operands == UPS_BF16;
#else
    return false;
#endif
}

/* Packing pays by what is read again, a tile of a transposed A by every panel, and by rows of A that lie far apart. */
static bool pays_unpacked(const ups_matmul_shape *s, int64_t panels) {
    return panels == 1 ? s->m <= DIRECT_ROWS : panels == 2 && s->m * s->k <= DIRECT_ELEMENTS;
}

/* Of the parts that a length is cut into, each `most` or less and all about as long. */
static int64_t part_of(int64_t length, int64_t most) {
    return ups_div_up(length, ups_div_up(length, most));
}

/* Panels of a B that does not stay in the second-level cache would wait for each row of it. */
static bool pays_unpacked_b(const ups_matmul_shape *s) {
    return s->m <= FEW_ROWS && s->n * s->k <= A_ELEMENTS;
}

static layout layout_of(const ups_matmul_shape *s, int threads) {
    layout l = {.row_tiles = ups_div_up(s->m, UPS_TILE_ROWS), .panels = ups_div_up(s->n, UPS_TILE_COLUMNS)};
    l.pairs = multiplies_pairs(s);
    l.k = l.pairs ? ups_div_up(s->k, 2) : s->k;
    const bool plain = s->operands == UPS_F32;
    l.pack_a = s->transpose_a ? !plain || !pays_unpacked(s, l.panels) : l.pairs ? s->k % 2 != 0 : !plain;
    l.pack_b = !plain || s->transpose_b || s->n % UPS_VECTOR != 0 || (l.panels > 1 && !pays_unpacked_b(s));
    choose_grid(s, threads, &l);
    /* A sum that C cannot hold as float32 is finished in one go. */
    l.span = s->result == UPS_F32 ? part_of(l.k, l.pack_a ? TRANSPOSED_SPAN : SPAN) : l.k;
    l.depth = s->result == UPS_F32 ? part_of(l.span, DEPTH) : l.k;
    int64_t fitting = A_ELEMENTS / (l.span * UPS_TILE_ROWS), mine = ups_div_up(l.row_tiles, l.row_threads);
    l.group = ups_div_up(mine, ups_div_up(mine, fitting < 1 ? 1 : fitting));
    l.b_elements = l.pack_b ? ups_div_up(l.panels, l.column_threads) * l.span * UPS_TILE_COLUMNS : 0;
    l.a_elements = l.pack_a ? ups_div_up(l.group * UPS_TILE_ROWS * l.span, ALIGNMENT) * ALIGNMENT : 0;
    return l;
}

/* ---- packing ---------------------------------------------------------------------------------------------------- */

/* The size of the matrix that is packed, and how it is stored: k is its fast axis, or its slow one. */
typedef struct packed_matrix {
    const void *data;
    ups_dtype dtype;
    int64_t extent, k; /* extent: rows of A, columns of B */
    bool fast_k;
    bool pairs; /* of bf16 become elements, but lie apart or are odd in number */
} packed_matrix;

/* Pairs that lie together are moved as float32 are. */
static packed_matrix matrix_of(const void *data, ups_dtype dtype, int64_t extent, int64_t k, bool fast_k, bool pairs) {
    if (pairs && fast_k && k % 2 == 0) return (packed_matrix){data, UPS_F32, extent, k / 2, fast_k, false};
    return (packed_matrix){data, dtype, extent, k, fast_k, pairs};
}

/* Of a 16-bit dtype: rows of the matrix are converted whole, then put in their places. */
static void pack_halves(const packed_matrix *m, int64_t first, int64_t count, int64_t start, int64_t depth,
                        int64_t width, float *to) {
    const uint16_t *from = (const uint16_t *)m->data;
    for (int64_t l = 0; !m->fast_k && l < depth; l++) {
        ups_row_to_f32(m->dtype, from + (start + l) * m->extent + first, to + l * width, count);
    }
    for (int64_t i = 0; m->fast_k && i < count; i++) {
        for (int64_t l = 0; l < depth; l += UPS_CHUNK) {
            float row[UPS_CHUNK];
            int64_t n = ups_min(UPS_CHUNK, depth - l);
            ups_row_to_f32(m->dtype, from + (first + i) * m->k + start + l, row, n);
            for (int64_t j = 0; j < n; j++) to[(l + j) * width + i] = row[j];
        }
    }
}

/* Pairs of rows of the matrix, or of neighbours in a row; a zero where the last has none. */
static void pack_pairs(const packed_matrix *m, int64_t first, int64_t count, int64_t start, int64_t depth,
                       int64_t width, float *to) {
    const uint16_t *from = (const uint16_t *)m->data;
    int64_t along_k = m->fast_k ? 1 : m->extent, along_extent = m->fast_k ? m->k : 1;
    for (int64_t l = 0; l < depth; l++) {
        int64_t k = 2 * (start + l);
        const uint16_t *low = from + first * along_extent + k * along_k, *high = low + along_k;
        float *pairs = to + l * width;
        if (k + 1 < m->k && along_extent == 1) {
            __builtin_prefetch(low + 2 * ROWS_TOGETHER * m->extent);
            __builtin_prefetch(high + 2 * ROWS_TOGETHER * m->extent);
            for (int64_t i = 0; i < count; i++) ((uint32_t *)(void *)pairs)[i] = low[i] | (uint32_t)high[i] << 16;
        } else {
            for (int64_t i = 0; i < count; i++) {
                uint32_t other = k + 1 < m->k ? high[i * along_extent] : 0, pair = low[i * along_extent] | other << 16;
                memcpy(pairs + i, &pair, sizeof pair);
            }
        }
    }
}

/* `depth` elements along k from `start` of `count` neighbours from `first`, to to[l * width + i]; zeros up to `width`.
 */
static void pack_panel(const packed_matrix *m, int64_t first, int64_t count, int64_t start, int64_t depth,
                       int64_t width, float *to) {
    if (m->dtype == UPS_F32 && m->fast_k) {
        const float *from = (const float *)m->data + first * m->k + start;
        int64_t whole = count / 4 * 4, steps = depth / 4 * 4;
        for (int64_t i = 0; i < whole; i += 4) {
            for (int64_t l = 0; l < steps; l += 4) {
                __builtin_prefetch(from + (i + 4 + l / 4 % 4) * m->k + l);
                ups_transpose_4x4(from + i * m->k + l, m->k, to + l * width + i, width);
            }
            for (int64_t l = steps; l < depth; l++) {
                for (int64_t j = i; j < i + 4; j++) to[l * width + j] = from[j * m->k + l];
            }
        }
        for (int64_t i = whole; i < count; i++) {
            for (int64_t l = 0; l < depth; l++) to[l * width + i] = from[i * m->k + l];
        }
    } else if (m->dtype == UPS_F32) {
        const float *from = (const float *)m->data + start * m->extent + first;
        if (count == UPS_TILE_COLUMNS) {
            for (int64_t l = 0; l < depth; l++) {
                __builtin_prefetch(from + (l + ROWS_TOGETHER) * m->extent);
                memcpy(to + l * width, from + l * m->extent, UPS_TILE_COLUMNS * sizeof(float));
            }
        } else if (count == UPS_TILE_ROWS) {
            for (int64_t l = 0; l < depth; l++) {
                __builtin_prefetch(from + (l + ROWS_TOGETHER) * m->extent);
                memcpy(to + l * width, from + l * m->extent, UPS_TILE_ROWS * sizeof(float));
            }
        } else {
            for (int64_t l = 0; l < depth; l++) {
                for (int64_t i = 0; i < count; i++) to[l * width + i] = from[l * m->extent + i];
            }
        }
    } else if (m->pairs) {
        pack_pairs(m, first, count, start, depth, width, to);
    } else {
        pack_halves(m, first, count, start, depth, width, to);
    }
    for (int64_t l = 0; count < width && l < depth; l++) {
        for (int64_t i = count; i < width; i++) to[l * width + i] = 0.0f;
    }
}

/* Panels [first, end), each `width` wide and `depth` long, one behind the other. A matrix whose slow axis is k is read
 * a few of its rows at a time, which lie far apart. */
static void pack(const packed_matrix *m, int64_t first, int64_t end, int64_t width, int64_t start, int64_t depth,
                 float *to) {
    int64_t step = m->fast_k ? depth : ROWS_TOGETHER;
    for (int64_t l = 0; l < depth; l += step) {
        int64_t rows = ups_min(step, depth - l);
        for (int64_t panel = first; panel < end; panel++) {
            int64_t count = ups_min(width, m->extent - panel * width);
            pack_panel(m, panel * width, count, start + l, rows, width,
                       to + (panel - first) * width * depth + l * width);
        }
    }
}

/* ---- multiplying ------------------------------------------------------------------------------------------------ */

/* Writes a tile's sums where whole vectors of float32 cannot: past the last column, or to 16 bits. */
static void write_rows(const ups_matmul_shape *s, int64_t rows, int64_t columns, float *sums, const float *bias,
                       bool accumulate, void *c) {
    for (int64_t i = 0; i < rows; i++, sums += UPS_TILE_COLUMNS) {
        for (int64_t j = 0; bias && j < columns; j++) sums[j] += bias[j];
        if (s->result == UPS_F32) {
            float *to = (float *)c + i * s->n;
            for (int64_t j = 0; j < columns; j++) to[j] = accumulate ? to[j] + sums[j] : sums[j];
        } else {
            uint16_t *to = (uint16_t *)c + i * s->n;
            if (accumulate) ups_row_add(s->result, to, sums, columns);
            ups_row_from_f32(s->result, sums, to, columns);
        }
    }
}

/* What one thread works on: a rectangle of C. */
typedef struct part {
    const ups_matmul_shape *shape;
    const layout *layout;
    packed_matrix a, b;
    const float *bias;
    void *c;
    float *gelu; /* NULL: none, or not while multiplying */
    float *packed_a, *packed_b;
    int64_t start, span; /* of k: what is packed */
    int64_t first_panel;
} part;

/* Row tiles [first, end) by one panel. */
static void multiply_panel(const part *p, int64_t first, int64_t end, int64_t panel) {
    const ups_matmul_shape *s = p->shape;
    int64_t column = panel * UPS_TILE_COLUMNS, columns = ups_min(UPS_TILE_COLUMNS, s->n - column);
    int64_t vectors = ups_div_up(columns, UPS_VECTOR);
    bool plain = s->result == UPS_F32 && columns % UPS_VECTOR == 0;
    const layout *l = p->layout;
    const bool packed_a = l->pack_a, packed_b = l->pack_b;
    const float *b = packed_b ? p->packed_b + (panel - p->first_panel) * UPS_TILE_COLUMNS * p->span
                              : (const float *)p->b.data + p->start * s->n + column;
#ifdef __AVX512BF16__
    ups_tile_function *const(*tiles)[UPS_WIDE_VECTORS] = l->pairs ? ups_pair_tiles : ups_tiles;
#else
    ups_tile_function *const(*tiles)[UPS_WIDE_VECTORS] = ups_tiles;
#endif
    float sums[UPS_TILE_ROWS * UPS_TILE_COLUMNS];
    ups_tile_call t = {.c = sums, .c_stride = plain ? s->n : UPS_TILE_COLUMNS};
    t.b_stride = packed_b ? UPS_TILE_COLUMNS : s->n;
    t.row_stride = packed_a || s->transpose_a ? 1 : l->k;
    t.k_stride = packed_a ? UPS_TILE_ROWS : s->transpose_a ? s->m : 1;
    for (int64_t start = 0; start < p->span; start += l->depth) {
        bool begins = p->start + start == 0, accumulate = s->accumulate || !begins;
        const float *bias = p->bias && begins ? p->bias + column : NULL;
        t.k = ups_min(l->depth, p->span - start);
        t.b = b + start * t.b_stride;
        t.bias = plain ? bias : NULL;
        t.accumulate = plain && accumulate;
        for (int64_t tile = first; tile < end; tile++) {
            int64_t row = tile * UPS_TILE_ROWS, rows = ups_min(UPS_TILE_ROWS, s->m - row), at = row * s->n + column;
            t.a = packed_a ? p->packed_a + ((tile - first) * p->span + start) * UPS_TILE_ROWS
                           : (const float *)p->a.data + row * t.row_stride + (p->start + start) * t.k_stride;
            if (plain) t.c = (float *)p->c + at;
            tiles[rows - 1][vectors - 1](&t);
            if (!plain) {
                char *c = (char *)p->c + (size_t)at * ups_dtype_size(s->result);
                write_rows(s, rows, columns, sums, bias, accumulate, c);
            }
        }
    }
}

/* Of what multiply_panel has just written, while it is in the first-level cache. */
static void activate_panel(const part *p, int64_t first, int64_t end, int64_t panel) {
    int64_t n = p->shape->n, column = panel * UPS_TILE_COLUMNS, columns = ups_min(UPS_TILE_COLUMNS, n - column);
    for (int64_t row = first * UPS_TILE_ROWS; row < ups_min(end * UPS_TILE_ROWS, p->shape->m); row++) {
        int64_t at = row * n + column;
        ups_gelu_row((const float *)p->c + at, p->gelu + at, columns);
    }
}

/* The rectangle of C at (row, column) of the grid. */
static void multiply_part(part *p, int row, int column) {
    const layout *l = p->layout;
    int64_t row_first = l->row_tiles * row / l->row_threads, row_end = l->row_tiles * (row + 1) / l->row_threads;
    int64_t first = l->panels * column / l->column_threads, end = l->panels * (column + 1) / l->column_threads;
    if (row_first == row_end || first == end) return;
    p->first_panel = first;
    for (p->start = 0; p->start < l->k; p->start += l->span) {
        p->span = ups_min(l->span, l->k - p->start);
        if (l->pack_b) pack(&p->b, first, end, UPS_TILE_COLUMNS, p->start, p->span, p->packed_b);
        for (int64_t group = row_first; group < row_end; group += l->group) {
            int64_t group_end = ups_min(group + l->group, row_end);
            if (l->pack_a) pack(&p->a, group, group_end, UPS_TILE_ROWS, p->start, p->span, p->packed_a);
            bool last = p->start + p->span == l->k;
            for (int64_t panel = first; panel < end; panel++) {
                multiply_panel(p, group, group_end, panel);
                if (p->gelu && last) activate_panel(p, group, group_end, panel);
            }
        }
    }
}

static void multiply(const ups_matmul_shape *s, int threads, const void *a, const void *b, const float *bias, void *c,
                     float *gelu, float *scratch) {
    layout l = layout_of(s, threads);
    threads = l.row_threads * l.column_threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int thread = 0; thread < threads; thread++) {
        part p = {.shape = s, .layout = &l, .bias = bias, .c = c, .gelu = gelu};
        p.a = matrix_of(a, s->operands, s->m, s->k, !s->transpose_a, l.pairs);
        p.b = matrix_of(b, s->operands, s->n, s->k, s->transpose_b, l.pairs);
        p.packed_b = scratch + thread * (l.b_elements + l.a_elements);
        p.packed_a = p.packed_b + l.b_elements;
        multiply_part(&p, thread / l.column_threads, thread % l.column_threads);
    }
}

/* ---- few rows ---------------------------------------------------------------------------------------------------- */

/* C^T = B^T A^T: what B is stored as is read once, where it lies; packing it would cost as much as multiplying. */
static bool has_few_rows(const ups_matmul_shape *s) {
    return s->m <= FEW_ROWS && s->transpose_b && !s->transpose_a && s->operands == UPS_F32 && s->result == UPS_F32;
}

static int64_t columns_of_few(const ups_matmul_shape *s) {
    return ups_div_up(s->m, UPS_VECTOR) * UPS_VECTOR;
}

static int threads_of_few(const ups_matmul_shape *s, int threads) {
    return s->m * s->n * s->k < SMALL_PRODUCT ? 1 : threads;
}

static int64_t scratch_of_few(const ups_matmul_shape *s, int threads) {
    return threads_of_few(s, threads) * ups_div_up(s->k * columns_of_few(s), ALIGNMENT) * ALIGNMENT;
}

/* A tile's rows of B^T by all of A, which is packed; summed by the blocks of k that many rows are summed by. */
static void multiply_few_tile(const ups_matmul_shape *s, const float *packed, const float *b, const float *bias,
                              int64_t row, int64_t rows, float *c) {
    const int64_t columns = columns_of_few(s), span = part_of(s->k, SPAN), depth = part_of(span, DEPTH);
    float sums[UPS_TILE_ROWS * UPS_TILE_COLUMNS] = {0};
    ups_tile_call t = {.row_stride = s->k, .k_stride = 1, .b_stride = columns, .c = sums, .c_stride = columns};
    for (int64_t start = 0; start < s->k; start += span) {
        for (int64_t at = start, end = ups_min(start + span, s->k); at < end; at += depth) {
            t.k = ups_min(depth, end - at);
            t.a = b + row * s->k + at;
            t.b = packed + at * columns;
            t.accumulate = at > 0;
            ups_tiles[rows - 1][columns / UPS_VECTOR - 1](&t);
            for (int64_t i = 0; bias && at == 0 && i < rows; i++) {
                for (int64_t j = 0; j < s->m; j++) sums[i * columns + j] += bias[row + i];
            }
        }
    }
    for (int64_t j = 0; j < s->m; j++) {
        float *to = c + j * s->n + row;
        for (int64_t i = 0; i < rows; i++)
            to[i] = s->accumulate ? to[i] + sums[i * columns + j] : sums[i * columns + j];
    }
}

static void multiply_few(const ups_matmul_shape *s, int threads, const void *a, const float *b, const float *bias,
                         float *c, float *scratch) {
    const int64_t tiles = ups_div_up(s->n, UPS_TILE_ROWS), each = scratch_of_few(s, 1);
    const packed_matrix rows = matrix_of(a, UPS_F32, s->m, s->k, true, false);
    threads = threads_of_few(s, threads);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int thread = 0; thread < threads; thread++) {
        float *packed = scratch + thread * each;
        pack_panel(&rows, 0, s->m, 0, s->k, columns_of_few(s), packed);
        for (int64_t tile = tiles * thread / threads; tile < tiles * (thread + 1) / threads; tile++) {
            const int64_t row = tile * UPS_TILE_ROWS;
            multiply_few_tile(s, packed, b, bias, row, ups_min(UPS_TILE_ROWS, s->n - row), c);
        }
    }
}

/* ---- the kinds of product ----------------------------------------------------------------------------------- */

static inline bool on_tiles(const ups_matmul_shape *shape) {
#ifdef UPS_CPU_TILES
    return shape->operands == UPS_BF16;
#else
    return false;
#endif
}

/* GELU of a result that was not activated while it was made. */
static void activate(const ups_matmul_shape *s, int threads, const void *c, void *gelu) {
    ups_tensor from = {.data = (void *)(uintptr_t)c, .dtype = s->result}, to = {.data = gelu, .dtype = s->result};
    int64_t count = s->m * s->n, chunks = ups_div_up(count, UPS_CHUNK);
#pragma omp parallel for num_threads(count < UPS_SMALL ? 1 : threads) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        float in[UPS_CHUNK], out[UPS_CHUNK];
        int64_t start = chunk * UPS_CHUNK, length = ups_min(UPS_CHUNK, count - start);
        const float *x = ups_row_read(&from, start, length, in);
        float *y = ups_row_target(&to, start, out, false);
        ups_gelu_row(x, y, length);
        ups_row_write(&to, start, length, y, false);
    }
}

size_t UPS_CPU(matmul_scratch)(const ups_matmul_shape *shape, int threads) {
    if (on_tiles(shape)) return ups_amx_matmul_scratch(shape, threads);
    if (has_few_rows(shape)) return (size_t)scratch_of_few(shape, threads) * sizeof(float);
    layout l = layout_of(shape, threads);
    return (size_t)(l.row_threads * l.column_threads * (l.b_elements + l.a_elements)) * sizeof(float);
}

void UPS_CPU(matmul)(const ups_matmul_shape *shape, int threads, const void *a, const void *b, const float *bias,
                     void *c, void *gelu, void *scratch) {
    bool apart = gelu && (on_tiles(shape) || has_few_rows(shape) || shape->result != UPS_F32);
    if (on_tiles(shape))
        ups_amx_matmul_run(shape, threads, a, b, bias, c, scratch);
    else if (has_few_rows(shape))
        multiply_few(shape, threads, a, b, bias, c, scratch);
    else
        multiply(shape, threads, a, b, bias, c, apart ? NULL : gelu, scratch);
    if (apart) activate(shape, threads, c, gelu);
}
