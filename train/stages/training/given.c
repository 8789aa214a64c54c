/* The weights that a stage begins with where they are not random: those of the model that model.from names, or of the
 * run that `--fork` was given. Of a parameter's counterpart there (counterparts.h) its values are taken; what the file
 * lacks stays as it was initialised, and so does what the data at hand keep the same (model.operator.conserve), which
 * others may not. Two weights of the operator have columns that belong to tasks: these go by the tasks' names. */
#include "train/config/given.h"
#include "base/config/as_json.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "model/parameters/safetensors.h"
#include "train/config/load.h"
#include "train/portable/described.h"
#include "train/stages/training/counterparts.h"
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
    ups_counterparts counterparts;
    float *host;      /* a parameter's values */
    bool *taken;      /* of each parameter, by index */
    bool *as_like;    /* of each task, whether blocks of its own begin as those of the task that it is like */
    bool whole;       /* the file should hold all that tasks share */
    int64_t elements; /* that were taken */
} given;

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* A task's own column, or, of a new one, what tasks have in common: their mean. */
static void take_task_columns(const given *g, int64_t rows, int64_t there, const float *stored, int64_t here) {
    for (int64_t c = 0; c < here; c++) {
        const int64_t column = ups_counterparts_task(&g->counterparts, g->training->tasks->task[c].name);
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

static ups_status check_shape(const given *g, const ups_parameter *parameter, const ups_safetensor *tensor,
                              ups_error *error) {
    if (ups_parameter_check(parameter, tensor, g->path, error) == UPS_OK) return UPS_OK;
    const int task = ups_counterparts_owner(&g->counterparts, parameter);
    if (task >= 0 && tensor->known_dtype && tensor->dtype == UPS_F32)
        ups_fail_within(error,
                        "task %s is not what it was there (its patch, fields, dim, history or bundle); give it another "
                        "name, under which it begins anew",
                        g->training->tasks->task[task].name);
    return error->code;
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
    static const char axes[] = "factorized"; /* older files do not say it */
    if (there && here && json_is_true(json_object_get(there, axes)) != json_is_true(json_object_get(here, axes)))
        ups_log(UPS_LOG_WARNING,
                "%s: its operator mixes modes of %s, this one of %s (model.operator.factorized): matrices of modes of "
                "tasks in 2D and 3D begin anew",
                g->path, json_is_true(json_object_get(there, axes)) ? "each axis by itself" : "all axes together",
                json_is_true(json_object_get(here, axes)) ? "each axis by itself" : "all axes together");
    for (size_t k = 0; k < sizeof shaping / sizeof *shaping && same; k++)
        same = json_equal(json_object_get(there, shaping[k]), json_object_get(here, shaping[k]));
    json_decref(told);
    json_decref(all);
    return same;
}

/* Of what all tasks share nothing is to stay random unnoticed, nor of blocks. */
static ups_status check_absence(const given *g, const ups_parameter *parameter, ups_error *error) {
    if (!g->whole || parameter->init.fixed || ups_counterparts_may_lack(&g->counterparts, parameter)) return UPS_OK;
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
    bool as_like;
    const ups_safetensor *tensor = ups_counterparts_tensor(&g->counterparts, parameter, &as_like);
    if (is_of_the_data(parameter)) return UPS_OK;
    if (!tensor) return check_absence(g, parameter, error);
    if (as_like) g->as_like[ups_counterparts_owner(&g->counterparts, parameter)] = true;
    if (strcmp(parameter->name, of_tasks) == 0 && !json_is_array(g->counterparts.names))
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
                 g->counterparts.like[task]);
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
            if (ups_counterparts_owner(&g->counterparts, parameter) != k) continue;
            const bool block = ups_counterparts_in_own_block(&g->counterparts, parameter);
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
    g->as_like = calloc((size_t)g->training->tasks->count + 1, sizeof *g->as_like);
    if (!g->host || !g->taken || !g->as_like)
        return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to read it", g->path);
    UPS_TRY(ups_safetensors_open(g->path, &g->file, error));
    UPS_TRY(ups_counterparts_find(g->training->tasks, parameters, g->file, &g->counterparts, error));
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
        ups_counterparts_free(&g.counterparts);
        ups_safetensors_close(g.file);
        free(g.host);
        free(g.taken);
        free(g.as_like);
    }
    free(path);
    return status;
}
