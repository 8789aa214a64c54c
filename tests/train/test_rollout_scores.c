/* Scores of rollouts over time against their definitions, computed here one value at a time; spectra against a Fourier
 * transform by its formula. */
#include "base/random.h"
#include "tests/model/claims.h"
#include "train/evaluation/scores/rollout_scores.h"
#include "train/evaluation/scores/spectrum.h"
#include <math.h>

enum { SEED = 11 };

static void draw(uint32_t item, int64_t count, double offset, float *values) {
    const ups_random stream = ups_random_stream(SEED, UPS_RANDOM_TEST, item);
    for (int64_t i = 0; i < count; i++) values[i] = (float)(ups_random_uniform(stream, (uint64_t)i) + offset);
}

static void assert_near(double found, double expected, double allowed) {
    if (!(fabs(found - expected) <= allowed)) fail_msg("%.9g where %.9g is right", found, expected);
}

/* ---- spectra --------------------------------------------------------------------------------------------------- */

static int signed_waves(int i, int n) {
    return i <= n / 2 ? i : i - n;
}

/* E(k) by the formula in spectrum.h. */
static double energy_by_definition(const int n[3], const float *field, int stride, int k) {
    double energy = 0;
    const int points = n[0] * n[1] * n[2];
    for (int c = 0; c < points; c++) {
        const int a = signed_waves(c / (n[1] * n[2]), n[0]), b = signed_waves(c / n[2] % n[1], n[1]),
                  d = signed_waves(c % n[2], n[2]);
        const double radius = sqrt((double)(a * a + b * b + d * d));
        if (radius < k - 0.5 || radius >= k + 0.5) continue;
        double re = 0, im = 0;
        for (int p = 0; p < points; p++) {
            const int x = p / (n[1] * n[2]), y = p / n[2] % n[1], z = p % n[2];
            const double phase = 2 * M_PI * ((double)a * x / n[0] + (double)b * y / n[1] + (double)d * z / n[2]);
            re += field[p * stride] * cos(phase) / points;
            im -= field[p * stride] * sin(phase) / points;
        }
        energy += re * re + im * im;
    }
    return energy;
}

CLAIM(spectra_equal_their_definition_in_1d_2d_and_3d) {
    static const struct {
        int dims, grid[3];
    } cases[] = {{1, {12, 1, 1}}, {1, {9, 1, 1}}, {2, {8, 6, 1}}, {2, {5, 7, 1}}, {3, {4, 6, 5}}, {1, {1, 1, 1}}};
    float values[2 * 120];
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int *n = cases[i].grid;
        const int64_t grid[3] = {n[0], n[1], n[2]};
        draw(i, (int64_t)2 * n[0] * n[1] * n[2], 3, values);
        ups_spectrum *spectrum = NULL;
        ok(ups_spectrum_create(cases[i].dims, grid, &spectrum, &failure));
        double energy[8] = {0};
        int shortest = n[0];
        for (int a = 1; a < cases[i].dims; a++) shortest = n[a] < shortest ? n[a] : shortest;
        assert_int_equal(ups_spectrum_shells(spectrum), shortest / 2 + 1);
        ups_spectrum_add(spectrum, values + 1, 2, energy); /* the second of two fields */
        for (int k = 0; k <= shortest / 2; k++)
            assert_near(energy[k], energy_by_definition(n, values + 1, 2, k), 1e-7 * energy[0]);
        ups_spectrum_destroy(spectrum);
    }
}

CLAIM(shells_in_1d_are_the_mean_square_together_and_a_small_wave_beside_a_large_mean_keeps_its_digits) {
    enum { N = 64, WAVE = 6 };
    float field[N];
    double squares = 0, energy[N / 2 + 1] = {0}, sum = 0;
    const int64_t grid[1] = {N};
    for (int i = 0; i < N; i++) {
        field[i] = 1000 + 0.125f * (float)cos(2 * M_PI * WAVE * i / N);
        squares += (double)field[i] * field[i] / N;
    }
    ups_spectrum *spectrum = NULL;
    ok(ups_spectrum_create(1, grid, &spectrum, &failure));
    ups_spectrum_add(spectrum, field, 1, energy);
    for (int k = 0; k <= N / 2; k++) sum += energy[k];
    assert_near(sum, squares, 1e-9 * squares);
    assert_near(energy[WAVE], 0.125 * 0.125 / 2, 1e-5); /* float32 itself has no more of it */
    ups_spectrum_destroy(spectrum);
    refused(ups_spectrum_create(4, grid, &spectrum, &failure), UPS_ERR_ARGUMENT, "1, 2 or 3 was expected");
    refused(ups_spectrum_create(1, (int64_t[]){0}, &spectrum, &failure), UPS_ERR_ARGUMENT, "axis 0 has 0 points");
}

