/* `ups eval CONFIG|RUN`: errors of the trained surrogate on held-out trajectories, as a table and as JSON. */
#include "base/files.h"
#include "base/json.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_mistakes.h"
#include "tools/output.h"
#include "tools/report/evaluation_report.h"
#include "train/evaluation/document.h"
#include "train/session.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECKPOINT, PREDICTIONS, SPLIT, OUTPUT, HTML, STRIDE, GATES, SET, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [CHECKPOINT] = {"checkpoint", 'c', "best|latest|FILE|DIR",
                    "models to take instead of the run's: of its checkpoints, a safetensors file or a directory"},
    [PREDICTIONS] =
        {"predictions", 0, "[TASK=]FILE",
         "scores what another model predicted, from a file, in the place of the run's own models; may be given "
         "several times"},
    [SPLIT] = {"split", 0, "train|validation|test",
               "trajectories to take (default test; validation where that is empty)"},
    [OUTPUT] =
        {"output", 'o', "FILE.json",
         "JSON file to write (default: evaluation.json in the run's directory; with --predictions x.h5, x.json)"},
    [HTML] = {"html", 0, "FILE", "writes a page with charts: errors over time, spectra, trajectories"},
    [STRIDE] = {"stride", 0, "N",
                "stored frames from one step to the next, of those that were trained (default: tasks[].stride)"},
    [GATES] = {"gates", 0, NULL, "ends with exit code 1 where a physics gate fails: a limit of evaluation.gates"},
    [SET] = {"set", 's', "KEY=VALUE", "overrides a key of the configuration; may be given several times"},
};
static const ups_usage usage = {
    "eval",
    "CONFIG|RUN",
    "measures the trained operator on held-out trajectories, by the metrics of PDEBench and The Well",
    options,
    OPTION_COUNT,
    "For every task and horizon (evaluation.horizons, in steps; 0: the whole trajectory), errors of decoded fields in\n"
    "physical units on the full grid, mean over the fields that change in time:\n"
    "  nRMSE  root mean square error over the field's own root mean square, mean over trajectories and frames\n"
    "  VRMSE  the same over the field's standard deviation in space, as The Well has it: 1 is what its mean scores\n"
    "  RMSE   root mean square error\n"
    "  cRMSE  error of the field's mean: what should be conserved\n"
    "  max    largest error\n"
    "  bRMSE  RMSE on the domain's boundary\n"
    "  fRMSE  RMSE by wave number: low (below 4), middle (4 to 11), high (12 and more)\n"
    "beside persistence (the start frame repeated) and the autoencoder's reconstruction of the same frames, which no\n"
    "operator on its latents can beat by much. Where the operator is worse than persistence, the last lines say so.\n"
    "Of several fields each one's nRMSE follows, model : persistence.\n"
    "Of the whole rollout follow the step from which on the correlation with the truth, mean over trajectories, is "
    "below\n"
    "evaluation.correlation, and how far the fields' means over space move: none where they are conserved.\n"
    "evaluation.json also has these step by step, quantiles of nRMSE over trajectories, energy by wave number, and "
    "each\n"
    "trajectory's own error.\n"
    "Then the physics gates: of each the worst value over all trajectories and fields, its limit "
    "(evaluation.gates.NAME;\n"
    "0: off) and the trajectory that has it:\n"
    "  bounded         how far a prediction leaves the data's range, in parts of it\n"
    "  conservation    drift of a mean that the data conserve, over the field's root mean square\n"
    "  positivity      depth below 0 of a field that the data have nowhere negative, over its root mean square\n"
    "  negative_share  share of points at which such a field is negative\n"
    "  boundary        error on the border of a domain that is not periodic, over the field's root mean square\n"
    "  divergence      of an incompressible velocity beyond the data's, over its gradient\n"
    "With --gates the command ends with 1 where one fails.\n"
    "With evaluation.given=10 the first ten frames are given and not scored, as in PDEBench's published figures; the\n"
    "rollout starts from the last of them, and horizons count from there.\n"
    "An operator that was trained on several strides (tasks[].strides) takes steps of any of them: --stride.\n"
    "RUN, the directory of a run, stands for its own configuration.\n"
    "\n--checkpoint best takes the weights of the operator's best validation, latest those of its last checkpoint. It\n"
    "also takes an exported model, a training checkpoint (step-*.safetensors), or a directory with them.\n"
    "A model can be evaluated on other files of its PDEs: its normalisation is its own. On another grid than it was\n"
    "trained on only one of a fixed number of tokens can; with tokens: grid patches count points, so that it predicts\n"
    "other physics there, and a warning says so.\n"
    "\n--predictions scores another model's predictions, of PyTorch say, on the same trajectories in the same way; "
    "CONFIG\n"
    "says what the data are, and nothing has to be trained. FILE has an array `prediction` (a .npy file its array) of\n"
    "(trajectory, time, grid, field), or PDEBench's or the data's own layout, in physical units: a trajectory for each "
    "of\n"
    "the split, in the order of its files, and all frames, or those behind the given ones. All fields are needed.\n"
    "`ups compare RUN FILE.json` then tells which model is better, and how sure that is.\n"
    "\nExamples:\n"
    "  ups eval configs/quickstart.yaml\n"
    "  ups eval runs/quickstart --checkpoint best\n"
    "  ups eval runs/quickstart --html evaluation.html\n"
    "  ups eval runs/quickstart --predictions fno.npy --set evaluation.max_samples=0\n"
    "  ups eval runs/quickstart --gates --set evaluation.gates.conservation=0.001\n"
    "  ups eval runs/quickstart --set tasks[0].test_files=[unseen.hdf5] --set evaluation.max_samples=0\n"
    "  ups eval configs/quickstart.yaml --checkpoint runs/quickstart/checkpoints/operator --split validation\n"
    "  ups eval configs/quickstart.yaml --set evaluation.given=10 --set evaluation.max_samples=0\n"
    "  ups eval configs/quickstart.yaml --json --set evaluation.max_samples=0 | jq '.tasks[].horizons[].model.nrmse'"};

