#include "train/run/comparison.h"

#include "base/files.h"
#include "cache/inspect/survey.h"
#include "train/config/load.h"
#include "train/data/tasks.h"
#include "train/metrics.h"
#include "train/run/own.h"
#include "train/run/summary.h"
#include "train/state.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const sides[2] = {"a", "b"};

/* ---- what lies in a run's directory -------------------------------------------------------------------------------
 */

/* Adds a group to the sums; false where it is damaged or not finished. */
static bool add_group(const char *directory, int64_t *samples, uint64_t *raw, uint64_t *stored) {
    ups_error unused;
    ups_cache_group *group = NULL;
    ups_cache_survey survey = {0};
    const bool sound = ups_cache_group_open(directory, &group, &unused) == UPS_OK && group->complete &&
                       ups_cache_survey_take(group, &survey, &unused) == UPS_OK && survey.shards == survey.shard_count;
    if (sound) {
        *samples += survey.present;
        *raw += survey.raw_bytes;
        *stored += survey.stored_bytes;
    }
    ups_cache_survey_free(&survey);
    ups_cache_group_close(group);
    return sound;
}

/* NULL where there is no cache, or not all of it. */
static json_t *survey_cache(const ups_run_config *config) {
    char *cache = ups_run_cache_directory(config);
    int64_t samples = 0;
    uint64_t raw = 0, stored = 0;
    bool sound = cache != NULL;
    for (unsigned i = 0; sound && i < config->task_count * UPS_SPLIT_COUNT; i++) {
        const char *task = config->tasks[i / UPS_SPLIT_COUNT].name,
                   *split = ups_split_name((ups_split)(i % UPS_SPLIT_COUNT));
        char *directory = NULL;
        if (asprintf(&directory, "%s/%s/%s", cache, task, split) < 0) break;
        sound = !ups_path_exists(directory) || add_group(directory, &samples, &raw, &stored); /* a split may be empty */
        free(directory);
    }
    free(cache);
    if (!sound || samples == 0 || stored == 0) return NULL;
    return json_pack("{s:I, s:I, s:I, s:f}", "samples", (json_int_t)samples, "raw_bytes", (json_int_t)raw, "bytes",
                     (json_int_t)stored, "ratio", (double)raw / (double)stored);
}

ups_status ups_compared_run_read(const ups_run_config *config, ups_compared_run *run, ups_error *error) {
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        char *initial = ups_run_training(config, (ups_stage)s) ? ups_run_initial_weights(config, (ups_stage)s) : NULL;
        if (initial && ups_path_exists(initial)) run->given |= 1u << s;
        free(initial);
    }
    char *path = ups_run_path(config, "metrics.jsonl");
    if (!path) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    const ups_status status = ups_metrics_read(path, &run->metrics, error);
    free(path);
    if (status == UPS_OK) run->cache = survey_cache(config);
    return status;
}

