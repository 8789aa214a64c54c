#include "tools/report/pictures.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { TITLE = 34, NAME = 20 }; /* height of a picture's own title; width of a row's name */

/* Width and height of a heat map's plot: the data's proportions when both axes are space, within reason. */
static void plot_size(const ups_axis *x, const ups_axis *y, int64_t columns, int64_t rows, bool stretched, float side,
                      float *width, float *height) {
    const double across = x->low == x->high ? (double)columns : fabs(x->high - x->low);
    const double up = y->low == y->high ? (double)rows : fabs(y->high - y->low);
    const float ratio = stretched ? 1.2f : (float)fmin(2.5, fmax(0.4, across / up));
    *width = ratio >= 1 ? side * fminf(ratio, 1.6f) : side * ratio;
    *height = ratio >= 1 ? *width / ratio : side;
    *width = roundf(*width);
    *height = roundf(*height);
}

/* ---- [given |] prediction | truth | error ---- */

/* The row's error, a newly allocated (height, width); its relative root mean square. NULL when out of memory. */
static float *error_of(const ups_comparison *c, const ups_comparison_row *row, double *nrmse) {
    float *difference = malloc((size_t)(c->height * c->width) * sizeof(float));
    if (!difference) return NULL;
    double squares = 0, truth_squares = 0;
    for (int64_t y = 0; y < c->height; y++) {
        for (int64_t x = 0; x < c->width; x++) {
            const int64_t at = y * c->row_stride + x * c->column_stride;
            const float e = row->prediction[at] - row->truth[at];
            difference[y * c->width + x] = e;
            squares += (double)e * e;
            truth_squares += (double)row->truth[at] * row->truth[at];
        }
    }
    *nrmse = row->nrmse > 0 ? row->nrmse : sqrt(squares / truth_squares);
    return difference;
}

/* The field a prediction was made from, on a scale of its own. `map` has the row's axes. */
static void draw_given(ups_canvas *canvas, const ups_comparison *c, const ups_comparison_row *row,
                       const ups_heat_map *axes, bool titled, ups_rectangle plot) {
    if (!row->given) return;
    ups_heat_map map = *axes;
    map.values = row->given;
    map.title = titled ? c->given_name : NULL;
    ups_plot_range(row->given, c->height, c->width, c->row_stride, c->column_stride, &map.low, &map.high);
    ups_plot_heat_map(canvas, plot, &map);
    const ups_rectangle bar = {plot.x + plot.width + UPS_PLOT_BAR_GAP, plot.y, UPS_PLOT_BAR, plot.height};
    ups_plot_colour_bar(canvas, bar, map.map, map.low, map.high);
}

static ups_status draw_comparison_row(ups_canvas *canvas, const ups_comparison *c, int index, ups_rectangle plot,
                                      ups_error *error) {
    const ups_comparison_row *row = &c->rows[index];
    const bool first = index == 0, last = index == c->row_count - 1;
    const float left = plot.x;
    double nrmse, truth_low, truth_high, low, high;
    float *difference = error_of(c, row, &nrmse);
    if (!difference)
        return ups_fail(error, UPS_ERR_MEMORY, "out of memory for a picture of %lld x %lld values", (long long)c->width,
                        (long long)c->height);
    ups_plot_range(row->truth, c->height, c->width, c->row_stride, c->column_stride, &truth_low, &truth_high);
    ups_plot_range(row->prediction, c->height, c->width, c->row_stride, c->column_stride, &low, &high);
    low = fmin(low, truth_low); /* a prediction that blew up must not hide behind the truth's scale */
    high = fmax(high, truth_high);

    ups_heat_map map = {
        .values = row->prediction,
        .rows = c->height,
        .columns = c->width,
        .row_stride = c->row_stride,
        .column_stride = c->column_stride,
        .x = c->x,
        .y = c->y,
        .low = low,
        .high = high,
        .title = first ? "prediction" : NULL,
    };
    map.x.bare = !last;
    if (c->given_name) {
        draw_given(canvas, c, row, &map, first, plot);
        plot.x += plot.width + UPS_PLOT_BAR_GAP + UPS_PLOT_BAR + UPS_PLOT_BAR_LABELS;
        map.y.bare = true;
    }
    ups_plot_heat_map(canvas, plot, &map);
    if (row->name) {
        const ups_text_style style = {
            .size = 10.5f, .anchor = UPS_TEXT_CENTRE, .bold = true, .upward = true, .colour = {38, 38, 38}};
        ups_canvas_text(canvas, (ups_point){left - UPS_PLOT_LEFT + 1, plot.y + 0.5f * plot.height}, row->name, &style);
    }

    map.y.bare = true;
    map.values = row->truth;
    map.title = first ? "truth" : NULL;
    plot.x += plot.width + UPS_PLOT_RIGHT;
    ups_plot_heat_map(canvas, plot, &map);
    ups_rectangle bar = {plot.x + plot.width + UPS_PLOT_BAR_GAP, plot.y, UPS_PLOT_BAR, plot.height};
    ups_plot_colour_bar(canvas, bar, map.map, low, high);

    double error_low, error_high;
    ups_plot_range(difference, c->height, c->width, c->width, 1, &error_low, &error_high);
    error_high = fmax(fabs(error_low), fabs(error_high));
    char title[64];
    snprintf(title, sizeof(title), first ? "error (nRMSE %.3g)" : "nRMSE %.3g", nrmse);
    map.values = difference;
    map.row_stride = c->width;
    map.column_stride = 1;
    map.map = UPS_COLOURS_DIVERGING;
    map.low = -error_high;
    map.high = error_high;
    map.title = title;
    plot.x = bar.x + bar.width + UPS_PLOT_BAR_LABELS;
    ups_plot_heat_map(canvas, plot, &map);
    bar.x = plot.x + plot.width + UPS_PLOT_BAR_GAP;
    ups_plot_colour_bar(canvas, bar, map.map, map.low, map.high);
    free(difference);
    return UPS_OK;
}

