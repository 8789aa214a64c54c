#include "tools/report/animation.h"

#include "base/files.h"
#include "base/hash.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const unsigned char signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

enum { PIXEL = 4 };        /* bytes of cairo's RGB24 */
enum { AROUND_DATA = 12 }; /* a chunk's length, type and CRC */

struct ups_animation {
    FILE *stream; /* collects the file */
    char *bytes;
    size_t length;
    uint32_t frames, added;
    uint32_t numbered; /* chunks that have a number: fcTL and fdAT */
    int rate;
    cairo_surface_t *last; /* the frame before; NULL: none */
};

/* ---- chunks ---------------------------------------------------------------------------------------------------- */

static void store32(unsigned char bytes[4], uint32_t value) {
    for (int i = 0; i < 4; i++) bytes[i] = (unsigned char)(value >> (24 - 8 * i));
}

static uint32_t load32(const unsigned char bytes[4]) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Data in two parts, of which the first may be empty. */
static void put_chunk(FILE *out, const char type[4], const void *first, uint32_t first_length, const void *second,
                      uint32_t second_length) {
    unsigned char number[4];
    store32(number, first_length + second_length);
    fwrite(number, 1, sizeof number, out);
    fwrite(type, 1, 4, out);
    fwrite(first, 1, first_length, out);
    fwrite(second, 1, second_length, out);
    store32(number, ups_crc32(ups_crc32(ups_crc32(0, type, 4), first, first_length), second, second_length));
    fwrite(number, 1, sizeof number, out);
}

static void put_animation_control(const ups_animation *a) {
    unsigned char data[8] = {0};
    store32(data, a->frames);
    put_chunk(a->stream, "acTL", "", 0, data, sizeof data); /* 0 plays: without end */
}

typedef struct region {
    int x, y, width, height;
} region;

/* What the frame does not cover stays as it is, and nothing is blended. */
static void put_frame_control(ups_animation *a, const region *r) {
    unsigned char data[26] = {0};
    const bool last = a->added + 1 == a->frames;
    store32(data, a->numbered++);
    store32(data + 4, (uint32_t)r->width);
    store32(data + 8, (uint32_t)r->height);
    store32(data + 12, (uint32_t)r->x);
    store32(data + 16, (uint32_t)r->y);
    store32(data + 20, (uint32_t)((last ? a->rate : 1) << 16 | a->rate)); /* seconds: a fraction, 16 bits each */
    put_chunk(a->stream, "fcTL", "", 0, data, sizeof data);
}

/* The first frame's data are those of a still picture. */
static void put_data(ups_animation *a, const unsigned char *data, uint32_t length) {
    unsigned char number[4];
    if (a->added == 0) {
        put_chunk(a->stream, "IDAT", "", 0, data, length);
        return;
    }
    store32(number, a->numbered++);
    put_chunk(a->stream, "fdAT", number, sizeof number, data, length);
}

/* The chunks of a PNG that cairo wrote: all but the end for the first frame, else the data alone. */
static void take_chunks(ups_animation *a, const region *r, const char *picture, size_t length) {
    const unsigned char *at = (const unsigned char *)picture + sizeof signature;
    const unsigned char *end = (const unsigned char *)picture + length;
    bool controlled = false;
    for (uint32_t data; at < end; at += data + AROUND_DATA) {
        data = load32(at);
        const char *type = (const char *)at + 4;
        if (memcmp(type, "IDAT", 4) != 0) {
            const bool is_end = memcmp(type, "IEND", 4) == 0;
            if (a->added == 0 && !is_end) put_chunk(a->stream, type, "", 0, at + 8, data);
            if (a->added == 0 && memcmp(type, "IHDR", 4) == 0)
                fwrite(UPS_FIGURE_MARK, 1, sizeof UPS_FIGURE_MARK - 1, a->stream);
            continue;
        }
        if (!controlled) {
            if (a->added == 0) put_animation_control(a);
            put_frame_control(a, r);
            controlled = true;
        }
        put_data(a, at + 8, data);
    }
}

