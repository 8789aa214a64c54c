#include "train/portable/described.h"

#include "base/config/as_json.h"
#include "model/parameters/safetensors.h"
#include "train/config/given.h"
#include "train/config/load.h"
#include "train/data/conditions/step_times.h"
#include "train/data/normalisation.h"
#include "train/data/trajectories.h"
#include "train/networks.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CHANNELS 1024
#define MOST_POINTS ((int64_t)1 << 31) /* of a grid, times channels */
#define MOST_FRAMES ((int64_t)1 << 24) /* of all tasks together: their times are 128 MiB */

static void fields_key(const char *task, char key[128]) {
    snprintf(key, 128, "%s.fields", task); /* names of tasks have at most 64 letters */
}

/* ---- telling ---------------------------------------------------------------------------------------------------- */

static json_t *text_or_null(const char *text) {
    return text ? json_string(text) : json_null();
}

/* Where points lie, in the order of the data's file: one after the other. */
static json_t *describe_points(const ups_points *points) {
    const int64_t numbers = points->count * points->dims;
    double *stored = malloc((size_t)numbers * sizeof *stored);
    if (!stored) return NULL;
    ups_points_unsort(points, points->dims, sizeof *stored, points->coordinates, stored);
    json_t *coordinates = json_array();
    for (int64_t i = 0; i < numbers; i++) json_array_append_new(coordinates, json_real(stored[i]));
    free(stored);
    return json_pack("{s:i, s:b, s:o}", "dims", points->dims, "of_each_sample", (int)points->own, "coordinates",
                     coordinates);
}

/* One length of a step where there is one, else the times of frames where all trajectories share them. */
static void describe_times(const ups_task *task, json_t *fields) {
    const ups_sample *geometry = &task->geometry;
    const bool one = !isnan(task->dt);
    json_object_set_new(fields, "dt", one ? json_real(task->dt * (double)task->config->stride) : json_null());
    if (one || !task->same_times) return;
    json_t *time = json_array();
    for (int64_t f = 0; f < geometry->times; f++) json_array_append_new(time, json_real(geometry->time[f]));
    json_object_set_new(fields, "time", time);
}

static json_t *describe_fields(const ups_task *task) {
    static const char *const axes[] = {"x", "y", "z"};
    const ups_sample *geometry = &task->geometry;
    double low[UPS_MAX_GRID_DIMS], high[UPS_MAX_GRID_DIMS];
    ups_sample_domain(geometry, low, high);
    json_t *channels = json_array(), *grid = json_array(), *names = json_array(), *lows = json_array(),
           *highs = json_array();
    for (int64_t c = 0; c < geometry->channels; c++)
        json_array_append_new(channels, json_string(task->source->channel_names[c]));
    for (int a = 0; a < geometry->dims; a++) {
        json_array_append_new(grid, json_integer(geometry->grid[a]));
        json_array_append_new(names, json_string(geometry->axis_names[a] ? geometry->axis_names[a] : axes[a]));
        json_array_append_new(lows, json_real(low[a]));
        json_array_append_new(highs, json_real(high[a]));
    }
    const int64_t stride = task->config->stride;
    json_t *fields = json_pack("{s:o, s:o, s:o, s:o, s:o}", "channels", channels, "grid", grid, "axes", names, "low",
                               lows, "high", highs);
    json_object_set_new(fields, "order",
                        json_string(geometry->order == UPS_CHANNELS_FIRST ? "channels_first" : "channels_last"));
    json_object_set_new(fields, "periodic", json_boolean(geometry->periodic));
    describe_times(task, fields);
    json_object_set_new(fields, "stride", json_integer(stride));
    json_object_set_new(fields, "frames", json_integer(geometry->times));
    json_object_set_new(fields, "time_units", text_or_null(geometry->time_units));
    if (geometry->points) json_object_set_new(fields, "points", describe_points(geometry->points));
    return fields;
}

