#include "tools/report/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const ups_colour ups_plot_ink = {38, 38, 38}, ups_plot_soft = {85, 85, 85};
static const ups_colour grid_colour = {226, 229, 234};
static const double tick_length = 4;

/* ---- ticks ---- */

static int logarithmic_ticks(double low, double high, int wanted, double ticks[UPS_PLOT_TICKS]) {
    static const double between[] = {1, 2, 5};
    const int first = (int)floor(log10(low)), last = (int)floor(log10(high) + 1e-9);
    const int every = (last - first) / (wanted > 1 ? wanted : 1) + 1, marks = last - first < 2 ? 3 : 1;
    int count = 0;
    for (int power = first; power <= last; power++) {
        if (power % every != 0) continue;
        for (int m = 0; m < marks && count < UPS_PLOT_TICKS; m++) {
            const double at = between[m] * pow(10, power);
            if (at >= low * (1 - 1e-9) && at <= high * (1 + 1e-9)) ticks[count++] = at;
        }
    }
    return count;
}

int ups_plot_ticks(const ups_axis *axis, int wanted, double ticks[UPS_PLOT_TICKS]) {
    const double low = fmin(axis->low, axis->high), high = fmax(axis->low, axis->high);
    int count = 0;
    if (!(high > low) || !isfinite(low) || !isfinite(high)) return 0;
    if (axis->logarithmic) return logarithmic_ticks(low, high, wanted, ticks);
    const double rough = (high - low) / wanted, power = pow(10, floor(log10(rough)));
    double step = power * (rough <= power ? 1 : rough <= 2 * power ? 2 : rough <= 5 * power ? 5 : 10);
    if (axis->whole) step = fmax(step, 1);
    for (double i = ceil(low / step - 1e-6); i * step <= high + 1e-6 * step && count < UPS_PLOT_TICKS; i++) {
        ticks[count++] = i == 0 ? 0 : i * step;
    }
    return count;
}

/* About one mark every `spacing` pixels, and at least three where the axis is long enough to tell them apart. */
static int axis_ticks(const ups_axis *axis, double pixels, double spacing, double ticks[UPS_PLOT_TICKS]) {
    enum { FEWEST = 3 };
    int wanted = (int)fmax(FEWEST, pixels / spacing), count;
    do {
        count = ups_plot_ticks(axis, wanted, ticks);
    } while (count < FEWEST && ++wanted <= 2 * FEWEST);
    return count;
}

/* Numbers that are short in fixed point. */
static bool is_short(double largest) {
    return largest < 1e5 && largest >= 1e-3;
}

/* Where ticks differ behind as many digits as there is room for, numbers stand without what they have in common, which
 * is returned; else 0. */
static double take_offset(const ups_axis *axis, const double *ticks, int count, double shown[UPS_PLOT_TICKS]) {
    const double largest = count > 0 ? fmax(fabs(ticks[0]), fabs(ticks[count - 1])) : 0;
    const int digits = is_short(largest) ? 4 : 3; /* behind the first one */
    double offset = 0;
    const double step = count > 1 ? fabs(ticks[1] - ticks[0]) : 0, span = step * (count - 1);
    if (!axis->logarithmic && step > 0 && largest > step * pow(10, digits)) {
        const double unit = pow(10, ceil(log10(span) - 1e-6));
        offset = floor(fmin(ticks[0], ticks[count - 1]) / unit + 1e-6) * unit;
    }
    for (int i = 0; i < count; i++) {
        shown[i] = ticks[i] - offset;
        if (fabs(shown[i]) < 1e-3 * step) shown[i] = 0;
    }
    return offset;
}

static void draw_offset(const ups_figure *figure, double x, double y, ups_text_anchor anchor, double offset) {
    const ups_text_style style = {.size = UPS_PLOT_TEXT, .anchor = anchor, .colour = ups_plot_soft};
    char text[40];
    if (offset == 0) return;
    snprintf(text, sizeof text, "%+.10g", offset);
    ups_figure_text(figure, x, y, text, &style);
}

