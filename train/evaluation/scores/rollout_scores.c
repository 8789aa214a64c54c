#include "train/evaluation/scores/rollout_scores.h"

#include "train/evaluation/scores/spectrum.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const double ups_rollout_quantiles[UPS_ROLLOUT_QUANTILES] = {0.05, 0.25, 0.5, 0.75, 0.95};

enum { TRUTH = UPS_FORECASTS, SPECTRA_OF = UPS_FORECASTS + 1 };
static const double rounding = 1e-6; /* of a field's root mean square: what varies less is constant in float32 */

/* Of one field at one frame, over trajectories. */
typedef struct sums {
    double correlation[UPS_FORECASTS];
    int64_t correlated;              /* trajectories in which it is defined */
    double model, truth, difference; /* squares of the mean's changes */
    int64_t changed;                 /* trajectories in which those are defined */
} sums;

/* What is kept of each trajectory: (trajectory, frame, channel), and time (trajectory, frame). */
struct ups_rollout_scores {
    ups_rollout_shape shape;
    int64_t points, cells; /* cells = frames × channels */
    int64_t count, capacity;
    float *nrmse, *correlation; /* of the model */
    double *time;
    ups_rollout_drift *drift; /* (trajectory, channel) */
    sums *sums;               /* (frame, channel) */
    double *means, *squares;  /* of one trajectory: (frame, channel) of model and truth; (channel) */
    ups_spectrum *spectrum;
    int64_t spectra[UPS_ROLLOUT_SPECTRA], shells;
    int spectra_count;
    double *energy; /* (SPECTRA_OF, spectra, channel, shell) */
};

ups_status ups_rollout_scores_create(const ups_rollout_shape *shape, ups_rollout_scores **scores, ups_error *error) {
    if (shape->channels < 1 || shape->frames < 1)
        return ups_fail(error, UPS_ERR_ARGUMENT, "rollout: %lld channels and %lld frames; one of each was expected",
                        (long long)shape->channels, (long long)shape->frames);
    ups_rollout_scores *s = calloc(1, sizeof *s);
    if (!s) return ups_fail(error, UPS_ERR_MEMORY, "rollout: out of memory");
    s->shape = *shape;
    ups_status status = shape->scattered ? UPS_OK : ups_spectrum_create(shape->dims, shape->grid, &s->spectrum, error);
    if (status != UPS_OK) {
        free(s);
        return status;
    }
    s->points = 1;
    for (int a = 0; a < shape->dims; a++) s->points *= shape->grid[a];
    s->cells = shape->frames * shape->channels;
    const int64_t at[UPS_ROLLOUT_SPECTRA] = {0, (shape->frames - 1) / 2, shape->frames - 1};
    for (int i = 0; i < UPS_ROLLOUT_SPECTRA && s->spectrum; i++) {
        if (s->spectra_count > 0 && s->spectra[s->spectra_count - 1] == at[i]) continue;
        s->spectra[s->spectra_count++] = at[i];
    }
    if (s->spectrum) s->shells = ups_spectrum_shells(s->spectrum);
    s->sums = calloc((size_t)s->cells, sizeof *s->sums);
    s->means = calloc(2 * (size_t)s->cells, sizeof *s->means);
    s->squares = calloc((size_t)shape->channels, sizeof *s->squares);
    s->energy = calloc((size_t)(SPECTRA_OF * s->spectra_count * shape->channels * s->shells) + 1, sizeof *s->energy);
    if (!s->sums || !s->means || !s->squares || !s->energy) {
        ups_rollout_scores_destroy(s);
        return ups_fail(error, UPS_ERR_MEMORY, "rollout: out of memory for scores of %lld frames",
                        (long long)shape->frames);
    }
    *scores = s;
    return UPS_OK;
}

void ups_rollout_scores_destroy(ups_rollout_scores *s) {
    if (!s) return;
    free(s->nrmse);
    free(s->correlation);
    free(s->time);
    free(s->drift);
    free(s->sums);
    free(s->means);
    free(s->squares);
    free(s->energy);
    ups_spectrum_destroy(s->spectrum);
    free(s);
}

int64_t ups_rollout_scores_count(const ups_rollout_scores *s) {
    return s->count;
}

