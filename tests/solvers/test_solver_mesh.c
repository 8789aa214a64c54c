/* Triangulations are Delaunay's, even of points on lines and circles; meshes are sound around obstacles. */
#include "base/random.h"
#include "tests/base/testing.h"
#include "tools/solvers/mesh/delaunay.h"
#include "tools/solvers/mesh/mesh.h"
#include "tools/solvers/mesh/sparse.h"

#include <math.h>

/* ---- triangulations ---- */

/* By how much d is within the circle through a, b, c, in lattice units: from its centre and radius, in long double. */
static long double depth_in_circle(ups_lattice_point a, ups_lattice_point b, ups_lattice_point c, ups_lattice_point d) {
    const long double bx = b.x - a.x, by = b.y - a.y, cx = c.x - a.x, cy = c.y - a.y;
    const long double twice = 2.0L * (bx * cy - by * cx), bb = bx * bx + by * by, cc = cx * cx + cy * cy;
    const long double x = (cy * bb - by * cc) / twice, y = (bx * cc - cx * bb) / twice;
    const long double dx = d.x - a.x - x, dy = d.y - a.y - y;
    return sqrtl(x * x + y * y) - sqrtl(dx * dx + dy * dy);
}

/* No point is within any triangle's circle, the triangles fill the square, and there are as many as Euler says. */
static void expect_delaunay(const ups_lattice_point *points, int64_t count) {
    ups_error error = {0};
    int32_t *cells;
    int64_t cell_count, area = 0, on_sides = 0;
    if (ups_delaunay(points, count, &cells, &cell_count, &error) != UPS_OK) fail_msg("%s", error.message);
    for (int64_t cell = 0; cell < cell_count; cell++) {
        const ups_lattice_point a = points[cells[3 * cell]], b = points[cells[3 * cell + 1]];
        const ups_lattice_point c = points[cells[3 * cell + 2]];
        const int64_t twice = ups_lattice_area(a, b, c);
        assert_true(twice > 0);
        area += twice;
        for (int64_t i = 0; i < count; i++) assert_true(depth_in_circle(a, b, c, points[i]) < 1e-2L);
    }
    for (int64_t i = 0; i < count; i++)
        on_sides += points[i].x == 0 || points[i].y == 0 || points[i].x == UPS_LATTICE || points[i].y == UPS_LATTICE;
    assert_int_equal(area, 2 * (int64_t)UPS_LATTICE * UPS_LATTICE);
    assert_int_equal(cell_count, 2 * count - 2 - on_sides);
    free(cells);
}

static void put_corners(ups_lattice_point *points) {
    points[0] = (ups_lattice_point){0, 0};
    points[1] = (ups_lattice_point){UPS_LATTICE, 0};
    points[2] = (ups_lattice_point){UPS_LATTICE, UPS_LATTICE};
    points[3] = (ups_lattice_point){0, UPS_LATTICE};
}

static void random_points_have_empty_circles(void **state) {
    enum { COUNT = 600 };
    ups_lattice_point points[COUNT];
    put_corners(points);
    for (uint32_t seed = 0; seed < 5; seed++) {
        const ups_random stream = ups_random_stream(seed, UPS_RANDOM_TEST, 0);
        for (uint64_t i = 4; i < COUNT; i++) {
            points[i].x = (int32_t)ups_random_below(stream, 2 * i, UPS_LATTICE + 1);
            points[i].y =
                i < 60 ? (i % 2 ? 0 : UPS_LATTICE) : (int32_t)ups_random_below(stream, 2 * i + 1, UPS_LATTICE + 1);
        }
        expect_delaunay(points, COUNT);
    }
}

/* Of a square grid every circle holds four points, and every line many. */
static void grids_and_circles_are_triangulated_too(void **state) {
    enum { SIDE = 17, COUNT = SIDE * SIDE, ROUND = 124 };
    ups_lattice_point points[COUNT];
    int64_t count = 4;
    put_corners(points);
    for (int i = 0; i < COUNT; i++) {
        const int x = i % SIDE, y = i / SIDE;
        if ((x == 0 || x == SIDE - 1) && (y == 0 || y == SIDE - 1)) continue;
        points[count++] = (ups_lattice_point){x * (UPS_LATTICE / (SIDE - 1)), y * (UPS_LATTICE / (SIDE - 1))};
    }
    expect_delaunay(points, count);
    for (count = 4; count < ROUND; count++) {
        const double angle = 2.0 * M_PI * (double)(count * 7 % 120) / 120.0;
        points[count] = (ups_lattice_point){(int32_t)(UPS_LATTICE * (0.5 + 0.3 * cos(angle))),
                                            (int32_t)(UPS_LATTICE * (0.5 + 0.3 * sin(angle)))};
    }
    expect_delaunay(points, count);
}

