#include "tools/report/cache/facts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FRAMES_A_TRAJECTORY 8 /* decoded to measure what rounding does to fields */

const char *ups_size_text(uint64_t bytes, char text[24]) {
    static const char *const units[] = {"bytes", "KB", "MB", "GB", "TB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1000 && unit < 4; unit++) value /= 1000;
    snprintf(text, 24, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}

const char *ups_age_text(double seconds, char text[24]) {
    if (seconds < 120)
        snprintf(text, 24, "%.0f s", seconds);
    else if (seconds < 7200)
        snprintf(text, 24, "%.0f min", seconds / 60);
    else if (seconds < 172800)
        snprintf(text, 24, "%.0f h", seconds / 3600);
    else
        snprintf(text, 24, "%.0f days", seconds / 86400);
    return text;
}

const char *ups_fact_text(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

long long ups_fact_integer(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

double ups_fact_real(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

double ups_fact_decoded_share(const json_t *facts) {
    double share = -1;
    const json_t *fields = json_object_get(json_object_get(facts, "decoded"), "fields");
    for (size_t c = 0; c < json_array_size(fields); c++) {
        const json_t *field = json_array_get(fields, c);
        double deviation = ups_fact_real(field, "deviation");
        double rms = ups_fact_real(json_object_get(field, "fp16_error"), "rms");
        if (deviation > 0 && rms / deviation > share) share = rms / deviation;
    }
    return share;
}

json_t *ups_cache_group_facts(const ups_cache_group *group, const ups_cache_survey *survey,
                              const ups_latent_measurement *measurement) {
    ups_chunk_shape shape = group->shape.trajectory;
    const ups_cache_totals *totals = &survey->totals;
    json_t *parameters = json_array();
    for (int p = 0; p < group->parameter_count; p++) {
        json_array_append_new(parameters, json_string(group->parameter_names[p]));
    }
    json_t *facts = json_object(), *attributes = group->attributes;
    json_object_set_new(facts, "directory", json_string(group->directory));
    json_object_set_new(facts, "task", json_string(group->task));
    json_object_set_new(facts, "split", json_string(group->split));
    json_object_set_new(facts, "complete", json_boolean(group->complete));
    json_object_set_new(facts, "samples", json_integer(group->shape.samples));
    json_object_set_new(facts, "present", json_integer(survey->present));
    json_object_set_new(facts, "skipped_count", json_integer(survey->skipped));
    json_object_set_new(facts, "shape",
                        json_pack("{s:I, s:I, s:I}", "times", (json_int_t)shape.times, "tokens",
                                  (json_int_t)shape.tokens, "dim", (json_int_t)shape.dim));
    json_object_set_new(facts, "parameters", parameters);
    json_object_set_new(facts, "codec",
                        json_pack("{s:s, s:i, s:{s:I, s:[I,I,I]}}", "name",
                                  group->codec.portable ? "portable" : "ups.latent", "zstd_level", group->codec.level,
                                  "orders", "looked_at", (json_int_t)measurement->trajectories, "counts",
                                  (json_int_t)measurement->orders[0], (json_int_t)measurement->orders[1],
                                  (json_int_t)measurement->orders[2]));
    json_object_set_new(facts, "shards",
                        json_pack("{s:I, s:I, s:I}", "present", (json_int_t)survey->shards, "total",
                                  (json_int_t)survey->shard_count, "samples_each",
                                  (json_int_t)group->shape.samples_per_shard));
    json_object_set_new(facts, "raw_bytes", json_integer((json_int_t)survey->raw_bytes));
    json_object_set_new(facts, "stored_bytes", json_integer((json_int_t)survey->stored_bytes));
    double ratio = survey->stored_bytes ? (double)survey->raw_bytes / (double)survey->stored_bytes : NAN;
    json_object_set_new(facts, "ratio", ups_json_number(survey->present ? ratio : NAN));
    json_object_set_new(facts, "range",
                        json_pack("[o,o]", ups_json_number(totals->minimum), ups_json_number(totals->maximum)));
    json_object_set_new(
        facts, "fp16_rounding_error",
        json_pack("{s:o, s:o}", "max", ups_json_number(totals->error_max), "rms", ups_json_number(totals->error_rms)));
    json_object_set_new(facts, "dead_channels", json_integer(measurement->dead));
    json_object_set(facts, "max_abs_error", json_object_get(attributes, "max_abs_error"));
    json_object_set(facts, "fingerprint", json_object_get(attributes, "fingerprint"));
    json_object_set(facts, "source", json_object_get(attributes, "source"));
    json_object_set(facts, "encoder", json_object_get(attributes, "encoder"));
    json_t *skipped = json_object_get(json_object_get(attributes, "result"), "skipped");
    if (skipped) json_object_set(facts, "skipped", skipped);
    return facts;
}

ups_status ups_cache_sample_facts(const ups_cache_group *group, int64_t index, const ups_cache_trajectory *trajectory,
                                  json_t **facts, ups_error *error) {
    ups_cache_statistics *rows = malloc((size_t)group->shape.samples_per_shard * sizeof *rows);
    if (!rows) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", group->directory);
    int64_t per_shard = group->shape.samples_per_shard;
    ups_status status = ups_cache_read_statistics(group, index / per_shard, rows, error);
    const ups_cache_statistics *row = &rows[index % per_shard];
    if (status == UPS_OK) {
        json_t *parameters = json_object();
        for (int p = 0; p < group->parameter_count; p++) {
            json_object_set_new(parameters, group->parameter_names[p],
                                ups_json_number(group->parameters[index * group->parameter_count + p]));
        }
        double ratio = trajectory->present
                           ? (double)ups_chunk_raw_bytes(group->shape.trajectory) / (double)trajectory->stored_bytes
                           : 0;
        *facts = json_pack("{s:I, s:I, s:b, s:I, s:f, s:i, s:[o,o], s:{s:o, s:o}, s:o}", "sample", (json_int_t)index,
                           "source_sample", (json_int_t)group->source_samples[index], "present", trajectory->present,
                           "stored_bytes", (json_int_t)trajectory->stored_bytes, "ratio", ratio, "order",
                           trajectory->order, "range", ups_json_number(row->minimum), ups_json_number(row->maximum),
                           "fp16_rounding_error", "max", ups_json_number(row->error_max), "rms",
                           ups_json_number(row->error_rms), "parameters", parameters);
        if (!*facts) status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", group->directory);
    }
    free(rows);
    return status;
}

/* ---- decoded fields ---- */

/* Means over trajectories; the maximum of the maxima. */
static void add_channels(ups_reconstructed_channel *sum, const ups_reconstruction *one, int64_t channels) {
    for (int64_t c = 0; c < channels; c++) {
        const ups_reconstructed_channel *from = &one->channel[c];
        sum[c].name = from->name;
        sum[c].deviation += from->deviation * from->deviation;
        sum[c].fp16_rms += from->fp16_rms * from->fp16_rms;
        sum[c].fp16_max = fmax(sum[c].fp16_max, from->fp16_max);
        sum[c].nrmse += from->nrmse;
    }
}

static json_t *fields_json(const ups_reconstructed_channel *sum, int64_t channels, double count) {
    json_t *fields = json_array();
    for (int64_t c = 0; c < channels; c++) {
        json_array_append_new(fields, json_pack("{s:s, s:o, s:{s:o, s:o}, s:o}", "name", sum[c].name, "deviation",
                                                ups_json_number(sqrt(sum[c].deviation / count)), "fp16_error", "max",
                                                ups_json_number(sum[c].fp16_max), "rms",
                                                ups_json_number(sqrt(sum[c].fp16_rms / count)), "nrmse",
                                                ups_json_number(sum[c].nrmse / count)));
    }
    return fields;
}

ups_status ups_cache_field_facts(const ups_cache_group *group, const ups_cache_survey *survey,
                                 ups_reconstructor *reconstructor, int64_t trajectories, json_t **facts,
                                 ups_error *error) {
    ups_cache_reader *reader = ups_cache_reader_create(group);
    ups_status status = reader ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", group->directory);
    ups_reconstructed_channel *sum = NULL;
    int64_t wanted = trajectories < survey->present ? trajectories : survey->present, seen = 0, done = 0, frames = 0;
    int64_t channels = 0;
    double distance = 0;
    for (int64_t i = 0; i < group->shape.samples && done < wanted && status == UPS_OK; i++) {
        if (survey->samples[i].state != UPS_SAMPLE_PRESENT || seen++ < done * survey->present / wanted) continue;
        ups_cache_trajectory trajectory;
        ups_reconstruction one;
        status = ups_cache_read(reader, i, &trajectory, error);
        if (status == UPS_OK) {
            status = ups_reconstruct(reconstructor, group, i, trajectory.latents, FRAMES_A_TRAJECTORY, &one, error);
        }
        if (status != UPS_OK) break;
        channels = one.task->geometry.channels;
        if (!sum) sum = calloc((size_t)channels, sizeof *sum);
        if (sum) add_channels(sum, &one, channels);
        distance = fmax(distance, one.latent_distance);
        frames += one.frames;
        done++;
        ups_reconstruction_free(&one);
    }
    if (status == UPS_OK) {
        *facts = json_pack("{s:I, s:I, s:o, s:o}", "trajectories", (json_int_t)done, "frames", (json_int_t)frames,
                           "latent_distance", ups_json_number(distance), "fields",
                           sum ? fields_json(sum, channels, (double)done) : json_array());
        if (!*facts) status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory", group->directory);
    }
    free(sum);
    ups_cache_reader_destroy(reader);
    return status;
}
