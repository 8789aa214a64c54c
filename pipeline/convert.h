/* Frames from a source's element type to a batch's, watching for NaN and Inf on the way. */
#ifndef UPS_PIPELINE_CONVERT_H
#define UPS_PIPELINE_CONVERT_H

#include "base/dtype.h"
#include <stdbool.h>
#include <stddef.h>

/* What can be converted: anything floating to float32, and each type to itself. */
bool ups_convertible(ups_dtype from, ups_dtype to);

/* Writes `count` elements of `in` to `out`; `in` may be `out` when the types are the same, and is then only looked at.
 * False when `out` holds a NaN or Inf: float64 beyond float32's range counts. */
bool ups_convert(const void *in, ups_dtype from, void *out, ups_dtype to, size_t count);

/* How many elements of a float32 or float16 array are NaN, and how many infinite. Added to what the counters hold. */
void ups_count_non_finite(const void *values, ups_dtype dtype, size_t count, size_t *nan, size_t *infinite);

#endif
