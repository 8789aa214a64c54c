#include "model/nets/patch_reading.h"

#include "model/nets/blocks.h"

#include <stdio.h>

/* Of a place within a cell: waves of its length and of half of it. */
static const float place_frequencies[] = {1, 2};
enum { PLACE_FREQUENCIES = sizeof place_frequencies / sizeof *place_frequencies };
/* Of the six points that a correction looks at along an axis, beside the place itself, their weights in its
 * differences: two of third order, two of fifth. */
enum { AROUND = 6, DIFFERENCES = 4 };
static const float cells_around[AROUND] = {-3, -2, -1, 1, 2, 3};
static const float differences[DIFFERENCES][AROUND] = {
    {0, -1, 3, 1, 0, 0}, {0, 0, -1, -3, 1, 0}, {0, -1, 5, 10, -5, 1}, {-1, 5, -10, -5, 1, 0}};
static const float differences_here[DIFFERENCES] = {-3, 3, -10, 10};
/* Cells of a thinned axis: fewer are no grid to learn on. */
enum { FEWEST_CELLS = 8 };

/* Under a name of its own. */
static ups_value known(ups_graph *g, ups_shape shape, const float *numbers) {
    return ups_graph_constant(g, ups_arena_printf(g->arena, "reading%d", (int)g->value_count), UPS_F32, shape, numbers);
}

/* y (…, outputs) = W x + b of numbers that are known. */
static ups_value known_linear(ups_graph *g, ups_value x, int64_t outputs, const float *weight, const float *bias) {
    const int64_t width = ups_shape_last(ups_graph_info(g, x)->shape);
    ups_value w = known(g, UPS_SHAPE(outputs, width), weight);
    ups_value b = bias ? known(g, UPS_SHAPE(outputs), bias) : UPS_NO_VALUE;
    return ups_linear(g, x, w, b, true);
}

static ups_value plain(ups_graph *g, const ups_patch_reading *r, ups_value patches, ups_value coordinates) {
    return ups_read_patches(g, patches, coordinates, r->dims, r->grid, r->patch, r->channels, r->periodic);
}

/* (Q · points, d): of each coordinate (Q, d) itself and the points that its correction looks at. */
static ups_value surroundings(ups_graph *g, const ups_patch_reading *r, ups_value coordinates, int64_t points) {
    const int64_t dims = r->dims, queries = ups_graph_info(g, coordinates)->shape.size[0];
    float *weight = UPS_ARENA_ARRAY(g->arena, float, points *dims *dims);
    float *bias = UPS_ARENA_ARRAY(g->arena, float, points *dims);
    for (int64_t p = 0; p < points; p++) {
        for (int64_t axis = 0; axis < dims; axis++) weight[(p * dims + axis) * dims + axis] = 1;
        if (p == 0) continue;
        const int64_t along = (p - 1) / AROUND;
        bias[p * dims + along] = cells_around[(p - 1) % AROUND] / (float)r->grid[along];
    }
    ups_value all = known_linear(g, coordinates, points * dims, weight, bias);
    return ups_graph_reshape(g, all, UPS_SHAPE(queries * points, dims));
}

/* Sines and cosines (Q, 2 · PLACE_FREQUENCIES · d) of where in their cells points lie. */
static ups_value places(ups_graph *g, const ups_patch_reading *r, ups_value coordinates) {
    const int64_t dims = r->dims;
    float *cells = UPS_ARENA_ARRAY(g->arena, float, dims *dims);
    for (int64_t axis = 0; axis < dims; axis++) cells[axis * dims + axis] = (float)r->grid[axis];
    ups_value inside = known_linear(g, coordinates, dims, cells, NULL);
    ups_value waves = ups_fourier(g, inside, place_frequencies, PLACE_FREQUENCIES);
    return ups_slice(g, waves, dims, 2 * PLACE_FREQUENCIES * dims);
}

/* m − 1 for each of `width` weights: waves hold, behind sines of the cell's length, its cosines. */
static ups_value share_less_one(ups_graph *g, const ups_patch_reading *r, ups_value waves, int64_t width) {
    const int64_t dims = r->dims, features = 2 * PLACE_FREQUENCIES * dims;
    float *weight = UPS_ARENA_ARRAY(g->arena, float, width *features);
    float *bias = UPS_ARENA_ARRAY(g->arena, float, width);
    for (int64_t i = 0; i < width; i++) {
        for (int64_t axis = 0; axis < dims; axis++) weight[i * features + dims + axis] = 0.5f / (float)dims;
        bias[i] = -0.5f;
    }
    return known_linear(g, waves, width, weight, bias);
}

