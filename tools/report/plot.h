/* Axes, fields and colour bars, drawn into a rectangle of a figure. The rectangle is the data's; ticks, labels and the
 * title go outside it, into margins of the sizes below. */
#ifndef UPS_TOOLS_REPORT_PLOT_H
#define UPS_TOOLS_REPORT_PLOT_H

#include "tools/report/figure.h"
#include <stdint.h>

/* Margins that hold tick labels and an axis label, pixels. */
enum { UPS_PLOT_LEFT = 68, UPS_PLOT_RIGHT = 24, UPS_PLOT_TOP = 30, UPS_PLOT_BOTTOM = 48 };
/* A colour bar right of a plot: gap, width of the bar, width of its labels. */
enum { UPS_PLOT_BAR_GAP = 10, UPS_PLOT_BAR = 13, UPS_PLOT_BAR_LABELS = 58 };

/* Size of all text but a figure's title: an SVG holds the outline of every letter once a size. */
enum { UPS_PLOT_TEXT = 12 };

extern const ups_colour ups_plot_ink, ups_plot_soft;

typedef struct ups_rectangle {
    double x, y, width, height;
} ups_rectangle;

typedef struct ups_axis {
    double low, high;  /* values at the left and at the right end, or at the bottom and on top; low > high turns it */
    const char *label; /* "x", "time t"; NULL: none */
    bool logarithmic;
    bool whole;          /* it counts things: no ticks between them */
    bool bare;           /* ticks without numbers or label, for a plot beside one that has them */
    const double *edges; /* where the field's cells along it end, one more than there are, in their order; NULL: all are
                            as wide, the first one at the smaller end of a y axis, on the left of an x axis */
} ups_axis;

/* Ends of cells around `count` centres: halfway between them, and as far beyond the outer ones. malloc'ed; NULL where
 * the centres turn back, where there are less than two, and when out of memory. */
double *ups_axis_edges(const double *centres, int64_t count);

/* "x", or "x (m)" where the data tell the unit (else NULL), into `text`, which is returned. */
enum { UPS_AXIS_LABEL = 96 };
const char *ups_axis_label(char text[UPS_AXIS_LABEL], const char *name, const char *units);

typedef struct ups_plot {
    ups_rectangle area;
    ups_axis x, y;
    const char *title; /* NULL: none */
    bool grid;         /* lines at the ticks, for charts without a field */
} ups_plot;

/* Where a value lies in the figure. */
double ups_plot_x(const ups_plot *plot, double value);
double ups_plot_y(const ups_plot *plot, double value);
/* Grid, ticks, numbers, labels, title and frame. */
void ups_plot_axes(const ups_figure *figure, const ups_plot *plot);

/* Marks for an axis from `low` to `high`: about `wanted` of them at 1, 2 or 5 times a power of ten; or the powers of
 * ten themselves (with 2 and 5 between when there are few). Returns how many were written, at most UPS_PLOT_TICKS. */
enum { UPS_PLOT_TICKS = 24 };
int ups_plot_ticks(const ups_axis *axis, int wanted, double ticks[UPS_PLOT_TICKS]);

/* Two ends that can be divided by: apart by a little when they are equal, 0 and 1 when they are not finite. */
void ups_plot_part(double *low, double *high);

/* values[row * row_stride + column * column_stride], of which `minus` is subtracted where it is not NULL. Where cells
 * lie, the axes say. */
typedef struct ups_field {
    const float *values, *minus;
    int64_t rows, columns, row_stride, column_stride;
    int64_t known; /* rows that there are values of, the others stay white; 0: all */
} ups_field;

int64_t ups_field_known(const ups_field *field); /* rows with values */

/* Values of a colour map's ends. */
typedef struct ups_colour_scale {
    ups_colour_map map;
    double low, high;
    bool outside; /* what is NaN or infinite lies outside of the domain, and stays white */
    bool missing; /* some values are NaN or infinite: the bar shows their grey as well */
} ups_colour_scale;

/* The scale that `count` fields share, by their finite values; symmetric about 0 when the map is diverging. */
ups_colour_scale ups_colour_scale_of(ups_colour_map map, const ups_field *fields, int count);

/* Fills the plot's area: each value is the rectangle it stands for. Where values are finer than the figure's pixels, a
 * pixel is the mean of those it covers, so that no pattern appears that the data do not have; NaN and Inf are grey. */
void ups_plot_field(const ups_figure *figure, const ups_plot *plot, const ups_field *field,
                    const ups_colour_scale *scale);
/* At UPS_PLOT_BAR_GAP from the plot. */
void ups_plot_colour_bar(const ups_figure *figure, const ups_plot *plot, const ups_colour_scale *scale);

/* A line through (x, values), which are `stride` apart; values that are not finite leave a gap. */
void ups_plot_line(const ups_figure *figure, const ups_plot *plot, const double *x, const float *values, int64_t count,
                   int64_t stride);

#endif
