#include "train/run/replace.h"

#include "base/files.h"
#include "base/json.h"
#include "cache/inspect/find.h"
#include "train/config/load.h"
#include "train/data/tasks.h"
#include "train/metrics.h"
#include "train/run/move.h"
#include "train/run_lock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char next_name[] = "next", replacing_name[] = "replacing", redo_name[] = "redo.json";

/* DIRECTORY/NAME; free with free(). */
static char *within(const char *directory, const char *name) {
    char *path = NULL;
    return asprintf(&path, "%s/%s", directory, name) < 0 ? NULL : path;
}

static bool is_in(const char *directory, const char *name) {
    char *path = within(directory, name);
    bool there = path && ups_path_exists(path);
    free(path);
    return there;
}

char *ups_run_next(const char *output) {
    return within(output, next_name);
}

bool ups_run_has_next(const char *output) {
    return is_in(output, next_name);
}

char *ups_run_next_cache(const char *cache) {
    return within(cache, UPS_CACHE_STAGED);
}

/* ---- which stages ------------------------------------------------------------------------------------------------ */

static json_t *name_stages(unsigned stages) {
    json_t *names = json_array();
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        if (stages & 1u << s) json_array_append_new(names, json_string(ups_stage_name((ups_stage)s)));
    }
    return names;
}

/* {"stages": ["operator"], "groups": ["advection/train", …], "given": ["operator"]}: the groups of the cache that were
 * built again, and the stages that began with given weights (initial/), known once all stages have finished. */
static ups_status publish_redo(const char *directory, unsigned stages, json_t *groups, json_t *given,
                               ups_error *error) {
    char *path = within(directory, redo_name);
    json_t *json = json_pack("{s:o, s:o*, s:o*}", "stages", name_stages(stages), "groups", groups, "given", given);
    ups_status status =
        path && json ? ups_json_publish(path, json, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    json_decref(json);
    free(path);
    return status;
}

ups_status ups_run_redo_publish(const char *directory, unsigned stages, ups_error *error) {
    return publish_redo(directory, stages, NULL, NULL, error);
}

static bool find_stage(const char *name, unsigned *stages) {
    for (int s = 0; s < UPS_STAGE_COUNT && name; s++) {
        if (strcmp(name, ups_stage_name((ups_stage)s)) != 0) continue;
        *stages |= 1u << s;
        return true;
    }
    return false;
}

static ups_status read_redo(const char *directory, unsigned *stages, json_t **json, ups_error *error) {
    char *path = within(directory, redo_name);
    *stages = 0;
    *json = NULL;
    ups_status status = path ? ups_json_read(path, json, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    const json_t *names = json_object_get(*json, "stages");
    bool fine = json_array_size(names) > 0;
    for (size_t i = 0; i < json_array_size(names); i++) {
        fine = fine && find_stage(json_string_value(json_array_get(names, i)), stages);
    }
    if (status == UPS_OK && !fine) {
        status = ups_fail(error, UPS_ERR_FORMAT,
                          "%s: 'stages' is no list of stages; restore the file, or remove %s to give up what was begun "
                          "there",
                          path, directory);
    }
    free(path);
    return status;
}

ups_status ups_run_redo_read(const char *directory, unsigned *stages, ups_error *error) {
    json_t *json;
    ups_status status = read_redo(directory, stages, &json, error);
    json_decref(json);
    return status;
}

/* ---- moving ------------------------------------------------------------------------------------------------------ */

/* A part of the run, by its name in it. */
static ups_status move_part(const char *replacing, const char *output, const char *name, ups_error *error) {
    char *from = within(replacing, name), *to = within(output, name);
    ups_status status = from && to ? ups_run_move(from, to, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    free(from);
    free(to);
    return status;
}

static bool lists(const json_t *list, const char *text) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name && strcmp(name, text) == 0) return true;
    }
    return false;
}

/* The weights that the stage began with; where it began with none, the old ones are of no use any more. */
static ups_status move_given(const char *replacing, const char *output, ups_stage stage, const json_t *given,
                             ups_error *error) {
    char name[64];
    snprintf(name, sizeof name, "initial/%s.safetensors", ups_stage_name(stage));
    if (!given || lists(given, ups_stage_name(stage))) return move_part(replacing, output, name, error);
    char *old = within(output, name);
    ups_status status = old ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (old && ups_path_exists(old)) status = ups_remove_tree(old, error);
    free(old);
    return status;
}

