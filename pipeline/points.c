#include "pipeline/points.h"

#include <math.h>
#include <string.h>

/* ---- the tree ------------------------------------------------------------------------------------------------------
 */

typedef struct tree {
    const double *coordinates; /* (distinct, dims), in the file's order */
    int dims;
    int axis[32];   /* by which 2^(level − 1) + 1 to 2^level places are halved */
    int32_t *order; /* (distinct) */
    int32_t *place; /* (count): who stands there */
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

/* How many of `points` go to the first `left` of `places`: their share, as long as neither half has more points than
 * places, nor none. */
static int64_t share_of(int64_t points, int64_t left, int64_t places) {
    int64_t share = (points * left + places / 2) / places;
    if (share < points - (places - left)) share = points - (places - left);
    if (share > left) share = left;
    if (share > points - 1) share = points - 1;
    return share < 1 ? 1 : share;
}

/* Gives `points` of order, from `begin` on, `places` places from `first` on. */
static void halve(const tree *t, int64_t begin, int64_t points, int64_t first, int64_t places) {
    while (points > 1) {
        const int level = level_of(places);
        const int64_t left = (int64_t)1 << (level - 1), share = share_of(points, left, places);
        select_first(t, t->axis[level], begin, begin + points, share);
        halve(t, begin, share, first, left);
        begin += share;
        points -= share;
        first += left;
        places -= left;
    }
    for (int64_t i = 0; i < places; i++) t->place[first + i] = t->order[begin];
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
        for (int64_t i = 0; i < points->distinct; i++) {
            low = fmin(low, coordinates[i * points->dims + axis]);
            high = fmax(high, coordinates[i * points->dims + axis]);
        }
        points->low[axis] = low;
        side[axis] = high - low;
        points->extent = fmax(points->extent, side[axis]);
    }
    if (!(points->extent > 0)) points->extent = 1;
}

/* All but the order; `side`: of the box. */
static ups_points *make(ups_arena *arena, int dims, int64_t distinct, int64_t count, const double *coordinates,
                        double side[UPS_MAX_POINT_DIMS]) {
    static const char *const names[UPS_MAX_POINT_DIMS] = {"x", "y", "z"};
    ups_points *points = UPS_ARENA_NEW(arena, ups_points);
    points->dims = dims;
    points->count = count;
    points->distinct = distinct;
    points->coordinates = coordinates;
    for (int axis = 0; axis < dims; axis++) points->names[axis] = names[axis];
    measure_box(points, coordinates, side);
    return points;
}

static void put_in_order(ups_arena *arena, ups_points *points, const int32_t *stored) {
    double *sorted = UPS_ARENA_ARRAY(arena, double, points->count * points->dims);
    points->stored = stored;
    ups_points_sort(points, points->dims, sizeof *sorted, points->coordinates, sorted);
    points->coordinates = sorted;
}

ups_points *ups_points_as_stored(ups_arena *arena, int dims, int64_t distinct, int64_t count,
                                 const double *coordinates) {
    double side[UPS_MAX_POINT_DIMS] = {0};
    ups_points *points = make(arena, dims, distinct, count, coordinates, side);
    if (distinct == count) return points;
    int32_t *stored = UPS_ARENA_ARRAY(arena, int32_t, count);
    for (int64_t i = 0; i < count; i++) stored[i] = (int32_t)(i < distinct ? i : distinct - 1);
    put_in_order(arena, points, stored);
    return points;
}

ups_points *ups_points_create(ups_arena *arena, int dims, int64_t distinct, int64_t count, const double *coordinates) {
    double side[UPS_MAX_POINT_DIMS] = {0};
    ups_points *points = make(arena, dims, distinct, count, coordinates, side);
    tree t = {.coordinates = coordinates,
              .dims = dims,
              .order = UPS_ARENA_ARRAY(arena, int32_t, distinct),
              .place = UPS_ARENA_ARRAY(arena, int32_t, count)};
    for (int64_t i = 0; i < distinct; i++) t.order[i] = (int32_t)i;
    choose_axes(&t, count, side);
    halve(&t, 0, distinct, 0, count);
    put_in_order(arena, points, t.place);
    return points;
}

ups_points *ups_points_with_places(ups_arena *arena, const ups_points *points, int64_t count, bool as_stored) {
    double *coordinates = UPS_ARENA_ARRAY(arena, double, points->count * points->dims);
    ups_points_unsort(points, points->dims, sizeof *coordinates, points->coordinates, coordinates);
    ups_points *made = as_stored ? ups_points_as_stored(arena, points->dims, points->distinct, count, coordinates)
                                 : ups_points_create(arena, points->dims, points->distinct, count, coordinates);
    made->own = points->own;
    made->moving = points->moving;
    return made;
}

bool ups_points_equal(const ups_points *a, const ups_points *b) {
    if (a == b) return true;
    return a->dims == b->dims && a->count == b->count && a->distinct == b->distinct &&
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
    if (!points->stored) {
        memcpy(out, in, (size_t)points->count * bytes);
        return;
    }
    for (int64_t i = points->count - 1; i >= 0; i--) /* a point's first place is the last to be written */
        memcpy(to + (size_t)points->stored[i] * bytes, from + (size_t)i * bytes, bytes);
    for (int64_t i = points->distinct; i < points->count; i++)
        memcpy(to + (size_t)i * bytes, to + (size_t)(points->distinct - 1) * bytes, bytes);
}
