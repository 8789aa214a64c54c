/* `ups compare A B`: which of two trained runs is better on the same test trajectories, how sure that is, and what each
 * of them cost. */
#include "base/system/terminal.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_mistakes.h"
#include "tools/report/run_table.h"
#include "train/evaluation/document.h"
#include "train/evaluation/scores/paired.h"
#include "train/metrics.h"
#include "train/run/comparison.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SET, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [SET] = {"set", 's', "KEY=VALUE", "overrides a key of both configurations; may be given several times"},
};
static const ups_usage usage = {
    "compare",
    "A B",
    "holds two runs against each other: errors on the same test trajectories, speed, memory, learning",
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
    "\nBeside them, with ratios B / A: the keys of the configurations that differ; of each stage parameters, steps, "
    "time,\n"
    "speed (the median over the lines of metrics.jsonl, without the first tenth), memory and validation losses, and "
    "the\n"
    "time until both had reached the same one; the cache's size; latents of a frame, and the time that a predicted "
    "one takes.\n"
    "What a run does not tell is left out, and of a FILE.json there is only what it holds. * marks measurements on "
    "unlike\n"
    "machines, or where one is not recorded.\n"
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

/* The run, and its evaluation, made now where the one that is kept is none of it. `at_config`: whether it failed before
 * there was a configuration. */
static ups_status look_at_run(const ups_arguments *arguments, const char *operand, json_t **document,
                              ups_compared_run *run, bool *at_config, ups_error *error) {
    ups_session session;
    ups_status status =
        ups_session_open(operand, arguments->overrides, arguments->override_count, false, &session, error);
    *at_config = status != UPS_OK;
    if (status == UPS_OK) status = ups_session_settle_precision(&session, error);
    if (status == UPS_OK) status = ups_evaluation_recall_or_make(&session, operand, document, error);
    if (status == UPS_OK) status = ups_compared_run_read(session.config, run, error);
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

static json_t *side_json(const char *operand, const json_t *document, const json_t *run) {
    json_t *side =
        json_pack("{s:o, s:O}", "name", ups_json_printable(operand), "operator",
                  json_object_get(document, "operator") ? json_object_get(document, "operator") : json_null());
    json_object_update(side, (json_t *)run);
    return side;
}

static void print_comparison_json(char *const operands[2], json_t *const documents[2], const ups_paired *paired,
                                  const json_t *comparison) {
    static const char *const told[] = {"ratio", "machines", "differences", "learning"};
    json_t *tasks = json_array();
    for (int i = 0; i < paired->count; i++) {
        json_t *task = json_pack("{s:s}", "task", paired->task[i].name), *result = result_json(&paired->task[i].result);
        json_object_update(task, result);
        json_decref(result);
        json_array_append_new(tasks, task);
    }
    json_t *json = json_pack(
        "{s:o, s:o, s:i, s:f, s:o, s:o, s:{s:o, s:o}}", "a",
        side_json(operands[0], documents[0], json_object_get(comparison, "a")), "b",
        side_json(operands[1], documents[1], json_object_get(comparison, "b")), "resamples", UPS_PAIRED_RESAMPLES,
        "confidence", UPS_PAIRED_CONFIDENCE, "tasks", tasks, "all", result_json(&paired->all), "only_in", "a",
        names_json(paired->only_a, paired->only_a_count), "b", names_json(paired->only_b, paired->only_b_count));
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        json_t *part = json_object_get(comparison, told[i]);
        if (part) json_object_set(json, told[i], part);
    }
    ups_print_json(json, JSON_INDENT(2));
    json_decref(json);
}

static const char *verdict_of(const ups_paired_result *result, bool narrow) {
    if (result->high < 0) return narrow ? "A" : "A is better";
    if (result->low > 0) return narrow ? "B" : "B is better";
    return narrow ? "not shown" : "no difference shown";
}

/* `narrow`: without the number of trajectories and the difference, whose interval is there. */
static void print_result(const char *name, int width, bool narrow, const ups_paired_result *result) {
    printf("%-*s", width, name);
    if (!narrow) printf(" %12lld", (long long)result->trajectories);
    printf(" %9.4g %9.4g", result->a, result->b);
    if (!narrow) printf(" %+11.3g", result->difference);
    if (isnan(result->low)) {
        printf("   one trajectory: no interval\n");
        return;
    }
    printf("  %+9.3g to %+-9.3g %7.2f %%  %s\n", result->low, result->high, 100 * result->probability_a,
           verdict_of(result, narrow));
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

static void print_paired(const ups_paired *paired) {
    enum { FEW = 10, WIDE = 104 /* beside the names */ };
    static const char over_all[] = "mean over tasks";
    int width = paired->count > 1 ? (int)strlen(over_all) : 4;
    int64_t fewest = INT64_MAX;
    for (int i = 0; i < paired->count; i++) {
        const int length = (int)strlen(paired->task[i].name);
        if (length > width) width = length;
        if (paired->task[i].result.trajectories < fewest) fewest = paired->task[i].result.trajectories;
    }
    const int columns = ups_terminal_columns(STDOUT_FILENO);
    const bool narrow = columns > 0 && columns < width + WIDE;
    printf("nRMSE of whole rollouts on the same test trajectories\n\n");
    if (narrow)
        printf("%-*s %9s %9s  %-22s %9s  %s\n", width, "task", "A", "B", " A - B, 95 % interval", "A better", "better");
    else
        printf("%-*s %12s %9s %9s %11s  %-22s %9s\n", width, "task", "trajectories", "A", "B", "A - B",
               "    95 % interval", "A better");
    for (int i = 0; i < paired->count; i++) print_result(paired->task[i].name, width, narrow, &paired->task[i].result);
    if (paired->count > 1) print_result(over_all, width, narrow, &paired->all);
    for (int i = 0; i < paired->count; i++) print_failed(paired->task[i].name, &paired->task[i].result);
    print_alone("A", paired->only_a, paired->only_a_count);
    print_alone("B", paired->only_b, paired->only_b_count);
    if (fewest < FEW) printf("With fewer than %d trajectories the interval is rough, and rather too narrow.\n", FEW);
}

static ups_status compare(const ups_arguments *arguments, json_t *const documents[2], const ups_compared_run run[2],
                          ups_error *error) {
    char *const *operands = arguments->operands;
    json_t *comparison = NULL;
    ups_paired paired;
    UPS_TRY(ups_paired_compare(documents[0], operands[0], documents[1], operands[1], &paired, error));
    const ups_status status = ups_comparison_make(run, &comparison, error);
    if (status == UPS_OK && arguments->json) {
        print_comparison_json(operands, documents, &paired, comparison);
    } else if (status == UPS_OK) {
        printf("A: %s\nB: %s\n\n", operands[0], operands[1]);
        ups_run_table_print_differences(comparison);
        print_paired(&paired);
        ups_run_table_print(comparison);
    }
    json_decref(comparison);
    ups_paired_free(&paired);
    return status;
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
    ups_compared_run run[2] = {{0}, {0}};
    char *const *operands = arguments.operands;
    ups_status status = UPS_OK;
    bool at_config = false;
    int failed = 0;
    for (int side = 0; side < 2 && status == UPS_OK; side++) {
        failed = side;
        status = is_evaluation_file(operands[side])
                     ? ups_json_read(operands[side], &documents[side], &error)
                     : look_at_run(&arguments, operands[side], &documents[side], &run[side], &at_config, &error);
        run[side].evaluation = documents[side];
    }
    int exit_code = UPS_EXIT_OK;
    if (status == UPS_OK) status = compare(&arguments, documents, run, &error);
    if (status != UPS_OK && at_config)
        exit_code = ups_command_fail_on_config_at(&arguments, operands[failed], UPS_PATHS_READ, &error);
    else if (status != UPS_OK)
        exit_code = ups_command_fail(&arguments, &error);
    for (int side = 0; side < 2; side++) {
        ups_compared_run_free(&run[side]);
        json_decref(documents[side]);
    }
    return exit_code;
}
