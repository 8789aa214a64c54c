/* An evaluation as JSON: what output/evaluation.json and `ups eval --json` hold. JSON has no NaN: a metric that does
 * not exist (a band finer than the grid) or blew up is null. */
#include "train/evaluation/results.h"

#include "train/metrics.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static json_t *metrics_json(const ups_pde_metrics_values *v) {
    json_t *json = json_object();
    json_object_set_new(json, "rmse", ups_json_number(v->rmse));
    json_object_set_new(json, "nrmse", ups_json_number(v->nrmse));
    json_object_set_new(json, "vrmse", ups_json_number(v->vrmse));
    json_object_set_new(json, "crmse", ups_json_number(v->crmse));
    json_object_set_new(json, "max", ups_json_number(v->max_error));
    json_object_set_new(json, "brmse", ups_json_number(v->brmse));
    json_t *bands = json_object();
    json_object_set_new(bands, "low", ups_json_number(v->frmse[UPS_FREQUENCY_LOW]));
    json_object_set_new(bands, "middle", ups_json_number(v->frmse[UPS_FREQUENCY_MIDDLE]));
    json_object_set_new(bands, "high", ups_json_number(v->frmse[UPS_FREQUENCY_HIGH]));
    json_object_set_new(json, "frmse", bands);
    json_object_set_new(json, "zero_targets", json_integer((json_int_t)v->zero_targets));
    return json;
}

static json_t *horizon_json(const ups_task_evaluation *evaluation, const ups_horizon_evaluation *h) {
    const ups_task *task = evaluation->task;
    json_t *json =
        json_pack("{s:I, s:b, s:I, s:I}", "steps", (json_int_t)(h->steps ? h->steps : evaluation->steps), "whole",
                  h->steps == 0, "windows", (json_int_t)h->windows, "frames", (json_int_t)h->frames);
    if (h->windows == 0) return json;
    json_t *fields = json_object(), *by_frame = json_object();
    for (int f = 0; f < evaluation->forecasts; f++) {
        json_object_set_new(json, ups_forecast_names[f], metrics_json(&h->summary[f]));
        json_t *list = json_array();
        for (int64_t t = 0; t < h->frames; t++) json_array_append_new(list, ups_json_number(h->nrmse_by_frame[f][t]));
        json_object_set_new(by_frame, ups_forecast_names[f], list);
    }
    for (int64_t c = 0; c < task->geometry.channels; c++) {
        json_t *field = json_object();
        for (int f = 0; f < evaluation->forecasts; f++) {
            json_object_set_new(field, ups_forecast_names[f], metrics_json(&h->fields[f][c]));
        }
        json_object_set_new(fields, task->source->channel_names[c], field);
    }
    json_object_set_new(json, "fields", fields);
    if (h->frames > 1) {
        json_object_set(json, "nrmse_by_frame", by_frame);
    }
    json_decref(by_frame);
    return json;
}

/* ---- the whole rollout over time ------------------------------------------------------------------------------- */

static json_t *correlation_time_json(ups_correlation_time found) {
    json_t *steps = isfinite(found.steps) ? json_real(found.steps) : json_null();
    if (isfinite(found.steps) && found.steps == floor(found.steps)) {
        json_decref(steps);
        steps = json_integer((json_int_t)found.steps);
    }
    return json_pack("{s:o, s:o}", "steps", steps, "time", ups_json_number(found.time));
}

/* {"0.05": [by frame], …} */
static ups_status quantiles_json(const ups_task_evaluation *evaluation, int64_t frames, json_t *json,
                                 ups_error *error) {
    double values[UPS_ROLLOUT_QUANTILES];
    json_t *list[UPS_ROLLOUT_QUANTILES];
    char name[16];
    for (int q = 0; q < UPS_ROLLOUT_QUANTILES; q++) {
        snprintf(name, sizeof name, "%g", ups_rollout_quantiles[q]);
        json_object_set_new(json, name, list[q] = json_array());
    }
    for (int64_t f = 0; f < frames; f++) {
        UPS_TRY(ups_rollout_nrmse_quantiles(evaluation->rollout, evaluation->solution, f, values, error));
        for (int q = 0; q < UPS_ROLLOUT_QUANTILES; q++) json_array_append_new(list[q], ups_json_number(values[q]));
    }
    return UPS_OK;
}

