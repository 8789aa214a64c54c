#include "train/objectives/modes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Waves along the axis of its mode r. */
static double waves_of(bool periodic, int64_t r) {
    return periodic ? (double)((r + 1) / 2) : 0.5 * (double)r;
}

/* Of a number among a field's, channels first. */
static int64_t place_of(const ups_task *task, int64_t channel, const int64_t *at) {
    int64_t place = channel;
    for (int axis = 0; axis < task->geometry.dims; axis++) place = place * task->geometry.grid[axis] + at[axis];
    return place;
}

/* Where each number of a field lies in its patches. NULL: where it lies in the field. */
static const int32_t *order_of(const ups_field *field, ups_arena *arena) {
    int32_t *order = UPS_ARENA_ARRAY(arena, int32_t, field->points * field->channels);
    bool same = ups_field_fits(field);
    for (int64_t p = 0; p < field->points; p++) {
        int64_t at[UPS_MAX_GRID_DIMS];
        ups_field_point(field->task, p, at);
        for (int64_t c = 0; c < field->channels; c++) {
            const int64_t to = place_of(field->task, c, at), from = ups_field_number(field, at, c);
            order[to] = (int32_t)from;
            same = same && to == from;
        }
    }
    return same ? NULL : order;
}

ups_value ups_modes_build(ups_graph *graph, const ups_field *field, ups_value patches) {
    const ups_sample *geometry = &field->task->geometry;
    const int64_t all = field->points * field->channels, batch = ups_graph_info(graph, patches)->shape.size[0];
    ups_value x = patches, places = ups_graph_find(graph, "field_order");
    const int32_t *order = places == UPS_NO_VALUE ? order_of(field, graph->arena) : NULL;
    if (order) places = ups_graph_constant(graph, "field_order", UPS_I32, UPS_SHAPE(all), order);
    if (places != UPS_NO_VALUE) x = ups_field_gather(graph, x, places);
    return ups_field_modes(graph, ups_graph_reshape(graph, x, UPS_SHAPE(batch, all)), geometry->dims, geometry->grid,
                           geometry->periodic);
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
                octave[place_of(field->task, c, at)] = (int32_t)(c * found) + number[of];
        }
        for (int i = 0; pass == 0 && i < OCTAVES; i++) {
            if (number[i] == 0) number[i] = found++;
        }
    }
    *groups = found * (int)field->channels;
    return octave;
}
