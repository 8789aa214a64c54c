/* bf16 attention on AMX tiles; see attention.c for what is computed.
 *
 * Forward: S = Q K^T by blocks of queries and chunks of keys, P = exp(S - shift) rounded to bf16, O = P V divided by
 * the sum of P. A row's shift is a bound of its scores, |q| max |k|, which is known before any of them: each is read
 * once, while it lies in the first cache. Where the bound is so large that P might vanish, or keys are few, it is the
 * largest score, and all keys are one chunk.
 * Backward works on the transposed scores, keys by queries, so that P^T and dS^T stand in rows as dV = P^T dO and dK =
 * dS^T Q want them; dQ^T = K^T dS^T wants pairs of keys side by side, which interleaving two rows gives. No T x T
 * matrix is ever transposed. rowsum(P dP) is taken from the output: it equals the sum of dO O (FlashAttention, arXiv
 * 2205.14135, appendix B). */
#include "model/cpu/attention.h"
#include "model/cpu/amx/tiles.h"

enum {
    QUERIES = 64,   /* a block */
    CHUNK_STEPS = 4 /* of keys: with their scores in the first cache */
};

/* As large as a bound of scores may be: the smallest P is then e^-60, which float32 and bf16 have. */
static const float largest_bound = 30.0f;

/* Sizes padded to blocks of tiles. */
typedef struct padded {
    int64_t keys, width;
    int64_t key_steps, width_steps, query_steps;
} padded;

static padded padded_of(const heads *h) {
    padded p;
    p.key_steps = ups_div_up(h->keys, STEP);
    p.width_steps = ups_div_up(h->width, STEP);
    p.query_steps = QUERIES / STEP;
    p.keys = p.key_steps * STEP;
    p.width = p.width_steps * STEP;
    return p;
}

/* One thread's scratch; rows are (keys or QUERIES, width) bf16, panels and packed are tiles. */
typedef struct scratch {
    uint16_t *q, *k, *v, *d_out;                               /* rows */
    uint16_t *k_panels, *v_panels;                             /* B of S and of O */
    uint16_t *q_fast, *q_slow, *d_out_fast, *d_out_slow, *k_t; /* backward: B by both axes of Q and dO; A of dQ^T */
    uint16_t *p;                                               /* (QUERIES, keys), or of a chunk of keys */
    float *s;                                                  /* likewise */
    uint16_t *ds, *ds_panels;                                  /* (a chunk of keys, QUERIES) */
    float *dp;                                                 /* likewise; then dQ */
    float *out;                                                /* (QUERIES, width): O, or dQ^T (width, QUERIES) */
    float *dk, *dv;                                            /* (keys, width) */
    float *row;                                                /* 2 (width) and 2 (QUERIES) */
} scratch;

/* Lays the scratch out in `memory`, or only counts its bytes when that is NULL. */
static size_t lay_out(const heads *h, char *memory, scratch *s) {
    padded p = padded_of(h);
    int64_t query_rows = QUERIES * p.width, key_rows = p.keys * p.width, scores = QUERIES * p.keys;
    int64_t chunk = QUERIES * ups_min(p.keys, CHUNK_STEPS * STEP);
    struct {
        void **place;
        size_t bytes;
    } parts[] = {
        {(void **)&s->q, (size_t)query_rows * 2},
        {(void **)&s->k, (size_t)key_rows * 2},
        {(void **)&s->v, (size_t)key_rows * 2},
        {(void **)&s->d_out, (size_t)query_rows * 2},
        {(void **)&s->k_panels, (size_t)key_rows * 2},
        {(void **)&s->v_panels, (size_t)key_rows * 2},
        {(void **)&s->q_fast, (size_t)query_rows * 2},
        {(void **)&s->q_slow, (size_t)query_rows * 2},
        {(void **)&s->d_out_fast, (size_t)query_rows * 2},
        {(void **)&s->d_out_slow, (size_t)query_rows * 2},
        {(void **)&s->k_t, (size_t)key_rows * 2},
        {(void **)&s->p, (size_t)scores * 2},
        {(void **)&s->ds, (size_t)chunk * 2},
        {(void **)&s->ds_panels, (size_t)chunk * 2},
        {(void **)&s->s, (size_t)scores * 4},
        {(void **)&s->dp, (size_t)(chunk > query_rows ? chunk : query_rows) * 4},
        {(void **)&s->out, (size_t)query_rows * 4},
        {(void **)&s->dk, (size_t)key_rows * 4},
        {(void **)&s->dv, (size_t)key_rows * 4},
        {(void **)&s->row, (size_t)(2 * p.width + 2 * QUERIES) * 4},
    };
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (memory) *parts[i].place = memory + bytes;
        bytes += (parts[i].bytes + 63) / 64 * 64;
    }
    return bytes;
}

