/* The weights that a stage begins with where they are not random: those of the model that model.from names, or of the
 * run that `--fork` was given. Of a parameter by the same name its values are taken; what the file lacks stays as it
 * was initialised, and so does what the data at hand keep the same (model.operator.conserve), which others may not. Two
 * weights of the operator have columns that belong to tasks: these go by the tasks' names. Halves of blocks that are a
 * task's own (model.operator.task_specific) begin as those that all tasks of the file share, where it has none of a
 * task's own, and those of a new task as those of the file's task that it is most like. */
#include "train/config/given.h"
#include "base/config/as_json.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "model/parameters/safetensors.h"
#include "train/config/load.h"
#include "train/portable/described.h"
#include "train/stages/training/parts.h"
#include "train/state.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char of_tasks[] = "operator.condition.task.weight", of_values[] = "operator.condition.parameters.weight";

typedef struct given {
    ups_stage_training *training;
    const char *path;
    ups_safetensors *file;
    json_t *tasks;     /* names of those that the model was trained on, in the order of its columns */
    float *host;       /* a parameter's values */
    bool *taken;       /* of each parameter, by index */
    const char **like; /* of each task, the file's task that blocks of its own begin as, of `tasks`; NULL: none */
    bool *as_like;     /* of each task, whether any do */
    bool whole;        /* the file should hold all that tasks share */
    int64_t elements;  /* that were taken */
} given;

static bool begins_with(const char *name, const char *start) {
    return strncmp(name, start, strlen(start)) == 0;
}

/* Index of the task whose own the parameter is; −1: all share it. */
static int owner_of(const given *g, const ups_parameter *parameter) {
    const char *dot = strchr(parameter->name, '.');
    for (int t = 0; t < g->training->tasks->count && dot; t++) {
        const char *task = g->training->tasks->task[t].name;
        const size_t length = strlen(task);
        if (strncmp(dot + 1, task, length) == 0 && dot[1 + length] == '.') return t;
    }
    return -1;
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* Column of the model's; −1: the task is new. */
static int64_t find_column(const given *g, const char *task) {
    size_t index;
    json_t *name;
    json_array_foreach(g->tasks, index, name) {
        if (json_is_string(name) && strcmp(json_string_value(name), task) == 0) return (int64_t)index;
    }
    return -1;
}

/* A task's own column, or, of a new one, what tasks have in common: their mean. */
static void take_task_columns(const given *g, int64_t rows, int64_t there, const float *stored, int64_t here) {
    for (int64_t c = 0; c < here; c++) {
        const int64_t column = find_column(g, g->training->tasks->task[c].name);
        for (int64_t r = 0; r < rows; r++) {
            double sum = 0;
            for (int64_t k = 0; k < there && (column < 0 || column >= there); k++) sum += (double)stored[r * there + k];
            g->host[r * here + c] =
                column >= 0 && column < there ? stored[r * there + column] : (float)(sum / (double)there);
        }
    }
}

/* What is told of a task's parameters fills its first columns; behind the model's last one initial values stay. */
static void take_first_columns(const given *g, int64_t rows, int64_t there, const float *stored, int64_t here) {
    for (int64_t r = 0; r < rows; r++)
        memcpy(g->host + r * here, stored + r * there, (size_t)(here < there ? here : there) * sizeof *stored);
}

static bool has_columns(const ups_parameter *parameter, const ups_safetensor *tensor) {
    const bool some = strcmp(parameter->name, of_tasks) == 0 || strcmp(parameter->name, of_values) == 0;
    return some && parameter->rank == 2 && tensor->rank == 2 && tensor->size[0] == parameter->size[0] &&
           tensor->size[1] > 0;
}

static ups_status take_columns(given *g, const ups_parameter *parameter, const ups_safetensor *tensor,
                               ups_error *error) {
    const int64_t rows = parameter->size[0], here = parameter->size[1], there = tensor->size[1];
    if (tensor->dtype != UPS_F32 || !tensor->known_dtype)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: tensor '%s' is not of float32; restore the file", g->path,
                        tensor->name);
    float *stored = malloc((size_t)(rows * there) * sizeof *stored);
    ups_status status = stored ? ups_safetensors_read(g->file, tensor, stored, error)
                               : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK && strcmp(parameter->name, of_tasks) == 0)
        take_task_columns(g, rows, there, stored, here);
    else if (status == UPS_OK)
        take_first_columns(g, rows, there, stored, here);
    free(stored);
    return status;
}