/* ---- adding ---------------------------------------------------------------------------------------------------- */

static ups_status reserve(ups_rollout_scores *s, ups_error *error) {
    if (s->count < s->capacity) return UPS_OK;
    enum { FIRST = 16 };
    const int64_t capacity = s->capacity ? 2 * s->capacity : FIRST;
    float *nrmse = realloc(s->nrmse, (size_t)(capacity * s->cells) * sizeof *nrmse);
    if (nrmse) s->nrmse = nrmse;
    float *correlation = realloc(s->correlation, (size_t)(capacity * s->cells) * sizeof *correlation);
    if (correlation) s->correlation = correlation;
    double *time = realloc(s->time, (size_t)(capacity * s->shape.frames) * sizeof *time);
    if (time) s->time = time;
    ups_rollout_drift *drift = realloc(s->drift, (size_t)(capacity * s->shape.channels) * sizeof *drift);
    if (drift) s->drift = drift;
    if (!nrmse || !correlation || !time || !drift)
        return ups_fail(error, UPS_ERR_MEMORY, "rollout: out of memory for scores of %lld trajectories",
                        (long long)capacity);
    s->capacity = capacity;
    return UPS_OK;
}

/* One field of a prediction against its truth. */
typedef struct comparison {
    double nrmse, correlation, mean, true_mean, true_square;
} comparison;

static comparison compare(const float *prediction, const float *truth, int64_t points, int64_t stride) {
    double sum = 0, true_sum = 0, squares = 0, true_squares = 0;
    for (int64_t i = 0; i < points * stride; i += stride) {
        const double p = prediction[i], u = truth[i];
        sum += p;
        true_sum += u;
        squares += (p - u) * (p - u);
        true_squares += u * u;
    }
    comparison c = {.mean = sum / (double)points, .true_mean = true_sum / (double)points};
    double both = 0, own = 0, its = 0; /* about the means: covariance and variances, times the points */
    for (int64_t i = 0; i < points * stride; i += stride) {
        const double p = prediction[i] - c.mean, u = truth[i] - c.true_mean;
        both += p * u;
        own += p * p;
        its += u * u;
    }
    c.true_square = true_squares / (double)points;
    c.nrmse = true_squares > 0 ? sqrt(squares / true_squares) : NAN;
    if (true_squares > 0 && !isfinite(c.nrmse)) c.nrmse = INFINITY;
    c.correlation = NAN;
    if (its > rounding * rounding * true_squares)
        c.correlation = own > 0 && isfinite(both) && isfinite(own) ? both / sqrt(own * its) : 0;
    return c;
}

static double *energy_of(const ups_rollout_scores *s, int forecast, int index, int64_t channel) {
    return s->energy + ((forecast * s->spectra_count + index) * s->shape.channels + channel) * s->shells;
}

static void add_changes(ups_rollout_scores *s, const double *first) {
    const int64_t channels = s->shape.channels;
    ups_rollout_drift *drift = s->drift + s->count * channels;
    for (int64_t c = 0; c < channels; c++)
        drift[c] = (ups_rollout_drift){.scale = sqrt(s->squares[c] / (double)(s->shape.frames + 1))};
    for (int64_t cell = 0; cell < s->cells; cell++) {
        const int64_t c = cell % channels;
        const double scale = drift[c].scale;
        if (!(scale > 0)) continue;
        const double model = (s->means[cell] - first[c]) / scale,
                     truth = (s->means[s->cells + cell] - first[c]) / scale;
        s->sums[cell].model += model * model;
        s->sums[cell].truth += truth * truth;
        s->sums[cell].difference += (model - truth) * (model - truth);
        s->sums[cell].changed++;
        const double difference = isfinite(model) ? fabs(model - truth) : INFINITY;
        if (!(difference > drift[c].difference)) continue;
        drift[c].difference = difference;
        drift[c].frame = cell / channels;
    }
}

