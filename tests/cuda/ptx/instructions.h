/* Instructions of PTX that take values and give one: `add.rn.f32 d, a, b` is called as `d = ptx_add_f32(a, b)`.
 *
 * The translator makes the name: the instruction's, with underscores, without the modifiers that say nothing of the
 * result here (translate.py, WITHOUT_MEANING). One that is not in this file does not compile, and the compiler names
 * the line of the .cu file. Values are bits; semantics are those of the PTX ISA 9.0, section 9.7, except that
 *
 *   - approximate instructions (ex2.approx, rsqrt.approx, …) are exact to float32,
 *   - .ftz keeps subnormal numbers. */
#ifndef UPS_TESTS_CUDA_PTX_INSTRUCTIONS_H
#define UPS_TESTS_CUDA_PTX_INSTRUCTIONS_H

#include "tests/cuda/ptx/numbers.h"
#include <math.h>
#include <stdbool.h>

/* ---- integers ------------------------------------------------------------------------------------------------------
 */

/* type, C type, unsigned C type, its bits */
#define PTX_INTEGERS(X)                                                                                                \
    X(u16, uint16_t, uint16_t, 16)                                                                                     \
    X(s16, int16_t, uint16_t, 16)                                                                                      \
    X(u32, uint32_t, uint32_t, 32)                                                                                     \
    X(s32, int32_t, uint32_t, 32)                                                                                      \
    X(u64, uint64_t, uint64_t, 64)                                                                                     \
    X(s64, int64_t, uint64_t, 64)

/* Sums and products are taken without a sign: they wrap. Division by zero gives all ones, as on the hardware. */
#define PTX_ARITHMETIC(type, c, u, bits)                                                                               \
    static inline u ptx_add_##type(u a, u b) {                                                                         \
        return (u)(a + b);                                                                                             \
    }                                                                                                                  \
    static inline u ptx_sub_##type(u a, u b) {                                                                         \
        return (u)(a - b);                                                                                             \
    }                                                                                                                  \
    static inline u ptx_mul_lo_##type(u a, u b) {                                                                      \
        return (u)((uint64_t)a * b);                                                                                   \
    }                                                                                                                  \
    static inline u ptx_mad_lo_##type(u a, u b, u d) {                                                                 \
        return (u)((uint64_t)a * b + d);                                                                               \
    }                                                                                                                  \
    static inline u ptx_neg_##type(u a) {                                                                              \
        return (u)(0 - a);                                                                                             \
    }                                                                                                                  \
    static inline u ptx_abs_##type(u a) {                                                                              \
        return (c)a < 0 ? (u)(0 - a) : a;                                                                              \
    }                                                                                                                  \
    static inline u ptx_min_##type(u a, u b) {                                                                         \
        return (c)a < (c)b ? a : b;                                                                                    \
    }                                                                                                                  \
    static inline u ptx_max_##type(u a, u b) {                                                                         \
        return (c)a > (c)b ? a : b;                                                                                    \
    }                                                                                                                  \
    static inline u ptx_div_##type(u a, u b) {                                                                         \
        return b == 0 ? (u) ~(u)0 : (c)-1 < 0 && b == (u) ~(u)0 ? (u)(0 - a) : (u)((c)a / (c)b);                       \
    }                                                                                                                  \
    static inline u ptx_rem_##type(u a, u b) {                                                                         \
        return b == 0 ? a : (c)-1 < 0 && b == (u) ~(u)0 ? (u)0 : (u)((c)a % (c)b);                                     \
    }                                                                                                                  \
    static inline u ptx_shr_##type(u a, uint32_t n) {                                                                  \
        return n < bits ? (u)((c)a >> n) : (c)-1 < 0 && (c)a < 0 ? (u) ~(u)0 : (u)0;                                   \
    }                                                                                                                  \
    static inline bool ptx_setp_eq_##type(u a, u b) {                                                                  \
        return a == b;                                                                                                 \
    }                                                                                                                  \
    static inline bool ptx_setp_ne_##type(u a, u b) {                                                                  \
        return a != b;                                                                                                 \
    }                                                                                                                  \
    static inline bool ptx_setp_lt_##type(u a, u b) {                                                                  \
        return (c)a < (c)b;                                                                                            \
    }                                                                                                                  \
    static inline bool ptx_setp_le_##type(u a, u b) {                                                                  \
        return (c)a <= (c)b;                                                                                           \
    }                                                                                                                  \
    static inline bool ptx_setp_gt_##type(u a, u b) {                                                                  \
        return (c)a > (c)b;                                                                                            \
    }                                                                                                                  \
    static inline bool ptx_setp_ge_##type(u a, u b) {                                                                  \
        return (c)a >= (c)b;                                                                                           \
    }                                                                                                                  \
    static inline bool ptx_setp_lo_##type(u a, u b) {                                                                  \
        return a < b;                                                                                                  \
    }                                                                                                                  \
    static inline bool ptx_setp_ls_##type(u a, u b) {                                                                  \
        return a <= b;                                                                                                 \
    }                                                                                                                  \
    static inline bool ptx_setp_hi_##type(u a, u b) {                                                                  \
        return a > b;                                                                                                  \
    }                                                                                                                  \
    static inline bool ptx_setp_hs_##type(u a, u b) {                                                                  \
        return a >= b;                                                                                                 \
    }                                                                                                                  \
    static inline u ptx_selp_##type(u a, u b, bool p) {                                                                \
        return p ? a : b;                                                                                              \
    }                                                                                                                  \
    static inline u ptx_exch_##type(u a, u b) {                                                                        \
        return b;                                                                                                      \
    }
