#include "train/data/tasks.h"

#include "base/json.h"
#include "base/log.h"
#include "model/parameters/safetensors.h"
#include "pipeline/layouts/layouts.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- opening --------------------------------------------------------------------------------------------------- */

static ups_status check_geometry(ups_task *task, ups_error *error) {
    UPS_TRY(ups_source_describe(task->source, 0, &task->geometry, error));
    for (int64_t i = 1; i < task->source->count; i++) {
        ups_sample sample;
        UPS_TRY(ups_source_describe(task->source, i, &sample, error));
        bool same = sample.dims == task->geometry.dims && sample.times == task->geometry.times &&
                    sample.order == task->geometry.order &&
                    memcmp(sample.grid, task->geometry.grid, sizeof sample.grid) == 0;
        if (!same) {
            return ups_fail(error, UPS_ERR_FORMAT,
                            "task %s: sample %s has another grid or number of frames than sample %s; put files of "
                            "different resolution into tasks of their own",
                            task->name, sample.name, task->geometry.name);
        }
    }
    if (task->geometry.times < 2) {
        return ups_fail(error, UPS_ERR_FORMAT,
                        "task %s: its trajectories have a single frame; an operator needs two or more", task->name);
    }
    const ups_task_config *config = task->config;
    if (config->patch_count != 1 && (int)config->patch_count != task->geometry.dims) {
        return ups_fail(error, UPS_ERR_CONFIG, "task %s: patch has %u numbers, but its fields have %d grid axes",
                        task->name, config->patch_count, task->geometry.dims);
    }
    if (config->stride >= task->geometry.times) {
        return ups_fail(error, UPS_ERR_CONFIG,
                        "task %s: a stride of %lld leaves no step in trajectories of %lld frames", task->name,
                        (long long)config->stride, (long long)task->geometry.times);
    }
    for (int a = 0; a < task->geometry.dims; a++) {
        task->patch[a] = config->patch[config->patch_count == 1 ? 0 : a];
        if (task->patch[a] <= task->geometry.grid[a]) continue;
        return ups_fail(error, UPS_ERR_CONFIG, "task %s: patches of %lld points on a grid axis of %lld", task->name,
                        (long long)task->patch[a], (long long)task->geometry.grid[a]);
    }
    if (config->field_scale_count != 0 && config->field_scale_count != (unsigned)task->source->channels) {
        return ups_fail(error, UPS_ERR_CONFIG, "task %s: field_scale has %u numbers, but there are %lld fields",
                        task->name, config->field_scale_count, (long long)task->source->channels);
    }
    return UPS_OK;
}

/* As its mapping says, if there is one. */
static ups_status open_files(const ups_run_config *config, const ups_task_config *task, const char *const *paths,
                             unsigned count, ups_source **source, ups_error *error) {
    ups_layout_options options = {.root = config->data.root};
    if (!ups_mapping_is_given(&task->layout)) return ups_layout_open_many(paths, count, &options, source, error);
    ups_arena *arena = ups_arena_create(0);
    if (!arena) return ups_fail(error, UPS_ERR_MEMORY, "no memory for its layout");
    ups_mapping mapping;
    options.mapping = &mapping;
    ups_status status = ups_mapping_read(&task->layout, "layout", arena, &mapping, error);
    if (status == UPS_OK) status = ups_layout_open_many(paths, count, &options, source, error);
    ups_arena_destroy(arena);
    return status;
}

ups_status ups_task_open_source(const ups_run_config *config, const ups_task_config *task, ups_source **source,
                                ups_error *error) {
    unsigned count = task->file_count + task->test_file_count;
    char **paths = calloc(count, sizeof *paths);
    if (!paths) return ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", task->name);
    ups_status status = UPS_OK;
    for (unsigned f = 0; f < count; f++) {
        paths[f] =
            ups_run_data_path(config, f < task->file_count ? task->files[f] : task->test_files[f - task->file_count]);
        if (!paths[f]) status = ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", task->name);
    }
    if (status == UPS_OK) {
        status = open_files(config, task, (const char *const *)paths, count, source, error);
        if (status == UPS_ERR_IO) {
            ups_fail_within(error, "task %s (its files are looked for below the key data.root: %s)", task->name,
                            config->data.root);
        } else if (status != UPS_OK) {
            ups_fail_within(error, "task %s", task->name);
        }
    }
    for (unsigned f = 0; f < count; f++) free(paths[f]);
    free(paths);
    return status;
}

static ups_status open_task(const ups_run_config *config, const ups_task_config *task_config, ups_task *task,
                            ups_error *error) {
    task->config = task_config;
    task->name = task_config->name;
    ups_status status = ups_task_open_source(config, task_config, &task->source, error);
    if (status == UPS_OK) status = check_geometry(task, error);
    if (status == UPS_OK) status = ups_split_samples(&config->data, task_config, task->source, &task->splits, error);
    return status;
}