/* Keys that change nothing are not told: readers of earlier versions do not know them. */
static void leave_out_what_says_nothing(json_t *core, const ups_run_config *config) {
    bool chooses = false;
    for (unsigned m = 0; m < config->model.core.mixing_count; m++)
        chooses |= config->model.core.mixing[m] == UPS_MIXING_AUTO;
    if (!chooses) json_object_del(core, "attended_tokens");
    if (config->model.core.task_specific_count == 0) json_object_del(core, "task_specific");
    if (config->model.core.merge_above == 0) json_object_del(core, "merge_above");
}

/* Of the configuration what graphs depend on: nothing of paths, threads or training. */
static json_t *describe_config(const ups_run_config *config) {
    static const char *const of_task[] = {"name", "patch", "stride", "strides"};
    json_t *all = ups_config_as_json(&ups_run_schema, config), *tasks = json_array(), *task;
    size_t index;
    json_array_foreach(json_object_get(all, "tasks"), index, task) {
        json_t *kept = json_object();
        for (size_t k = 0; k < sizeof of_task / sizeof *of_task; k++)
            json_object_set(kept, of_task[k], json_object_get(task, of_task[k]));
        json_t *bundle = json_object_get(task, "bundle");
        if (json_integer_value(bundle) > 0) json_object_set(kept, "bundle", bundle);
        json_array_append_new(tasks, kept);
    }
    json_object_del(json_object_get(all, "model"), "from");
    leave_out_what_says_nothing(json_object_get(json_object_get(all, "model"), "operator"), config);
    json_t *described = json_pack("{s:O?, s:O?, s:o}", "model", json_object_get(all, "model"), "precision",
                                  json_object_get(all, "precision"), "tasks", tasks);
    json_decref(all);
    return described;
}

