#include "train/data/normalisation.h"

#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/system/launcher.h"
#include "cache/store/fingerprint.h"
#include "model/parameters/safetensors.h"
#include "train/data/batches.h"
#include "train/data/patch_basis.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_STATISTICS_SAMPLES 512

/* ---- measuring -------------------------------------------------------------------------------------------------- */

/* Sums over one field: shifted by the first value seen, so that float64 keeps every digit that matters. */
typedef struct field_sums {
    double shift, sum, squares;
    int64_t count;
} field_sums;

static void add_frame(const ups_sample *geometry, const float *frame, field_sums *sums) {
    int64_t points = ups_sample_frame_elements(geometry) / geometry->channels;
    for (int64_t c = 0; c < geometry->channels; c++) {
        int64_t step = geometry->order == UPS_CHANNELS_LAST ? geometry->channels : 1;
        const float *value = frame + (geometry->order == UPS_CHANNELS_LAST ? c : c * points);
        if (sums[c].count == 0) sums[c].shift = value[0];
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < points; i++) {
            double d = value[i * step] - sums[c].shift;
            sum += d;
            squares += d * d;
        }
        sums[c].sum += sum;
        sums[c].squares += squares;
        sums[c].count += points;
    }
}

static const char *field_name(const ups_task *task, int64_t channel) {
    const char *const *names = task->source->channel_names;
    return names && names[channel] ? names[channel] : "";
}

/* A parameter that stands in every frame, such as Darcy's force, is meant so; a field that was never written is not. */
static void say_constant(const ups_task *task, int64_t channel, double value) {
    ups_log(UPS_LOG_WARNING,
            "task %s: field %lld (%s) is %g everywhere in the training data%s; it is normalised with deviation 1, and "
            "nothing can be learnt from it",
            task->name, (long long)channel, field_name(task, channel), value,
            task->geometry.dtype == UPS_F64 ? ", rounded to float32 as it is read (what changes less shows once "
                                              "a constant near it is subtracted in its file)"
                                            : "");
}

/* Fields are read as float32, whose numbers near a large mean lie far apart: what changes less than that is lost, from
 * the truth that errors are measured against, too, so that no error shows it. */
static void say_coarse(const ups_task *task, int64_t channel, double mean, double deviation) {
    enum { FEWEST_STEPS = 1000 };
    const double spacing = fabs(mean) * (double)(FLT_EPSILON / 2);
    if (deviation >= FEWEST_STEPS * spacing) return;
    ups_log(
        UPS_LOG_WARNING,
        "task %s: field %lld (%s) has a mean of %.7g and a deviation of only %.3g, of which float32, as which fields "
        "are read, tells about %.2g steps apart: the rest is rounded off, from the truth that errors are measured "
        "against as well, so that they do not show it. Subtract a constant near the mean from the field, in the "
        "precision of its file",
        task->name, (long long)channel, field_name(task, channel), mean, deviation, deviation / spacing);
}

/* Whether mean and scale of a field can normalise anything. `from`: the file that tells them; NULL: measured. */
static ups_status check_pair(const char *from, const ups_task *task, int64_t channel, ups_error *error) {
    float mean = task->statistics[2 * channel], scale = task->statistics[2 * channel + 1];
    if (isfinite(mean) && isnormal(scale) && scale > 0 && isnormal(1 / scale)) return UPS_OK;
    bool of_mean = !isfinite(mean);
    return ups_fail(error, from ? UPS_ERR_FORMAT : UPS_ERR_NUMERIC,
                    "%s%stask %s: the %s of field %lld (%s) is %g, and no field can be normalised with it; %s",
                    from ? from : "", from ? ": " : "", task->name, of_mean ? "mean" : "scale", (long long)channel,
                    field_name(task, channel), (double)(of_mean ? mean : scale),
                    from ? "restore the file, or remove it to have the fields measured again"
                         : "look at its files with `ups data inspect`, and at the task's field_scale");
}

