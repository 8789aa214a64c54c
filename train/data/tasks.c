#include "train/data/tasks.h"

#include "base/json.h"
#include "base/log.h"
#include "model/parameters/safetensors.h"
#include "pipeline/layouts/layouts.h"
#include "train/data/conditions/step_times.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- opening --------------------------------------------------------------------------------------------------- */

/* The runs of points that are tokens: as many as a patch, but for the last one, whose last point counts as often as is
 * missing. */
static int64_t point_of(const ups_points *points, int64_t number) {
    return number < points->count ? number : points->count - 1;
}

/* Adds to each token's place the middle of its points, in units of the box that holds them. */
static void add_middles(const ups_points *points, int64_t patch, int64_t tokens, double *middle) {
    const int64_t dims = points->dims;
    for (int64_t i = 0; i < tokens * patch * dims; i++) {
        const int64_t axis = i % dims, point = point_of(points, i / dims);
        const double at = (points->coordinates[point * dims + axis] - points->low[axis]) / points->extent;
        middle[i / (patch * dims) * dims + axis] += at / (double)patch;
    }
}

/* How the points of each token lie around its middle, of unit deviation. */
static void set_offsets(const ups_points *points, int64_t patch, int64_t tokens, const double *middle, float *offsets) {
    const int64_t dims = points->dims, all = tokens * patch * dims;
    double squares = 0;
    for (int64_t i = 0; i < all; i++) {
        const int64_t axis = i % dims, point = point_of(points, i / dims);
        const double at = (points->coordinates[point * dims + axis] - points->low[axis]) / points->extent;
        offsets[i] = (float)(at - middle[i / (patch * dims) * dims + axis]);
        squares += (double)offsets[i] * (double)offsets[i];
    }
    const double deviation = sqrt(squares / (double)all);
    for (int64_t i = 0; i < all && deviation > 0; i++) offsets[i] /= (float)deviation;
}

/* Where the tokens of points lie that all samples share. */
static ups_status place_tokens(ups_task *task, ups_error *error) {
    const ups_points *points = task->geometry.points;
    const int64_t patch = task->patch[0], dims = points->dims, tokens = (points->count + patch - 1) / patch;
    if ((patch & (patch - 1)) != 0)
        return ups_fail(error, UPS_ERR_CONFIG,
                        "task %s: patch is %lld, but points that lie anywhere are halved again and again; a power of "
                        "two was expected, such as 4, 8 or 16",
                        task->name, (long long)patch);
    if (points->own) return UPS_OK;
    double *middle = calloc((size_t)(tokens * dims), sizeof *middle);
    task->places = malloc((size_t)(tokens * dims) * sizeof *task->places);
    task->offsets = malloc((size_t)(tokens * patch * dims) * sizeof *task->offsets);
    if (!middle || !task->places || !task->offsets) {
        free(middle);
        return ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", task->name);
    }
    add_middles(points, patch, tokens, middle);
    for (int64_t i = 0; i < tokens * dims; i++) task->places[i] = (float)middle[i];
    set_offsets(points, patch, tokens, middle, task->offsets);
    free(middle);
    return UPS_OK;
}

/* Samples share their points, or each has its own and tells them as fields. */
static ups_status check_points(const ups_task *task, const ups_sample *sample, ups_error *error) {
    const ups_points *first = task->geometry.points, *other = sample->points;
    if (first == other || (first && other && first->own && other->own && first->dims == other->dims)) return UPS_OK;
    if (first && other && !first->own && !other->own && ups_points_equal(first, other)) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT,
                    "task %s: the points of sample %s lie elsewhere than those of sample %s; put files with other "
                    "points into tasks of their own, or give every sample its points: `points` (sample, point, d), or "
                    "fields x, y, z of a `layout` that tell them (docs/points.md)",
                    task->name, sample->name, task->geometry.name);
}

