/* Muon (Jordan et al., https://kellerjordan.github.io/posts/muon, 2024): the momentum of each matrix, looked ahead by
 * Nesterov's rule, is made nearly orthogonal, and the matrix moves along that.
 *
 * Five Newton-Schulz steps of order 5, X ← a X + (b G + c G²) X with G = X Xᵀ, from X of Frobenius norm 1, take every
 * singular value to about 0.7 to 1.2, unless it is below some thousandths of the norm; they need products alone. A step
 * here is G, P = b I + c G, Q = a I + G P, X ← Q X; of a matrix taller than wide with G = Xᵀ X and X ← X Q. Products
 * are float32, or have bf16 operands in a run that computes in bf16, on processors that multiply them.
 *
 * The result is scaled by 0.2 √max(rows, columns) (Liu et al., arXiv 2502.16982): its elements are then 0.2 in the
 * root mean square, as large as AdamW's, whose learning rate and decay fit as they are.
 *
 * Matrices in float32 of up to some hundred thousand elements are each worked on by one thread. G, G² and all that is
 * made of G alone are symmetric, so that half of each is computed. Where one side is twice the other or more, steps are
 * taken by G alone, which they turn into P G P, P = a I + b G + c G², and X is multiplied once, by the product of all
 * P. G has the squares of singular values: those below some 10⁻⁷ of the largest are lost in its rounding, and along
 * these every P is nearly a I, as it is at 0; directions of small singular values come out a thousandth off. Squarer
 * matrices, where that would save nothing, go by Q = a I + b G + c G², X ← Q X.
 *
 * Of the others small ones are shared out among the threads, large ones are worked on by all threads together. A
 * product's bits do not depend on its threads, so neither do Muon's.
 */
#include "model/cpu/matmul.h"
#include "model/cpu/product.h"

#include <math.h>

enum {
    STEPS = 5,
    ALIGNMENT = 64,                  /* bytes */
    SMALL_MATRIX = 1 << 22,          /* multiplications a product below which threads take a matrix each */
    CHUNK_ELEMENTS = 1 << 14,        /* of element-by-element work that a thread takes */
    ALONE_ELEMENTS = 1 << 21,        /* floats that a thread works with, at most: of 384 x 1536 1.8 million */
    SQUARES = 4,                     /* symmetric matrices that steps by G take */
    PANEL = 2 * UPS_VECTOR,          /* columns of a product that are multiplied together, */
    DEPTH = 6144 / UPS_TILE_COLUMNS, /* so many elements along k, which stay in the first-level cache, */
    GROUP = 16 * UPS_TILE_ROWS       /* by so many rows, which stay in the second-level cache */
};
static const float a_factor = 3.4445f, b_factor = -4.7750f, c_factor = 2.0315f;
#define SMALLEST_NORM 1e-30 /* a smaller momentum is none: its reciprocal would leave float32 */

/* Elsewhere bf16 operands would be made float32 again. */
#if defined(UPS_CPU_TILES) || defined(__AVX512BF16__)
enum { MULTIPLIES_BF16 = 1 };
#else
enum { MULTIPLIES_BF16 = 0 };
#endif

/* How a matrix is worked on, and where things lie in its workspace, in bytes. */
typedef struct muon_layout {
    int64_t rows, columns, side; /* side: the shorter one */
    bool wide, alone, by_gram;
    int64_t padded_side, padded_length; /* alone: whole vectors */
    ups_dtype operands;
    ups_matmul_shape gram, square, step, last;
    size_t x[2], squares[3], scratch, bytes;
} muon_layout;

