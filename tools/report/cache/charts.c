#include "tools/report/cache/charts.h"

#include "tools/report/plot.h"
#include <math.h>
#include <stdlib.h>

enum { WIDTH = 640, HEIGHT = 250, TOP = 12, MAXIMUM_DOTS = 1000 };

static const ups_colour outer = {222, 235, 247}, inner = {165, 200, 234}, accent = {31, 98, 170},
                        warning = {168, 58, 8};

/* A figure with its axes drawn. */
static ups_plot begin(ups_figure *figure, ups_axis x, ups_axis y) {
    const ups_plot plot = {
        .area = {UPS_PLOT_LEFT, TOP, WIDTH - UPS_PLOT_LEFT - UPS_PLOT_RIGHT, HEIGHT - TOP - UPS_PLOT_BOTTOM},
        .x = x,
        .y = y,
        .grid = true};
    ups_figure_begin(figure, UPS_FIGURE_SVG, WIDTH, HEIGHT);
    ups_plot_axes(figure, &plot);
    return plot;
}

/* ---- histogram ---- */

void ups_chart_histogram(ups_html *html, const int64_t *counts, int bins, double low, double high, const char *x_label,
                         const char *description) {
    double total = 0, maximum = 0, minimum = INFINITY;
    for (int i = 0; i < bins; i++) {
        total += (double)counts[i];
        maximum = fmax(maximum, (double)counts[i]);
        if (counts[i] > 0) minimum = fmin(minimum, (double)counts[i]);
    }
    ups_plot_part(&low, &high);
    ups_axis y = {.low = 0.1, .high = 100, .label = "% of values (log scale)", .logarithmic = true};
    if (total > 0) {
        y.low = pow(10, floor(log10(100 * minimum / total) - 0.1));
        y.high = fmax(125 * maximum / total, 10 * y.low);
    }
    ups_figure figure;
    const ups_plot plot = begin(&figure, (ups_axis){.low = low, .high = high, .label = x_label}, y);
    const double width = plot.area.width / bins, bottom = plot.area.y + plot.area.height;
    for (int i = 0; i < bins; i++) {
        if (counts[i] == 0) continue;
        const double top = ups_plot_y(&plot, 100 * (double)counts[i] / total);
        cairo_rectangle(figure.cairo, plot.area.x + i * width + 0.5, top, fmax(width - 1, 0.5), bottom - top);
    }
    ups_figure_colour(&figure, accent);
    cairo_fill(figure.cairo);
    ups_figure_embed(&figure, html, "chart", description);
}

/* ---- bands ---- */

/* Along one edge of a band, a step an item: `side` 1 for the upper, −1 for the lower, 0 for the line in the middle. */
static void follow(const ups_figure *figure, const ups_plot *plot, const ups_chart_band *bands, int64_t count, int side,
                   bool is_inner) {
    for (int64_t k = 0; k < count; k++) {
        const int64_t i = side < 0 ? count - 1 - k : k; /* back along the lower edge */
        const ups_chart_band *b = &bands[i];
        const double value = side == 0 || is_inner ? b->middle + side * b->deviation : side > 0 ? b->high : b->low;
        const double from = side < 0 ? 0.5 : -0.5;
        cairo_line_to(figure->cairo, ups_plot_x(plot, (double)i + from), ups_plot_y(plot, value));
        cairo_line_to(figure->cairo, ups_plot_x(plot, (double)i - from), ups_plot_y(plot, value));
    }
}

void ups_chart_bands(ups_html *html, const ups_chart_band *bands, int64_t count, const char *x_label,
                     const char *y_label, const char *description) {
    ups_axis x = {.low = -0.5, .high = (double)count - 0.5, .label = x_label, .whole = true};
    ups_axis y = {.low = INFINITY, .high = -INFINITY, .label = y_label};
    for (int64_t i = 0; i < count; i++) {
        y.low = fmin(y.low, bands[i].low);
        y.high = fmax(y.high, bands[i].high);
    }
    ups_plot_part(&y.low, &y.high);
    const double room = 0.04 * (y.high - y.low);
    y.low -= room;
    y.high += room;
    ups_figure figure;
    const ups_plot plot = begin(&figure, x, y);
    for (int is_inner = 0; is_inner < 2; is_inner++) {
        follow(&figure, &plot, bands, count, 1, is_inner);
        follow(&figure, &plot, bands, count, -1, is_inner);
        ups_figure_colour(&figure, is_inner ? inner : outer);
        cairo_fill(figure.cairo);
    }
    follow(&figure, &plot, bands, count, 0, false);
    ups_figure_colour(&figure, accent);
    cairo_set_line_width(figure.cairo, 1.6);
    cairo_stroke(figure.cairo);
    ups_figure_embed(&figure, html, "chart", description);
}