/* Weights (Q, points · C) of the points, the place itself first. */
static ups_value weights_of(ups_graph *g, const ups_patch_reading *r, ups_value coordinates, int64_t points) {
    const int64_t queries = ups_graph_info(g, coordinates)->shape.size[0], channels = r->channels;
    const int64_t learnt = DIFFERENCES * r->dims * channels;
    char prefix[160];
    snprintf(prefix, sizeof prefix, "decoder.%s.between", r->task);
    ups_value waves = places(g, r, coordinates);
    ups_value hidden = ups_gelu(g, ups_dense(g, prefix, "hidden", waves, r->hidden, (ups_dense_options){0}));
    const ups_dense_options zero = {.output_f32 = true, .zero = true, .no_decay = true};
    ups_value weights = ups_dense(g, prefix, "output", hidden, learnt, zero);
    const float *zeros = UPS_ARENA_ARRAY(g->arena, float, queries *learnt);
    ups_value none = known(g, UPS_SHAPE(queries, learnt), zeros);
    weights = ups_graph_reshape(g, weights, UPS_SHAPE(queries, 1, learnt));
    weights = ups_modulate(g, weights, share_less_one(g, r, waves, learnt), none);
    float *sums = UPS_ARENA_ARRAY(g->arena, float, points *channels *learnt);
    for (int64_t i = 0; i < learnt; i++) { /* (axis, difference, channel) */
        const int64_t c = i % channels, of = i / channels % DIFFERENCES, axis = i / channels / DIFFERENCES;
        sums[c * learnt + i] = differences_here[of];
        for (int64_t k = 0; k < AROUND; k++)
            sums[((1 + axis * AROUND + k) * channels + c) * learnt + i] = differences[of][k];
    }
    return known_linear(g, weights, points * channels, sums, NULL);
}

ups_value ups_patch_read(ups_graph *g, const ups_patch_reading *r, ups_value patches, ups_value coordinates) {
    ups_value read = plain(g, r, patches, coordinates);
    if (r->hidden == 0) return read;
    const int64_t points = 1 + AROUND * r->dims, queries = ups_graph_info(g, coordinates)->shape.size[0];
    ups_value around = plain(g, r, patches, surroundings(g, r, coordinates, points));
    ups_value weights = weights_of(g, r, coordinates, points);
    weights = ups_graph_reshape(g, weights, UPS_SHAPE(queries * points, r->channels));
    return ups_add(g, read, ups_weigh_points(g, around, weights, points));
}

bool ups_patch_thinning(const ups_patch_reading *r, int64_t steps[3]) {
    bool any = false;
    for (int axis = 0; axis < 3; axis++) steps[axis] = 1;
    for (int axis = 0; axis < r->dims; axis++) {
        if (r->grid[axis] < 2 * FEWEST_CELLS || (r->periodic && r->grid[axis] % 2 != 0)) continue;
        steps[axis] = 2;
        any = true;
    }
    return any;
}

/* Of one point a patch. */
static ups_patch_reading of_points(const ups_patch_reading *whole) {
    ups_patch_reading r = *whole;
    for (int axis = 0; axis < r.dims; axis++) r.patch[axis] = 1;
    return r;
}

ups_value ups_patch_read_thinned(ups_graph *g, const ups_patch_reading *whole, const int64_t steps[3],
                                 ups_value thinned, ups_value coordinates) {
    ups_patch_reading r = of_points(whole);
    const int64_t dims = r.dims;
    float *weight = UPS_ARENA_ARRAY(g->arena, float, dims *dims), *bias = UPS_ARENA_ARRAY(g->arena, float, dims);
    for (int64_t axis = 0; axis < dims; axis++) { /* point i of n, at (i + ½) / n, is point i / step of those left */
        const int64_t left = (whole->grid[axis] + steps[axis] - 1) / steps[axis];
        r.grid[axis] = left;
        weight[axis * dims + axis] = (float)((double)whole->grid[axis] / (double)(steps[axis] * left));
        bias[axis] = (float)((0.5 - 0.5 / (double)steps[axis]) / (double)left);
    }
    return ups_patch_read(g, &r, thinned, known_linear(g, coordinates, dims, weight, bias));
}

ups_value ups_patch_read_lines(ups_graph *g, const ups_patch_reading *whole, ups_value points, ups_value lines,
                               ups_value weights) {
    const ups_patch_reading r = of_points(whole);
    return ups_weigh_points(g, plain(g, &r, points, lines), weights, UPS_LINE_POINTS);
}

void ups_patch_line_weights(double place, float weights[UPS_LINE_POINTS]) {
    for (int i = 0; i < UPS_LINE_POINTS; i++) {
        double weight = 1;
        for (int j = 0; j < UPS_LINE_POINTS; j++) weight *= j == i ? 1 : (place - j) / (i - j);
        weights[i] = (float)weight;
    }
}
