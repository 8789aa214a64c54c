#include "tools/report/pictures.h"

#include "base/even.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_NAME = 18, BAR = UPS_PLOT_BAR_GAP + UPS_PLOT_BAR + UPS_PLOT_BAR_LABELS };

void ups_draw_title(const ups_figure *figure, const char *title, const char *moment) {
    enum { EDGE = 14, BASELINE = 23 };
    ups_text_style style = {.size = 14, .bold = true, .anchor = UPS_TEXT_RIGHT, .colour = ups_plot_ink};
    style.room = figure->width - 2 * EDGE;
    if (moment) style.room -= ups_figure_text(figure, figure->width - EDGE, BASELINE, moment, &style) + EDGE;
    style.anchor = UPS_TEXT_LEFT;
    ups_figure_text(figure, EDGE, BASELINE, title, &style);
}

/* ---- [given |] prediction [| truth | error] ---- */

/* Width and height of a field's plot: the data's proportions when both axes are space, within reason. */
static void plot_size(const ups_comparison *c, double side, double *width, double *height) {
    const double ratio = fabs((c->x.high - c->x.low) / (c->y.high - c->y.low));
    const double shape = c->stretched ? 1.25 : fmin(2.5, fmax(0.4, ratio));
    *width = round(shape >= 1 ? side * fmin(shape, 1.6) : side * shape);
    *height = round(shape >= 1 ? *width / shape : side);
}

/* Not finite where the truth is zero. */
static double nrmse_of(const ups_field *difference, const float *truth) {
    double squares = 0, truth_squares = 0;
    for (int64_t r = 0; r < ups_field_known(difference); r++) {
        for (int64_t c = 0; c < difference->columns; c++) {
            const int64_t at = r * difference->row_stride + c * difference->column_stride;
            const double e = (double)difference->values[at] - truth[at];
            squares += e * e;
            truth_squares += (double)truth[at] * truth[at];
        }
    }
    return sqrt(squares / truth_squares);
}

enum { ERROR_TITLE = 64 };

/* `first`: nothing above it says what it is. */
static void name_error(char title[ERROR_TITLE], double nrmse, bool first) {
    strcpy(title, "error");
    if (isfinite(nrmse)) snprintf(title, ERROR_TITLE, first ? "error (nRMSE %.3g)" : "nRMSE %.3g", nrmse);
}

/* "no truth" in the middle of what is blank: the upper `share` of a plot. */
static void draw_blank(const ups_figure *figure, const ups_rectangle *area, double share) {
    const ups_text_style style = {
        .size = UPS_PLOT_TEXT, .anchor = UPS_TEXT_CENTRE, .colour = ups_plot_soft, .room = area->width};
    const double height = share * area->height;
    if (height < 1.5 * UPS_PLOT_TEXT) return;
    ups_figure_text(figure, area->x + 0.5 * area->width, area->y + 0.5 * height + 0.36 * UPS_PLOT_TEXT, "no truth",
                    &style);
}

/* Part of the plot's height above the rows that are known. */
static double blank_share(const ups_plot *plot, const ups_field *field) {
    const int64_t known = ups_field_known(field);
    if (known >= field->rows) return 0;
    if (!plot->y.edges) return 1 - (double)known / (double)field->rows;
    return (plot->y.high - plot->y.edges[known]) / (plot->y.high - plot->y.low);
}

/* One plot of a row, moved on to where the next one goes. */
static void draw_field(const ups_figure *figure, ups_plot *plot, const ups_field *field, const ups_colour_scale *scale,
                       const char *title, bool with_bar) {
    plot->title = title;
    ups_plot_field(figure, plot, field, scale);
    ups_plot_axes(figure, plot);
    draw_blank(figure, &plot->area, blank_share(plot, field));
    if (with_bar) ups_plot_colour_bar(figure, plot, scale);
    plot->area.x += plot->area.width + (with_bar ? BAR : UPS_PLOT_RIGHT);
    plot->y.bare = true;
}

static bool has_truth(const ups_comparison *c) {
    bool found = false;
    for (int r = 0; r < c->row_count; r++) found |= c->rows[r].truth != NULL;
    return c->truth_column || found;
}

/* Truth and error of a row that has neither, beside the bar of its prediction. */
static void draw_blanks(const ups_figure *figure, ups_plot *plot, const ups_comparison *c,
                        const ups_colour_scale *scale, bool first) {
    for (int error = 0; error < 2; error++) {
        plot->title = !first ? NULL : error ? "error" : c->truth_name;
        ups_plot_axes(figure, plot);
        draw_blank(figure, &plot->area, 1);
        if (!error) ups_plot_colour_bar(figure, plot, scale);
        if (error && c->errors) ups_plot_colour_bar(figure, plot, c->errors);
        plot->area.x += plot->area.width + BAR;
    }
}