static ups_status measure_task(const ups_run_config *config, ups_task *task, ups_error *error) {
    int64_t channels = task->source->channels, have = task->splits.count[UPS_SPLIT_TRAIN];
    int64_t wanted = have < MOST_STATISTICS_SAMPLES ? have : MOST_STATISTICS_SAMPLES;
    if (have == 0) {
        return ups_fail(error, UPS_ERR_CONFIG,
                        "task %s: its training split (data.split.train) holds no samples to measure mean and deviation "
                        "on, and there is no trained model to take them from",
                        task->name);
    }
    int64_t *chosen = malloc((size_t)wanted * sizeof *chosen);
    field_sums *sums = calloc((size_t)channels, sizeof *sums);
    ups_loader *loader = NULL;
    ups_status status = UPS_OK;
    if (!chosen || !sums) {
        status = ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", task->name);
        goto cleanup;
    }
    for (int64_t i = 0; i < wanted; i++) chosen[i] = task->splits.samples[UPS_SPLIT_TRAIN][i * have / wanted];
    ups_loader_options options = ups_sequential_loader_options(config);
    ups_loader_task loader_task = {
        .name = task->name, .source = task->source, .samples = chosen, .sample_count = wanted};
    status = ups_loader_open(&options, &loader_task, 1, &loader, error);
    while (status == UPS_OK) {
        const ups_batch *batch = NULL;
        status = ups_loader_next(loader, &batch, error);
        if (status != UPS_OK || !batch) break;
        bool skipped = batch->window[0].sample == UPS_NO_SAMPLE;
        for (int64_t f = 0; f < batch->frames && !skipped; f++) {
            add_frame(&task->geometry, (const float *)batch->data + f * batch->frame_elements, sums);
        }
        ups_loader_release(loader, batch);
    }
    if (status == UPS_OK) ups_loader_report_bad(loader, 0);
    if (status == UPS_OK && sums[0].count == 0) {
        status = ups_fail(error, UPS_ERR_NUMERIC,
                          "task %s: every sample of the training split holds NaN or infinite values: its data needs "
                          "repair first",
                          task->name);
    }
    for (int64_t c = 0; c < channels && status == UPS_OK; c++) {
        double mean = sums[c].sum / (double)sums[c].count, value = mean + sums[c].shift;
        double variance = sums[c].squares / (double)sums[c].count - mean * mean;
        double deviation = variance > 0 ? sqrt(variance) : 0;
        double scale = task->config->field_scale_count ? (double)task->config->field_scale[c] : 1;
        if (deviation < (double)FLT_MIN) {
            say_constant(task, c, value);
            deviation = 1;
        } else {
            say_coarse(task, c, value, deviation);
        }
        task->statistics[2 * c] = (float)value;
        task->statistics[2 * c + 1] = (float)(scale / deviation);
        status = check_pair(NULL, task, c, error);
    }

cleanup:
    ups_loader_close(loader);
    free(sums);
    free(chosen);
    return status;
}

/* ---- latents ----------------------------------------------------------------------------------------------------- */

static ups_status choose_dim(const ups_run_config *config, ups_task *task, ups_error *error) {
    ups_patch_basis basis;
    task->dim = 0;
    UPS_TRY(ups_patch_basis_find(config, task, &basis, error));
    task->dim = basis.dim;
    ups_log(UPS_LOG_INFO,
            "task %s: %lld numbers stand for the %lld of a patch; held-out fields read back to nRMSE %.2g", task->name,
            (long long)basis.dim, (long long)basis.numbers, basis.error);
    if (basis.error > config->autoencoder.target) {
        ups_log(
            UPS_LOG_WARNING,
            "task %s: autoencoder.target (%g) cannot be reached: FP16 alone, which the cache rounds latents to, loses "
            "more of a field that lies far below its mean in places. Raise the target to this error, or take it as it "
            "is",
            task->name, config->autoencoder.target);
    }
    ups_patch_basis_free(&basis);
    return UPS_OK;
}

/* ---- what was measured, and on what ------------------------------------------------------------------------------ */

/* Whether the numbers of a token are found by measuring. */
static bool chooses_dim(const ups_run_config *config) {
    return ups_run_on_grid(config) && config->model.dim == 0;
}

/* What statistics depend on: {"source": fingerprint of the files, "files": their names, "split": hash of the training
 * samples' indices, "samples": how many, "field_scale": [...]}, and "segment": frames, where trajectories are cut, and
 * "thin": every how many-th point is taken, where not all are. */
