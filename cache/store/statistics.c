#include "cache/store/statistics.h"

#include "base/system/cpu_features.h"
#include <math.h>
#include <string.h>

#define PIECE 4096 /* values rounded and compared at a time: stays in L1 */
#define LANES UPS_ROUNDING_LANES

_Static_assert(sizeof(ups_cache_statistics) == UPS_CACHE_STATISTICS_COLUMNS * sizeof(double),
               "a row is stored as it lies in memory");

ups_cache_rounding ups_cache_rounding_begin(double max_abs_error) {
    int exponent; /* 2 · bound = f · 2^exponent, f from 1/2 to below 1 */
    frexp(2 * max_abs_error, &exponent);
    ups_cache_rounding r = {.max_abs_error = max_abs_error, .step = ldexpf(1.0F, exponent - 1)};
    for (size_t k = 0; k < LANES; k++) r.minimum[k] = INFINITY, r.maximum[k] = -INFINITY;
    return r;
}

typedef float lanes_f32 __attribute__((vector_size(sizeof(float) * LANES)));
typedef int32_t lanes_s32 __attribute__((vector_size(sizeof(int32_t) * LANES)));

#define INLINE static inline __attribute__((always_inline))
#define CHOOSE(mask, yes, no) (lanes_f32)(((lanes_s32)(yes) & (mask)) | ((lanes_s32)(no) & ~(mask)))

/* A piece, to be added to `r`; 4096 squares of 11-bit quantities are what float is exact enough to sum. False where a
 * value is lost: NaN, Inf, or rounded to Inf; then nothing was added. */
INLINE bool measure_here(const float *values, const float *back, size_t n, ups_cache_rounding *r) {
    lanes_f32 minimum, maximum, error, squares = {0};
    lanes_s32 lost = {0};
    memcpy(&minimum, r->minimum, sizeof minimum);
    memcpy(&maximum, r->maximum, sizeof maximum);
    memcpy(&error, r->error, sizeof error);
    for (size_t i = 0; i < n; i += LANES) {
        lanes_f32 value = {0}, rounded = {0};
        if (n - i < LANES) { /* the rest of the lanes: the first of these values, and no error */
            for (size_t k = 0; k < LANES; k++) value[k] = rounded[k] = values[i];
            memcpy(&value, values + i, (n - i) * sizeof *values);
            memcpy(&rounded, back + i, (n - i) * sizeof *back);
        } else {
            memcpy(&value, values + i, sizeof value);
            memcpy(&rounded, back + i, sizeof rounded);
        }
        lanes_f32 off = rounded - value;
        off = (lanes_f32)((lanes_s32)off & 0x7fffffff);
        lost |= ((lanes_s32)rounded & 0x7f800000) == 0x7f800000;
        minimum = CHOOSE(value < minimum, value, minimum);
        maximum = CHOOSE(value > maximum, value, maximum);
        error = CHOOSE(off > error, off, error);
        squares += off * off;
    }
    for (size_t k = 0; k < LANES; k++)
        if (lost[k]) return false;
    memcpy(r->minimum, &minimum, sizeof minimum);
    memcpy(r->maximum, &maximum, sizeof maximum);
    memcpy(r->error, &error, sizeof error);
    for (size_t k = 0; k < LANES; k++) r->squares += (double)squares[k];
    return true;
}

static bool measure_anywhere(const float *values, const float *back, size_t n, ups_cache_rounding *r) {
    return measure_here(values, back, n, r);
}

#if defined(__x86_64__)
#define FOR_AVX2 __attribute__((target("avx2")))
FOR_AVX2 static bool measure_avx2(const float *values, const float *back, size_t n, ups_cache_rounding *r) {
    return measure_here(values, back, n, r);
}

#define FOR_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
FOR_AVX512 static bool measure_avx512(const float *values, const float *back, size_t n, ups_cache_rounding *r) {
    return measure_here(values, back, n, r);
}
#endif

