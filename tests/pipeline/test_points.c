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
            check_tree(ups_points_create(arena, dims, counts[c], counts[c], coordinates), 0, counts[c]);
            ups_arena_destroy(arena);
        }
    }
}

/* Where there are more places than points, every point has one or more, in turn, and halves are halves. */
static void more_places_than_points_are_shared_evenly(void **state) {
    static double coordinates[MOST * 3];
    static uint8_t seen[MOST];
    const int64_t counts[][2] = {{1, 1},   {1, 9},    {2, 3},     {3, 8},      {7, 64},
                                 {63, 64}, {64, 100}, {200, 203}, {513, 1000}, {1000, MOST}};
    for (int dims = 1; dims <= 3; dims++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            const int64_t distinct = counts[c][0], count = counts[c][1], most = 2 * ((count + distinct - 1) / distinct);
            ups_arena *arena = ups_arena_create(0);
            scatter(coordinates, distinct, dims, (uint32_t)(23 * c + (size_t)dims));
            const ups_points *few = ups_points_create(arena, dims, distinct, distinct, coordinates);
            const ups_points *points = ups_points_create(arena, dims, distinct, count, coordinates);
            assert_int_equal(points->count, count);
            assert_int_equal(points->distinct, distinct);
            assert_true(points->extent == few->extent && points->low[0] == few->low[0]);
            check_tree(points, 0, count);
            memset(seen, 0, sizeof seen);
            for (int64_t i = 0; i < count; i++) {
                assert_true(points->stored[i] >= 0 && points->stored[i] < distinct);
                assert_true(++seen[points->stored[i]] <= most);
                assert_true(i == 0 || points->stored[i] == points->stored[i - 1] || seen[points->stored[i]] == 1);
            }
            for (int64_t i = 0; i < distinct; i++) assert_true(seen[i] > 0);
            assert_true(ups_points_equal(points, ups_points_with_places(arena, few, count, false)));
            assert_true(count == distinct || !ups_points_equal(points, few));
            ups_arena_destroy(arena);
        }
    }
}

/* In the file's order each point once, from its first place, and the last one behind them. */
static void what_fills_places_up_is_left_behind(void **state) {
    enum { POINTS = 200, PLACES = 261 };
    double coordinates[POINTS * DIMS];
    int32_t in[2 * POINTS], sorted[2 * PLACES], out[2 * PLACES];
    ups_arena *arena = ups_arena_create(0);
    scatter(coordinates, POINTS, DIMS, 4);
    const ups_points *points = ups_points_create(arena, DIMS, POINTS, PLACES, coordinates);
    for (int32_t i = 0; i < 2 * POINTS; i++) in[i] = i;
    ups_points_sort(points, 2, sizeof *in, in, sorted);
    for (int64_t i = 0; i < PLACES; i++) assert_int_equal(sorted[2 * i + 1], 2 * points->stored[i] + 1);
    for (int64_t i = 1; i < PLACES; i++) { /* a second place says something else */
        if (points->stored[i] == points->stored[i - 1]) sorted[2 * i] = -1;
    }
    ups_points_unsort(points, 2, sizeof *sorted, sorted, out);
    assert_memory_equal(in, out, sizeof in);
    for (int64_t i = POINTS; i < PLACES; i++) assert_memory_equal(out + 2 * i, in + 2 * (POINTS - 1), 2 * sizeof *in);
    ups_arena_destroy(arena);
}

/* The tree is a property of the points: with many equal coordinates, too, whose places in the file then decide. */
static void equal_coordinates_are_halved(void **state) {
    static double coordinates[1000 * DIMS];
    ups_arena *arena = ups_arena_create(0);
    uint32_t seed = 5;
    for (int64_t i = 0; i < 1000 * DIMS; i++) coordinates[i] = floor(4 * random_number(&seed));
    const ups_points *points = ups_points_create(arena, DIMS, 1000, 1000, coordinates);
    check_tree(points, 0, 1000);
    for (int64_t i = 0; i < 1000 * DIMS; i++) coordinates[i] = 3; /* all on one spot */
    points = ups_points_create(arena, DIMS, 1000, 1000, coordinates);
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
    const ups_points *one = ups_points_create(arena, DIMS, 1000, 1000, coordinates);
    const ups_points *other = ups_points_create(arena, DIMS, 1000, 1000, reversed);
    assert_true(ups_points_equal(one, other));
    for (int64_t i = 0; i < 1000; i++) assert_int_equal(other->stored[i], 999 - one->stored[i]);
    reversed[0] += 1e-9;
    assert_false(ups_points_equal(one, ups_points_create(arena, DIMS, 1000, 1000, reversed)));
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
    const ups_points *points = ups_points_create(arena, DIMS, SIDE * SIDE, SIDE * SIDE, coordinates);
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
        ups_points *points = as_stored ? ups_points_as_stored(arena, DIMS, 1000, 1000, coordinates)
                                       : ups_points_create(arena, DIMS, 1000, 1000, coordinates);
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
        cmocka_unit_test(more_places_than_points_are_shared_evenly),
        cmocka_unit_test(what_fills_places_up_is_left_behind),
        cmocka_unit_test(equal_coordinates_are_halved),
        cmocka_unit_test(order_of_the_file_changes_nothing),
        cmocka_unit_test(leaves_of_a_grid_are_its_patches),
        cmocka_unit_test(sorting_is_undone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