size_t ups_amx_attention_bytes(const heads *h) {
    scratch unused;
    return lay_out(h, NULL, &unused);
}

/* How the rows or packed tiles of A lie: rows of a tile, its second tile, the next step, the next block of 32 rows. */
typedef struct left_layout {
    int64_t stride, half, step, block;
} left_layout;

static left_layout rows_layout(int64_t stride) {
    return (left_layout){stride, TILE * stride, STEP, BLOCK * stride};
}
static left_layout packed_layout(int64_t steps) {
    return (left_layout){STEP, TILE_ELEMENTS, PAIR_ELEMENTS, steps * PAIR_ELEMENTS};
}

/* C (32 row_blocks, 32 panels) (+)= A B, `steps` steps of k; float32 rows of `stride`. */
static void multiply(int64_t row_blocks, int64_t panels, int64_t steps, const uint16_t *a, left_layout left,
                     const uint16_t *b, float *c, int64_t stride, bool accumulate) {
    int64_t bytes = stride * (int64_t)sizeof(float);
    for (int64_t panel = 0; panel < panels; panel++) {
        for (int64_t block = 0; block < row_blocks; block++) {
            const uint16_t *at = a + block * left.block, *right = b + panel * steps * PAIR_ELEMENTS;
            float *to = c + block * BLOCK * stride + panel * BLOCK;
            if (accumulate) {
                _tile_loadd(0, to, bytes);
                _tile_loadd(1, to + TILE, bytes);
                _tile_loadd(2, to + TILE * stride, bytes);
                _tile_loadd(3, to + TILE * stride + TILE, bytes);
            } else {
                _tile_zero(0);
                _tile_zero(1);
                _tile_zero(2);
                _tile_zero(3);
            }
            for (int64_t step = 0; step < steps; step++, at += left.step, right += PAIR_ELEMENTS) {
                _tile_loadd(4, at, left.stride * 2);
                _tile_loadd(5, at + left.half, left.stride * 2);
                _tile_loadd(6, right, STEP * 2);
                _tile_loadd(7, right + TILE_ELEMENTS, STEP * 2);
                _tile_dpbf16ps(0, 4, 6);
                _tile_dpbf16ps(1, 4, 7);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
            _tile_stored(0, to, bytes);
            _tile_stored(1, to + TILE, bytes);
            _tile_stored(2, to + TILE * stride, bytes);
            _tile_stored(3, to + TILE * stride + TILE, bytes);
        }
    }
}

/* B of a matrix (rows, width) whose k is its fast axis (columns of B are its rows), or its slow one. `as_a`: A of its
 * transpose. */
static void pack_fast(const uint16_t *rows, int64_t count, int64_t width, uint16_t *to) {
    for (int64_t panel = 0; panel < count / BLOCK; panel++) {
        for (int64_t step = 0; step < width / STEP; step++, to += PAIR_ELEMENTS) {
            pack_fast_k(rows, width, count, panel * BLOCK, step, false, to);
        }
    }
}
static void pack_slow(const uint16_t *rows, int64_t count, int64_t width, bool as_a, uint16_t *to) {
    for (int64_t panel = 0; panel < width / BLOCK; panel++) {
        for (int64_t step = 0; step < count / STEP; step++, to += PAIR_ELEMENTS) {
            pack_slow_k(rows, count, width, panel * BLOCK, step, as_a, to);
        }
    }
}

static inline __mmask16 lanes(int64_t count) {
    return count >= TILE ? (__mmask16)0xffff : count <= 0 ? (__mmask16)0 : (__mmask16)((1u << count) - 1);
}

static inline __m512 load_bf16(const uint16_t *from, __mmask16 mask) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from)), 16));
}

/* Turns pairs (i, d/2 + i) by angles whose cosines and sines are given; `back`: the other way. */
static void rotate_row(const heads *h, const float *angles, bool back, float *row) {
    const int64_t half = h->width / 2;
    const float direction = back ? -1.0f : 1.0f;
    for (int64_t i = 0; i < half; i += UPS_VECTOR) {
        const int64_t count = half - i;
        f32v a = f32v_load_first(row + i, count), b = f32v_load_first(row + half + i, count);
        f32v cosine = f32v_load_first(angles + i, count), sine = direction * f32v_load_first(angles + half + i, count);
        f32v_store_first(row + i, a * cosine - b * sine, count);
        f32v_store_first(row + half + i, b * cosine + a * sine, count);
    }
}