static size_t aligned(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Elements from row to row, an odd number of lines: a column's are spread over all sets of the first-level cache. */
static int64_t stride_of(int64_t columns) {
    enum { LINE = 16 };
    return (ups_div_up(columns, LINE) | 1) * LINE;
}

/* By one thread: x[0] as it is stored; then, of whole vectors, X, what it becomes, and squares, of which the last two
 * may be Xᵀ. */
static void lay_out_alone(muon_layout *l, int64_t length) {
    const int64_t side = ups_div_up(l->side, UPS_VECTOR) * UPS_VECTOR;
    length = ups_div_up(length, UPS_VECTOR) * UPS_VECTOR;
    const int64_t across = side * stride_of(length), along = length * stride_of(side);
    const int64_t all = across > along ? across : along, square = side * stride_of(side);
    l->by_gram = length >= 2 * side;
    const int64_t squares = l->by_gram ? SQUARES * square : 2 * square + all;
    l->alone = l->operands == UPS_F32 && l->side >= UPS_VECTOR && 2 * all + squares <= ALONE_ELEMENTS;
    if (!l->alone) return;
    l->padded_side = side;
    l->padded_length = length;
    l->x[0] = 0;
    l->x[1] = aligned((size_t)(l->rows * l->columns) * sizeof(float));
    l->squares[0] = l->x[1] + aligned((size_t)(2 * all) * sizeof(float));
    l->bytes = l->squares[0] + aligned((size_t)squares * sizeof(float));
}

static muon_layout layout_of(const ups_matrices *m, ups_dtype compute, int threads) {
    const bool wide = m->columns > m->rows;
    const int64_t side = wide ? m->rows : m->columns;
    const ups_dtype operands = MULTIPLIES_BF16 && compute == UPS_BF16 ? UPS_BF16 : UPS_F32;
    muon_layout l = {.rows = m->rows, .columns = m->columns, .side = side, .wide = wide, .operands = operands};
    lay_out_alone(&l, wide ? m->columns : m->rows);
    if (l.alone) return l;
    l.gram = (ups_matmul_shape){.m = side,
                                .n = side,
                                .k = wide ? m->columns : m->rows,
                                .transpose_a = !wide,
                                .transpose_b = wide,
                                .operands = operands,
                                .result = UPS_F32};
    l.square = (ups_matmul_shape){.m = side, .n = side, .k = side, .operands = operands, .result = UPS_F32};
    l.last = (ups_matmul_shape){.m = m->rows, .n = m->columns, .k = side, .operands = operands, .result = UPS_F32};
    l.step = l.last;
    l.step.result = operands;
    const ups_matmul_shape *products[] = {&l.gram, &l.square, &l.step, &l.last};
    size_t scratch = 0;
    for (int i = 0; i < 4; i++) {
        size_t bytes = UPS_CPU(matmul_scratch)(products[i], threads);
        if (bytes > scratch) scratch = bytes;
    }
    size_t whole = aligned((size_t)(m->rows * m->columns) * sizeof(float));
    size_t square = aligned((size_t)(side * side) * sizeof(float));
    l.x[0] = aligned(scratch);
    l.x[1] = l.x[0] + whole;
    for (int i = 0; i < 3; i++) l.squares[i] = l.x[1] + whole + (size_t)i * square;
    /* With bf16 operands x[1] holds both of a step's; a matrix of odd size wants them aligned. */
    if (operands != UPS_F32) {
        size_t half = aligned((size_t)(m->rows * m->columns) * sizeof(uint16_t));
        for (int i = 0; i < 3; i++) l.squares[i] = l.x[1] + 2 * half + (size_t)i * square;
    }
    l.bytes = l.squares[2] + square;
    return l;
}

/* A thread takes such a matrix alone. */
static bool is_small(const ups_matrices *m, ups_dtype compute) {
    const int64_t side = ups_min(m->rows, m->columns);
    return (double)m->rows * (double)m->columns * (double)side < SMALL_MATRIX || layout_of(m, compute, 1).alone;
}

size_t UPS_CPU(muon_workspace)(int threads, const ups_matrices *matrices, int32_t count, ups_dtype compute) {
    size_t most = 0, most_small = 0;
    int64_t small = 0;
    for (int32_t i = 0; i < count; i++) {
        const bool alone = is_small(&matrices[i], compute);
        const size_t bytes = layout_of(&matrices[i], compute, alone ? 1 : threads).bytes;
        size_t *const larger = alone ? &most_small : &most;
        if (bytes > *larger) *larger = bytes;
        if (alone) small += matrices[i].count;
    }
    most_small *= (size_t)ups_min(small, threads);
    return most > most_small ? most : most_small;
}

/* The moment moves on, and x becomes what it would be a step later. */
static void look_ahead(const ups_optimizer_call *call, int threads, int64_t offset, int64_t kept, int64_t count,
                       float *x) {
    const float scale = call->update->result.gradient_scale, beta = call->beta1;
    const float *gradients = call->gradients + offset;
    float *moment = call->moments[0] + kept;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t chunk = 0; chunk < ups_div_up(count, CHUNK_ELEMENTS); chunk++) {
        int64_t start = chunk * CHUNK_ELEMENTS, end = ups_min(start + CHUNK_ELEMENTS, count);
        for (int64_t i = start; i < end; i++) {
            float gradient = (1.0f - beta) * gradients[i] * scale;
            float moved = beta * moment[i] + gradient;
            moment[i] = moved;
            x[i] = beta * moved + gradient;
        }
    }
}