/* ---- blocks that are a task's own -------------------------------------------------------------------------------- */

static const ups_safetensor *find_stored(const given *g, const char *name) {
    char average[520];
    snprintf(average, sizeof average, "ema.%s", name);
    const ups_safetensor *tensor = ups_safetensors_find(g->file, average);
    return tensor ? tensor : ups_safetensors_find(g->file, name);
}

/* operator.TASK.blocks.…: where the name goes on behind TASK, with the dot; NULL: it is none of such a block. */
static const char *rest_of_own_block(const ups_parameter *parameter, const char *task) {
    static const char start[] = "operator.", block[] = ".blocks.";
    if (!task || !begins_with(parameter->name, start)) return NULL;
    const char *rest = parameter->name + sizeof start - 1 + strlen(task);
    return begins_with(rest, block) ? rest : NULL;
}

/* convolution.2d.weight, position1d.weight */
static bool is_of_grid_axes(const char *name) {
    for (const char *p = strpbrk(name, "123"); p; p = strpbrk(p + 1, "123"))
        if (p[1] == 'd' && (p[2] == '.' || p[2] == '\0')) return true;
    return false;
}

static bool holds_any(const given *g, const char *start) {
    for (int32_t i = 0; i < ups_safetensors_count(g->file); i++)
        if (begins_with(ups_safetensors_get(g->file, i)->name, start)) return true;
    return false;
}

/* How many numbers of the task's own blocks the file holds under another task's name, by parts of a block such as
 * .blocks.1.mlp.: a part that is damaged is there. */
static int64_t count_held(const given *g, const ups_task *task, const char *other) {
    int64_t held = 0;
    for (int32_t i = 0; i < ups_parameters_count(g->training->parameters); i++) {
        const ups_parameter *parameter = ups_parameters_get(g->training->parameters, i);
        const char *rest = rest_of_own_block(parameter, task->name);
        if (!rest) continue;
        const char *part = strchr(rest + strlen(".blocks."), '.'), *end = part ? strchr(part + 1, '.') : NULL;
        const int length = end && !is_of_grid_axes(rest) ? (int)(end + 1 - rest) : (int)strlen(rest);
        char start[512];
        snprintf(start, sizeof start, "operator.%s%.*s", other, length, rest);
        held += holds_any(g, start) ? parameter->elements : 0;
    }
    return held;
}

/* What speaks for a task of the file whose blocks have as much: first as many axes, then the same borders, then as many
 * fields. */
static int likeness(const json_t *fields, const ups_task *task) {
    const ups_sample *geometry = &task->geometry;
    const bool points = json_object_get(fields, "points") != NULL;
    return 4 * ((int)json_array_size(json_object_get(fields, "grid")) == geometry->dims &&
                points == (geometry->points != NULL)) +
           2 * (json_is_true(json_object_get(fields, "periodic")) == geometry->periodic) +
           ((int64_t)json_array_size(json_object_get(fields, "channels")) == geometry->channels);
}

/* The first of those that a new task is most like. NULL: no task of the file has such blocks of its own; or the task is
 * among them, and what is missing there is missing. */