/* ---- scores ---------------------------------------------------------------------------------------------------- */

enum { TRAJECTORIES = 5, FRAMES = 4, POINTS = 12, CHANNELS = 2, ELEMENTS = POINTS * CHANNELS };

/* Forecasts and truth of TRAJECTORIES, with the last given frame before the truth's. */
typedef struct rollouts {
    float forecast[TRAJECTORIES][UPS_FORECASTS][FRAMES][POINTS][CHANNELS];
    float truth[TRAJECTORIES][FRAMES + 1][POINTS][CHANNELS];
    double time[TRAJECTORIES][FRAMES + 1];
} rollouts;

static rollouts r;
static const bool both[CHANNELS] = {true, true}, second[CHANNELS] = {false, true};

static void fill(void) {
    draw(100, sizeof r.truth / sizeof(float), -0.25, &r.truth[0][0][0][0]);
    draw(101, sizeof r.forecast / sizeof(float), -0.25, &r.forecast[0][0][0][0][0]);
    for (int i = 0; i < TRAJECTORIES; i++) {
        for (int f = 0; f <= FRAMES; f++) r.time[i][f] = 3 + 0.5 * f + 0.01 * i * f * f;
        for (int f = 0; f < FRAMES; f++) { /* the model follows the truth, later frames less */
            for (int e = 0; e < ELEMENTS; e++) {
                float *p = &r.forecast[i][0][f][0][0] + e, u = (&r.truth[i][f + 1][0][0])[e];
                *p = u + 0.15f * (float)(f + i) * *p;
            }
        }
    }
}

static ups_rollout_scores *score(void) {
    ups_rollout_scores *scores = NULL;
    const ups_rollout_shape shape = {.dims = 1, .grid = {POINTS}, .channels = CHANNELS, .frames = FRAMES};
    ok(ups_rollout_scores_create(&shape, &scores, &failure));
    for (int i = 0; i < TRAJECTORIES; i++) {
        const float *forecasts[UPS_FORECASTS];
        for (int k = 0; k < UPS_FORECASTS; k++) forecasts[k] = &r.forecast[i][k][0][0][0];
        ok(ups_rollout_scores_add(scores, forecasts, &r.truth[i][0][0][0], r.time[i], 0, &failure));
    }
    assert_int_equal(ups_rollout_scores_count(scores), TRAJECTORIES);
    return scores;
}

static double mean_of(float values[POINTS][CHANNELS], int c) {
    double sum = 0;
    for (int p = 0; p < POINTS; p++) sum += (double)values[p][c] / POINTS;
    return sum;
}

static double nrmse_of(int i, int f, int c) {
    double squares = 0, truth = 0;
    for (int p = 0; p < POINTS; p++) {
        const double u = r.truth[i][f + 1][p][c], e = r.forecast[i][0][f][p][c] - u;
        squares += e * e;
        truth += u * u;
    }
    return sqrt(squares / truth);
}

static double correlation_of(int i, int k, int f, int c) {
    const double p0 = mean_of(r.forecast[i][k][f], c), u0 = mean_of(r.truth[i][f + 1], c);
    double pu = 0, pp = 0, uu = 0;
    for (int x = 0; x < POINTS; x++) {
        const double p = r.forecast[i][k][f][x][c] - p0, u = r.truth[i][f + 1][x][c] - u0;
        pu += p * u;
        pp += p * p;
        uu += u * u;
    }
    return pu / sqrt(pp * uu);
}

static double rms_of(int i, int c) {
    double squares = 0;
    for (int f = 0; f <= FRAMES; f++) {
        for (int p = 0; p < POINTS; p++) squares += (double)r.truth[i][f][p][c] * r.truth[i][f][p][c];
    }
    return sqrt(squares / ((FRAMES + 1) * POINTS));
}

