/* Attention by head: softmax(q k^T / sqrt d + bias) v, with q and k RMS-normalised a head first where there are gains
 * (QK norm, arXiv 2302.05442), and rotated by their places where there are angles (arXiv 2104.09864).
 *
 * One thread takes one head of one sample, window after window: it converts k and v into float32 scratch in the layouts
 * the products below want, then passes over the queries a block at a time, so that scores never leave the cache.
 * Forward keeps the log-sum-exp of each row of scores; backward makes the probabilities again from it (FlashAttention,
 * arXiv 2205.14135, section 3.1): P = exp(S - lse)   dV = P^T dO   dP = dO V^T   dS = P (dP - rowsum(P dP))   dQ = dS K
 * dK = dS^T Q Rows and columns of the scratch are padded to whole vectors, with zeros. */
#include "model/cpu/attention.h"
#include "model/cpu/product.h"

enum { QUERIES = 48 /* a block: whole tiles in every instruction set */ };

/* k and v transposed lie in panels as wide as a tile of scores. */
static inline int64_t panel_keys(const heads *h) {
    return ups_div_up(h->padded_keys, UPS_TILE_COLUMNS) * UPS_TILE_COLUMNS;
}

/* Rows of scores are an odd number of cache lines apart: read by columns, as backward does, they would otherwise share
 * a few sets of the first-level cache. */
static inline int64_t score_stride(const heads *h) {
    return (h->padded_keys / UPS_LANES | 1) * UPS_LANES;
}

/* The head among so many tokens, those of a window. */
static inline heads narrowed(const heads *all, int64_t tokens) {
    heads h = *all;
    h.queries = h.keys = tokens;
    h.padded_keys = ups_div_up(tokens, UPS_LANES) * UPS_LANES;
    return h;
}

static inline heads largest_window(const heads *h) {
    return h->windows.dims > 0 ? narrowed(h, h->windows.most) : *h;
}

/* One thread's scratch for the largest window. k, v: (padded keys, padded width); *_t transposed, in panels; blocks of
 * queries: (QUERIES, padded width or score_stride). */
typedef struct scratch {
    float *k, *k_t, *v, *v_t, *dk, *dv;
    float *q, *out, *d_out, *dq, *p, *dp, *row;
    float *bias;           /* of the head, (offsets) */
    int32_t *token, *code; /* of the window */
} scratch;

static inline int64_t listed(const heads *h) {
    return ups_div_up(h->keys > h->queries ? h->keys : h->queries, UPS_LANES) * UPS_LANES;
}

static size_t scratch_bytes(const heads *all) {
    const heads largest = largest_window(all), *const h = &largest;
    int64_t lists = 2 * listed(h) + ups_div_up(h->windows.offsets, UPS_LANES) * UPS_LANES;
    return sizeof(float) * (size_t)((4 * h->padded_keys + 2 * panel_keys(h) + 4 * QUERIES + 2) * h->padded_width +
                                    2 * QUERIES * score_stride(h) + lists);
}

static scratch scratch_of(void *memory, const heads *all) {
    const heads largest = largest_window(all), *const h = &largest;
    int64_t key_block = h->padded_keys * h->padded_width, query_block = QUERIES * h->padded_width;
    float *at = memory;
    scratch s;
    s.k = at;
    s.v = s.k + key_block;
    s.dk = s.v + key_block;
    s.dv = s.dk + key_block;
    s.k_t = s.dv + key_block;
    s.v_t = s.k_t + panel_keys(h) * h->padded_width;
    s.q = s.v_t + panel_keys(h) * h->padded_width;
    s.out = s.q + query_block;
    s.d_out = s.out + query_block;
    s.dq = s.d_out + query_block;
    s.p = s.dq + query_block;
    s.dp = s.p + QUERIES * score_stride(h);
    s.row = s.dp + QUERIES * score_stride(h);
    s.bias = s.row + 2 * h->padded_width;
    s.token = (int32_t *)(s.bias + ups_div_up(h->windows.offsets, UPS_LANES) * UPS_LANES);
    s.code = s.token + listed(h);
    return s;
}