static json_t *correlation_json(const ups_task_evaluation *evaluation, int64_t frames) {
    json_t *json = json_object();
    for (int k = 0; k < evaluation->forecasts; k++) {
        json_t *list = json_array();
        for (int64_t f = 0; f < frames; f++)
            json_array_append_new(
                list, ups_json_number(ups_rollout_correlation(evaluation->rollout, k, evaluation->solution, f)));
        json_object_set_new(json, ups_forecast_names[k], list);
    }
    return json;
}

/* Of the mean over trajectories for each forecast, for each field of the model; the median of the trajectories' own. */
static ups_status correlation_times_json(const ups_task_evaluation *evaluation, json_t *json, ups_error *error) {
    const ups_rollout_scores *rollout = evaluation->rollout;
    const int64_t channels = evaluation->task->geometry.channels;
    const double threshold = evaluation->correlation;
    json_object_set_new(json, "threshold", json_real(threshold));
    for (int k = 0; k < evaluation->forecasts; k++) {
        json_object_set_new(
            json, ups_forecast_names[k],
            correlation_time_json(ups_rollout_correlation_time(rollout, k, evaluation->solution, threshold)));
    }
    json_t *fields = json_object();
    json_object_set_new(json, "fields", fields);
    bool *one = calloc((size_t)channels, sizeof *one);
    if (!one) return ups_fail(error, UPS_ERR_MEMORY, "evaluation: out of memory");
    for (int64_t c = 0; c < channels; c++) {
        if (!evaluation->solution[c]) continue;
        one[c] = true;
        json_object_set_new(
            fields, evaluation->task->source->channel_names[c],
            correlation_time_json(ups_rollout_correlation_time(rollout, UPS_FORECAST_MODEL, one, threshold)));
        one[c] = false;
    }
    free(one);
    ups_correlation_time median;
    UPS_TRY(ups_rollout_correlation_time_median(rollout, evaluation->solution, threshold, &median, error));
    json_object_set_new(json, "median", correlation_time_json(median));
    int64_t never = 0;
    for (int64_t t = 0; t < evaluation->trajectories; t++)
        never += isinf(ups_rollout_correlation_time_of(rollout, evaluation->solution, t, threshold).steps);
    json_object_set_new(json, "never", json_integer((json_int_t)never));
    return UPS_OK;
}

static json_t *mean_change_json(const ups_task_evaluation *evaluation, int64_t frames) {
    json_t *json = json_object();
    for (int64_t c = 0; c < evaluation->task->geometry.channels; c++) {
        if (!evaluation->solution[c]) continue;
        json_t *model = json_array(), *truth = json_array(), *difference = json_array();
        for (int64_t f = 0; f < frames; f++) {
            const ups_mean_change change = ups_rollout_mean_change(evaluation->rollout, c, f);
            json_array_append_new(model, ups_json_number(change.model));
            json_array_append_new(truth, ups_json_number(change.truth));
            json_array_append_new(difference, ups_json_number(change.difference));
        }
        json_object_set_new(json, evaluation->task->source->channel_names[c],
                            json_pack("{s:o, s:o, s:o}", "model", model, "truth", truth, "difference", difference));
    }
    return json;
}

static json_t *spectra_json(const ups_task_evaluation *evaluation) {
    const ups_rollout_scores *rollout = evaluation->rollout;
    const int64_t shells = ups_rollout_shells(rollout);
    int64_t frames[UPS_ROLLOUT_SPECTRA];
    const int count = ups_rollout_spectra(rollout, frames);
    json_t *json = json_array();
    for (int i = 0; i < count; i++) {
        json_t *fields = json_object();
        for (int64_t c = 0; c < evaluation->task->geometry.channels; c++) {
            if (!evaluation->solution[c]) continue;
            json_t *field = json_object();
            for (int k = 0; k <= UPS_FORECASTS; k++) {
                if (k >= evaluation->forecasts && k < UPS_FORECASTS) continue;
                json_t *list = json_array();
                for (int64_t shell = 0; shell < shells; shell++)
                    json_array_append_new(list, ups_json_number(ups_rollout_energy(rollout, k, i, c, shell)));
                json_object_set_new(field, k < UPS_FORECASTS ? ups_forecast_names[k] : "truth", list);
            }
            json_object_set_new(fields, evaluation->task->source->channel_names[c], field);
        }
        json_array_append_new(json, json_pack("{s:I, s:o, s:o}", "step", (json_int_t)(frames[i] + 1), "time",
                                              ups_json_number(ups_rollout_time(rollout, frames[i])), "fields", fields));
    }
    return json;
}

