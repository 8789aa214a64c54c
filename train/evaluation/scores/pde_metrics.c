/* See pde_metrics.h. Everything is summed in double over trajectories; roots over trajectories are taken when read. The
 * FFT is kissfft's complex one, of the error itself: the transform is linear, and a small error keeps its digits that
 * way. */
#include "train/evaluation/scores/pde_metrics.h"
#include <kiss_fftnd.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { LOW_END = 4, MIDDLE_END = 12 }; /* wave numbers where the bands end: iLow, iHigh of PDEBench */
enum { NO_BIN = -1 };
static const double least_variance = 1e-7; /* eps of The Well's metrics: what a target without variance is divided by */

/* Sums over trajectories for one (channel, time). */
typedef struct moment {
    double rmse, nrmse, vrmse, boundary;
    double total_square; /* of the error's sum over the grid; of fewer points as if there were all */
    double largest;
    int64_t zero_targets;
} moment;

struct ups_pde_metrics {
    ups_pde_metrics_shape shape;
    int64_t points;          /* of the grid */
    int64_t boundary_points; /* face by face: an edge counts once for each face it is on */
    int64_t bins;            /* wave numbers, or shells of them */
    int64_t trajectories;
    moment *moments;          /* (channel, time) */
    double *power;            /* (channel, time, bin): |FFT(e)|² */
    double *boundary_merged;  /* (time): PDEBench's 3D boundary error, roots of sums over channels */
    double *boundary_squares; /* (time), of the trajectory being added, summed over channels */
    int32_t *bin_of;          /* (points): bin of each Fourier coefficient, or NO_BIN */
    kiss_fftnd_cfg plan;
    kiss_fft_cpx *error_field, *spectrum; /* (points) */
};

/* 1D: every non-negative wave number. 2D, 3D: shells floor(|k|) of the octant 0 <= k_a < n_a/2, up to the shortest
 * axis. */
static void assign_bins(ups_pde_metrics *metrics) {
    const int64_t *n = metrics->shape.grid;
    const int dims = metrics->shape.dims;
    int64_t at = 0;
    for (int64_t i = 0; i < n[0]; i++) {
        for (int64_t j = 0; j < n[1]; j++) {
            for (int64_t k = 0; k < n[2]; k++, at++) {
                if (dims == 1) {
                    metrics->bin_of[at] = i <= n[0] / 2 ? (int32_t)i : NO_BIN;
                    continue;
                }
                const bool in_octant = i < n[0] / 2 && j < n[1] / 2 && (dims == 2 || k < n[2] / 2);
                const int64_t shell = (int64_t)floor(sqrt((double)(i * i + j * j + k * k)));
                metrics->bin_of[at] = in_octant && shell < metrics->bins ? (int32_t)shell : NO_BIN;
            }
        }
    }
}

ups_status ups_pde_metrics_create(const ups_pde_metrics_shape *shape, ups_pde_metrics **metrics, ups_error *error) {
    if (shape->dims < 1 || shape->dims > 3) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "metrics: a grid of %d dimensions; 1, 2 or 3 was expected",
                        shape->dims);
    }
    if (shape->channels < 1 || shape->times < 1) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "metrics: %lld channels and %lld frames to score; at least one of each was expected",
                        (long long)shape->channels, (long long)shape->times);
    }
    ups_pde_metrics *made = calloc(1, sizeof(*made));
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "metrics: out of memory");
    made->shape = *shape;
    made->points = 1;
    int dims[3];
    for (int a = 0; a < 3; a++) {
        if (a >= shape->dims) made->shape.grid[a] = 1;
        if (made->shape.length[a] == 0.0 || a >= shape->dims) made->shape.length[a] = 1.0;
        const int64_t n = made->shape.grid[a];
        if (n < 1 || n > INT32_MAX || made->points > INT32_MAX / n) {
            free(made);
            return ups_fail(error, UPS_ERR_ARGUMENT,
                            "metrics: axis %d has %lld points; 1 to 2^31-1 in all were expected", a, (long long)n);
        }
        made->points *= n;
        dims[a] = (int)n;
    }
    int64_t shortest = INT64_MAX;
    for (int a = 0; a < shape->dims; a++) {
        made->boundary_points += 2 * (made->points / shape->grid[a]);
        if (shape->grid[a] < shortest) shortest = shape->grid[a];
    }
    made->bins = shape->scattered ? 0 : shape->dims == 1 ? shape->grid[0] / 2 + 1 : shortest / 2;

    const size_t moments = (size_t)(shape->channels * shape->times), points = (size_t)made->points;
    made->moments = calloc(moments, sizeof(*made->moments));
    made->power = calloc(moments * (size_t)made->bins + 1, sizeof(*made->power));
    made->boundary_merged = calloc((size_t)shape->times, sizeof(*made->boundary_merged));
    made->boundary_squares = calloc((size_t)shape->times, sizeof(*made->boundary_squares));
    made->bin_of = malloc(points * sizeof(*made->bin_of));
    made->error_field = malloc(points * sizeof(*made->error_field));
    made->spectrum = malloc(points * sizeof(*made->spectrum));
    made->plan = shape->scattered ? NULL : kiss_fftnd_alloc(dims, shape->dims, 0, NULL, NULL);
    if (!made->moments || !made->power || !made->boundary_merged || !made->boundary_squares || !made->bin_of ||
        !made->error_field || !made->spectrum || (!made->plan && !shape->scattered)) {
        ups_pde_metrics_destroy(made);
        return ups_fail(error, UPS_ERR_MEMORY, "metrics: out of memory for a grid of %lld points", (long long)points);
    }
    assign_bins(made);
    *metrics = made;
    return UPS_OK;
}