static const char *find_like(const given *g, const ups_task *task) {
    const char *found = NULL;
    int64_t most = 0;
    int much = 0;
    size_t index;
    json_t *name;
    if (find_column(g, task->name) >= 0) return NULL;
    json_array_foreach(g->tasks, index, name) {
        const int64_t held = json_is_string(name) ? count_held(g, task, json_string_value(name)) : 0;
        json_t *fields = held > 0 ? ups_described_fields(g->file, json_string_value(name)) : NULL;
        const int like = fields ? likeness(fields, task) : 0;
        json_decref(fields);
        if (held < most || held == 0 || (held == most && like <= much)) continue;
        most = held;
        much = like;
        found = json_string_value(name);
    }
    return found;
}

/* Where a parameter of the operator may be found in the file, best first: names up to the part that all have in common,
 * which begins at *rest. How many there are. */
static int places_of(const given *g, const ups_parameter *parameter, const char **rest, char places[3][160]) {
    const int task = owner_of(g, parameter);
    const char *own = task < 0 ? NULL : g->training->tasks->task[task].name;
    int count = 0;
    *rest = own ? rest_of_own_block(parameter, own) : NULL;
    if (*rest) {
        snprintf(places[count++], 160, "operator.%s", own);
        snprintf(places[count++], 160, "operator");
        if (g->like[task]) snprintf(places[count++], 160, "operator.%s", g->like[task]);
    } else if (begins_with(parameter->name, "operator.")) {
        *rest = parameter->name + strlen("operator");
        snprintf(places[count++], 160, "operator");
    }
    return count;
}

/* What a parameter begins as; NULL: the file lacks it. */
static const ups_safetensor *find_tensor(const given *g, const ups_parameter *parameter) {
    const char *rest;
    char places[3][160], name[512];
    const int count = places_of(g, parameter, &rest, places);
    if (count == 0) return find_stored(g, parameter->name);
    for (int p = 0; p < count; p++) {
        snprintf(name, sizeof name, "%s%s", places[p], rest);
        const ups_safetensor *tensor = find_stored(g, name);
        if (tensor && p == 2) g->as_like[owner_of(g, parameter)] = true;
        if (tensor) return tensor;
    }
    return NULL;
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static ups_status check_shape(const given *g, const ups_parameter *parameter, const ups_safetensor *tensor,
                              ups_error *error) {
    if (ups_parameter_check(parameter, tensor, g->path, error) == UPS_OK) return UPS_OK;
    const int task = owner_of(g, parameter);
    if (task >= 0 && tensor->known_dtype && tensor->dtype == UPS_F32)
        ups_fail_within(error,
                        "task %s is not what it was there (its patch, fields, dim, history or bundle); give it another "
                        "name, under which it begins anew",
                        g->training->tasks->task[task].name);
    return error->code;
}

/* What the operator of a model may lack which has this one's blocks: what it was told nothing of, since none of its
 * tasks had borders, parameters or as many axes; and, of a block that does one or the other as tasks have few or many
 * tokens, what none of them had done: all of it, then. What else is a task's own begins anew with the task. */
static bool may_lack(const given *g, const ups_parameter *parameter) {
    static const char *const mixers[] = {".attention.", ".spectral."};
    const char *name = parameter->name, *rest;
    char places[3][160], start[512];
    const int count = places_of(g, parameter, &rest, places);
    if (begins_with(name, "operator.condition.boundary") || begins_with(name, "operator.condition.parameters"))
        return true;
    if (count == 0 || (count == 1 && owner_of(g, parameter) >= 0) || is_of_grid_axes(rest)) return true;
    for (size_t m = 0; m < sizeof mixers / sizeof *mixers; m++) {
        const char *found = begins_with(rest, ".blocks.") ? strstr(rest, mixers[m]) : NULL;
        if (!found) continue;
        bool some = false;
        for (int p = 0; p < count; p++) {
            snprintf(start, sizeof start, "%s%.*s", places[p], (int)(found - rest + (ptrdiff_t)strlen(mixers[m])),
                     rest);
            some |= holds_any(g, start);
        }
        return !some;
    }
    return false;
}

/* Whether each half of a block that is a task's own in the file is so here. */
static bool keeps_own(const json_t *there, const json_t *here) {
    size_t index, at;
    json_t *half, *own;
    json_array_foreach(json_object_get(there, "task_specific"), index, half) {
        bool found = false;
        json_array_foreach(json_object_get(here, "task_specific"), at, own) found |= json_equal(half, own);
        if (!found) return false;
    }
    return true;
}

/* Whether the file tells of an operator of these blocks; a fork may begin with one of others. */
static bool has_these_blocks(const given *g) {
    static const char *const shaping[] = {"core",    "hidden",    "depth",     "depths",      "mixing",   "heads",
                                          "qk_norm", "attention", "positions", "convolution", "condition"};
    const char *text = ups_safetensors_metadata(g->file, UPS_TOLD_CONFIG);
    json_t *told = text ? json_loads(text, 0, NULL) : NULL;
    json_t *all = ups_config_as_json(&ups_run_schema, g->training->config);
    const json_t *there = json_object_get(json_object_get(told, "model"), "operator");
    const json_t *here = json_object_get(json_object_get(all, "model"), "operator");
    bool same = there && here && keeps_own(there, here);
    if (there && here && !same)
        ups_log(
            UPS_LOG_WARNING,
            "%s: each of its tasks has blocks of its own (model.operator.task_specific) that tasks share here: these "
            "begin anew",
            g->path);
    for (size_t k = 0; k < sizeof shaping / sizeof *shaping && same; k++)
        same = json_equal(json_object_get(there, shaping[k]), json_object_get(here, shaping[k]));
    json_decref(told);
    json_decref(all);
    return same;
}

/* Of what all tasks share nothing is to stay random unnoticed, nor of blocks. */
static ups_status check_absence(const given *g, const ups_parameter *parameter, ups_error *error) {
    if (!g->whole || parameter->init.fixed || may_lack(g, parameter)) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s: there is no tensor '%s' in it; restore the model that this one was to begin as, and begin "
                    "anew with --restart",
                    g->path, parameter->name);
}

