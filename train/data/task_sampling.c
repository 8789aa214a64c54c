#include "train/data/task_sampling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A rising share goes up in this many stairs: each is a phase. */
#define RAMP_STAIRS 16

static const char *const strategy_names[] = {[UPS_SAMPLER_PROPORTIONAL] = "proportional",
                                             [UPS_SAMPLER_BALANCED] = "balanced",
                                             [UPS_SAMPLER_TEMPERATURE] = "temperature",
                                             [UPS_SAMPLER_DIFFICULTY] = "difficulty"};

struct ups_task_sampling {
    const ups_data_config *data;
    bool changes;
    int count;
    int64_t draws_per_step;       /* optimizer step */
    int64_t lead;                 /* steps */
    const ups_task_config **task; /* (count) */
    double *base;                 /* (count) */
    double *average;              /* (count) of the validation loss; NAN until there is one */
    int64_t *positions;           /* (phase_count) */
    int32_t *shares;              /* (phase_count, count) */
    ups_sampler_phase *phases;    /* (phase_count) of the two above */
    int64_t phase_count, room;
};

bool ups_task_sampling_changes(const ups_run_config *config) {
    bool changes = config->data.strategy == UPS_SAMPLER_DIFFICULTY;
    for (unsigned t = 0; t < config->task_count; t++)
        changes = changes || config->tasks[t].from > 0 || config->tasks[t].ramp > 0;
    return changes;
}

/* ---- shares ----------------------------------------------------------------------------------------------------- */

static double ramp_at(const ups_task_config *task, int64_t step) {
    if (step < task->from) return 0;
    int64_t since = step - task->from;
    if (since >= task->ramp) return 1;
    return (double)(1 + since * RAMP_STAIRS / task->ramp) / (RAMP_STAIRS + 1);
}

/* How much more difficult a task is than the mean of those drawn at that step. */
static double difficulty_of(const ups_task_sampling *s, int k, int64_t step) {
    if (s->data->strategy != UPS_SAMPLER_DIFFICULTY || !isfinite(s->average[k])) return 1;
    double total = 0;
    int known = 0;
    for (int j = 0; j < s->count; j++) {
        if (!isfinite(s->average[j]) || ramp_at(s->task[j], step) <= 0) continue;
        total += s->average[j];
        known++;
    }
    if (!(total > 0)) return 1;
    double relative = pow(s->average[k] * known / total, s->data->difficulty.power);
    return fmin(fmax(relative, s->data->difficulty.floor), s->data->difficulty.ceiling);
}

/* Before the first task enters (which a configuration cannot ask for) all would be 0. */
static void find_shares(const ups_task_sampling *s, int64_t step, int32_t *shares) {
    double weights[UPS_SAMPLER_MAX_TASKS];
    for (int k = 0; k < s->count; k++) weights[k] = s->base[k] * difficulty_of(s, k, step) * ramp_at(s->task[k], step);
    ups_sampler_shares(weights, s->count, shares);
}

static ups_status make_room(ups_task_sampling *s, int64_t room, ups_error *error) {
    if (room <= s->room) return UPS_OK;
    int64_t *positions = realloc(s->positions, (size_t)room * sizeof *positions);
    if (positions) s->positions = positions;
    int32_t *shares = positions ? realloc(s->shares, (size_t)(room * s->count) * sizeof *shares) : NULL;
    if (shares) s->shares = shares;
    ups_sampler_phase *phases = shares ? realloc(s->phases, (size_t)room * sizeof *phases) : NULL;
    if (!phases) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the phases of sampling");
    s->phases = phases;
    s->room = room;
    return UPS_OK;
}

/* Shares from a step on, unless they are those of the latest phase. */
static ups_status decide(ups_task_sampling *s, int64_t step, bool *decided, ups_error *error) {
    int32_t shares[UPS_SAMPLER_MAX_TASKS];
    size_t bytes = (size_t)s->count * sizeof *shares;
    find_shares(s, step, shares);
    *decided = s->phase_count == 0 || memcmp(shares, s->shares + (s->phase_count - 1) * s->count, bytes) != 0;
    if (!*decided) return UPS_OK;
    if (s->phase_count == s->room) UPS_TRY(make_room(s, 2 * s->room + 8, error));
    memcpy(s->shares + s->phase_count * s->count, shares, bytes);
    s->positions[s->phase_count++] = step * s->draws_per_step;
    return UPS_OK;
}

/* ---- life ------------------------------------------------------------------------------------------------------- */

void ups_task_sampling_destroy(ups_task_sampling *s) {
    if (!s) return;
    free(s->task);
    free(s->base);
    free(s->average);
    free(s->positions);
    free(s->shares);
    free(s->phases);
    free(s);
}

