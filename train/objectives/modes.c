/* A transform along an axis is a product with the axis last. Between two axes numbers change places: layout j has the
 * channels first and axis dims - 1 - j last. */
#include "train/objectives/modes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* (n, n): row r is a mode at all points. */
static void fill_table(bool periodic, int64_t n, float *table) {
    for (int64_t r = 0; r < n; r++) {
        bool whole = r == 0 || (periodic && r == n - 1 && n % 2 == 0); /* constant, or alternating */
        double size = sqrt((whole ? 1.0 : 2.0) / (double)n);
        for (int64_t i = 0; i < n; i++) {
            double angle = periodic ? 2 * M_PI * (double)((r + 1) / 2 * i % n) / (double)n
                                    : M_PI * (double)(r * (2 * i + 1) % (4 * n)) / (double)(2 * n);
            bool sine = periodic && r % 2 == 0 && r > 0;
            table[r * n + i] = (float)(size * (sine ? sin(angle) : cos(angle)));
        }
    }
}

/* Waves along the axis of its mode r. */
static double waves_of(bool periodic, int64_t r) {
    return periodic ? (double)((r + 1) / 2) : 0.5 * (double)r;
}

static int64_t place_in(const ups_task *task, int layout, int64_t channel, const int64_t *at) {
    const int dims = task->geometry.dims;
    int64_t place = channel;
    for (int i = 0; i < dims; i++) {
        int axis = (i - layout + dims) % dims;
        place = place * task->geometry.grid[axis] + at[axis];
    }
    return place;
}

/* Where each number of a layout comes from: the patches, or the layout before. NULL: it lies where it lay. */
static const int32_t *order_of(const ups_field *field, int layout, ups_arena *arena) {
    int32_t *order = UPS_ARENA_ARRAY(arena, int32_t, field->points * field->channels);
    bool same = ups_field_fits(field);
    for (int64_t p = 0; p < field->points; p++) {
        int64_t at[UPS_MAX_GRID_DIMS];
        ups_field_point(field->task, p, at);
        for (int64_t c = 0; c < field->channels; c++) {
            int64_t to = place_in(field->task, layout, c, at);
            int64_t from = layout == 0 ? ups_field_number(field, at, c) : place_in(field->task, layout - 1, c, at);
            order[to] = (int32_t)from;
            same = same && to == from;
        }
    }
    return same ? NULL : order;
}

ups_value ups_modes_build(ups_graph *graph, const ups_field *field, ups_value patches) {
    const ups_sample *geometry = &field->task->geometry;
    const int64_t all = field->points * field->channels, batch = ups_graph_info(graph, patches)->shape.size[0];
    ups_value x = patches;
    char name[48];
    for (int layout = 0; layout < geometry->dims; layout++) {
        const int axis = geometry->dims - 1 - layout;
        const int64_t n = geometry->grid[axis];
        snprintf(name, sizeof name, "field_order%d", layout);
        ups_value places = ups_graph_find(graph, name);
        const int32_t *order = places == UPS_NO_VALUE ? order_of(field, layout, graph->arena) : NULL;
        if (order) places = ups_graph_constant(graph, name, UPS_I32, UPS_SHAPE(all), order);
        if (places != UPS_NO_VALUE) x = ups_field_gather(graph, x, places);
        snprintf(name, sizeof name, "field_modes%d", axis);
        ups_value table = ups_graph_find(graph, name);
        if (table == UPS_NO_VALUE) {
            float *host = UPS_ARENA_ARRAY(graph->arena, float, n *n);
            fill_table(geometry->periodic, n, host);
            table = ups_graph_constant(graph, name, UPS_F32, UPS_SHAPE(n, n), host);
        }
        x = ups_linear(graph, ups_graph_reshape(graph, x, UPS_SHAPE(batch, all / n, n)), table, UPS_NO_VALUE, true);
    }
    return ups_graph_reshape(graph, x, UPS_SHAPE(batch, all));
}

int32_t *ups_modes_octaves(const ups_field *field, ups_arena *arena, int *groups) {
    enum { OCTAVES = 64 };
    const ups_sample *geometry = &field->task->geometry;
    int32_t *octave = UPS_ARENA_ARRAY(arena, int32_t, field->points * field->channels), number[OCTAVES];
    int found = 0;
    memset(number, -1, sizeof number);
    for (int pass = 0; pass < 2; pass++) { /* first which octaves there are */
        for (int64_t p = 0; p < field->points; p++) {
            int64_t at[UPS_MAX_GRID_DIMS];
            double squares = 0;
            ups_field_point(field->task, p, at);
            for (int a = 0; a < geometry->dims; a++) squares += pow(waves_of(geometry->periodic, at[a]), 2);
            int of = squares < 1 ? 0 : 1 + (int)floor(0.5 * log2(squares) + 1e-9);
            if (pass == 0) number[of] = 0;
            for (int64_t c = 0; pass == 1 && c < field->channels; c++)
                octave[place_in(field->task, geometry->dims - 1, c, at)] = (int32_t)(c * found) + number[of];
        }
        for (int i = 0; pass == 0 && i < OCTAVES; i++) {
            if (number[i] == 0) number[i] = found++;
        }
    }
    *groups = found * (int)field->channels;
    return octave;
}
