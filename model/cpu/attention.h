/* What the kinds of attention kernels share: where a head's rows lie, and RMS norm of its queries and keys. */
#ifndef UPS_MODEL_CPU_ATTENTION_H
#define UPS_MODEL_CPU_ATTENTION_H

#include "model/cpu/windows.h"

typedef struct heads {
    int64_t batch, count, queries, keys, width;     /* width: d, of one head */
    int64_t in_group;                               /* heads whose q, k and v are packed together */
    int64_t padded_width;                           /* whole vectors */
    int64_t q_stride, k_stride, k_offset, v_offset; /* in elements of the packed rows */
    windows windows;                                /* of self-attention */
    const float *rotary;                            /* (T, d): cosines, then sines; NULL: none */
    int64_t rotary_stride;                          /* from those of a sample to those of the next; 0: all share them */
    const float *bias;                              /* (offsets, count); NULL: none */
    bool normalised;
    float scale, epsilon;
    const ups_tensor *q, *kv; /* the same when packed */
} heads;

static inline heads heads_of(const ups_op_call *call, bool cross) {
    const ups_tensor *q = &call->inputs[0], *kv = cross ? &call->inputs[1] : q;
    int64_t features = cross ? ups_shape_last(q->shape) : ups_shape_last(q->shape) / 3;
    heads h = {.batch = q->shape.size[0], .count = call->attributes->heads, .queries = q->shape.size[1]};
    h.q = q;
    h.kv = kv;
    h.keys = kv->shape.size[1];
    h.width = features / h.count;
    h.padded_width = ups_div_up(h.width, UPS_VECTOR) * UPS_VECTOR;
    h.q_stride = ups_shape_last(q->shape);
    h.k_stride = ups_shape_last(kv->shape);
    h.in_group = h.count / (call->attributes->groups > 1 ? call->attributes->groups : 1);
    h.k_offset = cross ? 0 : h.in_group * h.width;
    h.v_offset = h.k_offset + h.in_group * h.width;
    h.windows = windows_of(call->attributes, h.keys);
    h.rotary = call->inputs[4].data;
    h.rotary_stride = call->inputs[4].shape.rank == 3 ? h.keys * h.width : 0;
    h.bias = call->inputs[5].data;
    h.normalised = call->inputs[2].shape.rank > 0;
    h.scale = 1.0f / sqrtf((float)h.width);
    h.epsilon = call->attributes->epsilon;
    return h;
}

static inline bool is_cross(const ups_op_call *call) {
    return call->inputs[1].shape.rank > 0;
}

/* A row in scratch, whole vectors of it: what lies beyond its width is zero. */
static inline void load_row(const ups_tensor *from, int64_t offset, const heads *h, float *to) {
    int64_t i = 0;
    if (from->dtype == UPS_F32) {
        const float *row = (const float *)from->data + offset;
        for (; i < h->width; i += UPS_VECTOR) f32v_store(to + i, f32v_load_first(row + i, h->width - i));
    } else {
        ups_row_to_f32(from->dtype, (const uint16_t *)from->data + offset, to, h->width);
        for (i = h->width; i % UPS_VECTOR != 0; i++) to[i] = 0.0f;
    }
    for (; i < h->padded_width; i += UPS_VECTOR) f32v_store(to + i, (f32v){0});
}

static inline void scale_row(const heads *h, float factor, float *row) {
    for (int64_t i = 0; i < h->padded_width; i += UPS_VECTOR) f32v_store(row + i, f32v_load(row + i) * factor);
}

/* Where a head's rows and statistics lie. */
typedef struct head_place {
    int64_t q, k, v;      /* offsets of its first row in the packed tensors; q also in the output when not packed */
    int64_t out;          /* in the output */
    float *lse;           /* (Tq) */
    float *q_rms, *k_rms; /* stride `count`; NULL where not saved */
} head_place;

static inline head_place place_of(const ups_op_call *call, const heads *h, int64_t item) {
    int64_t sample = item / h->count, head = item % h->count, at = head * h->width;
    float *rms = h->normalised ? call->saved[1].data : NULL;
    int64_t packed = at + (h->q == h->kv ? 2 * (head / h->in_group) * h->in_group * h->width : 0);
    head_place p = {.q = sample * h->queries * h->q_stride + packed};
    p.k = sample * h->keys * h->k_stride + h->k_offset + packed;
    p.v = sample * h->keys * h->k_stride + h->v_offset + packed;
    p.out = sample * h->queries * h->count * h->width + at;
    p.lse = call->saved[0].data ? (float *)call->saved[0].data + item * h->queries : NULL;
    p.q_rms = rms ? rms + sample * h->queries * h->count + head : NULL;
    p.k_rms = rms ? rms + (h->batch * h->queries + sample * h->keys) * h->count + head : NULL;
    return p;
}

/* Through y = x * inverse * gain, from dy to dx in place; dgain += dy * x * inverse. Of rows in scratch, dgain among
 * them; `x` is filled. */
static inline void rms_backward(const heads *h, const ups_tensor *from, int64_t offset, float inverse,
                                const float *gain, float *dgain, float *x, float *dy) {
    load_row(from, offset, h, x);
    f32v products = {0};
    for (int64_t i = 0; i < h->padded_width; i += UPS_VECTOR) {
        f32v normal = f32v_load(x + i) * inverse, d = f32v_load(dy + i);
        f32v_store(x + i, normal);
        f32v_store(dgain + i, f32v_load(dgain + i) + d * normal);
        d *= i < h->width ? f32v_load_first(gain + i, h->width - i) : (f32v){0};
        f32v_store(dy + i, d);
        products += d * normal;
    }
    const float product = f32v_sum(products) / (float)h->width;
    for (int64_t i = 0; i < h->padded_width; i += UPS_VECTOR) {
        f32v_store(dy + i, inverse * (f32v_load(dy + i) - f32v_load(x + i) * product));
    }
}

/* A row in scratch to where it belongs, or added to what is there. */
static inline void store_row(const ups_tensor *to, int64_t offset, int64_t width, float *values, bool accumulate) {
    if (!ups_present(to)) return;
    if (to->dtype != UPS_F32) {
        ups_row_write(to, offset, width, values, accumulate);
        return;
    }
    float *row = (float *)to->data + offset;
    for (int64_t i = 0; i < width; i += UPS_VECTOR) {
        f32v value = f32v_load(values + i);
        if (accumulate) value += f32v_load_first(row + i, width - i);
        f32v_store_first(row + i, value, width - i);
    }
}

/* What backward writes for one head. */
typedef struct head_gradients {
    const ups_tensor *q, *kv; /* the same when packed; data NULL: not wanted */
    bool accumulate_q, accumulate_kv;
    float *gain_q, *gain_k; /* added to; (padded width) each */
    float *bias;            /* (offsets); NULL: not wanted */
} head_gradients;

#ifdef UPS_CPU_TILES
/* bf16 heads on AMX tiles. `scratch`: ups_amx_attention_bytes for a thread, aligned to 64 bytes. `item`: head `item %
 * count` of sample `item / count`. */
size_t ups_amx_attention_bytes(const heads *h);
void ups_amx_head_forward(const ups_op_call *call, const heads *h, int64_t item, void *scratch);
void ups_amx_head_backward(const ups_op_call *call, const heads *h, int64_t item, const head_gradients *gradients,
                           void *scratch);
#endif

#endif
