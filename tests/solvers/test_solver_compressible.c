/* The compressible solver against exact solutions: Riemann's problem, entropy waves, the isentropic vortex, viscous
 * decay of shear and sound; and what it must keep: sums, symmetry, positivity. Orders and errors are printed. */
#include "tests/solvers/convergence.h"
#include "tools/solvers/compressible/compressible.h"

/* State at a place: density, velocities, pressure in the solver's order. */
typedef void (*flow_function)(const double at[3], double time, double values[UPS_COMPRESSIBLE_VARIABLES]);

typedef struct fixture {
    ups_compressible_problem problem;
    double origin[3];
    int64_t cells;
    void *memory;
    ups_compressible *flow;
    double *fields[UPS_COMPRESSIBLE_VARIABLES];
} fixture;

static ups_compressible_problem unit_problem(int axes, int64_t cells, bool periodic) {
    ups_compressible_problem problem = {.axes = axes, .gamma = 5.0 / 3.0};
    for (int a = 0; a < axes; a++) {
        problem.cells[a] = cells;
        problem.width[a] = 1.0 / (double)cells;
        problem.periodic[a] = periodic;
    }
    return problem;
}

static void place_of(const fixture *f, int64_t cell, double at[3]) {
    for (int a = f->problem.axes - 1; a >= 0; a--) {
        at[a] = f->origin[a] + ((double)(cell % f->problem.cells[a]) + 0.5) * f->problem.width[a];
        cell /= f->problem.cells[a];
    }
}

static void begin(fixture *f, const ups_compressible_problem *problem, const double origin[3], flow_function initial) {
    *f = (fixture){.problem = *problem, .cells = 1};
    for (int a = 0; a < problem->axes; a++) {
        f->cells *= problem->cells[a];
        f->origin[a] = origin ? origin[a] : 0.0;
    }
    f->memory = aligned_alloc(64, (ups_compressible_bytes(problem) + 63) / 64 * 64);
    f->flow = ups_compressible_place(problem, f->memory);
    for (int v = 0; v < problem->axes + 2; v++) f->fields[v] = malloc(sizeof(double) * (size_t)f->cells);
    for (int64_t c = 0; c < f->cells; c++) {
        double at[3] = {0.0}, values[UPS_COMPRESSIBLE_VARIABLES] = {0.0};
        place_of(f, c, at);
        initial(at, 0.0, values);
        for (int v = 0; v < problem->axes + 2; v++) f->fields[v][c] = values[v];
    }
    ups_compressible_set(f->flow, (const double *const *)f->fields);
}

static void advance(fixture *f, double time) {
    ups_error error;
    if (ups_compressible_advance(f->flow, time, NULL, &error) != UPS_OK) fail_msg("%s", error.message);
    for (int v = 0; v < f->problem.axes + 2; v++) ups_compressible_get(f->flow, v, f->fields[v]);
}

static void end(fixture *f) {
    for (int v = 0; v < f->problem.axes + 2; v++) free(f->fields[v]);
    free(f->memory);
}

/* Mean |variable - exact| after `time`. */
static double error_after(const ups_compressible_problem *problem, const double origin[3], flow_function exact,
                          double time, int variable) {
    fixture f;
    begin(&f, problem, origin, exact);
    advance(&f, time);
    double sum = 0.0;
    for (int64_t c = 0; c < f.cells; c++) {
        double at[3] = {0.0}, values[UPS_COMPRESSIBLE_VARIABLES] = {0.0};
        place_of(&f, c, at);
        exact(at, time, values);
        sum += fabs(f.fields[variable][c] - values[variable]);
    }
    const double error = sum / (double)f.cells;
    end(&f);
    return error;
}

/* ---- Riemann's problem ---- */

typedef struct gas_state {
    double density, velocity, pressure;
} gas_state;

static gas_state riemann_left, riemann_right;
static double riemann_place, riemann_gamma = 1.4;

/* Change of velocity across the wave that joins `side` to `pressure`, and its derivative (Toro 4.2). */
static double wave_velocity(const gas_state *side, double pressure, double *slope) {
    const double g = riemann_gamma, sound = sqrt(g * side->pressure / side->density);
    if (pressure > side->pressure) {
        const double a = 2.0 / ((g + 1.0) * side->density), b = (g - 1.0) / (g + 1.0) * side->pressure;
        const double root = sqrt(a / (pressure + b));
        *slope = root * (1.0 - 0.5 * (pressure - side->pressure) / (pressure + b));
        return (pressure - side->pressure) * root;
    }
    const double ratio = pressure / side->pressure;
    *slope = pow(ratio, -(g + 1.0) / (2.0 * g)) / (side->density * sound);
    return 2.0 * sound / (g - 1.0) * (pow(ratio, (g - 1.0) / (2.0 * g)) - 1.0);
}

