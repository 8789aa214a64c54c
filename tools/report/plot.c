/* See plot.h. A heat map shows each value as the rectangle it stands for; where values are smaller than pixels, a pixel
 * is the mean of those it covers, so that no pattern appears that the data do not have. */
#include "tools/report/plot.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const ups_colour ink = {38, 38, 38}, soft = {85, 85, 85}, grid_line = {228, 228, 228};
static const float label_size = 10.0f, tick_size = 9.0f, title_size = 10.5f, tick_length = 4;

/* ---- ticks ---- */

int ups_plot_ticks(double low, double high, bool logarithmic, int wanted, double *ticks, int capacity) {
    int count = 0;
    if (!(high > low) || !isfinite(low) || !isfinite(high)) return 0;
    if (logarithmic) {
        const int first = (int)floor(log10(low)), last = (int)floor(log10(high) + 1e-9);
        const int every = (last - first) / (wanted > 1 ? wanted : 1) + 1;
        const double between[] = {1, 2, 5};
        const int marks = last - first < 2 ? 3 : 1;
        for (int power = first; power <= last; power++) {
            if ((power % every) != 0) continue;
            for (int m = 0; m < marks && count < capacity; m++) {
                const double at = between[m] * pow(10, power);
                if (at >= low * (1 - 1e-9) && at <= high * (1 + 1e-9)) ticks[count++] = at;
            }
        }
        return count;
    }
    const double rough = (high - low) / wanted, power = pow(10, floor(log10(rough)));
    const double step = power * (rough <= power ? 1 : rough <= 2 * power ? 2 : rough <= 5 * power ? 5 : 10);
    for (double i = ceil(low / step - 1e-6); i * step <= high + 1e-6 * step && count < capacity; i++) {
        ticks[count++] = i == 0 ? 0 : i * step;
    }
    return count;
}

/* About one mark every `spacing` pixels, and at least three where the axis is long enough to tell them apart. */
static int axis_ticks(const ups_axis *axis, float pixels, float spacing, double ticks[UPS_PLOT_TICKS]) {
    enum { FEWEST = 3 };
    int wanted = (int)fmaxf(FEWEST, pixels / spacing), count;
    do {
        count = ups_plot_ticks(axis->low, axis->high, axis->logarithmic, wanted, ticks, UPS_PLOT_TICKS);
    } while (count < FEWEST && ++wanted <= 2 * FEWEST);
    return count;
}

/* Numbers of one axis share their form: fixed point while that is short, else a factor each. */
static void tick_text(double value, double step, double largest, char *text, size_t size) {
    if (value == 0) {
        snprintf(text, size, "0");
    } else if (largest >= 1e5 || largest < 1e-3) {
        const int digits = (int)fmax(0, ceil(log10(fabs(value) / step) - 1e-6));
        snprintf(text, size, "%.*e", digits < 4 ? digits : 4, value);
        char *exponent = strchr(text, 'e'); /* 1e-04 → 1e-4 */
        if (exponent) {
            char *to = exponent + 1;
            const char *from = exponent + 1;
            if (*from == '-') *to++ = *from;
            from++;
            while (*from == '0' && from[1]) from++;
            memmove(to, from, strlen(from) + 1);
        }
    } else {
        const int decimals = (int)fmax(0, ceil(-log10(step) - 1e-6));
        snprintf(text, size, "%.*f", decimals, value);
    }
}

/* A power of ten with its exponent raised; anything else as a number. Returns its width; draws when `canvas` is given.
 */