static ups_status check_geometry(ups_task *task, ups_error *error) {
    UPS_TRY(ups_source_describe(task->source, 0, &task->geometry, error));
    task->uneven = ups_sample_is_uneven(&task->geometry);
    task->same_times = true;
    for (int64_t i = 1; i < task->source->count; i++) {
        ups_sample sample;
        UPS_TRY(ups_source_describe(task->source, i, &sample, error));
        UPS_TRY(check_points(task, &sample, error));
        task->uneven = task->uneven || (sample.time != task->geometry.time && ups_sample_is_uneven(&sample));
        task->same_times = task->same_times && ups_samples_have_same_times(&task->geometry, &sample);
        bool same = sample.dims == task->geometry.dims && sample.times == task->geometry.times &&
                    sample.order == task->geometry.order &&
                    memcmp(sample.grid, task->geometry.grid, sizeof sample.grid) == 0;
        if (!same) {
            return ups_fail(error, UPS_ERR_FORMAT, "task %s: sample %s has another %s than sample %s; %s", task->name,
                            sample.name, sample.times != task->geometry.times ? "number of frames" : "grid",
                            task->geometry.name,
                            sample.times != task->geometry.times
                                ? "the task's key `segment` cuts trajectories into segments of one length"
                                : "put files of different resolution into tasks of their own");
        }
    }
    task->dt = task->same_times ? ups_sample_dt(&task->geometry) : (double)NAN;
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
        return ups_fail(error, UPS_ERR_CONFIG,
                        "task %s: patches of %lld points on a grid axis of %lld; choose a patch of that or fewer",
                        task->name, (long long)task->patch[a], (long long)task->geometry.grid[a]);
    }
    if (config->field_scale_count != 0 && config->field_scale_count != (unsigned)task->source->channels) {
        return ups_fail(error, UPS_ERR_CONFIG, "task %s: field_scale has %u numbers, but there are %lld fields",
                        task->name, config->field_scale_count, (long long)task->source->channels);
    }
    return task->geometry.points ? place_tokens(task, error) : UPS_OK;
}

json_t *ups_task_describe_thin(const ups_task *task) {
    const ups_task_config *config = task->config;
    json_t *described = json_array();
    bool any = false;
    for (int a = 0; a < task->geometry.dims && config->thin_count > 0; a++) {
        const int64_t step = task->geometry.grid[a] > 1 ? config->thin[config->thin_count == 1 ? 0 : a] : 1;
        json_array_append_new(described, json_integer(step));
        any |= step > 1;
    }
    if (any) return described;
    json_decref(described);
    return NULL;
}

