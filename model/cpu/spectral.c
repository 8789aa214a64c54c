/* Mixing of modes: tokens are taken to modes axis by axis, features of a mode are mixed by a matrix of its own, and
 * modes go back to tokens by the transposed tables.
 *
 * A transform is a product with a table (2 modes, cells): for the numbers of tokens along an axis that operators have,
 * a dense product in registers is faster than an FFT, which would have to go through D interleaved series. Mixing is a
 * product too. The P = 2^dims parts of a mode are numbers with an imaginary unit for each axis, which multiply as such:
 *
 *   y_p = sum over q of s(p, q) x_(p^q) W_q,    s(p, q) = (-1)^(number of bits in (p^q) & q)
 *
 * These numbers are P / 2 complex ones side by side, a wave for each choice of signs of the wavenumbers: where ij = 1,
 * j is -i, and where ij = -1, j is i. In these terms (split and join, below) two axes take half of the multiplications,
 * three a quarter. Of the two parts of a wave, with x_(p^q), signed, beside each other, part p is one product with W_0
 * and W_1 below each other. Samples are transformed in parallel, then modes mixed in parallel: nothing is summed across
 * threads. */
#include "model/cpu/product.h"

enum { ALIGNMENT = 64, MAX_PARTS = 8 };

typedef struct spectral {
    int dims, parts;
    int64_t batch, tokens, width, padded; /* padded: the width in whole vectors */
    int64_t inner; /* of lines: tokens from one of a line to the next, so many lines side by side; else 1 */
    int64_t cells[3], rows[3], modes[3],
        all[3];                    /* along each axis: rows of the table, modes used, modes of the weight */
    int64_t row_count, mode_count; /* of all axes */
    const float *table[3];
} spectral;

static spectral spectral_of(const ups_op_call *call) {
    const ups_op_attributes *a = call->attributes;
    const ups_shape *x = &call->inputs[0].shape;
    spectral s = {.dims = a->dims,
                  .parts = 1 << a->dims,
                  .batch = x->size[0],
                  .tokens = x->size[1],
                  .width = x->size[2],
                  .inner = a->length > 0 ? a->length : 1,
                  .mode_count = 1};
    s.row_count = s.inner;
    s.padded = ups_div_up(s.width, UPS_VECTOR) * UPS_VECTOR;
    for (int axis = 0; axis < s.dims; axis++) {
        const ups_tensor *table = &call->inputs[2 + axis];
        s.rows[axis] = table->shape.size[0];
        s.cells[axis] = table->shape.size[1];
        s.modes[axis] = s.rows[axis] / 2;
        s.all[axis] = a->modes[axis];
        s.table[axis] = table->data;
        s.row_count *= s.rows[axis];
        s.mode_count *= s.modes[axis];
    }
    if (a->length > 0) { /* lines side by side are a sample, of which there are more */
        s.batch *= s.tokens / (s.inner * s.cells[0]);
        s.tokens = s.inner * s.cells[0];
    }
    return s;
}

/* ---- scratch ---------------------------------------------------------------------------------------------------- */

static size_t aligned(size_t floats) {
    return ups_div_up((int64_t)floats, ALIGNMENT / 4) * (ALIGNMENT / 4);
}

/* Floats that a sample takes between two axes, at most. */
static size_t sample_floats(const spectral *s) {
    int64_t most = 0, before = 1, after = s->inner * s->padded;
    for (int axis = 0; axis < s->dims; axis++) after *= s->rows[axis];
    for (int axis = 0; axis < s->dims; axis++) {
        most = before * after > most ? before * after : most;
        before *= s->cells[axis];
        after /= s->rows[axis];
        most = before * after > most ? before * after : most;
    }
    return aligned((size_t)(most > s->tokens * s->padded ? most : s->tokens * s->padded));
}

typedef struct scratch {
    float *modes[2]; /* (batch, rows, padded): of the output or its gradient, of the gradient to the input */
    float *threads;  /* each: two samples between axes; or signed parts, matrices, their gradient */
    size_t sample, parts, matrices, thread;
} scratch;

static scratch scratch_of(const spectral *s, float *memory, bool backward, size_t *floats, int threads) {
    size_t modes = aligned((size_t)(s->batch * s->row_count * s->padded));
    scratch c = {.sample = sample_floats(s),
                 .parts = aligned((size_t)(s->batch * s->inner * 2 * s->padded)),
                 .matrices = aligned((size_t)(s->parts * s->padded * s->padded))};
    c.thread = 2 * c.sample > c.parts + 2 * c.matrices ? 2 * c.sample : c.parts + 2 * c.matrices;
    *floats = (backward ? 2 : 1) * modes + (size_t)threads * c.thread;
    if (!memory) return c;
    c.modes[0] = memory;
    c.modes[1] = memory + modes;
    c.threads = memory + (backward ? 2 : 1) * modes;
    return c;
}