static float log_tick(ups_canvas *canvas, ups_point at, double value, const ups_text_style *style) {
    const double exponent = log10(value);
    char text[32];
    if (fabs(exponent - round(exponent)) > 1e-6 || fabs(exponent) < 2.5) {
        snprintf(text, sizeof(text), "%g", value);
        ups_canvas_text(canvas, at, text, style);
        return ups_canvas_text_width(text, style->size);
    }
    snprintf(text, sizeof(text), "%d", (int)round(exponent));
    ups_text_style small = *style;
    small.size *= 0.75f;
    const float base = ups_canvas_text_width("10", style->size), raised = ups_canvas_text_width(text, small.size);
    const float width = base + 2 + raised;
    ups_text_style left = *style;
    left.anchor = small.anchor = UPS_TEXT_LEFT;
    if (style->anchor == UPS_TEXT_RIGHT) at.x -= width;
    if (style->anchor == UPS_TEXT_CENTRE) at.x -= 0.5f * width;
    ups_canvas_text(canvas, at, "10", &left);
    ups_canvas_text(canvas, (ups_point){at.x + base + 2, at.y - 0.6f * style->size}, text, &small);
    return width;
}

static double position(const ups_axis *axis, double value) {
    if (axis->logarithmic) return (log(value) - log(axis->low)) / (log(axis->high) - log(axis->low));
    return (value - axis->low) / (axis->high - axis->low);
}

static float draw_tick(ups_canvas *canvas, ups_point at, double value, double step, double largest, bool logarithmic,
                       ups_text_anchor anchor) {
    const ups_text_style style = {.size = tick_size, .anchor = anchor, .colour = soft};
    if (logarithmic) {
        return log_tick(canvas, at, value, &style);
    }
    char text[40];
    tick_text(value, step, largest, text, sizeof(text));
    ups_canvas_text(canvas, at, text, &style);
    return ups_canvas_text_width(text, tick_size);
}

static double step_of(const double *ticks, int count, double span) {
    return count > 1 ? ticks[1] - ticks[0] : span;
}

static double largest_of(const double *ticks, int count) {
    double largest = 0;
    for (int i = 0; i < count; i++) largest = fmax(largest, fabs(ticks[i]));
    return largest;
}

static void draw_x_axis(ups_canvas *canvas, ups_rectangle plot, const ups_axis *axis, bool grid) {
    double ticks[UPS_PLOT_TICKS];
    const int count = axis_ticks(axis, plot.width, 62, ticks);
    const double step = step_of(ticks, count, axis->high - axis->low), largest = largest_of(ticks, count);
    const float bottom = roundf(plot.y + plot.height);
    for (int i = 0; i < count; i++) {
        const float x = floorf(plot.x + (float)position(axis, ticks[i]) * plot.width);
        const float at = fminf(x, roundf(plot.x + plot.width) - 1);
        if (grid) ups_canvas_fill(canvas, (ups_rectangle){at, plot.y, 1, plot.height}, grid_line);
        ups_canvas_fill(canvas, (ups_rectangle){at, bottom + 1, 1, tick_length}, ink);
        if (axis->bare) continue;
        draw_tick(canvas, (ups_point){at + 0.5f, bottom + tick_length + 6 + tick_size}, ticks[i], step, largest,
                  axis->logarithmic, UPS_TEXT_CENTRE);
    }
    if (axis->label && !axis->bare) {
        const ups_text_style style = {.size = label_size, .anchor = UPS_TEXT_CENTRE, .colour = ink};
        ups_canvas_text(canvas, (ups_point){plot.x + 0.5f * plot.width, bottom + 27 + label_size}, axis->label, &style);
    }
}