/* y = factor x + diagonal I, square. */
static void scale_and_shift(int threads, int64_t side, float factor, float diagonal, const float *x, float *y) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < side; row++) {
        for (int64_t i = row * side; i < (row + 1) * side; i++) y[i] = factor * x[i];
        y[row * side + row] += diagonal;
    }
}

/* Where the operands of a product lie: `x` itself, or rounded in `rounded`. */
static const void *as_operand(int threads, ups_dtype operands, const float *x, int64_t count, void *rounded) {
    if (operands == UPS_F32) return x;
    UPS_CPU(convert)(threads, x, operands, rounded, count);
    return rounded;
}

/* x[0], of a norm above 0, to nearly orthogonal; returns where that is. */
static const float *orthogonalise(const muon_layout *l, int threads, char *workspace, double norm) {
    const int64_t count = l->rows * l->columns, square = l->side * l->side;
    const bool rounds = l->operands != UPS_F32;
    float *x = (float *)(void *)(workspace + l->x[0]), *gram = (float *)(void *)(workspace + l->squares[0]);
    /* Rounded, squares are made in one place and multiplied in two others. */
    float *first = (float *)(void *)(workspace + l->squares[1]), *second = (float *)(void *)(workspace + l->squares[2]);
    float *poly = rounds ? gram : first, *made = rounds ? gram : second;
    const float inverse = (float)(1.0 / norm);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t chunk = 0; chunk < ups_div_up(count, CHUNK_ELEMENTS); chunk++) {
        int64_t start = chunk * CHUNK_ELEMENTS, end = ups_min(start + CHUNK_ELEMENTS, count);
        for (int64_t i = start; i < end; i++) x[i] *= inverse;
    }
    char *const other = workspace + l->x[1];
    char *const ends[2] = {rounds ? other : workspace + l->x[0],
                           rounds ? other + aligned((size_t)count * sizeof(uint16_t)) : other};
    const void *from = as_operand(threads, l->operands, x, count, ends[0]);
    for (int step = 0; step < STEPS; step++) {
        const bool last = step == STEPS - 1;
        UPS_CPU(matmul)(&l->gram, threads, from, from, NULL, gram, NULL, workspace);
        const void *left = as_operand(threads, l->operands, gram, square, first);
        scale_and_shift(threads, l->side, c_factor, b_factor, gram, poly);
        const void *right = as_operand(threads, l->operands, poly, square, second);
        UPS_CPU(matmul)(&l->square, threads, left, right, NULL, made, NULL, workspace);
        scale_and_shift(threads, l->side, 1.0f, a_factor, made, made);
        const void *factor = as_operand(threads, l->operands, made, square, second);
        void *to = last && rounds ? (void *)x : ends[(step + 1) % 2];
        UPS_CPU(matmul)
        (last ? &l->last : &l->step, threads, l->wide ? factor : from, l->wide ? from : factor, NULL, to, NULL,
         workspace);
        from = to;
    }
    return from;
}