typedef struct eval_request {
    const char *run, *checkpoint, *output, *html;
    ups_split split;
    ups_predicted_file *predicted; /* (predicted_count) */
    int64_t predicted_count;
    char *beside;   /* the predictions' own output, where none is said */
    int64_t stride; /* 0: each task's own */
    bool gates, json;
} eval_request;

/* ---- the table ------------------------------------------------------------------------------------------------- */

static void print_metrics(const char *name, const ups_pde_metrics_values *v,
                          const ups_pde_metrics_values *persistence) {
    const double columns[] = {v->nrmse,
                              v->vrmse,
                              v->rmse,
                              v->crmse,
                              v->max_error,
                              v->brmse,
                              v->frmse[UPS_FREQUENCY_LOW],
                              v->frmse[UPS_FREQUENCY_MIDDLE],
                              v->frmse[UPS_FREQUENCY_HIGH]};
    printf("  %-15s", name);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        if (isnan(columns[i])) {
            printf(" %9s", "-");
        } else {
            printf(" %9.3g", columns[i]);
        }
    }
    if (persistence && isfinite(v->nrmse) && persistence->nrmse > 0)
        printf("   %.3g x persistence's nRMSE", v->nrmse / persistence->nrmse);
    putchar('\n');
}

static const char *plural(int64_t count) {
    return count == 1 ? "" : "s";
}

static void print_fields(const ups_task_evaluation *evaluation) {
    const char *separator = "";
    for (int64_t c = 0; c < evaluation->task->geometry.channels; c++) {
        if (!evaluation->solution[c]) continue;
        printf("%s%s", separator, evaluation->task->source->channel_names[c]);
        separator = ", ";
    }
}