/* `downward`: low on top. `left`: numbers left of the plot; else right of it, as a colour bar has them. */
static void draw_y_axis(ups_canvas *canvas, ups_rectangle plot, const ups_axis *axis, bool downward, bool left,
                        bool grid) {
    double ticks[UPS_PLOT_TICKS];
    const int count = axis_ticks(axis, plot.height, 38, ticks);
    const double step = step_of(ticks, count, axis->high - axis->low), largest = largest_of(ticks, count);
    float widest = 0;
    const float right = roundf(plot.x + plot.width), bottom = roundf(plot.y + plot.height);
    for (int i = 0; i < count; i++) {
        const float share = (float)position(axis, ticks[i]);
        const float y = fminf(floorf(plot.y + (downward ? share : 1 - share) * plot.height), bottom - 1);
        if (grid) ups_canvas_fill(canvas, (ups_rectangle){plot.x, y, plot.width, 1}, grid_line);
        const float mark = left ? plot.x - 1 - tick_length : right + 1;
        ups_canvas_fill(canvas, (ups_rectangle){mark, y, tick_length, 1}, ink);
        if (axis->bare) continue;
        const float text = left ? plot.x - tick_length - 6 : right + tick_length + 6;
        const float width = draw_tick(canvas, (ups_point){text, y + 0.5f + 0.5f * tick_size}, ticks[i], step, largest,
                                      axis->logarithmic, left ? UPS_TEXT_RIGHT : UPS_TEXT_LEFT);
        widest = fmaxf(widest, width);
    }
    if (axis->label && !axis->bare) {
        const ups_text_style style = {.size = label_size, .anchor = UPS_TEXT_CENTRE, .upward = true, .colour = ink};
        ups_canvas_text(canvas, (ups_point){plot.x - tick_length - 16 - widest, plot.y + 0.5f * plot.height},
                        axis->label, &style);
    }
}

void ups_plot_title(ups_canvas *canvas, ups_point at, const char *text, float size) {
    const ups_text_style style = {.size = size, .bold = true, .colour = ink};
    ups_canvas_text(canvas, at, text, &style);
}

static void draw_title(ups_canvas *canvas, ups_rectangle plot, const char *title) {
    if (!title) return;
    const ups_text_style style = {.size = title_size, .anchor = UPS_TEXT_CENTRE, .colour = ink};
    ups_canvas_text(canvas, (ups_point){plot.x + 0.5f * plot.width, plot.y - 11}, title, &style);
}

/* ---- heat maps ---- */

static void part_ends(double *low, double *high) {
    if (!(*low <= *high)) *low = 0, *high = 1; /* nothing finite */
    if (*low < *high) return;
    const double around = *low == 0 ? 1 : 0.05 * fabs(*low);
    *low -= around;
    *high += around;
}

void ups_plot_range(const float *values, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride,
                    double *low, double *high) {
    *low = INFINITY;
    *high = -INFINITY;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            const float value = values[r * row_stride + c * column_stride];
            if (!isfinite(value)) continue;
            *low = fmin(*low, value);
            *high = fmax(*high, value);
        }
    }
    part_ends(low, high);
}

/* Cells [first, last] that pixel `index` of `pixels` covers. */
static void cells_of(int index, int pixels, int64_t cells, int64_t *first, int64_t *last) {
    *first = (int64_t)((double)index * (double)cells / pixels);
    *last = (int64_t)ceil((double)(index + 1) * (double)cells / pixels) - 1;
    if (cells <= pixels) *last = *first = (int64_t)(((double)index + 0.5) * (double)cells / pixels);
    if (*last >= cells) *last = cells - 1;
    if (*first > *last) *first = *last;
}

static float mean_of(const ups_heat_map *map, int64_t top, int64_t bottom, int64_t left, int64_t right) {
    double sum = 0;
    for (int64_t r = top; r <= bottom; r++) {
        for (int64_t c = left; c <= right; c++) sum += map->values[r * map->row_stride + c * map->column_stride];
    }
    const double mean = sum / (double)((bottom - top + 1) * (right - left + 1));
    return isfinite(mean) ? (float)mean : NAN;
}