/* What is done to rows of a head while they are read: q and k have all of it, v and gradients none. */
typedef struct treatment {
    const float *gain;
    float factor;
    float *rms; /* 1/rms of token t at rms[t * count]; computed and kept when `keep`, else read */
    bool keep, rotated;
} treatment;
static const treatment as_it_is = {.factor = 1.0f};

/* `rows` rows of one head, those of `token`, into `to`; rows up to `padded_rows` are zero. */
static void load_head(const heads *h, const ups_tensor *from, int64_t offset, int64_t stride, const int32_t *token,
                      int64_t rows, int64_t padded_rows, const treatment *t, float *to) {
    for (int64_t r = 0; r < padded_rows; r++, to += h->padded_width) {
        if (r >= rows) {
            memset(to, 0, (size_t)h->padded_width * sizeof(float));
            continue;
        }
        load_row(from, offset + token[r] * stride, h, to);
        float scale = t->factor;
        if (t->gain) {
            float *rms = t->rms ? t->rms + token[r] * h->count : NULL, inverse = t->keep ? inverse_rms(h, to) : *rms;
            if (t->keep && rms) *rms = inverse;
            scale *= inverse;
            for (int64_t i = 0; i < h->width; i += UPS_VECTOR) {
                f32v_store(to + i, f32v_load(to + i) * scale * f32v_load_first(t->gain + i, h->width - i));
            }
        } else if (scale != 1.0f) {
            scale_row(h, scale, to);
        }
        if (t->rotated && h->rotary) rotate_row(h, h->rotary + token[r] * h->width, false, to);
    }
}

/* Keys or values, transposed into panels: element (key, i) at to[(key / TILE_COLUMNS) * panel + i * TILE_COLUMNS + key
 * % TILE_COLUMNS]. */
static void transpose(const heads *h, const float *restrict from, float *restrict to) {
    int64_t panel = h->padded_width * UPS_TILE_COLUMNS;
    for (int64_t key = 0; key < h->padded_keys; key += 4) {
        float *column = to + key / UPS_TILE_COLUMNS * panel + key % UPS_TILE_COLUMNS;
        for (int64_t i = 0; i < h->padded_width; i += 4) {
            ups_transpose_4x4(from + key * h->padded_width + i, h->padded_width, column + i * UPS_TILE_COLUMNS,
                              UPS_TILE_COLUMNS);
        }
    }
}

/* scores (rows, keys) = x (rows, width) times keys or values, transposed. */
static void score_product(const heads *h, int64_t rows, const float *x, const float *transposed, float *scores) {
    ups_product(rows, h->padded_keys, h->width, x, h->padded_width, 1, transposed, UPS_TILE_COLUMNS,
                h->padded_width * UPS_TILE_COLUMNS, scores, score_stride(h), false);
}

/* to (rows, width) = scores (rows, keys) times keys or values. */
static void mix(const heads *h, int64_t rows, const float *scores, const float *right, float *to) {
    ups_product(rows, h->padded_width, h->keys, scores, score_stride(h), 1, right, h->padded_width, UPS_TILE_COLUMNS,
                to, h->padded_width, false);
}

/* to (keys, width) (+)= scores (rows, keys), transposed, times x (rows, width). */
static void gather(const heads *h, int64_t rows, const float *scores, const float *x, float *to, bool accumulate) {
    ups_product(h->keys, h->padded_width, rows, scores, 1, score_stride(h), x, h->padded_width, UPS_TILE_COLUMNS, to,
                h->padded_width, accumulate);
}

/* Behind the last key scores are to weigh nothing. */
static void close_row(float *row, int64_t keys) {
    for (; keys % UPS_LANES != 0; keys++) row[keys] = -INFINITY;
}