static size_t workspace(const ups_device *device, const ups_op_call *call, bool backward) {
    spectral s = spectral_of(call);
    size_t floats;
    scratch_of(&s, NULL, backward, &floats, ups_cpu_threads(device));
    return floats * sizeof(float);
}

/* ---- between tokens and modes ----------------------------------------------------------------------------------- */

/* Lines that lie side by side in a sample, some of them: threads work on parts of a sample where a batch has fewer
 * samples than there are threads. Of anything but lines, the sample. */
typedef struct columns {
    int64_t sample, first, count;
} columns;

static int64_t columns_together(const spectral *s, int threads) {
    const int64_t parts = s->dims == 1 ? ups_div_up(threads, s->batch) : 1;
    return ups_div_up(s->inner, ups_min(parts, s->inner));
}

static columns columns_of(const spectral *s, int64_t together, int64_t index) {
    const int64_t parts = ups_div_up(s->inner, together), first = index % parts * together;
    return (columns){index / parts, first, ups_min(together, s->inner - first)};
}

/* Columns of one cell after the other, or of one row of modes; `padded` numbers each. */
typedef struct series {
    float *first;
    int64_t stride; /* from a cell to the next */
} series;

/* Tokens, which stay, to modes at `to`, by two buffers, in the second of which tokens may lie. */
static void to_modes(const spectral *s, series tokens, int64_t count, float *first, float *second, series to) {
    float *const buffers[] = {first, second};
    int64_t outer = s->tokens / s->inner, inner = count * s->padded;
    series from = tokens;
    for (int axis = s->dims - 1, turn = 0; axis >= 0; axis--, turn++) {
        const int64_t cells = s->cells[axis], rows = s->rows[axis];
        const series made = axis > 0 ? (series){buffers[turn % 2], inner} : to;
        outer /= cells;
        for (int64_t o = 0; o < outer; o++) {
            ups_product(rows, inner, cells, s->table[axis], cells, 1, from.first + o * cells * from.stride, from.stride,
                        made.first + o * rows * made.stride, made.stride, false);
        }
        inner *= rows;
        from = (series){made.first, inner};
    }
}

/* The transposed: modes, which stay, to tokens at `to`. */
static void to_tokens(const spectral *s, series modes, int64_t count, float *first, float *second, series to) {
    float *const buffers[] = {first, second};
    int64_t outer = 1, inner = s->row_count / s->inner * count * s->padded;
    series from = modes;
    for (int axis = 0; axis < s->dims; axis++) {
        const int64_t cells = s->cells[axis], rows = s->rows[axis];
        inner /= rows;
        const series made = axis < s->dims - 1 ? (series){buffers[axis % 2], inner} : to;
        if (axis > 0) from.stride = inner;
        for (int64_t o = 0; o < outer; o++) {
            ups_product(cells, inner, rows, s->table[axis], 1, cells, from.first + o * rows * from.stride, from.stride,
                        made.first + o * cells * made.stride, made.stride, false);
        }
        outer *= cells;
        from = made;
    }
}

/* Whether a sample's tokens lie as products want them. */
static bool lies_whole(const spectral *s, const ups_tensor *tensor) {
    return tensor->dtype == UPS_F32 && s->width == s->padded;
}

static series tokens_of(const spectral *s, const ups_tensor *tensor, const columns *c) {
    const int64_t token = c->sample * s->tokens + c->first;
    return (series){(float *)tensor->data + token * s->width, s->inner * s->width};
}

/* Tokens of (B, tokens, width) in any dtype, filled up with zeros: where they lie, or in `to`. */
static series read_tokens(const spectral *s, const ups_tensor *tensor, const columns *c, float *to) {
    if (lies_whole(s, tensor)) return tokens_of(s, tensor, c);
    const series made = {to, c->count * s->padded};
    float row[UPS_CHUNK];
    for (int64_t i = 0; i < s->tokens / s->inner * c->count; i++, to += s->padded) {
        const int64_t token = c->sample * s->tokens + i / c->count * s->inner + c->first + i % c->count;
        for (int64_t start = 0; start < s->width; start += UPS_CHUNK) {
            const int64_t n = ups_min(UPS_CHUNK, s->width - start);
            const float *from = ups_row_read(tensor, token * s->width + start, n, row);
            memcpy(to + start, from, (size_t)n * sizeof(float));
        }
        memset(to + s->width, 0, (size_t)(s->padded - s->width) * sizeof(float));
    }
    return made;
}