static void limit_frequencies(ups_tasks *tasks) {
    int64_t shortest[UPS_MAX_GRID_DIMS + 1];
    for (int d = 0; d <= UPS_MAX_GRID_DIMS; d++) shortest[d] = INT64_MAX;
    for (int i = 0; i < tasks->count; i++) {
        const ups_sample *geometry = &tasks->task[i].geometry;
        for (int a = 0; a < geometry->dims; a++) {
            if (geometry->grid[a] < shortest[geometry->dims]) shortest[geometry->dims] = geometry->grid[a];
        }
    }
    for (int i = 0; i < tasks->count; i++) {
        tasks->task[i].finest_frequency = 0.25 * (double)shortest[tasks->task[i].geometry.dims];
    }
}

ups_status ups_tasks_open(const ups_run_config *config, ups_tasks **tasks, ups_error *error) {
    ups_tasks *made = calloc(1, sizeof *made);
    if (made) made->task = calloc(config->task_count, sizeof *made->task);
    if (!made || !made->task) {
        free(made);
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for the table of tasks");
    }
    for (unsigned i = 0; i < config->task_count; i++) {
        made->count++;
        ups_status status = open_task(config, &config->tasks[i], &made->task[i], error);
        if (status != UPS_OK) {
            ups_tasks_close(made);
            return status;
        }
    }
    limit_frequencies(made);
    *tasks = made;
    return UPS_OK;
}

void ups_tasks_close(ups_tasks *tasks) {
    if (!tasks) return;
    for (int i = 0; i < tasks->count; i++) {
        ups_task *task = &tasks->task[i];
        ups_source_close(task->source);
        ups_sample_splits_free(&task->splits);
        free(task->statistics);
        free(task->condition);
    }
    free(tasks->task);
    free(tasks);
}

ups_split ups_task_held_out(const ups_task *task) {
    return task->splits.count[UPS_SPLIT_TEST] > 0 ? UPS_SPLIT_TEST : UPS_SPLIT_VALIDATION;
}

static int condition_count(const ups_task *task) {
    return task->condition ? task->condition_count : task->source->parameter_count;
}

int ups_tasks_parameter_count(const ups_tasks *tasks) {
    int most = 0;
    for (int i = 0; i < tasks->count; i++) {
        int count = condition_count(&tasks->task[i]);
        if (count > most) most = count;
    }
    return most;
}

void ups_task_condition(const ups_task *task, const double *parameters, int width, float *out) {
    int count = condition_count(task);
    for (int p = 0; p < width; p++) {
        int from = p >= count ? -1 : task->condition ? task->condition[p] : p;
        out[p] = from >= 0 && isfinite(parameters[from]) ? (float)parameters[from] : 0;
    }
}

/* ---- what an operator was conditioned on ----------------------------------------------------------------------- */

static int find_parameter(const ups_source *source, const char *name) {
    for (int p = 0; p < source->parameter_count; p++) {
        if (strcasecmp(source->parameter_names[p], name) == 0) return p;
    }
    return -1;
}

static ups_status take_condition(const char *path, ups_task *task, const json_t *names, ups_error *error) {
    size_t count = json_array_size(names);
    bool texts = json_is_array(names);
    for (size_t i = 0; i < count; i++) texts = texts && json_is_string(json_array_get(names, i));
    if (!texts) {
        return ups_fail(error, UPS_ERR_FORMAT, "%s: '%s.parameters' is not a list of names; restore the file", path,
                        task->name);
    }
    free(task->condition);
    task->condition_count = (int)count;
    task->condition = malloc((count + 1) * sizeof *task->condition);
    if (!task->condition) return ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", task->name);
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        task->condition[i] = find_parameter(task->source, name);
        if (task->condition[i] >= 0) continue;
        ups_log(UPS_LOG_WARNING,
                "task %s: the operator was trained with the parameter '%s'; its files do not contain it, and 0 "
                "is used",
                task->name, name);
    }
    return UPS_OK;
}

ups_status ups_tasks_condition_as_trained(ups_tasks *tasks, const char *path, ups_error *error) {
    ups_safetensors *model = NULL;
    UPS_TRY(ups_safetensors_open(path, &model, error));
    ups_status status = UPS_OK;
    for (int i = 0; i < tasks->count && status == UPS_OK; i++) {
        char key[128]; /* names of tasks have at most 64 letters */
        snprintf(key, sizeof key, "%s.parameters", tasks->task[i].name);
        const char *text = ups_safetensors_metadata(model, key);
        if (!text) continue;
        json_t *names = json_loads(text, JSON_DECODE_ANY, NULL);
        status = take_condition(path, &tasks->task[i], names, error);
        json_decref(names);
    }
    ups_safetensors_close(model);
    return status;
}