static bool (*measure)(const float *values, const float *back, size_t n, ups_cache_rounding *r) = measure_anywhere;

__attribute__((constructor)) static void choose_measure(void) {
#if defined(__x86_64__)
    if (ups_runs_x86_64_v3()) measure = measure_avx2;
    if (ups_runs_x86_64_v4()) measure = measure_avx512;
#endif
}

/* A piece of which something is lost: its extremes, and how much of what. `back` is Inf where a value is lost. */
static void examine_lost(const float *values, const float *back, size_t n, ups_cache_rounding *r) {
    ups_f32_range_result range = ups_f32_range(values, n);
    r->non_finite += (double)range.non_finite;
    if (range.minimum < r->minimum[0]) r->minimum[0] = range.minimum;
    if (range.maximum > r->maximum[0]) r->maximum[0] = range.maximum;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(back[i])) continue;
        if (r->lost++ == 0) r->first_lost = r->count + i, r->lost_value = values[i];
        if (isfinite(values[i])) r->overflowing++;
    }
}

/* A piece to multiples of the step, and what they are as floats. Those that are beyond the bound are marked as lost. */
static void round_within(const ups_cache_rounding *r, const float *values, size_t n, ups_f16 *rounded, float *back) {
    float multiples[PIECE];
    for (size_t i = 0; i < n; i++) multiples[i] = rintf(values[i] / r->step) * r->step + 0.0F; /* never −0 */
    ups_f32_to_f16(multiples, rounded, n);
    ups_f16_to_f32(rounded, back, n);
    for (size_t i = 0; i < n; i++) {
        if (fabs((double)back[i] - (double)values[i]) <= r->max_abs_error) continue;
        ups_f32_to_f16(&values[i], &rounded[i], 1);
        ups_f16_to_f32(&rounded[i], &back[i], 1);
        if (!(fabs((double)back[i] - (double)values[i]) <= r->max_abs_error)) back[i] = INFINITY;
    }
}

void ups_cache_rounding_add(ups_cache_rounding *r, const float *values, size_t count, ups_f16 *rounded) {
    for (size_t start = 0, n; start < count; start += n, r->count += n) {
        float back[PIECE];
        n = count - start < PIECE ? count - start : PIECE;
        if (r->max_abs_error > 0) {
            round_within(r, values + start, n, rounded + start, back);
        } else {
            ups_f32_to_f16(values + start, rounded + start, n);
            ups_f16_to_f32(rounded + start, back, n);
        }
        if (!measure(values + start, back, n, r)) examine_lost(values + start, back, n, r);
    }
}

ups_cache_statistics ups_cache_rounding_end(const ups_cache_rounding *r) {
    float minimum = INFINITY, maximum = -INFINITY, error = 0;
    for (size_t k = 0; k < LANES; k++) {
        if (r->minimum[k] < minimum) minimum = r->minimum[k];
        if (r->maximum[k] > maximum) maximum = r->maximum[k];
        if (r->error[k] > error) error = r->error[k];
    }
    ups_cache_statistics row = {
        .minimum = minimum + 0.0, .maximum = maximum + 0.0, .non_finite = r->non_finite, .overflowing = r->overflowing};
    if (r->lost > 0) return row; /* of a sample that is left out there is no rounding error */
    row.error_max = error;
    row.error_rms = r->count ? sqrt(r->squares / (double)r->count) : 0;
    return row;
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
        if (rows[i].minimum < totals.minimum) totals.minimum = rows[i].minimum;
        if (rows[i].maximum > totals.maximum) totals.maximum = rows[i].maximum;
        if (rows[i].error_max > totals.error_max) totals.error_max = rows[i].error_max;
        squares += rows[i].error_rms * rows[i].error_rms;
    }
    totals.error_rms = totals.good ? sqrt(squares / (double)totals.good) : 0;
    return totals;
}