/* Fields left out of the table, with what the autoencoder makes of them. */
static void print_constant_fields(const ups_task_evaluation *evaluation) {
    const ups_horizon_evaluation *last = NULL;
    for (int i = 0; i < evaluation->horizon_count; i++) {
        if (evaluation->horizons[i].windows > 0) last = &evaluation->horizons[i];
    }
    for (int64_t c = 0; c < evaluation->task->geometry.channels && last; c++) {
        if (evaluation->solution[c]) continue;
        printf("%s never changes in time and is left out above: nRMSE of model %.3g",
               evaluation->task->source->channel_names[c], last->fields[UPS_FORECAST_MODEL][c].nrmse);
        if (evaluation->forecasts > UPS_FORECAST_RECONSTRUCTION)
            printf(", of reconstruction %.3g", last->fields[UPS_FORECAST_RECONSTRUCTION][c].nrmse);
        putchar('\n');
    }
}

/* nRMSE of each field where there are several, which the means above may hide: a row a field, a column a horizon. */
static void print_by_field(const ups_task_evaluation *evaluation) {
    const int64_t channels = evaluation->task->geometry.channels;
    int64_t fields = 0;
    for (int64_t c = 0; c < channels; c++) fields += evaluation->solution[c];
    if (fields < 2) return;
    printf("nRMSE by field, model : persistence\n  %-15s", "");
    for (int i = 0; i < evaluation->horizon_count; i++) {
        const ups_horizon_evaluation *h = &evaluation->horizons[i];
        char title[40];
        snprintf(title, sizeof title, "%lld step%s", (long long)h->steps, plural(h->steps));
        if (h->windows > 0) printf(" %21s", h->steps > 0 ? title : "whole rollout");
    }
    for (int64_t c = 0; c < channels; c++) {
        if (!evaluation->solution[c]) continue;
        printf("\n  %-15s", evaluation->task->source->channel_names[c]);
        for (int i = 0; i < evaluation->horizon_count; i++) {
            const ups_horizon_evaluation *h = &evaluation->horizons[i];
            if (h->windows == 0) continue;
            printf(" %9.3g : %9.3g", h->fields[UPS_FORECAST_MODEL][c].nrmse,
                   h->fields[UPS_FORECAST_PERSISTENCE][c].nrmse);
        }
    }
    putchar('\n');
}

/* When the correlation with the truth is lost, and how far the fields' means move to the last step. */
static void print_over_time(const ups_task_evaluation *evaluation) {
    const ups_rollout_scores *rollout = evaluation->rollout;
    const double threshold = evaluation->correlation;
    printf("correlation with the truth:");
    for (int f = 0; f < UPS_FORECAST_RECONSTRUCTION; f++) {
        const ups_correlation_time lost = ups_rollout_correlation_time(rollout, f, evaluation->solution, threshold);
        if (f > 0) printf("; %s", ups_forecast_names[f]);
        if (isfinite(lost.steps))
            printf(" below %g from step %.0f on (time %.4g)", threshold, lost.steps, lost.time);
        else
            printf(" never below %g", threshold);
    }
    printf("\nmean over space, moved by the last step:");
    const char *separator = "";
    for (int64_t c = 0; c < evaluation->task->geometry.channels; c++) {
        if (!evaluation->solution[c]) continue;
        const ups_mean_change change = ups_rollout_mean_change(rollout, c, evaluation->steps - 1);
        printf("%s %s %.2g of its RMS (truth %.2g)", separator, evaluation->task->source->channel_names[c],
               change.model, change.truth);
        separator = ",";
    }
    putchar('\n');
}

static void print_gate(const ups_task_evaluation *evaluation, int gate) {
    const ups_gate_result *result = &evaluation->gate[gate];
    const ups_source *source = evaluation->task->source;
    printf("  %-15s", ups_gate_names[gate]);
    if (result->state == UPS_GATE_OFF || result->state == UPS_GATE_DOES_NOT_APPLY) {
        printf(" %9s %9s   %s%s%s\n", "-", "-", ups_gate_state_name(result->state), result->reason ? ": " : "",
               result->reason ? result->reason : "");
        return;
    }
    printf(" %9.3g %9.3g   %s", result->value, result->limit, ups_gate_state_name(result->state));
    if (result->value > 0) {
        const int64_t sample = evaluation->samples[result->trajectory];
        ups_sample described;
        printf(": %s", result->channel >= 0 ? source->channel_names[result->channel] : "the velocity");
        if (ups_source_describe(source, sample, &described, NULL) == UPS_OK) printf(" of %s", described.name);
        printf(" in %s", source->files[ups_sample_file(source, sample)]);
        if (result->frame >= 0) printf(", step %lld", (long long)result->frame + 1);
        if (isinf(result->value)) printf(", is not finite");
    }
    putchar('\n');
}

