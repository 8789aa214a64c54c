#include "tools/solvers/mesh/mesh.h"
#include "base/random.h"
#include "tools/solvers/mesh/delaunay.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t stream_of_points = UINT32_MAX - 1; /* the obstacles have the last (obstacles.c) */
/* In spacings: how far points are moved at random, and how near to a border they may come. Half a spacing is the least
 * that keeps the edges along a border in the triangulation. */
static const double jitter = 0.4, least_distance = 0.6;
enum { SMOOTHINGS = 4, LEAST_ON_CIRCLE = 12 };

/* A point while the mesh is made. */
typedef struct node {
    ups_lattice_point at;
    uint8_t border;
    uint32_t key; /* along Hilbert's curve */
} node;

typedef struct making {
    uint64_t seed;
    int64_t resolution;
    double spacing;
    const ups_obstacles *obstacles;
    node *nodes;
    int64_t count, capacity;
} making;

/* ---- placing points ---- */

static int32_t to_lattice(double x) {
    return (int32_t)floor(x * UPS_LATTICE + 0.5);
}

/* The place along Hilbert's curve through 2¹⁵ × 2¹⁵ squares: neighbours in this order are neighbours in the plane. */
static uint32_t hilbert_key(ups_lattice_point point) {
    uint32_t x = (uint32_t)point.x >> 9, y = (uint32_t)point.y >> 9, key = 0; /* 2¹⁵ itself is the far wall */
    if (x > 0x7fff) x = 0x7fff;
    if (y > 0x7fff) y = 0x7fff;
    for (uint32_t side = 0x4000; side > 0; side >>= 1) {
        const uint32_t right = (x & side) != 0, upper = (y & side) != 0;
        key = key << 2 | ((3 * right) ^ upper);
        if (upper) continue;
        if (right) x = 0x7fff - x, y = 0x7fff - y;
        const uint32_t other = x;
        x = y, y = other;
    }
    return key;
}

static void place(making *mesh, double x, double y, uint8_t border) {
    const ups_lattice_point at = {to_lattice(x), to_lattice(y)};
    if (mesh->count < mesh->capacity) mesh->nodes[mesh->count] = (node){at, border, hilbert_key(at)};
    mesh->count++;
}

static void place_on_walls(making *mesh) {
    place(mesh, 0.0, 0.0, UPS_ON_LEFT | UPS_ON_BOTTOM);
    place(mesh, 1.0, 0.0, UPS_ON_RIGHT | UPS_ON_BOTTOM);
    place(mesh, 1.0, 1.0, UPS_ON_RIGHT | UPS_ON_TOP);
    place(mesh, 0.0, 1.0, UPS_ON_LEFT | UPS_ON_TOP);
    for (int64_t i = 1; i < mesh->resolution; i++) {
        const double along = (double)i / (double)mesh->resolution;
        place(mesh, along, 0.0, UPS_ON_BOTTOM);
        place(mesh, along, 1.0, UPS_ON_TOP);
        place(mesh, 0.0, along, UPS_ON_LEFT);
        place(mesh, 1.0, along, UPS_ON_RIGHT);
    }
}

static void place_on_circle(making *mesh, int number) {
    const ups_obstacle *circle = &mesh->obstacles->each[number];
    const double by_spacing = ceil(2.0 * M_PI * circle->radius / mesh->spacing);
    const double count = fmax(by_spacing, LEAST_ON_CIRCLE);
    for (double i = 0; i < count; i++) {
        const double angle = 2.0 * M_PI * (i + circle->turn) / count;
        place(mesh, circle->x + circle->radius * cos(angle), circle->y + circle->radius * sin(angle),
              (uint8_t)(UPS_ON_OBSTACLE + number));
    }
}

static bool is_inside(const making *mesh, double x, double y) {
    const double wall = fmin(fmin(x, 1.0 - x), fmin(y, 1.0 - y));
    return fmin(wall, ups_obstacles_distance(mesh->obstacles, x, y)) >= least_distance * mesh->spacing;
}