PTX_INTEGERS(PTX_ARITHMETIC)

#define PTX_WIDE(type, c, wide_type, wide_c, wide_u, u, bits)                                                          \
    static inline wide_u ptx_mul_wide_##type(u a, u b) {                                                               \
        return (wide_u)((wide_c)(c)a * (wide_c)(c)b);                                                                  \
    }                                                                                                                  \
    static inline wide_u ptx_mad_wide_##type(u a, u b, wide_u d) {                                                     \
        return (wide_u)((wide_u)((wide_c)(c)a * (wide_c)(c)b) + d);                                                    \
    }                                                                                                                  \
    static inline u ptx_mul_hi_##type(u a, u b) {                                                                      \
        return (u)((wide_c)(c)a * (wide_c)(c)b >> bits);                                                               \
    }                                                                                                                  \
    static inline u ptx_mad_hi_##type(u a, u b, u d) {                                                                 \
        return (u)(ptx_mul_hi_##type(a, b) + d);                                                                       \
    }
PTX_WIDE(u16, uint16_t, u32, uint32_t, uint32_t, uint16_t, 16)
PTX_WIDE(s16, int16_t, s32, int32_t, uint32_t, uint16_t, 16)
PTX_WIDE(u32, uint32_t, u64, uint64_t, uint64_t, uint32_t, 32)
PTX_WIDE(s32, int32_t, s64, int64_t, uint64_t, uint32_t, 32)
__extension__ typedef unsigned __int128 ptx_u128;
__extension__ typedef __int128 ptx_s128;
static inline uint64_t ptx_mul_hi_u64(uint64_t a, uint64_t b) {
    return (uint64_t)((ptx_u128)a * b >> 64);
}
static inline uint64_t ptx_mul_hi_s64(uint64_t a, uint64_t b) {
    return (uint64_t)((ptx_s128)(int64_t)a * (int64_t)b >> 64);
}

