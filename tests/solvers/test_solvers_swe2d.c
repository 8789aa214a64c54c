/* Shallow water against a simple wave, Stoker's dam break, lakes at rest, and what must be conserved. */
#include "tests/solvers/convergence.h"
#include "tests/solvers/solved_sample.h"
#include "tools/solvers/swe2d.h"

static double *new_state(int64_t nx, int64_t ny) {
    return calloc((size_t)(3 * nx * ny), sizeof(double));
}

static void advance(const ups_shallow_water *water, double interval, double *state) {
    ups_error error = {0};
    double *scratch = malloc(sizeof(double) * ups_swe2d_scratch(water->nx, water->ny));
    if (ups_swe2d_advance(water, interval, state, scratch, NULL, &error) != UPS_OK) fail_msg("%s", error.message);
    free(scratch);
}

/* ---- smooth: a simple wave ---- */

/* Where every characteristic of one family carries the same u - 2c, c = √h (gravity 1) is constant along lines of speed
 * 3c - 2, and u = 2(c - 1). Before the wave breaks: by bisection for the point where the line through x began. */
static double speed_at_start(double x) {
    return 1.0 + 0.1 * exp(-16.0 * x * x);
}

static double speed_at(double x, double t) {
    double low = x - 2.0, high = x + 2.0;
    for (int n = 0; n < 60; n++) {
        const double middle = 0.5 * (low + high);
        if (middle + (3.0 * speed_at_start(middle) - 2.0) * t < x)
            low = middle;
        else
            high = middle;
    }
    return speed_at_start(0.5 * (low + high));
}

/* Average of c² (and of c² u) over a cell by Gauss's three points. */
static void cell_average(double x, double width, double t, double *h, double *hu) {
    static const double point[3] = {-0.7745966692414834, 0.0, 0.7745966692414834},
                        weight[3] = {5.0 / 18, 8.0 / 18, 5.0 / 18};
    *h = *hu = 0.0;
    for (int q = 0; q < 3; q++) {
        const double c = speed_at(x + 0.5 * width * point[q], t);
        *h += weight[q] * c * c;
        *hu += weight[q] * c * c * 2.0 * (c - 1.0);
    }
}

/* Mean error of h along x (or, turned, along y) on [-2, 2]. */
static double wave_error(int64_t cells, bool turned) {
    const double width = 4.0 / (double)cells, end = 0.4;
    const int64_t nx = turned ? 1 : cells, ny = turned ? cells : 1;
    const ups_shallow_water water = {.nx = nx, .ny = ny, .dx = width, .dy = width, .gravity = 1.0};
    double *state = new_state(nx, ny), sum = 0.0;
    for (int64_t i = 0; i < cells; i++)
        cell_average(-2.0 + ((double)i + 0.5) * width, width, 0.0, &state[i], &state[(turned ? 2 : 1) * cells + i]);
    advance(&water, end, state);
    for (int64_t i = 0; i < cells; i++) {
        double h, hu;
        cell_average(-2.0 + ((double)i + 0.5) * width, width, end, &h, &hu);
        sum += width * fabs(state[i] - h);
    }
    free(state);
    return sum;
}

static void a_simple_wave_converges_at_second_order_along_both_axes(void **state) {
    for (int turned = 0; turned < 2; turned++) {
        expect_orders(turned ? "simple wave along y" : "simple wave along x", wave_error(256, turned),
                      wave_error(512, turned), wave_error(1024, turned), 1.8, 1e-4);
    }
}

/* ---- sharp: a dam breaks ---- */

/* Stoker (1957): depth 2 on the left, 1 on the right, gravity 1; between a rarefaction and a bore lies a plateau whose
 * speed fits both. */
typedef struct stoker {
    double depth, speed, bore;
} stoker;

static stoker stoker_plateau(double left, double right) {
    double low = right, high = left;
    for (int n = 0; n < 200; n++) {
        const double h = 0.5 * (low + high);
        const double behind_rarefaction = 2.0 * (sqrt(left) - sqrt(h));
        const double behind_bore = (h - right) * sqrt(0.5 * (h + right) / (h * right));
        if (behind_rarefaction > behind_bore)
            low = h;
        else
            high = h;
    }
    const double speed = 2.0 * (sqrt(left) - sqrt(low));
    return (stoker){low, speed, low * speed / (low - right)};
}

