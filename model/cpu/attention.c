/* Attention by head: softmax(q k^T / sqrt d) v, with q and k RMS-normalised a head first where there are gains (QK
 * norm, arXiv 2302.05442).
 *
 * One thread takes one head of one sample: it converts that head's k and v into float32 scratch in the layouts the
 * products below want, then passes over the queries a block at a time, so that scores never leave the cache. Forward
 * keeps the log-sum-exp of each row of scores; backward makes the probabilities again from it (FlashAttention, arXiv
 * 2205.14135, section 3.1): P = exp(S - lse)   dV = P^T dO   dP = dO V^T   dS = P (dP - rowsum(P dP))   dQ = dS K   dK
 * = dS^T Q Rows and columns of the scratch are padded to whole vectors, with zeros. */
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

/* One thread's scratch. k, v: (padded keys, padded width); *_t transposed, in panels; blocks of queries: (QUERIES,
 * padded width or score_stride). */
typedef struct scratch {
    float *k, *k_t, *v, *v_t, *dk, *dv;
    float *q, *out, *d_out, *dq, *p, *dp, *row;
} scratch;

static size_t scratch_bytes(const heads *h) {
    return sizeof(float) * (size_t)((4 * h->padded_keys + 2 * panel_keys(h) + 4 * QUERIES + 2) * h->padded_width +
                                    2 * QUERIES * score_stride(h));
}

static scratch scratch_of(void *memory, const heads *h) {
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
    return s;
}

/* Rows [0, rows) of one head into `to`, normalised and scaled; rows up to `padded_rows` are zero. `rms`: 1/rms of row r
 * at rms[r * count]; computed and kept when `keep`, else read. */
static void load_head(const heads *h, const ups_tensor *from, int64_t offset, int64_t stride, int64_t rows,
                      int64_t padded_rows, const float *gain, float factor, float *rms, bool keep, float *to) {
    for (int64_t r = 0; r < padded_rows; r++, to += h->padded_width) {
        if (r >= rows) {
            memset(to, 0, (size_t)h->padded_width * sizeof(float));
            continue;
        }
        const float *row = ups_row_read(from, offset + r * stride, h->width, to); /* `to`, or the tensor itself */
        float scale = factor;
        if (gain) {
            float inverse = keep ? inverse_rms(row, h->width, h->epsilon) : rms[r * h->count];
            if (keep && rms) rms[r * h->count] = inverse;
            scale *= inverse;
            for (int64_t i = 0; i < h->width; i++) to[i] = row[i] * scale * gain[i];
        } else {
            for (int64_t i = 0; i < h->width; i++) to[i] = row[i] * scale;
        }
        for (int64_t i = h->width; i < h->padded_width; i++) to[i] = 0.0f;
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

/* to (keys, width) += scores (rows, keys), transposed, times x (rows, width). */
static void gather(const heads *h, int64_t rows, const float *scores, const float *x, float *to) {
    ups_product(h->keys, h->padded_width, rows, scores, 1, score_stride(h), x, h->padded_width, UPS_TILE_COLUMNS, to,
                h->padded_width, true);
}

/* Scores to probabilities, in place; returns the log-sum-exp. */
static float softmax_row(float *restrict row, int64_t keys) {
    float largest = -INFINITY, sum = 0.0f;
#pragma omp simd reduction(max : largest)
    for (int64_t j = 0; j < keys; j++) largest = row[j] > largest ? row[j] : largest;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < keys; j++) {
        row[j] = ups_exp(row[j] - largest);
        sum += row[j];
    }
    float inverse = 1.0f / sum;
    for (int64_t j = 0; j < keys; j++) row[j] *= inverse;
    return largest + logf(sum);
}

static void head_forward(const ups_op_call *call, const heads *h, int64_t item, void *memory) {
    scratch s = scratch_of(memory, h);
    head_place at = place_of(call, h, item);
    const float *gain_q = call->inputs[2].data, *gain_k = call->inputs[3].data;
    int64_t features = h->count * h->width;
    load_head(h, h->kv, at.k, h->k_stride, h->keys, h->padded_keys, gain_k, 1.0f, at.k_rms, true, s.k);
    load_head(h, h->kv, at.v, h->k_stride, h->keys, h->padded_keys, NULL, 1.0f, NULL, false, s.v);
    transpose(h, s.k, s.k_t);
    for (int64_t first = 0; first < h->queries; first += QUERIES) {
        int64_t rows = ups_min(QUERIES, h->queries - first);
        load_head(h, h->q, at.q + first * h->q_stride, h->q_stride, rows, rows, gain_q, h->scale,
                  at.q_rms ? at.q_rms + first * h->count : NULL, true, s.q);
        score_product(h, rows, s.q, s.k_t, s.p);
        for (int64_t r = 0; r < rows; r++) {
            float lse = softmax_row(s.p + r * score_stride(h), h->keys);
            if (at.lse) at.lse[first + r] = lse;
        }
        mix(h, rows, s.p, s.v, s.out);
        for (int64_t r = 0; r < rows; r++) {
            int64_t offset = at.out + (first + r) * features;
            float *y = ups_row_target(&call->output, offset, s.out + r * h->padded_width, false);
            if (y != s.out + r * h->padded_width) {
                memcpy(y, s.out + r * h->padded_width, (size_t)h->width * sizeof(float));
            }
            ups_row_write(&call->output, offset, h->width, y, false);
        }
    }
}

/* dS from P and dP, in place of dP. */
static void softmax_backward_row(const float *restrict p, float *restrict dp, int64_t keys) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < keys; j++) sum += p[j] * dp[j];
    for (int64_t j = 0; j < keys; j++) dp[j] = p[j] * (dp[j] - sum);
}