/* ---- frames ---------------------------------------------------------------------------------------------------- */

static unsigned char *row_of(cairo_surface_t *surface, int y) {
    return cairo_image_surface_get_data(surface) + (size_t)y * (size_t)cairo_image_surface_get_stride(surface);
}

/* The rectangle around all pixels that are not those of the frame before; a pixel, where all are. */
static region find_change(cairo_surface_t *last, cairo_surface_t *now) {
    const int width = cairo_image_surface_get_width(now), height = cairo_image_surface_get_height(now);
    if (!last) return (region){0, 0, width, height};
    int left = width, right = -1, top = height, bottom = -1;
    for (int y = 0; y < height; y++) {
        const unsigned char *a = row_of(last, y), *b = row_of(now, y);
        if (memcmp(a, b, (size_t)width * PIXEL) == 0) continue;
        int from = 0, to = width - 1;
        while (memcmp(a + (size_t)from * PIXEL, b + (size_t)from * PIXEL, PIXEL) == 0) from++;
        while (memcmp(a + (size_t)to * PIXEL, b + (size_t)to * PIXEL, PIXEL) == 0) to--;
        if (from < left) left = from;
        if (to > right) right = to;
        if (top == height) top = y;
        bottom = y;
    }
    if (bottom < 0) return (region){0, 0, 1, 1};
    return (region){left, top, right - left + 1, bottom - top + 1};
}

/* A region of a frame as a PNG; free *bytes with free(). */
static cairo_status_t encode(cairo_surface_t *frame, const region *r, char **bytes, size_t *length) {
    cairo_surface_t *part =
        cairo_image_surface_create_for_data(row_of(frame, r->y) + (size_t)r->x * PIXEL, CAIRO_FORMAT_RGB24, r->width,
                                            r->height, cairo_image_surface_get_stride(frame));
    const cairo_status_t status = ups_figure_encode(part, bytes, length);
    cairo_surface_destroy(part);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------------------------- */

ups_status ups_animation_begin(int frames, int rate, ups_animation **animation, ups_error *error) {
    ups_animation *made = calloc(1, sizeof *made);
    if (made) *made = (ups_animation){.frames = (uint32_t)frames, .rate = rate};
    if (made) made->stream = open_memstream(&made->bytes, &made->length);
    if (!made || !made->stream) {
        free(made);
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for an animation of %d frames", frames);
    }
    fwrite(signature, 1, sizeof signature, made->stream);
    *animation = made;
    return UPS_OK;
}

ups_status ups_animation_add(ups_animation *animation, ups_figure *figure, ups_error *error) {
    char *picture = NULL;
    size_t length = 0;
    cairo_surface_t *frame = NULL;
    cairo_status_t status = ups_figure_image(figure, &frame);
    if (status == CAIRO_STATUS_SUCCESS) {
        const region changed = find_change(animation->last, frame);
        status = encode(frame, &changed, &picture, &length);
        if (status == CAIRO_STATUS_SUCCESS) take_chunks(animation, &changed, picture, length);
    }
    free(picture);
    cairo_surface_destroy(animation->last); /* NULL is fine */
    animation->last = frame;
    animation->added++;
    if (status == CAIRO_STATUS_SUCCESS && ferror(animation->stream)) status = CAIRO_STATUS_NO_MEMORY;
    if (status == CAIRO_STATUS_SUCCESS) return UPS_OK;
    return ups_fail(error, UPS_ERR_MEMORY, "frame %u of an animation: %s", animation->added,
                    cairo_status_to_string(status));
}

ups_status ups_animation_publish(ups_animation *animation, const char *path, ups_error *error) {
    put_chunk(animation->stream, "IEND", "", 0, "", 0);
    if (fflush(animation->stream) != 0) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for it", path);
    ups_remove_partials_of(path);
    return ups_publish_bytes(path, animation->bytes, animation->length, error);
}

void ups_animation_free(ups_animation *animation) {
    if (!animation) return;
    fclose(animation->stream);
    free(animation->bytes);
    cairo_surface_destroy(animation->last);
    free(animation);
}