void ups_pde_metrics_destroy(ups_pde_metrics *metrics) {
    if (!metrics) return;
    free(metrics->moments);
    free(metrics->power);
    free(metrics->boundary_merged);
    free(metrics->boundary_squares);
    free(metrics->bin_of);
    free(metrics->error_field);
    free(metrics->spectrum);
    kiss_fft_free(metrics->plan);
    free(metrics);
}

/* Strides of the grid's axes when neighbours along the last one are `step` apart; the number of elements they span. */
static int64_t grid_strides(const ups_pde_metrics_shape *shape, int64_t step, int64_t strides[3]) {
    for (int a = shape->dims - 1; a >= 0; a--) {
        strides[a] = step;
        step *= shape->grid[a];
    }
    return step;
}

ups_pde_metrics_strides ups_pde_metrics_channels_last(const ups_pde_metrics_shape *shape) {
    ups_pde_metrics_strides strides = {.channel = 1};
    strides.time = grid_strides(shape, shape->channels, strides.grid);
    return strides;
}

ups_pde_metrics_strides ups_pde_metrics_channels_first(const ups_pde_metrics_shape *shape) {
    ups_pde_metrics_strides strides = {0};
    strides.channel = grid_strides(shape, 1, strides.grid);
    strides.time = strides.channel * shape->channels;
    return strides;
}

/* Number of faces a point is on: an axis's first and last plane; both when the axis has a single point. */
static int faces(int64_t index, int64_t points) {
    return (index == 0) + (index == points - 1);
}

/* One (trajectory, channel, time): fills error_field, adds to its moment; returns the sum of squares on the faces. */
static double add_frame(ups_pde_metrics *metrics, const float *prediction, const float *target,
                        const ups_pde_metrics_strides *strides, int64_t count, moment *sums) {
    const bool all = count == metrics->points;
    const int64_t *grid = metrics->shape.grid, n[3] = {all ? grid[0] : count, grid[1], grid[2]};
    const int dims = metrics->shape.dims;
    double squares = 0, target_squares = 0, total = 0, boundary = 0, largest = sums->largest;
    double shifted = 0,
           shifted_squares = 0; /* of the target about its first value, so that a large mean costs no digits */
    const double shift = target[0];
    kiss_fft_cpx *field = metrics->error_field;
    for (int64_t i = 0; i < n[0]; i++) {
        const int faces_i = faces(i, n[0]);
        for (int64_t j = 0; j < n[1]; j++) {
            const int faces_ij = faces_i + (dims > 1 ? faces(j, n[1]) : 0);
            int64_t at = i * strides->grid[0] + j * strides->grid[1];
            for (int64_t k = 0; k < n[2]; k++, at += strides->grid[2]) {
                const double wanted = target[at], e = (double)prediction[at] - wanted, magnitude = fabs(e);
                *field++ = (kiss_fft_cpx){.r = (float)e};
                squares += e * e;
                target_squares += wanted * wanted;
                shifted += wanted - shift;
                shifted_squares += (wanted - shift) * (wanted - shift);
                total += e;
                if (magnitude > largest || isnan(magnitude)) largest = magnitude; /* once NaN, NaN it stays */
                const int on = faces_ij + (dims > 2 ? faces(k, n[2]) : 0);
                if (on) boundary += on * e * e;
            }
        }
    }
    const double points = (double)count;
    sums->rmse += sqrt(squares / points);
    if (target_squares > 0) {
        sums->nrmse += sqrt(squares / target_squares);
    } else {
        sums->zero_targets++;
    }
    const double variance = fmax(0, shifted_squares - shifted * shifted / points) / (points - 1);
    sums->vrmse += sqrt(squares / points / (variance + least_variance));
    if (!all) total *= (double)metrics->points / points;
    sums->total_square += total * total;
    sums->largest = largest;
    sums->boundary += sqrt(boundary / (double)metrics->boundary_points);
    return boundary;
}