/* Numbers of one axis share their form: fixed point while that is short, else a power of ten each (1e-4, not 1e-04). */
static void tick_text(const ups_axis *axis, const double *ticks, int count, int index, char text[40]) {
    const double value = ticks[index], step = count > 1 ? ticks[1] - ticks[0] : fabs(axis->high - axis->low);
    const double largest = fmax(fabs(ticks[0]), fabs(ticks[count - 1]));
    if (value == 0 || axis->logarithmic) {
        snprintf(text, 40, "%g", value);
    } else if (!is_short(largest)) {
        const int digits = (int)fmax(0, ceil(log10(fabs(value) / step) - 1e-6));
        snprintf(text, 40, "%.*e", digits < 4 ? digits : 4, value);
    } else {
        snprintf(text, 40, "%.*f", (int)fmax(0, ceil(-log10(step) - 1e-6)), value);
    }
    char *digits = strchr(text, 'e');
    if (!digits) return;
    digits += digits[1] == '-' ? 2 : 1;
    const size_t drop = strspn(digits, "+0");
    memmove(digits, digits + drop, strlen(digits + drop) + 1);
}

/* ---- axes ---- */

static double share_of(const ups_axis *axis, double value) {
    if (axis->logarithmic) return log(value / axis->low) / log(axis->high / axis->low);
    return (value - axis->low) / (axis->high - axis->low);
}

const char *ups_axis_label(char text[UPS_AXIS_LABEL], const char *name, const char *units) {
    bool told = units && units[0] && strcmp(units, "1") != 0;
    snprintf(text, UPS_AXIS_LABEL, told ? "%.40s (%.40s)" : "%.40s", name, units);
    return text;
}

double ups_plot_x(const ups_plot *plot, double value) {
    return plot->area.x + share_of(&plot->x, value) * plot->area.width;
}

double ups_plot_y(const ups_plot *plot, double value) {
    return plot->area.y + (1 - share_of(&plot->y, value)) * plot->area.height;
}

/* In the middle of a pixel of the screen, where a line of one pixel is sharp. */
static double sharp(double at) {
    return floor(at) + 0.5;
}

static void line(const ups_figure *figure, double x, double y, double width, double height) {
    cairo_move_to(figure->cairo, x, y);
    cairo_rel_line_to(figure->cairo, width, height);
}

static void stroke(const ups_figure *figure, ups_colour colour) {
    ups_figure_colour(figure, colour);
    cairo_set_line_width(figure->cairo, 1);
    cairo_stroke(figure->cairo);
}

static void draw_x_axis(const ups_figure *figure, const ups_plot *plot) {
    const ups_rectangle *area = &plot->area;
    const double bottom = area->y + area->height;
    const ups_text_style numbers = {.size = UPS_PLOT_TEXT, .anchor = UPS_TEXT_CENTRE, .colour = ups_plot_soft};
    double ticks[UPS_PLOT_TICKS], shown[UPS_PLOT_TICKS];
    char text[40];
    const int count = axis_ticks(&plot->x, area->width, 62, ticks);
    const double offset = take_offset(&plot->x, ticks, count, shown);
    for (int i = 0; i < count && plot->grid; i++)
        line(figure, sharp(ups_plot_x(plot, ticks[i])), bottom, 0, -area->height);
    stroke(figure, grid_colour);
    for (int i = 0; i < count; i++) line(figure, sharp(ups_plot_x(plot, ticks[i])), bottom, 0, tick_length);
    stroke(figure, ups_plot_ink);
    for (int i = 0; i < count && !plot->x.bare; i++) {
        tick_text(&plot->x, shown, count, i, text);
        ups_figure_text(figure, ups_plot_x(plot, ticks[i]), bottom + tick_length + 13, text, &numbers);
    }
    if (!plot->x.bare) draw_offset(figure, area->x + area->width, bottom + 37, UPS_TEXT_RIGHT, offset);
    if (!plot->x.label || plot->x.bare) return;
    const ups_text_style style = {.size = UPS_PLOT_TEXT, .anchor = UPS_TEXT_CENTRE, .colour = ups_plot_ink};
    ups_figure_text(figure, area->x + 0.5 * area->width, bottom + 37, plot->x.label, &style);
}

