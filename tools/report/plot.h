/* Axes, heat maps, colour bars and line charts, drawn into a rectangle of a canvas. The rectangle is the data's; ticks,
 * labels and the title go outside it, into margins of the sizes below. */
#ifndef UPS_TOOLS_REPORT_PLOT_H
#define UPS_TOOLS_REPORT_PLOT_H

#include "tools/report/canvas.h"
#include "tools/report/colours.h"
#include <stdbool.h>
#include <stdint.h>

/* Margins that hold tick labels and an axis label, pixels. */
enum { UPS_PLOT_LEFT = 72, UPS_PLOT_RIGHT = 18, UPS_PLOT_TOP = 34, UPS_PLOT_BOTTOM = 52 };
/* A colour bar right of a plot: gap, width of the bar, width of its labels. */
enum { UPS_PLOT_BAR_GAP = 12, UPS_PLOT_BAR = 14, UPS_PLOT_BAR_LABELS = 62 };

typedef struct ups_axis {
    double low, high;  /* at the plot's edges; equal: found from the data */
    const char *label; /* "x", "time t [s]"; NULL: none */
    bool logarithmic;
    bool bare; /* ticks without numbers or label, for a panel beside one that has them */
} ups_axis;

typedef struct ups_heat_map {
    const float *values; /* values[row * row_stride + column * column_stride]; NaN and Inf are grey */
    int64_t rows, columns, row_stride, column_stride;
    ups_axis x, y; /* low is the outer edge of the first column (row), high that of the last; equal: 0 to their count */
    bool stretched; /* the axes have different units: the shape is free (for whole pictures) */
    bool downward;  /* row 0 on top, as in a matrix; otherwise at the bottom, as y in a field */
    ups_colour_map map;
    double low, high; /* values of the map's ends; equal: found from the data (symmetric about 0 when diverging) */
    const char *title;
} ups_heat_map;

typedef struct ups_line {
    const double *x; /* (count); NULL: 0, 1, 2, … */
    const float *y;  /* (count); values that cannot be drawn leave a gap */
    int64_t count;
    const char *name; /* in the legend; NULL: not in it */
    int colour;       /* of ups_colour_line */
    bool dashed;
    float width; /* pixels; 0: 1.8 */
} ups_line;

typedef struct ups_line_chart {
    ups_axis x, y;
    const ups_line *lines;
    int line_count;
    const char *title;
    bool without_legend;
} ups_line_chart;

/* The smallest and largest finite value; 0 and 1 when there is none; apart by a little when they are equal. */
void ups_plot_range(const float *values, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride,
                    double *low, double *high);

void ups_plot_heat_map(ups_canvas *canvas, ups_rectangle plot, const ups_heat_map *map);
void ups_plot_colour_bar(ups_canvas *canvas, ups_rectangle bar, ups_colour_map map, double low, double high);
void ups_plot_lines(ups_canvas *canvas, ups_rectangle plot, const ups_line_chart *chart);
void ups_plot_title(ups_canvas *canvas, ups_point at, const char *text, float size); /* left end of the baseline */

/* Marks for an axis from `low` to `high`: about `wanted` of them at 1, 2 or 5 times a power of ten; or the powers of
 * ten themselves (with 2 and 5 between when there are few). Returns how many were written, at most `capacity`. */
enum { UPS_PLOT_TICKS = 24 };
int ups_plot_ticks(double low, double high, bool logarithmic, int wanted, double *ticks, int capacity);

#endif
