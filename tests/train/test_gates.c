/* The gates on whole rollouts, each with predictions that are wrong by a known amount: closed forms, not the code's. */
#include "tests/model/claims.h"
#include "train/evaluation/scores/gates.h"
#include <math.h>

enum { TRAJECTORIES = 3, FRAMES = 4, MOST_POINTS = 64, MOST_CHANNELS = 3 };

static const char *const names[MOST_CHANNELS] = {"density", "Vx", "Vy"};
static const bool all[MOST_CHANNELS] = {true, true, true};

/* A task without files, and rollouts of it. */
typedef struct rollouts {
    ups_source source;
    ups_task task;
    int64_t points, channels;
    float predicted[TRAJECTORIES][FRAMES][MOST_POINTS * MOST_CHANNELS];
    float truth[TRAJECTORIES][FRAMES + 1][MOST_POINTS * MOST_CHANNELS];
} rollouts;

static rollouts r;
static ups_rollout_scores *scores;
static ups_gates *gates;

/* In 1D `points` along the axis, in 2D 8 × 8. What is predicted is right until a test says otherwise. */
static void make(int dims, int64_t channels, bool periodic, float (*field)(int t, int f, const int64_t at[2], int c)) {
    r = (rollouts){.points = 1, .channels = channels};
    r.source = (ups_source){.channels = channels, .channel_names = names};
    r.task = (ups_task){.name = "flow", .source = &r.source};
    r.task.geometry = (ups_sample){.channels = channels, .dims = dims, .grid = {1, 1, 1}, .periodic = periodic};
    for (int a = 0; a < dims; a++) {
        r.task.geometry.grid[a] = dims == 1 ? 16 : 8;
        r.points *= r.task.geometry.grid[a];
    }
    for (int t = 0; t < TRAJECTORIES; t++) {
        for (int f = 0; f <= FRAMES; f++) {
            for (int64_t p = 0; p < r.points; p++) {
                const int64_t at[2] = {dims == 1 ? p : p / 8, p % 8};
                for (int c = 0; c < channels; c++) r.truth[t][f][p * channels + c] = field(t, f, at, c);
            }
            if (f > 0) memcpy(r.predicted[t][f - 1], r.truth[t][f], sizeof r.predicted[t][f - 1]);
        }
    }
}

static float *at(int t, int f, int64_t point, int c) {
    return &r.predicted[t][f][point * r.channels + c];
}

/* Of trajectories that are packed as the library takes them. */
static void pack(float (*frames)[MOST_POINTS * MOST_CHANNELS], int count, float *out) {
    const int64_t elements = r.points * r.channels;
    for (int f = 0; f < count; f++) memcpy(out + f * elements, frames[f], (size_t)elements * sizeof *out);
}

static void score(void) {
    static float predicted[FRAMES * MOST_POINTS * MOST_CHANNELS], truth[(FRAMES + 1) * MOST_POINTS * MOST_CHANNELS];
    const ups_run_config config = {0};
    const double time[FRAMES + 1] = {0, 1, 2, 3, 4};
    const ups_sample *geometry = &r.task.geometry;
    const ups_rollout_shape shape = {.dims = geometry->dims,
                                     .grid = {geometry->grid[0], geometry->grid[1], 1},
                                     .channels = r.channels,
                                     .frames = FRAMES};
    int64_t velocity[UPS_MAX_GRID_DIMS];
    ups_rollout_scores_destroy(scores);
    ups_gates_destroy(gates);
    scores = NULL;
    gates = NULL;
    ok(ups_rollout_scores_create(&shape, &scores, &failure));
    const bool flows = ups_gates_find_velocity(&config, &r.task, velocity);
    ok(ups_gates_create(&r.task, FRAMES, flows ? velocity : NULL, &gates, &failure));
    for (int t = 0; t < TRAJECTORIES; t++) {
        pack(r.predicted[t], FRAMES, predicted);
        pack(r.truth[t], FRAMES + 1, truth);
        const float *const forecasts[UPS_FORECASTS] = {predicted, predicted, predicted};
        ok(ups_rollout_scores_add(scores, forecasts, truth, time, 0, &failure));
        ok(ups_gates_add(gates, predicted, truth, 0, &failure));
    }
}

static int release(void **state) {
    ups_rollout_scores_destroy(scores);
    ups_gates_destroy(gates);
    scores = NULL;
    gates = NULL;
    return 0;
}

static ups_gate_result judge(int gate, double limit) {
    return ups_gates_judge(gates, scores, all, gate, limit);
}