/* ---- items ---- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *values, int64_t count) {
    qsort(values, (size_t)count, sizeof *values, by_value);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

/* Beyond four robust deviations (median absolute deviation × 1.4826) and 5 % of the median. */
static ups_chart_outliers find_outliers(const double *values, int64_t count) {
    ups_chart_outliers out = {0};
    double *sorted = malloc((size_t)count * sizeof *sorted);
    int64_t n = 0;
    for (int64_t i = 0; i < count && sorted; i++) {
        if (isfinite(values[i])) sorted[n++] = values[i];
    }
    if (n == 0) {
        free(sorted);
        return out;
    }
    const double median = median_of(sorted, n);
    for (int64_t i = 0; i < n; i++) sorted[i] = fabs(sorted[i] - median);
    const double limit = fmax(4 * 1.4826 * median_of(sorted, n), 0.05 * fabs(median));
    free(sorted);
    for (int64_t i = 0; i < count; i++) {
        const double distance = fabs(values[i] - median);
        if (!isfinite(values[i]) || distance <= limit) continue;
        out.found++;
        int64_t place = out.named < UPS_CHART_NAMED ? out.named++ : UPS_CHART_NAMED; /* insertion, farthest first */
        for (; place > 0 && fabs(values[out.index[place - 1]] - median) < distance; place--) {
            if (place < UPS_CHART_NAMED) out.index[place] = out.index[place - 1];
        }
        if (place < UPS_CHART_NAMED) out.index[place] = i;
    }
    return out;
}

static void draw_dots(const ups_figure *figure, const ups_plot *plot, const double *values, int64_t count) {
    cairo_set_line_cap(figure->cairo, CAIRO_LINE_CAP_ROUND); /* a path of no length then is a dot */
    cairo_set_line_width(figure->cairo, count > 300 ? 4 : 6);
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) continue;
        cairo_move_to(figure->cairo, ups_plot_x(plot, (double)i), ups_plot_y(plot, values[i]));
        cairo_close_path(figure->cairo);
    }
    cairo_set_source_rgba(figure->cairo, accent.red / 255.0, accent.green / 255.0, accent.blue / 255.0, 0.65);
    cairo_stroke(figure->cairo);
}

static void draw_ranges(const ups_figure *figure, const ups_plot *plot, const double *values, int64_t count) {
    enum { PARTS = 300 };
    for (int64_t p = 0; p < PARTS; p++) {
        const int64_t from = p * count / PARTS, to = (p + 1) * count / PARTS;
        double low = INFINITY, high = -INFINITY;
        for (int64_t i = from; i < to; i++) {
            if (!isfinite(values[i])) continue;
            low = fmin(low, values[i]);
            high = fmax(high, values[i]);
        }
        if (!(low <= high)) continue;
        const double x = ups_plot_x(plot, 0.5 * (double)(from + to - 1));
        cairo_move_to(figure->cairo, x, ups_plot_y(plot, high) - 0.7);
        cairo_line_to(figure->cairo, x, ups_plot_y(plot, low) + 0.7);
    }
    ups_figure_colour(figure, accent);
    cairo_set_line_width(figure->cairo, 1.6);
    cairo_stroke(figure->cairo);
}

/* Names beside rings; one that would lie over another moves down. */
static void name_outliers(const ups_figure *figure, const ups_plot *plot, const double *values,
                          const ups_chart_outliers *outliers, const char *item) {
    double placed[UPS_CHART_NAMED][2];
    const double lowest = plot->area.y + plot->area.height - 4;
    cairo_set_line_width(figure->cairo, 1.8);
    for (int64_t i = 0; i < outliers->named; i++) {
        const double x = ups_plot_x(plot, (double)outliers->index[i]), y = ups_plot_y(plot, values[outliers->index[i]]);
        double text_y = y + 4;
        for (int64_t k = 0; k < i; k++) {
            if (fabs(placed[k][0] - x) >= 90 || fabs(placed[k][1] - text_y) >= 13) continue;
            text_y = placed[k][1] + 13;
            k = -1;
        }
        text_y = fmin(text_y, lowest);
        placed[i][0] = x;
        placed[i][1] = text_y;
        char name[80];
        snprintf(name, sizeof name, "%.50s %lld", item, (long long)outliers->index[i]);
        const bool left = x > WIDTH - 110;
        const ups_text_style style = {
            .size = UPS_PLOT_TEXT, .anchor = left ? UPS_TEXT_RIGHT : UPS_TEXT_LEFT, .colour = warning};
        cairo_new_sub_path(figure->cairo);
        cairo_arc(figure->cairo, x, y, 4.5, 0, 6.28318530717958648);
        ups_figure_colour(figure, warning);
        cairo_stroke(figure->cairo);
        ups_figure_text(figure, left ? x - 8 : x + 8, text_y, name, &style);
    }
}

ups_chart_outliers ups_chart_items(ups_html *html, const double *values, int64_t count, const char *item,
                                   const char *y_label, const char *description) {
    ups_axis x = {.low = -0.5, .high = (double)count - 0.5, .label = item, .whole = true};
    ups_axis y = {.low = INFINITY, .high = -INFINITY, .label = y_label};
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) continue;
        y.low = fmin(y.low, values[i]);
        y.high = fmax(y.high, values[i]);
    }
    ups_plot_part(&y.low, &y.high);
    const double room = 0.12 * (y.high - y.low);
    y.low = y.low - room < 0 && y.low >= 0 ? 0 : y.low - room;
    y.high += room;
    const ups_chart_outliers outliers = find_outliers(values, count);
    ups_figure figure;
    const ups_plot plot = begin(&figure, x, y);
    if (count <= MAXIMUM_DOTS)
        draw_dots(&figure, &plot, values, count);
    else
        draw_ranges(&figure, &plot, values, count);
    name_outliers(&figure, &plot, values, &outliers, item);
    ups_figure_embed(&figure, html, "chart", description);
    return outliers;
}
