/* A figure on cairo: a PNG file, or an SVG within a page. Coordinates are pixels of the screen, x to the right, y down.
 *
 * A figure is begun, drawn on and ended, and needs no checks in between: cairo remembers the first error, and the end
 * tells it. Text is set in DejaVu Sans; where that is missing fontconfig chooses, and where there is no font at all
 * cairo draws ASCII by strokes of its own. */
#ifndef UPS_TOOLS_REPORT_FIGURE_H
#define UPS_TOOLS_REPORT_FIGURE_H

#include "tools/report/colours.h"
#include "tools/report/html.h"
#include <cairo.h>
#include <stdbool.h>
#include <stdio.h>

/* Pixels of a PNG to one of the screen, along each axis: sharp on a fine screen and where it is enlarged. A frame of an
 * animation has one: there are many of them. */
enum { UPS_FIGURE_DENSITY = 2 };

/* The chunk of a PNG that says who drew it, and the byte at which it stands: behind the header. */
#define UPS_FIGURE_MARK                                                                                                \
    "\0\0\0\x0ctEXtSoftware\0UPS"                                                                                      \
    "\x37\x32\x84\x06"
enum { UPS_FIGURE_MARK_AT = 33 };

typedef enum ups_figure_kind { UPS_FIGURE_PNG, UPS_FIGURE_FRAME, UPS_FIGURE_SVG } ups_figure_kind;

typedef struct ups_figure {
    cairo_t *cairo; /* for drawing; never NULL */
    double width, height;
    int density;  /* of what is made of pixels */
    FILE *stream; /* collects what cairo writes */
    char *bytes;
    size_t length;
} ups_figure;

/* A white figure. It must stay where it is in memory until it is ended. */
void ups_figure_begin(ups_figure *figure, ups_figure_kind kind, double width, double height);
/* Ends a PNG and publishes it: complete or absent. UPS_ERR_MEMORY when it could not be drawn. */
ups_status ups_figure_publish(ups_figure *figure, const char *path, ups_error *error);
/* Ends a frame: its pixels, to be destroyed by the caller (animation.h); NULL on failure. */
cairo_status_t ups_figure_image(ups_figure *figure, cairo_surface_t **image);
/* An image as a PNG; free *bytes with free(). */
cairo_status_t ups_figure_encode(cairo_surface_t *image, char **bytes, size_t *length);
/* Ends an SVG and puts it on the page (html.h), which remembers a failure. `description` is for those who cannot see
 * it. */
void ups_figure_embed(ups_figure *figure, ups_html *html, const char *class, const char *description);

void ups_figure_colour(const ups_figure *figure, ups_colour colour); /* of what is drawn next */

typedef enum ups_text_anchor { UPS_TEXT_LEFT, UPS_TEXT_CENTRE, UPS_TEXT_RIGHT } ups_text_anchor;

typedef struct ups_text_style {
    double size; /* of the font, pixels */
    ups_text_anchor anchor;
    bool bold, upward; /* upward: read from bottom to top, as y labels are */
    ups_colour colour;
    double room; /* longer text ends in "..."; 0: it may be of any length */
} ups_text_style;

/* (x, y) is the anchor's point on the baseline. Control characters and broken UTF-8 are escaped. Returns the width. */
double ups_figure_text(const ups_figure *figure, double x, double y, const char *text, const ups_text_style *style);

#endif