static bool tell(json_t *texts, const char *key, json_t *document) {
    char *text = document ? json_dumps(document, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    const bool told = text && json_object_set_new(texts, key, json_string(text)) == 0;
    free(text);
    json_decref(document);
    return told;
}

json_t *ups_described_tell(const ups_run_config *config, const ups_tasks *tasks) {
    json_t *texts = json_object();
    bool told = texts && tell(texts, UPS_TOLD_CONFIG, describe_config(config));
    for (int t = 0; t < tasks->count && told; t++) {
        char key[128];
        fields_key(tasks->task[t].name, key);
        told = tell(texts, key, describe_fields(&tasks->task[t]));
    }
    if (told) return texts;
    json_decref(texts);
    return NULL;
}

ups_status ups_described_is_told(const char *op, bool *told, ups_error *error) {
    ups_safetensors *file = NULL;
    UPS_TRY(ups_safetensors_open(op, &file, error));
    *told = ups_safetensors_metadata(file, UPS_TOLD_CONFIG) != NULL;
    ups_safetensors_close(file);
    return UPS_OK;
}

/* ---- a source of nothing but what is told ----------------------------------------------------------------------- */

typedef struct told_source {
    ups_source source;
    ups_sample sample;
    double *time;
    char **channel_names, **parameter_names, **axis_names;
    char *time_units, *file;
    const char *files[1];
    ups_arena *arena; /* of the points, where there are any */
} told_source;

static void free_texts(char **texts, int64_t count) {
    for (int64_t i = 0; texts && i < count; i++) free(texts[i]);
    free(texts);
}

static void close_told(ups_source *source) {
    told_source *told = (told_source *)source;
    free(told->time);
    free_texts(told->channel_names, told->source.channels);
    free_texts(told->parameter_names, told->source.parameter_count);
    free_texts(told->axis_names, told->sample.dims);
    free(told->time_units);
    free(told->file);
    ups_arena_destroy(told->arena);
    free(told);
}

static ups_status describe_told(const ups_source *source, int64_t index, ups_sample *sample, ups_error *error) {
    (void)index;
    (void)error;
    *sample = ((const told_source *)source)->sample;
    return UPS_OK;
}

static const ups_source_class told_class = {.kind = "told", .describe = describe_told, .close = close_told};

/* A list of texts, as many as there are; NULL when out of memory. */
static char **copy_texts(const json_t *list) {
    const size_t count = json_array_size(list);
    char **texts = calloc(count + 1, sizeof *texts);
    if (!texts) return NULL;
    for (size_t i = 0; i < count; i++) {
        texts[i] = strdup(json_string_value(json_array_get(list, i)));
        if (texts[i]) continue;
        free_texts(texts, (int64_t)i);
        return NULL;
    }
    return texts;
}

static bool are_texts(const json_t *list, size_t least, size_t most) {
    size_t index;
    json_t *entry;
    if (!json_is_array(list) || json_array_size(list) < least || json_array_size(list) > most) return false;
    json_array_foreach((json_t *)list, index, entry) {
        if (!json_is_string(entry)) return false;
    }
    return true;
}

static bool are_numbers(const json_t *list, int count) {
    if (!json_is_array(list) || json_array_size(list) != (size_t)count) return false;
    for (int i = 0; i < count; i++) {
        const json_t *entry = json_array_get(list, (size_t)i);
        if (!json_is_number(entry) || !isfinite(json_number_value(entry))) return false;
    }
    return true;
}

/* Absent, or the coordinates of as many points as the grid's only axis has. */
static bool are_points(const json_t *points, const json_t *grid) {
    if (!points) return true;
    const json_int_t dims = json_integer_value(json_object_get(points, "dims"));
    const json_int_t count = json_integer_value(json_array_get(grid, 0));
    if (dims < 1 || dims > UPS_MAX_POINT_DIMS || json_array_size(grid) != 1 || count > INT32_MAX / dims) return false;
    return json_is_boolean(json_object_get(points, "of_each_sample")) &&
           are_numbers(json_object_get(points, "coordinates"), (int)(count * dims));
}

/* The key of what `fields` tell of times that is not what it should be; NULL: all are. */
static const char *find_fault_of_times(const json_t *fields, const ups_task_config *task, int64_t most_frames) {
    const json_t *dt = json_object_get(fields, "dt"), *time = json_object_get(fields, "time"),
                 *units = json_object_get(fields, "time_units");
    const int64_t frames = json_integer_value(json_object_get(fields, "frames"));
    if (!json_is_null(dt) && (!json_is_number(dt) || !isfinite(json_number_value(dt)))) return "dt";
    if (json_integer_value(json_object_get(fields, "stride")) != task->stride) return "stride";
    if (frames <= task->stride || frames > most_frames) return "frames";
    if (time && !are_numbers(time, (int)frames)) return "time";
    return units && !json_is_null(units) && !json_is_string(units) ? "time_units" : NULL;
}

/* The key of `fields` that is not what it should be; NULL: all are. */
static const char *find_fault(const json_t *fields, const ups_task_config *task, int64_t most_frames) {
    const json_t *grid = json_object_get(fields, "grid");
    const char *order = json_string_value(json_object_get(fields, "order"));
    const int dims = (int)json_array_size(grid);
    if (!are_texts(json_object_get(fields, "channels"), 1, MOST_CHANNELS)) return "channels";
    if (!json_is_array(grid) || dims < 1 || dims > UPS_MAX_GRID_DIMS) return "grid";
    int64_t elements = (int64_t)json_array_size(json_object_get(fields, "channels"));
    for (int a = 0; a < dims; a++) {
        const int64_t points = json_integer_value(json_array_get(grid, (size_t)a));
        if (points < 1 || points > MOST_POINTS / elements) return "grid";
        elements *= points;
    }
    if (!are_texts(json_object_get(fields, "axes"), (size_t)dims, (size_t)dims)) return "axes";
    if (!order || (strcmp(order, "channels_last") != 0 && strcmp(order, "channels_first") != 0)) return "order";
    if (!json_is_boolean(json_object_get(fields, "periodic"))) return "periodic";
    if (!are_numbers(json_object_get(fields, "low"), dims)) return "low";
    if (!are_numbers(json_object_get(fields, "high"), dims)) return "high";
    const char *fault = find_fault_of_times(fields, task, most_frames);
    if (fault) return fault;
    return are_points(json_object_get(fields, "points"), grid) ? NULL : "points";
}

static ups_status fail_to_fit(const char *path, const char *task, const char *key, ups_error *error) {
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s: task %s: '%s' of what the file tells of its fields is missing or cannot be; restore the file, "
                    "or write it again with `ups export`",
                    path, task, key);
}