/* `right`: numbers right of the plot, as a colour bar has them. */
static void draw_y_axis(const ups_figure *figure, const ups_plot *plot, bool right) {
    const ups_rectangle *area = &plot->area;
    const double edge = right ? area->x + area->width : area->x, outward = right ? 1 : -1;
    const ups_text_style numbers = {
        .size = UPS_PLOT_TEXT, .anchor = right ? UPS_TEXT_LEFT : UPS_TEXT_RIGHT, .colour = ups_plot_soft};
    double ticks[UPS_PLOT_TICKS], shown[UPS_PLOT_TICKS], widest = 0;
    char text[40];
    const int count = axis_ticks(&plot->y, area->height, 38, ticks);
    const double offset = take_offset(&plot->y, ticks, count, shown);
    for (int i = 0; i < count && plot->grid; i++)
        line(figure, area->x, sharp(ups_plot_y(plot, ticks[i])), area->width, 0);
    stroke(figure, grid_colour);
    for (int i = 0; i < count; i++) line(figure, edge, sharp(ups_plot_y(plot, ticks[i])), outward * tick_length, 0);
    stroke(figure, ups_plot_ink);
    for (int i = 0; i < count && !plot->y.bare; i++) {
        tick_text(&plot->y, shown, count, i, text);
        widest = fmax(widest, ups_figure_text(figure, edge + outward * (tick_length + 3),
                                              ups_plot_y(plot, ticks[i]) + 0.36 * UPS_PLOT_TEXT, text, &numbers));
    }
    if (!plot->y.bare)
        draw_offset(figure, right ? area->x : area->x - UPS_PLOT_LEFT + 4, area->y - 9, UPS_TEXT_LEFT, offset);
    if (!plot->y.label || plot->y.bare) return;
    const ups_text_style style = {
        .size = UPS_PLOT_TEXT, .anchor = UPS_TEXT_CENTRE, .upward = true, .colour = ups_plot_ink};
    ups_figure_text(figure, fmax(12, area->x - tick_length - 11 - widest), area->y + 0.5 * area->height, plot->y.label,
                    &style);
}

static void draw_frame(const ups_figure *figure, const ups_rectangle *area) {
    cairo_rectangle(figure->cairo, area->x - 0.5, area->y - 0.5, area->width + 1, area->height + 1);
    stroke(figure, ups_plot_ink);
}

void ups_plot_axes(const ups_figure *figure, const ups_plot *plot) {
    draw_x_axis(figure, plot);
    draw_y_axis(figure, plot, false);
    draw_frame(figure, &plot->area);
    if (!plot->title) return;
    const ups_text_style style = {.size = UPS_PLOT_TEXT,
                                  .anchor = UPS_TEXT_CENTRE,
                                  .colour = ups_plot_ink,
                                  .room = plot->area.width + UPS_PLOT_BAR_LABELS};
    ups_figure_text(figure, plot->area.x + 0.5 * plot->area.width, plot->area.y - 9, plot->title, &style);
}

/* ---- fields ---- */

void ups_plot_part(double *low, double *high) {
    if (!(*low <= *high) || !isfinite(*low) || !isfinite(*high)) *low = 0, *high = 1;
    if (*low < *high) return;
    const double around = *low == 0 ? 1 : 0.05 * fabs(*low);
    *low -= around;
    *high += around;
}

static double value_of(const ups_field *field, int64_t row, int64_t column) {
    const int64_t at = row * field->row_stride + column * field->column_stride;
    return field->minus ? (double)field->values[at] - field->minus[at] : field->values[at];
}

int64_t ups_field_known(const ups_field *field) {
    return field->known > 0 ? field->known : field->rows;
}

ups_colour_scale ups_colour_scale_of(ups_colour_map map, const ups_field *fields, int count) {
    ups_colour_scale scale = {.map = map, .low = INFINITY, .high = -INFINITY};
    for (int f = 0; f < count; f++) {
        for (int64_t r = 0; r < ups_field_known(&fields[f]); r++) {
            for (int64_t c = 0; c < fields[f].columns; c++) {
                const double value = value_of(&fields[f], r, c);
                if (isfinite(value)) {
                    scale.low = fmin(scale.low, value);
                    scale.high = fmax(scale.high, value);
                } else {
                    scale.missing = true;
                }
            }
        }
    }
    ups_plot_part(&scale.low, &scale.high);
    if (map == UPS_COLOURS_DIVERGING) {
        scale.high = fmax(fabs(scale.low), fabs(scale.high));
        scale.low = -scale.high;
    }
    return scale;
}

