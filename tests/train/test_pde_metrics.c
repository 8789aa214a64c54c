/* The six metrics against PDEBench's own code, and The Well's VRMSE against its definition. Expected numbers:
 * tests/python/make_metric_golden.py, which runs PDEBench's metric_func on the same arrays (float64). */
#include "base/random.h"
#include "tests/model/claims.h"
#include "train/evaluation/scores/pde_metrics.h"
#include <math.h>

enum { SEED = 7, INITIAL_STEPS = 1 };

typedef struct golden {
    int64_t batch;
    ups_pde_metrics_shape shape; /* times: all of them, the initial one included */
    double whole[8];             /* rmse, nrmse, crmse, max_error, brmse, frmse low, middle, high */
    double last_channel[4];      /* rmse, nrmse, crmse, max_error of the last channel's first scored frame */
    double vrmse[2];             /* of both */
} golden;

static const golden cases[] = {
    {3, /* 1D */
     {1, {32}, 2, 4, {1.0}, false},
     {0.871368438, 1.42764708, 0.30244147, 2.03552357, 0.798535541, 0.182488874, 0.144185036, 0.136462584},
     {0.858469628, 1.48475864, 0.18725652, 2.08576512},
     {1.56670795, 1.64121407}},
    {2, /* 1D, odd */
     {1, {27}, 1, 3, {2.5}, false},
     {0.838161476, 1.27649846, 0.216112423, 1.89785457, 0.878240077, 0.437765181, 0.37965396, 0.394245058},
     {0.842089228, 1.21451841, 0.221064706, 2.04070067},
     {1.45040922, 1.48234319}},
    {2, /* 2D */
     {2, {28, 32}, 2, 3, {1.0, 1.0}, false},
     {0.849184558, 1.36139951, 0.253476858, 2.19582714, 0.835223019, 0.106660746, 0.0987833291, 0.127135843},
     {0.837543575, 1.32939443, 0.233416253, 2.22926062},
     {1.48311743, 1.4642358}},
    {2, /* 2D, oblong */
     {2, {30, 26}, 1, 2, {2.0, 0.75}, false},
     {0.850655588, 1.33974517, 0.26733168, 2.22900432, 0.849257426, 0.164166853, 0.147724658, 0.189748898},
     {0.850655588, 1.33974517, 0.26733168, 2.22900432},
     {1.44508006, 1.44508006}},
    {2, /* 3D */
     {3, {26, 28, 30}, 3, 2, {1.0, 1.0, 1.0}, false},
     {0.854797692, 1.35953983, 0.252336741, 2.23315728, 1.49070049, 0.0795131251, 0.0595422536, 0.0915344954},
     {0.852993187, 1.35823004, 0.251628044, 2.23110551},
     {1.47840366, 1.47525789}},
};

static void assert_near(double found, double expected, double relative) {
    if (!(fabs(found - expected) <= relative * fabs(expected)))
        fail_msg("%.9g was expected, not %.9g", expected, found);
}

static int64_t grid_points(const ups_pde_metrics_shape *shape) {
    int64_t points = 1;
    for (int a = 0; a < shape->dims; a++) points *= shape->grid[a];
    return points;
}

static float *draw(uint32_t item, int64_t count, double offset) {
    float *values = malloc((size_t)count * sizeof(float));
    assert_non_null(values);
    const ups_random stream = ups_random_stream(SEED, UPS_RANDOM_TEST, item);
    for (int64_t i = 0; i < count; i++) values[i] = (float)(2.0 * ups_random_uniform(stream, (uint64_t)i) - offset);
    return values;
}

static ups_pde_metrics *create(const ups_pde_metrics_shape *shape) {
    ups_pde_metrics *metrics = NULL;
    ok(ups_pde_metrics_create(shape, &metrics, &failure));
    return metrics;
}

/* PDEBench keeps (x…, time, channel). */
static ups_pde_metrics_strides pdebench_strides(const ups_pde_metrics_shape *shape) {
    ups_pde_metrics_strides strides = {.channel = 1, .time = shape->channels};
    int64_t step = shape->channels * shape->times;
    for (int a = shape->dims - 1; a >= 0; a--) {
        strides.grid[a] = step;
        step *= shape->grid[a];
    }
    return strides;
}

