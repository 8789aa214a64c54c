/* The weights that a stage begins with where they are not random: those of the model that model.from names, or of the
 * run that `--fork` was given. Of a parameter by the same name its values are taken; what the file lacks stays as it
 * was initialised, and so does what the data at hand keep the same (model.operator.conserve), which others may not. Two
 * weights of the operator have columns that belong to tasks: these go by the tasks' names. */
#include "train/config/given.h"
#include "base/config/as_json.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "model/parameters/safetensors.h"
#include "train/config/load.h"
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
    json_t *tasks;    /* names of those that the model was trained on, in the order of its columns */
    float *host;      /* a parameter's values */
    bool *taken;      /* of each parameter, by index */
    bool whole;       /* the file should hold all that tasks share */
    int64_t elements; /* that were taken */
} given;

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

/* ---- parameters -------------------------------------------------------------------------------------------------- */

/* Task whose own the parameter is; NULL: all share it. */
static const char *owner_of(const given *g, const ups_parameter *parameter) {
    const char *dot = strchr(parameter->name, '.');
    for (int t = 0; t < g->training->tasks->count && dot; t++) {
        const char *task = g->training->tasks->task[t].name;
        const size_t length = strlen(task);
        if (strncmp(dot + 1, task, length) == 0 && dot[1 + length] == '.') return task;
    }
    return NULL;
}

static ups_status check_shape(const given *g, const ups_parameter *parameter, const ups_safetensor *tensor,
                              ups_error *error) {
    if (ups_parameter_check(parameter, tensor, g->path, error) == UPS_OK) return UPS_OK;
    const char *task = owner_of(g, parameter);
    if (task && tensor->known_dtype && tensor->dtype == UPS_F32)
        ups_fail_within(error,
                        "task %s is not what it was there (its patch, fields, dim, history or bundle); give it another "
                        "name, under which it begins anew",
                        task);
    return error->code;
}

/* convolution.2d.weight, position1d.weight */
static bool is_of_grid_axes(const char *name) {
    for (const char *p = strpbrk(name, "123"); p; p = strpbrk(p + 1, "123"))
        if (p[1] == 'd' && (p[2] == '.' || p[2] == '\0')) return true;
    return false;
}

static bool begins_with(const char *name, const char *start) {
    return strncmp(name, start, strlen(start)) == 0;
}

/* What the operator of a model may lack which has this one's blocks: what it was told nothing of, since none of its
 * tasks had borders, parameters or as many axes; and, of a block that does one or the other as tasks have few or many
 * tokens, what none of them had done: all of it, then. */
static bool may_lack(const given *g, const char *name) {
    static const char *const mixers[] = {".attention.", ".spectral."};
    if (begins_with(name, "operator.condition.boundary") || begins_with(name, "operator.condition.parameters"))
        return true;
    if (is_of_grid_axes(name)) return true;
    for (size_t m = 0; m < sizeof mixers / sizeof *mixers; m++) {
        const char *found = begins_with(name, "operator.blocks.") ? strstr(name, mixers[m]) : NULL;
        if (!found) continue;
        char whole[512];
        snprintf(whole, sizeof whole, "%.*s", (int)(found - name + (ptrdiff_t)strlen(mixers[m])), name);
        bool some = false;
        for (int32_t i = 0; i < ups_safetensors_count(g->file); i++)
            some |= begins_with(ups_safetensors_get(g->file, i)->name, whole);
        return !some;
    }
    return false;
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
    bool same = there && here;
    for (size_t k = 0; k < sizeof shaping / sizeof *shaping && same; k++)
        same = json_equal(json_object_get(there, shaping[k]), json_object_get(here, shaping[k]));
    json_decref(told);
    json_decref(all);
    return same;
}

/* Of what all tasks share nothing is to stay random unnoticed. */
static ups_status check_absence(const given *g, const ups_parameter *parameter, ups_error *error) {
    if (!g->whole || parameter->init.fixed || owner_of(g, parameter) || !begins_with(parameter->name, "operator.") ||
        may_lack(g, parameter->name))
        return UPS_OK;
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
    const ups_safetensor *tensor = ups_safetensors_find(g->file, parameter->name);
    char average[512];
    snprintf(average, sizeof average, "ema.%s", parameter->name);
    if (ups_safetensors_find(g->file, average)) tensor = ups_safetensors_find(g->file, average);
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

/* "290012 of its 300114 parameters are given; new to it: burgers" */
static void tell(const given *g) {
    const ups_stage_training *t = g->training;
    char fresh[300] = "";
    size_t length = 0;
    for (int k = 0; k < t->tasks->count && length < sizeof fresh; k++) {
        const char *task = t->tasks->task[k].name;
        bool own = false, taken = false;
        for (int32_t i = 0; i < ups_parameters_count(t->parameters); i++) {
            const char *owner = owner_of(g, ups_parameters_get(t->parameters, i));
            if (!owner || strcmp(owner, task) != 0) continue;
            own = true;
            taken = taken || g->taken[i];
        }
        if (own && !taken)
            length +=
                (size_t)snprintf(fresh + length, sizeof fresh - length, "%s%s", length ? ", " : "; new to it: ", task);
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
    if (!g->host || !g->taken) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to read it", g->path);
    UPS_TRY(ups_safetensors_open(g->path, &g->file, error));
    const char *text = ups_safetensors_metadata(g->file, "operator");
    json_t *op = text ? json_loads(text, 0, NULL) : NULL;
    g->tasks = json_incref(json_object_get(op, "tasks"));
    json_decref(op);
    g->whole = has_these_blocks(g);
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
    }
    free(path);
    return status;
}
