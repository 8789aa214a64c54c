#include "pipeline/convert.h"

#include "base/half.h"
#include <stdint.h>
#include <string.h>

/* Elements converted before they are checked: few enough to still lie in the first-level cache. */
#define BLOCK 4096

#define F32_INFINITY 0x7f800000u
#define F16_INFINITY 0x7c00u

bool ups_convertible(ups_dtype from, ups_dtype to) {
    if (to == UPS_F32) return from != UPS_I32;
    return to == UPS_F16 && from == UPS_F16;
}

/* A value is finite when its exponent is not all ones; adding one to the exponent's last bit carries into the sign
 * exactly then. */
static bool f32_finite(const uint32_t *bits, size_t count) {
    uint32_t carry = 0;
    for (size_t i = 0; i < count; i++) carry |= (bits[i] & F32_INFINITY) + 0x00800000u;
    return !(carry & 0x80000000u);
}

static bool f16_finite(const uint16_t *bits, size_t count) {
    uint16_t carry = 0;
    for (size_t i = 0; i < count; i++) carry = (uint16_t)(carry | ((bits[i] & F16_INFINITY) + 0x0400u));
    return !(carry & 0x8000u);
}

static void f64_to_f32(const double *in, float *out, size_t count) {
    for (size_t i = 0; i < count; i++) out[i] = (float)in[i];
}

static bool convert_block(const uint8_t *in, ups_dtype from, uint8_t *out, ups_dtype to, size_t count) {
    if (from == to) {
        if (in != out) memcpy(out, in, count * ups_dtype_size(to));
        return to == UPS_F16 ? f16_finite((const uint16_t *)(const void *)out, count)
                             : f32_finite((const uint32_t *)(const void *)out, count);
    }
    float *floats = (float *)(void *)out;
    if (from == UPS_F16) {
        ups_f16_to_f32((const ups_f16 *)(const void *)in, floats, count);
        return f16_finite((const uint16_t *)(const void *)in, count);
    }
    if (from == UPS_BF16)
        ups_bf16_to_f32((const ups_bf16 *)(const void *)in, floats, count);
    else
        f64_to_f32((const double *)(const void *)in, floats, count);
    return f32_finite((const uint32_t *)(const void *)out, count);
}

bool ups_convert(const void *in, ups_dtype from, void *out, ups_dtype to, size_t count) {
    size_t in_bytes = ups_dtype_size(from), out_bytes = ups_dtype_size(to);
    bool finite = true;
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t length = count - at < BLOCK ? count - at : BLOCK;
        finite &= convert_block((const uint8_t *)in + at * in_bytes, from, (uint8_t *)out + at * out_bytes, to, length);
    }
    return finite;
}

void ups_count_non_finite(const void *values, ups_dtype dtype, size_t count, size_t *nan, size_t *infinite) {
    uint32_t infinity = dtype == UPS_F16 ? F16_INFINITY : F32_INFINITY;
    uint32_t magnitude_mask = dtype == UPS_F16 ? 0x7fffu : 0x7fffffffu;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = dtype == UPS_F16 ? ((const uint16_t *)values)[i] : ((const uint32_t *)values)[i];
        *nan += (bits & magnitude_mask) > infinity;
        *infinite += (bits & magnitude_mask) == infinity;
    }
}