/* The scale that is given, or one of the fields alone. */
static ups_colour_scale scale_of(const ups_comparison *c, const ups_colour_scale *given, ups_colour_map map,
                                 const ups_field *fields, int count) {
    ups_colour_scale scale = given ? *given : ups_colour_scale_of(map, fields, count);
    scale.outside = c->outside;
    return scale;
}

static void draw_comparison_row(const ups_figure *figure, const ups_comparison *c, int index, ups_rectangle area) {
    const ups_comparison_row *row = &c->rows[index];
    const bool first = index == 0, last = index == c->row_count - 1;
    ups_plot plot = {.area = area, .x = c->x, .y = c->y};
    plot.x.bare = !last;
    const ups_field like = {
        .rows = c->height, .columns = c->width, .row_stride = c->row_stride, .column_stride = c->column_stride};
    ups_field shown[2] = {like, like}, given = like, difference = like;
    if (row->name) {
        const ups_text_style style = {
            .size = UPS_PLOT_TEXT, .anchor = UPS_TEXT_CENTRE, .upward = true, .colour = ups_plot_ink};
        ups_figure_text(figure, 18, area.y + 0.5 * area.height, row->name, &style);
    }
    if (row->given) {
        given.values = row->given;
        const ups_colour_scale scale = scale_of(c, NULL, UPS_COLOURS_SEQUENTIAL, &given, 1);
        draw_field(figure, &plot, &given, &scale, first ? c->given_name : NULL, true);
    }
    shown[0].values = row->prediction;
    shown[1].values = row->truth;
    shown[1].known = difference.known = row->known;
    /* one scale for both: a prediction that blew up must not hide behind the truth's */
    const ups_colour_scale scale = scale_of(c, c->values, UPS_COLOURS_SEQUENTIAL, shown, row->truth ? 2 : 1);
    draw_field(figure, &plot, &shown[0], &scale, first ? c->prediction_name : NULL, !has_truth(c));
    if (!row->truth && has_truth(c)) draw_blanks(figure, &plot, c, &scale, first);
    if (!row->truth) return;
    draw_field(figure, &plot, &shown[1], &scale, first ? c->truth_name : NULL, true);

    difference.values = row->prediction;
    difference.minus = row->truth;
    char title[ERROR_TITLE];
    name_error(title, row->nrmse > 0 ? row->nrmse : nrmse_of(&difference, row->truth), first);
    const ups_colour_scale errors = scale_of(c, c->errors, UPS_COLOURS_DIVERGING, &difference, 1);
    draw_field(figure, &plot, &difference, &errors, title, true);
}

void ups_draw_comparison(ups_figure *figure, ups_figure_kind kind, const ups_comparison *c) {
    enum { BETWEEN = 28, NARROWEST = 420 };
    double width, height;
    plot_size(c, c->row_count > 2 ? 160 : c->given_name ? 170 : 200, &width, &height);
    const double left = (c->rows[0].name ? ROW_NAME : 0) + UPS_PLOT_LEFT, top = UPS_PICTURE_TITLE + UPS_PLOT_TOP;
    const double plots =
        (c->given_name ? width + BAR : 0) + width + BAR + (has_truth(c) ? UPS_PLOT_RIGHT + 2 * width + BAR : 0);
    ups_figure_begin(figure, kind, fmax(left + plots, NARROWEST),
                     top + (height + BETWEEN) * c->row_count - BETWEEN + UPS_PLOT_BOTTOM);
    ups_draw_title(figure, c->title, c->moment);
    for (int r = 0; r < c->row_count; r++) {
        draw_comparison_row(figure, c, r, (ups_rectangle){left, top + (height + BETWEEN) * r, width, height});
    }
}

/* ---- profiles ---- */

static void use_line(const ups_figure *figure, bool truth) {
    static const double dashes[] = {5, 3};
    ups_figure_colour(figure, ups_colour_line(truth ? 0 : 1));
    cairo_set_line_width(figure->cairo, truth ? 3.2 : 1.8);
    cairo_set_dash(figure->cairo, dashes, truth ? 0 : 2, 0);
}

static void draw_legend(const ups_figure *figure, double right, double y) {
    static const char *const names[] = {"prediction", "truth"};
    const ups_text_style style = {.size = UPS_PLOT_TEXT, .anchor = UPS_TEXT_RIGHT, .colour = ups_plot_ink};
    for (int truth = 0; truth < 2; truth++) {
        right -= ups_figure_text(figure, right, y, names[truth], &style) + 8;
        cairo_move_to(figure->cairo, right - 30, y - 4);
        cairo_line_to(figure->cairo, right, y - 4);
        use_line(figure, truth);
        cairo_stroke(figure->cairo);
        right -= 46;
    }
    cairo_set_dash(figure->cairo, NULL, 0, 0);
}

