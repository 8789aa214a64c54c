/* `ups compare A B`: which of two trained runs is better on the same test trajectories, and how sure that is. */
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_mistakes.h"
#include "train/evaluation/document.h"
#include "train/evaluation/paired.h"
#include "train/metrics.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SET, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [SET] = {"set", 's', "KEY=VALUE", "overrides a key of both configurations; may be given several times"},
};
static const ups_usage usage = {
    "compare",
    "A B",
    "says which of two runs is better on the same test trajectories, and how sure that is",
    options,
    OPTION_COUNT,
    "A and B are each a CONFIG or a RUN, or a FILE.json that ups eval wrote. A run whose evaluation.json is not of "
    "its\n"
    "models, data and settings as they are now is evaluated first, as ups eval does, and its evaluation.json written.\n"
    "Evaluations of checkpoints are compared as files: ups eval RUN --checkpoint best -o best.json.\n"
    "\nFor every task that both have, and for the mean over these tasks: nRMSE of whole rollouts, mean over "
    "trajectories;\n"
    "the mean difference A - B over the same trajectories; its 95 % interval and the probability that A is better, by\n"
    "bootstrap over trajectories (10000 resamples, the same at every call). Both must be of the same test "
    "trajectories:\n"
    "these are told apart by their values, whatever files they are in. A trajectory on which a prediction is not "
    "finite\n"
    "has no error: it is left out of the means and counted in a line of its own.\n"
    "\nExamples:\n"
    "  ups compare runs/a runs/b\n"
    "  ups compare runs/a runs/b --set evaluation.max_samples=0\n"
    "  ups compare best.json latest.json --json"};

/* ---- what is compared ------------------------------------------------------------------------------------------- */

static bool is_evaluation_file(const char *operand) {
    const char *dot = strrchr(operand, '.');
    struct stat info;
    return dot && strcmp(dot, ".json") == 0 && !(stat(operand, &info) == 0 && S_ISDIR(info.st_mode));
}

/* The run's evaluation, made now where the one that is kept is none of it. `at_config`: whether it failed before there
 * was a configuration. */
static ups_status evaluation_of_run(const ups_arguments *arguments, const char *operand, json_t **document,
                                    bool *at_config, ups_error *error) {
    ups_session session;
    ups_status status =
        ups_session_open(operand, arguments->overrides, arguments->override_count, false, &session, error);
    *at_config = status != UPS_OK;
    if (status == UPS_OK) status = ups_session_settle_precision(&session, error);
    if (status == UPS_OK) status = ups_evaluation_recall_or_make(&session, operand, document, error);
    ups_session_close(&session);
    return status;
}

/* ---- what is told ----------------------------------------------------------------------------------------------- */

static json_t *result_json(const ups_paired_result *result) {
    return json_pack("{s:I, s:o, s:o, s:o, s:[o, o], s:o, s:{s:I, s:I}, s:I}", "trajectories",
                     (json_int_t)result->trajectories, "a", ups_json_number(result->a), "b", ups_json_number(result->b),
                     "difference", ups_json_number(result->difference), "interval", ups_json_number(result->low),
                     ups_json_number(result->high), "probability_a_better", ups_json_number(result->probability_a),
                     "not_finite", "a", (json_int_t)result->failed_a, "b", (json_int_t)result->failed_b, "undefined",
                     (json_int_t)result->undefined);
}

static json_t *names_json(char *const *names, int count) {
    json_t *json = json_array();
    for (int i = 0; i < count; i++) json_array_append_new(json, json_string(names[i]));
    return json;
}

static json_t *side_json(const char *operand, const json_t *document) {
    return json_pack("{s:o, s:O}", "name", ups_json_printable(operand), "operator",
                     json_object_get(document, "operator") ? json_object_get(document, "operator") : json_null());
}

static void print_paired_json(char *const operands[2], json_t *const documents[2], const ups_paired *paired) {
    json_t *tasks = json_array();
    for (int i = 0; i < paired->count; i++) {
        json_t *task = json_pack("{s:s}", "task", paired->task[i].name), *result = result_json(&paired->task[i].result);
        json_object_update(task, result);
        json_decref(result);
        json_array_append_new(tasks, task);
    }
    json_t *json = json_pack("{s:o, s:o, s:i, s:f, s:o, s:o, s:{s:o, s:o}}", "a", side_json(operands[0], documents[0]),
                             "b", side_json(operands[1], documents[1]), "resamples", UPS_PAIRED_RESAMPLES, "confidence",
                             UPS_PAIRED_CONFIDENCE, "tasks", tasks, "all", result_json(&paired->all), "only_in", "a",
                             names_json(paired->only_a, paired->only_a_count), "b",
                             names_json(paired->only_b, paired->only_b_count));
    ups_print_json(json, JSON_INDENT(2));
    json_decref(json);
}