ups_status ups_picture_comparison(const char *path, const ups_comparison *c, ups_error *error) {
    enum { MOST_ROWS = 16 };
    if (c->row_count < 1 || c->row_count > MOST_ROWS || c->height < 1 || c->width < 1) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%s: %d rows of %lld x %lld values; 1 to %d rows with values were expected", path, c->row_count,
                        (long long)c->width, (long long)c->height, (int)MOST_ROWS);
    }
    float width, height;
    plot_size(&c->x, &c->y, c->width, c->height, c->stretched, c->row_count > 2 ? 170 : 220, &width, &height);
    const float left = NAME + UPS_PLOT_LEFT, top = (float)(c->title ? TITLE : 0) + UPS_PLOT_TOP,
                row_height = height + 32;
    const float bar = UPS_PLOT_BAR_GAP + UPS_PLOT_BAR + UPS_PLOT_BAR_LABELS;
    ups_canvas *canvas;
    const float given = c->given_name ? width + bar : 0;
    UPS_TRY(ups_canvas_create((int)(left + given + 3 * width + UPS_PLOT_RIGHT + 2 * bar),
                              (int)(top + row_height * (float)c->row_count - 32 + UPS_PLOT_BOTTOM), &canvas, error));
    if (c->title) ups_plot_title(canvas, (ups_point){16, 24}, c->title, 12);
    ups_status status = UPS_OK;
    for (int r = 0; r < c->row_count && status == UPS_OK; r++) {
        status =
            draw_comparison_row(canvas, c, r, (ups_rectangle){left, top + row_height * (float)r, width, height}, error);
    }
    if (status == UPS_OK) status = ups_canvas_publish(canvas, path, error);
    ups_canvas_destroy(canvas);
    return status;
}

/* ---- profiles ---- */