/* Names of the parameters that the operator is told; an empty list where it says nothing of them. */
static ups_status read_parameters(const ups_safetensors *file, const char *path, const char *task, json_t **names,
                                  ups_error *error) {
    char key[128];
    snprintf(key, sizeof key, "%s.parameters", task);
    const char *text = ups_safetensors_metadata(file, key);
    json_t *parameters = text ? json_loads(text, JSON_DECODE_ANY, NULL) : json_array();
    *names = json_incref(json_is_object(parameters) ? json_object_get(parameters, "names") : parameters);
    json_decref(parameters);
    if (are_texts(*names, 0, 4096)) return UPS_OK;
    json_decref(*names);
    *names = NULL;
    return fail_to_fit(path, task, "parameters", error);
}

/* Points that lie anywhere, as they were trained on. */
static bool take_points(told_source *told, const json_t *points) {
    if (!points) return true;
    const json_t *list = json_object_get(points, "coordinates");
    const int dims = (int)json_integer_value(json_object_get(points, "dims"));
    const int64_t numbers = (int64_t)json_array_size(list);
    told->arena = ups_arena_create(0);
    if (!told->arena) return false;
    double *coordinates = UPS_ARENA_ARRAY(told->arena, double, numbers);
    for (int64_t i = 0; i < numbers; i++) coordinates[i] = json_number_value(json_array_get(list, (size_t)i));
    ups_points *made = ups_points_create(told->arena, dims, numbers / dims, numbers / dims, coordinates);
    made->own = json_is_true(json_object_get(points, "of_each_sample"));
    told->sample.points = made;
    return true;
}

/* Of frames as far apart as is told; where nothing is, some time apart. */
static void take_times(told_source *told, const json_t *fields) {
    const json_t *dt = json_object_get(fields, "dt"), *time = json_object_get(fields, "time");
    double interval = 1;
    if (json_is_number(dt))
        interval = json_number_value(dt) / (double)json_integer_value(json_object_get(fields, "stride"));
    for (int64_t f = 0; f < told->sample.times; f++)
        told->time[f] = time ? json_number_value(json_array_get(time, (size_t)f)) : (double)f * interval;
    told->sample.time = told->time;
}

