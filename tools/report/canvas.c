/* Strokes are painted through a mask: how far each pixel is covered by the whole polyline, found from its distance to
 * the line, then mixed in once, so that joints are no darker than the rest. */
#include "tools/report/canvas.h"
#include "base/files.h"
#include "tools/report/font.h"
#include <math.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST_SIDE = 16384 };

typedef struct box {
    int left, top, right, bottom; /* right and bottom excluded */
} box;

struct ups_canvas {
    int width, height;
    ups_colour *pixels; /* (height, width) */
    float *mask;        /* (height, width), zero between strokes */
    box clip;
};

ups_status ups_canvas_create(int width, int height, ups_canvas **canvas, ups_error *error) {
    if (width < 1 || height < 1 || width > LARGEST_SIDE || height > LARGEST_SIDE) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "a picture of %d x %d pixels; 1 to %d a side were expected", width,
                        height, LARGEST_SIDE);
    }
    const size_t pixels = (size_t)width * (size_t)height;
    ups_canvas *made = calloc(1, sizeof(*made));
    if (made) {
        made->pixels = malloc(pixels * sizeof(*made->pixels));
        made->mask = calloc(pixels, sizeof(*made->mask));
    }
    if (!made || !made->pixels || !made->mask) {
        ups_canvas_destroy(made);
        return ups_fail(error, UPS_ERR_MEMORY, "out of memory for a picture of %d x %d pixels", width, height);
    }
    made->width = width;
    made->height = height;
    memset(made->pixels, 0xff, pixels * sizeof(*made->pixels));
    ups_canvas_clip(made, NULL);
    *canvas = made;
    return UPS_OK;
}

void ups_canvas_destroy(ups_canvas *canvas) {
    if (!canvas) return;
    free(canvas->pixels);
    free(canvas->mask);
    free(canvas);
}

int ups_canvas_width(const ups_canvas *canvas) {
    return canvas->width;
}

int ups_canvas_height(const ups_canvas *canvas) {
    return canvas->height;
}

static int clamped(float value, int low, int high) {
    if (!(value > (float)low)) return low; /* NaN as well */
    return value < (float)high ? (int)value : high;
}

void ups_canvas_clip(ups_canvas *canvas, const ups_rectangle *rectangle) {
    canvas->clip = (box){0, 0, canvas->width, canvas->height};
    if (!rectangle) return;
    canvas->clip.left = clamped(roundf(rectangle->x), 0, canvas->width);
    canvas->clip.top = clamped(roundf(rectangle->y), 0, canvas->height);
    canvas->clip.right = clamped(roundf(rectangle->x + rectangle->width), 0, canvas->width);
    canvas->clip.bottom = clamped(roundf(rectangle->y + rectangle->height), 0, canvas->height);
}

void ups_canvas_pixel(ups_canvas *canvas, int x, int y, ups_colour colour) {
    const box *clip = &canvas->clip;
    if (x < clip->left || x >= clip->right || y < clip->top || y >= clip->bottom) return;
    canvas->pixels[(size_t)y * (size_t)canvas->width + (size_t)x] = colour;
}

ups_colour ups_canvas_at(const ups_canvas *canvas, int x, int y) {
    return canvas->pixels[(size_t)y * (size_t)canvas->width + (size_t)x];
}

void ups_canvas_fill(ups_canvas *canvas, ups_rectangle rectangle, ups_colour colour) {
    const int right = (int)roundf(rectangle.x + rectangle.width), bottom = (int)roundf(rectangle.y + rectangle.height);
    for (int y = (int)roundf(rectangle.y); y < bottom; y++) {
        for (int x = (int)roundf(rectangle.x); x < right; x++) ups_canvas_pixel(canvas, x, y, colour);
    }
}

void ups_canvas_frame(ups_canvas *canvas, ups_rectangle r, ups_colour colour) {
    const float x = roundf(r.x), y = roundf(r.y), right = roundf(r.x + r.width), bottom = roundf(r.y + r.height);
    ups_canvas_fill(canvas, (ups_rectangle){x - 1, y - 1, right - x + 2, 1}, colour);
    ups_canvas_fill(canvas, (ups_rectangle){x - 1, bottom, right - x + 2, 1}, colour);
    ups_canvas_fill(canvas, (ups_rectangle){x - 1, y, 1, bottom - y}, colour);
    ups_canvas_fill(canvas, (ups_rectangle){right, y, 1, bottom - y}, colour);
}

