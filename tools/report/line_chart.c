#include "tools/report/line_chart.h"

#include "tools/report/plot.h"
#include <math.h>

enum { LEGEND = 24, SWATCH = 22, BETWEEN = 16, TOP = 8 };

bool ups_chart_spreads(const double *values, int64_t count, double ratio) {
    double low = INFINITY, high = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) continue;
        if (values[i] < 0) return false;
        if (values[i] > 0) low = fmin(low, values[i]);
        high = fmax(high, values[i]);
    }
    return high > ratio * low;
}

static bool is_shown(const ups_line_chart *chart, double y) {
    return isfinite(y) && (!chart->logarithmic_y || y > 0);
}

static void reach(const ups_line_chart *chart, const double *y, ups_axis *axis) {
    for (int64_t i = 0; i < chart->count; i++) {
        if (!is_shown(chart, y[i])) continue;
        axis->low = fmin(axis->low, y[i]);
        axis->high = fmax(axis->high, y[i]);
    }
}

static ups_axis y_axis(const ups_line_chart *chart) {
    ups_axis axis = {.low = INFINITY, .high = -INFINITY, .label = chart->y_label, .logarithmic = chart->logarithmic_y};
    for (int i = 0; i < chart->line_count; i++) reach(chart, chart->lines[i].y, &axis);
    for (int i = 0; i < chart->range_count; i++) {
        reach(chart, chart->ranges[i].low, &axis);
        reach(chart, chart->ranges[i].high, &axis);
    }
    if (axis.logarithmic) {
        if (!(axis.low <= axis.high)) axis.low = 0.1, axis.high = 1;
        if (chart->decades > 0) axis.low = fmax(axis.low, axis.high * pow(10, -chart->decades));
        axis.low /= 1.25;
        axis.high *= 1.25;
        return axis;
    }
    if (chart->low_y < chart->high_y) {
        axis.low = fmin(axis.low, chart->low_y);
        axis.high = fmax(axis.high, chart->high_y);
    }
    ups_plot_part(&axis.low, &axis.high);
    const double room = 0.05 * (axis.high - axis.low);
    if (axis.low != 0) axis.low -= room; /* an axis that begins with 0 stays so */
    axis.high += room;
    return axis;
}

static void draw_range(const ups_figure *figure, const ups_plot *plot, const ups_line_chart *chart,
                       const ups_chart_range *range) {
    int64_t points = 0;
    for (int64_t k = 0; k < 2 * chart->count; k++) { /* along the upper edge, and back along the lower one */
        const int64_t i = k < chart->count ? k : 2 * chart->count - 1 - k;
        if (!is_shown(chart, range->low[i]) || !is_shown(chart, range->high[i])) continue;
        cairo_line_to(figure->cairo, ups_plot_x(plot, chart->x[i]),
                      ups_plot_y(plot, k < chart->count ? range->high[i] : range->low[i]));
        points++;
    }
    ups_figure_colour(figure, range->colour);
    if (points > 0) cairo_fill(figure->cairo);
}

static void dash(const ups_figure *figure, bool dashed) {
    static const double pattern[] = {6, 4};
    cairo_set_dash(figure->cairo, pattern, dashed ? 2 : 0, 0);
}

static void draw_line(const ups_figure *figure, const ups_plot *plot, const ups_line_chart *chart,
                      const ups_chart_line *line) {
    cairo_set_line_width(figure->cairo, 1.8);
    cairo_set_line_cap(figure->cairo, CAIRO_LINE_CAP_ROUND); /* one value between two gaps is a dot */
    cairo_set_line_join(figure->cairo, CAIRO_LINE_JOIN_ROUND);
    dash(figure, line->dashed);
    ups_figure_colour(figure, line->colour);
    for (int64_t i = 0; i < chart->count; i++) {
        if (!is_shown(chart, line->y[i])) {
            cairo_new_sub_path(figure->cairo);
            continue;
        }
        const double x = ups_plot_x(plot, chart->x[i]), y = ups_plot_y(plot, line->y[i]);
        if (!cairo_has_current_point(figure->cairo)) cairo_move_to(figure->cairo, x, y);
        cairo_line_to(figure->cairo, x, y);
    }
    cairo_stroke(figure->cairo);
    dash(figure, false);
}