CLAIM(errors_correlations_and_changes_of_means_equal_their_definitions) {
    fill();
    ups_rollout_scores *scores = score();
    for (int i = 0; i < TRAJECTORIES; i++) {
        double whole = 0;
        for (int f = 0; f < FRAMES; f++) {
            whole += nrmse_of(i, f, 0) / (2 * FRAMES) + nrmse_of(i, f, 1) / (2 * FRAMES);
            assert_near(ups_rollout_nrmse_at(scores, second, i, f), nrmse_of(i, f, 1), 1e-7);
            assert_near(ups_rollout_nrmse_at(scores, both, i, f), (nrmse_of(i, f, 0) + nrmse_of(i, f, 1)) / 2, 1e-7);
        }
        assert_near(ups_rollout_nrmse(scores, both, i), whole, 1e-7);
    }
    for (int f = 0; f < FRAMES; f++) {
        double time = 0;
        for (int i = 0; i < TRAJECTORIES; i++) time += (r.time[i][f + 1] - r.time[i][0]) / TRAJECTORIES;
        assert_near(ups_rollout_time(scores, f), time, 1e-12);
        for (int k = 0; k < UPS_FORECASTS; k++) {
            double mean = 0;
            for (int i = 0; i < TRAJECTORIES; i++)
                mean += (correlation_of(i, k, f, 0) + correlation_of(i, k, f, 1)) / (2 * TRAJECTORIES);
            assert_near(ups_rollout_correlation(scores, k, both, f), mean, 1e-12);
        }
        double model = 0, truth = 0, difference = 0;
        for (int i = 0; i < TRAJECTORIES; i++) {
            const double first = mean_of(r.truth[i][0], 1),
                         p = (mean_of(r.forecast[i][0][f], 1) - first) / rms_of(i, 1),
                         u = (mean_of(r.truth[i][f + 1], 1) - first) / rms_of(i, 1);
            model += p * p / TRAJECTORIES;
            truth += u * u / TRAJECTORIES;
            difference += (p - u) * (p - u) / TRAJECTORIES;
        }
        const ups_mean_change change = ups_rollout_mean_change(scores, 1, f);
        assert_near(change.model, sqrt(model), 1e-12);
        assert_near(change.truth, sqrt(truth), 1e-12);
        assert_near(change.difference, sqrt(difference), 1e-12);
    }
    ups_rollout_scores_destroy(scores);
}

CLAIM(a_rollout_is_lost_at_the_first_step_whose_correlation_is_below_the_threshold) {
    fill();
    ups_rollout_scores *scores = score();
    const double threshold = 0.8;
    double steps[TRAJECTORIES];
    int lost = 0;
    for (int i = 0; i < TRAJECTORIES; i++) {
        steps[i] = INFINITY;
        for (int f = FRAMES - 1; f >= 0; f--) {
            if ((correlation_of(i, 0, f, 0) + correlation_of(i, 0, f, 1)) / 2 < threshold) steps[i] = f + 1;
        }
        const ups_correlation_time found = ups_rollout_correlation_time_of(scores, both, i, threshold);
        assert_true(found.steps == steps[i]);
        if (isfinite(steps[i])) assert_near(found.time, r.time[i][(int)steps[i]] - r.time[i][0], 1e-12);
        lost += isfinite(steps[i]);
    }
    assert_true(lost > 1 && lost < TRAJECTORIES); /* the data hold both */
    int below = 0, above = 0;
    ups_correlation_time median;
    ok(ups_rollout_correlation_time_median(scores, both, threshold, &median, &failure));
    for (int i = 0; i < TRAJECTORIES; i++) {
        below += steps[i] < median.steps;
        above += steps[i] > median.steps;
    }
    assert_true(below <= TRAJECTORIES / 2 && above <= TRAJECTORIES / 2);
    const ups_correlation_time mean = ups_rollout_correlation_time(scores, UPS_FORECAST_MODEL, both, threshold);
    for (int f = 0; f < FRAMES; f++) {
        const bool is_below = ups_rollout_correlation(scores, UPS_FORECAST_MODEL, both, f) < threshold;
        assert_true(is_below ? mean.steps <= f + 1 : mean.steps != f + 1);
    }
    assert_true(isinf(ups_rollout_correlation_time(scores, UPS_FORECAST_MODEL, both, -1).steps));
    ups_rollout_scores_destroy(scores);
}

