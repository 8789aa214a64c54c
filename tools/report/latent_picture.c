#include "tools/report/latent_picture.h"

#include "tools/report/plot.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define PANELS 4     /* times shown */
#define SIDE 230.0f  /* of a heat map, pixels */
#define GAP 16.0f    /* between heat maps */
#define STRIP 110.0f /* height of the map over time */
#define HEADER 34.0f /* the picture's title */
#define TITLE_SIZE 11.0f

/* The scale shared by all: symmetric about zero when the values lie on both sides of it. */
static void shared_scale(const float *values, int64_t rows, int64_t columns, double *low, double *high) {
    ups_plot_range(values, rows, columns, columns, 1, low, high);
    if (*low >= 0 || *high <= 0) return;
    double largest = fmax(-*low, *high);
    *low = -largest;
    *high = largest;
}

ups_status ups_latent_picture(const char *path, const char *title, ups_chunk_shape shape, const ups_f16 *latents,
                              const double *time, ups_error *error) {
    int64_t frame = shape.tokens * shape.dim;
    float *values = malloc((size_t)(shape.times * frame) * sizeof *values);
    if (!values) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to draw it", path);
    ups_f16_to_f32(latents, values, (size_t)(shape.times * frame));
    double low, high;
    shared_scale(values, shape.times, frame, &low, &high);
    ups_colour_map colours = low < 0 && high > 0 ? UPS_COLOURS_DIVERGING : UPS_COLOURS_SEQUENTIAL;

    int panels = shape.times < PANELS ? (int)shape.times : PANELS;
    float maps_width = (float)panels * SIDE + (float)(panels - 1) * GAP;
    float width = UPS_PLOT_LEFT + maps_width + UPS_PLOT_BAR_GAP + UPS_PLOT_BAR + UPS_PLOT_BAR_LABELS;
    float strip_top = HEADER + UPS_PLOT_TOP + SIDE + UPS_PLOT_BOTTOM + UPS_PLOT_TOP;
    ups_canvas *canvas;
    ups_status status = ups_canvas_create((int)width, (int)(strip_top + STRIP + UPS_PLOT_BOTTOM), &canvas, error);
    if (status != UPS_OK) {
        free(values);
        return status;
    }
    ups_plot_title(canvas, (ups_point){UPS_PLOT_LEFT, HEADER - 8}, title, TITLE_SIZE);
    for (int p = 0; p < panels; p++) {
        int64_t t = panels > 1 ? p * (shape.times - 1) / (panels - 1) : 0;
        char caption[60];
        snprintf(caption, sizeof caption, "t = %.4g", time[t]);
        ups_heat_map map = {.values = values + t * frame,
                            .rows = shape.tokens,
                            .columns = shape.dim,
                            .row_stride = shape.dim,
                            .column_stride = 1,
                            .x = {.label = "dim"},
                            .y = {.label = "token", .bare = p > 0},
                            .downward = true,
                            .map = colours,
                            .low = low,
                            .high = high,
                            .title = caption};
        ups_plot_heat_map(
            canvas, (ups_rectangle){UPS_PLOT_LEFT + (float)p * (SIDE + GAP), HEADER + UPS_PLOT_TOP, SIDE, SIDE}, &map);
    }
    float bar_left = UPS_PLOT_LEFT + maps_width + UPS_PLOT_BAR_GAP;
    ups_plot_colour_bar(canvas, (ups_rectangle){bar_left, HEADER + UPS_PLOT_TOP, UPS_PLOT_BAR, SIDE}, colours, low,
                        high);

    int64_t token = shape.tokens / 2;
    char caption[60];
    snprintf(caption, sizeof caption, "token %lld over time", (long long)token);
    ups_heat_map strip = {.values = values + token * shape.dim,
                          .rows = shape.dim,
                          .columns = shape.times,
                          .row_stride = 1,
                          .column_stride = frame,
                          .x = {.low = time[0], .high = time[shape.times - 1], .label = "time t"},
                          .y = {.label = "dim"},
                          .stretched = true,
                          .downward = true,
                          .map = colours,
                          .low = low,
                          .high = high,
                          .title = caption};
    ups_plot_heat_map(canvas, (ups_rectangle){UPS_PLOT_LEFT, strip_top, maps_width, STRIP}, &strip);
    status = ups_canvas_publish(canvas, path, error);
    ups_canvas_destroy(canvas);
    free(values);
    return status;
}
