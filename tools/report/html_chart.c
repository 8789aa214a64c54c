#include "tools/report/html_chart.h"

#include "tools/report/plot.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 620, HEIGHT = 246, LEFT = 78, RIGHT = 14, TOP = 30, BOTTOM = 40 };
enum { MOST_SIDE = 320, MOST_DOTS = 1000, MOST_NAMED = 8 };

/* ---- frame and axes ---- */

typedef struct axes {
    double x_low, x_high, y_low, y_high;
    bool whole;       /* x counts things: no ticks between them */
    bool logarithmic; /* y_low and y_high are powers of ten */
} axes;

static double at_x(const axes *a, double x) {
    return LEFT + (x - a->x_low) / (a->x_high - a->x_low) * (WIDTH - LEFT - RIGHT);
}

static double at_y(const axes *a, double y) {
    return HEIGHT - BOTTOM - (y - a->y_low) / (a->y_high - a->y_low) * (HEIGHT - TOP - BOTTOM);
}

/* Ends that can be divided by. */
static void part(double *low, double *high) {
    if (!isfinite(*low) || !isfinite(*high)) *low = 0, *high = 1;
    if (*low < *high) return;
    double room = *low != 0 ? 0.05 * fabs(*low) : 1;
    *low -= room;
    *high += room;
}

/* A tick at zero that is off by an error of rounding. */
static double rounded(double tick, double span) {
    return fabs(tick) < 1e-12 * span ? 0 : tick;
}