/* Its number is `value` to a millionth; a limit above passes, one below fails. */
static ups_gate_result expect(int gate, double value, int64_t trajectory, int64_t channel, int64_t frame) {
    const ups_gate_result passes = judge(gate, value * 1.00001), fails = judge(gate, value * 0.99999);
    if (!(fabs(passes.value - value) <= 1e-6 * value))
        fail_msg("%s: %.9g where %.9g is right", ups_gate_names[gate], passes.value, value);
    assert_int_equal(passes.state, UPS_GATE_PASSES);
    assert_int_equal(fails.state, UPS_GATE_FAILS);
    assert_int_equal(fails.trajectory, trajectory);
    assert_int_equal(fails.channel, channel);
    assert_int_equal(fails.frame, frame);
    return fails;
}

static void expect_none(int gate, const char *reason) {
    const ups_gate_result result = judge(gate, 1e-9);
    assert_int_equal(result.state, UPS_GATE_DOES_NOT_APPLY);
    assert_true(isnan(result.value));
    assert_string_equal(result.reason, reason);
}

/* ---- one field -------------------------------------------------------------------------------------------------- */

/* A wave of height 1 about 2 that travels: mean 2, least 1, largest 3, root mean square √4.5 in every frame. */
static float wave(int t, int f, const int64_t x[2], int c) {
    return 2 + (float)sin(2 * M_PI * ((double)x[0] + f + t) / 16);
}
static const double wave_rms = 2.1213203435596424;

CLAIM(a_perfect_rollout_has_no_number_above_zero) {
    make(1, 1, false, wave);
    score();
    for (int gate = UPS_GATE_BOUNDED; gate < UPS_GATE_DIVERGENCE; gate++) {
        const ups_gate_result result = judge(gate, 1e-12);
        assert_int_equal(result.state, UPS_GATE_PASSES);
        assert_true(result.value == 0);
        assert_int_equal(result.trajectory, 0); /* of equals the first */
    }
    expect_none(UPS_GATE_DIVERGENCE, "the domain has one axis");
}

CLAIM(a_mean_that_drifts_fails_conservation_by_how_far_it_does) {
    make(1, 1, true, wave);
    for (int f = 0; f < FRAMES; f++) { /* 0.1 and more in the second trajectory, back in the last frame */
        for (int64_t p = 0; p < r.points; p++) *at(1, f, p, 0) += f < 3 ? 0.1f * (float)(f + 1) : 0;
    }
    for (int64_t p = 0; p < r.points; p++) *at(2, 0, p, 0) -= 0.25f;
    score();
    expect(UPS_GATE_CONSERVATION, 0.3f / wave_rms, 1, 0, 2);
}

/* In one trajectory of three the mean moves: by `moved` of 2.12 / √3 = 3.7, root mean square over trajectories. */
static float moved;
static float source(int t, int f, const int64_t x[2], int c) {
    return wave(t, f, x, c) + (t == 1 && f == 2 ? moved : 0);
}

CLAIM(what_the_data_do_not_conserve_no_prediction_has_to) {
    moved = 0.9f * 3.674f * (float)UPS_CONSERVED_WITHIN;
    make(1, 1, true, source);
    for (int64_t p = 0; p < r.points; p++) *at(0, 0, p, 0) += 1;
    score();
    expect(UPS_GATE_CONSERVATION, 1 / wave_rms, 0, 0, 0);
    moved = 1.1f * 3.674f * (float)UPS_CONSERVED_WITHIN;
    make(1, 1, true, source);
    for (int64_t p = 0; p < r.points; p++) *at(0, 0, p, 0) += 1;
    score();
    expect_none(UPS_GATE_CONSERVATION, "the data conserve no field's mean");
    assert_int_equal(judge(UPS_GATE_BOUNDED, 0.1).state, UPS_GATE_FAILS);
}

CLAIM(values_below_zero_are_told_by_their_depth_and_their_share) {
    make(1, 1, true, wave);
    *at(0, 1, 3, 0) = -0.5f;
    *at(2, 3, 5, 0) = -0.125f;
    *at(2, 3, 6, 0) = -0.125f;
    score();
    expect(UPS_GATE_POSITIVITY, 0.5 / wave_rms, 0, 0, 1);
    expect(UPS_GATE_NEGATIVE_SHARE, 2.0 / (FRAMES * 16), 2, 0, -1);
    r.truth[1][0][7] = -1e-6f; /* a given frame alone */
    score();
    expect_none(UPS_GATE_POSITIVITY, "every field is negative somewhere in the data");
    expect_none(UPS_GATE_NEGATIVE_SHARE, "every field is negative somewhere in the data");
}