void ups_draw_profiles(ups_figure *figure, ups_figure_kind kind, const ups_profiles *p) {
    enum { COLUMNS = 3, WIDTH = 250, HEIGHT = 150, ACROSS = WIDTH + 22, DOWN = HEIGHT + 34 };
    const int columns = p->count < COLUMNS ? p->count : COLUMNS, rows = (p->count + columns - 1) / columns;
    const int top = UPS_PICTURE_TITLE + 16 + UPS_PLOT_TOP;
    ups_colour_scale range = {.low = INFINITY, .high = -INFINITY};
    for (int i = 0; i < p->count; i++) {
        const ups_field lines[2] = {
            {.values = p->profiles[i].truth, .rows = 1, .columns = p->points, .column_stride = p->stride},
            {.values = p->profiles[i].prediction, .rows = 1, .columns = p->points, .column_stride = p->stride}};
        const bool known = p->profiles[i].truth != NULL;
        const ups_colour_scale one = ups_colour_scale_of(UPS_COLOURS_SEQUENTIAL, known ? lines : lines + 1, 1 + known);
        range.low = fmin(range.low, one.low);
        range.high = fmax(range.high, one.high);
    }
    const double room = 0.08 * (range.high - range.low);
    double x_low = p->x[0], x_high = p->x[p->points - 1];
    ups_plot_part(&x_low, &x_high);
    ups_figure_begin(figure, kind, UPS_PLOT_LEFT + columns * ACROSS - 22 + UPS_PLOT_RIGHT,
                     top + rows * DOWN - 34 + UPS_PLOT_BOTTOM);
    ups_draw_title(figure, p->title, NULL);
    draw_legend(figure, figure->width - UPS_PLOT_RIGHT, UPS_PICTURE_TITLE + 14);
    for (int i = 0; i < p->count; i++) {
        const ups_plot plot = {
            .area = {UPS_PLOT_LEFT + i % columns * ACROSS, top + i / columns * DOWN, WIDTH, HEIGHT},
            .x = {.low = x_low, .high = x_high, .label = p->x_label, .bare = i + columns < p->count},
            .y = {.low = range.low - room, .high = range.high + room, .label = p->y_label, .bare = i % columns != 0},
            .title = p->profiles[i].name,
            .grid = true};
        ups_plot_axes(figure, &plot);
        for (int truth = p->profiles[i].truth ? 1 : 0; truth >= 0; truth--) {
            use_line(figure, truth);
            ups_plot_line(figure, &plot, p->x, truth ? p->profiles[i].truth : p->profiles[i].prediction, p->points,
                          p->stride);
        }
        cairo_set_dash(figure->cairo, NULL, 0, 0);
    }
}

/* ---- curves ---- */

/* With some room above and below. */
static ups_axis y_axis(const ups_colour_scale *scale, const char *label) {
    const double room = 0.08 * (scale->high - scale->low);
    return (ups_axis){.low = scale->low - room, .high = scale->high + room, .label = label};
}

static void draw_values(const ups_figure *figure, const ups_plot *plot, const ups_curves *c) {
    for (int truth = c->truth ? 1 : 0; truth >= 0; truth--) {
        use_line(figure, truth);
        ups_plot_line(figure, plot, c->x, truth ? c->truth : c->prediction, c->points, c->stride);
    }
    cairo_set_dash(figure->cairo, NULL, 0, 0);
}

static void draw_error(const ups_figure *figure, ups_plot *plot, const ups_curves *c) {
    const ups_field difference = {c->prediction, c->truth, 1, c->points, 0, c->stride, 0};
    char title[ERROR_TITLE];
    name_error(title, c->truth ? nrmse_of(&difference, c->truth) : NAN, true);
    plot->y = y_axis(&c->errors, NULL);
    plot->title = title;
    ups_plot_axes(figure, plot);
    if (!c->truth) {
        draw_blank(figure, &plot->area, 1);
        return;
    }
    ups_figure_colour(figure, ups_colour_line(1));
    cairo_set_line_width(figure->cairo, 1.8);
    ups_plot_line(figure, plot, c->x, c->error, c->points, 1);
}

