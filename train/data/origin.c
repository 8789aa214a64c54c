#include "train/data/origin.h"

#include "model/parameters/safetensors.h"
#include "train/networks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "TASK.PART": the document as text, keys sorted, every digit of a number kept; takes the reference to `document`. */
static void tell(json_t *origin, const char *task, const char *part, json_t *document) {
    char *text = document ? json_dumps(document, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY) : NULL;
    char key[128]; /* names of tasks have at most 64 letters */
    snprintf(key, sizeof key, "%s%s%s", task, *task ? "." : "", part);
    if (text) json_object_set_new(origin, key, json_string(text));
    free(text);
    json_decref(document);
}

static json_t *tell_autoencoder(const ups_run_config *config, const ups_tasks *tasks, bool with_grid) {
    json_t *origin = json_object();
    for (int t = 0; origin && t < tasks->count; t++) {
        const ups_task *task = &tasks->task[t];
        json_t *encoder = ups_networks_describe_encoder(config, task);
        if (!with_grid) json_object_del(encoder, "grid");
        if (!with_grid) json_object_del(encoder, "layout"); /* other files may say it otherwise */
        tell(origin, task->name, "encoder", encoder);
        tell(origin, task->name, "decoder", ups_networks_describe_decoder(config, task));
        tell(origin, task->name, "normalisation", ups_networks_describe_normalisation(task));
    }
    return origin;
}

json_t *ups_origin_autoencoder(const ups_run_config *config, const ups_tasks *tasks) {
    return tell_autoencoder(config, tasks, true);
}

json_t *ups_origin_autoencoder_on_any_grid(const ups_run_config *config, const ups_tasks *tasks) {
    return tell_autoencoder(config, tasks, false);
}

json_t *ups_origin_operator(const ups_run_config *config, const ups_tasks *tasks, const char *autoencoder_hash) {
    json_t *origin = json_object();
    if (!origin) return NULL;
    json_object_set_new(origin, "autoencoder", json_string(autoencoder_hash));
    tell(origin, "", "operator", ups_networks_describe_operator(config, tasks));
    for (int t = 0; t < tasks->count; t++) {
        const ups_task *task = &tasks->task[t];
        tell(origin, task->name, "parameters", ups_networks_describe_parameters(task));
    }
    return origin;
}

static void write_value(const json_t *value, char *text, size_t bytes) {
    char *whole = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    snprintf(text, bytes, "%.*s", (int)bytes - 1, whole ? whole : "");
    free(whole);
}

