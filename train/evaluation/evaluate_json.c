/* An evaluation as JSON: what output/evaluation.json and `ups eval --json` hold. JSON has no NaN: a metric that does
 * not exist (a band finer than the grid) or blew up is null. */
#include "train/evaluation/evaluate.h"
#include "train/metrics.h"

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
    for (int f = 0; f < UPS_FORECASTS; f++) {
        json_object_set_new(json, ups_forecast_names[f], metrics_json(&h->summary[f]));
        json_t *list = json_array();
        for (int64_t t = 0; t < h->frames; t++) json_array_append_new(list, ups_json_number(h->nrmse_by_frame[f][t]));
        json_object_set_new(by_frame, ups_forecast_names[f], list);
    }
    for (int64_t c = 0; c < task->geometry.channels; c++) {
        json_t *field = json_object();
        for (int f = 0; f < UPS_FORECASTS; f++) {
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

json_t *ups_task_evaluation_json(const ups_task_evaluation *evaluation) {
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
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:f}", "task", task->name, "split",
                     ups_split_name(evaluation->split), "trajectories", (json_int_t)evaluation->trajectories, "given",
                     (json_int_t)evaluation->given, "steps", (json_int_t)evaluation->steps, "stride",
                     (json_int_t)task->config->stride, "grid", grid, "solution_fields", solution, "constant_fields",
                     constant, "horizons", horizons, "seconds", evaluation->seconds);
}
