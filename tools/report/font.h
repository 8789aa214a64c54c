/* A small proportional typeface for labels in pictures, drawn by strokes, so that it scales, turns and needs no font
 * file. ASCII 32 to 126. */
#ifndef UPS_TOOLS_REPORT_FONT_H
#define UPS_TOOLS_REPORT_FONT_H

#include <stddef.h>

/* Units of the font's own grid: 0 is the bottom of descenders, 2 the baseline, 7 the top of an x, 9 that of a capital.
 */
enum { UPS_FONT_BASELINE = 2, UPS_FONT_CAP_HEIGHT = 7, UPS_FONT_GAP = 2 };

typedef struct ups_font_point {
    float x, y;
} ups_font_point;

/* Width of a glyph without the gap to the next. */
float ups_font_width(char letter);

/* Stroke number `index` of a glyph as a polyline, curves already bent; 0 points when there is no such stroke, one point
 * for a dot. At most `capacity` points are written. */
enum { UPS_FONT_STROKE_POINTS = 96 };
size_t ups_font_stroke(char letter, int index, ups_font_point *points, size_t capacity);

#endif
