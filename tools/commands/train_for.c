#include "tools/commands/train_for.h"

#include "base/files.h"
#include "base/log.h"
#include "base/system/threads.h"
#include "train/config/load.h"
#include "train/config/paths.h"
#include "train/metrics.h"
#include "train/run/own.h"
#include "train/run/summary.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FIRST_STEPS = 20, MOST_STEPS = 2000, OVERRIDES = 4 };
static const double trial_s = 3.0, trial_share = 0.03; /* of a trial: seconds, and at most of all the time */

/* What a trial took. */
typedef struct trial {
    int64_t steps;
    double step_s, validation_s;
    double checkpoint_s; /* what comes behind the last validation: a checkpoint and the model, as files */
    double begin_s;      /* before the first step */
} trial;

bool ups_read_duration(const char *text, double *seconds) {
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}};
    char *end;
    const double number = strtod(text, &end);
    if (end == text) return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(end, units[i].unit) != 0) continue;
        *seconds = number * units[i].seconds;
        return *seconds >= 1.0 && *seconds <= 1e8;
    }
    return false;
}

static bool has_operator(const ups_run_config *config) {
    for (unsigned i = 0; i < config->stage_count; i++) {
        if (config->stages[i] == UPS_STAGE_OPERATOR) return true;
    }
    return false;
}

static ups_status check_begins(const ups_train_request *request, const ups_run_config *config, ups_error *error) {
    if (ups_run_is_there(request->operand)) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "--for is for a configuration, and %s is a run, which has its steps; --resume goes on with it",
                        request->operand);
    }
    if (!has_operator(config)) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "--for finds the operator's steps, and the stages of %s have none",
                        request->operand);
    }
    if (!ups_run_is_there(config->output)) return UPS_OK;
    ups_run_config *own = NULL;
    ups_run_progress progress;
    UPS_TRY(ups_run_config_load(config->output, NULL, 0, &own, error));
    ups_status status = ups_run_look(own, &progress, error);
    if (status == UPS_OK && progress.begun & 1u << UPS_STAGE_OPERATOR) {
        status = ups_fail(error, UPS_ERR_ARGUMENT,
                          "%s: the operator has begun, and has %lld steps. --resume goes on with it, --extend --set "
                          "operator.steps=N gives it more; --for is for a run that begins (--set output=DIR)",
                          config->output, (long long)own->op.training.steps);
    }
    ups_run_config_free(own);
    return status;
}

static ups_status prepare(const ups_train_request *request, const ups_run_config *config, ups_train_report *report,
                          ups_error *error) {
    for (unsigned i = 0; i < config->stage_count && config->stages[i] != UPS_STAGE_OPERATOR; i++) {
        ups_train_request one = *request;
        one.stage = (int)config->stages[i];
        ups_train_report_free(report);
        UPS_TRY(ups_train(&one, report, error));
    }
    return UPS_OK;
}

/* Seconds since 1970 of a line's time, 2026-11-29T14:46:06.315Z. */
static double time_of(const json_t *line) {
    const char *text = json_string_value(json_object_get(line, "time")), *rest;
    struct tm at = {0};
    if (!text || !(rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &at))) return NAN;
    return (double)timegm(&at) + strtod(rest, NULL);
}

static double time_now(void) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* A line is written when its steps are done, a validation's behind that of its step. */
static void read_times(const json_t *lines, double began, double ended, trial *t) {
    const json_t *line;
    size_t i;
    double before = NAN;
    t->validation_s = t->checkpoint_s = 0.0;
    json_array_foreach(lines, i, line) {
        const double at = time_of(line);
        if (json_object_get(line, "validation")) {
            t->validation_s = fmax(0.0, at - before);
            t->checkpoint_s = fmax(0.0, ended - at);
        }
        before = at;
    }
    t->begin_s = fmax(0.0, ended - began - t->step_s * (double)t->steps - t->validation_s - t->checkpoint_s);
}

static ups_status read_trial(const char *directory, double began, trial *t, ups_error *error) {
    char *path = NULL;
    json_t *lines = NULL, *summary = NULL;
    const double ended = time_now();
    if (asprintf(&path, "%s/metrics.jsonl", directory) < 0) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = ups_metrics_read(path, &lines, error);
    if (status == UPS_OK) {
        summary = ups_stage_summary(lines, ups_stage_name(UPS_STAGE_OPERATOR));
        t->step_s = json_number_value(json_object_get(summary, "step_s"));
        read_times(lines, began, ended, t);
        if (!(t->step_s > 0)) status = ups_fail(error, UPS_ERR_FORMAT, "%s does not tell how long a step takes", path);
    }
    json_decref(summary);
    json_decref(lines);
    free(path);
    return status;
}

/* Where a trial is made: its directory, and its cache, "" where that lies in it. */
typedef struct place {
    char *directory, *cache;
} place;

static ups_status place_of(const ups_run_config *config, place *p, ups_error *error) {
    const char *caches = config->cache.directory;
    *p = (place){0};
    if (asprintf(&p->directory, "%s/.trial", config->output) < 0) p->directory = NULL;
    if (asprintf(&p->cache, "%s%s", caches, caches[0] ? "/.trial" : "") < 0) p->cache = NULL;
    return p->directory && p->cache ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
}

static void free_place(place *p) {
    free(p->directory);
    free(p->cache);
}