void ups_compared_run_free(ups_compared_run *run) {
    json_decref(run->metrics);
    json_decref(run->cache);
    *run = (ups_compared_run){0};
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static json_t *summarise_stages(const ups_compared_run *run) {
    json_t *stages = json_object();
    for (int s = 0; run->metrics && s < UPS_STAGE_COUNT; s++) {
        const char *name = ups_stage_name((ups_stage)s);
        json_t *summary = ups_stage_summary(run->metrics, name);
        if (json_object_size(summary) > 0) {
            if (run->given >> s & 1) json_object_set_new(summary, "from_given_weights", json_true());
            json_object_set(stages, name, summary);
        }
        json_decref(summary);
    }
    return stages;
}

static json_t *summarise_tasks(const json_t *evaluation) {
    json_t *tasks = json_object(), *task;
    size_t index;
    json_array_foreach(json_object_get(evaluation, "tasks"), index, task) {
        const char *name = json_string_value(json_object_get(task, "task"));
        json_t *latents = json_object_get(task, "latents_per_frame");
        json_t *seconds = json_object_get(task, "frame_seconds");
        if (!name) continue;
        json_t *summary = json_object();
        if (json_is_integer(latents)) json_object_set(summary, "latents_per_frame", latents);
        if (json_is_number(seconds)) json_object_set(summary, "frame_seconds", seconds);
        if (json_object_size(summary) > 0) json_object_set(tasks, name, summary);
        json_decref(summary);
    }
    return tasks;
}

static json_t *summarise(const ups_compared_run *run) {
    json_t *summary = json_object(), *stages = summarise_stages(run), *tasks = summarise_tasks(run->evaluation);
    json_t *machine = json_object_get(run->evaluation, "machine");
    if (json_object_size(stages) > 0) json_object_set(summary, "stages", stages);
    if (run->cache) json_object_set(summary, "cache", run->cache);
    if (json_object_size(tasks) > 0) json_object_set(summary, "tasks", tasks);
    if (json_is_string(machine)) json_object_set_new(summary, "evaluated_on", json_pack("[O]", machine));
    json_decref(stages);
    json_decref(tasks);
    return summary;
}

/* A ratio of these means nothing. */
static bool is_label(const char *key) {
    return strcmp(key, "lines") == 0 || strcmp(key, "best_step") == 0 || strcmp(key, "score") == 0;
}

/* Numbers of b over those of a, where both have them; NULL: there are none. */
static json_t *divide(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b)) {
        const double ratio = json_number_value(b) / json_number_value(a);
        return isfinite(ratio) ? json_real(ratio) : NULL;
    }
    json_t *ratios = json_object(), *value;
    const char *key;
    json_object_foreach((json_t *)a, key, value) {
        json_t *ratio = is_label(key) ? NULL : divide(value, json_object_get(b, key));
        if (ratio) json_object_set_new(ratios, key, ratio);
    }
    if (json_object_size(ratios) > 0) return ratios;
    json_decref(ratios);
    return NULL;
}

static json_t *stage_in(const json_t *summary, const char *stage) {
    return json_object_get(json_object_get(summary, "stages"), stage);
}

/* ---- machines ---------------------------------------------------------------------------------------------------- */

/* Whether speeds of the two say something of what was changed: they ran on one kind of machine each, and the same. */
static json_t *is_same(const json_t *a, const json_t *b) {
    if (!a || !b) return json_null();
    const bool mixed = json_array_size(a) > 1 || json_array_size(b) > 1;
    return json_boolean(!mixed && json_equal(a, b));
}

static void add_machines(json_t *machines, const char *of, json_t *a, json_t *b) {
    json_object_set_new(machines, of, json_pack("{s:o, s:O*, s:O*}", "same", is_same(a, b), "a", a, "b", b));
}

static json_t *list_machines(const json_t *a, const json_t *b) {
    json_t *machines = json_object();
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        const char *stage = ups_stage_name((ups_stage)s);
        json_t *of_a = stage_in(a, stage), *of_b = stage_in(b, stage);
        if (!of_a || !of_b) continue;
        add_machines(machines, stage, json_object_get(of_a, "machines"), json_object_get(of_b, "machines"));
    }
    add_machines(machines, "evaluation", json_object_get(a, "evaluated_on"), json_object_get(b, "evaluated_on"));
    return machines;
}

/* ---- configurations ---------------------------------------------------------------------------------------------- */

/* The one that trained the operator; NULL where the evaluation does not tell, or tells of keys of another version. */
static ups_run_config *trained_by(const json_t *evaluation) {
    const char *text = json_string_value(json_object_get(json_object_get(evaluation, "training"), "config"));
    ups_run_config *config = NULL;
    ups_error unused;
    if (text && ups_run_config_load_model("config.yaml", text, &config, &unused) != UPS_OK) return NULL;
    return config;
}

/* Where a run lies is no difference of it. */
static bool is_place(const char *key) {
    return strcmp(key, "output") == 0 || strcmp(key, "cache.directory") == 0;
}