static void print_gates(const ups_task_evaluation *evaluation) {
    printf("gates, of whole rollouts\n  %-15s %9s %9s\n", "", "worst", "limit");
    for (int i = 0; i < UPS_GATES; i++) print_gate(evaluation, i);
}

static void print_evaluation(const ups_task_evaluation *evaluation) {
    const ups_sample *geometry = &evaluation->task->geometry;
    printf("\n%s: ", evaluation->task->name);
    print_fields(evaluation);
    printf(" on %s%lld", geometry->points && geometry->points->own ? "up to " : "", (long long)geometry->grid[0]);
    for (int a = 1; a < geometry->dims; a++) printf(" x %lld", (long long)geometry->grid[a]);
    printf(" points, %lld %s trajector%s of %lld step%s", (long long)evaluation->trajectories,
           ups_split_name(evaluation->split), evaluation->trajectories == 1 ? "y" : "ies", (long long)evaluation->steps,
           plural(evaluation->steps));
    if (evaluation->given > 1) printf(" behind %lld given frames", (long long)evaluation->given);
    printf(" (%.1f s)\n", evaluation->seconds);
    printf("  %-15s %9s %9s %9s %9s %9s %9s %9s %9s %9s\n", "", "nRMSE", "VRMSE", "RMSE", "cRMSE", "max", "bRMSE",
           "fRMSE low", "middle", "high");
    bool one_step_shown = false;
    for (int i = 0; i < evaluation->horizon_count; i++) {
        const ups_horizon_evaluation *h = &evaluation->horizons[i];
        if (h->steps == 0 && h->frames == 1 && one_step_shown) {
            printf("whole rollout: that one step\n");
            continue;
        }
        one_step_shown = one_step_shown || (h->steps == 1 && h->windows > 0);
        if (h->steps > 0) {
            printf("after %lld step%s", (long long)h->steps, plural(h->steps));
            if (h->windows == 0) {
                printf(": no trajectory is that long\n");
                continue;
            }
            printf(", from %lld start%s\n", (long long)h->windows, plural(h->windows));
        } else {
            printf("whole rollout, %lld step%s\n", (long long)h->frames, plural(h->frames));
        }
        const ups_pde_metrics_values *persistence = &h->summary[UPS_FORECAST_PERSISTENCE];
        for (int f = 0; f < evaluation->forecasts; f++) {
            print_metrics(ups_forecast_names[f], &h->summary[f], f == UPS_FORECAST_MODEL ? persistence : NULL);
        }
    }
    print_by_field(evaluation);
    if (evaluation->rollout && evaluation->steps > 1) print_over_time(evaluation);
    print_constant_fields(evaluation);
    if (evaluation->gates) print_gates(evaluation);
}

/* ---- the summary ------------------------------------------------------------------------------------------------ */

static void print_worse(const json_t *worse, bool predicted) {
    printf("\nWORSE THAN PERSISTENCE: repeating the start frame has smaller errors than the %s in\n",
           predicted ? "predictions" : "operator");
    for (size_t i = 0; i < json_array_size(worse); i++) {
        const json_t *entry = json_array_get(worse, i), *ratio = json_object_get(entry, "ratio");
        long long steps = (long long)json_integer_value(json_object_get(entry, "steps"));
        printf("  %s, %s %lld step%s: ", json_string_value(json_object_get(entry, "task")),
               json_is_true(json_object_get(entry, "whole")) ? "the whole rollout of" : "after", steps, plural(steps));
        if (json_is_real(ratio))
            printf("%.3g x its nRMSE\n", json_real_value(ratio));
        else
            printf("the prediction is not finite, or persistence is exact\n");
    }
    if (!predicted) printf("More operator.steps and another learning rate are what to try first.\n");
}