/* One side's state at `speed` = x/t, seen with the wave going towards negative x. */
static gas_state behind(gas_state side, double pressure, double velocity, double speed) {
    const double g = riemann_gamma, sound = sqrt(g * side.pressure / side.density), ratio = pressure / side.pressure;
    if (pressure > side.pressure) {
        const double shock = side.velocity - sound * sqrt((g + 1.0) / (2.0 * g) * ratio + (g - 1.0) / (2.0 * g));
        if (speed < shock) return side;
        const double k = (g - 1.0) / (g + 1.0);
        return (gas_state){side.density * (ratio + k) / (k * ratio + 1.0), velocity, pressure};
    }
    const double star_sound = sound * pow(ratio, (g - 1.0) / (2.0 * g));
    if (speed < side.velocity - sound) return side;
    if (speed > velocity - star_sound) return (gas_state){side.density * pow(ratio, 1.0 / g), velocity, pressure};
    const double fan = 2.0 / (g + 1.0) + (g - 1.0) / ((g + 1.0) * sound) * (side.velocity - speed);
    return (gas_state){side.density * pow(fan, 2.0 / (g - 1.0)),
                       2.0 / (g + 1.0) * (sound + 0.5 * (g - 1.0) * side.velocity + speed),
                       side.pressure * pow(fan, 2.0 * g / (g - 1.0))};
}

static void riemann(const double at[3], double time, double values[UPS_COMPRESSIBLE_VARIABLES]) {
    const gas_state l = riemann_left, r = riemann_right;
    gas_state found = at[0] < riemann_place ? l : r;
    if (time > 0.0) {
        double pressure = 0.5 * (l.pressure + r.pressure);
        for (int n = 0; n < 60; n++) {
            double left_slope, right_slope;
            const double residual = wave_velocity(&l, pressure, &left_slope) +
                                    wave_velocity(&r, pressure, &right_slope) + r.velocity - l.velocity;
            pressure = fmax(1e-9, pressure - residual / (left_slope + right_slope));
        }
        double unused;
        const double velocity = 0.5 * (l.velocity + r.velocity + wave_velocity(&r, pressure, &unused) -
                                       wave_velocity(&l, pressure, &unused));
        const double speed = (at[0] - riemann_place) / time;
        if (speed < velocity) {
            found = behind(l, pressure, velocity, speed);
        } else {
            const gas_state mirrored = {r.density, -r.velocity, r.pressure};
            found = behind(mirrored, pressure, -velocity, -speed);
            found.velocity = -found.velocity;
        }
    }
    values[0] = found.density;
    values[1] = found.velocity;
    values[2] = found.pressure;
}

static void shock_tubes_converge_to_riemanns_solution_at_first_order(void **state) {
    /* Sod's problem, and Toro's tests 1 and 3 (a sonic point; a jump of pressure by a hundred thousand) */
    static const struct {
        const char *name;
        gas_state left, right;
        double place, time, largest;
    } tubes[] = {
        {"Sod", {1.0, 0.0, 1.0}, {0.125, 0.0, 0.1}, 0.5, 0.2, 2.5e-3},
        {"Toro 1", {1.0, 0.75, 1.0}, {0.125, 0.0, 0.1}, 0.3, 0.2, 2.5e-3},
        {"Toro 3", {1.0, 0.0, 1000.0}, {1.0, 0.0, 0.01}, 0.5, 0.012, 2.5e-2},
    };
    for (size_t i = 0; i < sizeof tubes / sizeof tubes[0]; i++) {
        riemann_left = tubes[i].left;
        riemann_right = tubes[i].right;
        riemann_place = tubes[i].place;
        double errors[3];
        for (int n = 0; n < 3; n++) {
            ups_compressible_problem problem = unit_problem(1, 200 << n, false);
            problem.gamma = riemann_gamma;
            errors[n] = error_after(&problem, NULL, riemann, tubes[i].time, 0);
        }
        expect_last_order(tubes[i].name, errors, 0.7, tubes[i].largest);
    }
}

