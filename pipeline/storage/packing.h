/* Numbers as files pack them: integers or floats of either byte order, perhaps scaled and shifted, with values that
 * mean "missing". Unpacked they are float32 or float64, and what is missing is NaN, so that whoever guards against
 * bad samples sees it.
 *
 * The rules are those of the CF conventions (§2.5.1 missing data, §8.1 packed data) and of the NetCDF User Guide
 * (attribute conventions): a stored value is first compared with the missing values and the valid range, then
 * multiplied by `scale`, then `offset` is added. */
#ifndef UPS_PIPELINE_STORAGE_PACKING_H
#define UPS_PIPELINE_STORAGE_PACKING_H

#include "base/dtype.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum ups_number {
    UPS_NUMBER_F32,
    UPS_NUMBER_F64,
    UPS_NUMBER_F16,
    UPS_NUMBER_I8,
    UPS_NUMBER_U8,
    UPS_NUMBER_I16,
    UPS_NUMBER_U16,
    UPS_NUMBER_I32,
    UPS_NUMBER_U32,
    UPS_NUMBER_I64,
    UPS_NUMBER_U64,
} ups_number;

size_t ups_number_size(ups_number number);
const char *ups_number_name(ups_number number); /* as NumPy has it: "int16" */

/* What a type as NumPy writes it stands for: "<f4", "|u1", ">i2"; truth values are uint8. False when it is none of
 * these; `swapped`: of the other byte order. */
bool ups_number_of_numpy(const char *type, ups_number *number, bool *swapped);

/* What it is unpacked to: float32 where that holds every value (float32, float16, integers of 8 and 16 bits), else
 * float64. */
ups_dtype ups_number_dtype(ups_number number);

/* Writes `value` as one element in this machine's byte order. False when the type does not hold it: an integer type
 * only whole numbers within its range, or of as many bits below zero. */
bool ups_number_element(long double value, ups_number number, uint8_t element[8]);

#define UPS_PACKING_MAX_MISSING 16

typedef struct ups_packing {
    ups_number number;
    bool scaled, shifted;
    double scale, offset;
    /* After this step the value is rounded to float32: attribute and stored type are no wider, so that the conventions
     * want single-precision arithmetic. */
    bool scale_single, offset_single;
    int missing_count;
    uint8_t missing[UPS_PACKING_MAX_MISSING][8]; /* each a `number` in this machine's byte order */
    bool has_least, has_greatest;
    uint8_t least[8], greatest[8]; /* the valid range, both ends included; likewise */
} ups_packing;

/* Unpacks `count` numbers, `from_step` and `to_step` bytes apart (a step of 0 repeats one), to `dtype`, which is
 * float32 or float64. `swapped`: they are stored in the other byte order. */
void ups_unpack(const ups_packing *packing, bool swapped, const uint8_t *from, int64_t from_step, ups_dtype dtype,
                uint8_t *to, int64_t to_step, int64_t count);

#endif