void ups_plot_heat_map(ups_canvas *canvas, ups_rectangle plot, const ups_heat_map *given) {
    ups_heat_map map = *given;
    if (map.low == map.high) {
        ups_plot_range(map.values, map.rows, map.columns, map.row_stride, map.column_stride, &map.low, &map.high);
        if (map.map == UPS_COLOURS_DIVERGING) {
            map.high = fmax(fabs(map.low), fabs(map.high));
            map.low = -map.high;
        }
    }
    if (map.x.low == map.x.high) map.x.low = 0, map.x.high = (double)map.columns;
    if (map.y.low == map.y.high) map.y.low = 0, map.y.high = (double)map.rows;

    const int left = (int)roundf(plot.x), top = (int)roundf(plot.y);
    const int width = (int)roundf(plot.width), height = (int)roundf(plot.height);
    for (int y = 0; y < height; y++) {
        int64_t first_row, last_row;
        cells_of(map.downward ? y : height - 1 - y, height, map.rows, &first_row, &last_row);
        for (int x = 0; x < width; x++) {
            int64_t first_column, last_column;
            cells_of(x, width, map.columns, &first_column, &last_column);
            const float value = mean_of(&map, first_row, last_row, first_column, last_column);
            const float share = (float)((value - map.low) / (map.high - map.low));
            ups_canvas_pixel(canvas, left + x, top + y, ups_colour_of(map.map, share));
        }
    }
    ups_canvas_frame(canvas, plot, ink);
    draw_x_axis(canvas, plot, &map.x, false);
    draw_y_axis(canvas, plot, &map.y, map.downward, true, false);
    draw_title(canvas, plot, map.title);
}

void ups_plot_colour_bar(ups_canvas *canvas, ups_rectangle bar, ups_colour_map map, double low, double high) {
    const int top = (int)roundf(bar.y), height = (int)roundf(bar.height);
    for (int y = 0; y < height; y++) {
        const float share = 1 - ((float)y + 0.5f) / (float)height;
        ups_canvas_fill(canvas, (ups_rectangle){bar.x, (float)(top + y), bar.width, 1}, ups_colour_of(map, share));
    }
    ups_canvas_frame(canvas, bar, ink);
    const ups_axis axis = {.low = low, .high = high};
    draw_y_axis(canvas, bar, &axis, false, false, false);
}

/* ---- line charts ---- */

static bool drawable(const ups_axis *axis, double value) {
    return isfinite(value) && (!axis->logarithmic || value > 0);
}

static double x_of(const ups_line *line, int64_t i) {
    return line->x ? line->x[i] : (double)i;
}

static void find_ranges(ups_line_chart *chart) {
    double x_low = INFINITY, x_high = -INFINITY, y_low = INFINITY, y_high = -INFINITY;
    for (int l = 0; l < chart->line_count; l++) {
        const ups_line *line = &chart->lines[l];
        for (int64_t i = 0; i < line->count; i++) {
            const double x = x_of(line, i), y = line->y[i];
            if (!drawable(&chart->x, x) || !drawable(&chart->y, y)) continue;
            x_low = fmin(x_low, x), x_high = fmax(x_high, x);
            y_low = fmin(y_low, y), y_high = fmax(y_high, y);
        }
    }
    part_ends(&x_low, &x_high);
    if (chart->x.low == chart->x.high) chart->x.low = x_low, chart->x.high = x_high;
    if (chart->y.low != chart->y.high) return;
    if (chart->y.logarithmic) { /* room of a tenth of the height at both ends */
        if (!(y_low <= y_high)) y_low = 0.1, y_high = 1;
        const double room = fmax(1.1, pow(y_high / y_low, 0.06));
        chart->y.low = y_low / room;
        chart->y.high = y_high * room;
    } else {
        part_ends(&y_low, &y_high);
        const double room = 0.06 * (y_high - y_low);
        chart->y.low = y_low - room;
        chart->y.high = y_high + room;
    }
    if (chart->x.logarithmic && chart->x.low <= 0) chart->x.low = chart->x.high / 10;
}

