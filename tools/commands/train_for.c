/* The operator is trained for some seconds with the run's own configuration, in a run of its own beside it, and stopped
 * as Ctrl-C stops it. Its metrics tell what a step, a validation and a checkpoint take. */
#include "tools/commands/train_for.h"

#include "base/files.h"
#include "base/log.h"
#include "base/system/cancel.h"
#include "base/system/threads.h"
#include "train/config/load.h"
#include "train/config/paths.h"
#include "train/metrics.h"
#include "train/run/own.h"
#include "train/run_lock.h"
#include "train/stages/stage.h"
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE_STEPS = 5, VALIDATION_STEPS = 10, OVERRIDES = 3, LONGEST = 3 };
static const double trial_s = 3.0, trial_share = 0.03; /* seconds of a trial, and at most of all the time */

/* What a trial took. */
typedef struct trial {
    int64_t steps;
    double step_s, validation_s, checkpoint_s; /* checkpoint: with what else is done behind the last step */
    double begin_s;                            /* before the first step */
} trial;

/* ---- before the operator ---------------------------------------------------------------------------------------- */

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
                          "%s: the operator has begun, and has %" PRId64
                          " steps. --resume goes on with it, --extend --set operator.steps=N gives it more; --for is "
                          "for a run that begins (--set output=DIR)",
                          config->output, own->op.training.steps);
    }
    ups_run_config_free(own);
    return status;
}

static ups_status prepare(const ups_train_request *request, const ups_run_config *config, ups_train_report *report,
                          ups_error *error) {
    for (unsigned i = 0; i < config->stage_count && config->stages[i] != UPS_STAGE_OPERATOR; i++) {
        const ups_stage_class *class = ups_stages[config->stages[i]];
        if (class->needless && class->needless(config)) continue;
        ups_train_request one = *request;
        one.stage = (int)config->stages[i];
        ups_train_report_free(report);
        UPS_TRY(ups_train(&one, report, error));
    }
    return UPS_OK;
}

/* ---- a trial ---------------------------------------------------------------------------------------------------- */

static double time_now(void) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* Seconds since 1970 of a line's time, 2026-11-29T14:46:06.315Z. */
static double time_of(const json_t *line) {
    const char *text = json_string_value(json_object_get(line, "time")), *rest;
    struct tm at = {0};
    if (!text || !(rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &at))) return NAN;
    return (double)timegm(&at) + strtod(rest, NULL);
}

/* Lines are of a few steps each; memory is touched for the first time in those of the first, which counts where there
 * are no others. A validation's line follows that of its step. Whether there was a line. */
static bool read_times(const json_t *lines, double began, double ended, trial *t) {
    const json_t *line;
    size_t i;
    double before = NAN, seconds = 0, validations = 0;
    int64_t count = 0, validated = 0, first = 0, first_steps = 0;
    *t = (trial){0};
    json_array_foreach(lines, i, line) {
        const double at = time_of(line), step_s = json_number_value(json_object_get(line, "step_s"));
        const char *stage = json_string_value(json_object_get(line, "stage"));
        if (!stage || strcmp(stage, ups_stage_name(UPS_STAGE_OPERATOR)) != 0) continue;
        if (json_object_get(line, "validation")) {
            validations += fmax(0.0, at - before);
            validated++;
        } else if (step_s > 0) {
            const int64_t step = json_integer_value(json_object_get(line, "step"));
            if (count == 0) {
                first = first_steps = step;
                t->begin_s = fmax(0.0, at - began - step_s * (double)step);
                seconds = step_s * (double)step;
            } else {
                if (first_steps > 0) first_steps = 0, seconds = 0;
                seconds += step_s * (double)(step - t->steps);
            }
            t->steps = step;
            count++;
        }
        before = at;
    }
    if (count == 0) return false;
    t->step_s = seconds / (double)(count > 1 ? t->steps - first : t->steps);
    t->validation_s = validated > 0 ? validations / (double)validated : NAN;
    t->checkpoint_s = fmax(0.0, ended - before - t->step_s);
    return true;
}

/* Asks the training to stop when its time is over, as a signal would. */
typedef struct alarm_clock {
    pthread_mutex_t mutex;
    pthread_cond_t done;
    bool is_done;
    struct timespec at;
    pthread_t thread;
} alarm_clock;

static void *wait_and_stop(void *context) {
    alarm_clock *a = context;
    int waited = 0;
    pthread_mutex_lock(&a->mutex);
    while (!a->is_done && waited == 0) waited = pthread_cond_timedwait(&a->done, &a->mutex, &a->at);
    if (!a->is_done) ups_cancel_request();
    pthread_mutex_unlock(&a->mutex);
    return NULL;
}