#define PTX_BITS(type, u, bits)                                                                                        \
    static inline u ptx_and_##type(u a, u b) {                                                                         \
        return a & b;                                                                                                  \
    }                                                                                                                  \
    static inline u ptx_or_##type(u a, u b) {                                                                          \
        return a | b;                                                                                                  \
    }                                                                                                                  \
    static inline u ptx_xor_##type(u a, u b) {                                                                         \
        return a ^ b;                                                                                                  \
    }                                                                                                                  \
    static inline u ptx_not_##type(u a) {                                                                              \
        return (u)~a;                                                                                                  \
    }                                                                                                                  \
    static inline u ptx_shl_##type(u a, uint32_t n) {                                                                  \
        return n < bits ? (u)((uint64_t)a << n) : (u)0;                                                                \
    }                                                                                                                  \
    static inline u ptx_shr_##type(u a, uint32_t n) {                                                                  \
        return n < bits ? (u)(a >> n) : (u)0;                                                                          \
    }                                                                                                                  \
    static inline u ptx_selp_##type(u a, u b, bool p) {                                                                \
        return p ? a : b;                                                                                              \
    }                                                                                                                  \
    static inline u ptx_exch_##type(u a, u b) {                                                                        \
        return b;                                                                                                      \
    }                                                                                                                  \
    static inline bool ptx_setp_eq_##type(u a, u b) {                                                                  \
        return a == b;                                                                                                 \
    }                                                                                                                  \
    static inline bool ptx_setp_ne_##type(u a, u b) {                                                                  \
        return a != b;                                                                                                 \
    }
PTX_BITS(b16, uint16_t, 16)
PTX_BITS(b32, uint32_t, 32)
PTX_BITS(b64, uint64_t, 64)

static inline bool ptx_and_pred(bool a, bool b) {
    return a && b;
}
static inline bool ptx_or_pred(bool a, bool b) {
    return a || b;
}
static inline bool ptx_xor_pred(bool a, bool b) {
    return a != b;
}
static inline bool ptx_not_pred(bool a) {
    return !a;
}

static inline uint32_t ptx_inc_u32(uint32_t a, uint32_t limit) {
    return a >= limit ? 0 : a + 1;
}
static inline uint32_t ptx_dec_u32(uint32_t a, uint32_t limit) {
    return a == 0 || a > limit ? limit : a - 1;
}
static inline uint32_t ptx_popc_b32(uint32_t a) {
    return (uint32_t)__builtin_popcount(a);
}
static inline uint32_t ptx_popc_b64(uint64_t a) {
    return (uint32_t)__builtin_popcountll(a);
}
static inline uint32_t ptx_clz_b32(uint32_t a) {
    return a ? (uint32_t)__builtin_clz(a) : 32;
}
static inline uint32_t ptx_clz_b64(uint64_t a) {
    return a ? (uint32_t)__builtin_clzll(a) : 64;
}
static inline uint32_t ptx_brev_b32(uint32_t a) {
    uint32_t reversed = 0;
    for (int i = 0; i < 32; i++) reversed |= (a >> i & 1) << (31 - i);
    return reversed;
}

