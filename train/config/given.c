#include "train/config/given.h"

#include "base/files.h"
#include "model/parameters/safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define disagree ups_config_mistakes_disagree
enum { NAME_BYTES = 96, VALUE_BYTES = 200 };

static bool is_directory(const char *path) {
    struct stat entry;
    return stat(path, &entry) == 0 && S_ISDIR(entry.st_mode);
}

char *ups_given_file(const char *from, ups_stage stage) {
    char *path = NULL;
    if (!is_directory(from)) return strdup(from);
    return asprintf(&path, "%s/%s.safetensors", from, ups_stage_name(stage)) < 0 ? NULL : path;
}

/* ---- what it tells ----------------------------------------------------------------------------------------------- */

static ups_status check_there(const char *from, const char *path, ups_error *error) {
    if (!ups_path_is_absent(path)) return UPS_OK;
    if (!is_directory(from))
        return ups_fail(error, UPS_ERR_IO,
                        "there is no %s; the directory of a run, or a file of `ups export`, was expected", from);
    return ups_fail(error, UPS_ERR_IO,
                    "%s: holds no trained operator (there is no operator.safetensors in it); name a run whose operator "
                    "is finished, or a file of `ups export`",
                    from);
}

static ups_status parse(const char *path, const ups_safetensors *file, json_t **told, ups_error *error) {
    const char *text = ups_safetensors_metadata(file, UPS_TOLD_CONFIG);
    *told = text ? json_loads(text, 0, NULL) : NULL;
    if (json_is_object(json_object_get(*told, "model")) && json_is_array(json_object_get(*told, "tasks")))
        return UPS_OK;
    json_decref(*told);
    *told = NULL;
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s: does not tell of which sizes its operator is, as no model of earlier versions does; `ups "
                    "export RUN -o FILE`, where its data are, writes one that does",
                    path);
}

ups_status ups_given_read(const char *from, json_t **told, ups_error *error) {
    char *path = ups_given_file(from, UPS_STAGE_OPERATOR);
    ups_safetensors *file = NULL;
    *told = NULL;
    ups_status status = path ? check_there(from, path, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = ups_safetensors_open(path, &file, error);
    if (status == UPS_OK) status = parse(path, file, told, error);
    ups_safetensors_close(file);
    free(path);
    return status;
}

static const json_t *find_task(const json_t *told, const char *name) {
    size_t index;
    json_t *task;
    json_array_foreach(json_object_get(told, "tasks"), index, task) {
        const char *found = json_string_value(json_object_get(task, "name"));
        if (found && strcmp(found, name) == 0) return task;
    }
    return NULL;
}

int64_t ups_given_patch(const json_t *told, const char *task, unsigned axis) {
    const json_t *patch = json_object_get(find_task(told, task), "patch");
    const size_t count = json_array_size(patch); /* one number counts for all axes */
    return json_integer_value(json_array_get(patch, count > axis ? axis : count > 0 ? count - 1 : 0));
}

int32_t ups_given_bundle(const json_t *told, const char *task) {
    return (int32_t)json_integer_value(json_object_get(find_task(told, task), "bundle"));
}

/* ---- keys that are not said -------------------------------------------------------------------------------------- */

typedef struct key_visit {
    void (*visit)(void *context, const char *key, const json_t *value);
    void *context;
} key_visit;

/* Every key below a section, but `from`. */
static void each_key(const json_t *section, const char *path, const key_visit *v) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)section, name, value) {
        char key[NAME_BYTES];
        const int length = snprintf(key, sizeof key, "%s.%s", path, name);
        if (length >= (int)sizeof key || strcmp(key, "model.from") == 0) continue;
        if (json_is_object(value))
            each_key(value, key, v);
        else
            v->visit(v->context, key, value);
    }
}

typedef struct assignments {
    const ups_config_mistakes *mistakes;
    char **list;
    size_t count;
    bool failed; /* no memory */
} assignments;

static void assign_unless_said(void *context, const char *key, const json_t *value) {
    assignments *a = context;
    if (ups_config_mistakes_find(a->mistakes, key)) return;
    char *text = json_dumps(value, JSON_ENCODE_ANY), *made = NULL;
    char **longer = realloc(a->list, (a->count + 1) * sizeof *longer);
    if (longer) a->list = longer;
    if (text && longer && asprintf(&made, "%s=%s", key, text) >= 0)
        a->list[a->count++] = made;
    else
        a->failed = true;
    free(text);
}

ups_status ups_given_inherit(const json_t *told, const ups_config_mistakes *mistakes, char ***list, size_t *count,
                             ups_error *error) {
    assignments a = {.mistakes = mistakes};
    each_key(json_object_get(told, "model"), "model", &(key_visit){assign_unless_said, &a});
    *list = a.list;
    *count = a.count;
    return a.failed ? ups_fail(error, UPS_ERR_MEMORY, "out of memory") : UPS_OK;
}

void ups_given_free(char **list, size_t count) {
    for (size_t i = 0; i < count; i++) free(list[i]);
    free(list);
}

/* ---- keys that are said otherwise -------------------------------------------------------------------------------- */

/* What shapes no weights, or only such as are a task's own. */
static bool may_differ(const char *key, bool on_grid) {
    static const char *const always[] = {"model.operator.drop_path", "model.operator.conserve",
                                         "model.operator.residual",  "model.operator.boundary",
                                         "model.operator.history",   "model.operator.bundle"};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (strcmp(key, always[i]) == 0) return true;
    if (!on_grid) return false;
    return strcmp(key, "model.dim") == 0 || strncmp(key, "model.encoder.", 14) == 0 ||
           strncmp(key, "model.decoder.", 14) == 0;
}

