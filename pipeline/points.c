#include "pipeline/points.h"

#include <math.h>
#include <string.h>

/* ---- the tree ------------------------------------------------------------------------------------------------------
 */

typedef struct tree {
    const double *coordinates; /* (count, dims), in the file's order */
    int dims;
    int axis[32]; /* by which 2^(level − 1) + 1 to 2^level points are halved */
    int32_t *order;
} tree;

/* A total order, so that the tree does not depend on how it is made. */
static bool is_before(const tree *t, int axis, int32_t a, int32_t b) {
    const double at = t->coordinates[(int64_t)a * t->dims + axis], bt = t->coordinates[(int64_t)b * t->dims + axis];
    return at < bt || (at == bt && a < b);
}

static void swap(int32_t *a, int32_t *b) {
    const int32_t kept = *a;
    *a = *b;
    *b = kept;
}

static int32_t median_of_three(const tree *t, int axis, int32_t a, int32_t b, int32_t c) {
    if (is_before(t, axis, a, b)) swap(&a, &b); /* b before a */
    if (is_before(t, axis, c, b)) return b;
    return is_before(t, axis, c, a) ? c : a;
}

/* Puts the `left` first of order[begin, end) before the others (Hoare's selection). */
static void select_first(const tree *t, int axis, int64_t begin, int64_t end, int64_t left) {
    int32_t *order = t->order;
    const int64_t wanted = begin + left;
    while (end - begin > 1) {
        const int32_t pivot = median_of_three(t, axis, order[begin], order[begin + (end - begin) / 2], order[end - 1]);
        int64_t low = begin, high = end - 1;
        while (low <= high) {
            while (is_before(t, axis, order[low], pivot)) low++;
            while (is_before(t, axis, pivot, order[high])) high--;
            if (low > high) break;
            swap(&order[low++], &order[high--]);
        }
        /* order[begin, high] ≤ pivot ≤ order[low, end), and what lies between them is the pivot */
        if (wanted <= high) {
            end = high + 1;
        } else if (wanted >= low) {
            begin = low;
        } else {
            return;
        }
    }
}

static int level_of(int64_t count) {
    int level = 0;
    while (((int64_t)1 << level) < count) level++;
    return level;
}

static void halve(const tree *t, int64_t begin, int64_t end) {
    while (end - begin > 1) {
        const int level = level_of(end - begin);
        const int64_t left = (int64_t)1 << (level - 1);
        select_first(t, t->axis[level], begin, end, left);
        halve(t, begin, begin + left);
        begin += left;
    }
}

/* The sides of a part of the whole shrink by half with each level: the longest one is halved next. */
static void choose_axes(tree *t, int64_t count, const double side[UPS_MAX_POINT_DIMS]) {
    double length[UPS_MAX_POINT_DIMS];
    memcpy(length, side, sizeof length);
    for (int level = level_of(count); level > 0; level--) {
        int longest = 0;
        for (int axis = 1; axis < t->dims; axis++)
            if (length[axis] > length[longest]) longest = axis;
        t->axis[level] = longest;
        length[longest] /= 2;
    }
}

/* ---- points --------------------------------------------------------------------------------------------------------
 */

static void measure_box(ups_points *points, const double *coordinates, double side[UPS_MAX_POINT_DIMS]) {
    for (int axis = 0; axis < points->dims; axis++) {
        double low = INFINITY, high = -INFINITY;
        for (int64_t i = 0; i < points->count; i++) {
            low = fmin(low, coordinates[i * points->dims + axis]);
            high = fmax(high, coordinates[i * points->dims + axis]);
        }
        points->low[axis] = low;
        side[axis] = high - low;
        points->extent = fmax(points->extent, side[axis]);
    }
    if (!(points->extent > 0)) points->extent = 1;
}

ups_points *ups_points_create(ups_arena *arena, int dims, int64_t count, const double *coordinates, bool as_stored) {
    static const char *const names[UPS_MAX_POINT_DIMS] = {"x", "y", "z"};
    ups_points *points = UPS_ARENA_NEW(arena, ups_points);
    double side[UPS_MAX_POINT_DIMS] = {0};
    points->dims = dims;
    points->count = count;
    for (int axis = 0; axis < dims; axis++) points->names[axis] = names[axis];
    measure_box(points, coordinates, side);
    if (as_stored) {
        points->coordinates = coordinates;
        return points;
    }
    tree t = {.coordinates = coordinates, .dims = dims, .order = UPS_ARENA_ARRAY(arena, int32_t, count)};
    for (int64_t i = 0; i < count; i++) t.order[i] = (int32_t)i;
    choose_axes(&t, count, side);
    halve(&t, 0, count);
    points->stored = t.order;
    double *sorted = UPS_ARENA_ARRAY(arena, double, count *dims);
    ups_points_sort(points, dims, sizeof *sorted, coordinates, sorted);
    points->coordinates = sorted;
    return points;
}

bool ups_points_equal(const ups_points *a, const ups_points *b) {
    if (a == b) return true;
    return a->dims == b->dims && a->count == b->count &&
           memcmp(a->coordinates, b->coordinates, (size_t)(a->count * a->dims) * sizeof *a->coordinates) == 0;
}

void ups_points_set_cells(ups_arena *arena, ups_points *points, int corners, int64_t cells, const int32_t *corner) {
    int32_t *sorted = UPS_ARENA_ARRAY(arena, int32_t, cells * corners);
    int32_t *place = UPS_ARENA_ARRAY(arena, int32_t, points->count);
    for (int64_t i = 0; i < points->count; i++) place[points->stored ? points->stored[i] : i] = (int32_t)i;
    for (int64_t i = 0; i < cells * corners; i++) sorted[i] = place[corner[i]];
    points->corners = corners;
    points->cell_count = cells;
    points->cells = sorted;
}

void ups_points_sort(const ups_points *points, int64_t width, size_t size, const void *in, void *out) {
    const size_t bytes = (size_t)width * size;
    const uint8_t *from = in;
    uint8_t *to = out;
    if (!points->stored) {
        memcpy(out, in, (size_t)points->count * bytes);
    } else if (bytes == 4) { /* a channel of its own: a size known here is a single move */
        for (int64_t i = 0; i < points->count; i++) memcpy(to + i * 4, from + (int64_t)points->stored[i] * 4, 4);
    } else {
        for (int64_t i = 0; i < points->count; i++)
            memcpy(to + (size_t)i * bytes, from + (size_t)points->stored[i] * bytes, bytes);
    }
}

void ups_points_unsort(const ups_points *points, int64_t width, size_t size, const void *in, void *out) {
    const size_t bytes = (size_t)width * size;
    const uint8_t *from = in;
    uint8_t *to = out;
    if (!points->stored) memcpy(out, in, (size_t)points->count * bytes);
    for (int64_t i = 0; points->stored && i < points->count; i++)
        memcpy(to + (size_t)points->stored[i] * bytes, from + (size_t)i * bytes, bytes);
}
