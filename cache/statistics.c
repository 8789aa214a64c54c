#include "cache/statistics.h"

#include <math.h>
#include <string.h>

#define PIECE 4096 /* values rounded and compared at a time: stays in L1 */
#define LANES 16   /* kept apart and joined at the end, so that the compiler may use vectors */

_Static_assert(sizeof(ups_cache_statistics) == UPS_CACHE_STATISTICS_COLUMNS * sizeof(double),
               "a row is stored as it lies in memory");

typedef struct lanes {
    float minimum[LANES], maximum[LANES], error[LANES]; /* of everything so far */
    float squares[LANES]; /* of this piece: 4096 squares of 11-bit quantities, which float is exact enough to sum */
} lanes;

/* The values of a piece that are lost: NaN, Inf, or rounded to Inf. */
static size_t count_lost(const float *back, size_t n) {
    size_t lost = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &back[i], sizeof bits);
        lost += (bits & 0x7f800000u) == 0x7f800000u;
    }
    return lost;
}

static void measure_one(const float *value, const float *back, lanes *l, size_t lane) {
    float error = fabsf(*back - *value);
    l->minimum[lane] = *value < l->minimum[lane] ? *value : l->minimum[lane];
    l->maximum[lane] = *value > l->maximum[lane] ? *value : l->maximum[lane];
    l->error[lane] = error > l->error[lane] ? error : l->error[lane];
    l->squares[lane] += error * error;
}

/* A piece of which nothing is lost; the sum of its squared errors. */
static double measure(const float *values, const float *back, size_t n, lanes *l) {
    for (size_t k = 0; k < LANES; k++) l->squares[k] = 0;
    size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES) {
        for (size_t k = 0; k < LANES; k++) measure_one(&values[i + k], &back[i + k], l, k);
    }
    for (size_t i = whole; i < n; i++) measure_one(&values[i], &back[i], l, i - whole);
    double sum = 0;
    for (size_t k = 0; k < LANES; k++) sum += (double)l->squares[k];
    return sum;
}

/* A piece of which something is lost: its extremes, and how much of what. */
static void examine_lost(const float *values, const float *back, size_t n, lanes *l, ups_cache_statistics *row,
                         size_t *first) {
    *first = n;
    ups_f32_range_result range = ups_f32_range(values, n);
    row->non_finite += (double)range.non_finite;
    if (range.minimum < l->minimum[0]) l->minimum[0] = range.minimum;
    if (range.maximum > l->maximum[0]) l->maximum[0] = range.maximum;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(back[i])) continue;
        if (*first == n) *first = i;
        if (isfinite(values[i])) row->overflowing++;
    }
}

/* A piece to multiples of `step`, and what they are as floats. Those that are beyond the bound are marked as lost. */
static void round_within(const float *values, size_t n, double bound, float step, ups_f16 *rounded, float *back) {
    float multiples[PIECE];
    for (size_t i = 0; i < n; i++) multiples[i] = rintf(values[i] / step) * step + 0.0F; /* never −0 */
    ups_f32_to_f16(multiples, rounded, n);
    ups_f16_to_f32(rounded, back, n);
    for (size_t i = 0; i < n; i++) {
        if (fabs((double)back[i] - (double)values[i]) <= bound) continue;
        ups_f32_to_f16(&values[i], &rounded[i], 1);
        ups_f16_to_f32(&rounded[i], &back[i], 1);
        if (!(fabs((double)back[i] - (double)values[i]) <= bound)) back[i] = INFINITY;
    }
}

void ups_cache_round(const float *values, size_t count, double max_abs_error, ups_f16 *rounded,
                     ups_cache_statistics *row, size_t *first_bad) {
    int exponent; /* 2 · bound = f · 2^exponent, f from 1/2 to below 1 */
    frexp(2 * max_abs_error, &exponent);
    float step = ldexpf(1.0F, exponent - 1);
    lanes l;
    for (size_t k = 0; k < LANES; k++) {
        l.minimum[k] = INFINITY;
        l.maximum[k] = -INFINITY;
        l.error[k] = 0;
    }
    *row = (ups_cache_statistics){0};
    *first_bad = count;
    double squares = 0;
    for (size_t start = 0; start < count; start += PIECE) {
        float back[PIECE];
        size_t n = count - start < PIECE ? count - start : PIECE, first;
        if (max_abs_error > 0) {
            round_within(values + start, n, max_abs_error, step, rounded + start, back);
        } else {
            ups_f32_to_f16(values + start, rounded + start, n);
            ups_f16_to_f32(rounded + start, back, n);
        }
        if (count_lost(back, n) == 0) {
            squares += measure(values + start, back, n, &l);
        } else {
            examine_lost(values + start, back, n, &l, row, &first);
            if (*first_bad == count) *first_bad = start + first;
        }
    }
    for (size_t k = 1; k < LANES; k++) {
        l.minimum[0] = fminf(l.minimum[0], l.minimum[k]);
        l.maximum[0] = fmaxf(l.maximum[0], l.maximum[k]);
        l.error[0] = fmaxf(l.error[0], l.error[k]);
    }
    row->minimum = l.minimum[0];
    row->maximum = l.maximum[0];
    if (*first_bad < count) return; /* of a sample that is left out there is no rounding error */
    row->error_max = l.error[0];
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