/* Whether repeating the start is exact at every horizon: the data do not change, or not where they were cut to float32.
 */
static bool is_still(const json_t *task) {
    const json_t *horizons = json_object_get(task, "horizons");
    size_t still = 0, evaluated = 0;
    for (size_t i = 0; i < json_array_size(horizons); i++) {
        const json_t *persistence =
            json_object_get(json_array_get(horizons, i), ups_forecast_names[UPS_FORECAST_PERSISTENCE]);
        const json_t *rmse = json_object_get(persistence, "rmse");
        if (persistence) evaluated++;
        if (json_is_number(rmse) && json_number_value(rmse) <= 0) still++;
    }
    return evaluated > 0 && still == evaluated;
}

/* Names the tasks that have nothing to predict; returns how many they are. */
static size_t print_still(const json_t *tasks) {
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(tasks); i++) {
        const json_t *task = json_array_get(tasks, i);
        if (!is_still(task)) continue;
        printf("%s%s: the data do not change in time, as float32 has them (persistence's error is 0): an operator has "
               "nothing to predict.\n",
               count++ == 0 ? "\n" : "", json_string_value(json_object_get(task, "task")));
    }
    return count;
}

static void print_verdict(const json_t *document) {
    const json_t *tasks = json_object_get(document, "tasks"),
                 *worse = json_object_get(document, "worse_than_persistence");
    const bool predicted = json_object_get(document, "predictions") != NULL;
    const size_t still = print_still(tasks), moving = json_array_size(tasks) - still;
    if (json_array_size(worse) > 0)
        print_worse(worse, predicted);
    else if (moving > 0)
        printf("\nThe %s better than persistence at every horizon%s.\n", predicted ? "predictions are" : "operator is",
               still > 0 ? " of the other tasks" : "");
}

/* "1.23, limit 1"; a number that is null is infinite. */
static const char *against_limit(const json_t *failed, char text[64]) {
    const json_t *value = json_object_get(failed, "value");
    const double limit = json_number_value(json_object_get(failed, "limit"));
    if (json_is_number(value))
        snprintf(text, 64, "%.3g, limit %g", json_number_value(value), limit);
    else
        snprintf(text, 64, "not finite, limit %g", limit);
    return text;
}

/* What fails, and how to look at it: at a model's rollout, since it can be made again. */
static void print_failed(const json_t *failed, const char *run, bool predicted) {
    char text[64];
    if (json_array_size(failed) > 0) printf("\nGATES FAIL: on its worst trajectory a rollout is not admissible\n");
    for (size_t i = 0; i < json_array_size(failed); i++) {
        const json_t *entry = json_array_get(failed, i), *worst = json_object_get(entry, "worst");
        const char *task = json_string_value(json_object_get(entry, "task"));
        const char *gate = json_string_value(json_object_get(entry, "gate"));
        const long long index = (long long)json_integer_value(json_object_get(worst, "index"));
        printf("  %s, %s: %s", task, gate, against_limit(entry, text));
        if (!predicted) printf("; to see it: ups rollout %s --task %s --sample %lld --png pictures", run, task, index);
        putchar('\n');
    }
}

/* The sentence that the command ends with where a gate fails. */
static ups_status judge(const json_t *failed, ups_error *error) {
    char text[64];
    const size_t count = json_array_size(failed);
    if (count == 0) return UPS_OK;
    const json_t *first = json_array_get(failed, 0);
    char others[64] = "";
    if (count > 1) snprintf(others, sizeof others, ", and %zu other gate%s", count - 1, count > 2 ? "s" : "");
    return ups_fail(error, UPS_ERR_NUMERIC,
                    "task %s: its rollouts fail the gate '%s' (%s)%s; `ups eval --help` says what the gates are, and "
                    "evaluation.gates sets their limits",
                    json_string_value(json_object_get(first, "task")),
                    json_string_value(json_object_get(first, "gate")), against_limit(first, text), others);
}