CLAIM(trajectories_may_have_fewer_points_each) {
    enum { MOST = 37, CHANNELS = 2, TIMES = 3, TRAJECTORIES = 3 };
    const int64_t counts[TRAJECTORIES] = {MOST, 20, 31};
    const ups_pde_metrics_shape all = {
        .dims = 1, .grid = {MOST}, .channels = CHANNELS, .times = TIMES, .scattered = true};
    const ups_pde_metrics_strides strides = ups_pde_metrics_channels_last(&all);
    float *prediction = draw(92, MOST * CHANNELS * TIMES, 0.5), *target = draw(93, MOST * CHANNELS * TIMES, 0.75);
    ups_pde_metrics *metrics = create(&all);
    ups_pde_metrics_values mean = {0};
    double squares[CHANNELS][TIMES] = {{0}}, largest[CHANNELS][TIMES] = {{0}};
    for (int i = 0; i < TRAJECTORIES; i++) {
        ups_pde_metrics_shape few = all;
        few.grid[0] = counts[i];
        ups_pde_metrics *own = create(&few);
        ups_pde_metrics_add(metrics, prediction, target, &strides, counts[i]);
        ups_pde_metrics_add(own, prediction, target, &strides, 0);
        const ups_pde_metrics_values values = ups_pde_metrics_read(own, -1, 0, TIMES);
        mean.rmse += values.rmse / TRAJECTORIES;
        mean.nrmse += values.nrmse / TRAJECTORIES;
        mean.vrmse += values.vrmse / TRAJECTORIES;
        for (int c = 0; c < CHANNELS; c++) {
            for (int t = 0; t < TIMES; t++) {
                const ups_pde_metrics_values one = ups_pde_metrics_read(own, c, t, t + 1);
                squares[c][t] += one.crmse * one.crmse / TRAJECTORIES;
                largest[c][t] = fmax(largest[c][t], one.max_error);
            }
        }
        ups_pde_metrics_destroy(own);
    }
    for (int cell = 0; cell < CHANNELS * TIMES; cell++) {
        mean.crmse += sqrt(squares[cell / TIMES][cell % TIMES]) / (CHANNELS * TIMES);
        mean.max_error += largest[cell / TIMES][cell % TIMES] / (CHANNELS * TIMES);
    }
    const ups_pde_metrics_values found = ups_pde_metrics_read(metrics, -1, 0, TIMES);
    assert_true(fabs(found.rmse - mean.rmse) < 1e-12);
    assert_true(fabs(found.nrmse - mean.nrmse) < 1e-12);
    assert_true(fabs(found.vrmse - mean.vrmse) < 1e-12);
    assert_true(fabs(found.crmse - mean.crmse) < 1e-12);
    assert_true(fabs(found.max_error - mean.max_error) < 1e-12);
    ups_pde_metrics_destroy(metrics);
    free(prediction);
    free(target);
}

CLAIM(points_that_lie_anywhere_have_all_but_what_needs_a_grid) {
    const ups_pde_metrics_shape line = {.dims = 1, .grid = {37}, .channels = 2, .times = 3};
    ups_pde_metrics_shape anywhere = line;
    anywhere.scattered = true;
    float *prediction = draw(90, 37 * 2 * 3, 0.5), *target = draw(91, 37 * 2 * 3, 0.75);
    const ups_pde_metrics_strides strides = ups_pde_metrics_channels_last(&line);
    ups_pde_metrics *of_line = create(&line), *of_points = create(&anywhere);
    ups_pde_metrics_add(of_line, prediction, target, &strides, 0);
    ups_pde_metrics_add(of_points, prediction, target, &strides, 0);
    const ups_pde_metrics_values a = ups_pde_metrics_read(of_line, -1, 0, 3),
                                 b = ups_pde_metrics_read(of_points, -1, 0, 3);
    assert_true(a.rmse == b.rmse && a.nrmse == b.nrmse && a.vrmse == b.vrmse && a.crmse == b.crmse);
    assert_true(a.max_error == b.max_error && isnan(b.brmse) && !isnan(a.brmse));
    for (int band = 0; band < UPS_FREQUENCY_BANDS; band++) assert_true(isnan(b.frmse[band]) && !isnan(a.frmse[band]));
    ups_pde_metrics_destroy(of_line);
    ups_pde_metrics_destroy(of_points);
    free(prediction);
    free(target);
}

