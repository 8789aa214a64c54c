/* Attention by head: softmax(q k^T / sqrt d) v, with q and k RMS-normalised a head first where there are gains (QK
 * norm, arXiv 2302.05442).
 *
 * One thread takes one head of one sample: it converts that head's k and v into float32 scratch in the layouts the
 * products below want, then passes over the queries a block at a time, so that scores never leave the cache. Forward
 * keeps the log-sum-exp of each row of scores; backward makes the probabilities again from it (FlashAttention, arXiv
 * 2205.14135, section 3.1): P = exp(S - lse)   dV = P^T dO   dP = dO V^T   dS = P (dP - rowsum(P dP))   dQ = dS K   dK
 * = dS^T Q Rows and columns of the scratch are padded to whole vectors, with zeros. */
#include "model/cpu/product.h"
#include "model/cpu/vector.h"

enum { QUERIES = 64 /* a block */ };

typedef struct heads {
    int64_t batch, count, queries, keys, width; /* width: d, of one head */
    int64_t padded_keys, padded_width;
    int64_t q_stride, k_stride, k_offset, v_offset; /* in elements of the packed rows */
    bool normalised;
    float scale, epsilon;
    const ups_tensor *q, *kv; /* the same when packed */
} heads;

static heads heads_of(const ups_op_call *call, bool cross) {
    const ups_tensor *q = &call->inputs[0], *kv = cross ? &call->inputs[1] : q;
    int64_t features = cross ? ups_shape_last(q->shape) : ups_shape_last(q->shape) / 3;
    heads h = {.batch = q->shape.size[0], .count = call->attributes->heads, .queries = q->shape.size[1]};
    h.q = q;
    h.kv = kv;
    h.keys = kv->shape.size[1];
    h.width = features / h.count;
    h.padded_keys = ups_div_up(h.keys, UPS_LANES) * UPS_LANES;
    h.padded_width = ups_div_up(h.width, UPS_LANES) * UPS_LANES;
    h.q_stride = ups_shape_last(q->shape);
    h.k_stride = ups_shape_last(kv->shape);
    h.k_offset = cross ? 0 : features;
    h.v_offset = h.k_offset + features;
    h.normalised = call->inputs[2].shape.rank > 0;
    h.scale = 1.0f / sqrtf((float)h.width);
    h.epsilon = call->attributes->epsilon;
    return h;
}

static bool is_cross(const ups_op_call *call) {
    return call->inputs[1].shape.rank > 0;
}

/* One thread's scratch. k, v: (padded keys, padded width); *_t transposed; blocks of queries: (QUERIES, padded width or
 * keys). */
typedef struct scratch {
    float *k, *k_t, *v, *v_t, *dk, *dv;
    float *q, *out, *d_out, *dq, *p, *dp, *row;
} scratch;

static int64_t scratch_floats(const heads *h) {
    return 6 * h->padded_keys * h->padded_width + 4 * QUERIES * h->padded_width + 2 * QUERIES * h->padded_keys +
           2 * h->padded_width;
}

static scratch scratch_of(const ups_op_call *call, const heads *h) {
    int64_t key_block = h->padded_keys * h->padded_width, query_block = QUERIES * h->padded_width;
    float *at = (float *)call->workspace + omp_get_thread_num() * scratch_floats(h);
    scratch s;
    s.k = at;
    s.k_t = s.k + key_block;
    s.v = s.k_t + key_block;
    s.v_t = s.v + key_block;
    s.dk = s.v_t + key_block;
    s.dv = s.dk + key_block;
    s.q = s.dv + key_block;
    s.out = s.q + query_block;
    s.d_out = s.out + query_block;
    s.dq = s.d_out + query_block;
    s.p = s.dq + query_block;
    s.dp = s.p + QUERIES * h->padded_keys;
    s.row = s.dp + QUERIES * h->padded_keys;
    return s;
}

static ups_status prepare(ups_device *device, const ups_op_call *call, bool backward, void **state,
                          size_t *workspace_bytes, ups_error *error) {
    heads h = heads_of(call, is_cross(call));
    int64_t floats = device->threads * scratch_floats(&h);
    if (backward) floats += 2 * h.batch * h.count * h.width; /* gradients of the gains by head */
    *workspace_bytes = (size_t)floats * sizeof(float);
    return UPS_OK;
}

static void load_row(const ups_tensor *from, int64_t offset, int64_t width, int64_t padded, float *to) {
    const float *row = ups_row_read(from, offset, width, to);
    if (row != to) memcpy(to, row, (size_t)width * sizeof(float));
    for (int64_t i = width; i < padded; i++) to[i] = 0.0f;
}

static float inverse_rms(const float *x, int64_t n, float epsilon) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return 1.0f / sqrtf(sum / (float)n + epsilon);
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
        load_row(from, offset + r * stride, h->width, h->padded_width, to);
        if (gain) {
            float inverse = keep ? inverse_rms(to, h->width, h->epsilon) : rms[r * h->count];
            if (keep && rms) rms[r * h->count] = inverse;
            for (int64_t i = 0; i < h->width; i++) to[i] *= inverse * factor * gain[i];
        } else if (factor != 1.0f) {
            for (int64_t i = 0; i < h->width; i++) to[i] *= factor;
        }
    }
}