CLAIM(the_border_is_the_outermost_points_and_a_periodic_domain_has_none) {
    make(1, 1, false, wave);
    for (int f = 0; f < FRAMES; f++) {
        *at(1, f, 0, 0) += 0.3f;  /* one of two */
        *at(1, f, 8, 0) += 10.0f; /* within: nothing to it */
    }
    score();
    expect(UPS_GATE_BOUNDARY, 0.3f / sqrt(2) / wave_rms, 1, 0, -1);
    make(1, 1, true, wave);
    score();
    expect_none(UPS_GATE_BOUNDARY, "the domain is periodic and has no border");
}

/* Trajectory t lies 4t higher: the data reach from 1 to 11. */
static float levels(int t, int f, const int64_t x[2], int c) {
    return wave(t, f, x, c) + 4 * (float)t;
}

CLAIM(bounded_is_held_against_the_range_of_all_data_not_of_a_trajectorys_own) {
    make(1, 1, true, levels);
    *at(0, 2, 4, 0) = 10.5f; /* far from its own data, within those of another */
    *at(1, 0, 4, 0) = 12.0f;
    *at(1, 3, 9, 0) = -1.5f;
    score();
    expect(UPS_GATE_BOUNDED, 2.5 / 10, 1, 0, 3);
    *at(2, 1, 0, 0) = 14;
    score();
    expect(UPS_GATE_BOUNDED, 3.0 / 10, 2, 0, 1);
}

CLAIM(what_is_not_finite_fails_every_gate_from_the_frame_on_where_it_begins) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        make(1, 1, false, wave);
        *at(1, 3, 0, 0) = 1e30f;
        for (int f = 2; f < FRAMES; f++) *at(1, f, 5, 0) = bad[i];
        score();
        for (int gate = UPS_GATE_BOUNDED; gate < UPS_GATE_DIVERGENCE; gate++) {
            const ups_gate_result result = judge(gate, 1e9);
            assert_int_equal(result.state, UPS_GATE_FAILS);
            assert_true(isinf(result.value));
            assert_int_equal(result.trajectory, 1);
            assert_int_equal(result.frame, 2);
        }
    }
}

CLAIM(a_limit_of_zero_switches_a_gate_off) {
    make(1, 1, true, wave);
    *at(0, 0, 0, 0) = 100;
    score();
    const ups_gate_result result = judge(UPS_GATE_BOUNDED, 0);
    assert_int_equal(result.state, UPS_GATE_OFF);
    assert_true(isnan(result.value) && !result.reason);
}

/* ---- several fields, in 2D -------------------------------------------------------------------------------------- */

/* Density 3, and the shear (sin y, sin x) of amplitude 2, free of divergence whatever the differences. The third
 * trajectory is at rest. */
static float shear(int t, int f, const int64_t x[2], int c) {
    const double amplitude = t == 2 ? 0 : 2;
    if (c == 0) return 3 + 0.001f * (float)(f == 2 ? x[0] - 3.5 : 0);
    return (float)(amplitude * sin(2 * M_PI * (double)x[c == 1] / 8));
}

/* Adds `height` cos(4πx/8) to the velocity along x. Central differences make cosines of it, sin(4π/8) = 1 times as
 * high: div has a root mean square of height / √2. The truth's gradient has two derivatives of 2 sin(2π/8) / √2 = 1. */
static void compress(int t, float height) {
    for (int f = 0; f < FRAMES; f++) {
        for (int64_t p = 0; p < r.points; p++) *at(t, f, p, 1) += height * (float)cos(4 * M_PI * (double)(p / 8) / 8);
    }
}

CLAIM(divergence_is_a_share_of_the_velocitys_gradient) {
    make(2, 3, true, shear);
    compress(0, 0.1f);
    compress(1, -0.4f);
    compress(2, 5); /* whose truth has no gradient to be a share of */
    score();
    expect(UPS_GATE_DIVERGENCE, 0.4f / 2, 1, -1, -1);
    *at(0, 3, 20, 2) = NAN;
    score();
    assert_true(isinf(judge(UPS_GATE_DIVERGENCE, 1e9).value));
}

/* By definition, on the inner points; the coordinates stand 0.25 and 1 apart. */
static double divergence_within(int t) {
    double error = 0, gradient = 0;
    for (int f = 0; f < FRAMES; f++) {
        for (int i = 1; i < 7; i++) {
            for (int j = 1; j < 7; j++) {
                double div = 0;
                for (int a = 0; a < 2; a++) {
                    const int step = a == 0 ? 8 : 1, p = i * 8 + j;
                    for (int b = 0; b < 2; b++) {
                        const int after = (p + step) * 3 + 1 + b, before = (p - step) * 3 + 1 + b;
                        const double twice = a == 0 ? 0.5 : 2;
                        const double u = ((double)r.truth[t][f + 1][after] - r.truth[t][f + 1][before]) / twice;
                        const double v = ((double)r.predicted[t][f][after] - r.predicted[t][f][before]) / twice;
                        gradient += u * u;
                        if (a == b) div += v - u;
                    }
                }
                error += div * div;
            }
        }
    }
    return sqrt(error / gradient);
}