static ups_status describe_origin(const ups_run_config *config, const ups_task *task, json_t **origin,
                                  ups_error *error) {
    char source[33], split[33];
    const ups_source *from = task->source;
    const int64_t *samples = task->splits.samples[UPS_SPLIT_TRAIN];
    int64_t count = task->splits.count[UPS_SPLIT_TRAIN];
    UPS_TRY(ups_fingerprint_source(from->files, from->file_count, NULL, 0, source, error));
    ups_hash_hex(ups_hash_bytes(samples, (size_t)count * sizeof *samples), split);
    json_t *files = json_array(), *scale = json_array();
    for (int64_t f = 0; f < from->file_count; f++) {
        const char *slash = strrchr(from->files[f], '/');
        json_array_append_new(files, json_string(slash ? slash + 1 : from->files[f]));
    }
    for (unsigned c = 0; c < task->config->field_scale_count; c++) {
        json_array_append_new(scale, json_real((double)task->config->field_scale[c]));
    }
    *origin = json_pack("{s:s, s:o, s:s, s:I, s:o}", "source", source, "files", files, "split", split, "samples",
                        (json_int_t)count, "field_scale", scale);
    if (*origin && task->config->segment > 0)
        json_object_set_new(*origin, "segment", json_integer(task->config->segment));
    json_t *thin = ups_task_describe_thin(task);
    if (*origin && thin) json_object_set(*origin, "thin", thin);
    json_decref(thin);
    if (*origin && chooses_dim(config)) {
        json_t *patch = json_array();
        for (int a = 0; a < task->geometry.dims; a++) json_array_append_new(patch, json_integer(task->patch[a]));
        json_object_set_new(*origin, "latents",
                            json_pack("{s:f, s:o}", "target", config->autoencoder.target, "patch", patch));
    }
    return *origin ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", task->name);
}

/* What differs between the origin that was kept and that of now, as words of a sentence; "" where they are alike. */
static void find_difference(const json_t *kept, const json_t *now, char *words, size_t bytes) {
    static const struct {
        const char *key, *words;
    } parts[] = {{"files", "its files have other names"},
                 {"source", "its files have other contents"},
                 {"samples", "its training split has another number of samples"},
                 {"segment", "its trajectories are cut otherwise"},
                 {"thin", "other points of its grid are taken"},
                 {"split", "its training split has other samples"},
                 {"field_scale", "its field_scale was changed"},
                 {"latents", "its patch or autoencoder.target was changed"}};
    words[0] = '\0';
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !words[0]; i++) {
        const json_t *before = json_object_get(kept, parts[i].key), *here = json_object_get(now, parts[i].key);
        if (json_equal(before, here) || (!before && !here)) continue;
        snprintf(words, bytes, "%s", parts[i].words);
    }
}

/* [mean, scale, …] of `entry`, each plausible. */
static ups_status read_statistics(const char *path, const json_t *entry, ups_task *task, ups_error *error) {
    const json_t *values = json_object_get(entry, "statistics");
    size_t wanted = 2 * (size_t)task->source->channels;
    bool fits = json_array_size(values) == wanted;
    for (size_t i = 0; i < wanted && fits; i++) {
        const json_t *value = json_array_get(values, i);
        fits = json_is_number(value);
        task->statistics[i] = (float)json_number_value(value);
    }
    if (!fits) {
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: '%s.statistics' is not a list of %zu numbers, a mean and a scale for each field; restore "
                        "the file, or remove it to have them measured anew",
                        path, task->name, wanted);
    }
    for (int64_t c = 0; c < task->source->channels; c++) UPS_TRY(check_pair(path, task, c, error));
    const json_t *dim = json_object_get(entry, "dim");
    task->dim = json_integer_value(dim);
    if (!dim || (task->dim >= 1 && task->dim <= ups_task_patch_numbers(task))) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s: '%s.dim' is not between 1 and the %lld numbers of a patch; restore the file, or remove it to "
                    "have them measured anew",
                    path, task->name, (long long)ups_task_patch_numbers(task));
}

/* Statistics that an earlier command measured on the same; not *recalled, and why in the log, when they have to be
 * measured. */