static void head_backward(const ups_op_call *call, const heads *h, int64_t item, const head_gradients *gradients,
                          void *memory) {
    scratch s = scratch_of(memory, h);
    head_place at = place_of(call, h, item);
    const float *gain_q = call->inputs[2].data, *gain_k = call->inputs[3].data;
    int64_t features = h->count * h->width;
    load_head(h, h->kv, at.k, h->k_stride, h->keys, h->padded_keys, gain_k, 1.0f, at.k_rms, false, s.k);
    load_head(h, h->kv, at.v, h->k_stride, h->keys, h->padded_keys, NULL, 1.0f, NULL, false, s.v);
    transpose(h, s.k, s.k_t);
    transpose(h, s.v, s.v_t);
    memset(s.dk, 0, (size_t)(2 * h->padded_keys * h->padded_width) * sizeof(float)); /* dv is behind dk */
    for (int64_t first = 0; first < h->queries; first += QUERIES) {
        int64_t rows = ups_min(QUERIES, h->queries - first);
        load_head(h, h->q, at.q + first * h->q_stride, h->q_stride, rows, rows, gain_q, h->scale,
                  at.q_rms ? at.q_rms + first * h->count : NULL, false, s.q);
        load_head(h, &call->output_gradient, at.out + first * features, features, rows, rows, NULL, 1.0f, NULL, false,
                  s.d_out);
        score_product(h, rows, s.q, s.k_t, s.p);
        score_product(h, rows, s.d_out, s.v_t, s.dp);
        for (int64_t r = 0; r < rows; r++) {
            float *p = s.p + r * score_stride(h), lse = at.lse[first + r];
            for (int64_t j = 0; j < h->keys; j++) p[j] = ups_exp(p[j] - lse);
            softmax_backward_row(p, s.dp + r * score_stride(h), h->keys);
        }
        gather(h, rows, s.p, s.d_out, s.dv);
        gather(h, rows, s.dp, s.q, s.dk);
        mix(h, rows, s.dp, s.k, s.dq);
        for (int64_t r = 0; r < rows; r++) {
            float *dq = s.dq + r * h->padded_width;
            int64_t offset = at.q + (first + r) * h->q_stride;
            for (int64_t i = 0; i < h->width; i++) dq[i] *= h->scale;
            if (h->normalised) {
                rms_backward(h, h->q, offset, at.q_rms[(first + r) * h->count], gain_q, gradients->gain_q, s.row, dq);
            }
            store_gradient(gradients->q, offset, h->width, dq, gradients->accumulate_q);
        }
    }
    for (int64_t r = 0; r < h->keys; r++) {
        float *dk = s.dk + r * h->padded_width;
        int64_t offset = at.k + r * h->k_stride;
        if (h->normalised) rms_backward(h, h->kv, offset, at.k_rms[r * h->count], gain_k, gradients->gain_k, s.row, dk);
        store_gradient(gradients->kv, offset, h->width, dk, gradients->accumulate_kv);
        store_gradient(gradients->kv, at.v + r * h->k_stride, h->width, s.dv + r * h->padded_width,
                       gradients->accumulate_kv);
    }
}