/* Over rows [row[0], row[1]) and columns [column[0], column[1]). */
static double mean_of(const ups_field *field, const int64_t row[2], const int64_t column[2]) {
    double sum = 0;
    for (int64_t r = row[0]; r < row[1]; r++) {
        for (int64_t c = column[0]; c < column[1]; c++) sum += value_of(field, r, c);
    }
    return sum / (double)((row[1] - row[0]) * (column[1] - column[0]));
}

double *ups_axis_edges(const double *centres, int64_t count) {
    if (count < 2) return NULL;
    const bool rising = centres[1] > centres[0];
    for (int64_t i = 1; i < count; i++) {
        if (rising ? !(centres[i] > centres[i - 1]) : !(centres[i] < centres[i - 1])) return NULL;
    }
    double *edges = malloc((size_t)(count + 1) * sizeof *edges);
    if (!edges) return NULL;
    for (int64_t i = 1; i < count; i++) edges[i] = 0.5 * (centres[i - 1] + centres[i]);
    edges[0] = 2 * centres[0] - edges[1];
    edges[count] = 2 * centres[count - 1] - edges[count - 1];
    return edges;
}

/* Of cells that are not as wide: the one that the pixel's middle is in, and those whose own middle is in the pixel. */
static void uneven_cells_of(const ups_axis *axis, int64_t index, int64_t pixels, int64_t cells, int64_t part[2]) {
    const double sign = axis->edges[cells] > axis->edges[0] ? 1 : -1, width = (axis->high - axis->low) / (double)pixels;
    const double middle = axis->low + ((double)index + 0.5) * width, half = 0.5 * fabs(width);
    int64_t first = 0, behind = cells;
    while (behind - first > 1) {
        const int64_t between = first + (behind - first) / 2;
        if (sign * axis->edges[between] <= sign * middle)
            first = between;
        else
            behind = between;
    }
    const double *edges = axis->edges;
    while (first > 0 && fabs(0.5 * (edges[first - 1] + edges[first]) - middle) < half) first--;
    while (behind < cells && fabs(0.5 * (edges[behind] + edges[behind + 1]) - middle) < half) behind++;
    part[0] = first;
    part[1] = behind;
}

/* Cells [part[0], part[1]) that pixel `index` of `pixels` covers; of even ones there are no less than pixels. */
static void cells_of(const ups_axis *axis, int64_t index, int64_t pixels, int64_t cells, int64_t part[2]) {
    if (axis->edges) {
        uneven_cells_of(axis, index, pixels, cells, part);
        return;
    }
    part[0] = index * cells / pixels;
    part[1] = ((index + 1) * cells + pixels - 1) / pixels;
}

static int64_t pixels_of(const ups_figure *figure, const ups_axis *axis, double length, int64_t cells) {
    const int64_t room = (int64_t)(figure->density * length);
    return cells < room && !axis->edges ? cells : room;
}

/* A surface over the area, its pixels as large as they come out. */
static void paint(const ups_figure *figure, const ups_rectangle *area, cairo_surface_t *image) {
    cairo_surface_mark_dirty(image);
    cairo_save(figure->cairo);
    cairo_translate(figure->cairo, area->x, area->y);
    cairo_scale(figure->cairo, area->width / cairo_image_surface_get_width(image),
                area->height / cairo_image_surface_get_height(image));
    cairo_set_source_surface(figure->cairo, image, 0, 0);
    cairo_pattern_set_filter(cairo_get_source(figure->cairo), CAIRO_FILTER_NEAREST);
    cairo_paint(figure->cairo);
    cairo_restore(figure->cairo);
    cairo_surface_destroy(image);
}

static uint32_t pixel_of(ups_colour colour) {
    return (uint32_t)colour.red << 16 | (uint32_t)colour.green << 8 | colour.blue;
}

enum { COLOURS = 256 }; /* steps of a map; the middle of it is one of their ends */