static ups_status move_stage(const char *replacing, const char *output, ups_stage stage, ups_error *error) {
    char model[64], checkpoints[64];
    snprintf(model, sizeof model, "%s.safetensors", ups_stage_name(stage));
    snprintf(checkpoints, sizeof checkpoints, "checkpoints/%s", ups_stage_name(stage));
    UPS_TRY(move_part(replacing, output, model, error));
    return move_part(replacing, output, checkpoints, error);
}

/* ---- the cache --------------------------------------------------------------------------------------------------- */

/* The run's cache and the one that replaces it, and which groups they can have. */
typedef struct caches {
    ups_run_config *config;
    char *old, *new;
} caches;

/* `directory` is RUN/next or RUN/replacing. To be closed, whatever the outcome. */
static ups_status find_caches(const char *directory, const char *output, caches *c, ups_error *error) {
    *c = (caches){0};
    UPS_TRY(ups_run_config_load(directory, NULL, 0, &c->config, error));
    const char *told = c->config->cache.directory;
    c->old = told[0] ? strdup(told) : within(output, "cache");
    c->new = c->old ? ups_run_next_cache(c->old) : NULL;
    return c->new ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
}

static void close_caches(caches *c) {
    ups_run_config_free(c->config);
    free(c->old);
    free(c->new);
}

/* Calls `visit` with "TASK/SPLIT" of each group that there can be. */
typedef ups_status (*visit_group)(const caches *c, const char *group, json_t *list, ups_error *error);
static ups_status each_group(const caches *c, visit_group visit, json_t *list, ups_error *error) {
    for (unsigned t = 0; t < c->config->task_count; t++) {
        for (int s = 0; s < UPS_SPLIT_COUNT; s++) {
            char group[128]; /* names of tasks have at most 64 letters */
            snprintf(group, sizeof group, "%s/%s", c->config->tasks[t].name, ups_split_name((ups_split)s));
            UPS_TRY(visit(c, group, list, error));
        }
    }
    return UPS_OK;
}

static ups_status list_group(const caches *c, const char *group, json_t *list, ups_error *error) {
    if (is_in(c->new, group)) json_array_append_new(list, json_string(group));
    return UPS_OK;
}

/* Of a group that was not built again the old one is of no use any more. What is no cache is left alone. */
static ups_status move_group(const caches *c, const char *group, json_t *list, ups_error *error) {
    char *from = within(c->new, group), *to = within(c->old, group),
         *document = to ? within(to, "latent/zarr.json") : NULL;
    ups_status status = UPS_OK;
    if (!from || !document)
        status = ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    else if (lists(list, group))
        status = ups_run_move(from, to, error);
    else if (ups_path_exists(document))
        status = ups_remove_tree_at_once(to, error);
    free(document);
    free(from);
    free(to);
    return status;
}

/* The documents above the groups, which all caches of these tasks have alike. */
static ups_status move_documents(const caches *c, ups_error *error) {
    char name[128];
    for (unsigned t = 0; t <= c->config->task_count; t++) {
        bool top = t == c->config->task_count;
        snprintf(name, sizeof name, "%s%szarr.json", top ? "" : c->config->tasks[t].name, top ? "" : "/");
        UPS_TRY(move_part(c->new, c->old, name, error));
    }
    return UPS_OK;
}

/* What a command that was killed here before left under temporary names. */
static ups_status clear(const char *directory, ups_error *error) {
    return ups_path_exists(directory) ? ups_remove_partials(directory, error) : UPS_OK;
}