static void a_point_that_stands_twice_is_refused(void **state) {
    ups_error error = {0};
    ups_lattice_point points[6];
    int32_t *cells;
    int64_t count;
    put_corners(points);
    points[4] = points[5] = (ups_lattice_point){1000, 5};
    assert_int_equal(ups_delaunay(points, 6, &cells, &count, &error), UPS_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "points 4 and 5"));
}

/* ---- meshes ---- */

static ups_mesh *mesh_of(uint64_t seed, int64_t resolution, int holes) {
    ups_error error = {0};
    ups_mesh *mesh;
    ups_obstacles obstacles;
    ups_obstacles_draw(seed, holes, &obstacles);
    if (ups_mesh_create(seed, resolution, &obstacles, &mesh, &error) != UPS_OK) fail_msg("%s", error.message);
    return mesh;
}

/* Area of the polygon that the points on an obstacle make: it is regular but for its points' rounding. */
static double polygon_area(const ups_mesh *mesh, int hole) {
    int64_t count = 0;
    for (int64_t i = 0; i < mesh->point_count; i++) count += mesh->border[i] == UPS_ON_OBSTACLE + hole;
    assert_true(count >= 12);
    const double radius = mesh->obstacles.each[hole].radius;
    return 0.5 * (double)count * radius * radius * sin(2.0 * M_PI / (double)count);
}

static double angle_at(const double *a, const double *b, const double *c) {
    const double x = b[0] - a[0], y = b[1] - a[1], p = c[0] - a[0], q = c[1] - a[1];
    return atan2(x * q - y * p, x * p + y * q) * 180.0 / M_PI;
}

static double check_cells(const ups_mesh *mesh) {
    double total = 0.0, least_angle = 180.0;
    char *used = calloc((size_t)mesh->point_count, 1);
    for (int64_t cell = 0; cell < mesh->cell_count; cell++) {
        const int32_t *corner = mesh->cells + 3 * cell;
        double gradients[3][2];
        const double area = ups_mesh_gradients(mesh, cell, gradients);
        assert_true(area > 0.0);
        total += area;
        for (int i = 0; i < 3; i++) {
            const double *a = mesh->points + 2 * corner[i], *b = mesh->points + 2 * corner[(i + 1) % 3];
            least_angle = fmin(least_angle, angle_at(a, b, mesh->points + 2 * corner[(i + 2) % 3]));
            used[corner[i]] = 1;
            const double fall = gradients[i][0] * (b[0] - a[0]) + gradients[i][1] * (b[1] - a[1]);
            assert_true(fabs(fall + 1.0) < 1e-9); /* from 1 here to 0 there */
        }
    }
    for (int64_t i = 0; i < mesh->point_count; i++) assert_true(used[i]);
    free(used);
    double expected = 1.0;
    for (int hole = 0; hole < mesh->obstacles.count; hole++) expected -= polygon_area(mesh, hole);
    assert_true(fabs(total - expected) < 1e-6);
    return least_angle;
}

/* Pairs of points that share a cell, with each point itself, are the entries of the matrices. */
static int64_t edges_of(const ups_mesh *mesh) {
    ups_error error = {0};
    ups_sparse *pattern;
    assert_int_equal(ups_sparse_create(mesh, &pattern, &error), UPS_OK);
    const int64_t edges = (pattern->entries - pattern->rows) / 2;
    ups_sparse_destroy(pattern);
    return edges;
}

static void meshes_are_sound_around_any_obstacles(void **state) {
    static const int64_t resolutions[] = {16, 23, 32, 64};
    double least = 180.0;
    for (uint64_t seed = 0; seed < 25; seed++) {
        for (int r = 0; r < 4; r++) {
            const int holes = (int)(seed % (UPS_MOST_OBSTACLES + 1));
            ups_mesh *mesh = mesh_of(seed, resolutions[r], holes);
            least = fmin(least, check_cells(mesh));
            assert_int_equal(mesh->point_count - edges_of(mesh) + mesh->cell_count, 1 - holes);
            const double hexagons = (double)(resolutions[r] * resolutions[r]) / sqrt(0.75);
            assert_true((double)mesh->point_count < 1.1 * hexagons + 4.0 * (double)resolutions[r]);
            assert_true((double)mesh->point_count > 0.7 * hexagons);
            for (int64_t i = 0; i < 2 * mesh->point_count; i++)
                assert_true((double)(float)mesh->points[i] == mesh->points[i]);
            ups_mesh_destroy(mesh);
        }
    }
    print_message("least angle of 100 meshes: %.1f degrees\n", least);
    assert_true(least > 10.0);
}