void ups_plot_field(const ups_figure *figure, const ups_plot *plot, const ups_field *field,
                    const ups_colour_scale *scale) {
    const int64_t width = pixels_of(figure, &plot->x, plot->area.width, field->columns),
                  height = pixels_of(figure, &plot->y, plot->area.height, field->rows);
    cairo_surface_t *image = cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)width, (int)height);
    unsigned char *bytes = cairo_image_surface_get_data(image);
    const int64_t known = ups_field_known(field);
    const bool upward = plot->y.low < plot->y.high || plot->y.edges;
    uint32_t colours[COLOURS + 1];
    for (int i = 0; i <= COLOURS; i++) colours[i] = pixel_of(ups_colour_of(scale->map, (float)i / COLOURS));
    const ups_colour blank = {255, 255, 255};
    const uint32_t missing = pixel_of(scale->outside ? blank : ups_colour_of(scale->map, NAN));
    for (int64_t y = 0; y < height && bytes; y++) {
        uint32_t *line = (uint32_t *)(void *)(bytes + y * cairo_image_surface_get_stride(image));
        int64_t row[2], column[2];
        cells_of(&plot->y, upward ? height - 1 - y : y, height, field->rows, row);
        if (row[1] > known) row[1] = known;
        for (int64_t x = 0; x < width; x++) {
            line[x] = pixel_of(blank);
            if (row[0] >= known) continue;
            cells_of(&plot->x, x, width, field->columns, column);
            const double share = (mean_of(field, row, column) - scale->low) / (scale->high - scale->low);
            line[x] = isfinite(share) ? colours[lrint(COLOURS * fmin(1, fmax(0, share)))] : missing;
        }
    }
    paint(figure, &plot->area, image);
}

void ups_plot_colour_bar(const ups_figure *figure, const ups_plot *plot, const ups_colour_scale *scale) {
    const ups_rectangle *beside = &plot->area;
    const bool missing = scale->missing && !scale->outside;
    const double grey = missing ? UPS_PLOT_BAR + 8 : 0; /* height that the grey takes */
    const ups_plot bar = {
        .area = {beside->x + beside->width + UPS_PLOT_BAR_GAP, beside->y, UPS_PLOT_BAR, beside->height - grey},
        .y = {.low = scale->low, .high = scale->high}};
    float steps[COLOURS];
    for (int i = 0; i < COLOURS; i++) steps[i] = ((float)i + 0.5f) / COLOURS;
    const ups_field ramp = {.values = steps, .rows = COLOURS, .columns = 1, .row_stride = 1};
    ups_plot_field(figure, &bar, &ramp, &(ups_colour_scale){.map = scale->map, .low = 0, .high = 1});
    draw_frame(figure, &bar.area);
    draw_y_axis(figure, &bar, true);
    if (!missing) return;
    const ups_rectangle box = {bar.area.x, beside->y + beside->height - UPS_PLOT_BAR, UPS_PLOT_BAR, UPS_PLOT_BAR};
    const ups_text_style style = {.size = UPS_PLOT_TEXT, .colour = ups_plot_soft};
    cairo_rectangle(figure->cairo, box.x, box.y, box.width, box.height);
    ups_figure_colour(figure, ups_colour_of(scale->map, NAN));
    cairo_fill(figure->cairo);
    draw_frame(figure, &box);
    ups_figure_text(figure, box.x + box.width + tick_length + 3, box.y + box.height - 2, "NaN", &style);
}

/* ---- lines ---- */

void ups_plot_line(const ups_figure *figure, const ups_plot *plot, const double *x, const float *values, int64_t count,
                   int64_t stride) {
    for (int64_t i = 0; i < count; i++) {
        const double value = values[i * stride], at = ups_plot_x(plot, x[i]), up = ups_plot_y(plot, value);
        if (!isfinite(value)) {
            cairo_new_sub_path(figure->cairo);
            continue;
        }
        if (!cairo_has_current_point(figure->cairo)) cairo_move_to(figure->cairo, at, up);
        cairo_line_to(figure->cairo, at, up); /* one value between two gaps is a dot */
    }
    cairo_set_line_join(figure->cairo, CAIRO_LINE_JOIN_ROUND);
    cairo_stroke(figure->cairo);
}