static void find_base(ups_task_sampling *s, const ups_sampled_task *tasks) {
    ups_sampler_task sampled[UPS_SAMPLER_MAX_TASKS];
    for (int k = 0; k < s->count; k++) {
        sampled[k] = (ups_sampler_task){.samples = tasks[k].samples, .starts = 1, .weight = tasks[k].config->weight};
        s->task[k] = tasks[k].config;
        s->average[k] = NAN;
    }
    ups_sampler_options options = {.strategy = s->data->strategy, .temperature = s->data->temperature};
    ups_sampler_weights(&options, sampled, s->count, s->base);
}

ups_status ups_task_sampling_create(const ups_run_config *config, const ups_training_config *training, int64_t draws,
                                    const ups_sampled_task *tasks, int count, ups_task_sampling **sampling,
                                    ups_error *error) {
    *sampling = NULL;
    ups_task_sampling *s = calloc(1, sizeof *s);
    if (!s) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the tasks' shares");
    s->data = &config->data;
    s->changes = ups_task_sampling_changes(config);
    s->count = count;
    s->draws_per_step = draws * training->accumulation;
    s->lead = (UPS_SAMPLING_LEAD + training->accumulation - 1) / training->accumulation;
    s->task = calloc((size_t)count, sizeof(*s->task));
    s->base = calloc((size_t)count, sizeof *s->base);
    s->average = calloc((size_t)count, sizeof *s->average);
    ups_status status =
        s->task && s->base && s->average ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "no memory for the tasks' shares");
    if (status == UPS_OK) find_base(s, tasks);
    bool decided;
    for (int64_t step = 0; step <= s->lead && s->changes && status == UPS_OK; step++) {
        status = decide(s, step, &decided, error);
    }
    if (status == UPS_OK) {
        *sampling = s;
    } else {
        ups_task_sampling_destroy(s);
    }
    return status;
}

const ups_sampler_phase *ups_task_sampling_phases(ups_task_sampling *s, int64_t *count) {
    for (int64_t p = 0; p < s->phase_count; p++) {
        s->phases[p] = (ups_sampler_phase){s->positions[p], s->shares + p * s->count};
    }
    *count = s->phase_count;
    return s->phases;
}

ups_status ups_task_sampling_advance(ups_task_sampling *s, int64_t step, const double *losses,
                                     const ups_sampler_phase **decided, ups_error *error) {
    *decided = NULL;
    if (!s->changes) return UPS_OK;
    double smoothing = s->data->difficulty.smoothing;
    for (int k = 0; k < s->count && losses; k++) {
        if (!isfinite(losses[k])) continue;
        s->average[k] = isfinite(s->average[k]) ? smoothing * s->average[k] + (1 - smoothing) * losses[k] : losses[k];
    }
    bool is_new = false;
    UPS_TRY(decide(s, step + s->lead, &is_new, error));
    int64_t count;
    const ups_sampler_phase *phases = ups_task_sampling_phases(s, &count);
    if (is_new) *decided = &phases[count - 1];
    return UPS_OK;
}

/* ---- words ------------------------------------------------------------------------------------------------------ */

static double share_of(const ups_task_sampling *s, int64_t phase, int k) {
    int64_t sum = 0;
    for (int j = 0; j < s->count; j++) sum += s->shares[phase * s->count + j];
    return (double)s->shares[phase * s->count + k] / (double)sum;
}

void ups_task_sampling_describe(const ups_task_sampling *s, char *text, size_t bytes) {
    text[0] = '\0';
    if (s->phase_count == 0) return;
    int64_t latest = s->phase_count - 1;
    int used = snprintf(text, bytes, "from step %lld on", (long long)(s->positions[latest] / s->draws_per_step));
    for (int k = 0; k < s->count && used > 0 && (size_t)used < bytes; k++) {
        used += snprintf(text + used, bytes - (size_t)used, "%s %s %.3g %%", k ? "," : ":", s->task[k]->name,
                         100 * share_of(s, latest, k));
    }
}