static void print_result(const char *name, int width, const ups_paired_result *result) {
    printf("%-*s %12lld %10.4g %10.4g %+11.3g", width, name, (long long)result->trajectories, result->a, result->b,
           result->difference);
    if (isnan(result->low)) {
        printf("   one trajectory: no interval\n");
        return;
    }
    printf("   %+10.3g to %+-10.3g %7.2f %%  %s\n", result->low, result->high, 100 * result->probability_a,
           result->high < 0  ? "A is better"
           : result->low > 0 ? "B is better"
                             : "no difference shown");
}

static void print_left_out(const char *name, int64_t count, const char *why) {
    if (count > 0)
        printf("%s: %s on %lld trajector%s, left out\n", name, why, (long long)count, count == 1 ? "y" : "ies");
}

static void print_failed(const char *name, const ups_paired_result *result) {
    print_left_out(name, result->failed_a, "A alone is not finite");
    print_left_out(name, result->failed_b, "B alone is not finite");
    print_left_out(name, result->undefined, "neither has an error");
}

static void print_alone(const char *side, char *const *names, int count) {
    for (int i = 0; i < count; i++) printf("%s: only %s has this task\n", names[i], side);
}

static void print_paired(char *const operands[2], const ups_paired *paired) {
    enum { FEW = 10 };
    static const char over_all[] = "mean over tasks";
    int width = paired->count > 1 ? (int)strlen(over_all) : 4;
    int64_t fewest = INT64_MAX;
    for (int i = 0; i < paired->count; i++) {
        const int length = (int)strlen(paired->task[i].name);
        if (length > width) width = length;
        if (paired->task[i].result.trajectories < fewest) fewest = paired->task[i].result.trajectories;
    }
    printf("A: %s\nB: %s\nnRMSE of whole rollouts on the same test trajectories\n\n", operands[0], operands[1]);
    printf("%-*s %12s %10s %10s %11s   %-24s %9s\n", width, "task", "trajectories", "A", "B", "A - B",
           "     95 % interval", "A better");
    for (int i = 0; i < paired->count; i++) print_result(paired->task[i].name, width, &paired->task[i].result);
    if (paired->count > 1) print_result(over_all, width, &paired->all);
    for (int i = 0; i < paired->count; i++) print_failed(paired->task[i].name, &paired->task[i].result);
    print_alone("A", paired->only_a, paired->only_a_count);
    print_alone("B", paired->only_b, paired->only_b_count);
    if (fewest < FEW)
        printf("With fewer than %d trajectories the interval is only a rough one, and rather too narrow.\n", FEW);
}

int ups_cmd_compare(int argc, char **argv) {
    ups_arguments arguments;
    ups_error error;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == SET) ups_arguments_override(&arguments);
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count != 2)
        return ups_command_usage_error(&arguments, "A B was expected, each a CONFIG, a RUN or a FILE.json");
    json_t *documents[2] = {NULL, NULL};
    char *const *operands = arguments.operands;
    ups_status status = UPS_OK;
    bool at_config = false;
    int failed = 0;
    for (int side = 0; side < 2 && status == UPS_OK; side++) {
        failed = side;
        status = is_evaluation_file(operands[side])
                     ? ups_json_read(operands[side], &documents[side], &error)
                     : evaluation_of_run(&arguments, operands[side], &documents[side], &at_config, &error);
    }
    int exit_code = UPS_EXIT_OK;
    if (status == UPS_OK) {
        ups_paired paired;
        status = ups_paired_compare(documents[0], operands[0], documents[1], operands[1], &paired, &error);
        if (status == UPS_OK) {
            if (arguments.json)
                print_paired_json(operands, documents, &paired);
            else
                print_paired(operands, &paired);
            ups_paired_free(&paired);
        }
    }
    if (status != UPS_OK && at_config)
        exit_code = ups_command_fail_on_config_at(&arguments, operands[failed], UPS_PATHS_READ, &error);
    else if (status != UPS_OK)
        exit_code = ups_command_fail(&arguments, &error);
    json_decref(documents[0]);
    json_decref(documents[1]);
    return exit_code;
}
