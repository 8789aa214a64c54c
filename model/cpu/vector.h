/* What the kernels share: vectors, rows of any float dtype read and written as float32, and parallel
 * loops.
 *
 * `f32v` is a vector of the compiler's own extension, one register of the instruction set: the same source for all.
 * Kernels compute in float32 whatever their tensors hold. A row that is bf16 or fp16 is converted to a
 * scratch buffer that stays in the first-level cache. */
#ifndef UPS_MODEL_CPU_VECTOR_H
#define UPS_MODEL_CPU_VECTOR_H

#include "base/half.h"
#include "model/cpu/kernels.h"
#include <math.h>
#include <omp.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

enum {
    UPS_LANES = 16,   /* what rows in scratch are padded to: whole vectors in every instruction set */
    UPS_CHUNK = 2048, /* elements an elementwise kernel handles at once: three scratch rows of 8 KiB fit the first-level
                         cache */
    UPS_SMALL = 16384,   /* elements below which starting threads costs more than it saves */
    UPS_ROW_BLOCKS = 64, /* partial sums over rows, at most */
};

/* One register of floats. */
#if defined(__AVX512F__)
enum { UPS_VECTOR = 16 };
#elif defined(__AVX2__)
enum { UPS_VECTOR = 8 };
#else
enum { UPS_VECTOR = 4 };
#endif
typedef float f32v __attribute__((vector_size(UPS_VECTOR * sizeof(float))));
/* The same, wherever it lies in memory. */
typedef float f32v_any __attribute__((vector_size(UPS_VECTOR * sizeof(float)), aligned(sizeof(float)), may_alias));

static inline f32v f32v_load(const float *from) {
    return *(const f32v_any *)(const void *)from;
}
static inline void f32v_store(float *to, f32v value) {
    *(f32v_any *)(void *)to = value;
}

#if defined(__AVX2__) && !defined(__AVX512F__)
/* What masks all but the first `count` lanes, of 0 to 8. */
static inline __m256i f32v_first(int64_t count) {
    static const int32_t ones[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i_u *)(const void *)(ones + 8 - count));
}
#endif

/* The first `count` lanes, all where it is larger; zeros beyond. Memory beyond them is not touched. */
static inline f32v f32v_load_first(const float *from, int64_t count) {
    if (count >= UPS_VECTOR) return f32v_load(from);
#if defined(__AVX512F__)
    return (f32v)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
#elif defined(__AVX2__)
    return (f32v)_mm256_maskload_ps(from, f32v_first(count));
#else
    f32v value = {0};
    for (int i = 0; i < count; i++) value[i] = from[i];
    return value;
#endif
}
static inline void f32v_store_first(float *to, f32v value, int64_t count) {
    if (count >= UPS_VECTOR) {
        f32v_store(to, value);
        return;
    }
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), (__m512)value);
#elif defined(__AVX2__) /* whole where it can be: AMD's processors take a dozen cycles for a store by a mask */
    __m128 part = _mm256_castps256_ps128((__m256)value);
    if (count & 4) {
        _mm_storeu_ps(to, part);
        part = _mm256_extractf128_ps((__m256)value, 1);
        to += 4;
    }
    if (count & 2) {
        _mm_storel_pi((__m64 *)(void *)to, part);
        part = _mm_movehl_ps(part, part);
        to += 2;
    }
    if (count & 1) _mm_store_ss(to, part);
#else
    for (int i = 0; i < count; i++) to[i] = value[i];
#endif
}

/* Of all lanes, halves with halves: as accurate as it is deterministic. */
static inline float f32v_sum(f32v v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
#elif defined(__AVX2__)
    __m128 four = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
    return (v[0] + v[2]) + (v[1] + v[3]);
#endif
}

typedef int32_t i32v __attribute__((vector_size(UPS_VECTOR * sizeof(int32_t))));

static inline f32v f32v_larger(f32v a, f32v b) {
    const i32v larger = a > b;
    return (f32v)(((i32v)a & larger) | ((i32v)b & ~larger));
}

/* The exponential, as sixteen at a time or one: e^x = 2^n e^r with r in [-ln2/2, ln2/2]; a polynomial of degree six for
 * e^r (relative error below 2e-7). Underflows to 0 below -87.3 and is clamped above 88. Written for the compiler to
 * vectorize. */
static inline float ups_exp(float x) {
    float clamped = x > 88.0f ? 88.0f : x; /* two steps, each of which is one instruction */
    clamped = clamped < -87.3f ? -87.3f : clamped;
    float shifted = clamped * 1.442695041f + 12582912.0f; /* 1.5 * 2^23: rounds to the nearest integer */
    float n = shifted - 12582912.0f;
    float r = clamped - n * 0.693145752f; /* ln 2 in two parts */
    r -= n * 1.42860677e-6f;
    float p = 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    int32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (int32_t)((uint32_t)(bits + 127) << 23);
    float power;
    memcpy(&power, &bits, sizeof power);
    return x < -87.3f ? 0.0f : p * power;
}

/* One element of a 16-bit dtype, UPS_BF16 or UPS_F16. Of FP16 by a call: in a loop its code would keep compilers from
 * splitting the loop by dtype. */
static inline float ups_f32_of_half(ups_dtype dtype, uint16_t half) {
    float value;
    if (dtype == UPS_BF16) return ups_f32_of_bf16(half);
    ups_f16_to_f32(&half, &value, 1);
    return value;
}
static inline uint16_t ups_half_of_f32(ups_dtype dtype, float value) {
    uint16_t half;
    if (dtype == UPS_BF16) return ups_bf16_of_f32(value);
    ups_f32_to_f16(&value, &half, 1);
    return half;
}