json_t *ups_task_sampling_report(const ups_task_sampling *s) {
    if (s->phase_count == 0) return json_null();
    int64_t latest = s->phase_count - 1;
    json_t *shares = json_object(), *difficulty = json_object();
    for (int k = 0; k < s->count; k++) {
        json_object_set_new(shares, s->task[k]->name, json_real(share_of(s, latest, k)));
        if (isfinite(s->average[k])) json_object_set_new(difficulty, s->task[k]->name, json_real(s->average[k]));
    }
    return json_pack("{s:I, s:o, s:o}", "from_step", (json_int_t)(s->positions[latest] / s->draws_per_step), "shares",
                     shares, "difficulty", difficulty);
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------ */

json_t *ups_task_sampling_to_json(const ups_task_sampling *s) {
    json_t *tasks = json_array(), *averages = json_array(), *phases = json_array();
    for (int k = 0; k < s->count; k++) {
        json_array_append_new(tasks, json_string(s->task[k]->name));
        json_array_append_new(averages, isfinite(s->average[k]) ? json_real(s->average[k]) : json_null());
    }
    for (int64_t p = 0; p < s->phase_count; p++) {
        json_t *shares = json_array();
        for (int k = 0; k < s->count; k++) json_array_append_new(shares, json_integer(s->shares[p * s->count + k]));
        json_array_append_new(phases, json_pack("{s:I, s:o}", "draw", (json_int_t)s->positions[p], "shares", shares));
    }
    return json_pack("{s:s, s:I, s:o, s:o, s:o}", "strategy", strategy_names[s->data->strategy], "draws_per_step",
                     (json_int_t)s->draws_per_step, "tasks", tasks, "average_losses", averages, "phases", phases);
}

static ups_status check_kept(const ups_task_sampling *s, const json_t *json, const char *where, ups_error *error) {
    const char *strategy = NULL;
    int64_t draws_per_step;
    UPS_TRY(ups_json_string(json, "strategy", where, &strategy, error));
    UPS_TRY(ups_json_integer(json, "draws_per_step", where, &draws_per_step, error));
    if (strcmp(strategy, strategy_names[s->data->strategy]) != 0) {
        return ups_fail(error, UPS_ERR_STALE,
                        "%s: the run was begun with data.sampling: %s, the configuration has %s; go on with that, or "
                        "begin anew with --restart",
                        where, strategy, strategy_names[s->data->strategy]);
    }
    if (s->changes && draws_per_step != s->draws_per_step) {
        return ups_fail(
            error, UPS_ERR_STALE,
            "%s: the run was begun with %lld draws a step, the configuration makes it %lld; where shares of "
            "tasks change, batch_size, accumulation and pairs_per_trajectory stay as they were, or begin "
            "anew with --restart",
            where, (long long)draws_per_step, (long long)s->draws_per_step);
    }
    const json_t *tasks = json_object_get(json, "tasks");
    bool same = json_array_size(tasks) == (size_t)s->count &&
                json_array_size(json_object_get(json, "average_losses")) == (size_t)s->count;
    for (int k = 0; same && k < s->count; k++) {
        const char *name = json_string_value(json_array_get(tasks, (size_t)k));
        same = name && strcmp(name, s->task[k]->name) == 0;
    }
    if (same) return UPS_OK;
    return ups_fail(error, UPS_ERR_STALE,
                    "%s: the run was begun with other tasks, or in another order; go on with those, or begin anew with "
                    "--restart",
                    where);
}

static ups_status read_phase(ups_task_sampling *s, int64_t p, const json_t *entry, const char *where,
                             ups_error *error) {
    const json_t *shares = json_object_get(entry, "shares");
    UPS_TRY(ups_json_integer(entry, "draw", where, &s->positions[p], error));
    bool fine = json_array_size(shares) == (size_t)s->count && s->positions[p] >= 0 &&
                (p == 0 || s->positions[p] > s->positions[p - 1]);
    int64_t sum = 0;
    for (int k = 0; fine && k < s->count; k++) {
        const json_t *value = json_array_get(shares, (size_t)k);
        json_int_t share = json_integer_value(value);
        fine = json_is_integer(value) && share >= 0 && share <= UPS_SAMPLER_SHARES;
        if (fine) s->shares[p * s->count + k] = (int32_t)share;
        sum += share;
    }
    if (fine && sum > 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT, "%s: phase %lld of its sampling is damaged", where, (long long)p);
}

ups_status ups_task_sampling_from_json(ups_task_sampling *s, const json_t *json, const char *where, ups_error *error) {
    UPS_TRY(check_kept(s, json, where, error));
    const json_t *phases = json_object_get(json, "phases"), *averages = json_object_get(json, "average_losses");
    int64_t count = (int64_t)json_array_size(phases);
    if ((count > 0) != s->changes) {
        return ups_fail(error, UPS_ERR_STALE,
                        "%s: tasks[].from or ramp were set or taken away since the run was begun; go on as it was, or "
                        "begin anew with --restart",
                        where);
    }
    UPS_TRY(make_room(s, count + 8, error));
    for (int64_t p = 0; p < count; p++) UPS_TRY(read_phase(s, p, json_array_get(phases, (size_t)p), where, error));
    s->phase_count = count;
    for (int k = 0; k < s->count; k++) {
        const json_t *average = json_array_get(averages, (size_t)k);
        if (!json_is_null(average) && !(json_is_number(average) && json_number_value(average) >= 0)) {
            return ups_fail(error, UPS_ERR_FORMAT,
                            "%s: 'sampling.average_losses' must be null or a number of at least 0 for task %s", where,
                            s->task[k]->name);
        }
        s->average[k] = json_is_number(average) ? json_number_value(average) : (double)NAN;
    }
    return UPS_OK;
}