/* Scores to probabilities, in place; returns the log-sum-exp. */
static float softmax_row(float *row, int64_t keys) {
    close_row(row, keys);
    f32v most = f32v_load(row), total = {0};
    for (int64_t j = UPS_VECTOR; j < keys; j += UPS_VECTOR) most = f32v_larger(f32v_load(row + j), most);
    const float largest = f32v_largest(most);
    for (int64_t j = 0; j < keys; j += UPS_LANES) {
        for (int i = 0; i < UPS_LANES; i++) row[j + i] = ups_exp(row[j + i] - largest);
        for (int i = 0; i < UPS_LANES; i += UPS_VECTOR) total += f32v_load(row + j + i);
    }
    const float sum = f32v_sum(total), inverse = 1.0f / sum;
    for (int64_t j = 0; j < keys; j += UPS_VECTOR) f32v_store(row + j, f32v_load(row + j) * inverse);
    return largest + logf(sum);
}

/* The head's column of the bias. */
static void load_bias(const heads *h, int64_t head, float *to) {
    for (int64_t i = 0; h->bias && i < h->windows.offsets; i++) to[i] = h->bias[i * h->count + head];
}

static void add_bias(const heads *h, const scratch *s, int64_t query, float *restrict row) {
    const float *from = s->bias + s->code[query] + h->windows.centre;
    for (int64_t j = 0; j < h->keys; j++) row[j] += from[-s->code[j]];
}

static void window_forward(const ups_op_call *call, const heads *h, const head_place *at, const scratch *s) {
    const treatment of_q = {call->inputs[2].data, h->scale, at->q_rms, true, true};
    const treatment of_k = {call->inputs[3].data, 1.0f, at->k_rms, true, true};
    int64_t features = h->count * h->width;
    load_head(h, h->kv, at->k, h->k_stride, s->token, h->keys, h->padded_keys, &of_k, s->k);
    load_head(h, h->kv, at->v, h->k_stride, s->token, h->keys, h->padded_keys, &as_it_is, s->v);
    transpose(h, s->k, s->k_t);
    for (int64_t first = 0; first < h->queries; first += QUERIES) {
        int64_t rows = ups_min(QUERIES, h->queries - first);
        const int32_t *token = s->token + first;
        load_head(h, h->q, at->q, h->q_stride, token, rows, rows, &of_q, s->q);
        score_product(h, rows, s->q, s->k_t, s->p);
        for (int64_t r = 0; r < rows; r++) {
            if (h->bias) add_bias(h, s, first + r, s->p + r * score_stride(h));
            float lse = softmax_row(s->p + r * score_stride(h), h->keys);
            if (at->lse) at->lse[token[r]] = lse;
        }
        mix(h, rows, s->p, s->v, s->out);
        for (int64_t r = 0; r < rows; r++) {
            store_row(&call->output, at->out + token[r] * features, h->width, s->out + r * h->padded_width, false);
        }
    }
}

/* All tokens, of whichever side has more. */
static void list_all(const heads *h, const scratch *s) {
    for (int64_t i = 0; i < listed(h); i++) s->token[i] = (int32_t)i;
}

static void head_forward(const ups_op_call *call, const heads *h, int64_t item, void *memory) {
    scratch s = scratch_of(memory, h);
    head_place at = place_of(call, h, item);
    load_bias(h, item % h->count, s.bias);
    if (h->windows.dims == 0) {
        list_all(h, &s);
        window_forward(call, h, &at, &s);
        return;
    }
    for (int64_t index = 0; index < h->windows.all; index++) {
        heads part = narrowed(h, windows_list(&h->windows, index, s.token, s.code));
        window_forward(call, &part, &at, &s);
    }
}

/* P and dS from scores and dP, in their places. */
static void softmax_backward_row(float *p, float *dp, int64_t keys, float lse) {
    f32v total = {0};
    close_row(p, keys);
    for (int64_t j = 0; j < keys; j += UPS_LANES) {
        for (int i = 0; i < UPS_LANES; i++) p[j + i] = ups_exp(p[j + i] - lse);
        for (int i = 0; i < UPS_LANES; i += UPS_VECTOR) total += f32v_load(p + j + i) * f32v_load(dp + j + i);
    }
    const float sum = f32v_sum(total);
    for (int64_t j = 0; j < keys; j += UPS_VECTOR) {
        f32v_store(dp + j, f32v_load(p + j) * (f32v_load(dp + j) - sum));
    }
}

