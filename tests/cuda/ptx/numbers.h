/* Numbers as bits: registers of PTX have a width, and instructions say how they are read. */
#ifndef UPS_TESTS_CUDA_PTX_NUMBERS_H
#define UPS_TESTS_CUDA_PTX_NUMBERS_H

#include "base/half.h"
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float ptx_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t ptx_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double ptx_double(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t ptx_bits64(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float ptx_from_f16(uint16_t bits) {
    float value;
    ups_f16 half;
    memcpy(&half, &bits, sizeof half);
    ups_f16_to_f32(&half, &value, 1);
    return value;
}

static inline uint16_t ptx_to_f16(float value) {
    uint16_t bits;
    ups_f16 half;
    ups_f32_to_f16(&value, &half, 1);
    memcpy(&bits, &half, sizeof bits);
    return bits;
}

static inline float ptx_from_bf16(uint16_t bits) {
    return ptx_float((uint32_t)bits << 16);
}

/* To nearest even; a NaN is 0x7fff (PTX ISA, cvt). */
static inline uint16_t ptx_to_bf16(float value) {
    uint32_t bits = ptx_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* FP8 to nearest even; what is too large, an infinity among it, becomes `most`, and a NaN 0x7f (PTX ISA,
 * cvt.satfinite). */
static inline uint8_t ptx_to_fp8(float value, int mantissa, int bias, uint8_t most) {
    if (isnan(value)) return 0x7f;
    const uint8_t sign = signbit(value) ? 0x80 : 0;
    const int least = 1 - bias, exponent = value == 0.0f || ilogbf(value) < least ? least : ilogbf(value);
    if (exponent > bias + 1) return sign | most;
    /* A normal number's first bit, which is not stored, counts as one of the exponent. */
    const int units = (int)rint(ldexp(fabs((double)value), mantissa - exponent));
    const int bits = ((exponent - least) << mantissa) + units;
    return sign | (uint8_t)(bits < most ? bits : most);
}

static inline uint8_t ptx_to_e4m3(float value) {
    return ptx_to_fp8(value, 3, 7, 0x7e);
}

static inline uint8_t ptx_to_e5m2(float value) {
    return ptx_to_fp8(value, 2, 15, 0x7b);
}

#endif
