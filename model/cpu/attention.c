/* Attention by head: softmax(q k^T / sqrt d + bias) v, with q and k RMS-normalised a head first where there are gains
 * (QK norm, arXiv 2302.05442), and rotated by their places where there are angles (arXiv 2104.09864).
 *
 * One thread takes one head of one sample, window after window: it reads k and v into float32 scratch, then passes over
 * the queries a block at a time, and for each block over the keys a chunk at a time, so that scores stay in the
 * first-level cache. Scores lie transposed, (keys, QUERIES): a vector holds those of neighbouring queries, whose
 * largest scores, sums and exponentials are found lane by lane. A chunk whose scores are larger than those before makes
 * what was summed of these smaller (FlashAttention, arXiv 2205.14135). Forward keeps the log-sum-exp of each row of
 * scores, by which backward makes the probabilities P again:
 *
 *     dV = P^T dO,   dP = dO V^T,   dS = P (dP - rowsum(P dP)),   dQ = dS K,   dK = dS^T Q
 *
 * Of more keys than a chunk's rowsum(P dP) is taken as rowsum(dO O), of the output as it is stored: in 16 bits it is
 * rounded, and gradients of queries and keys with it, as on AMX tiles and on cards. */
#include "model/cpu/attention.h"
#include "model/cpu/product.h"

enum {
    QUERIES = 48, /* a block: whole tiles in every instruction set */
    KEYS = 96,    /* a chunk: scores and their gradients take 18 KiB each */
    TOGETHER = 8, /* rows of a head that are read; they lie far apart, and the next as many are asked for */
};

/* The head among so many tokens, those of a window. */
static inline heads narrowed(const heads *all, int64_t tokens) {
    heads h = *all;
    h.queries = h.keys = tokens;
    return h;
}

/* One thread's scratch for the largest window. */
typedef struct scratch {
    float *k, *v, *dk, *dv;              /* (keys, padded width) */
    float *q, *d_out, *rows, *turned;    /* (QUERIES, padded width) */
    float *q_t, *d_out_t, *out_t;        /* (padded width, QUERIES) */
    float *s, *ds;                       /* (KEYS, QUERIES): scores, then probabilities, and gradients */
    float *shift, *sum, *weighted, *row; /* (QUERIES) each; (padded width) */
    float *bias;                         /* of the head, (offsets) */
    int32_t *token, *code;               /* of the window */
} scratch;

static inline int64_t listed(const heads *h) {
    return ups_div_up(h->keys > h->queries ? h->keys : h->queries, UPS_LANES) * UPS_LANES;
}

/* Lays scratch out from `memory` on; returns how many elements it takes. Each array begins at a cache line. */
static int64_t lay_out(const heads *all, float *memory, scratch *s) {
    const heads h = all->windows.dims > 0 ? narrowed(all, all->windows.most) : *all;
    const int64_t of_keys = h.keys * h.padded_width + UPS_VECTOR, of_queries = QUERIES * h.padded_width + UPS_VECTOR;
    const struct {
        float **array;
        int64_t elements;
    } arrays[] = {
        {&s->k, of_keys},          {&s->v, of_keys},          {&s->dk, of_keys},
        {&s->dv, of_keys},         {&s->q, of_queries},       {&s->d_out, of_queries},
        {&s->rows, of_queries},    {&s->turned, of_queries},  {&s->q_t, of_queries},
        {&s->d_out_t, of_queries}, {&s->out_t, of_queries},   {&s->s, KEYS * QUERIES},
        {&s->ds, KEYS * QUERIES},  {&s->shift, QUERIES},      {&s->sum, QUERIES},
        {&s->weighted, QUERIES},   {&s->row, h.padded_width}, {&s->bias, h.windows.offsets},
    };
    int64_t at = 0;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        *arrays[i].array = memory ? memory + at : NULL;
        at += ups_div_up(arrays[i].elements, UPS_LANES) * UPS_LANES;
    }
    s->token = memory ? (int32_t *)(memory + at) : NULL;
    s->code = memory ? s->token + listed(&h) : NULL;
    return at + 2 * listed(&h);
}