/* C (m, n) = A (m, k) B (k, n); of a C that is known to be symmetric what lies above the diagonal need not be. */
static void product(bool symmetric, int64_t m, int64_t n, int64_t k, const float *a, int64_t row_stride,
                    int64_t k_stride, const float *b, int64_t b_stride, float *c, int64_t c_stride) {
    for (int64_t start = 0; start < k; start += DEPTH) {
        const int64_t depth = ups_min(DEPTH, k - start);
        for (int64_t group = 0; group < m; group += GROUP) {
            const int64_t end = ups_min(group + GROUP, m);
            for (int64_t column = 0, columns; column < n; column += columns) {
                const int64_t above = symmetric ? column / UPS_TILE_ROWS * UPS_TILE_ROWS : 0;
                const int64_t first = above > group ? above : group;
                if (first >= end) break;
                columns = ups_min(n - column == UPS_WIDE_VECTORS * UPS_VECTOR ? n - column : PANEL, n - column);
                ups_product(end - first, columns, depth, a + first * row_stride + start * k_stride, row_stride,
                            k_stride, b + start * b_stride + column, b_stride, c + first * c_stride + column, c_stride,
                            start > 0);
            }
        }
    }
}

/* C = A B of `side` rows, known to be symmetric: half is computed, and the rest copied, so that it is so to the bit. */
static void symmetric_product(int64_t side, int64_t k, const float *a, int64_t row_stride, int64_t k_stride,
                              const float *b, float *c) {
    const int64_t stride = stride_of(side);
    product(true, side, side, k, a, row_stride, k_stride, b, stride, c, stride);
    for (int64_t at = 0; at < side; at += 4) {
        float *const corner = c + at * stride + at;
        for (int i = 0; i < 4; i++) {
            for (int j = 0; j < i; j++) corner[j * stride + i] = corner[i * stride + j];
        }
        if (at + 4 < side) ups_transpose(side - at - 4, 4, corner + 4 * stride, stride, corner + 4, stride);
    }
}

/* a I + b G + c G² to `to`, which may be where G² lies. */
static void polynomial(int64_t side, const float *gram, const float *square, float *to) {
    const int64_t stride = stride_of(side);
    for (int64_t i = 0; i < side * stride; i += UPS_VECTOR) {
        f32v_store(to + i, f32v_load(square + i) * c_factor + f32v_load(gram + i) * b_factor);
    }
    for (int64_t i = 0; i < side; i++) to[i * stride + i] += a_factor;
}

/* The product of all P, in one of the squares, of which the first is G. All of them are overwritten. */
static const float *factor_of(int64_t side, float *squares) {
    const int64_t stride = stride_of(side), size = side * stride;
    float *gram = squares, *made = gram + size, *poly = made + size, *all = poly + size;
    for (int step = 0; step < STEPS; step++) {
        float *const p = step == 0 ? all : poly;
        symmetric_product(side, side, gram, stride, 1, gram, made);
        polynomial(side, gram, made, p);
        if (step > 0) {
            symmetric_product(side, side, p, stride, 1, all, made);
            float *const before = all;
            all = made;
            made = before;
        }
        if (step == STEPS - 1) break;
        symmetric_product(side, side, p, stride, 1, gram, made);
        symmetric_product(side, side, p, stride, 1, made, gram);
    }
    return all;
}

/* A matrix that one thread works on: padded with zeros to whole vectors. */
typedef struct padded {
    bool wide;
    int64_t side, length, rows, columns;
    int64_t across, along, stride; /* from row to row: of `length` columns, of `side`, of X */
} padded;

/* G of X; `transposed` is overwritten where X is wide. */
static void gram_of(const padded *m, const float *x, float *transposed, float *gram) {
    if (m->wide) ups_transpose(m->side, m->length, x, m->across, transposed, m->along);
    symmetric_product(m->side, m->length, x, m->wide ? m->across : 1, m->wide ? 1 : m->along, m->wide ? transposed : x,
                      gram);
}

/* Q X, or X Q where X is not wide. */
static void multiply_by(const padded *m, const float *factor, const float *x, float *to) {
    product(false, m->rows, m->columns, m->side, m->wide ? factor : x, m->along, 1, m->wide ? x : factor, m->stride, to,
            m->stride);
}