/* *list stays NULL where one of the configurations is not known. */
static ups_status list_differences(const ups_compared_run run[2], json_t **list, ups_error *error) {
    ups_run_config *a = trained_by(run[0].evaluation), *b = trained_by(run[1].evaluation);
    ups_run_differences found = {0};
    const ups_status status = a && b ? ups_run_compare(a, b, &found, error) : UPS_OK;
    if (a && b && status == UPS_OK) *list = json_array();
    for (size_t i = 0; i < found.count; i++) {
        const ups_run_difference *difference = &found.list[i];
        if (is_place(difference->key)) continue;
        json_array_append_new(*list,
                              json_pack("{s:o, s:o, s:o, s:b}", "key", ups_json_printable(difference->key), "a",
                                        ups_json_printable(difference->run), "b", ups_json_printable(difference->now),
                                        "neutral", (int)difference->neutral));
    }
    ups_run_differences_free(&found);
    ups_run_config_free(a);
    ups_run_config_free(b);
    return status;
}

/* ---- learning ---------------------------------------------------------------------------------------------------- */

static bool begins_with_any(const char *key, const char *const *list) {
    for (; *list; list++)
        if (strncmp(key, *list, strlen(*list)) == 0) return true;
    return false;
}

/* Whether validations are of the same windows, by the same losses, whatever this key is. */
static bool leaves_validation(ups_stage stage, const char *key) {
    static const char *const any[] = {"precision",     "fp8_layers",       "ranks.",
                                      "data.sampling", "data.temperature", "data.difficulty.",
                                      "evaluation.",   "checkpoint.",      NULL};
    static const char *const training[] = {"optimizer.", "steps",          "accumulation",         "patience",
                                           "min_delta",  "validate_every", "pairs_per_trajectory", NULL};
    static const char *const of_operator[] = {
        "autoencoder.",         "operator.noise",  "operator.augment", "operator.vectors",
        "operator.pushforward", "model.operator.", "model.from",       NULL};
    static const char *const windows[] = {"model.operator.history", "model.operator.bundle", NULL};
    static const char *const of_autoencoder[] = {
        "model.dim", "model.encoder.", "model.decoder.", "model.operator.", "operator.", "cache.", NULL};
    static const char of_task[] = ".symmetries";
    const char *name = ups_stage_name(stage), *ending = strrchr(key, '.');
    const size_t length = strlen(name);
    if (strncmp(key, "tasks[", 6) == 0 && ending && strcmp(ending, of_task) == 0) return true;
    if (begins_with_any(key, any)) return true;
    if (strncmp(key, name, length) == 0 && key[length] == '.' && begins_with_any(key + length + 1, training))
        return true;
    if (stage == UPS_STAGE_AUTOENCODER) return begins_with_any(key, of_autoencoder);
    return begins_with_any(key, of_operator) && !begins_with_any(key, windows);
}

ups_status ups_validations_alike(const ups_run_config *a, const ups_run_config *b, ups_stage stage, char reason[],
                                 size_t bytes, ups_error *error) {
    const ups_run_config *const runs[2] = {a, b};
    ups_run_differences found = {0};
    ups_run_state state[2];
    reason[0] = '\0';
    for (int i = 0; i < 2; i++) UPS_TRY(ups_run_state_read(runs[i], &state[i], error));
    const ups_status status = ups_run_compare(a, b, &found, error);
    for (size_t i = 0; i < found.count && !reason[0]; i++) {
        const ups_run_difference *difference = &found.list[i];
        if (difference->neutral || is_place(difference->key) || leaves_validation(stage, difference->key)) continue;
        snprintf(reason, bytes, "%s differs, on which the loss itself may depend", difference->key);
    }
    const ups_stage autoencoder = UPS_STAGE_AUTOENCODER;
    if (!reason[0] && stage > autoencoder &&
        strcmp(state[0].stage[autoencoder].weights, state[1].stage[autoencoder].weights) != 0)
        snprintf(reason, bytes, "they are of latents of different autoencoders");
    ups_run_differences_free(&found);
    return status;
}

static bool same_autoencoder(const ups_compared_run run[2]) {
    const json_t *hash[2];
    for (int i = 0; i < 2; i++) hash[i] = json_object_get(json_object_get(run[i].evaluation, "autoencoder"), "xxh3");
    return json_is_string(hash[0]) && json_equal(hash[0], hash[1]);
}