/* Where modes of (B, rows, padded) lie. */
static series modes_of(const spectral *s, float *modes, const columns *c) {
    return (series){modes + (c->sample * s->row_count + c->first) * s->padded, s->row_count / s->rows[0] * s->padded};
}

/* Modes to where their tokens belong. */
static void write_tokens(const spectral *s, float *modes, const ups_tensor *tensor, const columns *c, bool accumulate,
                         float *first, float *second) {
    const bool whole = lies_whole(s, tensor) && !accumulate;
    series made = {s->dims % 2 == 1 ? first : second, c->count * s->padded};
    if (whole) made = tokens_of(s, tensor, c);
    to_tokens(s, modes_of(s, modes, c), c->count, first, second, made);
    if (whole) return;
    float row[UPS_CHUNK];
    const float *from = made.first;
    for (int64_t i = 0; i < s->tokens / s->inner * c->count; i++, from += s->padded) {
        const int64_t token = c->sample * s->tokens + i / c->count * s->inner + c->first + i % c->count;
        for (int64_t start = 0; start < s->width; start += UPS_CHUNK) {
            const int64_t n = ups_min(UPS_CHUNK, s->width - start), at = token * s->width + start;
            float *to = ups_row_target(tensor, at, row, accumulate);
            memcpy(to, from + start, (size_t)n * sizeof(float));
            ups_row_write(tensor, at, n, to, accumulate);
        }
    }
}

/* ---- modes ------------------------------------------------------------------------------------------------------ */

/* Row of part 0 of a mode, and how far part p's row lies behind it; its place in the weight. */
typedef struct mode {
    int64_t row, weight;
    int64_t part[MAX_PARTS];
} mode;

static mode mode_of(const spectral *s, int64_t index) {
    mode m = {.row = 0};
    int64_t step = s->inner, weight_step = 1;
    for (int axis = s->dims - 1, bit = 0; axis >= 0; axis--, bit++) {
        int64_t k = index % s->modes[axis];
        index /= s->modes[axis];
        m.row += 2 * k * step;
        m.weight += k * weight_step;
        for (int p = 0; p < s->parts; p++) m.part[p] += (p >> bit & 1) * step;
        step *= s->rows[axis];
        weight_step *= s->all[axis];
    }
    return m;
}

static inline bool negative(int p, int q) {
    return __builtin_popcount((unsigned)((p ^ q) & q)) & 1;
}

/* Four parts of `count` numbers each, a + i a' + j c + ij c': by two units, of which each wave has one. `from` may be
 * `to`. */
static void split_four(float *const from[4], float *const to[4], int64_t count, float scale) {
    const float *a = from[0], *ai = from[1], *c = from[2], *ci = from[3];
    float *plus = to[0], *plus_i = to[1], *minus = to[2], *minus_i = to[3];
#pragma omp simd
    for (int64_t d = 0; d < count; d++) {
        float one = scale * a[d], i = scale * ai[d], j = scale * c[d], ij = scale * ci[d];
        plus[d] = one + ij; /* where ij = 1 */
        plus_i[d] = i - j;
        minus[d] = one - ij; /* where ij = -1 */
        minus_i[d] = i + j;
    }
}

/* The transpose, which is twice the inverse. */
static void join_four(float *const from[4], float *const to[4], int64_t count, float scale) {
    const float *plus = from[0], *plus_i = from[1], *minus = from[2], *minus_i = from[3];
    float *a = to[0], *ai = to[1], *c = to[2], *ci = to[3];
#pragma omp simd
    for (int64_t d = 0; d < count; d++) {
        float p = scale * plus[d], pi = scale * plus_i[d], m = scale * minus[d], mi = scale * minus_i[d];
        a[d] = p + m;
        ai[d] = pi + mi;
        c[d] = mi - pi;
        ci[d] = p - m;
    }
}

/* Which parts are split, in this order: of a plane the first, of a volume all. */
static const uint8_t fours[][4] = {{0, 1, 2, 3}, {4, 5, 6, 7}, {0, 1, 4, 5}, {2, 3, 6, 7}};
static const int four_counts[] = {0, 0, 1, 4};

