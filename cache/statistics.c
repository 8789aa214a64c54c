#include "cache/statistics.h"

#include <math.h>

#define F16_OVERFLOW 65520.0f /* from here on values round to Inf: halfway between 65504 and the next power of two */
#define PIECE 4096            /* values rounded and compared at a time: stays in L1 */

_Static_assert(sizeof(ups_cache_statistics) == UPS_CACHE_STATISTICS_COLUMNS * sizeof(double),
               "a row is stored as it lies in memory");

void ups_cache_round(const float *values, size_t count, ups_f16 *rounded, ups_cache_statistics *row,
                     size_t *first_bad) {
    ups_f32_range_result range = ups_f32_range(values, count);
    *row = (ups_cache_statistics){
        .minimum = range.minimum, .maximum = range.maximum, .non_finite = (double)range.non_finite};
    *first_bad = count;
    bool all_fit = range.non_finite == 0 && fabsf(range.minimum) < F16_OVERFLOW && fabsf(range.maximum) < F16_OVERFLOW;
    double squares = 0, largest = 0;
    for (size_t start = 0; start < count; start += PIECE) {
        float back[PIECE];
        size_t n = count - start < PIECE ? count - start : PIECE;
        ups_f32_to_f16(values + start, rounded + start, n);
        ups_f16_to_f32(rounded + start, back, n);
        float piece_squares = 0,
              piece_largest = 0; /* 4096 squares of 11-bit quantities: float is exact enough to sum them */
        if (all_fit) {
            for (size_t i = 0; i < n; i++) {
                float error = fabsf(back[i] - values[start + i]);
                piece_squares += error * error;
                piece_largest = error > piece_largest ? error : piece_largest;
            }
        } else {
            for (size_t i = 0; i < n; i++) {
                if (isfinite(back[i])) continue;
                if (*first_bad == count) *first_bad = start + i;
                if (isfinite(values[start + i])) row->overflowing++;
            }
        }
        squares += piece_squares;
        largest = piece_largest > largest ? piece_largest : largest;
    }
    row->error_max = largest;
    row->error_rms = count ? sqrt(squares / (double)count) : 0;
}

ups_small_array ups_cache_statistics_array(ups_cache_shape shape) {
    return (ups_small_array){.name = UPS_CACHE_STATISTICS,
                             .type = UPS_SMALL_F64,
                             .rows = shape.samples,
                             .columns = UPS_CACHE_STATISTICS_COLUMNS,
                             .chunk_rows = shape.samples_per_shard,
                             .dimensions = {"sample", "statistic"}};
}

json_t *ups_cache_statistics_columns(void) {
    return json_pack("{s:[s,s,s,s,s,s]}", "columns", "minimum", "maximum", "error_max", "error_rms", "non_finite",
                     "overflowing");
}

ups_cache_totals ups_cache_statistics_sum(const ups_cache_statistics *rows, int64_t count) {
    ups_cache_totals totals = {.minimum = INFINITY, .maximum = -INFINITY};
    double squares = 0;
    for (int64_t i = 0; i < count; i++) {
        if (ups_cache_statistics_bad(&rows[i])) continue;
        totals.good++;
        totals.minimum = fmin(totals.minimum, rows[i].minimum);
        totals.maximum = fmax(totals.maximum, rows[i].maximum);
        totals.error_max = fmax(totals.error_max, rows[i].error_max);
        squares += rows[i].error_rms * rows[i].error_rms;
    }
    totals.error_rms = totals.good ? sqrt(squares / (double)totals.good) : 0;
    return totals;
}
