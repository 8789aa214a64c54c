/* Reading the field that patches make up, at any point: cubic convolution between grid points, and a learnt correction
 * of it, which is nothing at the grid's points.
 *
 *   f(c) = r(c) + Σ_axes Σ_i w_i(c) D_i r(c)                           r: cubic convolution (ups_read_patches)
 *   w(c) = m(c) · output(GELU(hidden(φ(c)))),   m(c) = mean over axes of (1 + cos 2πnc) / 2
 *
 * D_i are four differences along the axis, in steps of a cell: of third order, from two cells before c to one behind it
 * and from one before to two behind, and of fifth, a cell further on either side. φ are sines and cosines of c's place
 * within its cell, and m is 0 at a grid point and 1 in the middle between them. So weights know where in a cell a point
 * lies, and nothing of where in the domain; the correction is linear in the field and leaves parabolas as they are,
 * which cubic convolution reads exactly: what was learnt on a coarser grid (ups_patch_read_thinned) shrinks as its
 * error does. `output` starts at zero.
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

/* Which points of a field stay when it is thinned: along each axis one of `steps`, 2, or 1 where the axis is too short
 * or, periodic, of an odd number of points. False when all are 1. */
bool ups_patch_thinning(const ups_patch_reading *reading, int64_t steps[3]);

/* The same values read from the points that stay: what the correction learns from. `thinned` (B, points that stay, C)
 * is what ups_gather_points gives of them, in the order of memory; coordinates are those of the whole grid. */
ups_value ups_patch_read_thinned(ups_graph *graph, const ups_patch_reading *reading, const int64_t steps[3],
                                 ups_value thinned, ups_value coordinates);

/* Values (B, Q, C) of the polynomials through UPS_LINE_POINTS grid points in a row each: nearly the truth, for a
 * correction that sees every second point. `points` (B, N, C) is the whole field, `lines` (Q · UPS_LINE_POINTS, d)
 * float32 those in a row, `weights` (Q · UPS_LINE_POINTS, C) float32 what each counts. */
enum { UPS_LINE_POINTS = 8 };
ups_value ups_patch_read_lines(ups_graph *graph, const ups_patch_reading *reading, ups_value points, ups_value lines,
                               ups_value weights);
/* The weights, one for each point, of the polynomial at `place` from the first point on, in cells (Lagrange). */
void ups_patch_line_weights(double place, float weights[UPS_LINE_POINTS]);

#endif