ups_status ups_picture_profiles(const char *path, const ups_profiles *p, ups_error *error) {
    enum { MOST = 12, COLUMNS = 3, WIDTH = 250, HEIGHT = 150, ACROSS = WIDTH + 24, DOWN = HEIGHT + 36 };
    if (p->count < 1 || p->count > MOST || p->points < 1) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: %d profiles of %lld points; 1 to %d with points were expected",
                        path, p->count, (long long)p->points, (int)MOST);
    }
    const int columns = p->count < COLUMNS ? p->count : COLUMNS, rows = (p->count + columns - 1) / columns;
    const int top = (p->title ? TITLE : 0) + UPS_PLOT_TOP;
    float *dense = malloc((size_t)(2 * p->points) * sizeof(float)); /* truth, prediction without strides */
    if (!dense) return ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory for %lld points", path, (long long)p->points);
    ups_canvas *canvas = NULL;
    ups_status status = ups_canvas_create(UPS_PLOT_LEFT + columns * ACROSS - 24 + UPS_PLOT_RIGHT,
                                          top + rows * DOWN - 36 + UPS_PLOT_BOTTOM, &canvas, error);
    if (status != UPS_OK) goto cleanup;
    if (p->title) ups_plot_title(canvas, (ups_point){16, 24}, p->title, 12);

    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < p->count; i++) {
        double truth_low, truth_high, prediction_low, prediction_high;
        ups_plot_range(p->profiles[i].truth, 1, p->points, 0, p->stride, &truth_low, &truth_high);
        ups_plot_range(p->profiles[i].prediction, 1, p->points, 0, p->stride, &prediction_low, &prediction_high);
        low = fmin(low, fmin(truth_low, prediction_low));
        high = fmax(high, fmax(truth_high, prediction_high));
    }
    const double room = 0.08 * (high - low);
    for (int i = 0; i < p->count; i++) {
        float *truth = dense, *prediction = dense + p->points;
        for (int64_t at = 0; at < p->points; at++) {
            truth[at] = p->profiles[i].truth[at * p->stride];
            prediction[at] = p->profiles[i].prediction[at * p->stride];
        }
        const ups_line lines[2] = {
            {.x = p->x, .y = truth, .count = p->points, .name = "truth", .colour = 0, .width = 3.2f},
            {.x = p->x, .y = prediction, .count = p->points, .name = "prediction", .colour = 1, .dashed = true},
        };
        const bool lowest = i + columns >= p->count;
        const ups_line_chart chart = {
            .x = {.label = p->x_label, .bare = !lowest},
            .y = {.low = low - room, .high = high + room, .label = p->y_label, .bare = i % columns != 0},
            .lines = lines,
            .line_count = 2,
            .title = p->profiles[i].name,
            .without_legend = i != 0,
        };
        const ups_rectangle plot = {(float)(UPS_PLOT_LEFT + i % columns * ACROSS), (float)(top + i / columns * DOWN),
                                    WIDTH, HEIGHT};
        ups_plot_lines(canvas, plot, &chart);
    }
    status = ups_canvas_publish(canvas, path, error);
cleanup:
    ups_canvas_destroy(canvas);
    free(dense);
    return status;
}

/* ---- single plots ---- */

ups_status ups_picture_heat_map(const char *path, const ups_heat_map *given, ups_error *error) {
    if (given->rows < 1 || given->columns < 1) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: a heat map of %lld x %lld values has nothing to show", path,
                        (long long)given->columns, (long long)given->rows);
    }
    ups_heat_map map = *given;
    if (map.low == map.high) {
        ups_plot_range(map.values, map.rows, map.columns, map.row_stride, map.column_stride, &map.low, &map.high);
        if (map.map == UPS_COLOURS_DIVERGING) {
            map.high = fmax(fabs(map.low), fabs(map.high));
            map.low = -map.high;
        }
    }
    float width, height;
    plot_size(&map.x, &map.y, map.columns, map.rows, map.stretched, 360, &width, &height);
    const ups_rectangle plot = {UPS_PLOT_LEFT, UPS_PLOT_TOP, width, height};
    const ups_rectangle bar = {plot.x + width + UPS_PLOT_BAR_GAP, plot.y, UPS_PLOT_BAR, height};
    ups_canvas *canvas;
    UPS_TRY(ups_canvas_create((int)(bar.x + UPS_PLOT_BAR + UPS_PLOT_BAR_LABELS),
                              (int)(plot.y + height + UPS_PLOT_BOTTOM), &canvas, error));
    ups_plot_heat_map(canvas, plot, &map);
    ups_plot_colour_bar(canvas, bar, map.map, map.low, map.high);
    const ups_status status = ups_canvas_publish(canvas, path, error);
    ups_canvas_destroy(canvas);
    return status;
}

ups_status ups_picture_lines(const char *path, const ups_line_chart *chart, ups_error *error) {
    const ups_rectangle plot = {UPS_PLOT_LEFT, UPS_PLOT_TOP, 620, 340};
    if (chart->line_count < 1)
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: a chart without lines has nothing to show", path);
    ups_canvas *canvas;
    UPS_TRY(ups_canvas_create((int)(plot.x + plot.width) + UPS_PLOT_RIGHT,
                              (int)(plot.y + plot.height) + UPS_PLOT_BOTTOM, &canvas, error));
    ups_plot_lines(canvas, plot, chart);
    const ups_status status = ups_canvas_publish(canvas, path, error);
    ups_canvas_destroy(canvas);
    return status;
}