typedef struct holding {
    const ups_run_config *config;
    const json_t *model, *told;
    char *const *inherited; /* assignments */
    size_t count;
    ups_config_mistakes *mistakes;
} holding;

static const json_t *find(const json_t *told, const char *key) {
    char names[NAME_BYTES], *rest = NULL;
    snprintf(names, sizeof names, "%s", key);
    for (const char *name = strtok_r(names, ".", &rest); name && told; name = strtok_r(NULL, ".", &rest))
        told = json_object_get(told, name);
    return told;
}

static void write_value(const json_t *value, char text[VALUE_BYTES]) {
    char *whole = json_is_string(value) ? strdup(json_string_value(value)) : json_dumps(value, JSON_ENCODE_ANY);
    snprintf(text, VALUE_BYTES, "%s", whole ? whole : "");
    free(whole);
}

static bool is_inherited(const holding *h, const char *key) {
    const size_t length = strlen(key);
    for (size_t i = 0; i < h->count; i++)
        if (strncmp(h->inherited[i], key, length) == 0 && h->inherited[i][length] == '=') return true;
    return false;
}

static void hold_against(void *context, const char *key, const json_t *here) {
    const holding *h = context;
    const json_t *there = find(h->told, key);
    char other[VALUE_BYTES], own[VALUE_BYTES];
    if (!there && strcmp(key, "model.operator.factorized") == 0 && find(h->told, "model.operator"))
        there = json_false(); /* of a file that is older than the key */
    if (!there || json_equal(there, here) || may_differ(key, ups_run_on_grid(h->config))) return;
    if (is_inherited(h, key)) return; /* what follows from another key that is said */
    write_value(there, other);
    write_value(here, own);
    disagree(h->mistakes, key, (const char *const[]){"model.from", NULL},
             "%s, and %s in the model that this one begins as (model.from: %s); leave the key out, or say %s", own,
             other, h->config->model.from, other);
}

static void check_patch(const holding *h, unsigned number) {
    const ups_task_config *task = &h->config->tasks[number];
    char key[NAME_BYTES], text[VALUE_BYTES];
    bool same = true;
    for (unsigned a = 0; a < UPS_MAX_GRID_DIMS && task->patch_count > 0; a++) {
        const int64_t there = ups_given_patch(h->told, task->name, a);
        same = same && (there == 0 || there == task->patch[a < task->patch_count ? a : task->patch_count - 1]);
    }
    if (same) return;
    snprintf(key, sizeof key, "tasks[%u].patch", number);
    write_value(json_object_get(find_task(h->told, task->name), "patch"), text);
    disagree(h->mistakes, key, (const char *const[]){"model.from", NULL},
             "the model that this one begins as (model.from: %s) has a task %s, whose patches are %s; take these, or "
             "another name, under which the task begins anew",
             h->config->model.from, task->name, text);
}

/* A key that shapes what is a task's own. */
static void check_own(const holding *h, const char *key, const char *task) {
    const json_t *there = find(h->told, key), *here = find(h->model, key + strlen("model."));
    char other[VALUE_BYTES], own[VALUE_BYTES];
    if (!there || !here || json_equal(there, here) || ups_config_mistakes_know(h->mistakes, key)) return;
    write_value(there, other);
    write_value(here, own);
    disagree(
        h->mistakes, key, (const char *const[]){"model.from", NULL},
        "%s, and %s in the model that this one begins as (model.from: %s), which has a task %s; leave the key out, "
        "or give the task another name, under which it begins anew",
        own, other, h->config->model.from, task);
}

/* How many frames an application gives of a task: the task's own number, here or there, or that of all tasks. */
static void check_bundle(const holding *h, unsigned number) {
    const ups_task_config *task = &h->config->tasks[number];
    const int32_t own = ups_given_bundle(h->told, task->name), here = ups_run_bundle(h->config, task);
    if (task->bundle == 0 && own == 0) {
        check_own(h, "model.operator.bundle", task->name);
        return;
    }
    const json_t *of_all = find(h->told, "model.operator.bundle");
    const int64_t there = own > 0 ? own : json_is_integer(of_all) ? json_integer_value(of_all) : 1;
    char key[NAME_BYTES];
    if (there == here) return;
    snprintf(key, sizeof key, "tasks[%u].bundle", number);
    disagree(
        h->mistakes, key, (const char *const[]){"model.from", NULL},
        "an application gives %d of its frames (task %s), and %lld in the model that this one begins as (model.from: "
        "%s); say bundle: %lld, or give the task another name, under which it begins anew",
        (int)here, task->name, (long long)there, h->config->model.from, (long long)there);
}

void ups_given_check(const ups_run_config *config, const json_t *model, const json_t *told, char *const *inherited,
                     size_t count, ups_config_mistakes *mistakes) {
    holding h = {config, model, told, inherited, count, mistakes};
    each_key(model, "model", &(key_visit){hold_against, &h});
    for (unsigned t = 0; t < config->task_count; t++) {
        if (!find_task(told, config->tasks[t].name)) continue;
        check_patch(&h, t);
        check_own(&h, "model.dim", config->tasks[t].name);
        check_own(&h, "model.operator.history", config->tasks[t].name);
        check_bundle(&h, t);
    }
}