/* Rows of a head, as load_head of attention.c does, to bf16. `angles`: of the first row; NULL: none. `row`: for one in
 * float32. */
static void load_rows(const heads *h, const ups_tensor *tensor, int64_t offset, int64_t stride, int64_t rows,
                      int64_t padded_rows, int64_t padded_width, const float *gain, const float *angles, float factor,
                      float *rms, bool keep, float *row, uint16_t *to) {
    const uint16_t *from = (const uint16_t *)tensor->data + offset;
    for (int64_t r = 0; r < padded_rows; r++, from += stride, to += padded_width) {
        float scale = factor;
        if (r < rows && gain) {
            float inverse;
            if (keep) {
                __m512 sum = _mm512_setzero_ps();
                for (int64_t i = 0; i < h->width; i += TILE) {
                    __m512 x = load_bf16(from + i, lanes(h->width - i));
                    sum = _mm512_fmadd_ps(x, x, sum);
                }
                inverse = 1.0f / sqrtf(_mm512_reduce_add_ps(sum) / (float)h->width + h->epsilon);
                if (rms) rms[r * h->count] = inverse;
            } else {
                inverse = rms[r * h->count];
            }
            scale *= inverse;
        }
        for (int64_t i = 0; i < padded_width; i += TILE) {
            __mmask16 mask = r < rows ? lanes(h->width - i) : 0;
            __m512 x = _mm512_mul_ps(load_bf16(from + i, mask), _mm512_set1_ps(scale));
            if (gain) x = _mm512_mul_ps(x, _mm512_maskz_loadu_ps(mask, gain + i));
            if (angles)
                _mm512_store_ps(row + i, x);
            else
                _mm256_store_si256((__m256i *)(to + i), (__m256i)_mm512_cvtneps_pbh(x));
        }
        if (!angles) continue;
        if (r < rows) rotate_row(h, angles + r * h->width, false, row);
        for (int64_t i = 0; i < padded_width; i += TILE)
            _mm256_store_si256((__m256i *)(to + i), (__m256i)_mm512_cvtneps_pbh(_mm512_load_ps(row + i)));
    }
}

/* e^x, x below 88: 2^n 2^r, a polynomial of degree four in r (relative error 3e-6 where x is small, and 1e-5 at -60:
 * below what bf16 keeps). */
static inline __m512 exponential(__m512 x) {
    const __m512 scaled = _mm512_mul_ps(x, _mm512_set1_ps(1.442695041f));
    const __m512 n = _mm512_roundscale_ps(scaled, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(scaled, n);
    __m512 p = _mm512_set1_ps(0.0095701f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.05591786f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.24024745f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.69312181f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.99999926f));
    return _mm512_scalef_ps(p, n);
}

/* The largest |row| of rows of scratch; each in `of_row`, unless that is NULL. */
static float largest_norm(const uint16_t *rows, int64_t count, int64_t width, float *of_row) {
    float largest = 0;
    for (int64_t r = 0; r < count; r++, rows += width) {
        __m512 sum = _mm512_setzero_ps();
        for (int64_t i = 0; i < width; i += TILE) {
            __m512 x = load_bf16(rows + i, (__mmask16)0xffff);
            sum = _mm512_fmadd_ps(x, x, sum);
        }
        const float norm = sqrtf(_mm512_reduce_add_ps(sum));
        if (of_row) of_row[r] = norm;
        largest = norm > largest ? norm : largest;
    }
    return largest;
}

static float largest_score(const float *row, int64_t keys) {
    __m512 largest = _mm512_set1_ps(-INFINITY);
    for (int64_t j = 0; j < keys; j += TILE)
        largest = _mm512_max_ps(largest, _mm512_mask_loadu_ps(largest, lanes(keys - j), row + j));
    return _mm512_reduce_max_ps(largest);
}