static void near_vacuum_and_colliding_streams_stay_positive(void **state) {
    static const struct {
        gas_state left, right;
        double time;
    } sides[] = {
        {{1.0, -2.0, 0.4}, {1.0, 2.0, 0.4}, 0.1},      /* Toro 2: 1-2-3 */
        {{1.0, -20.0, 0.4}, {1.0, 20.0, 0.4}, 0.01},   /* opens a vacuum */
        {{1.0, 50.0, 1e-6}, {1.0, -50.0, 1e-6}, 0.01}, /* Noh: cold streams collide */
        {{1.0, 0.0, 1e-9}, {1e-6, 0.0, 1e4}, 2e-6},    /* a jump by thirteen orders */
    };
    for (size_t i = 0; i < sizeof sides / sizeof sides[0]; i++) {
        riemann_left = sides[i].left;
        riemann_right = sides[i].right;
        riemann_place = 0.5;
        for (int axes = 1; axes <= 2; axes++) {
            ups_compressible_problem problem = unit_problem(axes, axes == 1 ? 200 : 24, false);
            fixture f;
            flow_function initial = riemann;
            begin(&f, &problem, NULL, initial);
            if (axes == 2) { /* the plane's second velocity is zero */
                memcpy(f.fields[3], f.fields[2], sizeof(double) * (size_t)f.cells);
                memset(f.fields[2], 0, sizeof(double) * (size_t)f.cells);
                ups_compressible_set(f.flow, (const double *const *)f.fields);
            }
            advance(&f, sides[i].time);
            for (int64_t c = 0; c < f.cells; c++) {
                assert_true(f.fields[0][c] > 0.0 && f.fields[axes + 1][c] > 0.0);
            }
            end(&f);
        }
    }
}

/* ---- smooth flows ---- */

/* A wave of density carried along the diagonal; pressure and velocity are uniform. */
static void entropy_wave(int axes, const double at[3], double time, double *values) {
    static const double drift[3] = {1.0, 0.5, -0.75};
    double phase = 0.0;
    for (int a = 0; a < axes; a++) {
        values[1 + a] = drift[a];
        phase += 2.0 * M_PI * (at[a] - drift[a] * time);
    }
    values[0] = 1.0 + 0.3 * sin(phase);
    values[1 + axes] = 1.0;
}

static void entropy_wave_1d(const double at[3], double time, double *values) {
    entropy_wave(1, at, time, values);
}

static void entropy_wave_2d(const double at[3], double time, double *values) {
    entropy_wave(2, at, time, values);
}

static void entropy_wave_3d(const double at[3], double time, double *values) {
    entropy_wave(3, at, time, values);
}

static void density_waves_are_carried_at_second_order_in_every_dimension(void **state) {
    static const flow_function waves[3] = {entropy_wave_1d, entropy_wave_2d, entropy_wave_3d};
    static const int64_t coarsest[3] = {64, 24, 12};
    static const char *names[3] = {"density wave, 1D", "density wave, 2D diagonal", "density wave, 3D diagonal"};
    static const double lowest[3] = {1.8, 1.7, 1.6}, largest[3] = {2e-4, 3e-3, 1.5e-2};
    for (int axes = 1; axes <= 3; axes++) {
        double errors[3];
        for (int n = 0; n < 3; n++) {
            const ups_compressible_problem problem = unit_problem(axes, coarsest[axes - 1] << n, true);
            errors[n] = error_after(&problem, NULL, waves[axes - 1], axes == 3 ? 0.1 : 0.5, 0);
        }
        expect_last_order(names[axes - 1], errors, lowest[axes - 1], largest[axes - 1]);
    }
}

/* Yee's isentropic vortex on a square of side 10, moving with (1, 1), γ = 5/3. */
static void vortex(const double at[3], double time, double values[UPS_COMPRESSIBLE_VARIABLES]) {
    const double side = 10.0, strength = 5.0, g = 5.0 / 3.0;
    double x = at[0] - 5.0 - time, y = at[1] - 5.0 - time;
    x -= side * floor(x / side + 0.5);
    y -= side * floor(y / side + 0.5);
    const double bell = strength / (2.0 * M_PI) * exp(0.5 * (1.0 - x * x - y * y));
    const double temperature = 1.0 - (g - 1.0) / (2.0 * g) * bell * bell;
    values[0] = pow(temperature, 1.0 / (g - 1.0));
    values[1] = 1.0 - bell * y;
    values[2] = 1.0 + bell * x;
    values[3] = pow(temperature, g / (g - 1.0));
}

