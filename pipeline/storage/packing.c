#include "pipeline/storage/packing.h"

#include "base/half.h"
#include "pipeline/storage/filters.h"
#include <math.h>
#include <string.h>

size_t ups_number_size(ups_number number) {
    switch (number) {
    case UPS_NUMBER_I8:
    case UPS_NUMBER_U8:
        return 1;
    case UPS_NUMBER_F16:
    case UPS_NUMBER_I16:
    case UPS_NUMBER_U16:
        return 2;
    case UPS_NUMBER_F32:
    case UPS_NUMBER_I32:
    case UPS_NUMBER_U32:
        return 4;
    case UPS_NUMBER_F64:
    case UPS_NUMBER_I64:
    case UPS_NUMBER_U64:
        return 8;
    }
    return 0;
}

const char *ups_number_name(ups_number number) {
    static const char *const names[] = {
        [UPS_NUMBER_F32] = "float32", [UPS_NUMBER_F64] = "float64", [UPS_NUMBER_F16] = "float16",
        [UPS_NUMBER_I8] = "int8",     [UPS_NUMBER_U8] = "uint8",    [UPS_NUMBER_I16] = "int16",
        [UPS_NUMBER_U16] = "uint16",  [UPS_NUMBER_I32] = "int32",   [UPS_NUMBER_U32] = "uint32",
        [UPS_NUMBER_I64] = "int64",   [UPS_NUMBER_U64] = "uint64",
    };
    return names[number];
}

bool ups_number_of_numpy(const char *type, ups_number *number, bool *swapped) {
    static const struct {
        const char *name;
        ups_number number;
    } numbers[] = {{"f2", UPS_NUMBER_F16}, {"f4", UPS_NUMBER_F32}, {"f8", UPS_NUMBER_F64}, {"i1", UPS_NUMBER_I8},
                   {"i2", UPS_NUMBER_I16}, {"i4", UPS_NUMBER_I32}, {"i8", UPS_NUMBER_I64}, {"u1", UPS_NUMBER_U8},
                   {"u2", UPS_NUMBER_U16}, {"u4", UPS_NUMBER_U32}, {"u8", UPS_NUMBER_U64}, {"b1", UPS_NUMBER_U8}};
    if (!type[0] || !strchr("<>|=", type[0])) return false;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(type + 1, numbers[i].name) != 0) continue;
        const char other = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? '>' : '<';
        *number = numbers[i].number;
        *swapped = type[0] == other && ups_number_size(*number) > 1;
        return true;
    }
    return false;
}

ups_dtype ups_number_dtype(ups_number number) {
    return ups_number_size(number) <= 2 || number == UPS_NUMBER_F32 ? UPS_F32 : UPS_F64;
}

/* ---- one number -------------------------------------------------------------------------------------------------- */

/* Writes `value` as an element of an integer type of `bits`; false when that type does not hold it. */
static bool to_integer(long double value, int bits, bool has_sign, uint8_t element[8]) {
    long double end = (long double)(UINT64_C(1) << (bits - 1));    /* 2^(bits−1), exact */
    if (!has_sign && value < 0 && value >= -end) value += 2 * end; /* _Unsigned: attributes are signed all the same */
    long double least = has_sign ? -end : 0, beyond = has_sign ? end : 2 * end;
    if (!(value >= least && value < beyond)) return false;
    uint64_t pattern = value < 0 ? (uint64_t)(int64_t)value : (uint64_t)value;
    if ((value < 0 ? (long double)(int64_t)pattern : (long double)pattern) != value) return false;
    uint8_t narrow8 = (uint8_t)pattern;
    uint16_t narrow16 = (uint16_t)pattern;
    uint32_t narrow32 = (uint32_t)pattern;
    const void *from = bits == 8 ? (const void *)&narrow8 : bits == 16 ? (const void *)&narrow16 : &narrow32;
    memcpy(element, bits == 64 ? (const void *)&pattern : from, (size_t)bits / 8);
    return true;
}