/* Of each four, those of a list of parts. */
static void choose_four(float *const part[MAX_PARTS], int n, float *four[4]) {
    for (int i = 0; i < 4; i++) four[i] = part[fours[n][i]];
}

/* Parts at from[p] become waves at to[p], which may be the same: wave w is in parts 2 w and 2 w + 1. */
static void split(const spectral *s, float *const from[MAX_PARTS], float *const to[MAX_PARTS], int64_t count,
                  float scale) {
    const int first = s->parts / 4; /* of a volume fours are split twice */
    for (int n = 0; n < four_counts[s->dims]; n++) {
        float *source[4], *target[4];
        choose_four(n < first ? from : to, n, source);
        choose_four(to, n, target);
        split_four(source, target, count, n < first ? scale : 1.0f);
    }
}

/* Waves at from[p] become parts at to[p], each P / 2 · scale times as large; of a volume `from` is changed, too. */
static void join(const spectral *s, float *const from[MAX_PARTS], float *const to[MAX_PARTS], int64_t count,
                 float scale) {
    const int last = s->parts / 4;
    for (int n = four_counts[s->dims] - 1; n >= 0; n--) {
        float *source[4], *target[4];
        choose_four(from, n, source);
        choose_four(n < last ? to : from, n, target);
        join_four(source, target, count, n < last ? scale : 1.0f);
    }
}

static void find_parts(const spectral *s, const mode *m, float *rows, float *part[MAX_PARTS]) {
    for (int p = 0; p < s->parts; p++) part[p] = rows + (m->row + m->part[p]) * s->padded;
}

/* A sample's modes (rows, padded). */
static void split_modes(const spectral *s, float *rows) {
    float *part[MAX_PARTS];
    for (int64_t g = 0; g < s->mode_count && s->dims > 1; g++) {
        mode m = mode_of(s, g);
        find_parts(s, &m, rows, part);
        split(s, part, part, s->padded, 1);
    }
}

static void join_modes(const spectral *s, float *rows) {
    float *part[MAX_PARTS];
    for (int64_t g = 0; g < s->mode_count && s->dims > 1; g++) {
        mode m = mode_of(s, g);
        find_parts(s, &m, rows, part);
        join(s, part, part, s->padded, 1);
    }
}

/* Of tokens, in (B, rows, width) at `modes`. */
static void find_modes(const spectral *s, const ups_tensor *tensor, const columns *c, float *first, float *second,
                       float *modes, int64_t width) {
    const int64_t row = c->sample * s->row_count + c->first;
    const bool whole = width == s->padded;
    series made = {s->dims % 2 == 1 ? first : second, s->row_count / s->rows[0] / s->inner * c->count * s->padded};
    if (whole) made = modes_of(s, modes, c);
    to_modes(s, read_tokens(s, tensor, c, second), c->count, first, second, made);
    split_modes(s, made.first);
    const float *from = made.first;
    for (int64_t i = 0; !whole && i < s->row_count / s->inner * c->count; i++, from += s->padded) {
        memcpy(modes + (row + i / c->count * s->inner + i % c->count) * width, from, (size_t)width * sizeof(float));
    }
}

/* Back, from (B, rows, padded), which are joined. */
static void make_tokens(const spectral *s, float *modes, const ups_tensor *tensor, const columns *c, bool accumulate,
                        float *first, float *second) {
    join_modes(s, modes_of(s, modes, c).first);
    write_tokens(s, modes, tensor, c, accumulate, first, second);
}

/* A mode's matrices (P, width, width). */
static void find_matrices(const spectral *s, float *matrices, int64_t width, float *part[MAX_PARTS]) {
    for (int p = 0; p < s->parts; p++) part[p] = matrices + p * width * width;
}

/* Packed matrices (P, padded, padded), of `from`, which may be the same. */
static void split_matrices(const spectral *s, float *from, float *packed) {
    float *source[MAX_PARTS], *part[MAX_PARTS];
    find_matrices(s, from, s->padded, source);
    find_matrices(s, packed, s->padded, part);
    split(s, source, part, s->padded * s->padded, 2.0f / (float)s->parts); /* what joining makes of it */
}

/* (B · inner, 2 padded): of a wave, beside each other s(p, q) x_(p^q), or, to go back, s(p^q, q) x_(p^q). Rows of `x`
 * are `width` long; what is missing of `padded` is zero. */