/* Rows of out_t that are computed: not the padding, which stays zero, but as many as are transposed together. */
static inline int64_t mixed_rows(const heads *h) {
    return ups_div_up(h->width, 4) * 4;
}

/* A thread's scratch for one head. */
static scratch prepare(const heads *h, int64_t item, void *memory) {
    scratch s;
    const int64_t mixed = mixed_rows(h), padding = h->padded_width - mixed;
    lay_out(h, memory, &s);
    memset(s.out_t + mixed * QUERIES, 0, (size_t)(padding * QUERIES) * sizeof(float));
    for (int64_t i = 0; h->bias && i < h->windows.offsets; i++) s.bias[i] = h->bias[i * h->count + item % h->count];
    for (int64_t i = 0; h->windows.dims == 0 && i < listed(h); i++) s.token[i] = (int32_t)i;
    return s;
}

static size_t scratch_bytes(const heads *h) {
    scratch s;
    return sizeof(float) * (size_t)lay_out(h, NULL, &s);
}

/* What is done to rows of a head while they are read: q and k have all of it, v and gradients none. */
typedef struct treatment {
    const float *gain;
    float factor;
    float *rms; /* 1/rms of token t at rms[t * count]; computed and kept when `keep`, else read */
    bool keep, rotated;
} treatment;
static const treatment as_it_is = {.factor = 1.0f};

/* to = from * scale * gain, pairs (i, d/2 + i) turned by angles whose cosines and sines are given, or back by them.
 * Whole vectors are stored, from the last of a half to its first, so that what one leaves behind its half is
 * overwritten; up to a vector behind the row is written. */
static inline void turn_row(const heads *h, const float *from, float scale, const float *gain, const float *angles,
                            bool back, float *to) {
    const int64_t half = h->width / 2;
    const float direction = back ? -scale : scale;
    f32v_store(to + h->padded_width - UPS_VECTOR, (f32v){0});
    for (int64_t i = (half - 1) / UPS_VECTOR * UPS_VECTOR; i >= 0; i -= UPS_VECTOR) {
        const int64_t count = half - i;
        f32v a = f32v_load_first(from + i, count), b = f32v_load_first(from + half + i, count);
        if (gain) {
            a *= f32v_load_first(gain + i, count);
            b *= f32v_load_first(gain + half + i, count);
        }
        const f32v cosine = f32v_load_first(angles + i, count) * scale;
        const f32v sine = f32v_load_first(angles + half + i, count) * direction;
        f32v_store(to + i, a * cosine - b * sine);
        f32v_store(to + half + i, b * cosine + a * sine);
    }
}

/* Asks for a row of a head, of at most some hundred bytes. */
static inline void ask_for_row(const heads *h, const ups_tensor *from, int64_t offset) {
    const size_t size = ups_dtype_size(from->dtype), bytes = (size_t)h->width * size;
    const char *row = (const char *)from->data + (size_t)offset * size;
    for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(row + line);
    __builtin_prefetch(row + bytes - 1);
}

/* 1/rms of some rows of a head, at most TOGETHER, those of `token`. */
static void find_rms(const heads *h, const float *const *x, const int32_t *token, int64_t rows, const treatment *t,
                     float *inverse) {
    for (int64_t r = 0; r < rows && !t->keep; r++) inverse[r] = t->rms[token[r] * h->count];
    if (!t->keep) return;
    for (int64_t r = 0; r < TOGETHER; r++) {
        f32v sum = {0};
        for (int64_t i = 0; r < rows && i < h->width; i += UPS_VECTOR) {
            const f32v value = f32v_load_first(x[r] + i, h->width - i);
            sum += value * value;
        }
        inverse[r] = f32v_sum(sum);
    }
    for (int r = 0; r < TOGETHER; r++) inverse[r] = 1.0f / sqrtf(inverse[r] / (float)h->width + h->epsilon);
    for (int64_t r = 0; t->rms && r < rows; r++) t->rms[token[r] * h->count] = inverse[r];
}

/* `rows` rows of one head, those of `token`, into `to`, which has room for a vector behind them. `room`: for TOGETHER
 * rows. */
