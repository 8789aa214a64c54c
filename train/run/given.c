#include "train/run/given.h"

#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "model/parameters/safetensors.h"
#include "train/config/given.h"
#include "train/run/own.h"
#include "train/run/replace.h"
#include "train/state.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tasks of the same name -------------------------------------------------------------------------------------- */

enum { FIELDS_BYTES = 300 };

/* "density, pressure" */
static void add_field(char text[FIELDS_BYTES], const char *name) {
    const size_t length = strlen(text);
    snprintf(text + length, FIELDS_BYTES - length, "%s%s", length > 0 ? ", " : "", name ? name : "?");
}

static bool is_named(const ups_source *source, size_t channel, const char *name) {
    const char *own = source->channel_names ? source->channel_names[channel] : NULL;
    return !own || !name || strcmp(own, name) == 0;
}

static ups_status check_fields(const ups_run_config *config, const ups_safetensors *file, const ups_task *task,
                               ups_error *error) {
    char key[128], there[FIELDS_BYTES] = "", here[FIELDS_BYTES] = ""; /* names of tasks have at most 64 letters */
    snprintf(key, sizeof key, "%s.fields", task->name);
    const char *text = ups_safetensors_metadata(file, key);
    json_t *fields = text ? json_loads(text, 0, NULL) : NULL;
    const json_t *channels = json_object_get(fields, "channels");
    for (size_t c = 0; c < json_array_size(channels); c++)
        add_field(there, json_string_value(json_array_get(channels, c)));
    for (int64_t c = 0; c < task->source->channels; c++)
        add_field(here, task->source->channel_names ? task->source->channel_names[c] : NULL);
    bool fits = !json_is_array(channels) || json_array_size(channels) == (size_t)task->source->channels;
    for (size_t c = 0; c < json_array_size(channels) && fits; c++)
        fits = is_named(task->source, c, json_string_value(json_array_get(channels, c)));
    json_decref(fields);
    if (fits) return UPS_OK;
    return ups_fail(error, UPS_ERR_STALE,
                    "task %s: the model that this one begins as (model.from: %s) has a task of this name with other "
                    "fields: %s there, %s here; give the task another name, under which it begins anew",
                    task->name, config->model.from, there, here);
}

static ups_status check_tasks(const ups_run_config *config, const char *op, const ups_tasks *tasks, ups_error *error) {
    ups_safetensors *file = NULL;
    UPS_TRY(ups_safetensors_open(op, &file, error));
    ups_status status = UPS_OK;
    for (int t = 0; t < tasks->count && status == UPS_OK; t++)
        status = check_fields(config, file, &tasks->task[t], error);
    ups_safetensors_close(file);
    return status;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* Before anything is built on it. */
static ups_status check_tensor(const char *path, const ups_safetensors *file, const ups_safetensor *tensor,
                               ups_error *error) {
    if (!tensor->known_dtype || tensor->dtype != UPS_F32) return UPS_OK; /* refused where it is wanted */
    const size_t count = tensor->bytes / sizeof(float);
    float *values = malloc(tensor->bytes + 1);
    ups_status status = values ? ups_safetensors_read(file, tensor, values, error)
                               : ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to read it", path);
    for (size_t i = 0; i < count && status == UPS_OK; i++) {
        if (!isfinite(values[i]))
            status = ups_fail(error, UPS_ERR_FORMAT,
                              "%s: tensor '%s' holds a number that is not finite; restore the file, or name another "
                              "model (model.from)",
                              path, tensor->name);
    }
    free(values);
    return status;
}

static ups_status check_numbers(const char *path, ups_error *error) {
    ups_safetensors *file = NULL;
    UPS_TRY(ups_safetensors_open(path, &file, error));
    ups_status status = UPS_OK;
    for (int32_t i = 0; i < ups_safetensors_count(file) && status == UPS_OK; i++)
        status = check_tensor(path, file, ups_safetensors_get(file, i), error);
    ups_safetensors_close(file);
    return status;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static bool is_given(const ups_run_config *config, ups_stage stage) {
    char *initial = ups_run_initial_weights(config, stage);
    const bool is = initial && ups_path_exists(initial);
    free(initial);
    return is;
}

/* Copied: a file that two runs share could be written over for both. */
static ups_status take_file(const ups_run_config *config, ups_stage stage, ups_error *error) {
    char *from = ups_given_file(config->model.from, stage), *directory = ups_run_path(config, "initial");
    char *to = ups_run_initial_weights(config, stage);
    ups_status status = from && directory && to ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = ups_make_directories(directory, error);
    if (status == UPS_OK) status = ups_publish_copy(from, to, error);
    if (status == UPS_OK)
        ups_log(UPS_LOG_INFO, "%s: begins as that of %s", ups_stage_name(stage), config->model.from);
    else
        ups_fail_within(error, "the %s was to begin as that of model.from (%s)", ups_stage_name(stage),
                        config->model.from);
    free(from);
    free(directory);
    free(to);
    return status;
}

static ups_status leave_file(const ups_run_config *config, ups_stage stage, ups_error *error) {
    char *initial = ups_run_initial_weights(config, stage);
    ups_status status = initial ? ups_remove_tree(initial, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    free(initial);
    return status;
}

static ups_status check_model(const ups_run_config *config, const ups_tasks *tasks, unsigned wanted, ups_error *error) {
    json_t *told = NULL;
    UPS_TRY(ups_run_settle(config->model.from, error)); /* nothing where it is no run */
    UPS_TRY(ups_given_read(config->model.from, &told, error));
    json_decref(told);
    char *op = ups_given_file(config->model.from, UPS_STAGE_OPERATOR);
    ups_status status = op ? check_tasks(config, op, tasks, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    free(op);
    for (int s = 0; s < UPS_STAGE_COUNT && status == UPS_OK; s++) {
        if (!(wanted & 1u << s)) continue;
        char *path = ups_given_file(config->model.from, (ups_stage)s);
        status = path ? check_numbers(path, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        free(path);
    }
    return status;
}

ups_status ups_run_take_given(const ups_run_config *config, const ups_tasks *tasks, unsigned training, bool resume,
                              ups_error *error) {
    ups_run_progress progress;
    UPS_TRY(ups_run_look(config, &progress, error));
    const bool anew = !resume && progress.begun == 0; /* what lies there is of a beginning that came to nothing */
    unsigned trained = 0, wanted = 0;
    for (unsigned i = 0; i < config->stage_count; i++)
        if (ups_run_training(config, config->stages[i])) trained |= 1u << config->stages[i];
    for (int s = 0; s < UPS_STAGE_COUNT; s++) {
        const bool given = is_given(config, (ups_stage)s), begun = progress.begun & 1u << s;
        if (config->model.from[0] && trained & 1u << s && !begun && (anew || !given)) wanted |= 1u << s;
        if (!config->model.from[0] && anew && given) UPS_TRY(leave_file(config, (ups_stage)s, error));
    }
    if (!(wanted & training)) return UPS_OK;
    UPS_TRY(check_model(config, tasks, wanted, error));
    ups_status status = UPS_OK;
    for (int s = 0; s < UPS_STAGE_COUNT && status == UPS_OK; s++)
        if (wanted & 1u << s) status = take_file(config, (ups_stage)s, error);
    return status;
}