static void obstacles_leave_room_and_points_stand_on_them(void **state) {
    for (uint64_t seed = 0; seed < 200; seed++) {
        ups_obstacles drawn;
        ups_obstacles_draw(seed, UPS_MOST_OBSTACLES, &drawn);
        for (int i = 0; i < drawn.count; i++) {
            const ups_obstacle *one = &drawn.each[i];
            assert_true(one->radius >= 0.06 && one->radius <= 0.12);
            assert_true(fmin(fmin(one->x, 1.0 - one->x), fmin(one->y, 1.0 - one->y)) - one->radius > 0.0999);
            for (int j = 0; j < i; j++) {
                const ups_obstacle *other = &drawn.each[j];
                assert_true(hypot(one->x - other->x, one->y - other->y) - one->radius - other->radius > 0.0999);
            }
        }
    }
    ups_mesh *mesh = mesh_of(1, 32, 3);
    for (int64_t i = 0; i < mesh->point_count; i++) {
        const double x = mesh->points[2 * i], y = mesh->points[2 * i + 1];
        const double distance = ups_obstacles_distance(&mesh->obstacles, x, y);
        if (mesh->border[i] >= UPS_ON_OBSTACLE)
            assert_true(fabs(distance) < 1e-7);
        else
            assert_true(distance > 0.5 / 32);
        if (mesh->border[i] >= UPS_ON_OBSTACLE) continue;
        assert_int_equal((mesh->border[i] & UPS_ON_LEFT) != 0, x == 0.0);
        assert_int_equal((mesh->border[i] & UPS_ON_RIGHT) != 0, x == 1.0);
        assert_int_equal((mesh->border[i] & UPS_ON_BOTTOM) != 0, y == 0.0);
        assert_int_equal((mesh->border[i] & UPS_ON_TOP) != 0, y == 1.0);
    }
    ups_mesh_destroy(mesh);
}

/* ---- linear systems ---- */

static void a_system_of_an_uneven_matrix_is_solved(void **state) {
    ups_error error = {0};
    ups_sparse *pattern;
    ups_mesh *mesh = mesh_of(2, 24, 2);
    assert_int_equal(ups_sparse_create(mesh, &pattern, &error), UPS_OK);
    const int64_t n = pattern->rows;
    const ups_random stream = ups_random_stream(1, UPS_RANDOM_TEST, 0);
    double *matrix = malloc(sizeof(double) * (size_t)pattern->entries), *factors = calloc((size_t)pattern->entries, 8);
    double *truth = malloc(sizeof(double) * (size_t)n), *b = malloc(sizeof(double) * (size_t)n);
    double *x = calloc((size_t)n, sizeof(double)), *scratch = malloc(sizeof(double) * ups_sparse_scratch(pattern));
    for (int64_t k = 0; k < pattern->entries; k++) matrix[k] = ups_random_uniform(stream, (uint64_t)k) - 0.6;
    for (int64_t row = 0; row < n; row++) {
        matrix[pattern->diagonal[row]] = 3.0;
        truth[row] = ups_random_normal(stream, (uint64_t)(pattern->entries + row));
    }
    ups_sparse_fix(pattern, matrix, 5);
    ups_sparse_times(pattern, matrix, truth, b);
    assert_true(b[5] == truth[5]);
    ups_sparse_factorize(pattern, matrix, factors);
    if (ups_sparse_solve(pattern, matrix, factors, b, 1e-12, x, scratch, &error) != UPS_OK)
        fail_msg("%s", error.message);
    for (int64_t i = 0; i < n; i++) assert_true(fabs(x[i] - truth[i]) < 1e-8);
    for (int64_t k = 0; k < pattern->entries; k++) matrix[k] = 0.0;
    assert_int_equal(ups_sparse_solve(pattern, matrix, factors, b, 1e-12, x, scratch, &error), UPS_ERR_NUMERIC);
    free(scratch);
    free(x);
    free(b);
    free(truth);
    free(factors);
    free(matrix);
    ups_sparse_destroy(pattern);
    ups_mesh_destroy(mesh);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_points_have_empty_circles),
        cmocka_unit_test(grids_and_circles_are_triangulated_too),
        cmocka_unit_test(a_point_that_stands_twice_is_refused),
        cmocka_unit_test(meshes_are_sound_around_any_obstacles),
        cmocka_unit_test(obstacles_leave_room_and_points_stand_on_them),
        cmocka_unit_test(a_system_of_an_uneven_matrix_is_solved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