bool ups_number_element(long double value, ups_number number, uint8_t element[8]) {
    float narrow = (float)value;
    double wide = (double)value;
    ups_f16 half;
    switch (number) {
    case UPS_NUMBER_F32:
        memcpy(element, &narrow, sizeof narrow);
        return true;
    case UPS_NUMBER_F64:
        memcpy(element, &wide, sizeof wide);
        return true;
    case UPS_NUMBER_F16:
        ups_f32_to_f16(&narrow, &half, 1);
        memcpy(element, &half, sizeof half);
        return true;
    case UPS_NUMBER_I8:
    case UPS_NUMBER_I16:
    case UPS_NUMBER_I32:
    case UPS_NUMBER_I64:
        return to_integer(value, 8 * (int)ups_number_size(number), true, element);
    case UPS_NUMBER_U8:
    case UPS_NUMBER_U16:
    case UPS_NUMBER_U32:
    case UPS_NUMBER_U64:
        return to_integer(value, 8 * (int)ups_number_size(number), false, element);
    }
    return false;
}

/* ---- a block at a time: load, compute, mark what is missing, store -------------------------------------------------
 */

enum { BLOCK = 512 };

static void load(size_t size, bool swapped, const uint8_t *from, int64_t from_step, uint8_t *block, int64_t count) {
    if (from_step == (int64_t)size) {
        memcpy(block, from, (size_t)count * size);
    } else {
        for (int64_t i = 0; i < count; i++) memcpy(block + (size_t)i * size, from + i * from_step, size);
    }
    if (!swapped) return;
    if (size == 2) {
        uint16_t *words = (uint16_t *)(void *)block;
        for (int64_t i = 0; i < count; i++) words[i] = __builtin_bswap16(words[i]);
    }
    if (size > 2) ups_swap_bytes(block, (size_t)count, size);
}

/* In double precision throughout. A product or sum of two float32 numbers, rounded to double and then to float32, is
 * what float32 arithmetic gives; and the conversion keeps a compiler from fusing the two steps. */
static void scale_and_shift(const ups_packing *packing, double *values, int64_t count) {
    const double scale = packing->scale, offset = packing->offset;
    if (packing->scaled && packing->scale_single) {
        for (int64_t i = 0; i < count; i++) values[i] = (double)(float)(values[i] * scale);
    } else if (packing->scaled) {
        for (int64_t i = 0; i < count; i++) values[i] *= scale;
    }
    if (packing->shifted && packing->offset_single) {
        for (int64_t i = 0; i < count; i++) values[i] = (double)(float)(values[i] + offset);
    } else if (packing->shifted) {
        for (int64_t i = 0; i < count; i++) values[i] += offset;
    }
}

static void store(const double *values, ups_dtype dtype, uint8_t *to, int64_t to_step, int64_t count) {
    if (dtype == UPS_F64) {
        for (int64_t i = 0; i < count; i++) memcpy(to + i * to_step, &values[i], sizeof(double));
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        float narrow = (float)values[i];
        memcpy(to + i * to_step, &narrow, sizeof narrow);
    }
}

/* Comparisons are made in the stored type: a double holds not every 64-bit integer. */
#define DEFINE_MARK(name, type)                                                                                        \
    static void name(const ups_packing *packing, const type *stored, double *values, int64_t count) {                  \
        for (int m = 0; m < packing->missing_count; m++) {                                                             \
            type missing;                                                                                              \
            memcpy(&missing, packing->missing[m], sizeof missing);                                                     \
            for (int64_t i = 0; i < count; i++) values[i] = stored[i] == missing ? (double)NAN : values[i];            \
        }                                                                                                              \
        type least, greatest;                                                                                          \
        memcpy(&least, packing->least, sizeof least);                                                                  \
        memcpy(&greatest, packing->greatest, sizeof greatest);                                                         \
        for (int64_t i = 0; packing->has_least && i < count; i++)                                                      \
            values[i] = stored[i] < least ? (double)NAN : values[i];                                                   \
        for (int64_t i = 0; packing->has_greatest && i < count; i++)                                                   \
            values[i] = stored[i] > greatest ? (double)NAN : values[i];                                                \
    }

#define DEFINE_WIDEN(name, type)                                                                                       \
    static void name(const type *stored, double *values, int64_t count) {                                              \
        for (int64_t i = 0; i < count; i++) values[i] = (double)stored[i];                                             \
    }

#define FOR_EACH_NUMBER(apply)                                                                                         \
    apply(UPS_NUMBER_F32, f32, float) apply(UPS_NUMBER_F64, f64, double) apply(UPS_NUMBER_I8, i8, int8_t)              \
        apply(UPS_NUMBER_U8, u8, uint8_t) apply(UPS_NUMBER_I16, i16, int16_t) apply(UPS_NUMBER_U16, u16, uint16_t)     \
            apply(UPS_NUMBER_I32, i32, int32_t) apply(UPS_NUMBER_U32, u32, uint32_t)                                   \
                apply(UPS_NUMBER_I64, i64, int64_t) apply(UPS_NUMBER_U64, u64, uint64_t)