ups_status ups_rollout_scores_add(ups_rollout_scores *s, const float *const forecasts[UPS_FORECASTS],
                                  const float *truth, const double *time, int64_t points, ups_error *error) {
    const int64_t channels = s->shape.channels, frames = s->shape.frames, elements = s->points * channels;
    const int64_t count = points > 0 ? points : s->points;
    UPS_TRY(reserve(s, error));
    double *first = calloc((size_t)channels, sizeof *first); /* means of the last given frame */
    if (!first) return ups_fail(error, UPS_ERR_MEMORY, "rollout: out of memory");
    for (int64_t c = 0; c < channels; c++) {
        const comparison given = compare(truth + c, truth + c, count, channels);
        first[c] = given.true_mean;
        s->squares[c] = given.true_square;
    }
    for (int64_t f = 0; f < frames; f++) {
        s->time[s->count * frames + f] = time[f + 1] - time[0];
        for (int64_t c = 0; c < channels; c++) {
            const int64_t cell = f * channels + c, at = f * elements + c;
            sums *sum = &s->sums[cell];
            for (int k = 0; k < UPS_FORECASTS; k++) {
                const comparison found = compare(forecasts[k] + at, truth + elements + at, count, channels);
                if (!isnan(found.correlation)) sum->correlation[k] += found.correlation;
                if (k != UPS_FORECAST_MODEL) continue;
                sum->correlated += !isnan(found.correlation);
                s->nrmse[s->count * s->cells + cell] = (float)found.nrmse;
                s->correlation[s->count * s->cells + cell] = (float)found.correlation;
                s->means[cell] = found.mean;
                s->means[s->cells + cell] = found.true_mean;
                s->squares[c] += found.true_square;
            }
        }
    }
    add_changes(s, first);
    free(first);
    for (int i = 0; i < s->spectra_count; i++) {
        for (int64_t c = 0; c < channels; c++) {
            const int64_t at = s->spectra[i] * elements + c;
            for (int k = 0; k < UPS_FORECASTS; k++)
                ups_spectrum_add(s->spectrum, forecasts[k] + at, channels, energy_of(s, k, i, c));
            ups_spectrum_add(s->spectrum, truth + elements + at, channels, energy_of(s, TRUTH, i, c));
        }
    }
    s->count++;
    return UPS_OK;
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

double ups_rollout_time(const ups_rollout_scores *s, int64_t frame) {
    double sum = 0;
    for (int64_t t = 0; t < s->count; t++) sum += s->time[t * s->shape.frames + frame];
    return sum / (double)s->count;
}

/* Mean over fields of what one trajectory has at a frame; NaN is left out. */
static double mean_of_fields(const ups_rollout_scores *s, const float *values, const bool *fields, int64_t trajectory,
                             int64_t frame) {
    const float *of_frame = values + trajectory * s->cells + frame * s->shape.channels;
    double sum = 0;
    int64_t count = 0;
    for (int64_t c = 0; c < s->shape.channels; c++) {
        if (!fields[c] || isnan(of_frame[c])) continue;
        sum += of_frame[c];
        count++;
    }
    return count > 0 ? sum / (double)count : NAN;
}

double ups_rollout_nrmse_at(const ups_rollout_scores *s, const bool *fields, int64_t trajectory, int64_t frame) {
    return mean_of_fields(s, s->nrmse, fields, trajectory, frame);
}

double ups_rollout_nrmse(const ups_rollout_scores *s, const bool *fields, int64_t trajectory) {
    const float *of_trajectory = s->nrmse + trajectory * s->cells;
    double sum = 0;
    int64_t count = 0;
    for (int64_t c = 0; c < s->shape.channels; c++) {
        double of_field = 0;
        int64_t defined = 0;
        for (int64_t f = 0; f < s->shape.frames && fields[c]; f++) {
            const float value = of_trajectory[f * s->shape.channels + c];
            if (isnan(value)) continue;
            of_field += value;
            defined++;
        }
        if (defined == 0) continue;
        sum += of_field / (double)defined;
        count++;
    }
    return count > 0 ? sum / (double)count : NAN;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of sorted values, linear between neighbours, as NumPy's default is. */
static double quantile(const double *sorted, int64_t count, double share) {
    if (count == 0) return NAN;
    const double at = share * (double)(count - 1), below = floor(at);
    const int64_t i = (int64_t)below;
    if (at == below || sorted[i + 1] == sorted[i]) return sorted[i];
    return sorted[i] + (at - below) * (sorted[i + 1] - sorted[i]);
}

ups_status ups_rollout_nrmse_quantiles(const ups_rollout_scores *s, const bool *fields, int64_t frame,
                                       double out[UPS_ROLLOUT_QUANTILES], ups_error *error) {
    double *values = malloc((size_t)(s->count + 1) * sizeof *values);
    if (!values) return ups_fail(error, UPS_ERR_MEMORY, "rollout: out of memory");
    int64_t count = 0;
    for (int64_t t = 0; t < s->count; t++) {
        const double value = ups_rollout_nrmse_at(s, fields, t, frame);
        if (!isnan(value)) values[count++] = value;
    }
    qsort(values, (size_t)count, sizeof *values, by_value);
    for (int q = 0; q < UPS_ROLLOUT_QUANTILES; q++) out[q] = quantile(values, count, ups_rollout_quantiles[q]);
    free(values);
    return UPS_OK;
}

double ups_rollout_correlation(const ups_rollout_scores *s, int forecast, const bool *fields, int64_t frame) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t c = 0; c < s->shape.channels; c++) {
        const sums *of_field = &s->sums[frame * s->shape.channels + c];
        if (!fields[c] || of_field->correlated == 0) continue;
        sum += of_field->correlation[forecast] / (double)of_field->correlated;
        count++;
    }
    return count > 0 ? sum / (double)count : NAN;
}