static ups_status over_time_json(const ups_task_evaluation *evaluation, json_t *json, ups_error *error) {
    const int64_t frames = evaluation->steps;
    json_t *time = json_array(), *quantiles = json_object(), *correlation_times = json_object();
    const char *unit = evaluation->task->geometry.time_units;
    json_object_set_new(json, "time_unit", unit ? ups_json_printable(unit) : json_null());
    json_object_set_new(json, "time", time);
    json_object_set_new(json, "nrmse_quantiles", quantiles);
    json_object_set_new(json, "correlation", correlation_json(evaluation, frames));
    json_object_set_new(json, "correlation_time", correlation_times);
    json_object_set_new(json, "mean_change", mean_change_json(evaluation, frames));
    json_object_set_new(json, "spectra", spectra_json(evaluation));
    for (int64_t f = 0; f < frames; f++)
        json_array_append_new(time, ups_json_number(ups_rollout_time(evaluation->rollout, f)));
    UPS_TRY(quantiles_json(evaluation, frames, quantiles, error));
    return correlation_times_json(evaluation, correlation_times, error);
}

static json_t *hash_json(uint64_t hash) {
    return json_sprintf("%016llx", (unsigned long long)hash);
}

/* One list a property, in the order in which trajectories were read. */
static json_t *by_trajectory_json(const ups_task_evaluation *evaluation) {
    json_t *samples = json_array(), *truth = json_array(), *nrmse = json_array(), *steps = json_array();
    for (int64_t t = 0; t < evaluation->trajectories; t++) {
        json_array_append_new(samples, json_integer((json_int_t)evaluation->samples[t]));
        json_array_append_new(truth, hash_json(evaluation->truth_hash[t]));
        json_array_append_new(nrmse, ups_json_number(ups_rollout_nrmse(evaluation->rollout, evaluation->solution, t)));
        const ups_correlation_time lost =
            ups_rollout_correlation_time_of(evaluation->rollout, evaluation->solution, t, evaluation->correlation);
        json_array_append_new(steps, isfinite(lost.steps) ? json_integer((json_int_t)lost.steps) : json_null());
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "sample", samples, "truth_xxh3", truth, "nrmse", nrmse,
                     "correlation_steps", steps);
}

/* ---- gates ------------------------------------------------------------------------------------------------------ */

/* Which trajectory has the worst value, so that one can look at it: `ups rollout --sample INDEX`. */
static ups_status worst_json(const ups_task_evaluation *evaluation, const ups_gate_result *result, json_t *json,
                             ups_error *error) {
    const ups_task *task = evaluation->task;
    const int64_t sample = evaluation->samples[result->trajectory];
    int64_t index = 0;
    while (task->splits.samples[evaluation->split][index] != sample) index++;
    ups_sample described;
    UPS_TRY(ups_source_describe(task->source, sample, &described, error));
    json_t *field =
               result->channel >= 0 ? ups_json_printable(task->source->channel_names[result->channel]) : json_null(),
           *step = result->frame >= 0 ? json_integer((json_int_t)result->frame + 1) : json_null();
    json_object_set_new(json, "worst",
                        json_pack("{s:o, s:o, s:I, s:o, s:o, s:o}", "file",
                                  ups_json_printable(task->source->files[ups_sample_file(task->source, sample)]),
                                  "sample", ups_json_printable(described.name), "index", (json_int_t)index,
                                  "truth_xxh3", hash_json(evaluation->truth_hash[result->trajectory]), "field", field,
                                  "step", step));
    return UPS_OK;
}

