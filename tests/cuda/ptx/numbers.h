/* Numbers as bits: registers of PTX have a width, and instructions say how they are read. */
#ifndef UPS_TESTS_CUDA_PTX_NUMBERS_H
#define UPS_TESTS_CUDA_PTX_NUMBERS_H

#include "base/half.h"
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

#endif