/* The low `count` bits. */
static inline uint64_t ptx_low_bits(uint32_t count) {
    return count >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << count) - 1;
}
static inline uint32_t ptx_bfi_b32(uint32_t from, uint32_t into, uint32_t position, uint32_t length) {
    position &= 0xff, length &= 0xff;
    uint32_t mask = position < 32 ? (uint32_t)(ptx_low_bits(length) << position) : 0;
    return (position < 32 ? from << position & mask : 0) | (into & ~mask);
}
static inline uint64_t ptx_bfi_b64(uint64_t from, uint64_t into, uint32_t position, uint32_t length) {
    position &= 0xff, length &= 0xff;
    uint64_t mask = position < 64 ? ptx_low_bits(length) << position : 0;
    return (position < 64 ? from << position & mask : 0) | (into & ~mask);
}
static inline uint32_t ptx_bfe_u32(uint32_t from, uint32_t position, uint32_t length) {
    position &= 0xff, length &= 0xff;
    return position < 32 ? (uint32_t)((from >> position) & ptx_low_bits(length)) : 0;
}
static inline uint64_t ptx_bfe_u64(uint64_t from, uint32_t position, uint32_t length) {
    position &= 0xff, length &= 0xff;
    return position < 64 ? (from >> position) & ptx_low_bits(length) : 0;
}
/* Beyond the register stands its sign. */
static inline uint32_t ptx_bfe_s32(uint32_t from, uint32_t position, uint32_t length) {
    position &= 0xff, length &= 0xff;
    if (length == 0) return 0;
    int64_t shifted = (int64_t)(int32_t)from >> (position > 63 ? 63 : position);
    uint32_t unused = length > 64 ? 0 : 64 - length;
    return (uint32_t)((int64_t)((uint64_t)shifted << unused) >> unused);
}
/* Bytes of b:a by the nibbles of the selector; bit 3 of a nibble copies the byte's sign. */
static inline uint32_t ptx_prmt_b32(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t nibble = selector >> 4 * i & 15, byte = (uint32_t)(bytes >> 8 * (nibble & 7)) & 0xff;
        if (nibble & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << 8 * i;
    }
    return result;
}
static inline uint32_t ptx_lop3_b32(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t result = 0;
    for (int i = 0; i < 8; i++) {
        if (!(table >> i & 1)) continue;
        result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    }
    return result;
}
static inline uint32_t ptx_shf_l_wrap_b32(uint32_t a, uint32_t b, uint32_t n) {
    return (uint32_t)(((uint64_t)b << 32 | a) << (n & 31) >> 32);
}
static inline uint32_t ptx_shf_l_clamp_b32(uint32_t a, uint32_t b, uint32_t n) {
    return n >= 32 ? a : ptx_shf_l_wrap_b32(a, b, n);
}
static inline uint32_t ptx_shf_r_wrap_b32(uint32_t a, uint32_t b, uint32_t n) {
    return (uint32_t)(((uint64_t)b << 32 | a) >> (n & 31));
}
static inline uint32_t ptx_shf_r_clamp_b32(uint32_t a, uint32_t b, uint32_t n) {
    return n >= 32 ? b : ptx_shf_r_wrap_b32(a, b, n);
}

/* ---- floating point ------------------------------------------------------------------------------------------------
 */

/* A family of unary, binary and comparing instructions of one type. min and max of a NaN and a number are the number.
 */
