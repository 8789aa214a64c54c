/* Bowyer's and Watson's way: a point removes the triangles whose circumcircle it is in, and the hole is filled with
 * triangles to the point. A point on a side of the square splits the edge there: the triangle without area, which that
 * edge would get, is left out, so that no triangle around everything is needed. */
#include "tools/solvers/mesh/delaunay.h"

#include <stdlib.h>

static const int32_t outside = -1; /* across a side of the square there is no triangle */

typedef struct triangle {
    int32_t corner[3];
    int32_t across[3]; /* the triangle beyond the edge opposite to that corner */
    int32_t removed;   /* the last point that removed it, and found it on its way */
} triangle;

/* An edge of the hole that a point makes: counter-clockwise from a to b, and what lies beyond. */
typedef struct hole_edge {
    int32_t a, b, beyond;
} hole_edge;

typedef struct triangulation {
    const ups_lattice_point *points;
    triangle *triangles;
    int64_t count;
    int32_t *hole;    /* triangles that the point removes */
    hole_edge *edges; /* around them */
    int32_t *begins;  /* of a point on the hole's border: the new triangle whose edge begins there */
} triangulation;

int64_t ups_lattice_area(ups_lattice_point a, ups_lattice_point b, ups_lattice_point c) {
    return ((int64_t)b.x - a.x) * ((int64_t)c.y - a.y) - ((int64_t)b.y - a.y) * ((int64_t)c.x - a.x);
}

int ups_lattice_in_circle(ups_lattice_point a, ups_lattice_point b, ups_lattice_point c, ups_lattice_point d) {
    __extension__ typedef __int128 wide;
    const int64_t ax = (int64_t)a.x - d.x, ay = (int64_t)a.y - d.y, bx = (int64_t)b.x - d.x, by = (int64_t)b.y - d.y;
    const int64_t cx = (int64_t)c.x - d.x, cy = (int64_t)c.y - d.y;
    const wide determinant = (wide)(ax * ax + ay * ay) * (bx * cy - by * cx) +
                             (wide)(bx * bx + by * by) * (cx * ay - cy * ax) +
                             (wide)(cx * cx + cy * cy) * (ax * by - ay * bx);
    return (determinant > 0) - (determinant < 0);
}

/* Twice the area of `point` and the edge opposite to corner `i`: not negative when it is on the triangle's side. */
static int64_t beside(const triangulation *all, const triangle *t, int i, int32_t point) {
    return ups_lattice_area(all->points[t->corner[(i + 1) % 3]], all->points[t->corner[(i + 2) % 3]],
                            all->points[point]);
}

/* The triangle that holds the point: from the newest, across any edge that the point is beyond. */
static int32_t locate(const triangulation *all, int32_t point) {
    int32_t at = (int32_t)all->count - 1;
    for (int i = 0; i < 3;) {
        const triangle *t = &all->triangles[at];
        if (t->across[i] == outside || beside(all, t, i, point) >= 0) {
            i++;
            continue;
        }
        at = t->across[i];
        i = 0;
    }
    return at;
}

/* Marks the triangles whose circumcircle the point is in and lists them; the list is walked while it grows. */
static int64_t find_hole(triangulation *all, int32_t point, int64_t *edge_count) {
    int64_t count = 0, edges = 0;
    all->hole[count++] = locate(all, point);
    all->triangles[all->hole[0]].removed = point;
    for (int64_t k = 0; k < count; k++) {
        const triangle *t = &all->triangles[all->hole[k]];
        for (int i = 0; i < 3; i++) {
            const int32_t next = t->across[i];
            triangle *other = next == outside ? NULL : &all->triangles[next];
            if (other && other->removed == point) continue;
            const ups_lattice_point *p = all->points;
            if (other &&
                ups_lattice_in_circle(p[other->corner[0]], p[other->corner[1]], p[other->corner[2]], p[point]) > 0) {
                other->removed = point;
                all->hole[count++] = next;
                continue;
            }
            if (!other && beside(all, t, i, point) == 0) continue; /* the point splits this side */
            all->edges[edges++] = (hole_edge){t->corner[(i + 1) % 3], t->corner[(i + 2) % 3], next};
        }
    }
    *edge_count = edges;
    return count;
}