/* As its mapping says, if there is one. */
static ups_status open_files(const ups_run_config *config, const ups_task_config *task, const char *const *paths,
                             unsigned count, ups_source **source, ups_error *error) {
    ups_layout_options options = {
        .root = config->data.root, .segment = task->segment, .thin_count = (int)task->thin_count};
    for (unsigned a = 0; a < task->thin_count; a++) options.thin[a] = task->thin[a];
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

/* Over the training samples: mean 0 and deviation 1, of the logarithm where values span more than a decade. What does
 * not differ enters as 0. */
static ups_status measure_parameters(ups_task *task, ups_error *error) {
    const ups_source *source = task->source;
    const ups_sample_splits *splits = &task->splits;
    int64_t count = splits->count[UPS_SPLIT_TRAIN];
    if (source->parameter_count == 0 || count == 0) return UPS_OK;
    task->scale = calloc((size_t)source->parameter_count, sizeof *task->scale);
    double *values = malloc((size_t)count * sizeof *values);
    ups_status status =
        task->scale && values ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", task->name);
    for (int p = 0; p < source->parameter_count && status == UPS_OK; p++) {
        double low = INFINITY, high = -INFINITY, sum = 0, squares = 0;
        int64_t known = 0;
        for (int64_t i = 0; i < count && status == UPS_OK; i++) {
            ups_sample sample;
            status = ups_source_describe(source, splits->samples[UPS_SPLIT_TRAIN][i], &sample, error);
            if (status != UPS_OK || !isfinite(sample.parameters[p])) continue;
            values[known++] = sample.parameters[p];
            low = fmin(low, sample.parameters[p]);
            high = fmax(high, sample.parameters[p]);
        }
        ups_parameter_scale *scale = &task->scale[p];
        scale->logarithm = low > 0 && high > 10 * low;
        for (int64_t i = 0; i < known; i++) {
            if (scale->logarithm) values[i] = log(values[i]);
            sum += values[i];
        }
        scale->mean = known > 0 ? sum / (double)known : 0;
        for (int64_t i = 0; i < known; i++) squares += (values[i] - scale->mean) * (values[i] - scale->mean);
        double spread = known > 0 ? sqrt(squares / (double)known) : 0;
        scale->spread = low < high && spread > 0 ? spread : 1;
        scale->constant = low == high;
    }
    free(values);
    return status;
}

bool ups_task_parameters_differ(const ups_task *task) {
    const ups_sample_splits *splits = &task->splits;
    const int64_t count = splits->count[UPS_SPLIT_TRAIN];
    ups_sample first, other;
    if (task->source->parameter_count == 0 || count == 0) return false;
    if (ups_source_describe(task->source, splits->samples[UPS_SPLIT_TRAIN][0], &first, NULL) != UPS_OK) return true;
    for (int64_t i = 1; i < count; i++) {
        if (ups_source_describe(task->source, splits->samples[UPS_SPLIT_TRAIN][i], &other, NULL) != UPS_OK) return true;
        for (int p = 0; p < task->source->parameter_count; p++) {
            const double a = first.parameters[p], b = other.parameters[p];
            if (!(a == b) && !(isnan(a) && isnan(b))) return true;
        }
    }
    return false;
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
    ups_status status = ups_task_open_source(config, task_config, &task->source, error);
    if (status == UPS_OK) status = check_geometry(task, error);
    if (status == UPS_OK) /* "periodic in x, outgoing in y" */
        task->ends_differ = strstr(ups_layout_boundary(task->source, 0), " in ") != NULL;
    if (status == UPS_OK) status = ups_split_samples(&config->data, task_config, task->source, &task->splits, error);
    if (status == UPS_OK) status = measure_parameters(task, error);
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

/* All of them, closed; NULL when out of memory. */
static ups_tasks *make_tasks(const ups_run_config *config) {
    ups_tasks *made = calloc(1, sizeof *made);
    if (made) made->task = calloc(config->task_count, sizeof *made->task);
    if (!made || !made->task) {
        free(made);
        return NULL;
    }
    made->count = (int)config->task_count;
    for (int i = 0; i < made->count; i++) {
        made->task[i].config = &config->tasks[i];
        made->task[i].name = config->tasks[i].name;
    }
    return made;
}

static ups_status hand_out(ups_status status, ups_tasks *made, ups_tasks **tasks) {
    if (status == UPS_OK) {
        limit_frequencies(made);
        *tasks = made;
    } else {
        ups_tasks_close(made);
    }
    return status;
}

ups_status ups_tasks_open(const ups_run_config *config, ups_tasks **tasks, ups_error *error) {
    ups_tasks *made = make_tasks(config);
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the table of tasks");
    ups_status status = UPS_OK;
    for (int i = 0; i < made->count && status == UPS_OK; i++)
        status = open_task(config, &config->tasks[i], &made->task[i], error);
    return hand_out(status, made, tasks);
}

ups_status ups_tasks_of_sources(const ups_run_config *config, ups_source *const *sources, ups_tasks **tasks,
                                ups_error *error) {
    ups_tasks *made = make_tasks(config);
    if (!made) {
        for (unsigned i = 0; i < config->task_count; i++) ups_source_close(sources[i]);
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for the table of tasks");
    }
    for (int i = 0; i < made->count; i++) made->task[i].source = sources[i];
    ups_status status = UPS_OK;
    for (int i = 0; i < made->count && status == UPS_OK; i++) status = check_geometry(&made->task[i], error);
    return hand_out(status, made, tasks);
}

static void free_condition(ups_task *task) {
    for (int i = 0; i < task->condition_count && task->condition_names; i++) free(task->condition_names[i]);
    free(task->condition_names);
    free(task->condition);
    free(task->scale);
    task->condition_names = NULL;
    task->condition = NULL;
    task->scale = NULL;
    task->condition_count = 0;
}

static void close_task(ups_task *task) {
    ups_source_close(task->source);
    ups_sample_splits_free(&task->splits);
    free(task->statistics);
    free_condition(task);
    free(task->places);
    free(task->offsets);
}

ups_status ups_task_try(const ups_run_config *config, int index, ups_error *error) {
    ups_task task = {.config = &config->tasks[index], .name = config->tasks[index].name};
    const ups_status status = open_task(config, task.config, &task, error);
    close_task(&task);
    return status;
}

void ups_tasks_close(ups_tasks *tasks) {
    if (!tasks) return;
    for (int i = 0; i < tasks->count; i++) close_task(&tasks->task[i]);
    free(tasks->task);
    free(tasks);
}

int64_t ups_task_patch_numbers(const ups_task *task) {
    int64_t numbers = task->geometry.channels;
    for (int a = 0; a < task->geometry.dims; a++) numbers *= task->patch[a];
    return numbers;
}

ups_latent_shape ups_task_latents(const ups_run_config *config, const ups_task *task) {
    const ups_model_config *model = &config->model;
    if (!ups_run_on_grid(config)) return (ups_latent_shape){model->tokens, model->dim};
    int64_t tokens = 1, numbers = ups_task_patch_numbers(task), dim = model->dim > 0 ? model->dim : task->dim;
    for (int a = 0; a < task->geometry.dims; a++)
        tokens *= (task->geometry.grid[a] + task->patch[a] - 1) / task->patch[a];
    return (ups_latent_shape){tokens, dim > 0 && dim < numbers ? dim : numbers};
}

int64_t ups_task_latent_elements(const ups_run_config *config, const ups_task *task) {
    ups_latent_shape shape = ups_task_latents(config, task);
    return shape.tokens * shape.dim;
}

ups_split ups_task_held_out(const ups_task *task) {
    return task->splits.count[UPS_SPLIT_TEST] > 0 ? UPS_SPLIT_TEST : UPS_SPLIT_VALIDATION;
}

ups_status ups_task_check_split(const ups_task *task, ups_split split, ups_error *error) {
    if (task->splits.count[split] > 0) return UPS_OK;
    return ups_fail(
        error, UPS_ERR_ARGUMENT,
        "task %s: none of its samples is in the %s split (data.split and tasks[].test_files say what is held out; "
        "`ups eval --split train` judges it by those that it was trained on)",
        task->name, ups_split_name(split));
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
        double value = from >= 0 ? parameters[from] : (double)NAN;
        if (task->scale && p < count) {
            const ups_parameter_scale *scale = &task->scale[p];
            value = ((scale->logarithm ? log(value) : value) - scale->mean) / scale->spread;
        }
        out[p] = isfinite(value) ? (float)value : 0;
    }
}

/* But for the rounding of what passed through float32. */
static bool is_same(double value, double other) {
    return fabs(value - other) <= 1e-6 * fabs(other);
}

double ups_parameter_deviations(const ups_parameter_scale *scale, double value) {
    return fabs(((scale->logarithm ? log(value) : value) - scale->mean) / scale->spread);
}

ups_parameter_fit ups_parameter_judge(const ups_parameter_scale *scale, double value) {
    const double far = 3; /* deviations; what is drawn evenly has at most 1.7 */
    if (isnan(value)) return UPS_PARAMETER_FITS;
    if (isinf(value)) return UPS_PARAMETER_INFINITE;
    if (!scale) return UPS_PARAMETER_FITS;
    if (scale->logarithm && value <= 0) return UPS_PARAMETER_NOT_POSITIVE;
    if (scale->constant) return is_same(value, scale->mean) ? UPS_PARAMETER_FITS : UPS_PARAMETER_NEW;
    return ups_parameter_deviations(scale, value) > far ? UPS_PARAMETER_FAR : UPS_PARAMETER_FITS;
}

/* ---- what an operator was conditioned on ----------------------------------------------------------------------- */

static int find_parameter(const ups_source *source, const char *name) {
    for (int p = 0; p < source->parameter_count; p++) {
        if (strcasecmp(source->parameter_names[p], name) == 0) return p;
    }
    return -1;
}

/* ["linear" or "log", mean, spread] */
static bool read_scale(const json_t *entry, ups_parameter_scale *scale) {
    const char *kind = json_string_value(json_array_get(entry, 0));
    const json_t *mean = json_array_get(entry, 1), *spread = json_array_get(entry, 2);
    if (!kind || !json_is_number(mean) || !json_is_number(spread)) return false;
    *scale = (ups_parameter_scale){
        .logarithm = strcmp(kind, "log") == 0, .mean = json_number_value(mean), .spread = json_number_value(spread)};
    return (scale->logarithm || strcmp(kind, "linear") == 0) && isfinite(scale->mean) && isnormal(scale->spread);
}

/* {"names": […], "scale": […], "constant": […]}, the last where training had one value alone of some; a list of names
 * alone, as models had it once: they enter as they are. */
static ups_status take_condition(const char *path, ups_task *task, const json_t *parameters, ups_error *error) {
    const json_t *names = json_is_object(parameters) ? json_object_get(parameters, "names") : parameters;
    const json_t *scales = json_object_get(parameters, "scale");
    size_t count = json_array_size(names);
    bool sound = json_is_array(names) && (!scales || json_array_size(scales) == count);
    for (size_t i = 0; i < count; i++) sound = sound && json_is_string(json_array_get(names, i));
    free_condition(task);
    task->condition = malloc((count + 1) * sizeof *task->condition);
    task->condition_names = calloc(count + 1, sizeof *task->condition_names);
    task->condition_count = (int)count;
    task->scale = scales ? calloc(count + 1, sizeof *task->scale) : NULL;
    bool had = task->condition && task->condition_names && (!scales || task->scale);
    for (size_t i = 0; i < count && had && scales; i++) {
        sound = sound && read_scale(json_array_get(scales, i), &task->scale[i]);
        task->scale[i].constant = json_is_true(json_array_get(json_object_get(parameters, "constant"), i));
    }
    if (had && !sound) {
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: '%s.parameters' is not a list of names with a scale for each; restore the file", path,
                        task->name);
    }
    if (!had) return ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", task->name);
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        task->condition[i] = find_parameter(task->source, name);
        task->condition_names[i] = strdup(name);
        if (!task->condition_names[i]) return ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", task->name);
        if (task->condition[i] >= 0) continue;
        ups_log(UPS_LOG_WARNING,
                "task %s: the operator was trained with the parameter '%s'; its files do not contain it, and 0 "
                "is used",
                task->name, name);
    }
    return UPS_OK;
}

