/* What became of each trajectory when it was rounded to FP16: one row of numbers, kept beside the latents as the array
 * `statistics` (sample, 6), so that a resumed build knows what the killed one saw. */
#ifndef UPS_CACHE_STORE_STATISTICS_H
#define UPS_CACHE_STORE_STATISTICS_H

#include "base/half.h"
#include "cache/store/zarr.h"

typedef struct ups_cache_statistics {
    double minimum, maximum;     /* of the values before rounding; +Inf, −Inf when none is finite */
    double error_max, error_rms; /* of rounding to FP16, absolute */
    double non_finite;           /* NaN or Inf: how many */
    double overflowing;          /* finite, but rounded to Inf (from ±65520 on), or beyond the error bound: how many */
} ups_cache_statistics;

#define UPS_CACHE_STATISTICS_COLUMNS 6

static inline bool ups_cache_statistics_bad(const ups_cache_statistics *row) {
    return row->non_finite > 0 || row->overflowing > 0;
}

/* Values being rounded to FP16 and measured, part after part.
 *
 * max_abs_error 0: to the nearest FP16 number. Else every value that is not lost comes back within max_abs_error of
 * what it was as float32, FP16's own rounding included: it goes to the nearest multiple of the largest power of two
 * that is no more than twice the bound, so that neighbours in time often are the same number; or, where FP16 does not
 * have that multiple to within the bound, to the nearest FP16 number. A value whose nearest FP16 number is farther away
 * is lost: none of less than 2048 times the bound is. */
#define UPS_ROUNDING_LANES 16 /* kept apart and joined at the end, so that the compiler may use vectors */
typedef struct ups_cache_rounding {
    double max_abs_error;
    float step; /* of the grid that a bound leads to */
    size_t count, lost;
    size_t first_lost; /* index of the first value that is lost, where `lost` is not 0, */
    float lost_value;  /* and what it was */
    double non_finite, overflowing, squares;
    float minimum[UPS_ROUNDING_LANES], maximum[UPS_ROUNDING_LANES], error[UPS_ROUNDING_LANES];
} ups_cache_rounding;

ups_cache_rounding ups_cache_rounding_begin(double max_abs_error);
/* The next `count` values. Sums of errors depend in their last bits on where parts end: a trajectory's parts are its
 * frames. */
void ups_cache_rounding_add(ups_cache_rounding *rounding, const float *values, size_t count, ups_f16 *rounded);
ups_cache_statistics ups_cache_rounding_end(const ups_cache_rounding *rounding);

ups_small_array ups_cache_statistics_array(ups_cache_shape shape);
json_t *ups_cache_statistics_columns(void); /* {"columns": […]}: attributes of the array; a new reference */

/* Over all good rows. */
typedef struct ups_cache_totals {
    int64_t good;
    double minimum, maximum, error_max, error_rms;
} ups_cache_totals;
ups_cache_totals ups_cache_statistics_sum(const ups_cache_statistics *rows, int64_t count);

#endif