static void begin(ups_html *html, const axes *a, const char *x_label, const char *y_label, const char *description) {
    double ticks[UPS_PLOT_TICKS];
    ups_html_markup(html, "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"");
    ups_html_text(html, description);
    ups_html_markup(html, "\"><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    ups_html_text(html, description);
    ups_html_markup(html, "\">");
    int count = ups_plot_ticks(a->y_low, a->y_high, false, 5, ticks, UPS_PLOT_TICKS);
    for (int i = 0; i < count; i++) {
        if (a->logarithmic && ticks[i] != floor(ticks[i])) continue;
        ups_html_markup(html, "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">",
                        LEFT, at_y(a, ticks[i]), WIDTH - RIGHT, LEFT - 7, at_y(a, ticks[i]) + 4);
        ups_html_markup(html, "%.5g</text>",
                        a->logarithmic ? pow(10, ticks[i]) : rounded(ticks[i], a->y_high - a->y_low));
    }
    count = ups_plot_ticks(a->x_low, a->x_high, false, 7, ticks, UPS_PLOT_TICKS);
    for (int i = 0; i < count; i++) {
        if (a->whole && ticks[i] != floor(ticks[i])) continue;
        double x = at_x(a, ticks[i]);
        ups_html_markup(
            html, "<path class=\"tick\" d=\"M%.1f %dv4\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.7g</text>",
            x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 17, rounded(ticks[i], a->x_high - a->x_low));
    }
    ups_html_markup(html, "<path class=\"tick\" d=\"M%d %dH%d\"/>", LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT);
    ups_html_markup(html, "<text class=\"label\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (LEFT + WIDTH - RIGHT) / 2,
                    HEIGHT - 5);
    ups_html_text(html, x_label);
    ups_html_markup(html,
                    "</text><text class=\"label\" x=\"4\" y=\"15\">"); /* level, so that it meets no tick's number */
    ups_html_text(html, y_label);
    ups_html_markup(html, "</text>");
}

static void end(ups_html *html) {
    ups_html_markup(html, "</svg></div>\n");
}

/* ---- histogram ---- */

void ups_html_histogram(ups_html *html, const int64_t *counts, int bins, double low, double high, const char *x_label,
                        const char *description) {
    double total = 0, most = 0, least = INFINITY;
    for (int i = 0; i < bins; i++) {
        total += (double)counts[i];
        most = fmax(most, (double)counts[i]);
        if (counts[i] > 0) least = fmin(least, (double)counts[i]);
    }
    part(&low, &high);
    axes a = {low, high, -1, 2, .logarithmic = true};
    if (total > 0) {
        a.y_low = floor(log10(100 * least / total) - 0.1);
        a.y_high = fmax(log10(100 * most / total) + 0.1, a.y_low + 1);
    }
    begin(html, &a, x_label, "% of values (log scale)", description);
    double width = (at_x(&a, high) - at_x(&a, low)) / bins;
    for (int i = 0; i < bins; i++) {
        if (counts[i] == 0) continue;
        double share = 100 * (double)counts[i] / total, top = at_y(&a, log10(share)),
               from = low + (high - low) * i / bins;
        ups_html_markup(
            html,
            "<rect class=\"bar\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>%.4g to %.4g: %.3g %%"
            "</title></rect>",
            at_x(&a, from) + 0.5, top, fmax(width - 1, 0.5), fmax(HEIGHT - BOTTOM - top, 0.5), from,
            from + (high - low) / bins, share);
    }
    end(html);
}

/* ---- bands ---- */

/* A closed outline along the tops and back along the bottoms, a step an item. */
static void outline(ups_html *html, const axes *a, const ups_html_band *bands, int64_t count, int inner) {
    ups_html_markup(html, "<path class=\"%s\" d=\"", inner ? "inner" : "outer");
    for (int64_t i = 0; i < count; i++) {
        double top = inner ? bands[i].middle + bands[i].deviation : bands[i].high;
        ups_html_markup(html, "%s%.1f %.1fH%.1f", i ? "L" : "M", at_x(a, (double)i - 0.5), at_y(a, top),
                        at_x(a, (double)i + 0.5));
    }
    for (int64_t i = count - 1; i >= 0; i--) {
        double bottom = inner ? bands[i].middle - bands[i].deviation : bands[i].low;
        ups_html_markup(html, "L%.1f %.1fH%.1f", at_x(a, (double)i + 0.5), at_y(a, bottom), at_x(a, (double)i - 0.5));
    }
    ups_html_markup(html, "Z\"/>");
}

void ups_html_bands(ups_html *html, const ups_html_band *bands, int64_t count, const char *x_label, const char *y_label,
                    const char *description) {
    axes a = {-0.5, (double)count - 0.5, INFINITY, -INFINITY, .whole = true};
    for (int64_t i = 0; i < count; i++) {
        a.y_low = fmin(a.y_low, bands[i].low);
        a.y_high = fmax(a.y_high, bands[i].high);
    }
    part(&a.y_low, &a.y_high);
    double room = 0.04 * (a.y_high - a.y_low);
    a.y_low -= room;
    a.y_high += room;
    begin(html, &a, x_label, y_label, description);
    outline(html, &a, bands, count, 0);
    outline(html, &a, bands, count, 1);
    ups_html_markup(html, "<path class=\"line\" d=\"");
    for (int64_t i = 0; i < count; i++) {
        ups_html_markup(html, "%s%.1f %.1fH%.1f", i ? "L" : "M", at_x(&a, (double)i - 0.5), at_y(&a, bands[i].middle),
                        at_x(&a, (double)i + 0.5));
    }
    ups_html_markup(html, "\"/>");
    end(html);
}

/* ---- items ---- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The middle of `count` numbers, which are sorted. */
static double middle_of(double *values, int64_t count) {
    qsort(values, (size_t)count, sizeof *values, by_value);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

/* The farthest from the others first: beyond four robust deviations (median absolute deviation × 1.4826) and 5 % of the
 * median. Returns how many there are in all. */
static int64_t find_outliers(const double *values, int64_t count, int64_t *index, int64_t most, int64_t *listed) {
    double *sorted = malloc((size_t)count * sizeof *sorted);
    int64_t n = 0, found = 0;
    *listed = 0;
    if (!sorted) return 0;
    for (int64_t i = 0; i < count; i++) {
        if (isfinite(values[i])) sorted[n++] = values[i];
    }
    if (n == 0) {
        free(sorted);
        return 0;
    }
    double median = middle_of(sorted, n);
    for (int64_t i = 0; i < n; i++) sorted[i] = fabs(sorted[i] - median);
    double limit = fmax(4 * 1.4826 * middle_of(sorted, n), 0.05 * fabs(median));
    free(sorted);
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(values[i]) || fabs(values[i] - median) <= limit) continue;
        found++;
        int64_t place = *listed < most ? (*listed)++ : most; /* insertion into the list, farthest first */
        while (place > 0 && fabs(values[index[place - 1]] - median) < fabs(values[i] - median)) {
            if (place < most) index[place] = index[place - 1];
            place--;
        }
        if (place < most) index[place] = i;
    }
    return found;
}

static void draw_dots(ups_html *html, const axes *a, const double *values, int64_t count) {
    double radius = count > 300 ? 2 : 3;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) continue;
        ups_html_markup(html,
                        "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.0f\"><title>%lld: %.4g</title></circle>",
                        at_x(a, (double)i), at_y(a, values[i]), radius, (long long)i, values[i]);
    }
}

static void draw_ranges(ups_html *html, const axes *a, const double *values, int64_t count) {
    enum { PARTS = 300 };
    for (int64_t p = 0; p < PARTS; p++) {
        int64_t from = p * count / PARTS, to = (p + 1) * count / PARTS;
        double low = INFINITY, high = -INFINITY;
        for (int64_t i = from; i < to; i++) {
            if (!isfinite(values[i])) continue;
            low = fmin(low, values[i]);
            high = fmax(high, values[i]);
        }
        if (!(low <= high)) continue;
        ups_html_markup(html, "<path class=\"span\" d=\"M%.1f %.1fV%.1f\"/>", at_x(a, 0.5 * (double)(from + to - 1)),
                        at_y(a, high) - 0.7, at_y(a, low) + 0.7);
    }
}