CLAIM(between_walls_divergence_is_that_of_inner_points_by_the_grids_own_spacing) {
    const double x[8] = {0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75}, y[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    make(2, 3, false, shear);
    r.task.geometry.coordinates[0] = x;
    r.task.geometry.coordinates[1] = y;
    compress(1, 0.4f);
    *at(0, 1, 3, 1) += 40; /* on the border, and felt by its neighbour within */
    score();
    assert_true(divergence_within(0) > divergence_within(1));
    expect(UPS_GATE_DIVERGENCE, divergence_within(0), 0, -1, -1);
}

static float sound(int t, int f, const int64_t x[2], int c) {
    return c == 0 ? 3 : (float)sin(2 * M_PI * (double)x[c == 1 ? 0 : 1] / 8 + f);
}

CLAIM(a_compressible_flow_and_a_field_without_velocity_have_no_divergence_to_be_judged) {
    make(2, 3, true, sound);
    score();
    expect_none(UPS_GATE_DIVERGENCE, "the data's own velocity is not free of divergence");
    make(2, 1, true, shear);
    score();
    expect_none(UPS_GATE_DIVERGENCE,
                "no field along each axis is known as velocity (operator.losses.divergence.fields)");
}

CLAIM(each_gate_is_of_the_fields_that_it_holds_for_and_of_no_other) {
    make(2, 3, false, shear);
    for (int f = 0; f < FRAMES; f++) {
        for (int64_t p = 0; p < r.points; p++) *at(0, f, p, 0) += 0.03f; /* the density's mean, of rms 3 */
        *at(1, f, 9, 2) = -1;                                            /* a velocity may be negative */
    }
    score();
    int64_t trajectory, frame;
    assert_true(fabs(ups_gates_worst(gates, scores, UPS_GATE_CONSERVATION, 0, &trajectory, &frame) - 0.01) < 1e-6);
    assert_true(judge(UPS_GATE_POSITIVITY, 1).value == 0);
    assert_true(isnan(ups_gates_worst(gates, scores, UPS_GATE_POSITIVITY, 1, &trajectory, &frame)));
    /* A field that is not asked for is not judged. */
    const bool density[MOST_CHANNELS] = {true, false, false}, velocity[MOST_CHANNELS] = {false, true, false};
    assert_int_equal(ups_gates_judge(gates, scores, density, UPS_GATE_BOUNDARY, 1).channel, 0);
    assert_true(ups_gates_judge(gates, scores, velocity, UPS_GATE_BOUNDARY, 1).value == 0);
    expect(UPS_GATE_BOUNDARY, 0.03f / sqrt(9 + 1e-6 * 5.25 / (FRAMES + 1)), 0, 0, -1);
}

CLAIM(the_velocity_is_what_the_configuration_names_or_what_is_called_so_along_each_axis) {
    static const char *const well[] = {"velocity_y", "pressure", "velocity_x"}, *const own[] = {"w", "p", "v"};
    int64_t velocity[UPS_MAX_GRID_DIMS];
    char *named[] = {"v", "w", "elsewhere"};
    ups_run_config config = {0};
    make(2, 3, true, shear);
    assert_true(ups_gates_find_velocity(&config, &r.task, velocity));
    assert_int_equal(velocity[0], 1);
    assert_int_equal(velocity[1], 2);
    r.source.channel_names = well;
    assert_true(ups_gates_find_velocity(&config, &r.task, velocity));
    assert_int_equal(velocity[0], 2);
    assert_int_equal(velocity[1], 0);
    r.task.geometry.axis_names[0] = "y"; /* as The Well may order them */
    r.task.geometry.axis_names[1] = "x";
    assert_true(ups_gates_find_velocity(&config, &r.task, velocity));
    assert_int_equal(velocity[0], 0);
    assert_int_equal(velocity[1], 2);
    r.source.channel_names = own;
    assert_false(ups_gates_find_velocity(&config, &r.task, velocity));
    config.op.divergence = (ups_field_names){.names = named, .count = 3};
    assert_true(ups_gates_find_velocity(&config, &r.task, velocity));
    assert_int_equal(velocity[0], 2);
    assert_int_equal(velocity[1], 0);
    config.op.divergence.count = 1;
    assert_false(ups_gates_find_velocity(&config, &r.task, velocity));
}

int main(void) {
    return run_claims(NULL, NULL, release);
}