static void transpose(const float *restrict from, int64_t rows, int64_t columns, float *restrict to) {
    for (int64_t r0 = 0; r0 < rows; r0 += UPS_LANES) {
        for (int64_t c = 0; c < columns; c++) {
            for (int64_t r = r0; r < r0 + UPS_LANES; r++) to[c * rows + r] = from[r * columns + c];
        }
    }
}

/* Where a head's rows and statistics lie. */
typedef struct head_place {
    int64_t q, k, v;      /* offsets of its first row in the packed tensors; q also in the output when not packed */
    int64_t out;          /* in the output */
    float *lse;           /* (Tq) */
    float *q_rms, *k_rms; /* stride `count`; NULL where not saved */
} head_place;

static head_place place_of(const ups_op_call *call, const heads *h, int64_t item) {
    int64_t sample = item / h->count, head = item % h->count, at = head * h->width;
    float *rms = h->normalised ? call->saved[1].data : NULL;
    head_place p = {.q = sample * h->queries * h->q_stride + at};
    p.k = sample * h->keys * h->k_stride + h->k_offset + at;
    p.v = sample * h->keys * h->k_stride + h->v_offset + at;
    p.out = sample * h->queries * h->count * h->width + at;
    p.lse = call->saved[0].data ? (float *)call->saved[0].data + item * h->queries : NULL;
    p.q_rms = rms ? rms + sample * h->queries * h->count + head : NULL;
    p.k_rms = rms ? rms + (h->batch * h->queries + sample * h->keys) * h->count + head : NULL;
    return p;
}

/* Scores to probabilities, in place; returns the log-sum-exp. */
static float softmax_row(float *restrict row, int64_t keys, int64_t padded) {
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
    for (int64_t j = keys; j < padded; j++) row[j] = 0.0f;
    return largest + logf(sum);
}

static void head_forward(const ups_op_call *call, const heads *h, int64_t item) {
    scratch s = scratch_of(call, h);
    head_place at = place_of(call, h, item);
    const float *gain_q = call->inputs[2].data, *gain_k = call->inputs[3].data;
    int64_t features = h->count * h->width;
    load_head(h, h->kv, at.k, h->k_stride, h->keys, h->padded_keys, gain_k, 1.0f, at.k_rms, true, s.k);
    load_head(h, h->kv, at.v, h->k_stride, h->keys, h->padded_keys, NULL, 1.0f, NULL, false, s.v);
    transpose(s.k, h->padded_keys, h->padded_width, s.k_t);
    for (int64_t first = 0; first < h->queries; first += QUERIES) {
        int64_t rows = ups_min(QUERIES, h->queries - first);
        load_head(h, h->q, at.q + first * h->q_stride, h->q_stride, rows, QUERIES, gain_q, h->scale,
                  at.q_rms ? at.q_rms + first * h->count : NULL, true, s.q);
        ups_product(QUERIES, h->padded_keys, h->width, s.q, h->padded_width, 1, s.k_t, h->padded_keys, s.p,
                    h->padded_keys, false);
        for (int64_t r = 0; r < rows; r++) {
            float lse = softmax_row(s.p + r * h->padded_keys, h->keys, h->padded_keys);
            if (at.lse) at.lse[first + r] = lse;
        }
        ups_product(QUERIES, h->padded_width, h->keys, s.p, h->padded_keys, 1, s.v, h->padded_width, s.out,
                    h->padded_width, false);
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

/* Through y = x * inverse * gain, from dy to dx in place; dgain += dy * x * inverse. */
static void rms_backward(const heads *h, const ups_tensor *from, int64_t offset, float inverse, const float *gain,
                         float *restrict dgain, float *restrict x, float *restrict dy) {
    load_row(from, offset, h->width, h->padded_width, x);
    float product = 0.0f;
#pragma omp simd reduction(+ : product)
    for (int64_t i = 0; i < h->width; i++) {
        x[i] *= inverse;
        dgain[i] += dy[i] * x[i];
        dy[i] *= gain[i];
        product += dy[i] * x[i];
    }
    product /= (float)h->width;
    for (int64_t i = 0; i < h->width; i++) dy[i] = inverse * (dy[i] - x[i] * product);
}

static void store_gradient(const ups_tensor *gradient, int64_t offset, int64_t width, float *values, bool accumulate) {
    if (!ups_present(gradient)) return;
    float *to = ups_row_target(gradient, offset, values, accumulate);
    if (to != values) memcpy(to, values, (size_t)width * sizeof(float));
    ups_row_write(gradient, offset, width, to, accumulate);
}

/* dS from P and dP, in place of dP. */
static void softmax_backward_row(const float *restrict p, float *restrict dp, int64_t padded) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < padded; j++) sum += p[j] * dp[j];
    for (int64_t j = 0; j < padded; j++) dp[j] = p[j] * (dp[j] - sum);
}