static void load_head(const heads *h, const ups_tensor *from, int64_t offset, int64_t stride, const int32_t *token,
                      int64_t rows, const treatment *t, float *room, float *to) {
    for (int64_t first = 0; first < rows; first += TOGETHER, token += TOGETHER) {
        const int64_t some = ups_min(TOGETHER, rows - first), next = ups_min(TOGETHER, rows - first - some);
        const float *x[TOGETHER];
        float inverse[TOGETHER];
        for (int64_t r = 0; r < next; r++) ask_for_row(h, from, offset + token[TOGETHER + r] * stride);
        for (int64_t r = 0; r < some; r++) {
            x[r] = ups_row_read(from, offset + token[r] * stride, h->width, room + r * h->padded_width);
        }
        if (t->gain) find_rms(h, x, token, some, t, inverse);
        for (int64_t r = 0; r < some; r++, to += h->padded_width) {
            const float scale = t->gain ? t->factor * inverse[r] : t->factor;
            if (t->rotated && h->rotary) {
                turn_row(h, x[r], scale, t->gain, h->rotary + token[r] * h->width, false, to);
                continue;
            }
            for (int64_t i = 0; i < h->padded_width; i += UPS_VECTOR) {
                f32v value = f32v_load_first(x[r] + i, h->width - i) * scale;
                if (t->gain) value *= f32v_load_first(t->gain + i, h->width - i);
                f32v_store(to + i, value);
            }
        }
    }
}

/* A block of queries is worked on up to `columns`, whole vectors of them: the rows behind its last one are zero. */
static int64_t whole_columns(const heads *h, int64_t rows, float *block) {
    const int64_t columns = ups_div_up(rows, UPS_VECTOR) * UPS_VECTOR;
    memset(block + rows * h->padded_width, 0, (size_t)((columns - rows) * h->padded_width) * sizeof(float));
    return columns;
}

/* to (keys, columns) = rows of keys or values times a block of queries or gradients, transposed. */
static void score_product(const heads *h, int64_t keys, int64_t columns, const float *rows, const float *block,
                          float *to) {
    ups_product(keys, columns, h->width, rows, h->padded_width, 1, block, QUERIES, to, QUERIES, false);
}

/* to (mixed rows, columns) (+)= values or keys, transposed, times what lies as scores do. */
static void mix(const heads *h, int64_t keys, int64_t columns, const float *rows, const float *scores, float *to,
                bool accumulate) {
    ups_product(mixed_rows(h), columns, keys, rows, 1, h->padded_width, scores, QUERIES, to, QUERIES, accumulate);
}

/* to (keys, padded width) (+)= what lies as scores do times rows of the block. */
static void gather(const heads *h, int64_t keys, int64_t rows, const float *scores, const float *block, float *to,
                   bool accumulate) {
    ups_product(keys, h->padded_width, rows, scores, QUERIES, 1, block, h->padded_width, to, h->padded_width,
                accumulate);
}

/* e^x for x of at most 88; x below -55 counts as -55: such a key weighs 1e-24, not 0. 2^n 2^r, of a polynomial of
 * degree five whose relative error is below 3e-7; of all it is up to 4e-6 far from 0, where what is computed is small.
 * NaN stays NaN, whatever its bits are. */
static inline f32v exp_of(f32v x) {
    typedef uint32_t u32v __attribute__((vector_size(UPS_VECTOR * sizeof(uint32_t))));
    const f32v lowest = (f32v){0} - 55.0f;
    x = f32v_larger(lowest, x) * 1.442695041f;
    const f32v shifted = x + 12582912.0f; /* 1.5 * 2^23: rounds to the nearest integer */
    const f32v r = x - (shifted - 12582912.0f);
    f32v p = r * 0.0013276472f + 0.00967554133f;
    p = p * r + 0.0555071327f;
    p = p * r + 0.240221197f;
    p = p * r + 0.693146967f;
    p = p * r + 1.0f;
    return p * (f32v)(((u32v)shifted + 127u) << 23);
}

/* Scores of a chunk to exponentials, in place, less the largest score of each query so far, which `shift` keeps. What
 * was summed of chunks before, exponentials in `sum` and values in out_t, is made smaller by as much as that has
 * grown. */
