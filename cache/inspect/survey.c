#include "cache/inspect/survey.h"

#include "base/files.h"
#include "base/system/cancel.h"
#include "cache/store/reader.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_VALUES (INT64_C(1) << 26)
#define DEAD_SHARE 1e-3

/* ---- indexes and statistics ---- */

static ups_status survey_shard(const ups_cache_group *group, int64_t shard, ups_chunk_place *places,
                               ups_cache_statistics *rows, ups_cache_survey *survey, ups_error *error) {
    ups_cache_shape shape = group->shape;
    int64_t first = shard * shape.samples_per_shard;
    ups_shard_facts facts;
    UPS_TRY(ups_cache_read_index(group, shard, places, &facts, error));
    UPS_TRY(ups_cache_read_statistics(group, shard, rows, error));
    survey->shards++;
    survey->stored_bytes += facts.bytes;
    for (int64_t i = 0; i < ups_cache_shard_samples(shape, shard); i++) {
        ups_surveyed_sample *sample = &survey->samples[first + i];
        bool present = ups_chunk_present(places[i]);
        sample->state = present ? UPS_SAMPLE_PRESENT : UPS_SAMPLE_SKIPPED;
        sample->stored_bytes = present ? places[i].length : 0;
        sample->statistics = rows[i];
        survey->present += present;
        survey->skipped += !present;
    }
    return UPS_OK;
}

static ups_cache_totals sum_present(const ups_cache_survey *survey, int64_t samples, ups_cache_statistics *rows) {
    int64_t count = 0;
    for (int64_t i = 0; i < samples; i++) {
        if (survey->samples[i].state == UPS_SAMPLE_PRESENT) rows[count++] = survey->samples[i].statistics;
    }
    return ups_cache_statistics_sum(rows, count);
}

ups_status ups_cache_survey_take(const ups_cache_group *group, ups_cache_survey *survey, ups_error *error) {
    ups_cache_shape shape = group->shape;
    size_t per_shard = (size_t)shape.samples_per_shard, samples = (size_t)shape.samples;
    *survey = (ups_cache_survey){.shard_count = ups_cache_shard_count(shape)};
    ups_chunk_place *places = malloc(per_shard * sizeof *places);
    ups_cache_statistics *rows = malloc((per_shard > samples ? per_shard : samples) * sizeof *rows);
    survey->samples = calloc(samples, sizeof *survey->samples);
    ups_status status = UPS_OK;
    if (!places || !rows || !survey->samples) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to look into it", group->directory);
    }
    for (int64_t s = 0; s < survey->shard_count && status == UPS_OK; s++) {
        char *path = ups_cache_shard_path(group->directory, s);
        if (!path)
            status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to look into it", group->directory);
        else if (!ups_path_is_absent(path))
            status = survey_shard(group, s, places, rows, survey, error);
        free(path);
    }
    if (status == UPS_OK) {
        survey->raw_bytes = (uint64_t)survey->present * ups_chunk_raw_bytes(shape.trajectory);
        survey->totals = sum_present(survey, shape.samples, rows);
    }
    free(rows);
    free(places);
    if (status != UPS_OK) ups_cache_survey_free(survey);
    return status;
}

void ups_cache_survey_free(ups_cache_survey *survey) {
    free(survey->samples);
    *survey = (ups_cache_survey){0};
}

/* ---- latents ---- */

/* Running sums of one channel; shifted by its first value, so that a large mean does not eat the variance. */
typedef struct channel_sums {
    double shift, sum, squares, minimum, maximum;
    int64_t count;
} channel_sums;

