#include "train/evaluation/document.h"

#include "base/files.h"
#include "base/log.h"
#include "cache/store/fingerprint.h"
#include "train/config/load.h"
#include "train/run/machine.h"
#include "train/run/own.h"
#include "train/run/provenance.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ---------------------------------------------------------------------------------------------------- */

static bool is_evaluated(const ups_horizon_evaluation *h) {
    return h->windows > 0 || h->steps == 0;
}

/* Whether repeating the start is exact at every horizon: the data do not change, and there is nothing to predict. */
static bool is_still(const ups_task_evaluation *evaluation) {
    for (int i = 0; i < evaluation->horizon_count; i++) {
        const ups_horizon_evaluation *h = &evaluation->horizons[i];
        if (is_evaluated(h) && !(h->summary[UPS_FORECAST_PERSISTENCE].rmse <= 0)) return false;
    }
    return true;
}

/* Adds the horizons at which the operator is worse than persistence, where there is something to predict. */
static void find_worse(const ups_task_evaluation *evaluation, json_t *worse) {
    if (is_still(evaluation)) return;
    for (int i = 0; i < evaluation->horizon_count; i++) {
        const ups_horizon_evaluation *h = &evaluation->horizons[i];
        if (!is_evaluated(h)) continue;
        double model = h->summary[UPS_FORECAST_MODEL].nrmse, baseline = h->summary[UPS_FORECAST_PERSISTENCE].nrmse;
        bool blew_up = !isfinite(model) && isfinite(baseline);
        if (!blew_up && !(model > baseline)) continue;
        json_t *ratio = blew_up || baseline <= 0 ? json_null() : json_real(model / baseline);
        json_array_append_new(worse, json_pack("{s:s, s:I, s:b, s:o}", "task", evaluation->task->name, "steps",
                                               (json_int_t)(h->steps ? h->steps : h->frames), "whole", h->steps == 0,
                                               "ratio", ratio));
    }
}

/* Adds the gates that fail, of a task as it is told. */
static void find_failed(json_t *task, json_t *failed) {
    const char *gate;
    json_t *result;
    json_object_foreach(json_object_get(task, "gates"), gate, result) {
        const char *state = json_string_value(json_object_get(result, "state"));
        if (!state || strcmp(state, ups_gate_state_name(UPS_GATE_FAILS)) != 0) continue;
        json_array_append_new(failed,
                              json_pack("{s:O, s:s, s:O, s:O, s:O?}", "task", json_object_get(task, "task"), "gate",
                                        gate, "value", json_object_get(result, "value"), "limit",
                                        json_object_get(result, "limit"), "worst", json_object_get(result, "worst")));
    }
}

static ups_status data_hash(const ups_task *task, char hex[33], ups_error *error) {
    return ups_fingerprint_source(task->source->files, task->source->file_count, NULL, 0, hex, error);
}

