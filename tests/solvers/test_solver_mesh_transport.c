/* Flow and transport on meshes against exact solutions. */
#include "tests/solvers/convergence.h"
#include "tests/solvers/solved_sample.h"
#include "tools/solvers/mesh/datagen.h"
#include "tools/solvers/mesh/flow.h"
#include "tools/solvers/mesh/transport.h"

/* A mesh, its pattern and room for fields. */
typedef struct domain {
    ups_mesh *mesh;
    ups_sparse *pattern;
    double *vx, *vy, *u, *exact, *scratch;
} domain;

static domain domain_of(int64_t resolution, const ups_obstacles *obstacles) {
    ups_error error = {0};
    domain made;
    if (ups_mesh_create(3, resolution, obstacles, &made.mesh, &error) != UPS_OK) fail_msg("%s", error.message);
    assert_int_equal(ups_sparse_create(made.mesh, &made.pattern, &error), UPS_OK);
    const size_t points = (size_t)made.mesh->point_count;
    made.vx = malloc(sizeof(double) * 4 * points);
    made.vy = made.vx + points;
    made.u = made.vy + points;
    made.exact = made.u + points;
    made.scratch = malloc(sizeof(double) * ups_transport_scratch(made.pattern));
    return made;
}

static void release_domain(domain *made) {
    free(made->scratch);
    free(made->vx);
    ups_sparse_destroy(made->pattern);
    ups_mesh_destroy(made->mesh);
}

/* Of u against exact, relative to exact. */
static double relative_error(const domain *of) {
    double sum = 0.0, size = 0.0;
    for (int64_t i = 0; i < of->mesh->point_count; i++) {
        sum += (of->u[i] - of->exact[i]) * (of->u[i] - of->exact[i]);
        size += of->exact[i] * of->exact[i];
    }
    return sqrt(sum / size);
}

/* ---- flow ---- */

static void without_obstacles_the_flow_is_uniform(void **state) {
    ups_error error = {0};
    domain open = domain_of(32, &(ups_obstacles){0});
    if (ups_flow_through(open.mesh, open.pattern, open.vx, open.vy, &error) != UPS_OK) fail_msg("%s", error.message);
    for (int64_t i = 0; i < open.mesh->point_count; i++) {
        assert_true(fabs(open.vx[i] - 1.0) < 1e-9);
        assert_true(fabs(open.vy[i]) < 1e-9);
    }
    release_domain(&open);
}

/* A cylinder in a stream without bounds, whose potential is x (1 + R²/r²): given on all walls. Root mean square error
 * of the velocity. */
static double cylinder_error(int64_t resolution) {
    ups_error error = {0};
    const double radius = 0.15;
    const ups_obstacles cylinder = {.count = 1, .each = {{0.5, 0.5, radius, 0.3}}};
    domain around = domain_of(resolution, &cylinder);
    const ups_mesh *mesh = around.mesh;
    for (int64_t i = 0; i < mesh->point_count; i++) {
        const double x = mesh->points[2 * i] - 0.5, y = mesh->points[2 * i + 1] - 0.5;
        around.u[i] = x * (1.0 + radius * radius / (x * x + y * y));
    }
    if (ups_flow_potential(mesh, around.pattern, UPS_ON_WALL, around.u, &error) != UPS_OK)
        fail_msg("%s", error.message);
    ups_flow_velocity(mesh, around.u, 0, around.vx, around.vy, around.exact);
    double sum = 0.0;
    for (int64_t i = 0; i < mesh->point_count; i++) {
        const double x = mesh->points[2 * i] - 0.5, y = mesh->points[2 * i + 1] - 0.5, square = x * x + y * y;
        const double share = radius * radius / (square * square);
        const double dx = around.vx[i] - (1.0 - share * (x * x - y * y)), dy = around.vy[i] + 2.0 * share * x * y;
        sum += dx * dx + dy * dy;
    }
    sum /= (double)mesh->point_count;
    release_domain(&around);
    return sqrt(sum);
}

/* Second order inside; at borders first, where there are fewer points the finer the mesh. */
static void flow_around_a_cylinder_converges(void **state) {
    expect_orders("cylinder", cylinder_error(32), cylinder_error(64), cylinder_error(128), 1.2, 1e-2);
}

static void nothing_flows_through_obstacles_and_walls(void **state) {
    ups_error error = {0};
    ups_obstacles obstacles;
    ups_obstacles_draw(4, 3, &obstacles);
    domain around = domain_of(32, &obstacles);
    const ups_mesh *mesh = around.mesh;
    if (ups_flow_through(mesh, around.pattern, around.vx, around.vy, &error) != UPS_OK) fail_msg("%s", error.message);
    for (int64_t i = 0; i < mesh->point_count; i++) {
        const uint8_t on = mesh->border[i];
        if (on >= UPS_ON_OBSTACLE) {
            const ups_obstacle *circle = &obstacles.each[on - UPS_ON_OBSTACLE];
            const double x = mesh->points[2 * i] - circle->x, y = mesh->points[2 * i + 1] - circle->y;
            assert_true(fabs(around.vx[i] * x + around.vy[i] * y) < 1e-12);
        } else if (on) {
            assert_true(around.vy[i] == 0.0);
            assert_true(around.vx[i] > 0.0);
        }
    }
    release_domain(&around);
}

/* ---- transport ---- */

/* A Gaussian of deviation 0.07 that begins at (0.4, 0.45): moved and spread by `time`. */
static double moved_gaussian(double x, double y, double time, double speed, double nu) {
    const double begin = 0.07 * 0.07, now = begin + 2.0 * nu * time;
    const double dx = x - 0.4 - speed * time, dy = y - 0.45 - 0.2 * speed * time;
    return begin / now * exp(-0.5 * (dx * dx + dy * dy) / now);
}

