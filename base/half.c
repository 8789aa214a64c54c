/* Conversions in bulk. Each has one scalar definition; where the CPU has an instruction for it the bulk goes through
 * that, and the tail through the scalar code. All paths give the same bits, NaN included: a NaN stays quiet and keeps
 * its top bits, as the CPU's instructions have it. */
#include "base/half.h"

#include <math.h>
#include <stdatomic.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

static ups_f16 f16_of_f32(float value) {
    uint32_t bits = ups_bits_of_f32(value);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (ups_f16)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff)); /* NaN */
    if (magnitude >= 0x47800000) return (ups_f16)(sign | 0x7c00);                            /* 65536 and up */
    if (magnitude <
        0x38800000) { /* below 2^-14: subnormal in FP16; 2^-1's spacing is FP16's smallest step, so adding it rounds */
        return (ups_f16)(sign | (ups_bits_of_f32(ups_f32_of_bits(magnitude) + 0.5f) - 0x3f000000));
    }
    uint32_t odd = magnitude >> 13 & 1;
    return (ups_f16)(sign |
                     (magnitude - 0x38000000 + 0xfff + odd) >> 13); /* a carry moves to the exponent, up to Inf */
}

static float f32_of_f16(ups_f16 half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 0x1f, mantissa = half & 0x3ff;
    if (exponent == 0) return ups_f32_of_bits(sign | ups_bits_of_f32((float)mantissa * 0x1p-24f));
    if (exponent == 31) return ups_f32_of_bits(sign | 0x7f800000 | (mantissa ? 0x400000 | mantissa << 13 : 0));
    return ups_f32_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* Bulk forms convert as many numbers as they have whole vectors of, and return how many. */
#if defined(__x86_64__)
__attribute__((target("avx512f"))) static size_t f32_to_f16_avx512(const float *in, ups_f16 *out, size_t count) {
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m256i half = _mm512_cvtps_ph(_mm512_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm256_storeu_si256((__m256i *)(out + i), half);
    }
    return i;
}

__attribute__((target("avx512f"))) static size_t f16_to_f32_avx512(const ups_f16 *in, float *out, size_t count) {
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        _mm512_storeu_ps(out + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(in + i))));
    }
    return i;
}

__attribute__((target("avx,f16c"))) static size_t f32_to_f16_f16c(const float *in, ups_f16 *out, size_t count) {
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(out + i), half);
    }
    return i;
}

__attribute__((target("avx,f16c"))) static size_t f16_to_f32_f16c(const ups_f16 *in, float *out, size_t count) {
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in + i))));
    }
    return i;
}

static bool cpu_has_f16c(void) { /* asked by CPUID: clang 14 does not know the name */
    unsigned a, b, c = 0, d;
    return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}
#elif defined(__aarch64__)
static size_t f32_to_f16_neon(const float *in, ups_f16 *out, size_t count) {
    size_t i = 0;
    for (; i + 4 <= count; i += 4) vst1_u16(out + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(in + i))));
    return i;
}

static size_t f16_to_f32_neon(const ups_f16 *in, float *out, size_t count) {
    size_t i = 0;
    for (; i + 4 <= count; i += 4) vst1q_f32(out + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(in + i))));
    return i;
}
#endif

void ups_f32_to_f16_on(ups_half_path path, const float *in, ups_f16 *out, size_t count) {
    size_t i = 0;
#if defined(__x86_64__)
    if (path == UPS_HALF_AVX512)
        i = f32_to_f16_avx512(in, out, count);
    else if (path == UPS_HALF_F16C)
        i = f32_to_f16_f16c(in, out, count);
#elif defined(__aarch64__)
    if (path == UPS_HALF_NEON) i = f32_to_f16_neon(in, out, count);
#endif
    for (; i < count; i++) out[i] = f16_of_f32(in[i]);
}

void ups_f16_to_f32_on(ups_half_path path, const ups_f16 *in, float *out, size_t count) {
    size_t i = 0;
#if defined(__x86_64__)
    if (path == UPS_HALF_AVX512)
        i = f16_to_f32_avx512(in, out, count);
    else if (path == UPS_HALF_F16C)
        i = f16_to_f32_f16c(in, out, count);
#elif defined(__aarch64__)
    if (path == UPS_HALF_NEON) i = f16_to_f32_neon(in, out, count);
#endif
    for (; i < count; i++) out[i] = f32_of_f16(in[i]);
}

bool ups_half_path_runs_here(ups_half_path path) {
#if defined(__x86_64__)
    if (path == UPS_HALF_F16C) return cpu_has_f16c();
    if (path == UPS_HALF_AVX512) return __builtin_cpu_supports("avx512f");
#elif defined(__aarch64__)
    if (path == UPS_HALF_NEON) return true;
#endif
    return path == UPS_HALF_SCALAR;
}

static ups_half_path best_path(void) {
    static atomic_int known = -1; /* CPUID takes microseconds on virtual machines */
    int path = atomic_load_explicit(&known, memory_order_relaxed);
    if (path >= 0) return (ups_half_path)path;
    path = UPS_HALF_AVX512;
    while (!ups_half_path_runs_here((ups_half_path)path)) path--;
    atomic_store_explicit(&known, path, memory_order_relaxed);
    return (ups_half_path)path;
}

void ups_f32_to_f16(const float *in, ups_f16 *out, size_t count) {
    ups_f32_to_f16_on(best_path(), in, out, count);
}

void ups_f16_to_f32(const ups_f16 *in, float *out, size_t count) {
    ups_f16_to_f32_on(best_path(), in, out, count);
}

/* BF16 is the upper half of an FP32 number: integer arithmetic that the compiler vectorizes. AVX-512's own BF16
 * instruction is not used, since it flushes subnormal numbers. */
void ups_f32_to_bf16(const float *restrict in, ups_bf16 *restrict out, size_t count) {
    for (size_t i = 0; i < count; i++) out[i] = ups_bf16_of_f32(in[i]);
}

void ups_bf16_to_f32(const ups_bf16 *restrict in, float *restrict out, size_t count) {
    for (size_t i = 0; i < count; i++) out[i] = ups_f32_of_bf16(in[i]);
}

/* A float's bits as an integer in the same order as the floats, -0 just below +0: integer minima and maxima vectorize,
 * those of floats do not without giving up NaN. Its own inverse. */
static inline int32_t ordered(int32_t bits) {
    return bits ^ (bits >> 31 & 0x7fffffff);
}

ups_f32_range_result ups_f32_range(const float *values, size_t count) {
    const int32_t infinity = 0x7f800000;
    int32_t lowest = ordered(infinity), highest = ordered((int32_t)0xff800000);
    size_t non_finite = 0;
    for (size_t i = 0; i < count; i++) {
        int32_t bits = (int32_t)ups_bits_of_f32(values[i]);
        bool finite = (bits & infinity) != infinity;
        int32_t key = ordered(bits);
        int32_t low = finite ? key : ordered(infinity), high = finite ? key : ordered((int32_t)0xff800000);
        lowest = low < lowest ? low : lowest;
        highest = high > highest ? high : highest;
        non_finite += !finite;
    }
    ups_f32_range_result result = {ups_f32_of_bits((uint32_t)ordered(lowest)),
                                   ups_f32_of_bits((uint32_t)ordered(highest)), non_finite, count};
    for (size_t i = 0; non_finite > 0 && i < count; i++) {
        if (isfinite(values[i])) continue;
        result.first_non_finite = i;
        break;
    }
    return result;
}