/* Where results go, behind what they are of. */
static ups_status begin_results(json_t *document, ups_error *error) {
    static const char *const lists[] = {"tasks", "worse_than_persistence", "failed_gates"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (json_object_set_new(document, lists[i], json_array()) != 0)
            return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    return UPS_OK;
}

/* What is evaluated of a task, and told in the document. */
static ups_status evaluate_task(const ups_session *session, int task, const ups_evaluated *evaluated,
                                const ups_evaluation_request *request, json_t *document, ups_error *error) {
    ups_task_evaluation evaluation;
    char data[33];
    UPS_TRY(data_hash(&session->tasks->task[task], data, error));
    UPS_TRY(ups_evaluate_task(session->config, session->tasks, task, request->split, evaluated, &evaluation, error));
    if (request->show) request->show(request->context, &evaluation);
    json_t *told = NULL;
    ups_status status = ups_task_evaluation_json(&evaluation, &told, error);
    if (status == UPS_OK) {
        json_object_set_new(told, "data_xxh3", json_string(data));
        json_array_append_new(json_object_get(document, "tasks"), told);
        find_worse(&evaluation, json_object_get(document, "worse_than_persistence"));
        find_failed(told, json_object_get(document, "failed_gates"));
    }
    ups_task_evaluation_free(&evaluation);
    return status;
}

static ups_status evaluate_model(const ups_session *session, int task, const ups_surrogate_files *files,
                                 const ups_evaluation_request *request, json_t *document, ups_error *error) {
    ups_evaluated evaluated = {0};
    const ups_surrogate_use use = {.at_grid_points = true};
    UPS_TRY(ups_surrogate_open(session->config, session->tasks, task, session->device, files, use, &evaluated.surrogate,
                               error));
    ups_status status = evaluate_task(session, task, &evaluated, request, document, error);
    ups_surrogate_close(evaluated.surrogate);
    return status;
}

static ups_status add_provenance(const ups_session *session, const ups_surrogate_files *files, json_t *document,
                                 ups_error *error) {
    json_t *operator_run = NULL, *autoencoder_run = NULL;
    char *config = NULL;
    ups_status status = ups_run_provenance(files->op, &operator_run, error);
    if (status == UPS_OK) status = ups_run_provenance(files->autoencoder, &autoencoder_run, error);
    if (status == UPS_OK) status = ups_config_print(&ups_run_schema, session->config, &config, error);
    if (status == UPS_OK) {
        json_object_set(document, "training", operator_run);
        if (!json_equal(operator_run, autoencoder_run))
            json_object_set(document, "autoencoder_training", autoencoder_run);
        json_object_set_new(document, "command", json_pack("{s:s}", "config", config));
        json_object_set_new(document, "machine", ups_machine_describe(session->device));
    }
    json_decref(operator_run);
    json_decref(autoencoder_run);
    free(config);
    return status;
}

static ups_status evaluate_all(ups_session *session, const ups_surrogate_files *files,
                               const ups_evaluation_request *request, json_t *document, ups_error *error) {
    UPS_TRY(ups_evaluation_check(session->config, session->tasks, error));
    UPS_TRY(ups_session_normalise(session, files->autoencoder, error));
    UPS_TRY(ups_tasks_condition_as_trained(session->tasks, files->op, error));
    UPS_TRY(add_provenance(session, files, document, error));
    for (int t = 0; t < session->tasks->count; t++)
        UPS_TRY(evaluate_model(session, t, files, request, document, error));
    return UPS_OK;
}

/* ---- making it of predictions ----------------------------------------------------------------------------------- */

static bool is_of(const ups_predicted_file *file, const ups_task *task) {
    return !file->task || strcmp(file->task, task->name) == 0;
}

/* Whether each file is of a task that there is. */
static ups_status check_predicted(const ups_tasks *tasks, const ups_evaluation_request *request, ups_error *error) {
    for (int64_t i = 0; i < request->predicted_count; i++) {
        const ups_predicted_file *file = &request->predicted[i];
        bool found = false;
        for (int t = 0; t < tasks->count; t++) found = found || is_of(file, &tasks->task[t]);
        if (!file->task && tasks->count > 1)
            return ups_fail(error, UPS_ERR_ARGUMENT,
                            "%s: of which task are these predictions? There are %d: say --predictions %s=%s",
                            file->path, tasks->count, tasks->task[0].name, file->path);
        if (!found)
            return ups_fail(error, UPS_ERR_ARGUMENT, "%s: there is no task %s; %s is one", file->path, file->task,
                            tasks->task[0].name);
    }
    return UPS_OK;
}

/* The predictions of a task: NULL where there are none. They are told in the document. */
static ups_status open_predicted(const ups_task *task, const ups_evaluation_request *request, json_t *told,
                                 ups_predictions **predictions, ups_error *error) {
    const char **files = calloc((size_t)request->predicted_count, sizeof *files);
    int64_t count = 0;
    char hash[33];
    *predictions = NULL;
    if (!files) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    for (int64_t i = 0; i < request->predicted_count; i++)
        if (is_of(&request->predicted[i], task)) files[count++] = request->predicted[i].path;
    ups_status status = count > 0 ? ups_predictions_open(task, files, count, predictions, error) : UPS_OK;
    if (status == UPS_OK && count > 0) status = ups_predictions_hash(*predictions, hash, error);
    if (status == UPS_OK && count > 0) {
        json_t *list = json_array();
        for (int64_t i = 0; i < count; i++) json_array_append_new(list, ups_json_printable(files[i]));
        json_array_append_new(told, json_pack("{s:s, s:o, s:s}", "task", task->name, "files", list, "xxh3", hash));
    }
    free(files);
    return status;
}

/* All files are opened, and held against the data, before the first one is evaluated. */
static ups_status evaluate_predicted(const ups_session *session, const ups_evaluation_request *request,
                                     json_t *document, ups_error *error) {
    const ups_tasks *tasks = session->tasks;
    ups_predictions **predictions = calloc((size_t)tasks->count, sizeof *predictions);
    if (!predictions) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = UPS_OK;
    for (int t = 0; t < tasks->count && status == UPS_OK; t++) {
        json_t *told = json_object_get(document, "predictions");
        status = open_predicted(&tasks->task[t], request, told, &predictions[t], error);
        if (status == UPS_OK && predictions[t])
            status = ups_evaluation_match(session->config, &tasks->task[t], request->split, predictions[t], error);
    }
    for (int t = 0; t < tasks->count && status == UPS_OK; t++) {
        const ups_evaluated evaluated = {.predictions = predictions[t]};
        if (predictions[t]) status = evaluate_task(session, t, &evaluated, request, document, error);
    }
    for (int t = 0; t < tasks->count; t++) ups_predictions_close(predictions[t]);
    free(predictions);
    return status;
}

static ups_status make_of_predictions(const ups_session *session, const ups_evaluation_request *request,
                                      json_t *document, ups_error *error) {
    char *config = NULL;
    json_object_set_new(document, "predictions", json_array());
    UPS_TRY(begin_results(document, error));
    UPS_TRY(check_predicted(session->tasks, request, error));
    UPS_TRY(ups_evaluation_check(session->config, session->tasks, error));
    UPS_TRY(ups_config_print(&ups_run_schema, session->config, &config, error));
    json_object_set_new(document, "command", json_pack("{s:s}", "config", config));
    json_object_set_new(document, "machine", ups_machine_describe(session->device));
    free(config);
    return evaluate_predicted(session, request, document, error);
}

/* ---- either ----------------------------------------------------------------------------------------------------- */

static ups_status make_of_models(ups_session *session, const ups_evaluation_request *request, json_t *document,
                                 ups_error *error) {
    ups_surrogate_files files;
    UPS_TRY(ups_surrogate_find(session->config, request->checkpoint, &files, error));
    json_object_set_new(document, "autoencoder",
                        json_pack("{s:s, s:s}", "file", files.autoencoder, "xxh3", files.autoencoder_hash));
    json_object_set_new(document, "operator", json_pack("{s:s, s:s}", "file", files.op, "xxh3", files.operator_hash));
    ups_status status = begin_results(document, error);
    if (status == UPS_OK) status = evaluate_all(session, &files, request, document, error);
    ups_surrogate_files_free(&files);
    return status;
}

ups_status ups_evaluation_make(ups_session *session, const ups_evaluation_request *request, json_t **document,
                               ups_error *error) {
    json_t *made = json_object();
    ups_status status = request->predicted_count > 0 ? make_of_predictions(session, request, made, error)
                                                     : make_of_models(session, request, made, error);
    *document = NULL;
    if (status == UPS_OK)
        *document = made;
    else
        json_decref(made);
    return status;
}

/* ---- keeping ---------------------------------------------------------------------------------------------------- */

ups_status ups_evaluation_publish(const ups_run_config *config, const json_t *document, ups_error *error) {
    char *path = ups_run_path(config, "evaluation.json");
    ups_status status =
        path ? ups_make_directories(config->output, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = ups_json_publish(path, document, error);
    free(path);
    return status;
}

static const char *text_in(const json_t *document, const char *section, const char *key) {
    const char *text = json_string_value(json_object_get(json_object_get(document, section), key));
    return text ? text : "";
}

/* Why the tasks of a document are not those that would be evaluated now; NULL: they are. */
static ups_status find_other_data(const ups_session *session, const json_t *document, const char **reason,
                                  ups_error *error) {
    const json_t *tasks = json_object_get(document, "tasks");
    if (json_array_size(tasks) != (size_t)session->tasks->count) *reason = "it is of other tasks";
    for (int t = 0; t < session->tasks->count && !*reason; t++) {
        const ups_task *task = &session->tasks->task[t];
        const json_t *told = json_array_get(tasks, (size_t)t);
        const char *split = json_string_value(json_object_get(told, "split")),
                   *data = json_string_value(json_object_get(told, "data_xxh3"));
        char hash[33];
        UPS_TRY(data_hash(task, hash, error));
        if (!json_object_get(told, "by_trajectory")) *reason = "it does not hold each trajectory's error";
        if (!split || strcmp(split, ups_split_name(ups_task_held_out(task))) != 0) *reason = "it is of another split";
        if (!data || strcmp(data, hash) != 0) *reason = "its files have changed since";
    }
    return UPS_OK;
}

/* Whether evaluations by the configuration that is told, as text, and by the one of now give other numbers: they differ
 * in a key of evaluation, in what becomes of bad samples, or in one that any result depends on. */
static ups_status evaluates_otherwise(const ups_run_config *now, const char *told, bool *otherwise, ups_error *error) {
    static const char section[] = "evaluation.";
    void *then = NULL;
    ups_run_differences differences = {0};
    ups_error unreadable; /* of another version, or of none */
    *otherwise = ups_config_load_text("evaluation.json", told, strlen(told), &ups_run_schema, NULL, 0, &then,
                                      &unreadable) != UPS_OK;
    if (*otherwise) return UPS_OK;
    const ups_status status = ups_run_compare(then, now, &differences, error);
    for (size_t i = 0; i < differences.count; i++) {
        const ups_run_difference *d = &differences.list[i];
        *otherwise = *otherwise || !d->neutral || strncmp(d->key, section, strlen(section)) == 0 ||
                     strcmp(d->key, "data.on_bad_sample") == 0;
    }
    ups_run_differences_free(&differences);
    ups_config_free(then);
    return status;
}

static ups_status find_reason(const ups_session *session, const ups_surrogate_files *files, const json_t *document,
                              const char **reason, ups_error *error) {
    *reason = NULL;
    if (strcmp(text_in(document, "autoencoder", "xxh3"), files->autoencoder_hash) != 0 ||
        strcmp(text_in(document, "operator", "xxh3"), files->operator_hash) != 0) {
        *reason = "it is of other models";
        return UPS_OK;
    }
    bool otherwise;
    UPS_TRY(evaluates_otherwise(session->config, text_in(document, "command", "config"), &otherwise, error));
    if (otherwise) *reason = "it was made with other settings";
    return *reason ? UPS_OK : find_other_data(session, document, reason, error);
}

ups_status ups_evaluation_recall(ups_session *session, json_t **document, const char **reason, ups_error *error) {
    const char *unused;
    if (!reason) reason = &unused;
    *document = NULL;
    *reason = "there is none";
    char *path = ups_run_path(session->config, "evaluation.json");
    if (!path) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = UPS_OK;
    if (!ups_path_is_absent(path)) {
        ups_surrogate_files files = {0};
        ups_error why;
        json_t *found = NULL;
        status = ups_json_read(path, &found, &why);
        if (status != UPS_OK)
            ups_fail(error, status, "%s; remove the file, or let `ups eval` write it again", why.message);
        if (status == UPS_OK) status = ups_surrogate_find(session->config, NULL, &files, error);
        if (status == UPS_OK) status = find_reason(session, &files, found, reason, error);
        if (status == UPS_OK && !*reason) *document = json_incref(found);
        ups_surrogate_files_free(&files);
        json_decref(found);
    }
    free(path);
    return status;
}

ups_status ups_evaluation_recall_or_make(ups_session *session, const char *name, json_t **document, ups_error *error) {
    const ups_evaluation_request request = {.split = UPS_SPLIT_COUNT};
    const char *reason = NULL;
    UPS_TRY(ups_evaluation_recall(session, document, &reason, error));
    if (*document) return UPS_OK;
    ups_log(UPS_LOG_INFO, "%s is evaluated now: of its evaluation.json, %s", name, reason);
    UPS_TRY(ups_evaluation_make(session, &request, document, error));
    return ups_evaluation_publish(session->config, *document, error);
}