/* ---- strokes ---- */

static void widen(box *touched, const box *by) {
    if (by->left < touched->left) touched->left = by->left;
    if (by->top < touched->top) touched->top = by->top;
    if (by->right > touched->right) touched->right = by->right;
    if (by->bottom > touched->bottom) touched->bottom = by->bottom;
}

/* Raises the mask to a segment's coverage: 1 inside, falling to 0 over the pixel at its rim. */
static void mask_segment(ups_canvas *canvas, ups_point a, ups_point b, float width, box *touched) {
    if (!isfinite(a.x) || !isfinite(a.y) || !isfinite(b.x) || !isfinite(b.y)) return;
    const box *clip = &canvas->clip;
    const float reach = 0.5f * width + 1.0f;
    const box around = {
        clamped(floorf(fminf(a.x, b.x) - reach), clip->left, clip->right),
        clamped(floorf(fminf(a.y, b.y) - reach), clip->top, clip->bottom),
        clamped(ceilf(fmaxf(a.x, b.x) + reach), clip->left, clip->right),
        clamped(ceilf(fmaxf(a.y, b.y) + reach), clip->top, clip->bottom),
    };
    const float dx = b.x - a.x, dy = b.y - a.y, length_square = dx * dx + dy * dy;
    for (int y = around.top; y < around.bottom; y++) {
        float *row = canvas->mask + (size_t)y * (size_t)canvas->width;
        for (int x = around.left; x < around.right; x++) {
            const float px = (float)x + 0.5f - a.x, py = (float)y + 0.5f - a.y;
            float along = length_square > 0 ? (px * dx + py * dy) / length_square : 0;
            along = fminf(1.0f, fmaxf(0.0f, along));
            const float coverage = 0.5f * width + 0.5f - hypotf(px - along * dx, py - along * dy);
            if (coverage > row[x]) row[x] = fminf(1.0f, coverage);
        }
    }
    widen(touched, &around);
}

static void mask_polyline(ups_canvas *canvas, const ups_point *points, size_t count, float width, float dash,
                          box *touched) {
    const float gap = 0.7f * dash, period = dash + gap;
    float travelled = 0;
    if (count == 1) mask_segment(canvas, points[0], points[0], width, touched);
    for (size_t i = 0; i + 1 < count; i++) {
        const ups_point a = points[i], b = points[i + 1];
        const float length = hypotf(b.x - a.x, b.y - a.y);
        if (dash <= 0) {
            mask_segment(canvas, a, b, width, touched);
            continue;
        }
        if (!isfinite(length)) continue;
        for (float at = 0; at < length;) {
            const float phase = fmodf(travelled + at, period);
            const float step = fminf(length - at, fmaxf(phase < dash ? dash - phase : period - phase, 0.01f));
            if (phase < dash) {
                const float u = at / length, v = (at + step) / length;
                mask_segment(canvas, (ups_point){a.x + u * (b.x - a.x), a.y + u * (b.y - a.y)},
                             (ups_point){a.x + v * (b.x - a.x), a.y + v * (b.y - a.y)}, width, touched);
            }
            at += step;
        }
        travelled = fmodf(travelled + length, period);
    }
}

static uint8_t mixed(uint8_t under, uint8_t over, float share) {
    return (uint8_t)lrintf((float)under + share * ((float)over - (float)under));
}

static void paint_mask(ups_canvas *canvas, const box *touched, ups_colour colour) {
    for (int y = touched->top; y < touched->bottom; y++) {
        const size_t row = (size_t)y * (size_t)canvas->width;
        for (int x = touched->left; x < touched->right; x++) {
            const float share = canvas->mask[row + (size_t)x];
            if (share <= 0) continue;
            ups_colour *pixel = &canvas->pixels[row + (size_t)x];
            pixel->red = mixed(pixel->red, colour.red, share);
            pixel->green = mixed(pixel->green, colour.green, share);
            pixel->blue = mixed(pixel->blue, colour.blue, share);
            canvas->mask[row + (size_t)x] = 0;
        }
    }
}