static bool is_told(const ups_task *task, int parameter) {
    for (int i = 0; i < task->condition_count; i++)
        if (task->condition[i] == parameter) return true;
    return false;
}

/* Those of the task's own parameters that the model was not told of, each scaled as `own`, behind the others. */
static ups_status add_untold(ups_task *task, const ups_parameter_scale *own, ups_error *error) {
    const int told = task->condition_count, most = told + task->source->parameter_count;
    int *condition = realloc(task->condition, ((size_t)most + 1) * sizeof *condition);
    if (condition) task->condition = condition;
    char **names = realloc(task->condition_names, ((size_t)most + 1) * sizeof *names);
    if (names) task->condition_names = names;
    ups_parameter_scale *scale = realloc(task->scale, ((size_t)most + 1) * sizeof *scale);
    for (int i = 0; i < told && scale && !task->scale; i++) scale[i] = (ups_parameter_scale){.spread = 1};
    if (scale) task->scale = scale;
    bool had = condition && names && scale;
    for (int p = 0; p < task->source->parameter_count && had; p++) {
        if (is_told(task, p)) continue;
        const int at = task->condition_count;
        condition[at] = p;
        scale[at] = own ? own[p] : (ups_parameter_scale){.spread = 1};
        names[at] = strdup(task->source->parameter_names[p]);
        had = names[at] != NULL;
        task->condition_count += had;
        if (!had) continue;
        ups_log(UPS_LOG_INFO,
                "task %s: the operator was not told of the parameter '%s', which comes behind those that it knows",
                task->name, names[at]);
    }
    return had ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", task->name);
}