static void draw_line(ups_canvas *canvas, ups_rectangle plot, const ups_line_chart *chart, const ups_line *line) {
    enum { RUN = 512 };
    ups_point run[RUN];
    size_t count = 0;
    const float width = line->width > 0 ? line->width : 1.8f, dash = line->dashed ? 6.0f : 0.0f;
    for (int64_t i = 0; i < line->count; i++) {
        const double x = x_of(line, i), y = line->y[i];
        const bool here = drawable(&chart->x, x) && drawable(&chart->y, y);
        if (here) {
            run[count++] = (ups_point){plot.x + (float)position(&chart->x, x) * plot.width,
                                       plot.y + (1 - (float)position(&chart->y, y)) * plot.height};
        }
        if (count == RUN || !here || i == line->count - 1) {
            ups_canvas_stroke(canvas, run, count, width, dash, ups_colour_line(line->colour));
            if (count == RUN) run[0] = run[RUN - 1]; /* the next run begins where this one ended */
            count = count == RUN ? 1 : 0;
        }
    }
}

/* In the corner that the lines leave emptiest. */
static void draw_legend(ups_canvas *canvas, ups_rectangle plot, const ups_line_chart *chart) {
    float widest = 0;
    int names = 0;
    for (int l = 0; l < chart->line_count; l++) {
        if (!chart->lines[l].name) continue;
        widest = fmaxf(widest, ups_canvas_text_width(chart->lines[l].name, tick_size));
        names++;
    }
    if (names == 0 || chart->without_legend) return;
    const float row = 17, width = widest + 48, height = row * (float)names + 9, inset = 8;
    int best = 0, fewest = -1;
    for (int corner = 0; corner < 4; corner++) {
        const float left = corner & 1 ? plot.x + inset : plot.x + plot.width - width - inset;
        const float top = corner & 2 ? plot.y + plot.height - height - inset : plot.y + inset;
        int inside = 0;
        for (int l = 0; l < chart->line_count; l++) {
            const ups_line *line = &chart->lines[l];
            for (int64_t i = 0; i < line->count; i++) {
                if (!drawable(&chart->x, x_of(line, i)) || !drawable(&chart->y, line->y[i])) continue;
                const float x = plot.x + (float)position(&chart->x, x_of(line, i)) * plot.width;
                const float y = plot.y + (1 - (float)position(&chart->y, line->y[i])) * plot.height;
                inside += x > left && x < left + width && y > top && y < top + height;
            }
        }
        if (fewest >= 0 && inside >= fewest) continue;
        fewest = inside;
        best = corner;
    }
    const ups_rectangle box = {roundf(best & 1 ? plot.x + inset : plot.x + plot.width - width - inset),
                               roundf(best & 2 ? plot.y + plot.height - height - inset : plot.y + inset), width,
                               height};
    ups_canvas_fill(canvas, box, (ups_colour){255, 255, 255});
    ups_canvas_frame(canvas, box, (ups_colour){205, 205, 205});
    float y = box.y + 4 + 0.5f * row;
    for (int l = 0; l < chart->line_count; l++) {
        const ups_line *line = &chart->lines[l];
        if (!line->name) continue;
        const ups_point sample[2] = {{box.x + 9, y}, {box.x + 33, y}};
        ups_canvas_stroke(canvas, sample, 2, line->width > 0 ? line->width : 1.8f, line->dashed ? 6.0f : 0.0f,
                          ups_colour_line(line->colour));
        const ups_text_style style = {.size = tick_size, .colour = ink};
        ups_canvas_text(canvas, (ups_point){box.x + 40, y + 0.5f * tick_size}, line->name, &style);
        y += row;
    }
}

void ups_plot_lines(ups_canvas *canvas, ups_rectangle plot, const ups_line_chart *given) {
    ups_line_chart chart = *given;
    find_ranges(&chart);
    draw_x_axis(canvas, plot, &chart.x, true);
    draw_y_axis(canvas, plot, &chart.y, false, true, true);
    ups_canvas_frame(canvas, plot, ink);
    ups_canvas_clip(canvas, &plot);
    for (int l = 0; l < chart.line_count; l++) draw_line(canvas, plot, &chart, &chart.lines[l]);
    ups_canvas_clip(canvas, NULL);
    draw_legend(canvas, plot, &chart);
    draw_title(canvas, plot, chart.title);
}