CLAIM(all_six_metrics_equal_pdebench_in_1d_2d_and_3d) {
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const golden *g = &cases[i];
        const int64_t size = grid_points(&g->shape) * g->shape.times * g->shape.channels;
        float *prediction = draw(2 * i, g->batch * size, 0.5), *target = draw(2 * i + 1, g->batch * size, 0.75);
        const ups_pde_metrics_strides strides = pdebench_strides(&g->shape);
        ups_pde_metrics_shape scored = g->shape;
        scored.times -= INITIAL_STEPS;
        ups_pde_metrics *metrics = create(&scored);
        for (int64_t b = 0; b < g->batch; b++) {
            const int64_t start = b * size + INITIAL_STEPS * strides.time;
            ups_pde_metrics_add(metrics, prediction + start, target + start, &strides, 0);
        }
        ups_pde_metrics_values v = ups_pde_metrics_read(metrics, -1, 0, scored.times);
        const double found[8] = {v.rmse, v.nrmse, v.crmse, v.max_error, v.brmse, v.frmse[0], v.frmse[1], v.frmse[2]};
        for (int m = 0; m < 8; m++) assert_near(found[m], g->whole[m], 2e-6);
        assert_near(v.vrmse, g->vrmse[0], 1e-8);
        assert_int_equal(v.trajectories, g->batch);

        v = ups_pde_metrics_read(metrics, g->shape.channels - 1, 0, 1);
        assert_near(v.rmse, g->last_channel[0], 1e-7);
        assert_near(v.nrmse, g->last_channel[1], 1e-7);
        assert_near(v.crmse, g->last_channel[2], 1e-7);
        assert_near(v.max_error, g->last_channel[3], 1e-7);
        assert_near(v.vrmse, g->vrmse[1], 1e-8);
        ups_pde_metrics_destroy(metrics);
        free(prediction);
        free(target);
    }
}

CLAIM(channels_first_and_channels_last_give_the_same_metrics) {
    const ups_pde_metrics_shape shape = {.dims = 2, .grid = {24, 26}, .channels = 3, .times = 2};
    const int64_t points = grid_points(&shape), size = points * shape.channels * shape.times;
    float *prediction = draw(100, size, 1.0), *target = draw(101, size, 1.0);
    float *moved_prediction = malloc((size_t)size * sizeof(float)),
          *moved_target = malloc((size_t)size * sizeof(float));
    assert_non_null(moved_prediction);
    assert_non_null(moved_target);
    for (int64_t t = 0; t < shape.times; t++) {
        for (int64_t p = 0; p < points; p++) {
            for (int64_t c = 0; c < shape.channels; c++) {
                const int64_t last = (t * points + p) * shape.channels + c,
                              first = (t * shape.channels + c) * points + p;
                moved_prediction[first] = prediction[last];
                moved_target[first] = target[last];
            }
        }
    }
    ups_pde_metrics *last = create(&shape), *first = create(&shape);
    const ups_pde_metrics_strides last_strides = ups_pde_metrics_channels_last(&shape),
                                  first_strides = ups_pde_metrics_channels_first(&shape);
    ups_pde_metrics_add(last, prediction, target, &last_strides, 0);
    ups_pde_metrics_add(first, moved_prediction, moved_target, &first_strides, 0);
    const ups_pde_metrics_values a = ups_pde_metrics_read(last, -1, 0, 2), b = ups_pde_metrics_read(first, -1, 0, 2);
    assert_memory_equal(&a, &b, sizeof(a));
    assert_true(a.rmse > 0);
    ups_pde_metrics_destroy(last);
    ups_pde_metrics_destroy(first);
    free(prediction);
    free(target);
    free(moved_prediction);
    free(moved_target);
}

CLAIM(a_perfect_prediction_scores_zero_everywhere) {
    const ups_pde_metrics_shape shape = {.dims = 1, .grid = {64}, .channels = 1, .times = 5};
    float *target = draw(102, 64 * 5, 1.0);
    ups_pde_metrics *metrics = create(&shape);
    const ups_pde_metrics_strides strides = ups_pde_metrics_channels_last(&shape);
    ups_pde_metrics_add(metrics, target, target, &strides, 0);
    const ups_pde_metrics_values v = ups_pde_metrics_read(metrics, -1, 0, 5);
    const double found[8] = {v.rmse, v.nrmse, v.crmse, v.max_error, v.brmse, v.frmse[0], v.frmse[1], v.frmse[2]};
    for (int m = 0; m < 8; m++) assert_true(found[m] == 0.0);
    assert_true(v.vrmse == 0.0);
    ups_pde_metrics_destroy(metrics);
    free(target);
}