static void exponentials(const heads *h, int64_t keys, int64_t columns, bool first, const scratch *s) {
    for (int64_t c = 0; c < columns; c += UPS_VECTOR) {
        float *const scores = s->s + c, *const end = scores + keys * QUERIES;
        f32v most = f32v_load(first ? scores : s->shift + c), total = {0};
        for (const float *at = scores; at < end; at += QUERIES) most = f32v_larger(f32v_load(at), most);
        for (float *at = scores; at < end; at += QUERIES) {
            const f32v e = exp_of(f32v_load(at) - most);
            f32v_store(at, e);
            total += e;
        }
        if (!first) {
            const f32v factor = exp_of(f32v_load(s->shift + c) - most);
            total += f32v_load(s->sum + c) * factor;
            for (float *at = s->out_t + c, *last = at + mixed_rows(h) * QUERIES; at < last; at += QUERIES) {
                f32v_store(at, f32v_load(at) * factor);
            }
        }
        f32v_store(s->shift + c, most);
        f32v_store(s->sum + c, total);
    }
}

/* Of scores of a window's keys from `key` on and queries from `query` on. */
static void add_bias(const heads *h, const scratch *s, int64_t key, int64_t keys, int64_t query, int64_t rows) {
    for (int64_t j = 0; j < keys; j++) {
        const float *from = s->bias + h->windows.centre - s->code[key + j];
        float *to = s->s + j * QUERIES;
        for (int64_t i = 0; i < rows; i++) to[i] += from[s->code[query + i]];
    }
}

/* Gradients of the bias from those of the same scores. */
static void gather_bias(const heads *h, const scratch *s, int64_t key, int64_t keys, int64_t query, int64_t rows,
                        float *bias) {
    for (int64_t j = 0; j < keys; j++) {
        float *to = bias + h->windows.centre - s->code[key + j];
        const float *from = s->ds + j * QUERIES;
        for (int64_t i = 0; i < rows; i++) to[s->code[query + i]] += from[i];
    }
}

static void window_forward(const ups_op_call *call, const heads *h, const head_place *at, const scratch *s) {
    const treatment of_q = {call->inputs[2].data, h->scale, at->q_rms, true, true};
    const treatment of_k = {call->inputs[3].data, 1.0f, at->k_rms, true, true};
    const int64_t features = h->count * h->width;
    load_head(h, h->kv, at->k, h->k_stride, s->token, h->keys, &of_k, s->turned, s->k);
    load_head(h, h->kv, at->v, h->k_stride, s->token, h->keys, &as_it_is, s->turned, s->v);
    for (int64_t first = 0; first < h->queries; first += QUERIES) {
        const int64_t rows = ups_min(QUERIES, h->queries - first);
        const int32_t *token = s->token + first;
        load_head(h, h->q, at->q, h->q_stride, token, rows, &of_q, s->turned, s->q);
        const int64_t columns = whole_columns(h, rows, s->q);
        ups_transpose(columns, h->padded_width, s->q, h->padded_width, s->q_t, QUERIES);
        for (int64_t key = 0; key < h->keys; key += KEYS) {
            const int64_t keys = ups_min(KEYS, h->keys - key), row = key * h->padded_width;
            score_product(h, keys, columns, s->k + row, s->q_t, s->s);
            if (h->bias) add_bias(h, s, key, keys, first, rows);
            exponentials(h, keys, columns, key == 0, s);
            mix(h, keys, columns, s->v + row, s->s, s->out_t, key > 0);
        }
        ups_transpose(h->padded_width, columns, s->out_t, QUERIES, s->rows, h->padded_width);
        for (int64_t r = 0; r < rows; r++) {
            float *out = s->rows + r * h->padded_width;
            if (at->lse) at->lse[token[r]] = s->shift[r] + logf(s->sum[r]);
            scale_row(h, 1.0f / s->sum[r], out);
            store_row(&call->output, at->out + token[r] * features, h->width, out, false);
        }
    }
}

