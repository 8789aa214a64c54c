/* Maps are a few anchors, joined in Oklab (Ottosson 2020), where equal steps look equal; linear interpolation in sRGB
 * would dull the colours between anchors. */
#include "tools/report/colours.h"
#include <math.h>

typedef struct oklab {
    float l, a, b;
} oklab;

/* Eleven even steps of viridis (van der Walt and Smith, released as CC0). */
static const ups_colour sequential[] = {{68, 1, 84},    {72, 36, 117},  {65, 68, 135},  {53, 95, 141},
                                        {42, 120, 142}, {33, 145, 140}, {34, 168, 132}, {68, 191, 112},
                                        {122, 209, 81}, {189, 223, 38}, {253, 231, 37}};
static const ups_colour diverging[] = {{13, 45, 105},   {46, 108, 181}, {134, 183, 222}, {246, 246, 246},
                                       {247, 178, 150}, {212, 84, 64},  {110, 10, 36}};
static const ups_colour lines[] = {{31, 98, 170},  {217, 95, 14},  {38, 140, 84}, {160, 50, 130},
                                   {200, 150, 10}, {70, 170, 200}, {110, 70, 40}, {90, 90, 90}};
static const ups_colour missing = {150, 150, 150};

static float linear_of(uint8_t channel) {
    const float c = (float)channel / 255.0f;
    return c <= 0.04045f ? c / 12.92f : powf((c + 0.055f) / 1.055f, 2.4f);
}

static uint8_t srgb_of(float c) {
    c = fminf(1.0f, fmaxf(0.0f, c));
    c = c <= 0.0031308f ? 12.92f * c : 1.055f * powf(c, 1.0f / 2.4f) - 0.055f;
    return (uint8_t)lrintf(255.0f * c);
}

static oklab oklab_of(ups_colour colour) {
    const float r = linear_of(colour.red), g = linear_of(colour.green), b = linear_of(colour.blue);
    const float l = cbrtf(0.4122214708f * r + 0.5363325363f * g + 0.0514459929f * b);
    const float m = cbrtf(0.2119034982f * r + 0.6806995451f * g + 0.1073969566f * b);
    const float s = cbrtf(0.0883024619f * r + 0.2817188376f * g + 0.6299787005f * b);
    return (oklab){0.2104542553f * l + 0.7936177850f * m - 0.0040720468f * s,
                   1.9779984951f * l - 2.4285922050f * m + 0.4505937099f * s,
                   0.0259040371f * l + 0.7827717662f * m - 0.8086757660f * s};
}

static ups_colour colour_of(oklab c) {
    const float l = powf(c.l + 0.3963377774f * c.a + 0.2158037573f * c.b, 3.0f);
    const float m = powf(c.l - 0.1055613458f * c.a - 0.0638541728f * c.b, 3.0f);
    const float s = powf(c.l - 0.0894841775f * c.a - 1.2914855480f * c.b, 3.0f);
    return (ups_colour){srgb_of(4.0767416621f * l - 3.3077115913f * m + 0.2309699292f * s),
                        srgb_of(-1.2684380046f * l + 2.6097574011f * m - 0.3413193965f * s),
                        srgb_of(-0.0041960863f * l - 0.7034186147f * m + 1.7076147010f * s)};
}

ups_colour ups_colour_of(ups_colour_map map, float value) {
    if (isnan(value)) return missing;
    const ups_colour *anchors = map == UPS_COLOURS_SEQUENTIAL ? sequential : diverging;
    const int count = map == UPS_COLOURS_SEQUENTIAL ? (int)(sizeof(sequential) / sizeof(sequential[0]))
                                                    : (int)(sizeof(diverging) / sizeof(diverging[0]));
    const float at = fminf(1.0f, fmaxf(0.0f, value)) * (float)(count - 1);
    const int first = at < (float)(count - 1) ? (int)at : count - 2;
    const float share = at - (float)first;
    const oklab a = oklab_of(anchors[first]), b = oklab_of(anchors[first + 1]);
    return colour_of((oklab){a.l + share * (b.l - a.l), a.a + share * (b.a - a.a), a.b + share * (b.b - a.b)});
}

ups_colour ups_colour_line(int index) {
    return lines[(unsigned)index % (sizeof(lines) / sizeof(lines[0]))];
}