CLAIM(a_single_wave_of_error_is_found_in_its_own_band) {
    enum { N = 64, WAVE = 6 };
    const ups_pde_metrics_shape shape = {.dims = 1, .grid = {N}, .channels = 1, .times = 1};
    float prediction[N], target[N];
    for (int i = 0; i < N; i++) {
        target[i] = 1.0f;
        prediction[i] = 1.0f + 0.5f * (float)cos(2.0 * M_PI * WAVE * i / N);
    }
    ups_pde_metrics *metrics = create(&shape);
    const ups_pde_metrics_strides strides = ups_pde_metrics_channels_last(&shape);
    ups_pde_metrics_add(metrics, prediction, target, &strides, 0);
    const ups_pde_metrics_values v = ups_pde_metrics_read(metrics, -1, 0, 1);
    /* A cosine of amplitude 1/2 has a coefficient N/4 at its wave number; the middle band has eight wave numbers. */
    assert_near(v.frmse[UPS_FREQUENCY_MIDDLE], 0.25 / 8, 1e-5);
    assert_true(v.frmse[UPS_FREQUENCY_LOW] < 1e-7 && v.frmse[UPS_FREQUENCY_HIGH] < 1e-7);
    assert_true(v.crmse < 1e-7);
    assert_near(v.rmse, 0.5 / sqrt(2.0), 1e-6);
    ups_pde_metrics_destroy(metrics);
}

CLAIM(a_window_of_frames_is_the_mean_of_its_frames) {
    const ups_pde_metrics_shape shape = {.dims = 1, .grid = {32}, .channels = 2, .times = 6};
    float *prediction = draw(103, 32 * 2 * 6, 1.0), *target = draw(104, 32 * 2 * 6, 1.0);
    ups_pde_metrics *metrics = create(&shape);
    const ups_pde_metrics_strides strides = ups_pde_metrics_channels_last(&shape);
    ups_pde_metrics_add(metrics, prediction, target, &strides, 0);
    double rmse = 0, largest = 0, middle = 0;
    for (int t = 1; t < 4; t++) {
        const ups_pde_metrics_values v = ups_pde_metrics_read(metrics, -1, t, t + 1);
        rmse += v.rmse / 3;
        largest += v.max_error / 3;
        middle += v.frmse[UPS_FREQUENCY_MIDDLE] / 3;
    }
    const ups_pde_metrics_values window = ups_pde_metrics_read(metrics, -1, 1, 4);
    assert_near(window.rmse, rmse, 1e-12);
    assert_near(window.max_error, largest, 1e-12);
    assert_near(window.frmse[UPS_FREQUENCY_MIDDLE], middle, 1e-12);
    ups_pde_metrics_destroy(metrics);
    free(prediction);
    free(target);
}

/* The Well's eps is in the root: a target without variance is divided by it, and no digit is lost to a large mean. */
CLAIM(vrmse_of_a_target_that_hardly_varies_is_finite_and_exact) {
    enum { N = 4 };
    const ups_pde_metrics_shape shape = {.dims = 1, .grid = {N}, .channels = 1, .times = 2};
    const float target[2 * N] = {1000, 1000, 1000, 1000, 4096, 4096, 4096, 4096.5f};
    float prediction[2 * N];
    for (int i = 0; i < 2 * N; i++) prediction[i] = target[i] + 0.5f;
    ups_pde_metrics *metrics = create(&shape);
    const ups_pde_metrics_strides strides = ups_pde_metrics_channels_last(&shape);
    ups_pde_metrics_add(metrics, prediction, target, &strides, 0);
    assert_near(ups_pde_metrics_read(metrics, 0, 0, 1).vrmse, 0.5 / sqrt(1e-7), 1e-12);
    assert_near(ups_pde_metrics_read(metrics, 0, 1, 2).vrmse, 0.5 / sqrt(0.0625 + 1e-7), 1e-12);
    ups_pde_metrics_destroy(metrics);
}

