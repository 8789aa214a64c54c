/* Points that lie anywhere, in the order of a balanced tree: runs of 2^k of them are what halving gives, whatever order
 * the file has; sorting and its inverse; a grid's points fall into its patches. */
#include "tests/base/testing.h"

#include "pipeline/points.h"

enum { MOST = 5000, DIMS = 2 };

static double random_number(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 8) / (1 << 24);
}

static void scatter(double *coordinates, int64_t count, int dims, uint32_t seed) {
    for (int64_t i = 0; i < count * dims; i++) coordinates[i] = random_number(&seed);
}

/* Along the axis that separates them, if any: no point of the first run lies behind one of the second. */
static bool are_halves(const ups_points *points, int64_t begin, int64_t middle, int64_t end) {
    bool separate = false;
    for (int axis = 0; axis < points->dims; axis++) {
        double last = -INFINITY, first = INFINITY;
        for (int64_t i = begin; i < middle; i++) last = fmax(last, points->coordinates[i * points->dims + axis]);
        for (int64_t i = middle; i < end; i++) first = fmin(first, points->coordinates[i * points->dims + axis]);
        separate |= last <= first;
    }
    return separate;
}

static void check_tree(const ups_points *points, int64_t begin, int64_t end) {
    if (end - begin < 2) return;
    int64_t left = 1;
    while (2 * left < end - begin) left *= 2;
    assert_true(are_halves(points, begin, begin + left, end));
    check_tree(points, begin, begin + left);
    check_tree(points, begin + left, end);
}

static void every_run_of_a_power_of_two_is_a_half(void **state) {
    static double coordinates[MOST * 3];
    const int64_t counts[] = {1, 2, 3, 7, 8, 9, 64, 100, 513, 1000, MOST};
    for (int dims = 1; dims <= 3; dims++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            ups_arena *arena = ups_arena_create(0);
            scatter(coordinates, counts[c], dims, (uint32_t)(17 * c + (size_t)dims));
            check_tree(ups_points_create(arena, dims, counts[c], coordinates, false), 0, counts[c]);
            ups_arena_destroy(arena);
        }
    }
}

/* The tree is a property of the points: with many equal coordinates, too, whose places in the file then decide. */
static void equal_coordinates_are_halved(void **state) {
    static double coordinates[1000 * DIMS];
    ups_arena *arena = ups_arena_create(0);
    uint32_t seed = 5;
    for (int64_t i = 0; i < 1000 * DIMS; i++) coordinates[i] = floor(4 * random_number(&seed));
    const ups_points *points = ups_points_create(arena, DIMS, 1000, coordinates, false);
    check_tree(points, 0, 1000);
    for (int64_t i = 0; i < 1000 * DIMS; i++) coordinates[i] = 3; /* all on one spot */
    points = ups_points_create(arena, DIMS, 1000, coordinates, false);
    assert_true(points->extent == 1);
    for (int64_t i = 0; i < 1000; i++) assert_int_equal(points->stored[i], i);
    ups_arena_destroy(arena);
}

static void order_of_the_file_changes_nothing(void **state) {
    static double coordinates[1000 * DIMS], reversed[1000 * DIMS];
    ups_arena *arena = ups_arena_create(0);
    scatter(coordinates, 1000, DIMS, 3);
    for (int64_t i = 0; i < 1000; i++)
        memcpy(reversed + i * DIMS, coordinates + (999 - i) * DIMS, DIMS * sizeof *reversed);
    const ups_points *one = ups_points_create(arena, DIMS, 1000, coordinates, false);
    const ups_points *other = ups_points_create(arena, DIMS, 1000, reversed, false);
    assert_true(ups_points_equal(one, other));
    for (int64_t i = 0; i < 1000; i++) assert_int_equal(other->stored[i], 999 - one->stored[i]);
    reversed[0] += 1e-9;
    assert_false(ups_points_equal(one, ups_points_create(arena, DIMS, 1000, reversed, false)));
    ups_arena_destroy(arena);
}

/* So what works on patches of 4 × 4 of a grid sees the same sixteen points in its leaves. */
static void leaves_of_a_grid_are_its_patches(void **state) {
    enum { SIDE = 32, PATCH = 4 };
    static double coordinates[SIDE * SIDE * DIMS];
    ups_arena *arena = ups_arena_create(0);
    for (int64_t i = 0; i < SIDE * SIDE; i++) {
        coordinates[i * DIMS] = (double)(i / SIDE);
        coordinates[i * DIMS + 1] = (double)(i % SIDE);
    }
    const ups_points *points = ups_points_create(arena, DIMS, SIDE * SIDE, coordinates, false);
    for (int64_t i = 0; i < SIDE * SIDE; i++) {
        const int64_t first = i / (PATCH * PATCH) * (PATCH * PATCH), inside = i % (PATCH * PATCH);
        for (int axis = 0; axis < DIMS; axis++) {
            const double at = points->coordinates[i * DIMS + axis], corner = points->coordinates[first * DIMS + axis];
            assert_true(floor(at / PATCH) == floor(corner / PATCH));
            assert_true(at - corner == points->coordinates[inside * DIMS + axis] - points->coordinates[axis]);
        }
    }
    ups_arena_destroy(arena);
}

static void sorting_is_undone(void **state) {
    static double coordinates[1000 * DIMS];
    static float values[3000], sorted[3000], back[3000];
    static int32_t cells[] = {0, 1, 2, 997, 998, 999};
    ups_arena *arena = ups_arena_create(0);
    scatter(coordinates, 1000, DIMS, 11);
    for (int i = 0; i < 3000; i++) values[i] = (float)i;
    for (int as_stored = 0; as_stored < 2; as_stored++) {
        ups_points *points = ups_points_create(arena, DIMS, 1000, coordinates, as_stored != 0);
        for (int64_t width = 1; width <= 3; width++) {
            ups_points_sort(points, width, sizeof *values, values, sorted);
            for (int64_t i = 0; i < 1000; i++)
                assert_true(sorted[i * width] == (float)(width * (points->stored ? points->stored[i] : i)));
            ups_points_unsort(points, width, sizeof *values, sorted, back);
            assert_memory_equal(back, values, (size_t)(1000 * width) * sizeof *values);
        }
        ups_points_set_cells(arena, points, 3, 2, cells);
        for (int i = 0; i < 6; i++) {
            const int64_t at = points->cells[i];
            assert_memory_equal(points->coordinates + at * DIMS, coordinates + cells[i] * DIMS,
                                DIMS * sizeof *coordinates);
        }
    }
    ups_arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_run_of_a_power_of_two_is_a_half),
        cmocka_unit_test(equal_coordinates_are_halved),
        cmocka_unit_test(order_of_the_file_changes_nothing),
        cmocka_unit_test(leaves_of_a_grid_are_its_patches),
        cmocka_unit_test(sorting_is_undone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