static void an_isentropic_vortex_moves_at_second_order(void **state) {
    double errors[3];
    for (int n = 0; n < 3; n++) {
        ups_compressible_problem problem = unit_problem(2, 32 << n, true);
        problem.width[0] = problem.width[1] = 10.0 / (double)(32 << n);
        errors[n] = error_after(&problem, NULL, vortex, 1.0, 0);
    }
    expect_last_order("isentropic vortex", errors, 1.7, 1e-3);
}

/* ---- viscosity ---- */

static double shear_viscosity, bulk_viscosity;
static bool by_mass;

/* A shear flow v_y(x), uniform along y, so weak that its heat is nothing: decays as exp(-η k² t/ρ), or exp(-η k² t)
 * where η counts for a unit of mass. */
static void shear_wave(const double at[3], double time, double values[UPS_COMPRESSIBLE_VARIABLES]) {
    const double k = 2.0 * M_PI;
    values[0] = 2.0;
    values[1] = 0.0;
    values[2] = 1e-4 * sin(k * at[0]) * exp(-shear_viscosity / (by_mass ? 1.0 : 2.0) * k * k * time);
    values[3] = 1.0;
}

/* A standing wave of sound in one dimension: ω² + i ν k² ω - c² k² = 0, ν = (4η/3 + ζ)/ρ, without conduction of heat.
 */
static void sound_wave(const double at[3], double time, double values[UPS_COMPRESSIBLE_VARIABLES]) {
    const double k = 2.0 * M_PI, nu = 4.0 / 3.0 * shear_viscosity + bulk_viscosity, sound2 = 5.0 / 3.0;
    const double damping = 0.5 * nu * k * k, beat = sqrt(sound2 * k * k - damping * damping);
    const double decay = exp(-damping * time);
    values[0] = 1.0;
    values[1] = 1e-5 * sin(k * at[0]) * decay * (cos(beat * time) - damping / beat * sin(beat * time));
    values[2] = 1.0;
}

static void expect_viscous_waves_of_second_order(void) {
    /* the first is weak enough to go with the stages, the second goes by RKL2, with many stages */
    static const double viscosities[] = {2e-3, 0.15};
    for (size_t i = 0; i < sizeof viscosities / sizeof viscosities[0]; i++) {
        double errors[3];
        shear_viscosity = viscosities[i];
        bulk_viscosity = 0.3 * viscosities[i];
        const double time = 0.02 / viscosities[i] < 1.0 ? 0.05 : 1.0;
        for (int n = 0; n < 3; n++) {
            ups_compressible_problem problem = unit_problem(2, 16 << n, true);
            problem.cells[1] = 4;
            problem.width[1] = problem.width[0];
            problem.shear = shear_viscosity;
            problem.bulk = bulk_viscosity;
            problem.by_mass = by_mass;
            errors[n] = 1e4 * error_after(&problem, NULL, shear_wave, time, 2);
        }
        char name[64];
        snprintf(name, sizeof name, "shear wave, eta = %g", viscosities[i]);
        expect_last_order(name, errors, 1.7, 4e-3);
        for (int n = 0; n < 3; n++) {
            ups_compressible_problem problem = unit_problem(1, 32 << n, true);
            problem.shear = shear_viscosity;
            problem.bulk = bulk_viscosity;
            problem.by_mass = by_mass;
            errors[n] = 1e5 * error_after(&problem, NULL, sound_wave, 0.3, 1);
        }
        snprintf(name, sizeof name, "sound wave, eta = %g, zeta = %g", shear_viscosity, bulk_viscosity);
        expect_last_order(name, errors, 1.6, 6e-3);
    }
}

static void viscous_waves_decay_as_they_should_at_second_order(void **state) {
    by_mass = false;
    expect_viscous_waves_of_second_order();
}

static void where_viscosity_counts_for_a_unit_of_mass_waves_decay_whatever_the_density(void **state) {
    by_mass = true;
    expect_viscous_waves_of_second_order();
}

/* The same flow with bulk viscosity only and with shear only, at the same 4η/3 + ζ, is one flow in one dimension. */
static void in_one_dimension_both_viscosities_act_as_one(void **state) {
    double *found[2];
    fixture f[2];
    for (int i = 0; i < 2; i++) {
        ups_compressible_problem problem = unit_problem(1, 64, true);
        problem.shear = i == 0 ? 0.03 : 0.0;
        problem.bulk = i == 0 ? 0.0 : 0.04;
        begin(&f[i], &problem, NULL, entropy_wave_1d);
        for (int64_t c = 0; c < 64; c++) f[i].fields[1][c] += 0.5 * cos(2.0 * M_PI * (double)c / 64.0);
        ups_compressible_set(f[i].flow, (const double *const *)f[i].fields);
        advance(&f[i], 0.2);
        found[i] = f[i].fields[1];
    }
    for (int c = 0; c < 64; c++) assert_float_equal(found[0][c], found[1][c], 1e-12);
    end(&f[0]);
    end(&f[1]);
}