static void sign_parts(const spectral *s, const mode *m, int wave, int p, bool back, const float *x, int64_t width,
                       float *to) {
    for (int64_t i = 0; i < s->batch * s->inner; i++) {
        const int64_t row = i / s->inner * s->row_count + m->row + i % s->inner;
        for (int q = 0; q < 2; q++, to += s->padded) {
            const float *from = x + (row + m->part[2 * wave + (p ^ q)]) * width;
            float sign = negative(back ? p ^ q : p, q) ? -1.0f : 1.0f;
            for (int64_t d = 0; d < s->width; d++) to[d] = sign * from[d];
            for (int64_t d = s->width; d < s->padded; d++) to[d] = 0.0f;
        }
    }
}

/* A mode's matrices, wave by wave: (P · padded, padded), W_0 and W_1 of each below each other. They lie so in the
 * weight where there is one wave and no padding. */
static const float *matrices_of(const spectral *s, const mode *m, const float *weight, float *packed) {
    const float *from = weight + m->weight * s->parts * s->width * s->width;
    if (s->width == s->padded && s->dims == 1) return from;
    if (s->width == s->padded) {
        split_matrices(s, (float *)(uintptr_t)from, packed); /* which are read alone */
        return packed;
    }
    memset(packed, 0, (size_t)(s->parts * s->padded * s->padded) * sizeof(float));
    for (int64_t row = 0; row < s->parts * s->width; row++) {
        int64_t to = row / s->width * s->padded + row % s->width;
        memcpy(packed + to * s->padded, from + row * s->width, (size_t)s->width * sizeof(float));
    }
    split_matrices(s, packed, packed);
    return packed;
}

/* The same, each transposed. */
static void transpose_matrices(const spectral *s, const mode *m, const float *weight, float *packed) {
    const float *from = weight + m->weight * s->parts * s->width * s->width;
    float *to = packed;
    if (s->width < s->padded) memset(packed, 0, (size_t)(s->parts * s->padded * s->padded) * sizeof(float));
    for (int q = 0; q < s->parts; q++, from += s->width * s->width, to += s->padded * s->padded) {
        int64_t whole = s->width / 4 * 4;
        ups_transpose(whole, whole, from, s->width, to, s->padded);
        for (int64_t i = 0; i < s->width; i++) {
            for (int64_t j = i < whole ? whole : 0; j < s->width; j++) to[j * s->padded + i] = from[i * s->width + j];
        }
    }
    split_matrices(s, packed, packed);
}

/* Rows of a mode's part lie side by side in a sample where they are those of lines, else once in each. */
static int64_t runs_of(const spectral *s) {
    return s->inner > 1 ? s->batch : 1;
}

/* Part p of a wave (B, inner, padded), in rows of (B, rows, padded), = signed parts times its matrices. */
static void multiply_part(const spectral *s, const mode *m, int wave, int p, const float *parts, const float *matrices,
                          float *modes) {
    const int64_t k = 2 * s->padded, runs = runs_of(s), rows = s->batch * s->inner / runs;
    float *to = modes + (m->row + m->part[2 * wave + p]) * s->padded;
    for (int64_t run = 0; run < runs; run++) {
        ups_product(rows, s->padded, k, parts + run * rows * k, k, 1, matrices + wave * k * s->padded, s->padded,
                    to + run * s->row_count * s->padded, (s->inner > 1 ? 1 : s->row_count) * s->padded, false);
    }
}

/* dW of a wave (2 padded, padded) (+)= signed parts^T times the gradient of part p. */
static void add_to_matrices(const spectral *s, const mode *m, int wave, int p, const float *parts,
                            const float *gradient, float *made) {
    const int64_t k = 2 * s->padded, runs = runs_of(s), rows = s->batch * s->inner / runs;
    const float *from = gradient + (m->row + m->part[2 * wave + p]) * s->padded;
    for (int64_t run = 0; run < runs; run++) {
        ups_product(k, s->padded, rows, parts + run * rows * k, 1, k, from + run * s->row_count * s->padded,
                    (s->inner > 1 ? 1 : s->row_count) * s->padded, made + wave * k * s->padded, s->padded,
                    p > 0 || run > 0);
    }
}

static void write_matrices(const spectral *s, const mode *m, float *made, float *weight, bool accumulate) {
    const float scale = 2.0f / (float)s->parts;
    const bool at_once = s->dims > 1 && s->width == s->padded && !accumulate;
    float *to = weight + m->weight * s->parts * s->width * s->width, *part[MAX_PARTS], *target[MAX_PARTS];
    find_matrices(s, made, s->padded, part);
    find_matrices(s, at_once ? to : made, s->padded, target);
    join(s, part, target, s->padded * s->padded, scale); /* of a line it is 1, and nothing is joined */
    if (at_once) return;
    for (int64_t row = 0; row < s->parts * s->width; row++, to += s->width) {
        const float *from = made + (row / s->width * s->padded + row % s->width) * s->padded;
        for (int64_t d = 0; d < s->width; d++) to[d] = accumulate ? to[d] + from[d] : from[d];
    }
}

