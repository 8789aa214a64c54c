/* Charts for a page, as inline SVG that takes its colours from the page's style, and fields as pictures with a scale.
 * Every one carries its description for those who cannot see it. */
#ifndef UPS_TOOLS_REPORT_HTML_CHART_H
#define UPS_TOOLS_REPORT_HTML_CHART_H

#include "tools/report/colours.h"
#include "tools/report/html.h"
#include <stdint.h>

/* How often values fall into `bins` equal parts of [low, high]. */
void ups_html_histogram(ups_html *html, const int64_t *counts, int bins, double low, double high, const char *x_label,
                        const char *description);

/* For each of `count` items a range, and within it a mean with its deviation: outer band, inner band, line. */
typedef struct ups_html_band {
    double low, high, middle, deviation;
} ups_html_band;
void ups_html_bands(ups_html *html, const ups_html_band *bands, int64_t count, const char *x_label, const char *y_label,
                    const char *description);

/* A number an item, NaN where there is none: a dot each, or, from a thousand on, the range of neighbours. Items far
 * from the others are marked and named "`item` N" (at most eight); returns how many were found in all. */
int64_t ups_html_items(ups_html *html, const double *values, int64_t count, const char *item, const char *y_label,
                       const char *description);

/* A field: values[row * row_stride + column * column_stride], row 0 at the bottom unless `downward`. Larger ones are
 * thinned out to 320 a side. */
typedef struct ups_html_field {
    const float *values;
    int64_t rows, columns, row_stride, column_stride;
    int downward, stretched; /* stretched: the axes have different units, the picture is 4:3 */
    ups_colour_map map;
    double low, high;
    const char *title, *description; /* above it; for those who cannot see it */
} ups_html_field;
ups_status ups_html_figure(ups_html *html, const ups_html_field *field, ups_error *error);

#endif