static ups_status recall_task(const char *path, const json_t *kept, const json_t *origin, ups_task *task,
                              bool *recalled, ups_error *error) {
    const json_t *entry = json_object_get(kept, task->name);
    char difference[100] = "";
    *recalled = false;
    if (!json_object_get(entry, "origin")) entry = NULL; /* it tells of data alone (ups_tasks_record_data) */
    if (entry) find_difference(json_object_get(entry, "origin"), origin, difference, sizeof difference);
    if (entry && !difference[0]) {
        *recalled = true;
        return read_statistics(path, entry, task, error);
    }
    if (entry)
        ups_log(UPS_LOG_WARNING, "task %s: %s since its normalisation was measured; it is measured anew", task->name,
                difference);
    else
        ups_log(UPS_LOG_INFO, "task %s: measuring mean and deviation of its fields", task->name);
    return UPS_OK;
}

static json_t *record_task(const ups_task *task, json_t *origin) {
    json_t *values = json_array();
    for (int64_t i = 0; i < 2 * task->source->channels; i++) {
        json_array_append_new(values, json_real((double)task->statistics[i]));
    }
    json_t *record = json_pack("{s:o, s:o}", "origin", origin, "statistics", values);
    if (task->dim > 0) json_object_set_new(record, "dim", json_integer(task->dim));
    return record;
}

/* ---- what a model brings along ---------------------------------------------------------------------------------- */

/* "TASK.PART" of the model's origin (origin.h) as JSON; NULL where the file does not tell. */
static json_t *told(const ups_safetensors *model, const char *task, const char *part) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", task, part);
    const char *text = ups_safetensors_metadata(model, key);
    return text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
}

static ups_status check_fit(const char *path, const ups_task *task, const json_t *normalisation, const json_t *encoder,
                            ups_error *error) {
    size_t fields = json_array_size(normalisation), axes = json_array_size(json_object_get(encoder, "patch"));
    if (fields != (size_t)task->source->channels) {
        return ups_fail(error, UPS_ERR_STALE,
                        "task %s: the model in %s was trained on %zu fields, these files have %lld; give it files of "
                        "the PDE it was trained on",
                        task->name, path, fields, (long long)task->source->channels);
    }
    if (axes == 0 || axes == (size_t)task->geometry.dims) return UPS_OK;
    return ups_fail(error, UPS_ERR_STALE,
                    "task %s: the model in %s was trained on fields with %zu grid axes, these files have %d; give it "
                    "files of the PDE it was trained on",
                    task->name, path, axes, task->geometry.dims);
}

static void take_frequencies(const json_t *decoder, ups_task *task) {
    const json_t *frequencies = json_object_get(decoder, "frequencies");
    double finest = 0;
    for (size_t f = 0; f < json_array_size(frequencies); f++) {
        double value = json_number_value(json_array_get(frequencies, f));
        if (value > finest) finest = value;
    }
    if (json_array_size(frequencies) > 0) task->finest_frequency = finest;
}

static ups_status take_pair(const char *path, const json_t *pair, ups_task *task, int64_t channel, ups_error *error) {
    const json_t *mean = json_array_get(pair, 0), *scale = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_number(mean) || !json_is_number(scale)) {
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: '%s.normalisation' has no mean and scale for field %lld; restore the file, or train it "
                        "again (`ups train --restart`)",
                        path, task->name, (long long)channel);
    }
    task->statistics[2 * channel] = (float)json_number_value(mean);
    task->statistics[2 * channel + 1] = (float)json_number_value(scale);
    return check_pair(path, task, channel, error);
}