static ups_status make_source(const char *path, const json_t *fields, const json_t *parameters, const char *task,
                              ups_source **source, ups_error *error) {
    const json_t *channels = json_object_get(fields, "channels"), *grid = json_object_get(fields, "grid"),
                 *units = json_object_get(fields, "time_units");
    told_source *told = calloc(1, sizeof *told);
    if (!told) return ups_fail(error, UPS_ERR_MEMORY, "%s: task %s: out of memory", path, task);
    ups_sample *sample = &told->sample;
    told->file = strdup(path);
    told->files[0] = told->file;
    told->source = (ups_source){.class = &told_class, .count = 1, .file_count = 1, .files = told->files};
    told->channel_names = copy_texts(channels);
    told->parameter_names = copy_texts(parameters);
    told->axis_names = copy_texts(json_object_get(fields, "axes"));
    if (json_is_string(units)) told->time_units = strdup(json_string_value(units));
    if (told->channel_names) told->source.channels = (int64_t)json_array_size(channels);
    if (told->parameter_names) told->source.parameter_count = (int)json_array_size(parameters);
    *sample = (ups_sample){.name = task,
                           .times = json_integer_value(json_object_get(fields, "frames")),
                           .channels = told->source.channels,
                           .dims = told->axis_names ? (int)json_array_size(grid) : 0,
                           .grid = {1, 1, 1},
                           .dtype = UPS_F32,
                           .periodic = json_is_true(json_object_get(fields, "periodic")),
                           .time_units = told->time_units};
    if (strcmp(json_string_value(json_object_get(fields, "order")), "channels_last") == 0)
        sample->order = UPS_CHANNELS_LAST;
    else
        sample->order = UPS_CHANNELS_FIRST;
    told->time = malloc((size_t)sample->times * sizeof *told->time);
    if (!told->file || !told->channel_names || !told->parameter_names || !told->axis_names || !told->time ||
        !take_points(told, json_object_get(fields, "points")) || (json_is_string(units) && !told->time_units)) {
        close_told(&told->source);
        return ups_fail(error, UPS_ERR_MEMORY, "%s: task %s: out of memory", path, task);
    }
    for (int a = 0; a < sample->dims; a++) {
        sample->grid[a] = json_integer_value(json_array_get(grid, (size_t)a));
        sample->axis_names[a] = told->axis_names[a];
    }
    take_times(told, fields);
    told->source.channel_names = (const char *const *)told->channel_names;
    told->source.parameter_names = (const char *const *)told->parameter_names;
    *source = &told->source;
    return UPS_OK;
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

/* What is told is what a configuration may hold; what it must hold besides is filled in, and names nothing that is. */
static ups_status read_config(const char *path, const char *text, ups_run_config **config, ups_error *error) {
    json_t *told = json_loads(text, 0, NULL), *task;
    size_t index;
    json_object_set_new(told, "output", json_string("described"));
    json_array_foreach(json_object_get(told, "tasks"), index, task) {
        json_object_set_new(task, "files", json_pack("[s]", "described"));
    }
    char *whole = json_is_object(told) ? json_dumps(told, 0) : NULL;
    json_decref(told);
    if (!whole) {
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: '" UPS_TOLD_CONFIG
                        "' of what the file tells is no JSON object; restore the file, or write it "
                        "again with `ups export`",
                        path);
    }
    ups_status status = ups_run_config_load_model(path, whole, config, error);
    free(whole);
    if (status != UPS_OK) {
        ups_fail_within(error, "%s: the configuration that the file tells cannot be used", path);
        status = error && error->code == UPS_ERR_MEMORY ? UPS_ERR_MEMORY : UPS_ERR_FORMAT;
        if (error) error->code = status;
    }
    return status;
}

json_t *ups_described_fields(const ups_safetensors *file, const char *task) {
    char key[128];
    fields_key(task, key);
    const char *text = ups_safetensors_metadata(file, key);
    return text ? json_loads(text, 0, NULL) : NULL;
}

static ups_status open_source(const ups_safetensors *file, const char *path, const ups_described_use *use,
                              const ups_run_config *config, int index, ups_described_task *described,
                              ups_source **source, ups_error *error) {
    const ups_task_config *task = &config->tasks[index];
    char key[128];
    fields_key(task->name, key);
    json_t *fields = ups_described_fields(file, task->name), *parameters = NULL;
    const char *fault = fields ? find_fault(fields, task, MOST_FRAMES / config->task_count) : key;
    ups_status status = fault ? fail_to_fit(path, task->name, fault, error) : UPS_OK;
    if (status == UPS_OK && use && use->task == index && use->points[0] > 0) {
        json_t *grid = json_array();
        for (size_t a = 0; a < json_array_size(json_object_get(fields, "axes")); a++)
            json_array_append_new(grid, json_integer(use->points[a]));
        json_object_set_new(fields, "grid", grid);
    }
    if (status == UPS_OK) status = read_parameters(file, path, task->name, &parameters, error);
    if (status == UPS_OK) status = make_source(path, fields, parameters, task->name, source, error);
    for (size_t a = 0; a < UPS_MAX_GRID_DIMS && status == UPS_OK; a++) {
        described->low[a] = json_number_value(json_array_get(json_object_get(fields, "low"), a));
        described->high[a] = json_number_value(json_array_get(json_object_get(fields, "high"), a));
    }
    const json_t *dt = json_object_get(fields, "dt");
    described->dt = json_is_number(dt) ? json_number_value(dt) : (double)NAN;
    described->timed = isnan(described->dt) && json_object_get(fields, "time");
    json_decref(fields);
    json_decref(parameters);
    return status;
}