static void head_forward(const ups_op_call *call, const heads *h, int64_t item, void *memory) {
    const scratch s = prepare(h, item, memory);
    const head_place at = place_of(call, h, item);
    if (h->windows.dims == 0) {
        window_forward(call, h, &at, &s);
        return;
    }
    for (int64_t index = 0; index < h->windows.all; index++) {
        heads part = narrowed(h, windows_list(&h->windows, index, s.token, s.code));
        window_forward(call, &part, &at, &s);
    }
}

/* Scores and dP of a chunk to P and dS, in their places. Where a chunk has all keys its own sums of P dP are taken for
 * those of dO O: they have not been rounded, as an output of 16 bits has. */
static void scores_backward(int64_t keys, int64_t columns, bool all, const scratch *s) {
    for (int64_t c = 0; c < columns; c += UPS_VECTOR) {
        const f32v lse = f32v_load(s->shift + c);
        f32v weighted = {0};
        if (!all) weighted = f32v_load(s->weighted + c);
        float *const p = s->s + c, *const ds = s->ds + c;
        for (int64_t at = 0; at < keys * QUERIES; at += QUERIES) {
            const f32v probability = exp_of(f32v_load(p + at) - lse), dp = f32v_load(ds + at);
            f32v_store(p + at, probability);
            if (all)
                weighted += probability * dp;
            else
                f32v_store(ds + at, probability * (dp - weighted));
        }
        for (int64_t at = 0; all && at < keys * QUERIES; at += QUERIES) {
            f32v_store(ds + at, f32v_load(p + at) * (f32v_load(ds + at) - weighted));
        }
    }
}

/* Rows of q or k whose gradients are in scratch, at most QUERIES, back through factor, rotation and norm, and to where
 * they belong. */
static void finish_rows(const heads *h, const ups_tensor *from, int64_t offset, int64_t stride, const int32_t *token,
                        int64_t rows, const treatment *t, const ups_tensor *gradient, bool accumulate, float *dgain,
                        const scratch *s, float *dy) {
    for (int64_t r = 0; h->rotary && r < rows; r++) {
        turn_row(h, dy + r * h->padded_width, t->factor, NULL, h->rotary + token[r] * h->width, true,
                 s->turned + r * h->padded_width);
    }
    if (h->rotary) dy = s->turned;
    for (int64_t r = 0; r < rows; r++, dy += h->padded_width) {
        const int64_t at = offset + token[r] * stride;
        if (!h->rotary && t->factor != 1.0f) scale_row(h, t->factor, dy);
        if (h->normalised) rms_backward(h, from, at, t->rms[token[r] * h->count], t->gain, dgain, s->row, dy);
        store_row(gradient, at, h->width, dy, accumulate);
    }
}

/* The log-sum-exp of a block's queries into `shift`; zeros behind the last. */
static void load_lse(const head_place *at, const int32_t *token, int64_t rows, int64_t columns, const scratch *s) {
    for (int64_t r = 0; r < columns; r++) s->shift[r] = r < rows ? at->lse[token[r]] : 0.0f;
}

/* The sums of dO O into `weighted`; zeros behind the last. */
static void weigh_outputs(const ups_op_call *call, const heads *h, const head_place *at, const int32_t *token,
                          int64_t rows, int64_t columns, const scratch *s) {
    const int64_t features = h->count * h->width;
    load_head(h, &call->output, at->out, features, token, rows, &as_it_is, s->turned, s->rows);
    for (int64_t r = 0; r < columns; r++) {
        const float *out = s->rows + r * h->padded_width, *d_out = s->d_out + r * h->padded_width;
        f32v sum = {0};
        for (int64_t i = 0; r < rows && i < h->padded_width; i += UPS_VECTOR) {
            sum += f32v_load(out + i) * f32v_load(d_out + i);
        }
        s->weighted[r] = f32v_sum(sum);
    }
}