#define DEFINE_BOTH(number, suffix, type) DEFINE_WIDEN(widen_##suffix, type) DEFINE_MARK(mark_##suffix, type)
FOR_EACH_NUMBER(DEFINE_BOTH)

static void widen_half(uint8_t element[8]) {
    ups_f16 half;
    float wide;
    memcpy(&half, element, sizeof half);
    ups_f16_to_f32(&half, &wide, 1);
    memcpy(element, &wide, sizeof wide);
}

/* As float32, what is missing too. */
static void unpack_halves(const ups_packing *packing, const ups_f16 *stored, double *values, int64_t count) {
    float wide[BLOCK];
    ups_f16_to_f32(stored, wide, (size_t)count);
    widen_f32(wide, values, count);
    scale_and_shift(packing, values, count);
    if (packing->missing_count == 0 && !packing->has_least && !packing->has_greatest) return;
    ups_packing widened = *packing;
    for (int m = 0; m < packing->missing_count; m++) widen_half(widened.missing[m]);
    widen_half(widened.least);
    widen_half(widened.greatest);
    mark_f32(&widened, wide, values, count);
}

static void unpack_block(const ups_packing *packing, const void *stored, double *values, int64_t count) {
    switch (packing->number) {
    case UPS_NUMBER_F16:
        unpack_halves(packing, stored, values, count);
        break;
#define UNPACK_CASE(number, suffix, type)                                                                              \
    case number:                                                                                                       \
        widen_##suffix((const type *)stored, values, count);                                                           \
        scale_and_shift(packing, values, count);                                                                       \
        mark_##suffix(packing, (const type *)stored, values, count);                                                   \
        break;
        FOR_EACH_NUMBER(UNPACK_CASE)
    }
}

/* ---- float32 that needs no arithmetic: the common case, done in place ----------------------------------------------
 */

static bool without_arithmetic(const ups_packing *packing, ups_dtype dtype, int64_t to_step) {
    return dtype == UPS_F32 && to_step == sizeof(float) && !packing->scaled && !packing->shifted &&
           !packing->has_least && !packing->has_greatest;
}

static bool plain_floats(const ups_packing *packing, ups_dtype dtype, int64_t to_step) {
    return packing->number == UPS_NUMBER_F32 && without_arithmetic(packing, dtype, to_step);
}

static bool plain_halves(const ups_packing *packing, ups_dtype dtype, int64_t to_step) {
    return packing->number == UPS_NUMBER_F16 && without_arithmetic(packing, dtype, to_step) &&
           packing->missing_count == 0;
}

static void unpack_floats(const ups_packing *packing, bool swapped, const uint8_t *from, int64_t from_step, float *to,
                          int64_t count) {
    load(sizeof(float), swapped, from, from_step, (uint8_t *)to, count);
    for (int m = 0; m < packing->missing_count; m++) {
        float missing;
        memcpy(&missing, packing->missing[m], sizeof missing);
        for (int64_t i = 0; i < count; i++) to[i] = to[i] == missing ? NAN : to[i];
    }
}

void ups_unpack(const ups_packing *packing, bool swapped, const uint8_t *from, int64_t from_step, ups_dtype dtype,
                uint8_t *to, int64_t to_step, int64_t count) {
    _Alignas(64) uint8_t stored[BLOCK * sizeof(double)];
    _Alignas(64) double values[BLOCK];
    bool plain = plain_floats(packing, dtype, to_step), halves = plain_halves(packing, dtype, to_step);
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t length = count - at < BLOCK ? count - at : BLOCK;
        if (plain) {
            unpack_floats(packing, swapped, from + at * from_step, from_step, (float *)(void *)(to + at * to_step),
                          length);
            continue;
        }
        load(ups_number_size(packing->number), swapped, from + at * from_step, from_step, stored, length);
        if (halves) {
            ups_f16_to_f32((const ups_f16 *)(const void *)stored, (float *)(void *)(to + at * to_step), (size_t)length);
            continue;
        }
        unpack_block(packing, stored, values, length);
        store(values, dtype, to + at * to_step, to_step, length);
    }
}