/* ---- what must be kept ---- */

static double scatter(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return (double)(*seed >> 8) / 16777216.0;
}

/* Blocks of random gas: jumps everywhere. */
static void rough_start(fixture *f, const ups_compressible_problem *problem) {
    begin(f, problem, NULL,
          problem->axes == 1   ? entropy_wave_1d
          : problem->axes == 2 ? entropy_wave_2d
                               : entropy_wave_3d);
    uint32_t seed = 7;
    for (int64_t c = 0; c < f->cells; c++) {
        f->fields[0][c] = 0.2 + scatter(&seed);
        for (int a = 1; a <= problem->axes; a++) f->fields[a][c] = 4.0 * scatter(&seed) - 2.0;
        f->fields[problem->axes + 1][c] = 0.1 + scatter(&seed);
    }
    ups_compressible_set(f->flow, (const double *const *)f->fields);
}

static void mass_momentum_and_energy_are_kept_to_rounding(void **state) {
    for (int axes = 1; axes <= 3; axes++) {
        for (int viscous = 0; viscous < 5; viscous++) {
            ups_compressible_problem problem = unit_problem(axes, axes == 1 ? 101 : axes == 2 ? 17 : 9, true);
            problem.shear = viscous == 0 ? 0.0 : viscous % 2 == 1 ? 1e-5 : 0.2;
            problem.by_mass = viscous > 2;
            problem.bulk = 0.5 * problem.shear;
            fixture f;
            rough_start(&f, &problem);
            double before[5], after[5];
            ups_compressible_totals(f.flow, before);
            advance(&f, 0.1);
            ups_compressible_totals(f.flow, after);
            for (int v = 0; v < axes + 2; v++) {
                if (fabs(after[v] - before[v]) > 1e-10 * (double)f.cells) {
                    fail_msg("%d axes, viscosity %g: sum %d went from %.17g to %.17g", axes, problem.shear, v,
                             before[v], after[v]);
                }
            }
            end(&f);
        }
    }
}

static void a_cold_fast_stream_that_needs_first_order_is_still_conserved(void **state) {
    ups_compressible_problem problem = unit_problem(2, 16, true);
    fixture f;
    rough_start(&f, &problem);
    for (int64_t c = 0; c < f.cells; c++) {
        f.fields[1][c] *= 40.0;
        f.fields[2][c] *= 40.0;
        f.fields[3][c] *= 1e-6;
    }
    ups_compressible_set(f.flow, (const double *const *)f.fields);
    double before[5], after[5];
    ups_compressible_totals(f.flow, before);
    advance(&f, 0.01);
    ups_compressible_totals(f.flow, after);
    for (int v = 0; v < 4; v++) assert_float_equal(after[v], before[v], 1e-11 * before[3]);
    for (int64_t c = 0; c < f.cells; c++) assert_true(f.fields[0][c] > 0.0 && f.fields[3][c] > 0.0);
    end(&f);
}

/* The density of a two-dimensional rough flow, and of the same with x and y exchanged or x reversed. */
static void expect_symmetry(bool of_mass) {
    enum { N = 20 };
    ups_compressible_problem problem = unit_problem(2, N, true);
    problem.shear = 1e-3;
    problem.bulk = 2e-3;
    problem.by_mass = of_mass;
    fixture plain, turned, mirrored;
    rough_start(&plain, &problem);
    rough_start(&turned, &problem);
    rough_start(&mirrored, &problem);
    for (int64_t i = 0; i < N; i++) {
        for (int64_t j = 0; j < N; j++) {
            static const int partner[4] = {0, 2, 1, 3};
            for (int v = 0; v < 4; v++) {
                turned.fields[partner[v]][j * N + i] = plain.fields[v][i * N + j];
                mirrored.fields[v][(N - 1 - i) * N + j] = (v == 1 ? -1.0 : 1.0) * plain.fields[v][i * N + j];
            }
        }
    }
    ups_compressible_set(turned.flow, (const double *const *)turned.fields);
    ups_compressible_set(mirrored.flow, (const double *const *)mirrored.fields);
    advance(&plain, 0.05);
    advance(&turned, 0.05);
    advance(&mirrored, 0.05);
    for (int64_t i = 0; i < N; i++) {
        for (int64_t j = 0; j < N; j++) {
            assert_float_equal(plain.fields[0][i * N + j], turned.fields[0][j * N + i], 1e-10);
            assert_float_equal(plain.fields[0][i * N + j], mirrored.fields[0][(N - 1 - i) * N + j], 1e-10);
        }
    }
    end(&plain);
    end(&turned);
    end(&mirrored);
}