static void window_backward(const ups_op_call *call, const heads *h, const head_place *at,
                            const head_gradients *gradients, const scratch *s) {
    const treatment of_q = {call->inputs[2].data, h->scale, at->q_rms, false, true};
    const treatment of_k = {call->inputs[3].data, 1.0f, at->k_rms, false, true};
    const int64_t features = h->count * h->width;
    const bool all = h->keys <= KEYS;
    load_head(h, h->kv, at->k, h->k_stride, s->token, h->keys, &of_k, s->turned, s->k);
    load_head(h, h->kv, at->v, h->k_stride, s->token, h->keys, &as_it_is, s->turned, s->v);
    for (int64_t first = 0; first < h->queries; first += QUERIES) {
        const int64_t rows = ups_min(QUERIES, h->queries - first);
        const int32_t *token = s->token + first;
        load_head(h, h->q, at->q, h->q_stride, token, rows, &of_q, s->turned, s->q);
        load_head(h, &call->output_gradient, at->out, features, token, rows, &as_it_is, s->turned, s->d_out);
        const int64_t columns = whole_columns(h, rows, s->q);
        whole_columns(h, rows, s->d_out);
        load_lse(at, token, rows, columns, s);
        if (!all) weigh_outputs(call, h, at, token, rows, columns, s);
        ups_transpose(columns, h->padded_width, s->q, h->padded_width, s->q_t, QUERIES);
        ups_transpose(columns, h->padded_width, s->d_out, h->padded_width, s->d_out_t, QUERIES);
        for (int64_t key = 0; key < h->keys; key += KEYS) {
            const int64_t keys = ups_min(KEYS, h->keys - key), row = key * h->padded_width;
            score_product(h, keys, columns, s->k + row, s->q_t, s->s);
            score_product(h, keys, columns, s->v + row, s->d_out_t, s->ds);
            if (h->bias) add_bias(h, s, key, keys, first, rows);
            scores_backward(keys, columns, all, s);
            if (gradients->bias) gather_bias(h, s, key, keys, first, rows, gradients->bias);
            gather(h, keys, rows, s->s, s->d_out, s->dv + row, first > 0);
            gather(h, keys, rows, s->ds, s->q, s->dk + row, first > 0);
            mix(h, keys, columns, s->k + row, s->ds, s->out_t, key > 0);
        }
        ups_transpose(h->padded_width, columns, s->out_t, QUERIES, s->rows, h->padded_width);
        finish_rows(h, h->q, at->q, h->q_stride, token, rows, &of_q, gradients->q, gradients->accumulate_q,
                    gradients->gain_q, s, s->rows);
    }
    for (int64_t first = 0; first < h->keys; first += QUERIES) {
        const int64_t rows = ups_min(QUERIES, h->keys - first);
        finish_rows(h, h->kv, at->k, h->k_stride, s->token + first, rows, &of_k, gradients->kv,
                    gradients->accumulate_kv, gradients->gain_k, s, s->dk + first * h->padded_width);
        for (int64_t r = first; r < first + rows; r++) {
            store_row(gradients->kv, at->v + s->token[r] * h->k_stride, h->width, s->dv + r * h->padded_width,
                      gradients->accumulate_kv);
        }
    }
}

static void head_backward(const ups_op_call *call, const heads *h, int64_t item, const head_gradients *gradients,
                          void *memory) {
    const scratch s = prepare(h, item, memory);
    const head_place at = place_of(call, h, item);
    if (h->windows.dims == 0) {
        window_backward(call, h, &at, gradients, &s);
        return;
    }
    for (int64_t index = 0; index < h->windows.all; index++) {
        heads part = narrowed(h, windows_list(&h->windows, index, s.token, s.code));
        window_backward(call, &part, &at, gradients, &s);
    }
}

/* How one head is computed, and a thread's scratch for it. */
typedef struct head_kernel {
    size_t (*bytes)(const heads *h);
    void (*forward)(const ups_op_call *call, const heads *h, int64_t item, void *memory);
    void (*backward)(const ups_op_call *call, const heads *h, int64_t item, const head_gradients *gradients,
                     void *memory);
} head_kernel;

static head_kernel head_kernel_of(const ups_op_call *call, const heads *h) {
#ifdef UPS_CPU_TILES
    if (h->q->dtype == UPS_BF16 && h->windows.dims == 0 && call->inputs[5].shape.rank == 0) {
        return (head_kernel){ups_amx_attention_bytes, ups_amx_head_forward, ups_amx_head_backward};
    }
#endif
    return (head_kernel){scratch_bytes, head_forward, head_backward};
}