/* Why losses of a stage's validations are not of the same kind; NULL: they are. A new reference. */
static json_t *find_unlike(const ups_compared_run run[2], ups_stage stage, const json_t *differences) {
    size_t index;
    json_t *difference;
    if (!differences) return json_string("what one of them was trained by is not known");
    if (stage == UPS_STAGE_OPERATOR && !same_autoencoder(run))
        return json_string("the operators work on latents of two autoencoders");
    json_array_foreach((json_t *)differences, index, difference) {
        const char *key = json_string_value(json_object_get(difference, "key"));
        if (json_is_true(json_object_get(difference, "neutral")) || leaves_validation(stage, key)) continue;
        return json_sprintf("%s differs, on which the loss itself may depend", key);
    }
    return NULL;
}

/* The lowest score of a stage's validations: `best` leaves out a last one that was not due. */
static double lowest_score(const json_t *metrics, const char *stage) {
    double lowest = INFINITY;
    size_t index;
    json_t *line;
    json_array_foreach((json_t *)metrics, index, line) {
        const char *of = json_string_value(json_object_get(line, "stage"));
        const json_t *score = json_object_get(line, "score");
        if (of && strcmp(of, stage) == 0 && json_is_number(score)) lowest = fmin(lowest, json_number_value(score));
    }
    return lowest;
}

/* When each got as far as the one that got less far. */
static void add_reached(const ups_compared_run run[2], const char *stage, json_t *learning) {
    const double a = lowest_score(run[0].metrics, stage), b = lowest_score(run[1].metrics, stage);
    const int whose = a >= b ? 0 : 1;
    if (isinf(a) || isinf(b)) return;
    json_object_set_new(learning, "loss", json_real(fmax(a, b)));
    json_object_set_new(learning, "of", json_string(sides[whose]));
    for (int i = 0; i < 2; i++)
        json_object_set_new(learning, sides[i], ups_stage_reaches(run[i].metrics, stage, fmax(a, b)));
    json_t *ratio = divide(json_object_get(learning, "a"), json_object_get(learning, "b"));
    if (ratio) json_object_set_new(learning, "ratio", ratio);
}

static json_t *compare_learning(const ups_compared_run run[2], const json_t *differences, json_t *ratio) {
    static const char *const losses[] = {"validation", "best"};
    json_t *learning = json_array();
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        const char *name = ups_stage_name((ups_stage)s);
        json_t *ratios = stage_in(ratio, name);
        if (!json_object_get(ratios, "validation") || !json_object_get(ratios, "steps"))
            continue; /* not both trained */
        json_t *told = json_pack("{s:s}", "stage", name), *unlike = find_unlike(run, (ups_stage)s, differences);
        json_object_set_new(told, "comparable", json_boolean(!unlike));
        for (size_t i = 0; unlike && i < sizeof losses / sizeof *losses; i++) json_object_del(ratios, losses[i]);
        if (!unlike && (run[0].given | run[1].given) >> s & 1)
            unlike = json_sprintf("%s began from another run's weights", (run[0].given & run[1].given) >> s & 1 ? "both"
                                                                         : run[0].given >> s & 1                ? "A"
                                                                                                                : "B");
        if (unlike)
            json_object_set_new(told, "reason", unlike);
        else
            add_reached(run, name, told);
        json_array_append_new(learning, told);
    }
    return learning;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

ups_status ups_comparison_make(const ups_compared_run run[2], json_t **comparison, ups_error *error) {
    json_t *a = summarise(&run[0]), *b = summarise(&run[1]), *differences = NULL;
    *comparison = NULL;
    ups_status status = list_differences(run, &differences, error);
    if (status == UPS_OK) {
        json_t *ratio = divide(a, b);
        json_t *learning = compare_learning(run, differences, ratio);
        *comparison = json_pack("{s:O, s:O, s:o*, s:o, s:O*, s:o}", "a", a, "b", b, "ratio", ratio, "machines",
                                list_machines(a, b), "differences", differences, "learning", learning);
        if (!*comparison) status = ups_fail(error, UPS_ERR_MEMORY, "comparison: out of memory");
    }
    json_decref(a);
    json_decref(b);
    json_decref(differences);
    return status;
}
