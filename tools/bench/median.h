/* What benchmarks print of several runs. */
#ifndef UPS_TOOLS_BENCH_MEDIAN_H
#define UPS_TOOLS_BENCH_MEDIAN_H

#include <stdint.h>
#include <stdlib.h>

static inline int ups_bench_ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values in ascending order; returns the one in the middle, the upper of two. */
static inline double ups_bench_median(double *values, int64_t count) {
    qsort(values, (size_t)count, sizeof *values, ups_bench_ascending);
    return values[count / 2];
}

#endif