#define PTX_FLOATS(type, u, c, number, bits, s)                                                                        \
    static inline u ptx_add_##type(u a, u b) {                                                                         \
        return bits(number(a) + number(b));                                                                            \
    }                                                                                                                  \
    static inline u ptx_sub_##type(u a, u b) {                                                                         \
        return bits(number(a) - number(b));                                                                            \
    }                                                                                                                  \
    static inline u ptx_mul_##type(u a, u b) {                                                                         \
        return bits(number(a) * number(b));                                                                            \
    }                                                                                                                  \
    static inline u ptx_div_##type(u a, u b) {                                                                         \
        return bits(number(a) / number(b));                                                                            \
    }                                                                                                                  \
    static inline u ptx_fma_##type(u a, u b, u d) {                                                                    \
        return bits(fma##s(number(a), number(b), number(d)));                                                          \
    }                                                                                                                  \
    static inline u ptx_min_##type(u a, u b) {                                                                         \
        return bits(fmin##s(number(a), number(b)));                                                                    \
    }                                                                                                                  \
    static inline u ptx_max_##type(u a, u b) {                                                                         \
        return bits(fmax##s(number(a), number(b)));                                                                    \
    }                                                                                                                  \
    static inline u ptx_neg_##type(u a) {                                                                              \
        return bits(-number(a));                                                                                       \
    }                                                                                                                  \
    static inline u ptx_abs_##type(u a) {                                                                              \
        return bits(fabs##s(number(a)));                                                                               \
    }                                                                                                                  \
    static inline u ptx_rcp_##type(u a) {                                                                              \
        return bits(1 / number(a));                                                                                    \
    }                                                                                                                  \
    static inline u ptx_sqrt_##type(u a) {                                                                             \
        return bits(sqrt##s(number(a)));                                                                               \
    }                                                                                                                  \
    static inline u ptx_rsqrt_##type(u a) {                                                                            \
        return bits((c)(1 / sqrt((double)number(a))));                                                                 \
    }                                                                                                                  \
    static inline u ptx_copysign_##type(u a, u b) {                                                                    \
        return bits(copysign##s(number(b), number(a)));                                                                \
    }                                                                                                                  \
    static inline u ptx_selp_##type(u a, u b, bool p) {                                                                \
        return p ? a : b;                                                                                              \
    }                                                                                                                  \
    static inline bool ptx_setp_nan_##type(u a, u b) {                                                                 \
        return isnan(number(a)) || isnan(number(b));                                                                   \
    }                                                                                                                  \
    static inline bool ptx_setp_num_##type(u a, u b) {                                                                 \
        return !ptx_setp_nan_##type(a, b);                                                                             \
    }                                                                                                                  \
    static inline bool ptx_setp_eq_##type(u a, u b) {                                                                  \
        return number(a) == number(b);                                                                                 \
    }                                                                                                                  \
    static inline bool ptx_setp_ne_##type(u a, u b) {                                                                  \
        return number(a) < number(b) || number(a) > number(b);                                                         \
    }                                                                                                                  \
    static inline bool ptx_setp_lt_##type(u a, u b) {                                                                  \
        return number(a) < number(b);                                                                                  \
    }                                                                                                                  \
    static inline bool ptx_setp_le_##type(u a, u b) {                                                                  \
        return number(a) <= number(b);                                                                                 \
    }                                                                                                                  \
    static inline bool ptx_setp_gt_##type(u a, u b) {                                                                  \
        return number(a) > number(b);                                                                                  \
    }                                                                                                                  \
    static inline bool ptx_setp_ge_##type(u a, u b) {                                                                  \
        return number(a) >= number(b);                                                                                 \
    }                                                                                                                  \
    static inline bool ptx_setp_equ_##type(u a, u b) {                                                                 \
        return !ptx_setp_ne_##type(a, b);                                                                              \
    }                                                                                                                  \
    static inline bool ptx_setp_neu_##type(u a, u b) {                                                                 \
        return number(a) != number(b);                                                                                 \
    }                                                                                                                  \
    static inline bool ptx_setp_ltu_##type(u a, u b) {                                                                 \
        return !(number(a) >= number(b));                                                                              \
    }                                                                                                                  \
    static inline bool ptx_setp_leu_##type(u a, u b) {                                                                 \
        return !(number(a) > number(b));                                                                               \
    }                                                                                                                  \
    static inline bool ptx_setp_gtu_##type(u a, u b) {                                                                 \
        return !(number(a) <= number(b));                                                                              \
    }                                                                                                                  \
    static inline bool ptx_setp_geu_##type(u a, u b) {                                                                 \
        return !(number(a) < number(b));                                                                               \
    }
PTX_FLOATS(f32, uint32_t, float, ptx_float, ptx_bits, f)
PTX_FLOATS(f64, uint64_t, double, ptx_double, ptx_bits64, )

/* Of a NaN and a number: NaN. */
static inline uint32_t ptx_min_NaN_f32(uint32_t a, uint32_t b) {
    return isnan(ptx_float(a)) || isnan(ptx_float(b)) ? 0x7fffffffu : ptx_min_f32(a, b);
}

static inline uint32_t ptx_saturate(uint32_t a) {
    float x = ptx_float(a);
    return ptx_bits(x > 0 ? x < 1 ? x : 1 : 0); /* of a NaN: +0 */
}
static inline uint32_t ptx_add_sat_f32(uint32_t a, uint32_t b) {
    return ptx_saturate(ptx_add_f32(a, b));
}
static inline uint32_t ptx_mul_sat_f32(uint32_t a, uint32_t b) {
    return ptx_saturate(ptx_mul_f32(a, b));
}
static inline uint32_t ptx_fma_sat_f32(uint32_t a, uint32_t b, uint32_t d) {
    return ptx_saturate(ptx_fma_f32(a, b, d));
}
static inline uint32_t ptx_ex2_f32(uint32_t a) {
    return ptx_bits(exp2f(ptx_float(a)));
}
static inline uint32_t ptx_lg2_f32(uint32_t a) {
    return ptx_bits(log2f(ptx_float(a)));
}
static inline uint32_t ptx_sin_f32(uint32_t a) {
    return ptx_bits(sinf(ptx_float(a)));
}
static inline uint32_t ptx_cos_f32(uint32_t a) {
    return ptx_bits(cosf(ptx_float(a)));
}
static inline uint32_t ptx_tanh_f32(uint32_t a) {
    return ptx_bits(tanhf(ptx_float(a)));
}