/* Makes `made` what lies beyond the edge from b to a of triangle `t`. */
static void join(triangle *t, hole_edge edge, int32_t made) {
    for (int i = 0; i < 3; i++) {
        if (t->corner[(i + 1) % 3] == edge.b && t->corner[(i + 2) % 3] == edge.a) t->across[i] = made;
    }
}

/* A hole has fewer triangles than edges: new ones take the places of those removed, and some at the end. */
static void fill_hole(triangulation *all, int32_t point, int64_t removed, int64_t edge_count) {
    int32_t *places = all->hole;
    for (int64_t k = 0; k < edge_count; k++) {
        const hole_edge edge = all->edges[k];
        if (k >= removed) places[k] = (int32_t)all->count++;
        all->triangles[places[k]] = (triangle){{point, edge.a, edge.b}, {edge.beyond, outside, outside}, 0};
        if (edge.beyond != outside) join(&all->triangles[edge.beyond], edge, places[k]);
        all->begins[edge.a] = places[k];
    }
    for (int64_t k = 0; k < edge_count; k++) {
        triangle *t = &all->triangles[places[k]];
        const int32_t next = all->begins[t->corner[2]];
        if (next == outside) continue; /* where a side was split */
        t->across[1] = next;
        all->triangles[next].across[2] = places[k];
    }
    for (int64_t k = 0; k < edge_count; k++) all->begins[all->edges[k].a] = outside;
}

static ups_status insert(triangulation *all, int32_t point, ups_error *error) {
    int64_t edge_count;
    const int64_t removed = find_hole(all, point, &edge_count);
    const triangle *holder = &all->triangles[all->hole[0]];
    for (int i = 0; i < 3; i++) {
        const ups_lattice_point at = all->points[holder->corner[i]], here = all->points[point];
        if (at.x == here.x && at.y == here.y)
            return ups_fail(error, UPS_ERR_ARGUMENT, "points %d and %d of the mesh are the same", holder->corner[i],
                            point);
    }
    fill_hole(all, point, removed, edge_count);
    return UPS_OK;
}

static void begin(triangulation *all, int64_t count) {
    all->triangles[0] = (triangle){{0, 1, 2}, {outside, 1, outside}, 0};
    all->triangles[1] = (triangle){{0, 2, 3}, {outside, outside, 0}, 0};
    all->count = 2;
    for (int64_t i = 0; i < count; i++) all->begins[i] = outside;
}

ups_status ups_delaunay(const ups_lattice_point *points, int64_t count, int32_t **cells, int64_t *cell_count,
                        ups_error *error) {
    const size_t most = 2 * (size_t)count + 4; /* triangles, by Euler; and edges of a hole */
    triangulation all = {
        .points = points,
        .triangles = malloc(sizeof(triangle) * most),
        .hole = malloc(sizeof(int32_t) * most),
        .edges = malloc(sizeof(hole_edge) * most),
        .begins = malloc(sizeof(int32_t) * (size_t)count),
    };
    int32_t *made = malloc(sizeof(int32_t) * 3 * most);
    ups_status status = UPS_OK;
    if (!all.triangles || !all.hole || !all.edges || !all.begins || !made) {
        status = ups_fail(error, UPS_ERR_MEMORY, "no memory for a mesh of %lld points", (long long)count);
        goto cleanup;
    }
    begin(&all, count);
    for (int64_t i = 4; status == UPS_OK && i < count; i++) status = insert(&all, (int32_t)i, error);
    if (status != UPS_OK) goto cleanup;
    for (int64_t t = 0; t < all.count; t++) {
        for (int i = 0; i < 3; i++) made[3 * t + i] = all.triangles[t].corner[i];
    }
    *cells = made;
    *cell_count = all.count;
    made = NULL;
cleanup:
    free(made);
    free(all.begins);
    free(all.edges);
    free(all.hole);
    free(all.triangles);
    return status;
}
