/* Colour maps whose lightness tells the value, so that they read the same in grey and to colour-blind eyes. */
#ifndef UPS_TOOLS_REPORT_COLOURS_H
#define UPS_TOOLS_REPORT_COLOURS_H

#include <stdint.h>

typedef struct ups_colour {
    uint8_t red, green, blue;
} ups_colour;

typedef enum ups_colour_map {
    UPS_COLOURS_SEQUENTIAL, /* dark violet over green to yellow: fields */
    UPS_COLOURS_DIVERGING   /* blue, white at 0.5, red: errors and other signed values */
} ups_colour_map;

/* `value` in [0, 1], clamped; NaN is grey, which neither map has. */
ups_colour ups_colour_of(ups_colour_map map, float value);

/* Colours for the lines of a chart, distinct in lightness too; any index. */
ups_colour ups_colour_line(int index);

#endif
