/* Delaunay triangulation of points in a square, by exact arithmetic: no point is too near a line or a circle.
 *
 * Coordinates are whole numbers, 0 to UPS_LATTICE: on so fine a lattice a point moves by less than 10⁻⁷ of the square,
 * every coordinate is a float32, and the signs that decide everything are computed in 128 bits without rounding. The
 * triangles are so the same on every machine. */
#ifndef UPS_TOOLS_SOLVERS_MESH_DELAUNAY_H
#define UPS_TOOLS_SOLVERS_MESH_DELAUNAY_H

#include "base/error.h"
#include <stdint.h>

#define UPS_LATTICE 16777216 /* 2²⁴ */

typedef struct ups_lattice_point {
    int32_t x, y;
} ups_lattice_point;

/* Twice the area of the triangle, in squares of the lattice; positive when a, b, c are counter-clockwise. */
int64_t ups_lattice_area(ups_lattice_point a, ups_lattice_point b, ups_lattice_point c);
/* Positive when d is inside the circle through a, b, c (counter-clockwise), 0 on it. */
int ups_lattice_in_circle(ups_lattice_point a, ups_lattice_point b, ups_lattice_point c, ups_lattice_point d);

/* Triangles of `count` points, of which the first four are the corners of the square, counter-clockwise from (0, 0);
 * all lie in it, and any number on its sides. Work is proportional to `count` where points that are near in the list
 * are near in the square. *cells (cell, 3), counter-clockwise, is freed with free(). UPS_ERR_ARGUMENT when two points
 * are the same. */
ups_status ups_delaunay(const ups_lattice_point *points, int64_t count, int32_t **cells, int64_t *cell_count,
                        ups_error *error);

#endif
