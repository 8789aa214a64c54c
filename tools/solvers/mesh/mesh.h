/* A triangular mesh of the unit square around obstacles: points that lie anywhere, by one spacing apart.
 *
 * Points stand on the walls and on the circles; inside they begin as a hexagonal pattern, each moved at random, and are
 * then smoothed a few times: each to the mean of its neighbours. The triangulation is Delaunay's, without the triangles
 * within obstacles. Everything follows from (seed, resolution, obstacles). */
#ifndef UPS_TOOLS_SOLVERS_MESH_MESH_H
#define UPS_TOOLS_SOLVERS_MESH_MESH_H

#include "base/error.h"
#include "tools/solvers/mesh/obstacles.h"
#include <stdint.h>

/* What a point lies on: any of the walls, or one obstacle. */
enum {
    UPS_ON_LEFT = 1,
    UPS_ON_RIGHT = 2,
    UPS_ON_BOTTOM = 4,
    UPS_ON_TOP = 8,
    UPS_ON_WALL = 15,     /* any of them */
    UPS_ON_OBSTACLE = 16, /* number i: UPS_ON_OBSTACLE + i, i at most 15 */
};

typedef struct ups_mesh {
    ups_obstacles obstacles;
    int64_t point_count, cell_count;
    double *points;  /* (point, 2): x, y, each a float32 */
    int32_t *cells;  /* (cell, 3), counter-clockwise */
    uint8_t *border; /* (point): the values above, 0 inside */
} ups_mesh;

/* A mesh of spacing 1/resolution, resolution ≥ 16; freed with ups_mesh_destroy. UPS_ERR_NUMERIC when the triangles do
 * not follow a circle, which its points should not let happen. */
ups_status ups_mesh_create(uint64_t seed, int64_t resolution, const ups_obstacles *obstacles, ups_mesh **mesh,
                           ups_error *error);
void ups_mesh_destroy(ups_mesh *mesh); /* NULL is fine */

/* Area of a cell, and the gradients of the functions that are 1 at one of its corners and 0 at the others. */
double ups_mesh_gradients(const ups_mesh *mesh, int64_t cell, double gradients[3][2]);

#endif