static void add_trajectory(ups_latent_measurement *m, channel_sums *sums, const float *values, int64_t rows,
                           int64_t dim) {
    double scale = m->high > m->low ? UPS_LATENT_BINS / (m->high - m->low) : 0;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t d = 0; d < dim; d++) {
            double value = values[r * dim + d];
            channel_sums *s = &sums[d];
            m->values++;
            if (!isfinite(value)) {
                m->non_finite++;
                continue;
            }
            if (s->count++ == 0) *s = (channel_sums){value, 0, 0, value, value, 1};
            double offset = value - s->shift;
            s->sum += offset;
            s->squares += offset * offset;
            if (value < s->minimum) s->minimum = value;
            if (value > s->maximum) s->maximum = value;
            double bin = (value - m->low) * scale; /* rounding may have moved the extremes a little outward */
            m->bins[bin < 0 ? 0 : bin >= UPS_LATENT_BINS ? UPS_LATENT_BINS - 1 : (int)bin]++;
        }
    }
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static ups_status finish(ups_latent_measurement *m, const channel_sums *sums, int64_t dim, ups_error *error) {
    double *deviations = malloc((size_t)dim * sizeof *deviations);
    if (!deviations) return ups_fail(error, UPS_ERR_MEMORY, "no memory to measure latents of %lld dim", (long long)dim);
    for (int64_t d = 0; d < dim; d++) {
        const channel_sums *s = &sums[d];
        double n = s->count > 0 ? (double)s->count : 1, mean = s->sum / n;
        double variance = s->squares / n - mean * mean;
        m->channel[d] = (ups_channel_statistics){s->minimum, s->maximum, s->shift + mean, sqrt(fmax(variance, 0))};
        deviations[d] = m->channel[d].deviation;
    }
    qsort(deviations, (size_t)dim, sizeof *deviations, by_size);
    m->typical_deviation = deviations[dim / 2];
    free(deviations);
    for (int64_t d = 0; d < dim; d++) m->dead += ups_channel_is_dead(m, d);
    return UPS_OK;
}

ups_status ups_latent_measure(const ups_cache_group *group, const ups_cache_survey *survey, int64_t most,
                              ups_latent_measurement *m, ups_error *error) {
    ups_chunk_shape shape = group->shape.trajectory;
    int64_t each = shape.times * shape.tokens * shape.dim, wanted = MAX_VALUES / each;
    if (wanted > most) wanted = most;
    if (wanted < 1) wanted = 1;
    if (wanted > survey->present) wanted = survey->present;
    uint64_t largest = 0;
    for (int64_t i = 0; i < group->shape.samples; i++)
        if (survey->samples[i].stored_bytes > largest) largest = survey->samples[i].stored_bytes;
    if (survey->present > 0) UPS_TRY(ups_cache_check_claim(group, group->directory, largest, error));
    *m = (ups_latent_measurement){.low = survey->totals.minimum, .high = survey->totals.maximum};
    ups_cache_reader *reader = ups_cache_reader_create(group);
    float *values = malloc((size_t)each * sizeof *values);
    channel_sums *sums = calloc((size_t)shape.dim, sizeof *sums);
    m->channel = calloc((size_t)shape.dim, sizeof *m->channel);
    ups_status status = UPS_OK;
    if (!reader || !values || !sums || !m->channel) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for a trajectory of %lld values", group->directory,
                          (long long)each);
    }
    int64_t seen = 0; /* present samples so far; every (present / wanted)-th is read */
    for (int64_t i = 0; i < group->shape.samples && m->trajectories < wanted && status == UPS_OK; i++) {
        if (survey->samples[i].state != UPS_SAMPLE_PRESENT) continue;
        if (seen++ < m->trajectories * survey->present / wanted) continue;
        ups_cache_trajectory trajectory;
        if (ups_cancel_requested())
            status = ups_fail(error, UPS_ERR_CANCELLED, "%s: interrupted", group->directory);
        else
            status = ups_cache_read(reader, i, &trajectory, error);
        if (status != UPS_OK) break;
        ups_f16_to_f32(trajectory.latents, values, (size_t)each);
        add_trajectory(m, sums, values, shape.times * shape.tokens, shape.dim);
        if (trajectory.order >= 0 && trajectory.order < 3) m->orders[trajectory.order]++;
        m->trajectories++;
    }
    if (status == UPS_OK) status = finish(m, sums, shape.dim, error);
    ups_cache_reader_destroy(reader);
    free(values);
    free(sums);
    if (status != UPS_OK) ups_latent_measurement_free(m);
    return status;
}

void ups_latent_measurement_free(ups_latent_measurement *measurement) {
    free(measurement->channel);
    *measurement = (ups_latent_measurement){0};
}

bool ups_channel_is_dead(const ups_latent_measurement *measurement, int64_t channel) {
    return measurement->values > 0 &&
           measurement->channel[channel].deviation <= DEAD_SHARE * measurement->typical_deviation;
}
