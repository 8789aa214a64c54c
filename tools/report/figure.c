#include "tools/report/figure.h"

#include "base/files.h"
#include "base/printable.h"
#include <cairo-svg.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static cairo_status_t write_bytes(void *stream, const unsigned char *bytes, unsigned length) {
    return stream && fwrite(bytes, 1, length, stream) == length ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_NO_MEMORY;
}

void ups_figure_begin(ups_figure *figure, ups_figure_kind kind, double width, double height) {
    const bool moves = kind == UPS_FIGURE_FRAME;
    if (moves) width = 2 * ceil(width / 2), height = 2 * ceil(height / 2); /* as codecs of films want it */
    *figure = (ups_figure){.width = width, .height = height, .density = moves ? 1 : UPS_FIGURE_DENSITY};
    figure->stream = open_memstream(&figure->bytes, &figure->length);
    cairo_surface_t *surface;
    if (kind == UPS_FIGURE_SVG) {
        surface = cairo_svg_surface_create_for_stream(write_bytes, figure->stream, width, height);
    } else {
        surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)(figure->density * width),
                                             (int)(figure->density * height));
        cairo_surface_set_device_scale(surface, figure->density, figure->density);
    }
    figure->cairo = cairo_create(surface);
    cairo_surface_destroy(surface); /* the context keeps it */
    cairo_font_options_t *options = cairo_font_options_create();
    cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
    cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_NONE); /* the same widths in PNG and SVG */
    cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
    cairo_set_font_options(figure->cairo, options);
    cairo_font_options_destroy(options);
    cairo_set_source_rgb(figure->cairo, 1, 1, 1);
    cairo_paint(figure->cairo);
}

/* Releases all but the bytes, which are whole when the result is CAIRO_STATUS_SUCCESS. */
static cairo_status_t end(ups_figure *figure, ups_figure_kind kind) {
    cairo_status_t status = cairo_status(figure->cairo);
    cairo_surface_t *surface = cairo_surface_reference(cairo_get_target(figure->cairo));
    cairo_destroy(figure->cairo);
    if (status == CAIRO_STATUS_SUCCESS && kind == UPS_FIGURE_PNG)
        status = cairo_surface_write_to_png_stream(surface, write_bytes, figure->stream);
    cairo_surface_finish(surface); /* writes an SVG */
    if (status == CAIRO_STATUS_SUCCESS) status = cairo_surface_status(surface);
    cairo_surface_destroy(surface);
    if (!figure->stream || fclose(figure->stream) != 0) status = CAIRO_STATUS_NO_MEMORY;
    return status;
}

cairo_status_t ups_figure_image(ups_figure *figure, cairo_surface_t **image) {
    const cairo_status_t drawn = cairo_status(figure->cairo);
    *image = drawn == CAIRO_STATUS_SUCCESS ? cairo_surface_reference(cairo_get_target(figure->cairo)) : NULL;
    cairo_destroy(figure->cairo);
    if (figure->stream) fclose(figure->stream);
    free(figure->bytes);
    if (*image) cairo_surface_flush(*image);
    return drawn;
}

cairo_status_t ups_figure_encode(cairo_surface_t *image, char **bytes, size_t *length) {
    *bytes = NULL;
    FILE *stream = open_memstream(bytes, length);
    const cairo_status_t status = cairo_surface_write_to_png_stream(image, write_bytes, stream);
    return stream && fclose(stream) == 0 ? status : CAIRO_STATUS_NO_MEMORY;
}

static ups_status publish_marked(const ups_figure *figure, const char *path, ups_error *error) {
    ups_publication *publication = NULL;
    ups_remove_partials_of(path);
    UPS_TRY(ups_publish_begin(path, &publication, error));
    ups_status status = ups_publish_append(publication, figure->bytes, UPS_FIGURE_MARK_AT, error);
    if (status == UPS_OK) status = ups_publish_append(publication, UPS_FIGURE_MARK, sizeof UPS_FIGURE_MARK - 1, error);
    if (status == UPS_OK)
        status = ups_publish_append(publication, figure->bytes + UPS_FIGURE_MARK_AT,
                                    figure->length - UPS_FIGURE_MARK_AT, error);
    if (status == UPS_OK) return ups_publish_commit(publication, error);
    ups_publish_abandon(publication);
    return status;
}

ups_status ups_figure_publish(ups_figure *figure, const char *path, ups_error *error) {
    const cairo_status_t drawn = end(figure, UPS_FIGURE_PNG);
    ups_status status = drawn == CAIRO_STATUS_SUCCESS
                            ? UPS_OK
                            : ups_fail(error, UPS_ERR_MEMORY, "%s: a figure of %.0f x %.0f pixels: %s", path,
                                       figure->width, figure->height, cairo_status_to_string(drawn));
    if (status == UPS_OK) status = publish_marked(figure, path, error);
    free(figure->bytes);
    return status;
}

void ups_figure_embed(ups_figure *figure, ups_html *html, const char *class, const char *description) {
    const cairo_status_t drawn = end(figure, UPS_FIGURE_SVG);
    if (drawn == CAIRO_STATUS_SUCCESS)
        ups_html_svg(html, figure->bytes, class, description);
    else if (!html->failure)
        html->failure = cairo_status_to_string(drawn);
    free(figure->bytes);
}

void ups_figure_colour(const ups_figure *figure, ups_colour colour) {
    cairo_set_source_rgb(figure->cairo, colour.red / 255.0, colour.green / 255.0, colour.blue / 255.0);
}

static double width_of(const ups_figure *figure, const char *text) {
    cairo_text_extents_t extents;
    cairo_text_extents(figure->cairo, text, &extents);
    return extents.x_advance;
}

double ups_figure_text(const ups_figure *figure, double x, double y, const char *text, const ups_text_style *style) {
    enum { LONGEST = 240 };
    char shown[LONGEST * UPS_PRINTABLE_ROOM + 4];
    size_t length = ups_printable(text, strnlen(text, LONGEST), shown, sizeof shown - 3);
    cairo_select_font_face(figure->cairo, "DejaVu Sans", CAIRO_FONT_SLANT_NORMAL,
                           style->bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(figure->cairo, style->size);
    double width = width_of(figure, shown);
    while (style->room > 0 && width > style->room && length > 0) {
        do length--;
        while (length > 0 && ((unsigned char)shown[length] & 0xc0) == 0x80); /* to the beginning of a character */
        strcpy(shown + length, "...");
        width = width_of(figure, shown);
    }
    const double pen = style->anchor == UPS_TEXT_LEFT ? 0 : style->anchor == UPS_TEXT_CENTRE ? -0.5 * width : -width;
    ups_figure_colour(figure, style->colour);
    cairo_save(figure->cairo);
    cairo_translate(figure->cairo, x, y);
    if (style->upward) cairo_rotate(figure->cairo, -1.57079632679489662);
    cairo_move_to(figure->cairo, pen, 0);
    cairo_show_text(figure->cairo, shown);
    cairo_restore(figure->cairo);
    cairo_new_path(figure->cairo); /* else the next line would begin at the text's end */
    return width;
}