static ups_status set_alarm(alarm_clock *a, double seconds, ups_error *error) {
    *a = (alarm_clock){.mutex = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};
    clock_gettime(CLOCK_REALTIME, &a->at);
    const double nanoseconds = (double)a->at.tv_nsec + 1e9 * (seconds - floor(seconds));
    a->at.tv_sec += (time_t)floor(seconds) + (time_t)(nanoseconds / 1e9);
    a->at.tv_nsec = (long)fmod(nanoseconds, 1e9);
    return pthread_create(&a->thread, NULL, wait_and_stop, a) == 0
               ? UPS_OK
               : ups_fail(error, UPS_ERR_MEMORY, "no thread could be had to measure with");
}

static void end_alarm(alarm_clock *a) {
    pthread_mutex_lock(&a->mutex);
    a->is_done = true;
    pthread_cond_signal(&a->done);
    pthread_mutex_unlock(&a->mutex);
    pthread_join(a->thread, NULL);
    ups_cancel_withdraw();
}

/* A run of its own with what the run has, by the configuration that the operator is to have. */
static ups_status make_trial(const ups_train_request *asked, const char *directory, int64_t line_steps,
                             ups_error *error) {
    char texts[OVERRIDES][64];
    const char **overrides = calloc(asked->override_count + OVERRIDES, sizeof *overrides);
    ups_train_report report;
    if (!overrides) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    snprintf(texts[0], sizeof *texts, "operator.validate_every=%d", VALIDATION_STEPS);
    snprintf(texts[1], sizeof *texts, "operator.checkpoint_every=0");
    snprintf(texts[2], sizeof *texts, "operator.log_every=%" PRId64, line_steps);
    for (size_t i = 0; i < asked->override_count; i++) overrides[i] = asked->overrides[i];
    for (size_t i = 0; i < OVERRIDES; i++) overrides[asked->override_count + i] = texts[i];
    const ups_train_request request = {.operand = asked->operand,
                                       .overrides = overrides,
                                       .override_count = asked->override_count + OVERRIDES,
                                       .stage = UPS_STAGE_AUTOENCODER,
                                       .fork = directory,
                                       .afresh = true};
    ups_status status = ups_train(&request, &report, error);
    ups_train_report_free(&report);
    free(overrides);
    return status;
}

/* Whether a trial says how long a step takes; after a time that was too short for it there is no error. */
static ups_status train_trial(const char *directory, double seconds, trial *t, bool *told, ups_error *error) {
    const ups_train_request request = {.operand = directory, .stage = UPS_STAGE_OPERATOR, .resume = true};
    ups_train_report report;
    alarm_clock clock;
    char *path = NULL;
    json_t *lines = NULL;
    UPS_TRY(set_alarm(&clock, seconds, error));
    const double began = time_now();
    ups_status status = ups_train(&request, &report, error);
    const double ended = time_now();
    end_alarm(&clock);
    ups_train_report_free(&report);
    if (status == UPS_ERR_CANCELLED && !ups_cancel_requested()) status = UPS_OK;
    if (status != UPS_OK) return status;
    if (asprintf(&path, "%s/metrics.jsonl", directory) < 0) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    status = ups_metrics_read(path, &lines, error);
    if (status == UPS_OK) *told = read_times(lines, began, ended, t);
    json_decref(lines);
    free(path);
    return status;
}

/* What an earlier one left that was killed; not one that is being made. */
static ups_status clear(const char *directory, ups_error *error) {
    ups_run_lock *lock;
    if (!ups_path_exists(directory)) return UPS_OK;
    UPS_TRY(ups_run_lock_take(directory, &lock, error));
    ups_run_lock_release(lock);
    return ups_remove_tree_at_once(directory, error);
}

/* What it says is not told. */
static ups_status run_trial(const ups_train_request *asked, const ups_run_config *config, const char *directory,
                            double seconds, int64_t line_steps, trial *t, bool *told, ups_error *error) {
    ups_error after;
    UPS_TRY(clear(directory, error));
    const ups_log_level level = ups_log_set_level(UPS_LOG_WARNING);
    if (level > UPS_LOG_WARNING) ups_log_set_level(level);
    ups_status status = make_trial(asked, directory, line_steps, error);
    if (status == UPS_OK) status = train_trial(directory, seconds, t, told, error);
    ups_log_set_level(level);
    if (ups_path_exists(directory)) ups_remove_tree_at_once(directory, &after);
    if (status != UPS_ERR_CANCELLED) return status;
    return ups_fail(error, UPS_ERR_CANCELLED,
                    "stopped while the operator's steps were measured. Of the operator nothing is done; what is stays "
                    "in %s, and the same command goes on from there",
                    config->output);
}