/* ---- the kernel ------------------------------------------------------------------------------------------------- */

static ups_status forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const spectral s = spectral_of(call);
    const int threads = ups_cpu_threads(device);
    size_t floats;
    const scratch c = scratch_of(&s, call->workspace, false, &floats, threads);
    const int64_t together = columns_together(&s, threads), parts = s.batch * ups_div_up(s.inner, together);
    float *const made = call->saved[0].data;
    const float *const weight = call->inputs[1].data;
#pragma omp parallel num_threads(threads)
    {
        float *own = c.threads + (size_t)omp_get_thread_num() * c.thread;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < parts; i++) {
            const columns part = columns_of(&s, together, i);
            find_modes(&s, &call->inputs[0], &part, own, own + c.sample, made, s.width);
        }
#pragma omp for schedule(static)
        for (int64_t g = 0; g < s.mode_count; g++) {
            mode m = mode_of(&s, g);
            const float *matrices = matrices_of(&s, &m, weight, own + c.parts);
            for (int p = 0; p < s.parts; p++) {
                sign_parts(&s, &m, p / 2, p % 2, false, made, s.width, own);
                multiply_part(&s, &m, p / 2, p % 2, own, matrices, c.modes[0]);
            }
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < parts; i++) {
            const columns part = columns_of(&s, together, i);
            make_tokens(&s, c.modes[0], &call->output, &part, false, own, own + c.sample);
        }
    }
    return UPS_OK;
}

static void mode_backward(const spectral *s, const ups_op_call *call, const scratch *c, int64_t index, float *own) {
    const float *const weight = call->inputs[1].data;
    const ups_tensor *const gradient = &call->input_gradients[1];
    mode m = mode_of(s, index);
    float *const matrices = own + c->parts, *const made = matrices + c->matrices;
    if (ups_present(gradient)) {
        for (int p = 0; p < s->parts; p++) {
            sign_parts(s, &m, p / 2, p % 2, false, call->saved[0].data, s->width, own);
            add_to_matrices(s, &m, p / 2, p % 2, own, c->modes[0], made);
        }
        write_matrices(s, &m, made, gradient->data, call->accumulate[1]);
    }
    if (!ups_present(&call->input_gradients[0])) return;
    transpose_matrices(s, &m, weight, matrices);
    for (int p = 0; p < s->parts; p++) {
        sign_parts(s, &m, p / 2, p % 2, true, c->modes[0], s->padded, own);
        multiply_part(s, &m, p / 2, p % 2, own, matrices, c->modes[1]);
    }
}

static ups_status backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    const spectral s = spectral_of(call);
    const int threads = ups_cpu_threads(device);
    size_t floats;
    const scratch c = scratch_of(&s, call->workspace, true, &floats, threads);
    const int64_t together = columns_together(&s, threads), parts = s.batch * ups_div_up(s.inner, together);
    const ups_tensor *const dx = &call->input_gradients[0], *const dw = &call->input_gradients[1];
    bool all = true; /* modes of the weight are used */
    for (int axis = 0; axis < s.dims; axis++) all = all && s.modes[axis] == s.all[axis];
    if (ups_present(dw) && !all && !call->accumulate[1])
        memset(dw->data, 0, (size_t)ups_shape_elements(dw->shape) * sizeof(float));
#pragma omp parallel num_threads(threads)
    {
        float *own = c.threads + (size_t)omp_get_thread_num() * c.thread;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < parts; i++) {
            const columns part = columns_of(&s, together, i);
            find_modes(&s, &call->output_gradient, &part, own, own + c.sample, c.modes[0], s.padded);
        }
#pragma omp for schedule(static)
        for (int64_t g = 0; g < s.mode_count; g++) mode_backward(&s, call, &c, g, own);
        if (ups_present(dx)) {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < parts; i++) {
                const columns part = columns_of(&s, together, i);
                make_tokens(&s, c.modes[1], dx, &part, call->accumulate[0], own, own + c.sample);
            }
        }
    }
    return UPS_OK;
}

const ups_cpu_kernel UPS_CPU(spectral) = {.workspace = workspace, .forward = forward, .backward = backward};