ups_correlation_time ups_rollout_correlation_time(const ups_rollout_scores *s, int forecast, const bool *fields,
                                                  double threshold) {
    for (int64_t f = 0; f < s->shape.frames; f++) {
        if (ups_rollout_correlation(s, forecast, fields, f) < threshold)
            return (ups_correlation_time){(double)(f + 1), ups_rollout_time(s, f)};
    }
    return (ups_correlation_time){INFINITY, INFINITY};
}

ups_correlation_time ups_rollout_correlation_time_of(const ups_rollout_scores *s, const bool *fields,
                                                     int64_t trajectory, double threshold) {
    for (int64_t f = 0; f < s->shape.frames; f++) {
        if (mean_of_fields(s, s->correlation, fields, trajectory, f) < threshold)
            return (ups_correlation_time){(double)(f + 1), s->time[trajectory * s->shape.frames + f]};
    }
    return (ups_correlation_time){INFINITY, INFINITY};
}

ups_status ups_rollout_correlation_time_median(const ups_rollout_scores *s, const bool *fields, double threshold,
                                               ups_correlation_time *median, ups_error *error) {
    double *values = malloc((size_t)(2 * s->count + 1) * sizeof *values);
    if (!values) return ups_fail(error, UPS_ERR_MEMORY, "rollout: out of memory");
    for (int64_t t = 0; t < s->count; t++) {
        const ups_correlation_time found = ups_rollout_correlation_time_of(s, fields, t, threshold);
        values[t] = found.steps;
        values[s->count + t] = found.time;
    }
    qsort(values, (size_t)s->count, sizeof *values, by_value);
    qsort(values + s->count, (size_t)s->count, sizeof *values, by_value);
    *median = (ups_correlation_time){quantile(values, s->count, 0.5), quantile(values + s->count, s->count, 0.5)};
    free(values);
    return UPS_OK;
}

ups_mean_change ups_rollout_mean_change(const ups_rollout_scores *s, int64_t channel, int64_t frame) {
    const sums *sum = &s->sums[frame * s->shape.channels + channel];
    const double count = sum->changed > 0 ? (double)sum->changed : NAN;
    return (ups_mean_change){sqrt(sum->model / count), sqrt(sum->truth / count), sqrt(sum->difference / count)};
}

ups_rollout_drift ups_rollout_drift_of(const ups_rollout_scores *s, int64_t trajectory, int64_t channel) {
    return s->drift[trajectory * s->shape.channels + channel];
}

int ups_rollout_spectra(const ups_rollout_scores *s, int64_t frames[UPS_ROLLOUT_SPECTRA]) {
    memcpy(frames, s->spectra, sizeof s->spectra);
    return s->spectra_count;
}

int64_t ups_rollout_shells(const ups_rollout_scores *s) {
    return s->shells;
}

double ups_rollout_energy(const ups_rollout_scores *s, int forecast, int index, int64_t channel, int64_t shell) {
    return energy_of(s, forecast, index, channel)[shell] / (double)s->count;
}