static void head_backward(const ups_op_call *call, const heads *h, int64_t item, const ups_tensor *dq_to,
                          const ups_tensor *dkv_to, bool accumulate_q, bool accumulate_kv, float *dgain_q,
                          float *dgain_k) {
    scratch s = scratch_of(call, h);
    head_place at = place_of(call, h, item);
    const float *gain_q = call->inputs[2].data, *gain_k = call->inputs[3].data;
    int64_t features = h->count * h->width;
    load_head(h, h->kv, at.k, h->k_stride, h->keys, h->padded_keys, gain_k, 1.0f, at.k_rms, false, s.k);
    load_head(h, h->kv, at.v, h->k_stride, h->keys, h->padded_keys, NULL, 1.0f, NULL, false, s.v);
    transpose(s.k, h->padded_keys, h->padded_width, s.k_t);
    transpose(s.v, h->padded_keys, h->padded_width, s.v_t);
    memset(s.dk, 0, (size_t)(2 * h->padded_keys * h->padded_width) * sizeof(float)); /* dv is behind dk */
    for (int64_t first = 0; first < h->queries; first += QUERIES) {
        int64_t rows = ups_min(QUERIES, h->queries - first);
        load_head(h, h->q, at.q + first * h->q_stride, h->q_stride, rows, QUERIES, gain_q, h->scale,
                  at.q_rms ? at.q_rms + first * h->count : NULL, false, s.q);
        load_head(h, &call->output_gradient, at.out + first * features, features, rows, QUERIES, NULL, 1.0f, NULL,
                  false, s.d_out);
        ups_product(QUERIES, h->padded_keys, h->width, s.q, h->padded_width, 1, s.k_t, h->padded_keys, s.p,
                    h->padded_keys, false);
        ups_product(QUERIES, h->padded_keys, h->width, s.d_out, h->padded_width, 1, s.v_t, h->padded_keys, s.dp,
                    h->padded_keys, false);
        for (int64_t r = 0; r < rows; r++) {
            float *p = s.p + r * h->padded_keys, lse = at.lse[first + r];
            for (int64_t j = 0; j < h->keys; j++) p[j] = ups_exp(p[j] - lse);
            for (int64_t j = h->keys; j < h->padded_keys; j++) p[j] = 0.0f;
            softmax_backward_row(p, s.dp + r * h->padded_keys, h->padded_keys);
        }
        ups_product(h->padded_keys, h->padded_width, rows, s.p, 1, h->padded_keys, s.d_out, h->padded_width, s.dv,
                    h->padded_width, true);
        ups_product(h->padded_keys, h->padded_width, rows, s.dp, 1, h->padded_keys, s.q, h->padded_width, s.dk,
                    h->padded_width, true);
        ups_product(QUERIES, h->padded_width, h->keys, s.dp, h->padded_keys, 1, s.k, h->padded_width, s.dq,
                    h->padded_width, false);
        for (int64_t r = 0; r < rows; r++) {
            float *dq = s.dq + r * h->padded_width;
            int64_t offset = at.q + (first + r) * h->q_stride;
            for (int64_t i = 0; i < h->width; i++) dq[i] *= h->scale;
            if (h->normalised) {
                rms_backward(h, h->q, offset, at.q_rms[(first + r) * h->count], gain_q, dgain_q, s.row, dq);
            }
            store_gradient(dq_to, offset, h->width, dq, accumulate_q);
        }
    }
    for (int64_t r = 0; r < h->keys; r++) {
        float *dk = s.dk + r * h->padded_width;
        int64_t offset = at.k + r * h->k_stride;
        if (h->normalised) rms_backward(h, h->kv, offset, at.k_rms[r * h->count], gain_k, dgain_k, s.row, dk);
        store_gradient(dkv_to, offset, h->width, dk, accumulate_kv);
        store_gradient(dkv_to, at.v + r * h->k_stride, h->width, s.dv + r * h->padded_width, accumulate_kv);
    }
}

static ups_status forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    heads h = heads_of(call, is_cross(call));
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t item = 0; item < h.batch * h.count; item++) head_forward(call, &h, item);
    return UPS_OK;
}

static ups_status backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    bool cross = is_cross(call);
    heads h = heads_of(call, cross);
    const ups_tensor *dq = &call->input_gradients[0], *dkv = cross ? &call->input_gradients[1] : dq;
    float *dgains = (float *)call->workspace + device->threads * scratch_floats(&h);
    int64_t items = h.batch * h.count;
    memset(dgains, 0, (size_t)(2 * items * h.width) * sizeof(float));
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t item = 0; item < items; item++) {
        float *dgain = dgains + 2 * item * h.width;
        head_backward(call, &h, item, dq, dkv, call->accumulate[0], call->accumulate[cross ? 1 : 0], dgain,
                      dgain + h.width);
    }
    for (int input = 2; input <= 3; input++) {
        if (!h.normalised || !ups_present(&call->input_gradients[input])) continue;
        ups_add_partials(dgains + (input - 2) * h.width, items, 2 * h.width, h.width, call->input_gradients[input].data,
                         call->accumulate[input]);
    }
    return UPS_OK;
}

const ups_kernel UPS_CPU(attention) = {.prepare = prepare, .forward = forward, .backward = backward};