/* From here on the task's steps are of that stride. */
static ups_status take_stride(const ups_described_use *use, ups_described *d, ups_error *error) {
    if (!use || use->stride == 0) return UPS_OK;
    ups_task_config *task = &d->config->tasks[use->task];
    bool learnt = use->stride == task->stride;
    char known[200] = "";
    for (unsigned s = 0; s < task->stride_count; s++) {
        const size_t length = strlen(known);
        learnt = learnt || task->strides[s] == use->stride;
        snprintf(known + length, sizeof known - length, "%s%lld", s > 0 ? ", " : "", (long long)task->strides[s]);
    }
    if (!learnt) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "task %s: no step of a stride of %lld was learnt; steps were of %s",
                        task->name, (long long)use->stride, known[0] ? known : "the task's own alone");
    }
    d->task[use->task].dt *= (double)use->stride / (double)task->stride;
    task->stride = use->stride;
    return UPS_OK;
}

/* Of uneven tasks, at the strides that their steps have now. */
static ups_status time_steps(ups_described *d, const char *op, ups_error *error) {
    for (int t = 0; t < d->tasks->count; t++) {
        const ups_task *task = &d->tasks->task[t];
        if (!d->task[t].timed) continue;
        d->task[t].step_times = malloc((size_t)ups_task_steps(task) * sizeof *d->task[t].step_times);
        if (!d->task[t].step_times) return ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", op);
        ups_sample_step_times(&task->geometry, task->dt, task->config->stride, d->task[t].step_times);
    }
    return UPS_OK;
}

static ups_status open_tasks(const ups_safetensors *file, const char *op, const char *autoencoder,
                             const ups_described_use *use, ups_described *d, ups_error *error) {
    const char *config = ups_safetensors_metadata(file, UPS_TOLD_CONFIG);
    if (!config) {
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: the model does not tell of the fields that it was trained on, which models of earlier "
                        "versions did not; `ups export RUN -o FILE`, where its data are, writes one that does",
                        op);
    }
    UPS_TRY(read_config(op, config, &d->config, error));
    const unsigned count = d->config->task_count;
    if (use && (unsigned)use->task >= count)
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: there is no task %d: the model has %u", op, use->task, count);
    ups_source **sources = calloc(count, sizeof(ups_source *));
    d->task = calloc(count, sizeof *d->task);
    ups_status status = sources && d->task ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", op);
    for (unsigned t = 0; t < count && status == UPS_OK; t++)
        status = open_source(file, op, use, d->config, (int)t, &d->task[t], &sources[t], error);
    if (status == UPS_OK) status = take_stride(use, d, error);
    if (status == UPS_OK) {
        status = ups_tasks_of_sources(d->config, sources, &d->tasks, error);
    } else {
        for (unsigned t = 0; sources && t < count; t++) ups_source_close(sources[t]);
    }
    free(sources);
    if (status == UPS_OK) status = time_steps(d, op, error);
    if (status == UPS_OK) status = ups_tasks_normalise_by_model(d->tasks, autoencoder, error);
    return status == UPS_OK ? ups_tasks_condition_as_trained(d->tasks, op, error) : status;
}

ups_status ups_described_open(const char *op, const char *autoencoder, const ups_described_use *use,
                              ups_described *described, ups_error *error) {
    ups_safetensors *file = NULL;
    *described = (ups_described){0};
    UPS_TRY(ups_safetensors_open(op, &file, error));
    ups_status status = open_tasks(file, op, autoencoder, use, described, error);
    ups_safetensors_close(file);
    if (status != UPS_OK) ups_described_close(described);
    return status;
}

void ups_described_close(ups_described *described) {
    for (unsigned t = 0; described->task && t < described->config->task_count; t++) free(described->task[t].step_times);
    ups_tasks_close(described->tasks);
    ups_run_config_free(described->config);
    free(described->task);
    *described = (ups_described){0};
}