/* operator.TASK.kept: which means stay the same. */
static bool is_of_the_data(const ups_parameter *parameter) {
    const char *end = strrchr(parameter->name, '.');
    return parameter->init.fixed && end && strcmp(end, ".kept") == 0;
}

static ups_status take_parameter(given *g, int32_t index, ups_error *error) {
    ups_parameters *parameters = g->training->parameters;
    const ups_parameter *parameter = ups_parameters_get(parameters, index);
    const ups_safetensor *tensor = find_tensor(g, parameter);
    if (is_of_the_data(parameter)) return UPS_OK;
    if (!tensor) return check_absence(g, parameter, error);
    if (strcmp(parameter->name, of_tasks) == 0 && !json_is_array(g->tasks))
        return ups_fail(error, UPS_ERR_FORMAT, "%s: does not tell of which tasks its operator is; restore the file",
                        g->path);
    if (has_columns(parameter, tensor)) {
        UPS_TRY(ups_parameters_get_values(parameters, index, g->host, error));
        UPS_TRY(take_columns(g, parameter, tensor, error));
    } else {
        UPS_TRY(check_shape(g, parameter, tensor, error));
        UPS_TRY(ups_safetensors_read(g->file, tensor, g->host, error));
    }
    for (int64_t i = 0; i < parameter->elements; i++) {
        if (isfinite(g->host[i])) continue;
        return ups_fail(error, UPS_ERR_FORMAT, "%s: tensor '%s' holds a number that is not finite; restore the file",
                        g->path, tensor->name);
    }
    g->taken[index] = true;
    g->elements += parameter->init.fixed ? 0 : parameter->elements;
    return ups_parameters_set(parameters, parameter->name, g->host, error);
}

