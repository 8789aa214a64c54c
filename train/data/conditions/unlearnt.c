#include "train/data/conditions/unlearnt.h"

#include "base/log.h"
#include "train/data/splits.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- telling ---------------------------------------------------------------------------------------------------- */

/* Where values stand: in samples of the task's source, or as they were handed in. */
typedef struct stated {
    const int64_t *samples;   /* NULL: handed in */
    const double *parameters; /* (count, parameter_count) */
    int64_t count;
} stated;

/* Values of one parameter that do not fit in one way. */
typedef struct unfit {
    int64_t count, first; /* the number of the first */
    double value;         /* of the first */
    char others[160];     /* some names */
} unfit;

static ups_status describe(const ups_task *task, const stated *s, int64_t i, ups_sample *sample, ups_error *error) {
    if (s->samples) return ups_source_describe(task->source, s->samples[i], sample, error);
    *sample = (ups_sample){.parameters = s->parameters + i * task->source->parameter_count};
    return UPS_OK;
}

static void note(unfit *u, int64_t i, const ups_sample *sample, double value) {
    enum { NAMED = 4 };
    const size_t length = strlen(u->others);
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)i);
    if (u->count++ == 0) {
        u->first = i;
        u->value = value;
    } else if (u->count <= NAMED) {
        snprintf(u->others + length, sizeof u->others - length, "%s%s", length > 0 ? ", " : "",
                 sample->name ? sample->name : number);
    } else if (u->count == NAMED + 1) {
        snprintf(u->others + length, sizeof u->others - length, ", …");
    }
}

static void say_why(char *text, size_t size, ups_parameter_fit fit, const ups_parameter_scale *scale, double value) {
    text[0] = '\0';
    if (fit == UPS_PARAMETER_INFINITE) snprintf(text, size, " and counts as not known");
    if (fit == UPS_PARAMETER_NOT_POSITIVE)
        snprintf(text, size, " and counts as not known, since the model knows its logarithm");
    if (fit == UPS_PARAMETER_NEW) snprintf(text, size, ", and %g in all that the model was trained on", scale->mean);
    if (fit == UPS_PARAMETER_FAR)
        snprintf(text, size, ", %.1f deviations away from the mean of what the model was trained on",
                 ups_parameter_deviations(scale, value));
}

static ups_status warn(const ups_task *task, const stated *s, const char *name, ups_parameter_fit fit,
                       const ups_parameter_scale *scale, const unfit *u, ups_error *error) {
    char why[120], where[400], more[240] = "";
    ups_sample first;
    UPS_TRY(describe(task, s, u->first, &first, error));
    say_why(why, sizeof why, fit, scale, u->value);
    if (s->samples)
        snprintf(where, sizeof where, "sample %s of %s", first.name,
                 task->source->files[ups_sample_file(task->source, s->samples[u->first])]);
    else
        snprintf(where, sizeof where, "trajectory %lld", (long long)u->first);
    if (u->count > 1)
        snprintf(more, sizeof more, ", and as unknown to it in %lld more of the %lld (%s)", (long long)(u->count - 1),
                 (long long)s->count, u->others);
    ups_log(UPS_LOG_WARNING, "task %s: %s is %g%s: %s%s; do not expect its predictions to hold", task->name, name,
            u->value, why, where, more);
    return UPS_OK;
}

/* Of one input of the operator's condition, which is the source's parameter `from`. */
static ups_status look_at(const ups_task *task, const stated *s, int from, const ups_parameter_scale *scale, bool *any,
                          ups_error *error) {
    unfit found[UPS_PARAMETER_FITS_COUNT] = {0};
    for (int64_t i = 0; i < s->count; i++) {
        ups_sample sample;
        UPS_TRY(describe(task, s, i, &sample, error));
        const ups_parameter_fit fit = ups_parameter_judge(scale, sample.parameters[from]);
        if (fit != UPS_PARAMETER_FITS) note(&found[fit], i, &sample, sample.parameters[from]);
    }
    for (int f = UPS_PARAMETER_FITS + 1; f < UPS_PARAMETER_FITS_COUNT; f++) {
        if (found[f].count == 0) continue;
        *any = true;
        UPS_TRY(warn(task, s, task->source->parameter_names[from], (ups_parameter_fit)f, scale, &found[f], error));
    }
    return UPS_OK;
}

static ups_status look_at_all(const ups_task *task, const stated *s, bool *any, ups_error *error) {
    const int count = task->condition ? task->condition_count : task->source->parameter_count;
    for (int p = 0; p < count; p++) {
        const int from = task->condition ? task->condition[p] : p;
        if (from >= 0) UPS_TRY(look_at(task, s, from, task->scale ? &task->scale[p] : NULL, any, error));
    }
    return UPS_OK;
}

ups_status ups_unlearnt_warn(const ups_task *task, const int64_t *samples, int64_t count, ups_error *error) {
    const stated s = {.samples = samples, .count = count};
    bool any = false;
    return look_at_all(task, &s, &any, error);
}

bool ups_unlearnt_warn_of(const ups_task *task, const double *parameters, int64_t count) {
    const stated s = {.parameters = parameters, .count = count};
    bool any = false;
    return parameters && look_at_all(task, &s, &any, NULL) == UPS_OK && any;
}

/* ---- refusing --------------------------------------------------------------------------------------------------- */

static ups_status refuse(const ups_task *task, int from, const ups_parameter_scale *scale, double value,
                         int64_t trajectory, ups_error *error) {
    const ups_parameter_fit fit = ups_parameter_judge(scale, value);
    const char *name = task->source->parameter_names[from];
    if (fit == UPS_PARAMETER_INFINITE)
        return ups_fail(error, UPS_ERR_ARGUMENT, "task %s: the parameter %s of trajectory %lld is infinite", task->name,
                        name, (long long)trajectory);
    if (fit == UPS_PARAMETER_NOT_POSITIVE)
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "task %s: the parameter %s of trajectory %lld is %g; the model knows its logarithm, so it "
                        "has to be positive",
                        task->name, name, (long long)trajectory, value);
    return UPS_OK;
}

ups_status ups_unlearnt_refuse(const ups_task *task, const double *parameters, int64_t count, ups_error *error) {
    const int known = task->source->parameter_count;
    const int inputs = task->condition ? task->condition_count : known;
    for (int64_t i = 0; i < count && parameters; i++) {
        for (int p = 0; p < inputs; p++) {
            const int from = task->condition ? task->condition[p] : p;
            const ups_parameter_scale *scale = task->scale ? &task->scale[p] : NULL;
            if (from >= 0) UPS_TRY(refuse(task, from, scale, parameters[i * known + from], i, error));
        }
    }
    return UPS_OK;
}