static box nothing(const ups_canvas *canvas) {
    return (box){canvas->width, canvas->height, 0, 0};
}

void ups_canvas_stroke(ups_canvas *canvas, const ups_point *points, size_t count, float width, float dash,
                       ups_colour colour) {
    box touched = nothing(canvas);
    mask_polyline(canvas, points, count, width, dash, &touched);
    paint_mask(canvas, &touched, colour);
}

/* ---- text ---- */

float ups_canvas_text_width(const char *text, float size) {
    float units = 0;
    for (const char *letter = text; *letter; letter++) units += ups_font_width(*letter) + UPS_FONT_GAP;
    return (units > 0 ? units - UPS_FONT_GAP : 0) * size / UPS_FONT_CAP_HEIGHT;
}

void ups_canvas_text(ups_canvas *canvas, ups_point at, const char *text, const ups_text_style *style) {
    const float unit = style->size / UPS_FONT_CAP_HEIGHT, width = ups_canvas_text_width(text, style->size);
    const float weight = (style->bold ? 0.175f : 0.125f) * style->size;
    float pen = style->anchor == UPS_TEXT_LEFT ? 0 : style->anchor == UPS_TEXT_CENTRE ? -0.5f * width : -width;
    box touched = nothing(canvas);
    for (const char *letter = text; *letter; letter++) {
        ups_font_point stroke[UPS_FONT_STROKE_POINTS];
        size_t count;
        for (int i = 0; (count = ups_font_stroke(*letter, i, stroke, UPS_FONT_STROKE_POINTS)) > 0; i++) {
            ups_point points[UPS_FONT_STROKE_POINTS];
            for (size_t p = 0; p < count; p++) {
                const float right = pen + unit * stroke[p].x, up = unit * (stroke[p].y - UPS_FONT_BASELINE);
                points[p] = style->upward ? (ups_point){at.x - up, at.y - right} : (ups_point){at.x + right, at.y - up};
            }
            const float dot = count == 1 ? 1.5f : 1.0f; /* a dot as wide as the line would look too small */
            mask_polyline(canvas, points, count, dot * fmaxf(weight, 1.0f), 0, &touched);
        }
        pen += unit * (ups_font_width(*letter) + UPS_FONT_GAP);
    }
    paint_mask(canvas, &touched, style->colour);
}

/* ---- PNG ---- */

ups_status ups_canvas_encode(const ups_canvas *canvas, void **result, size_t *result_length, ups_error *error) {
    png_image image = {
        .version = PNG_IMAGE_VERSION,
        .width = (png_uint_32)canvas->width,
        .height = (png_uint_32)canvas->height,
        .format = PNG_FORMAT_RGB,
    };
    png_alloc_size_t length = 0;
    *result = NULL;
    if (!png_image_write_get_memory_size(image, length, 0, canvas->pixels, 0, NULL)) {
        return ups_fail(error, UPS_ERR_MEMORY, "libpng: %s", image.message);
    }
    void *bytes = malloc(length);
    if (!bytes) return ups_fail(error, UPS_ERR_MEMORY, "out of memory for %zu bytes of PNG", (size_t)length);
    if (!png_image_write_to_memory(&image, bytes, &length, 0, canvas->pixels, 0, NULL)) {
        free(bytes);
        return ups_fail(error, UPS_ERR_MEMORY, "libpng: %s", image.message);
    }
    *result = bytes;
    *result_length = (size_t)length;
    return UPS_OK;
}

ups_status ups_canvas_publish(const ups_canvas *canvas, const char *path, ups_error *error) {
    void *bytes;
    size_t length;
    ups_status status = ups_canvas_encode(canvas, &bytes, &length, error);
    if (status != UPS_OK) return ups_fail_within(error, "%s", path);
    ups_remove_partials_of(path);
    status = ups_publish_bytes(path, bytes, length, error);
    free(bytes);
    return status;
}
