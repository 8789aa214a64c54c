/* A picture in memory: pixels, smooth strokes, filled rectangles, text, and PNG. Coordinates are in pixels, x to the
 * right, y down, (0, 0) at the upper left corner of the first pixel. */
#ifndef UPS_TOOLS_REPORT_CANVAS_H
#define UPS_TOOLS_REPORT_CANVAS_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ups_colour {
    uint8_t red, green, blue;
} ups_colour;

typedef struct ups_point {
    float x, y;
} ups_point;

typedef struct ups_rectangle {
    float x, y, width, height;
} ups_rectangle;

typedef struct ups_canvas ups_canvas;

/* A white canvas. Errors: UPS_ERR_ARGUMENT (no pixels, or more than 16384 a side), UPS_ERR_MEMORY. */
ups_status ups_canvas_create(int width, int height, ups_canvas **canvas, ups_error *error);
void ups_canvas_destroy(ups_canvas *canvas); /* NULL is fine */
int ups_canvas_width(const ups_canvas *canvas);
int ups_canvas_height(const ups_canvas *canvas);

/* The canvas as an 8-bit RGB PNG in memory; *bytes is freed by the caller with free(). */
ups_status ups_canvas_encode(const ups_canvas *canvas, void **bytes, size_t *length, ups_error *error);
/* The same published as a file: complete or absent. */
ups_status ups_canvas_publish(const ups_canvas *canvas, const char *path, ups_error *error);

/* Drawing is limited to the rectangle until it is set anew; NULL: the whole canvas. */
void ups_canvas_clip(ups_canvas *canvas, const ups_rectangle *rectangle);

void ups_canvas_pixel(ups_canvas *canvas, int x, int y, ups_colour colour); /* outside: nothing */
ups_colour ups_canvas_at(const ups_canvas *canvas, int x, int y);
void ups_canvas_fill(ups_canvas *canvas, ups_rectangle rectangle, ups_colour colour);  /* to the nearest whole pixels */
void ups_canvas_frame(ups_canvas *canvas, ups_rectangle rectangle, ups_colour colour); /* one pixel wide, around it */

/* A polyline with round joints. `dash` > 0: dashes of that length with gaps of 0.7 of it. */
void ups_canvas_stroke(ups_canvas *canvas, const ups_point *points, size_t count, float width, float dash,
                       ups_colour colour);

typedef enum ups_text_anchor { UPS_TEXT_LEFT, UPS_TEXT_CENTRE, UPS_TEXT_RIGHT } ups_text_anchor;

typedef struct ups_text_style {
    float size; /* height of capitals, pixels */
    ups_text_anchor anchor;
    bool bold, upward; /* upward: read from bottom to top, as y labels are */
    ups_colour colour;
} ups_text_style;

/* `at` is the anchor's point on the baseline. */
void ups_canvas_text(ups_canvas *canvas, ups_point at, const char *text, const ups_text_style *style);
float ups_canvas_text_width(const char *text, float size);

#endif