/* fma rounded down, up, to zero: in float64 the product is exact, and the sum is off by what is told apart here. */
static inline uint32_t ptx_fma_directed(uint32_t a, uint32_t b, uint32_t d, int up, int to_zero) {
    double product = (double)ptx_float(a) * (double)ptx_float(b), addend = (double)ptx_float(d);
    double sum = product + addend, other = sum - product, rest = (product - (sum - other)) + (addend - other);
    float nearest = (float)sum;
    double beyond = ((double)nearest - sum) - rest; /* > 0: nearest is above the exact sum */
    if (to_zero) up = sum < 0;
    if (up && beyond < 0) return ptx_bits(nextafterf(nearest, INFINITY));
    if (!up && beyond > 0) return ptx_bits(nextafterf(nearest, -INFINITY));
    return ptx_bits(nearest);
}
static inline uint32_t ptx_fma_rm_f32(uint32_t a, uint32_t b, uint32_t d) {
    return ptx_fma_directed(a, b, d, 0, 0);
}
static inline uint32_t ptx_fma_rp_f32(uint32_t a, uint32_t b, uint32_t d) {
    return ptx_fma_directed(a, b, d, 1, 0);
}
static inline uint32_t ptx_fma_rz_f32(uint32_t a, uint32_t b, uint32_t d) {
    return ptx_fma_directed(a, b, d, 0, 1);
}
static inline uint32_t ptx_add_rz_f32(uint32_t a, uint32_t b) {
    return ptx_fma_directed(a, ptx_bits(1.0f), b, 0, 1);
}

/* Half precision: computed in float32 and rounded once. A product of two is exact there, so that fma is right but for
 * sums that lie halfway. */
#define PTX_HALVES(type, from, to)                                                                                     \
    static inline uint16_t ptx_add_##type(uint16_t a, uint16_t b) {                                                    \
        return to(from(a) + from(b));                                                                                  \
    }                                                                                                                  \
    static inline uint16_t ptx_sub_##type(uint16_t a, uint16_t b) {                                                    \
        return to(from(a) - from(b));                                                                                  \
    }                                                                                                                  \
    static inline uint16_t ptx_mul_##type(uint16_t a, uint16_t b) {                                                    \
        return to(from(a) * from(b));                                                                                  \
    }                                                                                                                  \
    static inline uint16_t ptx_fma_##type(uint16_t a, uint16_t b, uint16_t d) {                                        \
        return to(fmaf(from(a), from(b), from(d)));                                                                    \
    }                                                                                                                  \
    static inline uint16_t ptx_neg_##type(uint16_t a) {                                                                \
        return a ^ 0x8000;                                                                                             \
    }                                                                                                                  \
    static inline uint16_t ptx_abs_##type(uint16_t a) {                                                                \
        return a & 0x7fff;                                                                                             \
    }                                                                                                                  \
    static inline uint16_t ptx_min_##type(uint16_t a, uint16_t b) {                                                    \
        return to(fminf(from(a), from(b)));                                                                            \
    }                                                                                                                  \
    static inline uint16_t ptx_max_##type(uint16_t a, uint16_t b) {                                                    \
        return to(fmaxf(from(a), from(b)));                                                                            \
    }                                                                                                                  \
    static inline uint32_t ptx_cvt_f32_##type(uint16_t a) {                                                            \
        return ptx_bits(from(a));                                                                                      \
    }                                                                                                                  \
    static inline uint16_t ptx_cvt_##type##_f32(uint32_t a) {                                                          \
        return to(ptx_float(a));                                                                                       \
    }                                                                                                                  \
    static inline uint32_t ptx_cvt_##type##x2_f32(uint32_t high, uint32_t low) {                                       \
        return (uint32_t)to(ptx_float(high)) << 16 | to(ptx_float(low));                                               \
    }                                                                                                                  \
    static inline uint32_t ptx_add_##type##x2(uint32_t a, uint32_t b) {                                                \
        return (uint32_t)ptx_add_##type((uint16_t)(a >> 16), (uint16_t)(b >> 16)) << 16 |                              \
               ptx_add_##type((uint16_t)a, (uint16_t)b);                                                               \
    }                                                                                                                  \
    static inline uint32_t ptx_mul_##type##x2(uint32_t a, uint32_t b) {                                                \
        return (uint32_t)ptx_mul_##type((uint16_t)(a >> 16), (uint16_t)(b >> 16)) << 16 |                              \
               ptx_mul_##type((uint16_t)a, (uint16_t)b);                                                               \
    }                                                                                                                  \
    static inline uint32_t ptx_fma_##type##x2(uint32_t a, uint32_t b, uint32_t d) {                                    \
        return (uint32_t)ptx_fma_##type((uint16_t)(a >> 16), (uint16_t)(b >> 16), (uint16_t)(d >> 16)) << 16 |         \
               ptx_fma_##type((uint16_t)a, (uint16_t)b, (uint16_t)d);                                                  \
    }