static size_t workspace_bytes(const ups_device *device, const ups_op_call *call, bool backward) {
    heads h = heads_of(call, is_cross(call));
    int64_t items = h.batch * h.count; /* each has gradients of gains, and of the bias, of its own */
    int64_t floats = 2 * items * h.padded_width + (call->inputs[5].shape.rank > 0 ? items * h.windows.offsets : 0);
    return (size_t)ups_cpu_threads(device) * head_kernel_of(call, &h).bytes(&h) +
           (backward ? (size_t)floats * sizeof(float) : 0);
}

/* The heads as those of an item's sample are turned. */
static heads of_sample(const heads *h, int64_t item) {
    heads own = *h;
    if (own.rotary) own.rotary += item / h->count * h->rotary_stride;
    return own;
}

static ups_status forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    heads h = heads_of(call, is_cross(call));
    head_kernel kernel = head_kernel_of(call, &h);
    size_t bytes = kernel.bytes(&h);
#pragma omp parallel for num_threads(ups_cpu_threads(device)) schedule(static)
    for (int64_t item = 0; item < h.batch * h.count; item++) {
        const heads own = of_sample(&h, item);
        kernel.forward(call, &own, item, (char *)call->workspace + (size_t)omp_get_thread_num() * bytes);
    }
    return UPS_OK;
}

/* dbias (offsets, heads) (+)= partials (samples, heads, offsets), sample after sample. */
static void write_bias_gradient(const heads *h, const float *partials, float *to, bool accumulate) {
    for (int64_t i = 0; i < h->windows.offsets * h->count; i++) {
        const float *from = partials + i % h->count * h->windows.offsets + i / h->count;
        float sum = 0.0f;
        for (int64_t b = 0; b < h->batch; b++) sum += from[b * h->count * h->windows.offsets];
        to[i] = accumulate ? to[i] + sum : sum;
    }
}

static ups_status backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    bool cross = is_cross(call);
    heads h = heads_of(call, cross);
    head_kernel kernel = head_kernel_of(call, &h);
    size_t bytes = kernel.bytes(&h);
    float *gains = (float *)((char *)call->workspace + (size_t)ups_cpu_threads(device) * bytes);
    int64_t items = h.batch * h.count;
    head_gradients gradients = {.q = &call->input_gradients[0], .kv = &call->input_gradients[cross ? 1 : 0]};
    gradients.accumulate_q = call->accumulate[0];
    gradients.accumulate_kv = call->accumulate[cross ? 1 : 0];
    float *const biases = gains + 2 * items * h.padded_width, *const dbias = call->input_gradients[5].data;
    memset(gains, 0, (size_t)(2 * items * h.padded_width) * sizeof(float));
    if (dbias) memset(biases, 0, (size_t)(items * h.windows.offsets) * sizeof(float));
#pragma omp parallel for num_threads(ups_cpu_threads(device)) schedule(static)
    for (int64_t item = 0; item < items; item++) {
        head_gradients mine = gradients;
        mine.gain_q = gains + 2 * item * h.padded_width;
        mine.gain_k = mine.gain_q + h.padded_width;
        mine.bias = dbias ? biases + item * h.windows.offsets : NULL;
        const heads own = of_sample(&h, item);
        kernel.backward(call, &own, item, &mine, (char *)call->workspace + (size_t)omp_get_thread_num() * bytes);
    }
    for (int input = 2; input <= 3; input++) {
        if (!h.normalised || !ups_present(&call->input_gradients[input])) continue;
        ups_add_partials(gains + (input - 2) * h.padded_width, items, 2 * h.padded_width, h.width,
                         call->input_gradients[input].data, call->accumulate[input]);
    }
    if (dbias) write_bias_gradient(&h, biases, dbias, call->accumulate[5]);
    return UPS_OK;
}

const ups_cpu_kernel UPS_CPU(attention) = {.workspace = workspace_bytes, .forward = forward, .backward = backward};