/* "burgers (its own blocks begin as those of advection)"; `part`: some of them have nothing to begin as. */
static void name_new_task(const given *g, int task, bool part, char *text, size_t bytes) {
    const char *name = g->training->tasks->task[task].name;
    if (g->as_like[task])
        snprintf(text, bytes, "%s (its own blocks begin%s as those of %s)", name, part ? " in part" : "",
                 g->like[task]);
    else
        snprintf(text, bytes, "%s", name);
}

/* "290012 of its 300114 parameters are given; new to it: burgers" */
static void tell(const given *g) {
    const ups_stage_training *t = g->training;
    char fresh[600] = "", name[200];
    size_t length = 0;
    for (int k = 0; k < t->tasks->count && length < sizeof fresh; k++) {
        bool own = false, taken = false, part = false;
        for (int32_t i = 0; i < ups_parameters_count(t->parameters); i++) {
            const ups_parameter *parameter = ups_parameters_get(t->parameters, i);
            if (owner_of(g, parameter) != k) continue;
            const bool block = rest_of_own_block(parameter, t->tasks->task[k].name) != NULL;
            own = own || !block;
            taken = taken || (g->taken[i] && !block);
            part = part || (block && !g->taken[i]);
        }
        if (!own || taken) continue;
        name_new_task(g, k, part, name, sizeof name);
        length +=
            (size_t)snprintf(fresh + length, sizeof fresh - length, "%s%s", length ? ", " : "; new to it: ", name);
    }
    ups_log(UPS_LOG_INFO, "%s: %lld of its %lld parameters are given%s", ups_stage_name(t->stage->stage),
            (long long)g->elements, (long long)ups_parameters_trainable(t->parameters), fresh);
}

static ups_status take_all(given *g, ups_error *error) {
    ups_parameters *parameters = g->training->parameters;
    const int32_t count = ups_parameters_count(parameters);
    int64_t largest = 1;
    for (int32_t i = 0; i < count; i++) {
        const int64_t elements = ups_parameters_get(parameters, i)->elements;
        if (elements > largest) largest = elements;
    }
    g->host = malloc((size_t)largest * sizeof *g->host);
    g->taken = calloc((size_t)count + 1, sizeof *g->taken);
    g->like = calloc((size_t)g->training->tasks->count + 1, sizeof *g->like);
    g->as_like = calloc((size_t)g->training->tasks->count + 1, sizeof *g->as_like);
    if (!g->host || !g->taken || !g->like || !g->as_like)
        return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to read it", g->path);
    UPS_TRY(ups_safetensors_open(g->path, &g->file, error));
    const char *text = ups_safetensors_metadata(g->file, "operator");
    json_t *op = text ? json_loads(text, 0, NULL) : NULL;
    g->tasks = json_incref(json_object_get(op, "tasks"));
    json_decref(op);
    g->whole = has_these_blocks(g);
    for (int t = 0; t < g->training->tasks->count; t++) g->like[t] = find_like(g, &g->training->tasks->task[t]);
    for (int32_t i = 0; i < count; i++) UPS_TRY(take_parameter(g, i, error));
    UPS_TRY(ups_parameters_refresh(parameters, error));
    tell(g);
    return UPS_OK;
}

ups_status ups_stage_training_take_given(ups_stage_training *t, ups_error *error) {
    char *path = ups_run_initial_weights(t->config, t->stage->stage);
    if (!path) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = UPS_OK;
    if (ups_path_exists(path)) {
        given g = {.training = t, .path = path};
        status = take_all(&g, error);
        t->given = status == UPS_OK;
        if (status != UPS_OK)
            ups_fail_within(error,
                            "the %s was to begin with weights that do not fit this configuration (a run of its own, "
                            "without --fork and model.from, begins with random ones)",
                            ups_stage_name(t->stage->stage));
        ups_safetensors_close(g.file);
        json_decref(g.tasks);
        free(g.host);
        free(g.taken);
        free(g.like);
        free(g.as_like);
    }
    free(path);
    return status;
}