/* Rows √3/2 spacings apart, each shifted by half a spacing against the next. */
static void place_inside(making *mesh) {
    const ups_random stream = ups_random_stream(mesh->seed, UPS_RANDOM_DATAGEN, stream_of_points);
    const int64_t rows = (int64_t)floor((double)mesh->resolution / sqrt(0.75) + 0.5), across = mesh->resolution + 1;
    for (int64_t row = 1; row < rows; row++) {
        for (int64_t i = 0; i < across; i++) {
            uint64_t bits[2];
            ups_random_block(stream, (uint64_t)(row * across + i), bits);
            const double dx = jitter * (2.0 * ups_random_unit(bits[0]) - 1.0);
            const double dy = jitter * (2.0 * ups_random_unit(bits[1]) - 1.0);
            const double x = mesh->spacing * ((double)i + (row % 2 ? 0.5 : 0.0) + dx);
            const double y = (double)row / (double)rows + mesh->spacing * dy;
            if (is_inside(mesh, x, y)) place(mesh, x, y, 0);
        }
    }
}

static void place_points(making *mesh) {
    mesh->count = 0;
    place_on_walls(mesh);
    for (int i = 0; i < mesh->obstacles->count; i++) place_on_circle(mesh, i);
    place_inside(mesh);
}

static int by_key(const void *a, const void *b) {
    const node *first = a, *second = b;
    if (first->key != second->key) return first->key < second->key ? -1 : 1;
    if (first->at.x != second->at.x) return first->at.x < second->at.x ? -1 : 1;
    return (first->at.y > second->at.y) - (first->at.y < second->at.y);
}

/* ---- smoothing ---- */

/* Moves each point inside to the mean of its neighbours, unless that is too near to a border. In a closed fan of
 * triangles every neighbour stands twice, so the mean over corners is that over neighbours. */
static void smooth(making *mesh, const int32_t *cells, int64_t cell_count, int64_t *sums) {
    memset(sums, 0, sizeof(int64_t) * 3 * (size_t)mesh->count);
    for (int64_t i = 0; i < 3 * cell_count; i++) {
        const int64_t cell = i / 3, here = cells[i];
        for (int64_t corner = 3 * cell; corner < 3 * cell + 3; corner++) {
            if (corner == i) continue;
            sums[3 * here] += mesh->nodes[cells[corner]].at.x;
            sums[3 * here + 1] += mesh->nodes[cells[corner]].at.y;
            sums[3 * here + 2]++;
        }
    }
    for (int64_t i = 0; i < mesh->count; i++) {
        node *one = &mesh->nodes[i];
        if (one->border) continue;
        const ups_lattice_point to = {(int32_t)(sums[3 * i] / sums[3 * i + 2]),
                                      (int32_t)(sums[3 * i + 1] / sums[3 * i + 2])};
        if (is_inside(mesh, (double)to.x / UPS_LATTICE, (double)to.y / UPS_LATTICE)) one->at = to;
    }
}

/* ---- triangles ---- */

static ups_status triangulate(const making *mesh, ups_lattice_point *points, int32_t **cells, int64_t *cell_count,
                              ups_error *error) {
    for (int64_t i = 0; i < mesh->count; i++) points[i] = mesh->nodes[i].at;
    return ups_delaunay(points, mesh->count, cells, cell_count, error);
}

/* All corners on one circle: then the triangle is within the polygon that its points make, and only then. */
static bool is_in_obstacle(const making *mesh, const int32_t *cell) {
    const uint8_t on = mesh->nodes[cell[0]].border;
    return on >= UPS_ON_OBSTACLE && mesh->nodes[cell[1]].border == on && mesh->nodes[cell[2]].border == on;
}

/* Drops the triangles within obstacles. A polygon of n corners that the triangles follow is n - 2 of them. */
static ups_status drop_obstacles(const making *mesh, int32_t *cells, int64_t *cell_count, ups_error *error) {
    int64_t missing = 0, kept = 0;
    for (int64_t i = 0; i < mesh->count; i++) missing += mesh->nodes[i].border >= UPS_ON_OBSTACLE;
    missing -= 2 * mesh->obstacles->count;
    for (int64_t cell = 0; cell < *cell_count; cell++) {
        if (is_in_obstacle(mesh, cells + 3 * cell)) {
            missing--;
            continue;
        }
        memmove(cells + 3 * kept, cells + 3 * cell, 3 * sizeof *cells);
        kept++;
    }
    *cell_count = kept;
    if (missing == 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_NUMERIC,
                    "the mesh of resolution %lld does not follow its obstacles; another seed or resolution may",
                    (long long)mesh->resolution);
}