static double gaussian_error(int64_t resolution, double nu) {
    ups_error error = {0};
    const double end = 0.125, speed = 2.0;
    domain open = domain_of(resolution, &(ups_obstacles){0});
    const ups_mesh *mesh = open.mesh;
    for (int64_t i = 0; i < mesh->point_count; i++) {
        const double x = mesh->points[2 * i], y = mesh->points[2 * i + 1];
        open.vx[i] = 1.0;
        open.vy[i] = 0.2;
        open.u[i] = moved_gaussian(x, y, 0.0, speed, nu);
        open.exact[i] = moved_gaussian(x, y, end, speed, nu);
    }
    const ups_transport_problem problem = {mesh, open.pattern, open.vx, open.vy, speed, nu};
    const int64_t steps = (int64_t)ceil(end / ups_transport_longest_step(&problem, 0.07));
    ups_transport transport;
    ups_transport_begin(&problem, end / (double)steps, open.scratch, &transport);
    if (ups_transport_advance(&transport, steps, open.u, &error) != UPS_OK) fail_msg("%s", error.message);
    const double relative = relative_error(&open);
    release_domain(&open);
    return relative;
}

static void a_gaussian_moves_and_spreads_at_second_order(void **state) {
    expect_orders("Gaussian, nu = 0.002", gaussian_error(24, 0.002), gaussian_error(48, 0.002),
                  gaussian_error(96, 0.002), 1.8, 2e-3);
    expect_orders("Gaussian, nu = 0", gaussian_error(24, 0.0), gaussian_error(48, 0.0), gaussian_error(96, 0.0), 1.8,
                  4e-3);
}

/* sin(πx/2) cos(πy) keeps its shape: 0 on the left, and its slope is 0 on the other walls. */
static double decay_error(int64_t resolution) {
    ups_error error = {0};
    const double end = 1.0, nu = 0.08;
    domain still = domain_of(resolution, &(ups_obstacles){0});
    const ups_mesh *mesh = still.mesh;
    for (int64_t i = 0; i < mesh->point_count; i++) {
        still.vx[i] = still.vy[i] = 0.0;
        still.u[i] = sin(0.5 * M_PI * mesh->points[2 * i]) * cos(M_PI * mesh->points[2 * i + 1]);
        still.exact[i] = still.u[i] * exp(-1.25 * M_PI * M_PI * nu * end);
    }
    const ups_transport_problem problem = {mesh, still.pattern, still.vx, still.vy, 0.0, nu};
    ups_transport transport;
    ups_transport_begin(&problem, end / (double)resolution, still.scratch, &transport);
    if (ups_transport_advance(&transport, resolution, still.u, &error) != UPS_OK) fail_msg("%s", error.message);
    const double relative = relative_error(&still);
    release_domain(&still);
    return relative;
}

static void diffusion_between_the_walls_converges_at_second_order(void **state) {
    expect_orders("diffusion", decay_error(16), decay_error(32), decay_error(64), 1.8, 5e-4);
}

/* ---- samples ---- */

/* The most by which later frames of a sample leave the range of the first, as a share of it. */
static double overshoot(int64_t resolution, int64_t sample, const char *nu) {
    enum { STEPS = 11 };
    const ups_solver_setup setup =
        setup_of(&ups_transport_mesh2d, resolution, STEPS, 5, (const char *const[]){nu, NULL});
    solved_sample solved;
    solve_sample(&ups_transport_mesh2d, &setup, sample, &solved);
    const int64_t points = solved.layout.arrays[0].cells;
    const float *u = solved.arrays[0];
    double low = 0.0, high = 0.0, beyond = 0.0;
    for (int64_t i = 0; i < points; i++) low = fmin(low, u[i]), high = fmax(high, u[i]);
    assert_true(high - low > 0.3);
    for (int64_t i = points; i < STEPS * points; i++) beyond = fmax(beyond, fmax(u[i] - high, low - u[i]));
    release_sample(&solved);
    return beyond / (high - low);
}

/* No linear scheme of second order keeps the maximum principle. What leaves the range does so in front of obstacles,
 * where layers are thinner than a cell, and less on a finer mesh. */
static void samples_stay_nearly_within_what_they_begin_with(void **state) {
    enum { SAMPLES = 20 };
    double worst = 0.0, mean = 0.0, finer = 0.0;
    for (int64_t sample = 0; sample < SAMPLES; sample++) {
        const double beyond = overshoot(32, sample, "nu=0.002");
        worst = fmax(worst, beyond);
        mean += beyond / SAMPLES;
        if (beyond > 0.005) finer = fmax(finer, overshoot(64, sample, "nu=0.002"));
    }
    const double without = overshoot(32, 0, "nu=0");
    print_message("beyond the first frame's range: %.4f of it, on average %.4f; on a mesh twice as fine %.4f; without "
                  "diffusion %.4f\n",
                  worst, mean, finer, without);
    assert_true(worst < 0.1 && mean < 0.01 && finer < 0.5 * worst && without < 0.1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_obstacles_the_flow_is_uniform),
        cmocka_unit_test(flow_around_a_cylinder_converges),
        cmocka_unit_test(nothing_flows_through_obstacles_and_walls),
        cmocka_unit_test(a_gaussian_moves_and_spreads_at_second_order),
        cmocka_unit_test(diffusion_between_the_walls_converges_at_second_order),
        cmocka_unit_test(samples_stay_nearly_within_what_they_begin_with),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