/* Names beside the dots; one that would lie over another moves down. */
static void name_outliers(ups_html *html, const axes *a, const double *values, const int64_t *index, int64_t count,
                          const char *item) {
    double placed[MOST_NAMED][2];
    for (int64_t i = 0; i < count; i++) {
        double x = at_x(a, (double)index[i]), y = at_y(a, values[index[i]]), text_y = y + 4;
        for (int64_t k = 0; k < i; k++) {
            if (fabs(placed[k][0] - x) < 90 && fabs(placed[k][1] - text_y) < 13) {
                text_y = placed[k][1] + 13;
                k = -1;
            }
        }
        if (text_y > HEIGHT - BOTTOM - 2) text_y = HEIGHT - BOTTOM - 2;
        placed[i][0] = x;
        placed[i][1] = text_y;
        bool left = x > WIDTH - 110;
        ups_html_markup(html,
                        "<circle class=\"outlier\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/><text class=\"named\" x=\"%.1f\" "
                        "y=\"%.1f\" text-anchor=\"%s\">",
                        x, y, left ? x - 8 : x + 8, text_y, left ? "end" : "start");
        ups_html_textf(html, "%s %lld", item, (long long)index[i]);
        ups_html_markup(html, "</text>");
    }
}

int64_t ups_html_items(ups_html *html, const double *values, int64_t count, const char *item, const char *y_label,
                       const char *description) {
    axes a = {-0.5, (double)count - 0.5, INFINITY, -INFINITY, .whole = true};
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) continue;
        a.y_low = fmin(a.y_low, values[i]);
        a.y_high = fmax(a.y_high, values[i]);
    }
    part(&a.y_low, &a.y_high);
    double room = 0.12 * (a.y_high - a.y_low);
    a.y_low = a.y_low - room < 0 && a.y_low >= 0 ? 0 : a.y_low - room;
    a.y_high += room;
    int64_t outlier[MOST_NAMED + 1], listed;
    int64_t found = find_outliers(values, count, outlier, MOST_NAMED, &listed);
    begin(html, &a, item, y_label, description);
    if (count <= MOST_DOTS)
        draw_dots(html, &a, values, count);
    else
        draw_ranges(html, &a, values, count);
    name_outliers(html, &a, values, outlier, listed, item);
    end(html);
    return found;
}

/* ---- fields ---- */

static ups_status paint(const ups_html_field *field, void **bytes, size_t *length, ups_error *error) {
    int64_t by_row = (field->rows + MOST_SIDE - 1) / MOST_SIDE,
            by_column = (field->columns + MOST_SIDE - 1) / MOST_SIDE;
    int64_t rows = (field->rows + by_row - 1) / by_row, columns = (field->columns + by_column - 1) / by_column;
    ups_canvas *canvas;
    UPS_TRY(ups_canvas_create((int)columns, (int)rows, &canvas, error));
    double span = field->high > field->low ? field->high - field->low : 1;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            float value = field->values[r * by_row * field->row_stride + c * by_column * field->column_stride];
            float share = isfinite(value) ? (float)((value - field->low) / span) : NAN;
            ups_canvas_pixel(canvas, (int)c, (int)(field->downward ? r : rows - 1 - r),
                             ups_colour_of(field->map, share));
        }
    }
    ups_status status = ups_canvas_encode(canvas, bytes, length, error);
    ups_canvas_destroy(canvas);
    return status;
}

ups_status ups_html_figure(ups_html *html, const ups_html_field *field, ups_error *error) {
    void *bytes;
    size_t length;
    UPS_TRY(paint(field, &bytes, &length, error));
    double ratio = (double)field->columns / (double)field->rows;
    ratio = field->stretched ? 4.0 / 3 : fmin(4, fmax(0.5, ratio));
    ups_html_markup(html, "<figure><figcaption>");
    ups_html_text(html, field->title);
    ups_html_markup(html, "</figcaption><img style=\"aspect-ratio:%.3f\" alt=\"", ratio);
    ups_html_text(html, field->description);
    ups_html_markup(html, "\" src=\"");
    ups_html_png(html, bytes, length);
    ups_html_markup(html, "\"><div class=\"scale\"><span>");
    ups_html_number(html, 3, field->low);
    ups_html_markup(html, "</span><span class=\"%s\"></span><span>",
                    field->map == UPS_COLOURS_DIVERGING ? "diverging" : "sequential");
    ups_html_number(html, 3, field->high);
    ups_html_markup(html, "</span></div></figure>\n");
    free(bytes);
    return UPS_OK;
}