/* Gradients of the bias from those of a query's scores. */
static void gather_bias(const heads *h, const scratch *s, int64_t query, const float *ds, float *bias) {
    float *to = bias + s->code[query] + h->windows.centre;
    for (int64_t j = 0; j < h->keys; j++) to[-s->code[j]] += ds[j];
}

/* Back through the rotation and the norm of a row of q or k, and to where it belongs. */
static void finish_row(const heads *h, const ups_tensor *from, int64_t offset, int64_t token, const treatment *t,
                       const ups_tensor *gradient, bool accumulate, float *dgain, float *row, float *dy) {
    if (h->rotary) rotate_row(h, h->rotary + token * h->width, true, dy);
    if (h->normalised) rms_backward(h, from, offset, t->rms[token * h->count], t->gain, dgain, row, dy);
    store_row(gradient, offset, h->width, dy, accumulate);
}

static void window_backward(const ups_op_call *call, const heads *h, const head_place *at,
                            const head_gradients *gradients, const scratch *s) {
    const treatment of_q = {call->inputs[2].data, h->scale, at->q_rms, false, true};
    const treatment of_k = {call->inputs[3].data, 1.0f, at->k_rms, false, true};
    int64_t features = h->count * h->width;
    load_head(h, h->kv, at->k, h->k_stride, s->token, h->keys, h->padded_keys, &of_k, s->k);
    load_head(h, h->kv, at->v, h->k_stride, s->token, h->keys, h->padded_keys, &as_it_is, s->v);
    transpose(h, s->k, s->k_t);
    transpose(h, s->v, s->v_t);
    for (int64_t first = 0; first < h->queries; first += QUERIES) {
        int64_t rows = ups_min(QUERIES, h->queries - first);
        const int32_t *token = s->token + first;
        load_head(h, h->q, at->q, h->q_stride, token, rows, rows, &of_q, s->q);
        load_head(h, &call->output_gradient, at->out, features, token, rows, rows, &as_it_is, s->d_out);
        score_product(h, rows, s->q, s->k_t, s->p);
        score_product(h, rows, s->d_out, s->v_t, s->dp);
        for (int64_t r = 0; r < rows; r++) {
            float *p = s->p + r * score_stride(h), *dp = s->dp + r * score_stride(h), lse = at->lse[token[r]];
            if (h->bias) add_bias(h, s, first + r, p);
            softmax_backward_row(p, dp, h->keys, lse);
            if (gradients->bias) gather_bias(h, s, first + r, dp, gradients->bias);
        }
        gather(h, rows, s->p, s->d_out, s->dv, first > 0);
        gather(h, rows, s->dp, s->q, s->dk, first > 0);
        mix(h, rows, s->dp, s->k, s->dq);
        for (int64_t r = 0; r < rows; r++) {
            float *dq = s->dq + r * h->padded_width;
            scale_row(h, h->scale, dq);
            finish_row(h, h->q, at->q + token[r] * h->q_stride, token[r], &of_q, gradients->q, gradients->accumulate_q,
                       gradients->gain_q, s->row, dq);
        }
    }
    for (int64_t r = 0; r < h->keys; r++) {
        int64_t token = s->token[r];
        finish_row(h, h->kv, at->k + token * h->k_stride, token, &of_k, gradients->kv, gradients->accumulate_kv,
                   gradients->gain_k, s->row, s->dk + r * h->padded_width);
        store_row(gradients->kv, at->v + token * h->k_stride, h->width, s->dv + r * h->padded_width,
                  gradients->accumulate_kv);
    }
}

static void head_backward(const ups_op_call *call, const heads *h, int64_t item, const head_gradients *gradients,
                          void *memory) {
    scratch s = scratch_of(memory, h);
    head_place at = place_of(call, h, item);
    load_bias(h, item % h->count, s.bias);
    if (h->windows.dims == 0) {
        list_all(h, &s);
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