static double stoker_depth(const stoker *plateau, double left, double right, double ray) {
    if (ray <= -sqrt(left)) return left;
    if (ray >= plateau->bore) return right;
    if (ray >= plateau->speed - sqrt(plateau->depth)) return plateau->depth;
    const double c = (2.0 * sqrt(left) - ray) / 3.0;
    return c * c;
}

static double dam_error(int64_t cells) {
    const double left = 2.0, right = 1.0, width = 2.0 / (double)cells, end = 0.4;
    const ups_shallow_water water = {.nx = cells, .ny = 1, .dx = width, .dy = width, .gravity = 1.0};
    const stoker plateau = stoker_plateau(left, right);
    double *state = new_state(cells, 1), sum = 0.0;
    for (int64_t i = 0; i < cells; i++) state[i] = i < cells / 2 ? left : right;
    advance(&water, end, state);
    for (int64_t i = 0; i < cells; i++) {
        const double x = -1.0 + ((double)i + 0.5) * width;
        assert_true(state[i] > right - 1e-3 && state[i] < left + 1e-3); /* no overshoot to speak of */
        sum += width * fabs(state[i] - stoker_depth(&plateau, left, right, x / end));
    }
    free(state);
    return sum;
}

/* Order one is all that a jump allows; from grid to grid the bore falls elsewhere within its cell, over two it evens
 * out. */
static void stokers_dam_break_converges_at_first_order(void **state) {
    const double errors[3] = {dam_error(100), dam_error(200), dam_error(400)};
    expect_errors("Stoker's dam break", errors, 4e-3);
    assert_true(0.5 * log2(errors[0] / errors[2]) > 0.9);
}

/* ---- what must not change ---- */

static void a_lake_at_rest_stays_at_rest_over_any_bottom(void **unused) {
    enum { N = 40 };
    double bottom[N * N];
    for (int walls = 0; walls < 2; walls++) {
        const ups_shallow_water water = {
            .nx = N, .ny = N, .dx = 0.1, .dy = 0.07, .gravity = 9.81, .bottom = bottom, .walls = walls};
        double *state = new_state(N, N), worst = 0.0;
        for (int i = 0; i < N * N; i++) {
            const double x = i / N, y = i % N;
            bottom[i] = 0.4 * sin(0.3 * x) * cos(0.2 * y) + (i % N > 20 ? 0.3 : 0.0) + 0.01 * (i * 7919 % 13);
            state[i] = 1.5 - bottom[i];
        }
        advance(&water, 2.0, state);
        for (int i = 0; i < N * N; i++) {
            worst = fmax(worst, fabs(state[i] + bottom[i] - 1.5));
            worst = fmax(worst, fmax(fabs(state[N * N + i]), fabs(state[2 * N * N + i])));
        }
        print_message("lake at rest, %s: moved by %.1e\n", walls ? "walls" : "open", worst);
        assert_true(worst < 1e-12);
        free(state);
    }
}

/* A column of water on a slope, between walls. */
static void between_walls_no_water_is_lost_while_it_moves(void **unused) {
    enum { N = 48 };
    double bottom[N * N], *state = new_state(N, N), before = 0.0, after = 0.0, motion = 0.0;
    const ups_shallow_water water = {
        .nx = N, .ny = N, .dx = 0.1, .dy = 0.1, .gravity = 1.0, .bottom = bottom, .walls = true};
    for (int i = 0; i < N * N; i++) {
        const double x = i / N - 15.0, y = i % N - 20.0;
        bottom[i] = 0.01 * (i / N);
        before += state[i] = 1.0 + (x * x + y * y < 64.0 ? 1.0 : 0.0) - bottom[i];
    }
    advance(&water, 6.0, state);
    for (int i = 0; i < N * N; i++) {
        after += state[i];
        motion = fmax(motion, fabs(state[N * N + i]));
    }
    print_message("between walls: mass changed by %.1e of itself\n", fabs(after - before) / before);
    assert_true(fabs(after - before) < 1e-13 * before);
    assert_true(motion > 1e-2);
    free(state);
}