/* Each field's worst value; null where the gate is not of it. */
static json_t *gate_fields_json(const ups_task_evaluation *evaluation, int gate) {
    json_t *json = json_object();
    for (int64_t c = 0; c < evaluation->task->geometry.channels; c++) {
        int64_t trajectory, frame;
        if (!evaluation->solution[c]) continue;
        const double value = ups_gates_worst(evaluation->gates, evaluation->rollout, gate, c, &trajectory, &frame);
        json_object_set_new(json, evaluation->task->source->channel_names[c], ups_json_number(value));
    }
    return json;
}

/* {"bounded": {"state", "value", "limit", …}, …} */
static ups_status gates_json(const ups_task_evaluation *evaluation, json_t *json, ups_error *error) {
    for (int i = 0; i < UPS_GATES; i++) {
        const ups_gate_result *result = &evaluation->gate[i];
        json_t *gate = json_pack("{s:s, s:o, s:f}", "state", ups_gate_state_name(result->state), "value",
                                 ups_json_number(result->value), "limit", result->limit);
        json_object_set_new(json, ups_gate_names[i], gate);
        if (result->reason) json_object_set_new(gate, "reason", json_string(result->reason));
        if (result->trajectory < 0) continue;
        if (isinf(result->value)) json_object_set_new(gate, "reason", json_string("the prediction is not finite"));
        if (i != UPS_GATE_DIVERGENCE) json_object_set_new(gate, "fields", gate_fields_json(evaluation, i));
        UPS_TRY(worst_json(evaluation, result, gate, error));
    }
    return UPS_OK;
}

ups_status ups_task_evaluation_json(const ups_task_evaluation *evaluation, json_t **out, ups_error *error) {
    const ups_task *task = evaluation->task;
    json_t *grid = json_array(), *solution = json_array(), *constant = json_array(), *horizons = json_array();
    for (int a = 0; a < task->geometry.dims; a++) {
        json_array_append_new(grid, json_integer((json_int_t)task->geometry.grid[a]));
    }
    for (int64_t c = 0; c < task->geometry.channels; c++) {
        json_array_append_new(evaluation->solution[c] ? solution : constant,
                              json_string(task->source->channel_names[c]));
    }
    for (int i = 0; i < evaluation->horizon_count; i++) {
        json_array_append_new(horizons, horizon_json(evaluation, &evaluation->horizons[i]));
    }
    json_t *json = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "task", task->name, "split",
                             ups_split_name(evaluation->split), "trajectories", (json_int_t)evaluation->trajectories,
                             "given", (json_int_t)evaluation->given, "steps", (json_int_t)evaluation->steps, "stride",
                             (json_int_t)task->config->stride, "grid", grid, "solution_fields", solution,
                             "constant_fields", constant, "horizons", horizons);
    ups_status status = json ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "evaluation: out of memory");
    if (status == UPS_OK && evaluation->rollout) {
        json_t *over_time = json_object();
        json_object_set_new(json, "over_time", over_time);
        status = over_time_json(evaluation, over_time, error);
        json_object_set_new(json, "by_trajectory", by_trajectory_json(evaluation));
        json_t *gates = json_object();
        json_object_set_new(json, "gates", gates);
        if (status == UPS_OK) status = gates_json(evaluation, gates, error);
    }
    if (evaluation->latents > 0) {
        json_object_set_new(json, "latents_per_frame", json_integer((json_int_t)evaluation->latents));
        json_object_set_new(json, "frame_seconds", ups_json_number(evaluation->frame_seconds));
    }
    json_object_set_new(json, "seconds", json_real(evaluation->seconds));
    if (status != UPS_OK) {
        json_decref(json);
        json = NULL;
    }
    *out = json;
    return status;
}

void ups_task_evaluation_free(ups_task_evaluation *evaluation) {
    for (int i = 0; i < evaluation->horizon_count; i++) {
        for (int f = 0; f < UPS_FORECASTS; f++) {
            free(evaluation->horizons[i].fields[f]);
            free(evaluation->horizons[i].nrmse_by_frame[f]);
        }
    }
    free(evaluation->horizons);
    free(evaluation->solution);
    free(evaluation->samples);
    free(evaluation->truth_hash);
    ups_rollout_scores_destroy(evaluation->rollout);
    ups_gates_destroy(evaluation->gates);
    *evaluation = (ups_task_evaluation){0};
}