/* Names with what they stand for, from left to right. */
static void draw_legend(const ups_figure *figure, const ups_plot *plot, const ups_line_chart *chart) {
    const ups_text_style style = {.size = UPS_PLOT_TEXT, .colour = ups_plot_ink};
    const double y = plot->area.y - 12;
    double x = plot->area.x;
    cairo_set_line_width(figure->cairo, 2.4);
    for (int i = chart->line_count - 1; i >= 0; i--) {
        dash(figure, chart->lines[i].dashed);
        ups_figure_colour(figure, chart->lines[i].colour);
        cairo_move_to(figure->cairo, x, y);
        cairo_rel_line_to(figure->cairo, SWATCH, 0);
        cairo_stroke(figure->cairo);
        dash(figure, false);
        x += SWATCH + 5;
        x += ups_figure_text(figure, x, y + 4, chart->lines[i].name, &style) + BETWEEN;
    }
    for (int i = chart->range_count - 1; i >= 0; i--) {
        cairo_rectangle(figure->cairo, x, y - 5, SWATCH, 10);
        ups_figure_colour(figure, chart->ranges[i].colour);
        cairo_fill(figure->cairo);
        x += SWATCH + 5;
        x += ups_figure_text(figure, x, y + 4, chart->ranges[i].name, &style) + BETWEEN;
    }
}

void ups_chart_lines(ups_html *html, const ups_line_chart *chart) {
    const double above = TOP + LEGEND + (chart->title ? UPS_PLOT_TOP - TOP : 0);
    ups_axis x = {.low = chart->x[0],
                  .high = chart->x[chart->count - 1],
                  .label = chart->x_label,
                  .logarithmic = chart->logarithmic_x};
    if (!chart->logarithmic_x) ups_plot_part(&x.low, &x.high);
    if (chart->logarithmic_x && !(x.low < x.high)) x.high = 10 * x.low;
    const ups_plot plot = {.area = {UPS_PLOT_LEFT, above, chart->width - UPS_PLOT_LEFT - UPS_PLOT_RIGHT,
                                    chart->height - above - UPS_PLOT_BOTTOM},
                           .x = x,
                           .y = y_axis(chart),
                           .grid = true};
    ups_figure figure;
    ups_figure_begin(&figure, UPS_FIGURE_SVG, chart->width, chart->height);
    if (chart->title) {
        const ups_text_style style = {
            .size = UPS_PLOT_TEXT, .bold = true, .colour = ups_plot_ink, .room = plot.area.width};
        ups_figure_text(&figure, plot.area.x, TOP + UPS_PLOT_TEXT, chart->title, &style);
    }
    ups_plot_axes(&figure, &plot);
    draw_legend(&figure, &plot, chart);
    cairo_save(figure.cairo);
    cairo_rectangle(figure.cairo, plot.area.x, plot.area.y, plot.area.width, plot.area.height);
    cairo_clip(figure.cairo);
    for (int i = 0; i < chart->range_count; i++) draw_range(&figure, &plot, chart, &chart->ranges[i]);
    if (is_shown(chart, chart->mark)) {
        cairo_set_line_width(figure.cairo, 1);
        ups_figure_colour(&figure, ups_plot_soft);
        cairo_move_to(figure.cairo, plot.area.x, ups_plot_y(&plot, chart->mark));
        cairo_rel_line_to(figure.cairo, plot.area.width, 0);
        cairo_stroke(figure.cairo);
    }
    for (int i = 0; i < chart->line_count; i++) draw_line(&figure, &plot, chart, &chart->lines[i]);
    cairo_restore(figure.cairo);
    ups_figure_embed(&figure, html, "chart", chart->description);
}