CLAIM(truth_that_is_zero_or_constant_is_left_out_and_a_prediction_that_blew_up_is_not) {
    fill();
    for (int p = 0; p < POINTS; p++) {
        r.truth[0][1][p][1] = 0;                          /* frame 0 of trajectory 0 */
        r.truth[1][2][p][1] = 4 + 1e-6f * (float)(p % 2); /* constant, but for rounding */
        r.forecast[2][0][2][p][1] = 7;                    /* a constant prediction */
    }
    r.forecast[3][0][3][5][1] = NAN;
    ups_rollout_scores *scores = score();
    assert_true(isnan(ups_rollout_nrmse_at(scores, second, 0, 0)));
    assert_near(ups_rollout_nrmse_at(scores, both, 0, 0), nrmse_of(0, 0, 0), 1e-7);
    assert_near(ups_rollout_nrmse(scores, second, 0), (nrmse_of(0, 1, 1) + nrmse_of(0, 2, 1) + nrmse_of(0, 3, 1)) / 3,
                1e-7);
    double mean = 0;
    for (int i = 0; i < TRAJECTORIES; i++) mean += i == 1 ? 0 : correlation_of(i, 0, 1, 1) / (TRAJECTORIES - 1);
    assert_near(ups_rollout_correlation(scores, UPS_FORECAST_MODEL, second, 1), mean, 1e-12);
    assert_true(ups_rollout_correlation_time_of(scores, second, 2, 1e-3).steps == 3);
    assert_true(ups_rollout_correlation_time_of(scores, second, 3, 1e-3).steps <= 4);
    assert_true(isinf(ups_rollout_nrmse(scores, second, 3)) && isinf(ups_rollout_nrmse(scores, both, 3)));
    double quantiles[UPS_ROLLOUT_QUANTILES];
    ok(ups_rollout_nrmse_quantiles(scores, second, 3, quantiles, &failure));
    assert_true(isfinite(quantiles[2]) && isinf(quantiles[4])); /* the largest of five is infinite */
    assert_true(isnan(ups_rollout_mean_change(scores, 1, 3).model));
    assert_true(isfinite(ups_rollout_mean_change(scores, 1, 3).truth));
    ups_rollout_scores_destroy(scores);
}

CLAIM(spectra_are_kept_of_the_first_the_middle_and_the_last_frame) {
    fill();
    ups_rollout_scores *scores = score();
    int64_t frames[UPS_ROLLOUT_SPECTRA];
    assert_int_equal(ups_rollout_spectra(scores, frames), 3);
    assert_true(frames[0] == 0 && frames[1] == 1 && frames[2] == 3);
    assert_int_equal(ups_rollout_shells(scores), POINTS / 2 + 1);
    const int grid[3] = {POINTS, 1, 1};
    for (int k = 0; k <= POINTS / 2; k++) {
        double model = 0, truth = 0;
        for (int i = 0; i < TRAJECTORIES; i++) {
            model += energy_by_definition(grid, &r.forecast[i][0][1][0][1], CHANNELS, k) / TRAJECTORIES;
            truth += energy_by_definition(grid, &r.truth[i][2][0][1], CHANNELS, k) / TRAJECTORIES;
        }
        assert_near(ups_rollout_energy(scores, UPS_FORECAST_MODEL, 1, 1, k), model, 1e-6);
        assert_near(ups_rollout_energy(scores, UPS_FORECASTS, 1, 1, k), truth, 1e-6);
    }
    ups_rollout_scores_destroy(scores);
    const ups_rollout_shape single = {.dims = 1, .grid = {POINTS}, .channels = 1, .frames = 1};
    ok(ups_rollout_scores_create(&single, &scores, &failure));
    assert_int_equal(ups_rollout_spectra(scores, frames), 1);
    ups_rollout_scores_destroy(scores);
    refused(ups_rollout_scores_create(&(ups_rollout_shape){.dims = 1, .grid = {8}, .channels = 1}, &scores, &failure),
            UPS_ERR_ARGUMENT, "0 frames");
}

int main(void) {
    return run_claims(NULL, NULL, NULL);
}