/* Rows of a 16-bit dtype. FP16 goes through base/half, which uses the processor's own conversions where it has any. */
static inline void ups_row_to_f32(ups_dtype dtype, const uint16_t *restrict from, float *restrict to, int64_t count) {
    if (dtype == UPS_F16) {
        ups_f16_to_f32(from, to, (size_t)count);
        return;
    }
    for (int64_t i = 0; i < count; i++) to[i] = ups_f32_of_bf16(from[i]);
}

static inline void ups_row_from_f32(ups_dtype dtype, const float *restrict from, uint16_t *restrict to, int64_t count) {
    if (dtype == UPS_F16) {
        ups_f32_to_f16(from, to, (size_t)count);
        return;
    }
    int64_t i = 0;
#ifdef __AVX512BF16__ /* flushes subnormal numbers, which do not matter to a network */
    for (; i + 16 <= count; i += 16) {
        __m256bh half = _mm512_cvtneps_pbh(_mm512_loadu_ps(from + i));
        memcpy(to + i, &half, sizeof half);
    }
#endif
    for (; i < count; i++) to[i] = ups_bf16_of_f32(from[i]);
}

/* values += from. */
static inline void ups_row_add(ups_dtype dtype, const uint16_t *restrict from, float *restrict values, int64_t count) {
    for (int64_t start = 0; dtype == UPS_F16 && start < count; start += 64) {
        float row[64];
        int64_t n = count - start < 64 ? count - start : 64;
        ups_f16_to_f32(from + start, row, (size_t)n);
        for (int64_t i = 0; i < n; i++) values[start + i] += row[i];
    }
    for (int64_t i = 0; dtype == UPS_BF16 && i < count; i++) values[i] += ups_f32_of_bf16(from[i]);
}

/* The same past the caches, for what is written in bulk and not read at once. Ends with ups_stream_end. */
static inline void ups_row_stream(ups_dtype dtype, const float *restrict from, uint16_t *restrict to, int64_t count) {
#ifdef __AVX512BF16__
    if (dtype == UPS_BF16 && (uintptr_t)to % 64 == 0 && count % 32 == 0) {
        for (int64_t i = 0; i < count; i += 32) {
            __m512bh half = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + i + 16), _mm512_loadu_ps(from + i));
            _mm512_stream_si512((void *)(to + i), (__m512i)half);
        }
        return;
    }
#endif
    ups_row_from_f32(dtype, from, to, count);
}

static inline void ups_stream_end(void) {
#ifdef __AVX512BF16__
    _mm_sfence();
#endif
}

/* `count` elements of a tensor from `offset` on as float32: the tensor's own memory, or `scratch` filled from it. */
static inline const float *ups_row_read(const ups_tensor *tensor, int64_t offset, int64_t count, float *scratch) {
    if (tensor->dtype == UPS_F32) return (const float *)tensor->data + offset;
    ups_row_to_f32(tensor->dtype, (const uint16_t *)tensor->data + offset, scratch, count);
    return scratch;
}

/* Where to put results for ups_row_write: the tensor's own memory when they can stand there as they are. */
static inline float *ups_row_target(const ups_tensor *tensor, int64_t offset, float *scratch, bool accumulate) {
    return tensor->dtype == UPS_F32 && !accumulate ? (float *)tensor->data + offset : scratch;
}

/* Finishes what was put at ups_row_target: rounds it, or adds it to what the tensor holds. */
static inline void ups_row_write(const ups_tensor *tensor, int64_t offset, int64_t count, float *restrict values,
                                 bool accumulate) {
    if (tensor->dtype == UPS_F32) {
        float *restrict to = (float *)tensor->data + offset;
        if (accumulate) {
            for (int64_t i = 0; i < count; i++) to[i] += values[i];
        }
        return; /* otherwise they are there already */
    }
    uint16_t *to = (uint16_t *)tensor->data + offset;
    if (accumulate) ups_row_add(tensor->dtype, to, values, count);
    ups_row_from_f32(tensor->dtype, values, to, count);
}

static inline bool ups_present(const ups_tensor *tensor) {
    return tensor->data != NULL;
}

static inline int64_t ups_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t ups_div_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Threads worth using for so many elements. */
static inline int ups_threads_for(const ups_device *device, int64_t elements) {
    return elements < UPS_SMALL ? 1 : ups_cpu_threads(device);
}

/* Rows [first, first + count) of block `block` when `rows` are cut into ups_row_blocks(rows) of nearly the same size:
 * by the shape alone. */
static inline int64_t ups_row_blocks(int64_t rows) {
    return ups_min(rows, UPS_ROW_BLOCKS);
}
static inline int64_t ups_row_block_start(int64_t rows, int64_t block) {
    return rows * block / ups_row_blocks(rows);
}

/* to[i] (+)= sum over blocks of partials[block * stride + i], in order. */
static inline void ups_add_partials(const float *partials, int64_t blocks, int64_t stride, int64_t width, float *to,
                                    bool accumulate) {
    for (int64_t start = 0; start < width; start += 64) {
        int64_t n = ups_min(64, width - start);
        float sum[64] = {0};
        for (int64_t block = 0; block < blocks; block++) {
            for (int64_t i = 0; i < n; i++) sum[i] += partials[block * stride + start + i];
        }
        for (int64_t i = 0; i < n; i++) to[start + i] = accumulate ? to[start + i] + sum[i] : sum[i];
    }
}

#endif