static void exchanged_axes_and_mirrors_give_the_same_flow(void **state) {
    expect_symmetry(false);
    expect_symmetry(true);
}

static void along_an_axis_a_flow_is_the_one_dimensional_one(void **state) {
    enum { N = 40, SIDE = 5 };
    ups_compressible_problem line = unit_problem(1, N, false);
    line.shear = 1e-3;
    fixture one;
    rough_start(&one, &line);
    for (int axis = 0; axis < 3; axis++) {
        ups_compressible_problem block = unit_problem(3, SIDE, false);
        block.cells[axis] = N;
        for (int a = 0; a < 3; a++) block.width[a] = line.width[0];
        block.shear = line.shear;
        fixture three;
        rough_start(&three, &block);
        const int64_t below = axis == 0 ? SIDE * SIDE : axis == 1 ? SIDE : 1;
        for (int64_t c = 0; c < three.cells; c++) {
            const int64_t along = c / below % N;
            three.fields[0][c] = one.fields[0][along];
            for (int a = 0; a < 3; a++) three.fields[1 + a][c] = a == axis ? one.fields[1][along] : 0.0;
            three.fields[4][c] = one.fields[2][along];
        }
        ups_compressible_set(three.flow, (const double *const *)three.fields);
        advance(&three, 0.02);
        fixture reference;
        rough_start(&reference, &line);
        advance(&reference, 0.02);
        /* the block's steps are shorter, as sound also crosses it sideways: the flows agree as two step sizes do */
        double apart = 0.0;
        for (int64_t c = 0; c < three.cells; c++) {
            apart += fabs(three.fields[0][c] - reference.fields[0][c / below % N]);
        }
        assert_true(apart / (double)three.cells < 5e-3);
        for (int64_t c = 0; c < three.cells; c++) {
            assert_float_equal(three.fields[1 + (axis + 1) % 3][c], 0.0, 1e-12);
        }
        end(&reference);
        end(&three);
    }
    end(&one);
}

static void stored_times_in_between_change_little_and_repeats_nothing(void **state) {
    const ups_compressible_problem problem = unit_problem(2, 24, true);
    fixture first, second, pieces;
    rough_start(&first, &problem);
    rough_start(&second, &problem);
    begin(&pieces, &problem, NULL, entropy_wave_2d);
    advance(&first, 0.1);
    advance(&second, 0.1);
    for (int v = 0; v < 4; v++) {
        assert_memory_equal(first.fields[v], second.fields[v], sizeof(double) * (size_t)first.cells);
    }
    for (int n = 0; n < 5; n++) advance(&pieces, 0.02);
    fixture whole;
    begin(&whole, &problem, NULL, entropy_wave_2d);
    advance(&whole, 0.1);
    for (int64_t c = 0; c < whole.cells; c++) assert_float_equal(whole.fields[0][c], pieces.fields[0][c], 2e-3);
    end(&first);
    end(&second);
    end(&pieces);
    end(&whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shock_tubes_converge_to_riemanns_solution_at_first_order),
        cmocka_unit_test(near_vacuum_and_colliding_streams_stay_positive),
        cmocka_unit_test(density_waves_are_carried_at_second_order_in_every_dimension),
        cmocka_unit_test(an_isentropic_vortex_moves_at_second_order),
        cmocka_unit_test(viscous_waves_decay_as_they_should_at_second_order),
        cmocka_unit_test(where_viscosity_counts_for_a_unit_of_mass_waves_decay_whatever_the_density),
        cmocka_unit_test(in_one_dimension_both_viscosities_act_as_one),
        cmocka_unit_test(mass_momentum_and_energy_are_kept_to_rounding),
        cmocka_unit_test(a_cold_fast_stream_that_needs_first_order_is_still_conserved),
        cmocka_unit_test(exchanged_axes_and_mirrors_give_the_same_flow),
        cmocka_unit_test(along_an_axis_a_flow_is_the_one_dimensional_one),
        cmocka_unit_test(stored_times_in_between_change_little_and_repeats_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