/* Before anything is evaluated: whether there will be anything to judge. */
static ups_status check_gates(const ups_evaluation_config *config, ups_error *error) {
    bool whole = false, on = false;
    for (unsigned i = 0; i < config->horizon_count; i++) whole = whole || config->horizons[i] == 0;
    for (int i = 0; i < UPS_GATES; i++) on = on || config->gates[i] > 0;
    if (!whole)
        return ups_fail(error, UPS_ERR_CONFIG,
                        "--gates judges whole rollouts, which evaluation.horizons does not ask for; add 0 to it, as in "
                        "--set evaluation.horizons=[1,0]");
    if (!on)
        return ups_fail(error, UPS_ERR_CONFIG,
                        "--gates has nothing to judge: every limit of evaluation.gates is 0, which means any value; "
                        "give one, as in --set evaluation.gates.bounded=0.5");
    return UPS_OK;
}

/* ---- the work -------------------------------------------------------------------------------------------------- */

static void show(void *context, const ups_task_evaluation *evaluation) {
    print_evaluation(evaluation);
    fflush(stdout);
}

/* [TASK=]FILE, borrowed but for the task's name, which the caller frees. */
static ups_predicted_file read_predicted(const char *value) {
    const size_t name = strspn(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-");
    if (name == 0 || value[name] != '=' || ups_path_exists(value)) return (ups_predicted_file){NULL, value};
    return (ups_predicted_file){strndup(value, name), value + name + 1};
}

/* What `evaluation.json` is called of predictions: fno.json of fno.h5. The caller frees it. */
static char *default_output(const char *predictions) {
    const size_t length = strlen(predictions);
    size_t end = length;
    while (end > 0 && predictions[end - 1] == '/') end--; /* a Zarr store is a directory */
    const char *slash = memrchr(predictions, '/', end), *dot = memrchr(predictions, '.', end);
    const char *name = slash ? slash + 1 : predictions;
    if (dot > name) end = (size_t)(dot - predictions);
    char *path = malloc(end + sizeof ".json");
    if (!path) return NULL;
    memcpy(path, predictions, end);
    memcpy(path + end, ".json", sizeof ".json");
    return path;
}

/* Before anything is read: what predictions go with, and where their scores go. */
static ups_status settle_predictions(eval_request *request, ups_error *error) {
    if (request->checkpoint)
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "--checkpoint and --predictions: either models are evaluated or what others predicted");
    if (request->stride > 0)
        return ups_fail(
            error, UPS_ERR_ARGUMENT,
            "--stride is of strides that an operator has learnt; of predictions say what theirs is by --set "
            "'tasks[0].stride=%lld'",
            (long long)request->stride);
    for (int64_t i = 0; i < request->predicted_count; i++)
        if (request->output) UPS_TRY(ups_output_is_no_input(request->output, &request->predicted[i].path, 1, error));
    if (request->output) return UPS_OK;
    request->output = request->beside = default_output(request->predicted[0].path);
    return request->output ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
}

static ups_status publish(const ups_run_config *config, const eval_request *request, const json_t *document,
                          ups_error *error) {
    if (!request->output) return ups_evaluation_publish(config, document, error);
    ups_remove_partials_of(request->output);
    return ups_json_publish(request->output, document, error);
}

