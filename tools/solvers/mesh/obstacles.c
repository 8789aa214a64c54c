#include "tools/solvers/mesh/obstacles.h"
#include "base/random.h"

#include <math.h>

static const double least_radius = 0.06, largest_radius = 0.12, room = 0.1;

/* Samples count from 0: the mesh, which all of them share, has the last stream. */
static const uint32_t stream_of_mesh = UINT32_MAX;

static const double nowhere = 10.0; /* farther than anything in the square */

double ups_obstacles_distance(const ups_obstacles *obstacles, double x, double y) {
    double nearest = nowhere;
    for (int i = 0; i < obstacles->count; i++) {
        const ups_obstacle *one = &obstacles->each[i];
        const double dx = x - one->x, dy = y - one->y;
        nearest = fmin(nearest, sqrt(dx * dx + dy * dy) - one->radius);
    }
    return nearest;
}

/* Circles are drawn until one has room. Four always find it: with their room they cover less than half of where centres
 * may be. */
void ups_obstacles_draw(uint64_t seed, int count, ups_obstacles *obstacles) {
    const ups_random stream = ups_random_stream(seed, UPS_RANDOM_DATAGEN, stream_of_mesh);
    obstacles->count = 0;
    for (uint64_t drawn = 0; obstacles->count < count; drawn += 4) {
        const double share = ups_random_uniform(stream, drawn);
        const double radius = least_radius + (largest_radius - least_radius) * share;
        const double margin = radius + room, width = 1.0 - 2.0 * margin;
        const ups_obstacle one = {
            .x = margin + width * ups_random_uniform(stream, drawn + 1),
            .y = margin + width * ups_random_uniform(stream, drawn + 2),
            .radius = radius,
            .turn = ups_random_uniform(stream, drawn + 3),
        };
        if (ups_obstacles_distance(obstacles, one.x, one.y) >= margin) obstacles->each[obstacles->count++] = one;
    }
}