/* Small waves over a bottom of constant slope feel a force: a still column that is tilted starts to move at -g b_x. */
static void a_tilted_surface_accelerates_as_gravity_says(void **unused) {
    enum { N = 64 };
    double bottom[N], *state = new_state(N, 1);
    const ups_shallow_water water = {.nx = N, .ny = 1, .dx = 1.0, .dy = 1.0, .gravity = 9.81, .bottom = bottom};
    for (int i = 0; i < N; i++) bottom[i] = 0.002 * i, state[i] = 3.0;
    advance(&water, 0.01, state);
    for (int i = 10; i < N - 10; i++) assert_true(fabs(state[N + i] / state[i] + 9.81 * 0.002 * 0.01) < 1e-9);
    free(state);
}

/* ---- the radial dam ---- */

static void the_radial_dam_break_is_as_symmetric_as_the_square(void **unused) {
    enum { N = 64, STEPS = 11 };
    const ups_solver_setup setup = setup_of(&ups_swe2d, N, STEPS, 9, NULL);
    solved_sample solved;
    solve_sample(&ups_swe2d, &setup, 2, &solved);
    const float *h = solved.arrays[0];
    assert_float_equal(h[0], 1.0f, 0.0f);
    assert_float_equal(h[N / 2 * N + N / 2], 2.0f, 0.0f);
    for (int t = 0; t < STEPS; t++, h += N * N) {
        for (int i = 0; i < N; i++) {
            for (int j = 0; j < N; j++) {
                assert_float_equal(h[i * N + j], h[j * N + i], 1e-6);
                assert_float_equal(h[i * N + j], h[(N - 1 - i) * N + j], 1e-6);
                assert_true(h[i * N + j] > 0.4f && h[i * N + j] < 2.0f + 1e-3f);
            }
        }
    }
    release_sample(&solved);
}

/* Mean error of h at the end against the average over the cells of a grid four times as fine. */
static double radial_error(int64_t cells, const float *fine, int64_t fine_cells) {
    const ups_solver_setup setup = setup_of(&ups_swe2d, cells, 2, 9, (const char *[]){"t_end=0.4", NULL});
    const int64_t ratio = fine_cells / cells;
    solved_sample solved;
    solve_sample(&ups_swe2d, &setup, 2, &solved);
    const float *h = solved.arrays[0] + cells * cells;
    double sum = 0.0;
    for (int64_t i = 0; i < fine_cells; i++) {
        for (int64_t j = 0; j < fine_cells; j++) {
            if (i % ratio || j % ratio) continue;
            double mean = 0.0;
            for (int64_t a = 0; a < ratio; a++) {
                for (int64_t b = 0; b < ratio; b++) mean += fine[(i + a) * fine_cells + j + b];
            }
            sum += fabs(h[i / ratio * cells + j / ratio] - mean / (double)(ratio * ratio));
        }
    }
    release_sample(&solved);
    return sum / (double)(cells * cells);
}

static void the_radial_dam_break_converges_to_that_of_a_finer_grid(void **unused) {
    enum { FINE = 256 };
    const ups_solver_setup setup = setup_of(&ups_swe2d, FINE, 2, 9, (const char *[]){"t_end=0.4", NULL});
    solved_sample solved;
    solve_sample(&ups_swe2d, &setup, 2, &solved);
    const float *fine = solved.arrays[0] + FINE * FINE;
    const double coarse = radial_error(32, fine, FINE), middle = radial_error(64, fine, FINE);
    print_message("radial dam break: errors %.2e %.2e, order %.2f\n", coarse, middle, log2(coarse / middle));
    assert_true(log2(coarse / middle) > 0.8);
    assert_true(middle < 1e-2);
    release_sample(&solved);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_simple_wave_converges_at_second_order_along_both_axes),
        cmocka_unit_test(stokers_dam_break_converges_at_first_order),
        cmocka_unit_test(a_lake_at_rest_stays_at_rest_over_any_bottom),
        cmocka_unit_test(between_walls_no_water_is_lost_while_it_moves),
        cmocka_unit_test(a_tilted_surface_accelerates_as_gravity_says),
        cmocka_unit_test(the_radial_dam_break_is_as_symmetric_as_the_square),
        cmocka_unit_test(the_radial_dam_break_converges_to_that_of_a_finer_grid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