static ups_status evaluate(ups_session *session, const eval_request *request, int *exit_code, ups_error *error) {
    const ups_evaluation_request wanted = {.checkpoint = request->checkpoint,
                                           .split = request->split,
                                           .predicted = request->predicted,
                                           .predicted_count = request->predicted_count,
                                           .show = request->json ? NULL : show};
    json_t *document;
    /* Under a name that nobody gave, scores of predictions take no model's evaluation's place. */
    const ups_output_kind kind = request->beside ? UPS_OUTPUT_SCORES : UPS_OUTPUT_EVALUATION;
    if (request->output) UPS_TRY(ups_output_check(request->output, kind, error));
    if (request->html && request->output && strcmp(request->html, request->output) == 0)
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%s: --output and --html name one file; the page would replace the scores", request->html);
    if (request->html) UPS_TRY(ups_output_check(request->html, UPS_OUTPUT_PAGE, error));
    if (request->gates) UPS_TRY(check_gates(&session->config->evaluation, error));
    UPS_TRY(ups_evaluation_make(session, &wanted, &document, error));
    ups_status status = publish(session->config, request, document, error);
    if (status == UPS_OK && request->html)
        status = ups_evaluation_report(
            document, request->predicted_count > 0 ? request->predicted[0].path : session->config->output,
            request->html, error);
    const json_t *failed = json_object_get(document, "failed_gates");
    if (status == UPS_OK && request->json) {
        ups_print_json(document, JSON_INDENT(2));
    } else if (status == UPS_OK) {
        print_verdict(document);
        print_failed(failed, request->run, request->predicted_count > 0);
        if (request->predicted_count > 0) printf("\nwritten to %s\n", request->output);
    }
    /* With --json the document says it already: the sentence goes to standard error alone. */
    if (status == UPS_OK && request->gates && judge(failed, error) != UPS_OK)
        *exit_code = ups_command_fail(NULL, error);
    json_decref(document);
    return status;
}

static void free_request(eval_request *request) {
    for (int64_t i = 0; i < request->predicted_count; i++) free((char *)request->predicted[i].task);
    free(request->predicted);
    free(request->beside);
}

int ups_cmd_eval(int argc, char **argv) {
    enum { MAXIMUM_STRIDE = 1 << 20 };
    ups_arguments arguments;
    ups_error error;
    eval_request request = {0};
    int split = UPS_SPLIT_COUNT, exit_code = UPS_EXIT_OK;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    request.predicted = calloc((size_t)argc + 1, sizeof *request.predicted);
    if (!request.predicted) {
        ups_fail(&error, UPS_ERR_MEMORY, "out of memory");
        return ups_command_fail(&arguments, &error);
    }
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == CHECKPOINT) request.checkpoint = arguments.value;
        if (option == PREDICTIONS) request.predicted[request.predicted_count++] = read_predicted(arguments.value);
        if (option == SPLIT) ups_arguments_choice(&arguments, &split);
        if (option == OUTPUT) request.output = arguments.value;
        if (option == HTML) request.html = arguments.value;
        if (option == STRIDE) ups_arguments_integer(&arguments, 1, MAXIMUM_STRIDE, &request.stride);
        if (option == GATES) request.gates = true;
        if (option == SET) ups_arguments_override(&arguments);
    }
    if (arguments.stop) {
        exit_code = ups_arguments_end(&arguments);
    } else if (arguments.operand_count != 1) {
        exit_code = ups_command_no_config(&arguments);
    } else {
        request.run = arguments.operands[0];
        request.split = (ups_split)split;
        request.json = arguments.json;
        ups_session session = {0};
        ups_status status = request.predicted_count > 0 ? settle_predictions(&request, &error) : UPS_OK;
        const bool may_open = status == UPS_OK;
        if (may_open)
            status = ups_session_open(arguments.operands[0], arguments.overrides, arguments.override_count, false,
                                      &session, &error);
        if (status == UPS_OK) status = ups_session_settle_precision(&session, &error);
        if (status == UPS_OK && request.stride > 0)
            status = ups_session_use_stride(&session, NULL, request.stride, &error);
        if (status == UPS_OK && !ups_surrogate_is_another(request.checkpoint) && request.predicted_count == 0)
            ups_session_warn_of_strides(&session, NULL);
        if (status == UPS_OK) status = evaluate(&session, &request, &exit_code, &error);
        if (status != UPS_OK && may_open && !session.config) {
            exit_code = ups_command_fail_on_config(&arguments, UPS_PATHS_READ, &error);
        } else if (status != UPS_OK) {
            exit_code = ups_command_fail(&arguments, &error);
        }
        ups_session_close(&session);
    }
    free_request(&request);
    return exit_code;
}
