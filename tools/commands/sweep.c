#include "tools/commands/sweep.h"

#include "base/log.h"
#include "tools/commands/config_mistakes.h"
#include "tools/commands/refused_run.h"
#include "train/metrics.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- mistakes ---------------------------------------------------------------------------------------------------- */

static bool knows(const ups_config_mistakes *mistakes, const char *sentence) {
    for (size_t i = 0; i < mistakes->count; i++) {
        if (strcmp(mistakes->list[i].sentence, sentence) == 0) return true;
    }
    return false;
}

/* Tells the mistakes of all runs' configurations, each once. False where there are none. */
static bool tell_mistakes(const ups_arguments *arguments, const ups_sweep *sweep, int *exit_code) {
    ups_config_mistakes *all = NULL;
    for (size_t i = 0; i < sweep->run_count; i++) {
        ups_arguments with = *arguments;
        ups_config_mistakes *found = NULL;
        ups_error error;
        with.overrides = sweep->runs[i].overrides;
        with.override_count = sweep->runs[i].override_count;
        ups_status status = ups_look_for_mistakes(&with, arguments->operands[0], UPS_PATHS_ALL, &found, &error);
        if (status != UPS_OK || !found) {
            ups_config_mistakes_destroy(found);
            break; /* nothing to read: loading tells it */
        }
        if (!all) {
            all = found;
            continue;
        }
        for (size_t m = 0; m < found->count; m++) {
            const ups_config_mistake *mistake = &found->list[m];
            if (!knows(all, mistake->sentence))
                ups_config_mistakes_add(all, "--set", mistake->key, NULL, mistake->sentence);
        }
        ups_config_mistakes_destroy(found);
    }
    bool any = all && all->count > 0;
    if (any) *exit_code = ups_tell_mistakes(arguments, all);
    ups_config_mistakes_destroy(all);
    return any;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const char *name_outcome(ups_sweep_outcome outcome) {
    return outcome == UPS_SWEEP_FINISHED ? "finished" : outcome == UPS_SWEEP_FAILED ? "failed" : "left";
}

static void print_json(const ups_sweep *sweep, bool alike) {
    json_t *list = json_array();
    for (size_t i = 0; i < sweep->run_count; i++) {
        const ups_sweep_run *run = &sweep->runs[i];
        json_t *values = json_object();
        for (size_t k = 0; k < sweep->key_count; k++)
            json_object_set_new(values, sweep->keys[k], json_string(run->values[k]));
        json_t *entry = json_pack("{s:o, s:o, s:o, s:b, s:o, s:s, s:s}", "values", values, "validation",
                                  ups_json_number(run->score), "best", ups_json_number(run->best), "comparable",
                                  (int)alike, "seconds", ups_json_number(run->seconds), "directory", run->directory,
                                  "state", name_outcome(run->outcome));
        if (run->outcome == UPS_SWEEP_FAILED) json_object_set_new(entry, "error", json_string(run->error.message));
        json_array_append_new(list, entry);
    }
    ups_print_json(list, JSON_INDENT(2));
    json_decref(list);
}

static const char *last_word(const char *key) {
    const char *dot = strrchr(key, '.');
    return dot ? dot + 1 : key;
}

/* A column a key, as wide as its longest value; the lowest validation is marked unless they are `unlike`. */
static void print_table(const ups_sweep *sweep, const char *unlike) {
    const ups_sweep_run *lowest = NULL;
    for (size_t i = 0; i < sweep->run_count; i++) {
        const ups_sweep_run *run = &sweep->runs[i];
        if (run->outcome == UPS_SWEEP_FINISHED && isfinite(run->score) && (!lowest || run->score < lowest->score))
            lowest = run;
    }
    for (size_t i = 0; i <= sweep->run_count; i++) {
        const ups_sweep_run *run = i > 0 ? &sweep->runs[i - 1] : NULL;
        for (size_t k = 0; k < sweep->key_count; k++) {
            int width = (int)strlen(last_word(sweep->keys[k]));
            for (size_t j = 0; j < sweep->run_count; j++) {
                if ((int)strlen(sweep->runs[j].values[k]) > width) width = (int)strlen(sweep->runs[j].values[k]);
            }
            printf("%-*s  ", width, run ? run->values[k] : last_word(sweep->keys[k]));
        }
        char score[32] = "-";
        if (!run) {
            printf("%12s %9s  %s\n", "validation", "seconds", "directory");
            continue;
        }
        if (run->outcome == UPS_SWEEP_FAILED)
            snprintf(score, sizeof score, "failed");
        else if (isfinite(run->score))
            snprintf(score, sizeof score, "%.4g", run->score);
        printf("%12s %9.1f  %s%s\n", score, run->seconds, run->directory,
               run == lowest && !unlike[0] ? "  (lowest)" : "");
    }
    if (unlike[0]) printf("validations are not of one kind: %s; `ups eval` compares errors\n", unlike);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int end(const ups_arguments *arguments, const ups_sweep *sweep) {
    size_t failed = 0;
    const ups_sweep_run *first = NULL;
    for (size_t i = 0; i < sweep->run_count; i++) {
        if (sweep->runs[i].outcome != UPS_SWEEP_FAILED) continue;
        if (failed++ == 0) first = &sweep->runs[i];
    }
    char unlike[UPS_SWEEP_REASON_BYTES];
    ups_error error;
    if (ups_sweep_compare(sweep, unlike, &error) != UPS_OK) return ups_command_fail(arguments, &error);
    if (arguments->json)
        print_json(sweep, !unlike[0]);
    else
        print_table(sweep, unlike);
    if (failed == 0) return UPS_EXIT_OK;
    ups_arguments plain = *arguments;
    plain.json = false; /* the list tells it */
    ups_fail(&error, first->error.code, "%zu of %zu runs failed; the first, %s: %s", failed, sweep->run_count,
             first->name, first->error.message);
    return ups_command_fail(&plain, &error);
}

static int fail(const ups_arguments *arguments, const ups_sweep *sweep, const ups_error *error) {
    if (sweep->refused.count > 0) return ups_command_fail_refused(arguments, &sweep->refused, error);
    if (error->code == UPS_ERR_CANCELLED) ups_log(UPS_LOG_INFO, "the sweep ends here; --resume goes on with it");
    return ups_command_fail(arguments, error);
}

int ups_command_sweep(const ups_arguments *arguments, const ups_sweep_request *request) {
    ups_sweep sweep;
    ups_error error;
    int exit_code = UPS_EXIT_OK;
    ups_status status = ups_sweep_begin(request, &sweep, &error);
    if (status == UPS_OK && tell_mistakes(arguments, &sweep, &exit_code)) {
        ups_sweep_free(&sweep);
        return exit_code;
    }
    if (status == UPS_OK) status = ups_sweep_prepare(&sweep, &error);
    if (status == UPS_OK) status = ups_sweep_train(&sweep, &error);
    exit_code = status == UPS_OK ? end(arguments, &sweep) : fail(arguments, &sweep, &error);
    ups_sweep_free(&sweep);
    return exit_code;
}