void ups_pde_metrics_add(ups_pde_metrics *metrics, const float *prediction, const float *target,
                         const ups_pde_metrics_strides *strides, int64_t points) {
    const int64_t times = metrics->shape.times, count = points > 0 ? points : metrics->points;
    memset(metrics->boundary_squares, 0, (size_t)times * sizeof(*metrics->boundary_squares));
    for (int64_t c = 0; c < metrics->shape.channels; c++) {
        for (int64_t t = 0; t < times; t++) {
            const int64_t start = c * strides->channel + t * strides->time;
            moment *sums = &metrics->moments[c * times + t];
            metrics->boundary_squares[t] +=
                add_frame(metrics, prediction + start, target + start, strides, count, sums);

            if (metrics->shape.scattered) continue;
            kiss_fftnd(metrics->plan, metrics->error_field, metrics->spectrum);
            double *power = metrics->power + (c * times + t) * metrics->bins;
            for (int64_t p = 0; p < metrics->points; p++) {
                const int32_t bin = metrics->bin_of[p];
                if (bin == NO_BIN) continue;
                const double re = metrics->spectrum[p].r, im = metrics->spectrum[p].i;
                power[bin] += re * re + im * im;
            }
        }
    }
    for (int64_t t = 0; t < times; t++) {
        metrics->boundary_merged[t] += sqrt(metrics->boundary_squares[t] / (double)metrics->boundary_points);
    }
    metrics->trajectories++;
}

/* Mean over bins [begin, end) of the root mean square over trajectories; NaN when there is no such bin. */
static double band_mean(const double *power, int64_t begin, int64_t end, double trajectories) {
    double sum = 0;
    for (int64_t bin = begin; bin < end; bin++) sum += sqrt(power[bin] / trajectories);
    return end > begin ? sum / (double)(end - begin) : NAN;
}

ups_pde_metrics_values ups_pde_metrics_read(const ups_pde_metrics *metrics, int64_t channel, int64_t time_begin,
                                            int64_t time_end) {
    const ups_pde_metrics_shape *shape = &metrics->shape;
    const int64_t channel_begin = channel < 0 ? 0 : channel, channel_end = channel < 0 ? shape->channels : channel + 1;
    const double trajectories = (double)metrics->trajectories, points = (double)metrics->points;
    const double volume = shape->length[0] * shape->length[1] * shape->length[2];
    const int64_t edges[UPS_FREQUENCY_BANDS + 1] = {0, LOW_END < metrics->bins ? LOW_END : metrics->bins,
                                                    MIDDLE_END < metrics->bins ? MIDDLE_END : metrics->bins,
                                                    metrics->bins};
    ups_pde_metrics_values values = {.trajectories = metrics->trajectories};
    int64_t nonzero_targets = 0;
    for (int64_t c = channel_begin; c < channel_end; c++) {
        for (int64_t t = time_begin; t < time_end; t++) {
            const moment *sums = &metrics->moments[c * shape->times + t];
            values.rmse += sums->rmse / trajectories;
            values.vrmse += sums->vrmse / trajectories;
            values.nrmse += sums->nrmse;
            nonzero_targets += metrics->trajectories - sums->zero_targets;
            values.zero_targets += sums->zero_targets;
            values.crmse += sqrt(sums->total_square / trajectories) / points;
            values.max_error += metrics->trajectories ? sums->largest : NAN;
            values.brmse += sums->boundary / trajectories;
            const double *power = metrics->power + (c * shape->times + t) * metrics->bins;
            for (int band = 0; band < UPS_FREQUENCY_BANDS; band++) {
                values.frmse[band] += band_mean(power, edges[band], edges[band + 1], trajectories) / points * volume;
            }
        }
    }
    const double frames = (double)((channel_end - channel_begin) * (time_end - time_begin));
    values.rmse /= frames;
    values.vrmse /= frames;
    values.nrmse /= (double)nonzero_targets;
    values.crmse /= frames;
    values.max_error /= frames;
    values.brmse /= frames;
    for (int band = 0; band < UPS_FREQUENCY_BANDS; band++) values.frmse[band] /= frames;
    if (shape->dims == 3 && channel < 0) {
        values.brmse = 0;
        for (int64_t t = time_begin; t < time_end; t++) values.brmse += metrics->boundary_merged[t] / trajectories;
        values.brmse /= (double)(time_end - time_begin);
    }
    if (shape->scattered) values.brmse = NAN;
    return values;
}