static ups_status clear_cache(const caches *c, ups_error *error) {
    ups_status status = clear(c->old, error);
    for (unsigned t = 0; t < c->config->task_count && status == UPS_OK; t++) {
        char *task = within(c->old, c->config->tasks[t].name);
        status = task ? clear(task, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        free(task);
    }
    return status;
}

static ups_status move_cache(const char *replacing, const char *output, json_t *groups, ups_error *error) {
    caches c;
    ups_status status = find_caches(replacing, output, &c, error);
    if (status == UPS_OK) status = clear_cache(&c, error);
    if (status == UPS_OK) status = each_group(&c, move_group, groups, error);
    if (status == UPS_OK) status = move_documents(&c, error);
    if (status == UPS_OK && ups_path_exists(c.new)) status = ups_remove_tree_at_once(c.new, error);
    close_caches(&c);
    return status;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* A copy: the original is read until all is moved. */
static ups_status copy_config(const char *replacing, const char *output, ups_error *error) {
    enum { MOST_BYTES = 16 << 20 };
    char *from = within(replacing, "config.yaml"), *to = within(output, "config.yaml"), *text = NULL;
    size_t length = 0;
    ups_status status = from && to ? ups_read_file(from, MOST_BYTES, &text, &length, error)
                                   : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = ups_publish_bytes_once(to, text, length, error);
    free(text);
    free(from);
    free(to);
    return status;
}

/* TensorBoard's view of the metrics that are in place. */
static ups_status show_metrics(const char *output, ups_error *error) {
    char *metrics = within(output, "metrics.jsonl");
    ups_status status = metrics ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK && ups_path_exists(metrics)) status = ups_metrics_show(metrics, error);
    free(metrics);
    return status;
}

static ups_status settle(const char *output, const char *replacing, ups_error *error) {
    static const char *const files[] = {"normalisation.json", "metrics.jsonl", "state.json"};
    unsigned stages;
    json_t *redo;
    ups_status status = read_redo(replacing, &stages, &redo, error);
    char *checkpoints = within(output, "checkpoints");
    if (status == UPS_OK && !checkpoints) status = ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = clear(checkpoints, error);
    free(checkpoints);
    for (int s = 0; s < UPS_STAGE_COUNT && status == UPS_OK; s++) {
        if (!(stages & 1u << s)) continue;
        status = s == UPS_STAGE_CACHE ? move_cache(replacing, output, json_object_get(redo, "groups"), error)
                                      : move_stage(replacing, output, (ups_stage)s, error);
        if (status == UPS_OK && s != UPS_STAGE_CACHE)
            status = move_given(replacing, output, (ups_stage)s, json_object_get(redo, "given"), error);
    }
    for (size_t f = 0; f < sizeof files / sizeof *files && status == UPS_OK; f++) {
        status = move_part(replacing, output, files[f], error);
    }
    if (status == UPS_OK) status = show_metrics(output, error);
    if (status == UPS_OK) status = copy_config(replacing, output, error);
    if (status == UPS_OK) status = ups_remove_tree_at_once(replacing, error);
    json_decref(redo);
    return status;
}

ups_status ups_run_replace(const char *output, ups_error *error) {
    char *next = ups_run_next(output), *replacing = within(output, replacing_name);
    caches c = {0};
    unsigned stages;
    json_t *groups = json_array(), *given = json_array();
    for (int s = 0; s < UPS_STAGE_COUNT && next; s++) {
        char name[64];
        snprintf(name, sizeof name, "initial/%s.safetensors", ups_stage_name((ups_stage)s));
        if (is_in(next, name)) json_array_append_new(given, json_string(ups_stage_name((ups_stage)s)));
    }
    ups_status status = next && replacing && groups ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = ups_run_redo_read(next, &stages, error);
    if (status == UPS_OK) status = find_caches(next, output, &c, error);
    if (status == UPS_OK) status = each_group(&c, list_group, groups, error);
    if (status == UPS_OK) status = publish_redo(next, stages, json_incref(groups), json_incref(given), error);
    if (status == UPS_OK && rename(next, replacing) != 0) {
        status = ups_fail_errno(error, "%s: cannot be moved to %s", next, replacing);
    }
    if (status == UPS_OK) status = ups_sync_directory(output, error);
    if (status == UPS_OK) status = settle(output, replacing, error);
    close_caches(&c);
    json_decref(groups);
    json_decref(given);
    free(next);
    free(replacing);
    return status;
}

ups_status ups_run_settle(const char *output, ups_error *error) {
    if (!is_in(output, replacing_name)) return UPS_OK;
    char *replacing = within(output, replacing_name);
    ups_run_lock *lock = NULL;
    ups_status status =
        replacing ? ups_run_lock_take(output, &lock, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK && ups_path_exists(replacing)) status = settle(output, replacing, error);
    ups_run_lock_release(lock);
    free(replacing);
    return status;
}