/* How one head is computed, and a thread's scratch for it. */
typedef struct head_kernel {
    size_t (*bytes)(const heads *h);
    void (*forward)(const ups_op_call *call, const heads *h, int64_t item, void *memory);
    void (*backward)(const ups_op_call *call, const heads *h, int64_t item, const head_gradients *gradients,
                     void *memory);
} head_kernel;

static head_kernel head_kernel_of(const heads *h) {
#ifdef UPS_CPU_TILES
    if (h->q->dtype == UPS_BF16) {
        return (head_kernel){ups_amx_attention_bytes, ups_amx_head_forward, ups_amx_head_backward};
    }
#endif
    return (head_kernel){scratch_bytes, head_forward, head_backward};
}

static size_t workspace_bytes(const ups_device *device, const ups_op_call *call, bool backward) {
    heads h = heads_of(call, is_cross(call));
    size_t gains = backward ? (size_t)(2 * h.batch * h.count * h.width) * sizeof(float) : 0; /* gradients by head */
    return (size_t)ups_cpu_threads(device) * head_kernel_of(&h).bytes(&h) + gains;
}

static ups_status forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    heads h = heads_of(call, is_cross(call));
    head_kernel kernel = head_kernel_of(&h);
    size_t bytes = kernel.bytes(&h);
#pragma omp parallel for num_threads(ups_cpu_threads(device)) schedule(static)
    for (int64_t item = 0; item < h.batch * h.count; item++) {
        kernel.forward(call, &h, item, (char *)call->workspace + (size_t)omp_get_thread_num() * bytes);
    }
    return UPS_OK;
}

static ups_status backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    bool cross = is_cross(call);
    heads h = heads_of(call, cross);
    head_kernel kernel = head_kernel_of(&h);
    size_t bytes = kernel.bytes(&h);
    float *gains = (float *)((char *)call->workspace + (size_t)ups_cpu_threads(device) * bytes);
    int64_t items = h.batch * h.count;
    head_gradients gradients = {.q = &call->input_gradients[0], .kv = &call->input_gradients[cross ? 1 : 0]};
    gradients.accumulate_q = call->accumulate[0];
    gradients.accumulate_kv = call->accumulate[cross ? 1 : 0];
    memset(gains, 0, (size_t)(2 * items * h.width) * sizeof(float));
#pragma omp parallel for num_threads(ups_cpu_threads(device)) schedule(static)
    for (int64_t item = 0; item < items; item++) {
        head_gradients mine = gradients;
        mine.gain_q = gains + 2 * item * h.width;
        mine.gain_k = mine.gain_q + h.width;
        kernel.backward(call, &h, item, &mine, (char *)call->workspace + (size_t)omp_get_thread_num() * bytes);
    }
    for (int input = 2; input <= 3; input++) {
        if (!h.normalised || !ups_present(&call->input_gradients[input])) continue;
        ups_add_partials(gains + (input - 2) * h.width, items, 2 * h.width, h.width, call->input_gradients[input].data,
                         call->accumulate[input]);
    }
    return UPS_OK;
}

const ups_cpu_kernel UPS_CPU(attention) = {.workspace = workspace_bytes, .forward = forward, .backward = backward};
