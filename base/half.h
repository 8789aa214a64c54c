/* FP16 (IEEE binary16) and BF16 in bulk, rounded to nearest even; CPU features chosen at run time (AVX-512, F16C,
 * NEON, scalar: the same bits from each). Values too large for FP16 become Inf; the caller that must not lose them
 * checks with ups_f32_range. */
#ifndef UPS_BASE_HALF_H
#define UPS_BASE_HALF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint16_t ups_f16;
typedef uint16_t ups_bf16;

#define UPS_F16_MAX 65504.0f

/* ---- one number ---- */

static inline uint32_t ups_bits_of_f32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float ups_f32_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* NaN stays NaN. */
static inline ups_bf16 ups_bf16_of_f32(float value) {
    uint32_t bits = ups_bits_of_f32(value);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t quiet_nan = bits >> 16 | 0x40;
    return (ups_bf16)((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded);
}

static inline float ups_f32_of_bf16(ups_bf16 half) {
    return ups_f32_of_bits((uint32_t)half << 16);
}

/* ---- many ---- */

void ups_f32_to_f16(const float *in, ups_f16 *out, size_t count);
void ups_f16_to_f32(const ups_f16 *in, float *out, size_t count);
void ups_f32_to_bf16(const float *in, ups_bf16 *out, size_t count);
void ups_bf16_to_f32(const ups_bf16 *in, float *out, size_t count);

typedef struct ups_f32_range_result {
    float minimum, maximum;  /* over the finite values; +Inf, -Inf when there are none */
    size_t non_finite;       /* NaN or Inf */
    size_t first_non_finite; /* index of the first; count when there is none */
} ups_f32_range_result;
ups_f32_range_result ups_f32_range(const float *values, size_t count);

/* The FP16 conversions on a path of one's own choice, for tests that compare them. */
typedef enum ups_half_path { UPS_HALF_SCALAR, UPS_HALF_NEON, UPS_HALF_F16C, UPS_HALF_AVX512 } ups_half_path;
bool ups_half_path_runs_here(ups_half_path path);
void ups_f32_to_f16_on(ups_half_path path, const float *in, ups_f16 *out, size_t count);
void ups_f16_to_f32_on(ups_half_path path, const ups_f16 *in, float *out, size_t count);

#endif