static ups_status clear(const place *p, ups_error *error) {
    if (p->cache[0] && ups_path_exists(p->cache)) UPS_TRY(ups_remove_tree_at_once(p->cache, error));
    return ups_path_exists(p->directory) ? ups_remove_tree_at_once(p->directory, error) : UPS_OK;
}

/* A run of its own with what the run has, and some steps to do. */
static ups_status make_trial(const ups_run_config *config, const place *p, int64_t steps, ups_error *error) {
    char texts[OVERRIDES][64], *cache = NULL;
    const char *overrides[OVERRIDES + 1];
    ups_train_report report;
    snprintf(texts[0], sizeof *texts, "operator.steps=%" PRId64, steps);
    snprintf(texts[1], sizeof *texts, "operator.validate_every=%" PRId64, steps);
    snprintf(texts[2], sizeof *texts, "operator.checkpoint_every=%" PRId64, steps);
    snprintf(texts[3], sizeof *texts, "operator.log_every=%d", FIRST_STEPS / 2);
    for (int i = 0; i < OVERRIDES; i++) overrides[i] = texts[i];
    ups_train_request request = {.operand = config->output,
                                 .overrides = overrides,
                                 .override_count = OVERRIDES,
                                 .stage = UPS_STAGE_AUTOENCODER,
                                 .fork = p->directory,
                                 .afresh = true};
    if (p->cache[0]) {
        cache = ups_run_override("cache.directory", p->cache);
        if (!cache) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        overrides[request.override_count++] = cache;
    }
    ups_status status = ups_train(&request, &report, error);
    ups_train_report_free(&report);
    free(cache);
    return status;
}

static ups_status train_trial(const place *p, trial *t, ups_error *error) {
    const ups_train_request request = {.operand = p->directory, .stage = -1, .resume = true};
    ups_train_report report;
    const double began = time_now();
    ups_status status = ups_train(&request, &report, error);
    ups_train_report_free(&report);
    return status == UPS_OK ? read_trial(p->directory, began, t, error) : status;
}

/* What it says is not told. */
static ups_status run_trial(const ups_run_config *config, const place *p, trial *t, ups_error *error) {
    ups_error after;
    UPS_TRY(clear(p, error)); /* what one left that was killed */
    const ups_log_level level = ups_log_set_level(UPS_LOG_WARNING);
    ups_status status = make_trial(config, p, t->steps, error);
    if (status == UPS_OK) status = train_trial(p, t, error);
    ups_log_set_level(level);
    ups_status cleared = clear(p, &after);
    if (status == UPS_OK && cleared != UPS_OK) *error = after;
    return status == UPS_OK ? cleared : status;
}

/* Twenty steps say how many make a trial. */
static ups_status measure(const ups_run_config *config, double seconds, trial *t, ups_error *error) {
    place p;
    ups_status status = place_of(config, &p, error);
    ups_log(UPS_LOG_INFO, "operator: measuring how long a step takes");
    t->steps = FIRST_STEPS;
    if (status == UPS_OK) status = run_trial(config, &p, t, error);
    const double steps = status == UPS_OK ? fmin(trial_s, trial_share * seconds) / t->step_s : 0.0;
    if (steps > 2 * FIRST_STEPS) {
        t->steps = steps < MOST_STEPS ? (int64_t)steps : MOST_STEPS;
        status = run_trial(config, &p, t, error);
    }
    free_place(&p);
    return status;
}

static ups_status find_steps(const ups_train_request *request, const ups_run_config *config, double seconds,
                             double begin, int64_t *steps, ups_error *error) {
    trial t = {0};
    ups_run_config *own = NULL;
    UPS_TRY(ups_run_config_load(config->output, NULL, 0, &own, error));
    ups_status status = measure(own, seconds, &t, error);
    const ups_training_config *training = &own->op.training;
    const double left = seconds - (ups_now() - begin), whole = left - t.begin_s - t.validation_s - t.checkpoint_s;
    const double each = t.step_s + t.validation_s / (double)training->validate_every +
                        t.checkpoint_s / (double)training->checkpoint_every;
    *steps = status == UPS_OK ? (int64_t)(fmax(0.0, whole) / each) : 0;
    if (status == UPS_OK && *steps < 1) {
        status = ups_fail(error, UPS_ERR_CONFIG,
                          "--for: of %.0f s nothing is left for the operator, of which a step takes %.3g s and a "
                          "validation %.3g s. What was done so far stays in %s: give the command again, with more time",
                          seconds, t.step_s, t.validation_s, config->output);
    }
    ups_run_config_free(own);
    if (status != UPS_OK) return status;
    ups_log(UPS_LOG_INFO,
            "operator: %" PRId64
            " steps fit into the %.0f s that are left: %.3g ms a step, %.2g s a validation, measured "
            "on %" PRId64 " steps",
            *steps, left, 1e3 * t.step_s, t.validation_s, t.steps);
    return UPS_OK;
}

ups_status ups_train_fit_steps(const ups_train_request *request, double seconds, int64_t *steps,
                               ups_train_report *report, ups_error *error) {
    const double begin = ups_now();
    ups_run_config *config = NULL;
    *report = (ups_train_report){0};
    UPS_TRY(ups_run_config_load(request->operand, request->overrides, request->override_count, &config, error));
    ups_status status = check_begins(request, config, error);
    if (status == UPS_OK) status = prepare(request, config, report, error);
    if (status == UPS_OK) status = find_steps(request, config, seconds, begin, steps, error);
    ups_run_config_free(config);
    return status;
}