PTX_HALVES(f16, ptx_from_f16, ptx_to_f16)
PTX_HALVES(bf16, ptx_from_bf16, ptx_to_bf16)

#define PTX_FP8(type)                                                                                                  \
    static inline uint16_t ptx_cvt_satfinite_##type##x2_f32(uint32_t high, uint32_t low) {                             \
        return (uint16_t)(ptx_to_##type(ptx_float(high)) << 8 | ptx_to_##type(ptx_float(low)));                        \
    }
PTX_FP8(e4m3)
PTX_FP8(e5m2)

/* ---- conversions ----------------------------------------------------------------------------------------------------
 */

/* Between integers: by the source's sign, and cut to the destination; eight bits fill a wider register by sign. */
#define PTX_TO_INTEGER(from, from_c)                                                                                   \
    static inline uint8_t ptx_cvt_u8_##from(uint64_t a) {                                                              \
        return (uint8_t)(from_c)a;                                                                                     \
    }                                                                                                                  \
    static inline int8_t ptx_cvt_s8_##from(uint64_t a) {                                                               \
        return (int8_t)(from_c)a;                                                                                      \
    }                                                                                                                  \
    static inline uint16_t ptx_cvt_u16_##from(uint64_t a) {                                                            \
        return (uint16_t)(from_c)a;                                                                                    \
    }                                                                                                                  \
    static inline int16_t ptx_cvt_s16_##from(uint64_t a) {                                                             \
        return (int16_t)(from_c)a;                                                                                     \
    }                                                                                                                  \
    static inline uint32_t ptx_cvt_u32_##from(uint64_t a) {                                                            \
        return (uint32_t)(from_c)a;                                                                                    \
    }                                                                                                                  \
    static inline int32_t ptx_cvt_s32_##from(uint64_t a) {                                                             \
        return (int32_t)(from_c)a;                                                                                     \
    }                                                                                                                  \
    static inline uint64_t ptx_cvt_u64_##from(uint64_t a) {                                                            \
        return (uint64_t)(from_c)a;                                                                                    \
    }                                                                                                                  \
    static inline int64_t ptx_cvt_s64_##from(uint64_t a) {                                                             \
        return (int64_t)(from_c)a;                                                                                     \
    }                                                                                                                  \
    static inline uint32_t ptx_cvt_f32_##from(uint64_t a) {                                                            \
        return ptx_bits((float)(from_c)a);                                                                             \
    }                                                                                                                  \
    static inline uint64_t ptx_cvt_f64_##from(uint64_t a) {                                                            \
        return ptx_bits64((double)(from_c)a);                                                                          \
    }
