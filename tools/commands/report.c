/* `ups report CONFIG|RUN`: a run as a page of HTML. */
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_mistakes.h"
#include "tools/output.h"
#include "tools/report/rollouts/pictures.h"
#include "tools/report/run_report.h"
#include "train/config/load.h"
#include "train/evaluation/document.h"
#include "train/metrics.h"
#include "train/run/replace.h"
#include "train/state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUT, SET };
static const ups_option options[] = {
    [OUTPUT] = {"output", 'o', "FILE.html", "page to write (default: report.html in the run's directory)"},
    [SET] = {"set", 's', "KEY=VALUE", "overrides a key of the configuration; may be given several times"},
};
static const ups_usage usage = {
    "report",
    "CONFIG|RUN",
    "writes a run as a page of HTML: how training went, errors and fields of the operator, the configuration",
    options,
    sizeof options / sizeof *options,
    "The page needs nothing but a browser. It may be asked for while a run is training: it shows the losses so far.\n"
    "Once the operator is trained, the page has what `ups eval` says of it, which is evaluated first where the run's\n"
    "evaluation.json is not of the models, data and settings as they are now; and fields of the first held-out\n"
    "trajectory of each task, rolled out.\n"
    "\nExamples:\n"
    "  ups report runs/quickstart\n"
    "  ups report runs/quickstart -o report.html"};

/* The run's evaluation, made now where the one that is kept is none of it. */
static ups_status evaluate(const ups_arguments *arguments, json_t **document, ups_error *error) {
    ups_session session;
    ups_status status = ups_session_open(arguments->operands[0], arguments->overrides, arguments->override_count, false,
                                         &session, error);
    if (status == UPS_OK) status = ups_session_settle_precision(&session, error);
    if (status == UPS_OK) status = ups_evaluation_recall_or_make(&session, arguments->operands[0], document, error);
    ups_session_close(&session);
    return status;
}

/* The first held-out trajectory of a task. */
static ups_status show_task(const ups_session *session, int index, const ups_surrogate_files *files, ups_html *page,
                            ups_error *error) {
    const ups_task *task = &session->tasks->task[index];
    const ups_rollout_request request = {.samples = task->splits.samples[ups_task_held_out(task)], .count = 1};
    ups_surrogate *surrogate = NULL;
    ups_rollouts rollouts = {0};
    int shown = 0;
    ups_status status = ups_surrogate_open(session->config, session->tasks, index, session->device, files,
                                           (ups_surrogate_use){.states = 1, .at_grid_points = true}, &surrogate, error);
    if (status == UPS_OK)
        status = ups_rollouts_run(session->config, session->tasks, index, &request, surrogate, &rollouts, error);
    if (status == UPS_OK) status = ups_rollout_show(page, &rollouts, &shown, error);
    ups_rollouts_free(&rollouts);
    ups_surrogate_close(surrogate);
    return status;
}

static ups_status show_fields(void *context, ups_html *page, ups_error *error) {
    const ups_arguments *arguments = context;
    ups_session session;
    ups_surrogate_files files = {0};
    ups_status status = ups_session_open(arguments->operands[0], arguments->overrides, arguments->override_count, false,
                                         &session, error);
    if (status == UPS_OK) status = ups_session_settle_precision(&session, error);
    if (status == UPS_OK) status = ups_surrogate_find(session.config, NULL, &files, error);
    if (status == UPS_OK) status = ups_session_normalise(&session, files.autoencoder, error);
    if (status == UPS_OK) status = ups_tasks_condition_as_trained(session.tasks, files.op, error);
    for (int t = 0; status == UPS_OK && t < session.tasks->count; t++)
        status = show_task(&session, t, &files, page, error);
    ups_surrogate_files_free(&files);
    ups_session_close(&session);
    return status;
}

static bool is_trained(const ups_run_config *config) {
    char *path = ups_run_model_path(config, UPS_STAGE_OPERATOR);
    const bool trained = path && ups_path_exists(path);
    free(path);
    return trained;
}

static ups_status write_page(const ups_arguments *arguments, const ups_run_config *config, const char *output,
                             bool *evaluated, ups_error *error) {
    json_t *metrics = NULL, *document = NULL;
    char *text = NULL;
    ups_error failure;
    char *lines = ups_run_path(config, "metrics.jsonl");
    ups_status status =
        lines ? ups_metrics_read(lines, &metrics, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    free(lines);
    if (status == UPS_OK) status = ups_config_print(&ups_run_schema, config, &text, error);
    ups_run_facts facts = {.run = config->output,
                           .metrics = metrics,
                           .unevaluated = "The operator is not trained yet.",
                           .configuration = text,
                           .context = (void *)arguments};
    if (status == UPS_OK && is_trained(config)) {
        const ups_status made = evaluate(arguments, &document, &failure);
        if (made == UPS_ERR_CANCELLED) status = ups_fail(error, made, "%s", failure.message);
        if (made != UPS_OK) {
            facts.unevaluated = failure.message;
            if (status == UPS_OK)
                ups_log(UPS_LOG_WARNING, "%s: %s",
                        document ? "the evaluation could not be kept" : "the page has no evaluation", failure.message);
        }
        facts.evaluation = document;
        if (document) facts.show_fields = show_fields;
    }
    if (status == UPS_OK) status = ups_run_report(&facts, output, error);
    *evaluated = document != NULL;
    free(text);
    json_decref(metrics);
    json_decref(document);
    return status;
}

static ups_status report(const ups_arguments *arguments, const char *output, char **path, bool *evaluated,
                         bool *at_config, ups_error *error) {
    ups_run_config *config = NULL;
    *at_config = true;
    UPS_TRY(ups_run_settle(arguments->operands[0], error));
    UPS_TRY(
        ups_run_config_load(arguments->operands[0], arguments->overrides, arguments->override_count, &config, error));
    *at_config = false;
    *path = output ? strdup(output) : ups_run_path(config, "report.html");
    ups_status status =
        *path ? ups_run_settle(config->output, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK && !ups_path_exists(config->output))
        status = ups_fail(error, UPS_ERR_IO, "%s: there is no run yet; `ups train` begins one", config->output);
    if (status == UPS_OK && output) status = ups_output_check(output, UPS_OUTPUT_PAGE, error);
    if (status == UPS_OK) status = write_page(arguments, config, *path, evaluated, error);
    ups_run_config_free(config);
    return status;
}

static void tell(const ups_arguments *arguments, const char *path, bool evaluated) {
    if (!arguments->json) {
        printf("%s\n", path);
        return;
    }
    json_t *told = json_pack("{s:s, s:b}", "file", path, "evaluated", (int)evaluated);
    ups_print_json(told, JSON_INDENT(2));
    json_decref(told);
}

int ups_cmd_report(int argc, char **argv) {
    ups_arguments arguments;
    ups_error error;
    const char *output = NULL;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == OUTPUT) output = arguments.value;
        if (option == SET) ups_arguments_override(&arguments);
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count != 1) return ups_command_no_config(&arguments);
    char *path = NULL;
    bool evaluated = false, at_config = false;
    const ups_status status = report(&arguments, output, &path, &evaluated, &at_config, &error);
    int exit_code = UPS_EXIT_OK;
    if (status != UPS_OK && at_config)
        exit_code = ups_command_fail_on_config(&arguments, UPS_PATHS_READ, &error);
    else if (status != UPS_OK)
        exit_code = ups_command_fail(&arguments, &error);
    else
        tell(&arguments, path, evaluated);
    free(path);
    return exit_code;
}