/* What the model knew one value of it may now learn others of. */
static void add_values(ups_task *task, const ups_parameter_scale *own) {
    for (int i = 0; i < task->condition_count && task->scale; i++) {
        const int p = task->condition[i];
        ups_parameter_scale *scale = &task->scale[i];
        if (p >= 0) scale->constant = scale->constant && own[p].constant && is_same(own[p].mean, scale->mean);
    }
}

static ups_status begin_condition(const char *path, ups_task *task, const json_t *parameters, ups_error *error) {
    ups_parameter_scale *own = task->condition ? NULL : task->scale;
    if (own) task->scale = NULL;
    ups_status status = take_condition(path, task, parameters, error);
    if (status == UPS_OK && own) add_values(task, own);
    if (status == UPS_OK) status = add_untold(task, own, error);
    free(own);
    return status;
}

/* Of every task that the operator in `path` tells of. */
static ups_status take_conditions(ups_tasks *tasks, const char *path,
                                  ups_status (*take)(const char *, ups_task *, const json_t *, ups_error *),
                                  ups_error *error) {
    ups_safetensors *model = NULL;
    UPS_TRY(ups_safetensors_open(path, &model, error));
    ups_status status = UPS_OK;
    for (int i = 0; i < tasks->count && status == UPS_OK; i++) {
        char key[128]; /* names of tasks have at most 64 letters */
        snprintf(key, sizeof key, "%s.parameters", tasks->task[i].name);
        const char *text = ups_safetensors_metadata(model, key);
        if (!text) continue;
        json_t *names = json_loads(text, JSON_DECODE_ANY, NULL);
        status = take(path, &tasks->task[i], names, error);
        json_decref(names);
    }
    ups_safetensors_close(model);
    return status;
}

ups_status ups_tasks_condition_as_trained(ups_tasks *tasks, const char *path, ups_error *error) {
    return take_conditions(tasks, path, take_condition, error);
}

ups_status ups_tasks_condition_to_begin(ups_tasks *tasks, const char *path, ups_error *error) {
    return take_conditions(tasks, path, begin_condition, error);
}