/* A row of scores to exp(score - shift) in bf16, zero beyond `keys`; returns `total` and their sum. */
static __m512 exponentials(const float *row, int64_t keys, int64_t padded_keys, float shift, uint16_t *to,
                           __m512 total) {
    const __m512 less = _mm512_set1_ps(shift);
    for (int64_t j = 0; j < padded_keys; j += BLOCK) {
        __m512 low = exponential(_mm512_sub_ps(_mm512_load_ps(row + j), less));
        __m512 high = exponential(_mm512_sub_ps(_mm512_load_ps(row + j + TILE), less));
        if (keys - j < BLOCK) {
            low = _mm512_maskz_mov_ps(lanes(keys - j), low);
            high = _mm512_maskz_mov_ps(lanes(keys - j - TILE), high);
        }
        total = _mm512_add_ps(total, _mm512_add_ps(low, high));
        _mm512_store_si512(to + j, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
    return total;
}

/* The angles of a block of rows. */
static const float *angles_from(const heads *h, int64_t row) {
    return h->rotary ? h->rotary + row * h->width : NULL;
}

/* O (QUERIES, width) of a block of queries, before it is divided by `sums`; what was subtracted from each row's scores
 * in `shift`. `norm`: the largest |k|; INFINITY: not known. */
static void mix_values(const heads *h, const padded *p, const scratch *s, float norm, float *shift, float *sums) {
    __m512 total[QUERIES];
    const bool bounded = norm < INFINITY && largest_norm(s->q, QUERIES, p->width, shift) * norm <= largest_bound;
    const int64_t most = bounded ? CHUNK_STEPS : p->key_steps;
    for (int64_t r = 0; r < QUERIES; r++) {
        if (bounded) shift[r] *= norm;
        total[r] = _mm512_setzero_ps();
    }
    for (int64_t step = 0; step < p->key_steps; step += most) {
        const int64_t steps = ups_min(most, p->key_steps - step), first = step * STEP, keys = steps * STEP;
        multiply(QUERIES / BLOCK, steps, p->width_steps, s->q, rows_layout(p->width),
                 s->k_panels + step * p->width_steps * PAIR_ELEMENTS, s->s, keys, false);
        for (int64_t r = 0; r < QUERIES; r++) {
            if (!bounded) shift[r] = largest_score(s->s + r * keys, h->keys - first);
            total[r] = exponentials(s->s + r * keys, h->keys - first, keys, shift[r], s->p + r * keys, total[r]);
        }
        for (int64_t panel = 0; panel < p->width_steps; panel++)
            multiply(QUERIES / BLOCK, 1, steps, s->p, rows_layout(keys),
                     s->v_panels + (panel * p->key_steps + step) * PAIR_ELEMENTS, s->out + panel * BLOCK, p->width,
                     step > 0);
    }
    for (int64_t r = 0; r < QUERIES; r++) sums[r] = _mm512_reduce_add_ps(total[r]);
}

void ups_amx_head_forward(const ups_op_call *call, const heads *h, int64_t item, void *memory) {
    padded p = padded_of(h);
    scratch s;
    lay_out(h, memory, &s);
    head_place at = place_of(call, h, item);
    const float *gain_q = call->inputs[2].data, *gain_k = call->inputs[3].data;
    int64_t features = h->count * h->width;
    load_rows(h, h->kv, at.k, h->k_stride, h->keys, p.keys, p.width, gain_k, h->rotary, 1.0f, at.k_rms, true, s.row,
              s.k);
    load_rows(h, h->kv, at.v, h->k_stride, h->keys, p.keys, p.width, NULL, NULL, 1.0f, NULL, false, s.row, s.v);
    pack_fast(s.k, p.keys, p.width, s.k_panels);
    pack_slow(s.v, p.keys, p.width, false, s.v_panels);
    /* A few keys are one chunk anyway, whose largest score is found sooner. */
    const float norm = p.key_steps > CHUNK_STEPS ? largest_norm(s.k, p.keys, p.width, NULL) : INFINITY;
    configure_tiles();
    for (int64_t first = 0; first < h->queries; first += QUERIES) {
        int64_t rows = ups_min(QUERIES, h->queries - first);
        float sums[QUERIES], shift[QUERIES];
        load_rows(h, h->q, at.q + first * h->q_stride, h->q_stride, rows, QUERIES, p.width, gain_q,
                  angles_from(h, first), h->scale, at.q_rms ? at.q_rms + first * h->count : NULL, true, s.row, s.q);
        mix_values(h, &p, &s, norm, shift, sums);
        for (int64_t r = 0; r < rows; r++) {
            uint16_t *y = (uint16_t *)call->output.data + at.out + (first + r) * features;
            __m512 inverse = _mm512_set1_ps(1.0f / sums[r]);
            if (at.lse) at.lse[first + r] = shift[r] + logf(sums[r]);
            for (int64_t i = 0; i < h->width; i += TILE) {
                __m512 value = _mm512_mul_ps(_mm512_load_ps(s.out + r * p.width + i), inverse);
                _mm256_mask_storeu_epi16(y + i, lanes(h->width - i), (__m256i)_mm512_cvtneps_pbh(value));
            }
        }
    }
    _tile_release();
}

/* The sum of dO O of each query of a block, and its log-sum-exp; beyond the last query what makes P zero. */
static void query_statistics(const ups_op_call *call, const heads *h, const head_place *at, int64_t first,
                             float *weighted, float *lse) {
    int64_t features = h->count * h->width;
    for (int64_t r = 0; r < QUERIES; r++) {
        bool inside = first + r < h->queries;
        weighted[r] = 0.0f;
        lse[r] = inside ? at->lse[first + r] : 1e30f;
        if (!inside) continue;
        int64_t offset = at->out + (first + r) * features;
        const uint16_t *y = (const uint16_t *)call->output.data + offset;
        const uint16_t *dy = (const uint16_t *)call->output_gradient.data + offset;
        __m512 sum = _mm512_setzero_ps();
        for (int64_t i = 0; i < h->width; i += TILE) {
            __mmask16 mask = lanes(h->width - i);
            sum = _mm512_fmadd_ps(load_bf16(y + i, mask), load_bf16(dy + i, mask), sum);
        }
        weighted[r] = _mm512_reduce_add_ps(sum);
    }
}

/* From S^T and dP^T of a chunk of keys, of which `inside` are keys, to P^T and dS^T in bf16, and dS^T again with pairs
 * of keys side by side: B of dQ^T. */
static void scores_backward(int64_t steps, int64_t inside, const float *lse, const float *weighted, const scratch *s) {
    enum { PANELS = QUERIES / BLOCK };
    for (int64_t key = 0; key < steps * STEP; key += 2) {
        for (int64_t panel = 0; panel < PANELS; panel++) {
            __m512i ds[2];
            for (int64_t odd = 0; odd < 2; odd++) {
                int64_t row = (key + odd) * QUERIES + panel * BLOCK;
                __mmask16 mask = key + odd < inside ? (__mmask16)0xffff : (__mmask16)0; /* padded keys weigh nothing */
                __m512 probability[2], gradient[2];
                for (int half = 0; half < 2; half++) {
                    int64_t column = panel * BLOCK + half * TILE, element = row + half * TILE;
                    __m512 x = _mm512_sub_ps(_mm512_load_ps(s->s + element), _mm512_loadu_ps(lse + column));
                    probability[half] = _mm512_maskz_mov_ps(mask, exponential(x));
                    __m512 difference =
                        _mm512_sub_ps(_mm512_load_ps(s->dp + element), _mm512_loadu_ps(weighted + column));
                    gradient[half] = _mm512_mul_ps(probability[half], difference);
                }
                ds[odd] = (__m512i)_mm512_cvtne2ps_pbh(gradient[1], gradient[0]);
                _mm512_store_si512(s->p + row, (__m512i)_mm512_cvtne2ps_pbh(probability[1], probability[0]));
                _mm512_store_si512(s->ds + row, ds[odd]);
            }
            __m512i low, high;
            interleave(ds[0], ds[1], &low, &high);
            uint16_t *to = s->ds_panels + (panel * steps + key / STEP) * PAIR_ELEMENTS + key % STEP / 2 * STEP;
            _mm512_store_si512(to, low);
            _mm512_store_si512(to + TILE_ELEMENTS, high);
        }
    }
}

/* dQ^T (width, QUERIES) float32 to rows (QUERIES, width), in `to`. */
static void transpose_gradient(const float *from, int64_t width, float *to) {
    for (int64_t column = 0; column < width; column += TILE) {
        for (int64_t query = 0; query < QUERIES; query += TILE) {
            __m512i block[TILE];
            for (int i = 0; i < TILE; i++) block[i] = _mm512_load_si512(from + (column + i) * QUERIES + query);
            transpose_16x16(block);
            for (int i = 0; i < TILE; i++) _mm512_store_si512(to + (query + i) * width + column, block[i]);
        }
    }
}

static void write_row(const heads *h, const ups_tensor *from, int64_t offset, const float *angles, const float *rms,
                      const float *gain, float *dgain, const ups_tensor *gradient, bool accumulate, float *row,
                      float *dy) {
    if (angles) rotate_row(h, angles, true, dy);
    if (gain) rms_backward(h, from, offset, *rms, gain, dgain, row, dy);
    store_row(gradient, offset, h->width, dy, accumulate);
}

void ups_amx_head_backward(const ups_op_call *call, const heads *h, int64_t item, const head_gradients *gradients,
                           void *memory) {
    padded p = padded_of(h);
    scratch s;
    lay_out(h, memory, &s);
    head_place at = place_of(call, h, item);
    const float *gain_q = call->inputs[2].data, *gain_k = call->inputs[3].data;
    float *weighted = s.row + 2 * p.width, *lse = weighted + QUERIES;
    int64_t features = h->count * h->width;
    load_rows(h, h->kv, at.k, h->k_stride, h->keys, p.keys, p.width, gain_k, h->rotary, 1.0f, at.k_rms, false, s.row,
              s.k);
    load_rows(h, h->kv, at.v, h->k_stride, h->keys, p.keys, p.width, NULL, NULL, 1.0f, NULL, false, s.row, s.v);
    pack_slow(s.k, p.keys, p.width, true, s.k_t);
    configure_tiles();
    for (int64_t first = 0; first < h->queries; first += QUERIES) {
        int64_t rows = ups_min(QUERIES, h->queries - first);
        load_rows(h, h->q, at.q + first * h->q_stride, h->q_stride, rows, QUERIES, p.width, gain_q,
                  angles_from(h, first), h->scale, at.q_rms ? at.q_rms + first * h->count : NULL, false, s.row, s.q);
        load_rows(h, &call->output_gradient, at.out + first * features, features, rows, QUERIES, p.width, NULL, NULL,
                  1.0f, NULL, false, s.row, s.d_out);
        query_statistics(call, h, &at, first, weighted, lse);
        pack_fast(s.q, QUERIES, p.width, s.q_fast);
        pack_fast(s.d_out, QUERIES, p.width, s.d_out_fast);
        pack_slow(s.q, QUERIES, p.width, false, s.q_slow);
        pack_slow(s.d_out, QUERIES, p.width, false, s.d_out_slow);
        for (int64_t step = 0; step < p.key_steps; step += CHUNK_STEPS) {
            const int64_t steps = ups_min(CHUNK_STEPS, p.key_steps - step), key = step * STEP;
            const left_layout rows_of_head = rows_layout(p.width), transposed = rows_layout(QUERIES);
            multiply(steps, QUERIES / BLOCK, p.width_steps, s.k + key * p.width, rows_of_head, s.q_fast, s.s, QUERIES,
                     false);
            multiply(steps, QUERIES / BLOCK, p.width_steps, s.v + key * p.width, rows_of_head, s.d_out_fast, s.dp,
                     QUERIES, false);
            scores_backward(steps, h->keys - key, lse, weighted, &s);
            multiply(steps, p.width_steps, p.query_steps, s.p, transposed, s.d_out_slow, s.dv + key * p.width, p.width,
                     first > 0);
            multiply(steps, p.width_steps, p.query_steps, s.ds, transposed, s.q_slow, s.dk + key * p.width, p.width,
                     first > 0);
            multiply(p.width_steps, QUERIES / BLOCK, steps, s.k_t + step * PAIR_ELEMENTS, packed_layout(p.key_steps),
                     s.ds_panels, s.out, QUERIES, step > 0);
        }
        transpose_gradient(s.out, p.width, s.dp);
        for (int64_t r = 0; r < rows; r++) {
            float *dq = s.dp + r * p.width;
            scale_row(h, h->scale, dq);
            write_row(h, h->q, at.q + (first + r) * h->q_stride, angles_from(h, first + r),
                      at.q_rms ? at.q_rms + (first + r) * h->count : NULL, gain_q, gradients->gain_q, gradients->q,
                      gradients->accumulate_q, s.row, dq);
        }
    }
    _tile_release();
    for (int64_t r = 0; r < h->keys; r++) {
        write_row(h, h->kv, at.k + r * h->k_stride, angles_from(h, r), at.k_rms ? at.k_rms + r * h->count : NULL,
                  gain_k, gradients->gain_k, gradients->kv, gradients->accumulate_kv, s.row, s.dk + r * p.width);
        store_row(gradients->kv, at.v + r * h->k_stride, h->width, s.dv + r * p.width, gradients->accumulate_kv);
    }
}