/* What a model has that does not tell of a key: what all had before there was a choice. NULL: that is not known. */
static const char *unless_told(const char *key) {
    static const char *const known[][2] = {
        {"bound", "0"}, {"between", "0"}, {"positions", "borders"}, {"merge_above", "0"}, {"task_specific", "none"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(key, known[i][0]) == 0) return known[i][1];
    return NULL;
}

static bool is_value(const json_t *value, const char *text) {
    const char *string = json_string_value(value);
    return string ? strcmp(string, text) == 0 : json_number_value(value) == strtod(text, NULL);
}

/* Whether all that both tell is the same; if not, what differs in words, where it is not a hash: ": its 'heads' is 4,
 * here it is 2". */
static bool agree(const char *found, const char *expected, char *words, size_t bytes) {
    words[0] = '\0';
    if (strcmp(found, expected) == 0) return true;
    json_t *theirs = json_loads(found, JSON_DECODE_ANY, NULL), *ours = json_loads(expected, JSON_DECODE_ANY, NULL);
    bool objects = json_is_object(theirs) && json_is_object(ours), same = objects;
    char there[80], here[80];
    const char *key;
    json_t *value;
    json_object_foreach(ours, key, value) {
        const json_t *other = json_object_get(theirs, key);
        const char *before = other ? NULL : unless_told(key);
        if (!same || (other ? json_equal(other, value) : !before || is_value(value, before))) continue;
        snprintf(there, sizeof there, json_is_string(value) ? "\"%s\"" : "%s", before ? before : "");
        if (other) write_value(other, there, sizeof there);
        write_value(value, here, sizeof here);
        snprintf(words, bytes, ": its '%s' is %s, here it is %s", key, there, here);
        same = false;
    }
    if (!objects && theirs && ours) {
        write_value(theirs, there, sizeof there);
        write_value(ours, here, sizeof here);
        snprintf(words, bytes, ": there it is %s, here %s", there, here);
    }
    json_decref(theirs);
    json_decref(ours);
    return same;
}

ups_status ups_origin_check(const char *path, const json_t *expected, ups_error *error) {
    ups_safetensors *file = NULL;
    UPS_TRY(ups_safetensors_open(path, &file, error));
    ups_status status = UPS_OK;
    const char *part;
    json_t *text;
    char words[300];
    json_object_foreach((json_t *)expected, part, text) {
        const char *found = ups_safetensors_metadata(file, part);
        if (!found || agree(found, json_string_value(text), words, sizeof words)) continue;
        status = ups_fail(error, UPS_ERR_STALE,
                          "%s: the model was trained with another %s than this configuration, its files and its run "
                          "have%s; go back to what it was trained with, or train it again",
                          path, part, words);
        break;
    }
    ups_safetensors_close(file);
    return status;
}

/* "64 x 32" */
static void write_grid(const int64_t *grid, int dims, char *text, size_t bytes) {
    size_t length = 0;
    text[0] = '\0';
    for (int a = 0; a < dims && length < bytes; a++)
        length += (size_t)snprintf(text + length, bytes - length, "%s%lld", a > 0 ? " x " : "", (long long)grid[a]);
}

/* The grid that the file tells of a task; false: it tells none of so many axes. */
static bool read_trained_grid(const ups_safetensors *file, const ups_task *task, int64_t grid[UPS_MAX_GRID_DIMS]) {
    char key[128]; /* names of tasks have at most 64 letters */
    snprintf(key, sizeof key, "%s.encoder", task->name);
    const char *text = ups_safetensors_metadata(file, key);
    json_t *encoder = text ? json_loads(text, 0, NULL) : NULL;
    const json_t *told = json_object_get(encoder, "grid");
    const bool found = json_array_size(told) == (size_t)task->geometry.dims;
    for (int a = 0; a < task->geometry.dims && found; a++)
        grid[a] = (int64_t)json_integer_value(json_array_get(told, (size_t)a));
    json_decref(encoder);
    return found;
}

ups_status ups_origin_is_of_another_grid(const char *path, const ups_run_config *config, const ups_task *task,
                                         bool *other, char *words, size_t bytes, ups_error *error) {
    const ups_sample *here = &task->geometry;
    const size_t grid_bytes = (size_t)here->dims * sizeof here->grid[0];
    int64_t trained[UPS_MAX_GRID_DIMS] = {0};
    char there[80], given[80];
    *other = false;
    if (!ups_run_on_grid(config) || (here->points && !here->points->own)) return UPS_OK;
    ups_safetensors *file = NULL;
    UPS_TRY(ups_safetensors_open(path, &file, error));
    *other = read_trained_grid(file, task, trained) && memcmp(trained, here->grid, grid_bytes) != 0;
    ups_safetensors_close(file);
    if (here->points) { /* fewer are as good */
        *other = *other && trained[0] < here->grid[0];
        snprintf(words, bytes,
                 "task %s: the model was trained on %lld points at most, and these samples have up to %lld", task->name,
                 (long long)trained[0], (long long)here->grid[0]);
        return UPS_OK;
    }
    write_grid(trained, here->dims, there, sizeof there);
    write_grid(here->grid, here->dims, given, sizeof given);
    snprintf(words, bytes,
             "task %s: the model was trained on a grid of %s points, and these fields have %s. Its tokens are patches "
             "of so many points (model.tokens: grid): unless the points lie as far apart as those it was trained on, "
             "it reads and predicts other physics than the fields'. Bring the fields to its grid, or train on theirs",
             task->name, there, given);
    return UPS_OK;
}