PTX_TO_INTEGER(u8, uint8_t)
PTX_TO_INTEGER(s8, int8_t)
PTX_TO_INTEGER(u16, uint16_t)
PTX_TO_INTEGER(s16, int16_t)
PTX_TO_INTEGER(u32, uint32_t)
PTX_TO_INTEGER(s32, int32_t)
PTX_TO_INTEGER(u64, uint64_t)
PTX_TO_INTEGER(s64, int64_t)

/* From floating point: what lies outside becomes the nearest integer there is, a NaN 0. */
#define PTX_ROUND_TO(type, u, lowest, highest, source, from_u, number)                                                 \
    static inline u ptx_cvt_to_##type##_##source(double x) {                                                           \
        return x >= (double)(highest) ? (u)(highest) : x <= (double)(lowest) ? (u)(lowest) : isnan(x) ? 0 : (u)x;      \
    }                                                                                                                  \
    static inline u ptx_cvt_rzi_##type##_##source(from_u a) {                                                          \
        return ptx_cvt_to_##type##_##source(trunc(number(a)));                                                         \
    }                                                                                                                  \
    static inline u ptx_cvt_rni_##type##_##source(from_u a) {                                                          \
        return ptx_cvt_to_##type##_##source(rint(number(a)));                                                          \
    }                                                                                                                  \
    static inline u ptx_cvt_rmi_##type##_##source(from_u a) {                                                          \
        return ptx_cvt_to_##type##_##source(floor(number(a)));                                                         \
    }                                                                                                                  \
    static inline u ptx_cvt_rpi_##type##_##source(from_u a) {                                                          \
        return ptx_cvt_to_##type##_##source(ceil(number(a)));                                                          \
    }
#define PTX_ROUND_FROM(source, from_u, number)                                                                         \
    PTX_ROUND_TO(s32, int32_t, INT32_MIN, INT32_MAX, source, from_u, number)                                           \
    PTX_ROUND_TO(u32, uint32_t, 0, UINT32_MAX, source, from_u, number)                                                 \
    PTX_ROUND_TO(s64, int64_t, INT64_MIN, INT64_MAX, source, from_u, number)                                           \
    PTX_ROUND_TO(u64, uint64_t, 0, UINT64_MAX, source, from_u, number)
PTX_ROUND_FROM(f32, uint32_t, (double)ptx_float)
PTX_ROUND_FROM(f64, uint64_t, ptx_double)

static inline uint32_t ptx_cvt_rzi_f32_f32(uint32_t a) {
    return ptx_bits(truncf(ptx_float(a)));
}
static inline uint32_t ptx_cvt_rni_f32_f32(uint32_t a) {
    return ptx_bits(rintf(ptx_float(a)));
}
static inline uint32_t ptx_cvt_rmi_f32_f32(uint32_t a) {
    return ptx_bits(floorf(ptx_float(a)));
}
static inline uint32_t ptx_cvt_rpi_f32_f32(uint32_t a) {
    return ptx_bits(ceilf(ptx_float(a)));
}
static inline uint64_t ptx_cvt_rzi_f64_f64(uint64_t a) {
    return ptx_bits64(trunc(ptx_double(a)));
}
static inline uint64_t ptx_cvt_rni_f64_f64(uint64_t a) {
    return ptx_bits64(rint(ptx_double(a)));
}
static inline uint64_t ptx_cvt_rmi_f64_f64(uint64_t a) {
    return ptx_bits64(floor(ptx_double(a)));
}
static inline uint64_t ptx_cvt_rpi_f64_f64(uint64_t a) {
    return ptx_bits64(ceil(ptx_double(a)));
}
static inline uint32_t ptx_cvt_sat_f32_f32(uint32_t a) {
    return ptx_saturate(a);
}
static inline uint64_t ptx_cvt_f64_f32(uint32_t a) {
    return ptx_bits64((double)ptx_float(a));
}
static inline uint32_t ptx_cvt_f32_f64(uint64_t a) {
    return ptx_bits((float)ptx_double(a));
}

#endif