/* The same by one thread. */
static const float *orthogonalise_alone(const muon_layout *l, char *workspace, double norm) {
    padded m = {.wide = l->wide, .side = l->padded_side, .length = l->padded_length};
    m.across = stride_of(m.length);
    m.along = stride_of(m.side);
    m.stride = m.wide ? m.across : m.along;
    m.rows = m.wide ? m.side : m.length;
    m.columns = m.wide ? m.length : m.side;
    const int64_t square = m.side * m.along;
    float *const kept = (float *)(void *)(workspace + l->x[0]), *x = (float *)(void *)(workspace + l->x[1]);
    float *const squares = (float *)(void *)(workspace + l->squares[0]), *other = x + (squares - x) / 2;
    const float inverse = (float)(1.0 / norm);
    memset(x, 0, (size_t)(m.rows * m.stride) * sizeof(float));
    /* What lies between rows is added up, too. */
    memset(squares, 0, (size_t)((l->by_gram ? SQUARES : 2) * square) * sizeof(float));
    for (int64_t row = 0; row < l->rows; row++) {
        for (int64_t i = 0; i < l->columns; i++) x[row * m.stride + i] = kept[row * l->columns + i] * inverse;
    }
    if (l->by_gram) {
        gram_of(&m, x, other, squares);
        multiply_by(&m, factor_of(m.side, squares), x, other);
        x = other;
    }
    for (int step = 0; !l->by_gram && step < STEPS; step++) {
        gram_of(&m, x, squares + 2 * square, squares);
        symmetric_product(m.side, m.side, squares, m.along, 1, squares, squares + square);
        polynomial(m.side, squares, squares + square, squares + square);
        multiply_by(&m, squares + square, x, other);
        float *const made = other;
        other = x;
        x = made;
    }
    for (int64_t row = 0; row < l->rows; row++) {
        memcpy(kept + row * l->columns, x + row * m.stride, (size_t)l->columns * sizeof(float));
    }
    return kept;
}

static void move(const ups_optimizer_call *call, const ups_matrices *m, int64_t index, int threads, char *workspace) {
    const muon_layout l = layout_of(m, call->compute_dtype, threads);
    const int64_t count = m->rows * m->columns, offset = m->offset + index * count;
    const float rate = call->update->input.learning_rate, keep = 1.0f - rate * call->weight_decay;
    float *values = call->values + offset, *x = (float *)(void *)(workspace + l.x[0]);
    double squares;
    int64_t bad;
    look_ahead(call, threads, offset, m->kept + index * count, count, x);
    UPS_CPU(sum_of_squares)(threads, x, count, &squares, &bad);
    const double norm = sqrt(squares);
    const bool moves = norm > SMALLEST_NORM && bad == 0;
    const float *direction = !moves    ? x
                             : l.alone ? orthogonalise_alone(&l, workspace, norm)
                                       : orthogonalise(&l, threads, workspace, norm);
    const float step = moves ? rate * 0.2f * sqrtf((float)(l.wide ? m->columns : m->rows)) : 0.0f;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t chunk = 0; chunk < ups_div_up(count, CHUNK_ELEMENTS); chunk++) {
        int64_t start = chunk * CHUNK_ELEMENTS, end = ups_min(start + CHUNK_ELEMENTS, count);
        for (int64_t i = start; i < end; i++) values[i] = values[i] * keep - step * direction[i];
    }
}

/* The matrix at `place` among all small ones, entry by entry; returns its entry. */
static const ups_matrices *small_at(const ups_optimizer_call *call, int64_t place, int64_t *index) {
    const ups_matrices *m = call->matrices;
    for (;; m++) {
        if (!is_small(m, call->compute_dtype)) continue;
        if (place < m->count) break;
        place -= m->count;
    }
    *index = place;
    return m;
}

void UPS_CPU(muon)(int threads, const ups_optimizer_call *call) {
    char *const workspace = call->workspace;
    int64_t small = 0;
    size_t most = 0; /* bytes for a small matrix */
    for (int32_t i = 0; i < call->matrices_count; i++) {
        const ups_matrices *m = &call->matrices[i];
        if (is_small(m, call->compute_dtype)) {
            const size_t bytes = layout_of(m, call->compute_dtype, 1).bytes;
            if (bytes > most) most = bytes;
            small += m->count;
        } else {
            for (int64_t index = 0; index < m->count; index++) move(call, m, index, threads, workspace);
        }
    }
    if (small == 0) return;
#pragma omp parallel for num_threads(small < threads ? (int)small : threads) schedule(dynamic)
    for (int64_t place = 0; place < small; place++) {
        int64_t index;
        const ups_matrices *m = small_at(call, place, &index);
        move(call, m, index, 1, workspace + (size_t)omp_get_thread_num() * most);
    }
}
