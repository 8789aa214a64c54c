/* Charts of what was measured on a cache, put on its page as SVG. Every one carries its description for those who
 * cannot see it. */
#ifndef UPS_TOOLS_REPORT_CACHE_CHARTS_H
#define UPS_TOOLS_REPORT_CACHE_CHARTS_H

#include "tools/report/html.h"
#include <stdint.h>

/* How often values fall into `bins` equal parts of [low, high]. */
void ups_chart_histogram(ups_html *html, const int64_t *counts, int bins, double low, double high, const char *x_label,
                         const char *description);

/* For each of `count` items a range, and within it a mean with its deviation: outer band, inner band, line. */
typedef struct ups_chart_band {
    double low, high, middle, deviation;
} ups_chart_band;
void ups_chart_bands(ups_html *html, const ups_chart_band *bands, int64_t count, const char *x_label,
                     const char *y_label, const char *description);

/* A number an item, NaN where there is none: a dot each, or, from a thousand on, the range of neighbours. Items far
 * from the others are marked, and at most UPS_CHART_NAMED of them named by their index, the farthest first. */
enum { UPS_CHART_NAMED = 8 };
typedef struct ups_chart_outliers {
    int64_t found, named, index[UPS_CHART_NAMED];
} ups_chart_outliers;
ups_chart_outliers ups_chart_items(ups_html *html, const double *values, int64_t count, const char *item,
                                   const char *y_label, const char *description);

#endif