void ups_draw_curves(ups_figure *figure, ups_figure_kind kind, const ups_curves *c) {
    enum { WIDTH = 340, HEIGHT = 230, TOP = UPS_PICTURE_TITLE + UPS_PLOT_TOP, ACROSS = WIDTH + UPS_PLOT_LEFT + 24 };
    ups_plot plot = {.area = {UPS_PLOT_LEFT, TOP, WIDTH, HEIGHT}, .x = {.label = c->x_label}, .grid = true};
    plot.x.low = c->x[0];
    plot.x.high = c->x[c->points - 1];
    ups_plot_part(&plot.x.low, &plot.x.high);
    plot.y = y_axis(&c->values, c->y_label);
    ups_figure_begin(figure, kind, UPS_PLOT_LEFT + WIDTH + (c->with_error ? ACROSS : 0) + UPS_PLOT_RIGHT,
                     TOP + HEIGHT + UPS_PLOT_BOTTOM);
    ups_draw_title(figure, c->title, c->moment);
    ups_plot_axes(figure, &plot);
    draw_values(figure, &plot, c);
    if (!c->with_error) return;
    draw_legend(figure, plot.area.x + WIDTH, TOP - 9);
    plot.area.x += ACROSS;
    draw_error(figure, &plot, c);
}

/* ---- latents ---- */

enum { LATENT_SIDE = 200, LATENT_STRIP = 110, LATENT_TOP = UPS_PICTURE_TITLE + UPS_PLOT_TOP };
enum { LATENT_STRIP_TOP = LATENT_TOP + LATENT_SIDE + UPS_PLOT_BOTTOM + UPS_PLOT_TOP };

/* The channels of the middle token over all times, as wide as the maps above it. */
static void draw_strip(const ups_figure *figure, const ups_latent_picture *l, const float *values, double width,
                       const ups_colour_scale *scale) {
    const int64_t token = l->tokens / 2;
    const ups_field field = {values + token * l->dim, NULL, l->dim, l->times, 1, l->tokens * l->dim, 0};
    double first = l->time[0], last = l->time[l->times - 1];
    const double half = 0.5 * (last - first) / (double)(l->times - 1); /* a frame reaches to halfway to the next */
    first -= half;
    last += half;
    ups_plot_part(&first, &last);
    char title[60];
    snprintf(title, sizeof title, "token %lld over time", (long long)token);
    const ups_plot plot = {.area = {UPS_PLOT_LEFT, LATENT_STRIP_TOP, width, LATENT_STRIP},
                           .x = {.low = first, .high = last, .label = "time t"},
                           .y = {.low = (double)l->dim - 0.5, .high = -0.5, .label = "channel", .whole = true},
                           .title = title};
    ups_plot_field(figure, &plot, &field, scale);
    ups_plot_axes(figure, &plot);
}

ups_status ups_draw_latents(ups_figure *figure, ups_figure_kind kind, const ups_latent_picture *l, ups_error *error) {
    enum { MAPS = 4, SIDE = LATENT_SIDE, GAP = 14, TOP = LATENT_TOP, NARROWEST = 380 };
    const int64_t frame = l->tokens * l->dim;
    float *values = malloc((size_t)(l->times * frame) * sizeof *values);
    if (!values)
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for a picture of %lld latents",
                        (long long)(l->times * frame));
    ups_f16_to_f32(l->values, values, (size_t)(l->times * frame));
    const ups_field all = {values, NULL, l->times, frame, frame, 1, 0};
    ups_colour_scale scale = ups_colour_scale_of(UPS_COLOURS_SEQUENTIAL, &all, 1);
    if (scale.low < 0 && scale.high > 0) scale = ups_colour_scale_of(UPS_COLOURS_DIVERGING, &all, 1);
    int64_t shown[MAPS];
    const int maps = (int)ups_even_choice(0, l->times - 1, MAPS, false, shown);
    const int across = maps * (SIDE + GAP) - GAP;
    ups_figure_begin(figure, kind, fmax(NARROWEST, UPS_PLOT_LEFT + across + BAR),
                     l->times > 1 ? LATENT_STRIP_TOP + LATENT_STRIP + UPS_PLOT_BOTTOM : TOP + SIDE + UPS_PLOT_BOTTOM);
    ups_draw_title(figure, l->title, NULL);
    char caption[60];
    ups_plot plot = {.area = {UPS_PLOT_LEFT, TOP, SIDE, SIDE},
                     .x = {.low = -0.5, .high = (double)l->dim - 0.5, .label = "channel", .whole = true},
                     .y = {.low = (double)l->tokens - 0.5, .high = -0.5, .label = "token", .whole = true},
                     .title = caption};
    for (int m = 0; m < maps; m++) {
        const int64_t t = shown[m];
        snprintf(caption, sizeof caption, "t = %.4g", l->time[t]);
        const ups_field field = {values + t * frame, NULL, l->tokens, l->dim, l->dim, 1, 0};
        plot.area.x = UPS_PLOT_LEFT + m * (SIDE + GAP);
        plot.y.bare = m > 0;
        ups_plot_field(figure, &plot, &field, &scale);
        ups_plot_axes(figure, &plot);
    }
    ups_plot_colour_bar(figure, &plot, &scale);
    if (l->times > 1) draw_strip(figure, l, values, across, &scale);
    free(values);
    return UPS_OK;
}