/* Sets the statistics of those tasks that the model tells of. */
static ups_status take_from_model(const char *path, ups_tasks *tasks, bool *taken, ups_error *error) {
    ups_safetensors *model = NULL;
    UPS_TRY(ups_safetensors_open(path, &model, error));
    ups_status status = UPS_OK;
    for (int i = 0; i < tasks->count && status == UPS_OK; i++) {
        ups_task *task = &tasks->task[i];
        json_t *normalisation = told(model, task->name, "normalisation"), *encoder = told(model, task->name, "encoder");
        json_t *decoder = told(model, task->name, "decoder");
        if (normalisation && !json_is_array(normalisation)) {
            status =
                ups_fail(error, UPS_ERR_FORMAT,
                         "%s: '%s.normalisation' is not a list; restore the file, or train it again", path, task->name);
        }
        if (json_is_array(normalisation)) {
            status = check_fit(path, task, normalisation, encoder, error);
            for (int64_t c = 0; c < task->source->channels && status == UPS_OK; c++) {
                status = take_pair(path, json_array_get(normalisation, (size_t)c), task, c, error);
            }
            take_frequencies(decoder, task);
            task->dim = json_integer_value(json_object_get(encoder, "dim"));
            taken[i] = true;
        }
        json_decref(normalisation);
        json_decref(encoder);
        json_decref(decoder);
    }
    ups_safetensors_close(model);
    return status;
}

/* ---- all tasks --------------------------------------------------------------------------------------------------- */

/* Recalled or measured, and noted in `record`. */
static ups_status find_statistics(const ups_run_config *config, const char *path, ups_task *task, const json_t *kept,
                                  json_t *record, bool *measured, ups_error *error) {
    json_t *origin = NULL;
    bool recalled = false;
    UPS_TRY(describe_origin(config, task, &origin, error));
    ups_status status = recall_task(path, kept, origin, task, &recalled, error);
    if (status == UPS_OK && !recalled) {
        *measured = true;
        status = measure_task(config, task, error);
        if (status == UPS_OK && chooses_dim(config)) status = choose_dim(config, task, error);
        if (status == UPS_OK)
            status = ups_splits_compare(&config->data, task->config, task->source, &task->splits, error);
    }
    if (status != UPS_OK) {
        json_decref(origin);
        return status;
    }
    json_object_set_new(record, task->name, record_task(task, origin));
    return UPS_OK;
}

/* Where a task's data are not what the model's normalisation was measured on, that is said: it is meant when a model is
 * tried on other files, and a surprise when field_scale was changed. */
static ups_status tell_of_difference(const ups_run_config *config, const ups_task *task, const json_t *kept,
                                     ups_error *error) {
    const json_t *before = json_object_get(json_object_get(kept, task->name), "origin");
    json_t *origin = NULL;
    char difference[100];
    if (!before) return UPS_OK;
    UPS_TRY(describe_origin(config, task, &origin, error));
    find_difference(before, origin, difference, sizeof difference);
    if (difference[0]) {
        ups_log(UPS_LOG_INFO,
                "task %s: %s since the model was trained; its normalisation is the model's (`ups train --restart` "
                "measures it anew)",
                task->name, difference);
    }
    json_decref(origin);
    return UPS_OK;
}

/* What the run trains a task on, as far as it is written down. Where statistics were measured on it, that is their
 * origin. */
static const json_t *data_of(const json_t *kept, const ups_task *task) {
    const json_t *entry = json_object_get(kept, task->name), *data = json_object_get(entry, "trained_on");
    return data ? data : json_object_get(entry, "origin");
}

static ups_status check_data(const ups_run_config *config, const ups_task *task, const json_t *kept, bool refuse,
                             ups_error *error) {
    const json_t *before = data_of(kept, task);
    json_t *origin = NULL;
    char difference[100];
    if (!before) return UPS_OK;
    UPS_TRY(describe_origin(config, task, &origin, error));
    find_difference(before, origin, difference, sizeof difference);
    json_decref(origin);
    if (difference[0] && refuse) {
        return ups_fail(
            error, UPS_ERR_STALE,
            "task %s: %s since the run began, below data.root: %s; point data.root at those it began with, or make a "
            "new run for these (--fork DIR)",
            task->name, difference, config->data.root);
    }
    if (difference[0]) {
        ups_log(
            UPS_LOG_WARNING,
            "task %s: %s since the run began; what was trained then stays, and the rest is trained on what is there "
            "now (--restart trains all of it anew)",
            task->name, difference);
    }
    return UPS_OK;
}

