#include "model/nets/patch_reading.h"

#include "model/nets/blocks.h"

#include <stdio.h>

/* Of a place within a cell: waves of its length and of half of it. */
static const float place_frequencies[] = {1, 2};
enum { PLACE_FREQUENCIES = sizeof place_frequencies / sizeof *place_frequencies };
/* Cells of a thinned axis: fewer are no grid to learn on. */
enum { FEWEST_CELLS = 8 };

/* y (…, outputs) = W x + b of numbers that are known. */
static ups_value known_linear(ups_graph *g, ups_value x, int64_t outputs, const float *weight, const float *bias) {
    const int64_t width = ups_shape_last(ups_graph_info(g, x)->shape);
    ups_value w = ups_graph_constant(g, "reading", UPS_F32, UPS_SHAPE(outputs, width), weight);
    ups_value b = bias ? ups_graph_constant(g, "reading_bias", UPS_F32, UPS_SHAPE(outputs), bias) : UPS_NO_VALUE;
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
    static const float cells[] = {-2, -1, 1, 2};
    for (int64_t p = 0; p < points; p++) {
        for (int64_t axis = 0; axis < dims; axis++) weight[(p * dims + axis) * dims + axis] = 1;
        if (p > 0) bias[p * dims + (p - 1) / 4] = cells[(p - 1) % 4] / (float)r->grid[(p - 1) / 4];
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

/* Weights (Q, points · C) that sum up to 0 over the points, the point itself first. */
static ups_value weights_of(ups_graph *g, const ups_patch_reading *r, ups_value coordinates, int64_t points) {
    const int64_t queries = ups_graph_info(g, coordinates)->shape.size[0], channels = r->channels;
    const int64_t learnt = (points - 1) * channels;
    char prefix[160];
    snprintf(prefix, sizeof prefix, "decoder.%s.between", r->task);
    ups_value waves = places(g, r, coordinates);
    ups_value hidden = ups_gelu(g, ups_dense(g, prefix, "hidden", waves, r->hidden, (ups_dense_options){0}));
    const ups_dense_options zero = {.output_f32 = true, .zero = true, .no_decay = true};
    ups_value weights = ups_dense(g, prefix, "output", hidden, learnt, zero);
    const float *zeros = UPS_ARENA_ARRAY(g->arena, float, queries *learnt);
    ups_value none = ups_graph_constant(g, "nothing", UPS_F32, UPS_SHAPE(queries, learnt), zeros);
    weights = ups_graph_reshape(g, weights, UPS_SHAPE(queries, 1, learnt));
    weights = ups_modulate(g, weights, share_less_one(g, r, waves, learnt), none);
    float *sums = UPS_ARENA_ARRAY(g->arena, float, points *channels *learnt);
    for (int64_t i = 0; i < learnt; i++) {
        sums[i % channels * learnt + i] = -1;
        sums[(channels + i) * learnt + i] = 1;
    }
    return known_linear(g, weights, points * channels, sums, NULL);
}

ups_value ups_patch_read(ups_graph *g, const ups_patch_reading *r, ups_value patches, ups_value coordinates) {
    ups_value read = plain(g, r, patches, coordinates);
    if (r->hidden == 0) return read;
    const int64_t points = 1 + 4 * r->dims, queries = ups_graph_info(g, coordinates)->shape.size[0];
    ups_value around = plain(g, r, patches, surroundings(g, r, coordinates, points));
    ups_value weights = weights_of(g, r, coordinates, points);
    weights = ups_graph_reshape(g, weights, UPS_SHAPE(queries * points, r->channels));
    return ups_add(g, read, ups_weigh(g, around, weights, points));
}

bool ups_patch_thinning(const ups_patch_reading *r, int64_t spacing, int64_t steps[3]) {
    bool any = false;
    for (int axis = 0; axis < 3; axis++) steps[axis] = 1;
    for (int axis = 0; axis < r->dims; axis++) {
        if (r->grid[axis] < FEWEST_CELLS * spacing || (r->periodic && r->grid[axis] % spacing != 0)) continue;
        steps[axis] = spacing;
        any = true;
    }
    return any;
}

ups_value ups_patch_read_thinned(ups_graph *g, const ups_patch_reading *whole, const int64_t steps[3],
                                 ups_value thinned, ups_value coordinates) {
    ups_patch_reading r = *whole;
    const int64_t dims = r.dims;
    float *weight = UPS_ARENA_ARRAY(g->arena, float, dims *dims), *bias = UPS_ARENA_ARRAY(g->arena, float, dims);
    for (int64_t axis = 0; axis < dims; axis++) { /* point i of n, at (i + ½) / n, is point i / step of those left */
        const int64_t left = (whole->grid[axis] + steps[axis] - 1) / steps[axis];
        r.grid[axis] = left;
        r.patch[axis] = 1;
        weight[axis * dims + axis] = (float)((double)whole->grid[axis] / (double)(steps[axis] * left));
        bias[axis] = (float)((0.5 - 0.5 / (double)steps[axis]) / (double)left);
    }
    return ups_patch_read(g, &r, thinned, known_linear(g, coordinates, dims, weight, bias));
}
