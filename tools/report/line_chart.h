/* Lines over a common x, with bands behind them and a legend above, put on a page as SVG. */
#ifndef UPS_TOOLS_REPORT_LINE_CHART_H
#define UPS_TOOLS_REPORT_LINE_CHART_H

#include "tools/report/colours.h"
#include "tools/report/html.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct ups_chart_line {
    const char *name; /* for the legend */
    const double *y;  /* (count); values that are not finite, or not positive on a logarithmic axis, leave a gap */
    ups_colour colour;
    bool dashed;
} ups_chart_line;

typedef struct ups_chart_range {
    const char *name;
    const double *low, *high; /* (count) */
    ups_colour colour;
} ups_chart_range;

typedef struct ups_line_chart {
    const char *x_label, *y_label;
    const char *title;       /* NULL: none */
    const char *description; /* for those who cannot see it */
    double width, height;    /* pixels; the page scales it */
    bool logarithmic_x, logarithmic_y;
    double decades; /* a logarithmic y axis reaches at most so far below its largest value; 0: as far as values do */
    double low_y, high_y; /* of a linear y axis, at least; equal: as far as values do */
    double mark;          /* a thin line at this y; NaN: none */
    const double *x;      /* (count), rising */
    int64_t count;
    const ups_chart_line *lines; /* the last one on top */
    int line_count;
    const ups_chart_range *ranges; /* the first one lowest */
    int range_count;
} ups_line_chart;

void ups_chart_lines(ups_html *html, const ups_line_chart *chart);

/* Whether values spread so far that a logarithmic axis shows them better: the largest over the smallest that is
 * positive is above `ratio`, and none is negative. */
bool ups_chart_spreads(const double *values, int64_t count, double ratio);

#endif