/* Adds it to `kept` unless it is there. */
static ups_status note_data(const ups_run_config *config, const ups_task *task, json_t *kept, bool *changed,
                            ups_error *error) {
    json_t *origin = NULL, *entry = json_object_get(kept, task->name);
    UPS_TRY(describe_origin(config, task, &origin, error));
    if (!json_equal(data_of(kept, task), origin)) {
        *changed = true;
        if (!entry) json_object_set_new(kept, task->name, entry = json_object());
        json_object_del(entry, "trained_on");
        if (!json_equal(json_object_get(entry, "origin"), origin)) json_object_set(entry, "trained_on", origin);
    }
    json_decref(origin);
    return UPS_OK;
}

/* An object; NULL where there is no file. */
static ups_status read_kept(const char *path, json_t **kept, ups_error *error) {
    *kept = NULL;
    if (!ups_path_exists(path)) return UPS_OK;
    UPS_TRY(ups_json_read(path, kept, error));
    if (json_is_object(*kept)) return UPS_OK;
    json_decref(*kept);
    *kept = NULL;
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s: an object was expected; restore the file, or remove it to have fields measured anew", path);
}

/* Of several processes one writes. */
static ups_status publish_kept(const ups_run_config *config, const char *path, const json_t *record, ups_error *error) {
    if (ups_launch_find().rank != 0) return UPS_OK;
    UPS_TRY(ups_make_directories(config->output, error));
    return ups_json_publish(path, record, error);
}

ups_status ups_tasks_check_data(const ups_run_config *config, const ups_tasks *tasks, bool refuse, ups_error *error) {
    char *path = ups_run_path(config, "normalisation.json");
    json_t *kept = NULL;
    ups_status status = path ? read_kept(path, &kept, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    for (int i = 0; i < tasks->count && status == UPS_OK; i++)
        status = check_data(config, &tasks->task[i], kept, refuse, error);
    json_decref(kept);
    free(path);
    return status;
}

ups_status ups_tasks_record_data(const ups_run_config *config, const ups_tasks *tasks, ups_error *error) {
    char *path = ups_run_path(config, "normalisation.json");
    json_t *kept = NULL;
    bool changed = false;
    ups_status status = path ? read_kept(path, &kept, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK && !kept) kept = json_object();
    for (int i = 0; i < tasks->count && status == UPS_OK; i++)
        status = note_data(config, &tasks->task[i], kept, &changed, error);
    if (status == UPS_OK && changed) status = publish_kept(config, path, kept, error);
    json_decref(kept);
    free(path);
    return status;
}

static ups_status make_room(ups_tasks *tasks, ups_error *error) {
    for (int i = 0; i < tasks->count; i++) {
        ups_task *task = &tasks->task[i];
        if (!task->statistics) task->statistics = malloc(2 * (size_t)task->source->channels * sizeof(float));
        if (!task->statistics) return ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", task->name);
    }
    return UPS_OK;
}

ups_status ups_tasks_normalise_by_model(ups_tasks *tasks, const char *model, ups_error *error) {
    bool taken[UPS_SAMPLER_MAX_TASKS] = {false};
    UPS_TRY(make_room(tasks, error));
    UPS_TRY(take_from_model(model, tasks, taken, error));
    for (int i = 0; i < tasks->count; i++) {
        if (taken[i]) continue;
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: does not tell how fields of task %s are normalised; it is of an earlier version, or of "
                        "another run than the operator",
                        model, tasks->task[i].name);
    }
    return UPS_OK;
}

ups_status ups_tasks_normalise_as_trained(const ups_run_config *config, ups_tasks *tasks, const char *model,
                                          ups_error *error) {
    bool taken[UPS_SAMPLER_MAX_TASKS] = {false}, measured = false;
    UPS_TRY(make_room(tasks, error));
    if (model) UPS_TRY(take_from_model(model, tasks, taken, error));
    char *path = ups_run_path(config, "normalisation.json");
    if (!path) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    json_t *kept = NULL;
    ups_status status = read_kept(path, &kept, error);
    json_t *record = kept ? json_copy(kept) : json_object();
    for (int i = 0; i < tasks->count && status == UPS_OK; i++) {
        ups_task *task = &tasks->task[i];
        status = taken[i] ? tell_of_difference(config, task, kept, error)
                          : find_statistics(config, path, task, kept, record, &measured, error);
    }
    if (status == UPS_OK && measured) status = publish_kept(config, path, record, error);
    json_decref(record);
    json_decref(kept);
    free(path);
    return status;
}