CLAIM(targets_of_zero_are_left_out_of_nrmse_and_counted) {
    enum { N = 16 };
    const ups_pde_metrics_shape shape = {.dims = 1, .grid = {N}, .channels = 1, .times = 2};
    float prediction[2 * N], target[2 * N];
    for (int i = 0; i < 2 * N; i++) {
        target[i] = i < N ? 0.0f : 2.0f; /* the first frame is zero */
        prediction[i] = target[i] + 1.0f;
    }
    ups_pde_metrics *metrics = create(&shape);
    const ups_pde_metrics_strides strides = ups_pde_metrics_channels_last(&shape);
    ups_pde_metrics_add(metrics, prediction, target, &strides, 0);
    const ups_pde_metrics_values v = ups_pde_metrics_read(metrics, -1, 0, 2);
    assert_near(v.nrmse, 0.5, 1e-12);
    assert_near(v.rmse, 1.0, 1e-12);
    assert_int_equal(v.zero_targets, 1);
    ups_pde_metrics_destroy(metrics);
}

CLAIM(a_prediction_that_blew_up_is_not_scored_as_finite) {
    enum { N = 32 };
    const ups_pde_metrics_shape shape = {.dims = 1, .grid = {N}, .channels = 1, .times = 1};
    float *target = draw(105, N, 1.0), *prediction = draw(106, N, 1.0);
    prediction[3] = NAN;
    ups_pde_metrics *metrics = create(&shape);
    const ups_pde_metrics_strides strides = ups_pde_metrics_channels_last(&shape);
    ups_pde_metrics_add(metrics, prediction, target, &strides, 0);
    ups_pde_metrics_add(metrics, target, target, &strides, 0); /* a good one afterwards does not hide it */
    const ups_pde_metrics_values v = ups_pde_metrics_read(metrics, -1, 0, 1);
    assert_true(isnan(v.rmse) && isnan(v.nrmse) && isnan(v.vrmse) && isnan(v.crmse) && isnan(v.max_error) &&
                isnan(v.frmse[0]));
    assert_false(isnan(v.brmse)); /* the point is not on the boundary */
    ups_pde_metrics_destroy(metrics);
    free(target);
    free(prediction);
}

CLAIM(a_grid_too_coarse_for_a_band_gives_nan_as_pdebench_does) {
    enum { N = 16 };
    const ups_pde_metrics_shape shape = {.dims = 1, .grid = {N}, .channels = 1, .times = 1};
    float *target = draw(107, N, 1.0), *prediction = draw(108, N, 1.0);
    ups_pde_metrics *metrics = create(&shape);
    assert_true(isnan(ups_pde_metrics_read(metrics, -1, 0, 1).rmse)); /* nothing added yet */
    const ups_pde_metrics_strides strides = ups_pde_metrics_channels_last(&shape);
    ups_pde_metrics_add(metrics, prediction, target, &strides, 0);
    const ups_pde_metrics_values v = ups_pde_metrics_read(metrics, -1, 0, 1);
    assert_true(isfinite(v.frmse[UPS_FREQUENCY_LOW]) && isfinite(v.frmse[UPS_FREQUENCY_MIDDLE]));
    assert_true(isnan(v.frmse[UPS_FREQUENCY_HIGH]));
    ups_pde_metrics_destroy(metrics);
    free(target);
    free(prediction);
}

CLAIM(impossible_shapes_are_refused_with_a_sentence) {
    const ups_pde_metrics_shape wrong[] = {
        {.dims = 4, .grid = {8, 8, 8}, .channels = 1, .times = 1},
        {.dims = 2, .grid = {8, 0}, .channels = 1, .times = 1},
        {.dims = 1, .grid = {8}, .channels = 0, .times = 1},
        {.dims = 1, .grid = {8}, .channels = 1, .times = 0},
        {.dims = 2, .grid = {1 << 20, 1 << 20}, .channels = 1, .times = 1},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ups_pde_metrics *metrics = NULL;
        assert_int_equal(ups_pde_metrics_create(&wrong[i], &metrics, &failure), UPS_ERR_ARGUMENT);
        assert_null(metrics);
        assert_contains(failure.message, "expected");
    }
}

int main(void) {
    return run_claims(NULL, NULL, NULL);
}
