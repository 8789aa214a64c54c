/* Reading the field that patches make up, at any point: cubic convolution between grid points, and a learnt correction
 * of it, which is nothing at the grid's points.
 *
 *   f(c) = r(c) + Σ_o w_o(c) · (r(c + o) − r(c))            r: cubic convolution (ups_read_patches)
 *   w(c) = m(c) · output(GELU(hidden(φ(c)))),   m(c) = mean over axes of (1 + cos 2πnc) / 2
 *
 * o are the 4 d points one and two cells before and behind c along each axis, φ sines and cosines of c's place within
 * its cell, m is 0 at a grid point and 1 in the middle between them. So weights know where in a cell a point lies, and
 * nothing of where in the domain; the correction is linear in the field, passes constants on as they are, and can be
 * trained on coarser grids than it is used on (ups_patch_between). `output` starts at zero.
 *
 * Parameters: decoder.TASK.between.hidden and decoder.TASK.between.output. */
#ifndef UPS_MODEL_NETS_PATCH_READING_H
#define UPS_MODEL_NETS_PATCH_READING_H

#include "model/ops.h"

typedef struct ups_patch_reading {
    const char *task;
    int dims;
    int64_t grid[3], patch[3], channels;
    bool periodic;
    int64_t hidden; /* features of the correction; 0: none */
} ups_patch_reading;

/* Values (B, Q, C) float32 at coordinates (Q, d) float32 of patches (B, N, P·C) float32. */
ups_value ups_patch_read(ups_graph *graph, const ups_patch_reading *reading, ups_value patches, ups_value coordinates);

/* How many points of an axis are left out of every `spacing` when a field is thinned: the step from one that stays to
 * the next, 1 where the axis is too short or, periodic, no multiple of it. False when all axes' are 1. */
bool ups_patch_thinning(const ups_patch_reading *reading, int64_t spacing, int64_t steps[3]);

/* The same values read from points that stay when a field (B, points·C), normalised by statistics (C, 2), is thinned:
 * what the correction learns from. `thinned` (B, points that stay, C) is what ups_gather_points gives of them, in the
 * order of memory; coordinates are those of the whole grid. */
ups_value ups_patch_read_thinned(ups_graph *graph, const ups_patch_reading *reading, const int64_t steps[3],
                                 ups_value thinned, ups_value coordinates);

#endif