/* Points, smoothed, and the triangles that are left: *cells is freed with free(). */
static ups_status make(making *mesh, int32_t **cells, int64_t *cell_count, ups_error *error) {
    ups_status status = UPS_OK;
    place_points(mesh); /* counts them */
    mesh->capacity = mesh->count;
    mesh->nodes = malloc(sizeof(node) * (size_t)mesh->capacity);
    ups_lattice_point *points = malloc(sizeof *points * (size_t)mesh->capacity);
    int64_t *sums = malloc(sizeof *sums * 3 * (size_t)mesh->capacity);
    int32_t *made = NULL;
    if (!mesh->nodes || !points || !sums) {
        status = ups_fail(error, UPS_ERR_MEMORY, "no memory for a mesh of %lld points", (long long)mesh->capacity);
        goto cleanup;
    }
    place_points(mesh);
    qsort(mesh->nodes + 4, (size_t)mesh->count - 4, sizeof(node), by_key);
    for (int round = 0; round < SMOOTHINGS; round++) {
        status = triangulate(mesh, points, &made, cell_count, error);
        if (status == UPS_OK) smooth(mesh, made, *cell_count, sums);
        free(made);
        made = NULL;
        if (status != UPS_OK) goto cleanup;
    }
    status = triangulate(mesh, points, &made, cell_count, error);
    if (status == UPS_OK) status = drop_obstacles(mesh, made, cell_count, error);
    if (status != UPS_OK) goto cleanup;
    *cells = made;
    made = NULL;
cleanup:
    free(made);
    free(sums);
    free(points);
    return status;
}

/* ---- the mesh ---- */

static ups_mesh *collect(const making *from, int32_t *cells, int64_t cell_count) {
    ups_mesh *mesh = calloc(1, sizeof *mesh);
    if (!mesh) {
        free(cells);
        return NULL;
    }
    *mesh = (ups_mesh){
        .obstacles = *from->obstacles,
        .point_count = from->count,
        .cell_count = cell_count,
        .points = malloc(sizeof(double) * 2 * (size_t)from->count),
        .cells = cells,
        .border = malloc((size_t)from->count),
    };
    if (!mesh->points || !mesh->border) {
        ups_mesh_destroy(mesh);
        return NULL;
    }
    for (int64_t i = 0; i < from->count; i++) {
        mesh->points[2 * i] = (double)from->nodes[i].at.x / UPS_LATTICE;
        mesh->points[2 * i + 1] = (double)from->nodes[i].at.y / UPS_LATTICE;
        mesh->border[i] = from->nodes[i].border;
    }
    return mesh;
}

ups_status ups_mesh_create(uint64_t seed, int64_t resolution, const ups_obstacles *obstacles, ups_mesh **mesh,
                           ups_error *error) {
    making from = {.seed = seed, .resolution = resolution, .spacing = 1.0 / (double)resolution, .obstacles = obstacles};
    int32_t *cells = NULL;
    int64_t cell_count;
    ups_status status = make(&from, &cells, &cell_count, error);
    if (status == UPS_OK) {
        *mesh = collect(&from, cells, cell_count);
        if (!*mesh)
            status = ups_fail(error, UPS_ERR_MEMORY, "no memory for a mesh of %lld points", (long long)from.count);
    }
    free(from.nodes);
    return status;
}

void ups_mesh_destroy(ups_mesh *mesh) {
    if (!mesh) return;
    free(mesh->border);
    free(mesh->cells);
    free(mesh->points);
    free(mesh);
}

double ups_mesh_gradients(const ups_mesh *mesh, int64_t cell, double gradients[3][2]) {
    const int32_t *corner = mesh->cells + 3 * cell;
    const double *a = mesh->points + 2 * (int64_t)corner[0], *b = mesh->points + 2 * (int64_t)corner[1];
    const double *c = mesh->points + 2 * (int64_t)corner[2];
    const double twice = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]);
    const double *const at[5] = {a, b, c, a, b};
    for (int i = 0; i < 3; i++) { /* the edge opposite to corner i, turned by a right angle */
        gradients[i][0] = (at[i + 1][1] - at[i + 2][1]) / twice;
        gradients[i][1] = (at[i + 2][0] - at[i + 1][0]) / twice;
    }
    return 0.5 * twice;
}