/* Where a step takes longer than a trial, a longer one. */
static ups_status measure(const ups_train_request *asked, const ups_run_config *config, double seconds, trial *t,
                          ups_error *error) {
    char *directory = NULL;
    bool told = false;
    double limit = fmax(fmin(trial_s, trial_share * seconds), 0.2);
    if (asprintf(&directory, "%s/.trial", config->output) < 0) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_log(UPS_LOG_INFO, "operator: measuring how long a step takes");
    ups_status status = UPS_OK;
    for (int i = 0; i < LONGEST && status == UPS_OK && !told; i++, limit *= 5)
        status = run_trial(asked, config, directory, limit, i ? 1 : LINE_STEPS, t, &told, error);
    if (status == UPS_OK && !told) {
        status = ups_fail(error, UPS_ERR_CONFIG,
                          "--for: a step of the operator takes longer than %.0f s; give its number, operator.steps",
                          limit / 5);
    }
    free(directory);
    return status;
}

/* ---- steps ------------------------------------------------------------------------------------------------------ */

/* Of a step in what comes every so many; 0: only at the end. */
static double share_of(double seconds, int64_t every) {
    return every > 0 ? seconds / (double)every : 0.0;
}

/* Losses that were not taken yet. */
static void warn_of_later(const ups_run_config *config, const trial *t) {
    const ups_operator_stage_config *op = &config->op;
    const char *const *names = ups_run_loss_names(UPS_STAGE_OPERATOR);
    char later[256] = "";
    size_t used = 0;
    for (int i = 0; i < UPS_MAX_LOSSES && names[i]; i++) {
        const ups_loss_config *loss = &op->training.losses[i];
        if (!(loss->weight > 0) || loss->from < t->steps || used >= sizeof later) continue;
        used += (size_t)snprintf(later + used, sizeof later - used, "%s%s from step %" PRId64, used ? ", " : "",
                                 names[i], loss->from);
    }
    if (op->rollout_curriculum_count > 0 && used < sizeof later)
        snprintf(later + used, sizeof later - used, "%srollouts that grow", used ? ", " : "");
    if (later[0]) {
        ups_log(UPS_LOG_WARNING, "operator: what begins later was not measured (%s): training will take longer", later);
    }
}

static ups_status find_steps(const ups_train_request *asked, const ups_run_config *config, double seconds, double begin,
                             int64_t *steps, ups_error *error) {
    trial t = {0};
    UPS_TRY(measure(asked, config, seconds, &t, error));
    const ups_training_config *training = &config->op.training;
    if (isnan(t.validation_s)) /* forward alone is a third of a step */
        t.validation_s = t.step_s / 3.0 * (double)training->validation_batches / (double)training->accumulation;
    const double left = seconds - (ups_now() - begin), whole = left - t.begin_s - t.validation_s - t.checkpoint_s;
    const double each = t.step_s + share_of(t.validation_s, training->validate_every) +
                        share_of(t.checkpoint_s, training->checkpoint_every);
    *steps = (int64_t)(fmax(0.0, whole) / each);
    if (*steps < 1) {
        return ups_fail(error, UPS_ERR_CONFIG,
                        "--for: %.0f s are too short: %.1f of them were left for the operator, whose step takes %.3f s "
                        "and whose validation %.2f s. What is done stays in %s: give the command again, with more time",
                        seconds, fmax(0.0, left), t.step_s, t.validation_s, config->output);
    }
    ups_log(UPS_LOG_INFO,
            "operator: %" PRId64 " steps fit into the %.0f s that are left: %.2f ms a step, %.2f s a validation, "
            "measured on %" PRId64 " steps",
            *steps, left, 1e3 * t.step_s, t.validation_s, t.steps);
    warn_of_later(config, &t);
    return UPS_OK;
}

ups_status ups_train_fit_steps(const ups_train_request *request, double seconds, int64_t *steps,
                               ups_train_report *report, ups_error *error) {
    const double begin = ups_now();
    ups_run_config *config = NULL, *used = NULL;
    *report = (ups_train_report){0};
    UPS_TRY(ups_run_config_load(request->operand, request->overrides, request->override_count, &config, error));
    ups_status status = check_begins(request, config, error);
    if (status == UPS_OK && !request->resume) status = ups_stages_check_all(config, error);
    if (status == UPS_OK) status = prepare(request, config, report, error);
    ups_train_request asked = *request; /* what the operator will be trained by: with --resume, the run's own */
    if (request->resume) asked.operand = config->output;
    if (status == UPS_OK)
        status = ups_run_config_load(asked.operand, asked.overrides, asked.override_count, &used, error);
    if (status == UPS_OK) status = find_steps(&asked, used, seconds, begin, steps, error);
    ups_run_config_free(used);
    ups_run_config_free(config);
    return status;
}
