/* The domain: the unit square with round holes, at random places, the same at every resolution. */
#ifndef UPS_TOOLS_SOLVERS_MESH_OBSTACLES_H
#define UPS_TOOLS_SOLVERS_MESH_OBSTACLES_H

#include <stdbool.h>
#include <stdint.h>

enum { UPS_MOST_OBSTACLES = 4 };

typedef struct ups_obstacle {
    double x, y, radius;
    double turn; /* where the first of its points lies: a share of the whole circle */
} ups_obstacle;

typedef struct ups_obstacles {
    int count;
    ups_obstacle each[UPS_MOST_OBSTACLES];
} ups_obstacles;

/* `count` obstacles of a seed: radii 0.06 to 0.12, and at least 0.1 of room between them and to the walls. */
void ups_obstacles_draw(uint64_t seed, int count, ups_obstacles *obstacles);

/* Distance of a point from the nearest obstacle's border, negative within one; large where there are none. */
double ups_obstacles_distance(const ups_obstacles *obstacles, double x, double y);

#endif
