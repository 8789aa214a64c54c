#include "train/checkpoint.h"

#include "base/files.h"
#include "model/parameters/safetensors.h"
#include "train/data/origin.h"
#include "train/precision.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BUFFERS = 1 + UPS_OPTIMIZER_MAX_BUFFERS, FORMAT = 1, FILE_NAME = 64 };

#define STEP_KEY "checkpoint.step" /* in the tensors' metadata */
#define SCORE_KEY "checkpoint.score"
#define BEST_FILE "best.safetensors"
#define STABLE_BEST_FILE "stable-best.safetensors"
static const char latest_name[] = "latest.json", stable_name[] = "stable.json";

/* The flat buffers that a run has, each a family of tensors with its prefix. */
static int find_buffers(ups_parameters *parameters, ups_optimizer *optimizer, ups_parameter_buffer out[MOST_BUFFERS]) {
    out[0] = (ups_parameter_buffer){.prefix = "", .values = ups_parameters_values(parameters)};
    return 1 + ups_optimizer_buffers(optimizer, out + 1);
}

/* DIRECTORY/NAME; free with free(). */
static char *path_in(const char *directory, const char *name) {
    char *path = NULL;
    return asprintf(&path, "%s/%s", directory, name) < 0 ? NULL : path;
}

static bool is_in(const char *directory, const char *name) {
    char *path = path_in(directory, name);
    bool exists = path && ups_path_exists(path);
    free(path);
    return exists;
}

bool ups_checkpoint_exists(const char *directory) {
    return is_in(directory, latest_name);
}

/* ---- latest.json ------------------------------------------------------------------------------------------------ */

/* latest.json as it stands, every value plausible. */
typedef struct record {
    char *path;
    json_t *json; /* owns the texts */
    int64_t step, seed, batch_size;
    double running_loss, score; /* NaN: none */
    ups_precision precision;
    const char *file;
} record;

static const char damaged[] = "the checkpoint's state is damaged (restore it, or begin anew with --restart)";

static ups_status refuse(const char *latest, const char *key, const char *expected, ups_error *error) {
    return ups_fail(error, UPS_ERR_FORMAT, "%s: '%s' is not %s", latest, key, expected);
}

static ups_status refuse_number(const char *latest, const char *key, double value, const char *expected,
                                ups_error *error) {
    return ups_fail(error, UPS_ERR_FORMAT, "%s: '%s' is %g; %s was expected", latest, key, value, expected);
}

static ups_status read_precision(const char *latest, record *r, ups_error *error) {
    const json_t *told = json_object_get(r->json, "precision");
    r->precision = UPS_PRECISION_AUTO;
    if (!told) return UPS_OK; /* a checkpoint of before it told */
    const char *name = json_string_value(told);
    if (name && ups_precision_find(name, &r->precision) && r->precision != UPS_PRECISION_AUTO) return UPS_OK;
    return refuse(latest, "precision", "f32, tf32, bf16, fp16 or fp8", error);
}

static ups_status read_losses(const char *latest, record *r, ups_error *error) {
    const json_t *score = json_object_get(r->json, "score");
    UPS_TRY(ups_json_real(r->json, "running_loss", latest, &r->running_loss, error));
    if (r->running_loss < 0) return refuse_number(latest, "running_loss", r->running_loss, "0 or more", error);
    r->score = NAN;
    if (!score) return UPS_OK;
    UPS_TRY(ups_json_real(r->json, "score", latest, &r->score, error));
    return r->score >= 0 ? UPS_OK : refuse_number(latest, "score", r->score, "0 or more", error);
}

static void name_file(int64_t step, char file[FILE_NAME]) {
    snprintf(file, FILE_NAME, "step-%08lld.safetensors", (long long)step);
}

static ups_status read_record(const char *latest, record *r, ups_error *error) {
    int64_t format = 0;
    char file[FILE_NAME];
    UPS_TRY(ups_json_integer(r->json, "format", latest, &format, error));
    if (format != FORMAT) {
        return ups_fail(error, UPS_ERR_UNSUPPORTED,
                        "%s: 'format' is %lld; this version of UPS reads format %d (use the version that wrote it)",
                        latest, (long long)format, FORMAT);
    }
    UPS_TRY(ups_json_integer(r->json, "step", latest, &r->step, error));
    if (r->step < 0) return refuse_number(latest, "step", (double)r->step, "0 or more", error);
    UPS_TRY(ups_json_integer(r->json, "seed", latest, &r->seed, error));
    UPS_TRY(ups_json_integer(r->json, "batch_size", latest, &r->batch_size, error));
    if (r->batch_size < 1) return refuse_number(latest, "batch_size", (double)r->batch_size, "1 or more", error);
    UPS_TRY(read_losses(latest, r, error));
    UPS_TRY(read_precision(latest, r, error));
    UPS_TRY(ups_json_string(r->json, "file", latest, &r->file, error));
    if (strchr(r->file, '/')) {
        return ups_fail(error, UPS_ERR_FORMAT, "%s: 'file' must name a file beside it, not '%s'", latest, r->file);
    }
    name_file(r->step, file);
    if (strcmp(file, r->file) == 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT, "%s: 'step' is %lld, and 'file' names '%s'; '%s' was expected", latest,
                    (long long)r->step, r->file, file);
}

static void close_record(record *r) {
    json_decref(r->json);
    free(r->path);
}

/* To be closed, whatever the outcome. */
static ups_status open_record_of(const char *directory, const char *name, record *r, ups_error *error) {
    *r = (record){.path = path_in(directory, name)};
    if (!r->path) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = ups_json_read(r->path, &r->json, error);
    if (status == UPS_OK) status = read_record(r->path, r, error);
    if (status == UPS_ERR_FORMAT) {
        ups_fail_within(error, "%s", damaged);
    }
    return status;
}

static ups_status open_record(const char *directory, record *r, ups_error *error) {
    return open_record_of(directory, latest_name, r, error);
}

/* {task: {"sum": …, "windows": …}} of the tasks that were drawn, to the last bit. */
static json_t *write_interval(const ups_loss_sums *interval) {
    json_t *json = json_object();
    for (int t = 0; t < interval->tasks; t++) {
        if (interval->count[t] == 0) continue;
        json_object_set_new(
            json, interval->task_names[t],
            json_pack("{s:f, s:I}", "sum", interval->sum[t], "windows", (json_int_t)interval->count[t]));
    }
    return json;
}

/* The same of each loss by itself. */
static json_t *write_parts(const ups_loss_sums *interval) {
    json_t *json = json_object();
    for (int i = 0; i < UPS_MAX_LOSSES; i++) {
        if (interval->part_count[i] == 0) continue;
        json_object_set_new(
            json, interval->loss_names[i],
            json_pack("{s:f, s:I}", "sum", interval->part[i], "windows", (json_int_t)interval->part_count[i]));
    }
    return json;
}

static ups_status read_parts(const record *r, ups_loss_sums *interval, ups_error *error) {
    json_t *json = json_object_get(r->json, "interval_losses"), *entry;
    const char *name;
    memset(interval->part, 0, sizeof interval->part);
    memset(interval->part_count, 0, sizeof interval->part_count);
    if (!json) return UPS_OK; /* likewise */
    UPS_TRY(ups_json_object(r->json, "interval_losses", r->path, &json, error));
    json_object_foreach(json, name, entry) {
        int i = 0;
        while (i < UPS_MAX_LOSSES && !(interval->loss_names[i] && strcmp(interval->loss_names[i], name) == 0)) i++;
        if (i == UPS_MAX_LOSSES) {
            return ups_fail(error, UPS_ERR_FORMAT, "%s: 'interval_losses' names '%s', which is no loss of this stage",
                            r->path, name);
        }
        UPS_TRY(ups_json_real(entry, "sum", r->path, &interval->part[i], error));
        UPS_TRY(ups_json_integer(entry, "windows", r->path, &interval->part_count[i], error));
        if (interval->part[i] < 0 || interval->part_count[i] < 1) {
            return ups_fail(error, UPS_ERR_FORMAT, "%s: 'interval_losses' has %g over %lld windows for %s", r->path,
                            interval->part[i], (long long)interval->part_count[i], name);
        }
    }
    return UPS_OK;
}

static ups_status read_interval(const record *r, ups_loss_sums *interval, ups_error *error) {
    json_t *json = json_object_get(r->json, "interval"), *entry;
    const char *name;
    memset(interval->sum, 0, sizeof interval->sum);
    memset(interval->count, 0, sizeof interval->count);
    if (!json) return UPS_OK; /* a checkpoint of before it was kept: the next line is of fewer steps */
    UPS_TRY(ups_json_object(r->json, "interval", r->path, &json, error));
    json_object_foreach(json, name, entry) {
        int t = 0;
        while (t < interval->tasks && strcmp(interval->task_names[t], name) != 0) t++;
        if (t == interval->tasks) {
            return ups_fail(error, UPS_ERR_FORMAT, "%s: 'interval' has losses of '%s', which is no task of this run",
                            r->path, name);
        }
        UPS_TRY(ups_json_real(entry, "sum", r->path, &interval->sum[t], error));
        UPS_TRY(ups_json_integer(entry, "windows", r->path, &interval->count[t], error));
        if (interval->sum[t] < 0 || interval->count[t] < 1) {
            return ups_fail(error, UPS_ERR_FORMAT, "%s: 'interval' has a loss of %g over %lld windows for task %s",
                            r->path, interval->sum[t], (long long)interval->count[t], name);
        }
    }
    return UPS_OK;
}

static json_t *write_loss_scale(const ups_update_state *state) {
    return json_pack("{s:f, s:I, s:I}", "scale", (double)state->loss_scale, "good_steps", (json_int_t)state->good_steps,
                     "skipped", (json_int_t)state->skipped);
}

/* Of an optimizer that scales losses, and there always. */
static ups_status read_loss_scale(const record *r, ups_update_state *state, ups_error *error) {
    json_t *json = NULL;
    double scale = 0;
    UPS_TRY(ups_json_object(r->json, "loss_scale", r->path, &json, error));
    UPS_TRY(ups_json_real(json, "scale", r->path, &scale, error));
    UPS_TRY(ups_json_integer(json, "good_steps", r->path, &state->good_steps, error));
    UPS_TRY(ups_json_integer(json, "skipped", r->path, &state->skipped, error));
    state->loss_scale = (float)scale;
    if (scale >= (double)UPS_LOSS_SCALE_MINIMUM && scale <= (double)UPS_LOSS_SCALE_MAXIMUM && state->good_steps >= 0 &&
        state->good_steps < UPS_LOSS_SCALE_GOOD_STEPS && state->skipped >= 0 && state->skipped <= r->step) {
        return UPS_OK;
    }
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s: 'loss_scale' is %g after %lld good steps and %lld skipped ones, which no run can have left",
                    r->path, scale, (long long)state->good_steps, (long long)state->skipped);
}

/* Steps that may have moved a parameter. */
static int64_t most_taken(const ups_update_state *state, int64_t step) {
    return step - state->skipped;
}

/* {parameter: steps that moved it}; those that every step moved are left out. */
static json_t *write_taken(const ups_parameters *parameters, const ups_update_state *state, int64_t step) {
    json_t *taken = json_object();
    for (int32_t i = 0; i < ups_parameters_count(parameters); i++) {
        const ups_parameter *parameter = ups_parameters_get(parameters, i);
        if (state->taken[parameter->set] != most_taken(state, step))
            json_object_set_new(taken, parameter->name, json_integer((json_int_t)state->taken[parameter->set]));
    }
    return taken;
}

/* Of a set whose parameters tell different numbers (they were in several sets), the smallest. */
static ups_status read_taken(const record *r, const ups_parameters *parameters, ups_update_state *state,
                             ups_error *error) {
    json_t *taken = json_object_get(r->json, "taken"), *steps;
    const int64_t most = most_taken(state, r->step);
    const char *name;
    for (int32_t set = 0; set < ups_parameters_sets(parameters); set++) state->taken[set] = most;
    if (!taken) return UPS_OK; /* a checkpoint of before there were sets: every step counts */
    UPS_TRY(ups_json_object(r->json, "taken", r->path, &taken, error));
    json_object_foreach(taken, name, steps) {
        const int32_t parameter = ups_parameters_find(parameters, name);
        if (parameter < 0)
            return ups_fail(error, UPS_ERR_FORMAT, "%s: 'taken' names '%s', which is no parameter of this run", r->path,
                            name);
        if (!json_is_integer(steps) || json_integer_value(steps) < 0 || json_integer_value(steps) > most)
            return refuse(r->path, "taken", "an object of numbers of steps", error);
        int64_t *of = &state->taken[ups_parameters_get(parameters, parameter)->set];
        if (json_integer_value(steps) < *of) *of = json_integer_value(steps);
    }
    return UPS_OK;
}

/* {"step": …, "score": …, "stale": …, "tasks": {task: loss}} */
static json_t *write_best(const ups_training_state *state) {
    const ups_best_score *best = &state->best;
    json_t *tasks = json_object();
    for (int t = 0; t < state->interval.tasks; t++) {
        if (isfinite(best->task[t]))
            json_object_set_new(tasks, state->interval.task_names[t], json_real(best->task[t]));
    }
    return json_pack("{s:I, s:f, s:I, s:o}", "step", (json_int_t)best->step, "score", best->score, "stale",
                     (json_int_t)best->stale, "tasks", tasks);
}

static ups_status read_best(const record *r, ups_training_state *state, ups_error *error) {
    ups_best_score *best = &state->best;
    json_t *json = json_object_get(r->json, "best"), *tasks, *loss;
    const char *name;
    *best = (ups_best_score){0};
    if (!json) return UPS_OK; /* no validation fell due yet */
    UPS_TRY(ups_json_object(r->json, "best", r->path, &json, error));
    UPS_TRY(ups_json_integer(json, "step", r->path, &best->step, error));
    UPS_TRY(ups_json_real(json, "score", r->path, &best->score, error));
    UPS_TRY(ups_json_integer(json, "stale", r->path, &best->stale, error));
    UPS_TRY(ups_json_object(json, "tasks", r->path, &tasks, error));
    if (best->step < 1 || best->step > r->step || best->score < 0 || best->stale < 0 || best->stale > r->step) {
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: 'best' is a score of %g at step %lld, %lld validations before, which no run can have left",
                        r->path, best->score, (long long)best->step, (long long)best->stale);
    }
    for (int t = 0; t < state->interval.tasks; t++) best->task[t] = NAN;
    json_object_foreach(tasks, name, loss) {
        int t = 0;
        while (t < state->interval.tasks && strcmp(state->interval.task_names[t], name) != 0) t++;
        if (t == state->interval.tasks && t > 0) {
            return ups_fail(error, UPS_ERR_FORMAT, "%s: 'best' has a loss of '%s', which is no task of this run",
                            r->path, name);
        }
        if (!json_is_number(loss)) return refuse(r->path, "best.tasks", "an object of numbers", error);
        if (t < state->interval.tasks) best->task[t] = json_number_value(loss);
    }
    return UPS_OK;
}

static json_t *write_plateau(const ups_plateau *plateau) {
    return json_pack("{s:f, s:I, s:I}", "best", plateau->best, "stale", (json_int_t)plateau->stale, "cuts",
                     (json_int_t)plateau->cuts);
}

static ups_status read_plateau(const record *r, ups_plateau *plateau, ups_error *error) {
    json_t *json = json_object_get(r->json, "plateau");
    *plateau = (ups_plateau){0};
    if (!json) return UPS_OK; /* of another schedule, or of before its first validation */
    UPS_TRY(ups_json_object(r->json, "plateau", r->path, &json, error));
    UPS_TRY(ups_json_real(json, "best", r->path, &plateau->best, error));
    UPS_TRY(ups_json_integer(json, "stale", r->path, &plateau->stale, error));
    UPS_TRY(ups_json_integer(json, "cuts", r->path, &plateau->cuts, error));
    plateau->begun = true;
    if (plateau->best >= 0 && plateau->stale >= 0 && plateau->stale <= r->step && plateau->cuts >= 0 &&
        plateau->cuts <= r->step) {
        return UPS_OK;
    }
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s: 'plateau' is a best score of %g, %lld validations before, and a rate cut %lld times, which no "
                    "run can have left",
                    r->path, plateau->best, (long long)plateau->stale, (long long)plateau->cuts);
}

/* What the record has for a run of this state. */
static ups_status take_state(const record *r, ups_training_state *state, ups_error *error) {
    if ((uint64_t)r->seed != state->seed) {
        return ups_fail(error, UPS_ERR_STALE,
                        "%s: the checkpoint is of a run with seed %llu, this one has seed %llu; go on with that seed, "
                        "or begin anew with --restart",
                        r->path, (unsigned long long)r->seed, (unsigned long long)state->seed);
    }
    if (r->precision != UPS_PRECISION_AUTO && state->precision != UPS_PRECISION_AUTO &&
        r->precision != state->precision) {
        return ups_fail(error, UPS_ERR_STALE,
                        "%s: the checkpoint is of a run in %s, this one computes in %s; go on in that precision, or "
                        "begin anew with --restart",
                        r->path, ups_precision_name(r->precision), ups_precision_name(state->precision));
    }
    const json_t *sampling = json_object_get(r->json, "sampling");
    if (sampling && state->sampling) {
        UPS_TRY(ups_task_sampling_from_json(state->sampling, sampling, r->path, error));
    }
    if (state->interval.tasks > 0) UPS_TRY(read_interval(r, &state->interval, error));
    if (state->interval.loss_names) UPS_TRY(read_parts(r, &state->interval, error));
    UPS_TRY(read_best(r, state, error));
    UPS_TRY(read_plateau(r, &state->plateau, error));
    state->step = r->step;
    state->running_loss = r->running_loss;
    state->score = r->score;
    return UPS_OK;
}

/* ---- saving and loading ------------------------------------------------------------------------------------------ */

/* The step of "step-00001000.safetensors"; −1 for any other name. */
static int64_t step_of(const char *name) {
    char *end = NULL;
    if (strncmp(name, "step-", 5) != 0) return -1;
    long long step = strtoll(name + 5, &end, 10);
    return end - name > 8 && strcmp(end, ".safetensors") == 0 ? step : -1;
}

static int newest_first(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return left < right ? 1 : left > right ? -1 : 0;
}

/* Keeps the latest and the newest before it, and that of stable.json; those after it are of a run that was killed and
 * is done again. */
static void remove_older(const char *directory, const ups_training_state *state) {
    DIR *listing = opendir(directory);
    if (!listing) return;
    int64_t *steps = NULL, stable = -1;
    ups_error ignored; /* what is damaged keeps nothing */
    if (ups_checkpoint_stable_step(directory, &stable, &ignored) != UPS_OK) stable = -1;
    size_t count = 0, keep = state->keep > 1 ? (size_t)state->keep : 1, kept = 0;
    for (struct dirent *entry; (entry = readdir(listing));) {
        int64_t step = step_of(entry->d_name), *longer = step >= 0 ? realloc(steps, (count + 1) * sizeof *steps) : NULL;
        if (!longer) continue;
        steps = longer;
        steps[count++] = step;
    }
    if (steps) qsort(steps, count, sizeof *steps, newest_first);
    for (size_t i = 0; i < count; i++) {
        char file[FILE_NAME];
        name_file(steps[i], file);
        if (steps[i] <= state->step && (kept++ < keep || steps[i] == stable)) continue;
        unlinkat(dirfd(listing), file, 0);
    }
    free(steps);
    closedir(listing);
}

/* The tensors tell their step, too. */
static ups_status save_tensors(const char *path, const ups_training_state *state, ups_parameters *parameters,
                               const ups_parameter_buffer *buffers, int count, const ups_parameter_gather *gather,
                               ups_error *error) {
    char step[24];
    snprintf(step, sizeof step, "%lld", (long long)state->step);
    json_t *metadata = state->origin ? json_copy((json_t *)state->origin) : json_object();
    if (!metadata || json_object_set_new(metadata, STEP_KEY, json_string(step)) != 0) {
        json_decref(metadata);
        return ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", path);
    }
    ups_status status = ups_parameters_save_buffers(parameters, NULL, buffers, count, gather, metadata, path, error);
    json_decref(metadata);
    return status;
}

static ups_status check_step(const char *path, int64_t expected, ups_error *error) {
    ups_safetensors *file = NULL;
    UPS_TRY(ups_safetensors_open(path, &file, error));
    const char *told = ups_safetensors_metadata(file, STEP_KEY);
    ups_status status = UPS_OK;
    if (told && strtoll(told, NULL, 10) != expected) {
        status = ups_fail(error, UPS_ERR_FORMAT, "%s: its weights are of step %s; latest.json says %lld", path, told,
                          (long long)expected);
    }
    ups_safetensors_close(file);
    return status;
}

/* latest.json, which makes the step's tensors the latest ones. */
static ups_status publish_latest(const char *directory, const char *file, const ups_training_state *state,
                                 ups_parameters *parameters, ups_optimizer *optimizer, ups_error *error) {
    json_t *json = json_pack("{s:i, s:I, s:I, s:I, s:f, s:s}", "format", FORMAT, "step", (json_int_t)state->step,
                             "seed", (json_int_t)state->seed, "batch_size", (json_int_t)state->batch_size,
                             "running_loss", state->running_loss, "file", file);
    if (!json) return ups_fail(error, UPS_ERR_NUMERIC, "%s: the training state is not finite", directory);
    if (state->precision != UPS_PRECISION_AUTO) {
        json_object_set_new(json, "precision", json_string(ups_precision_name(state->precision)));
    }
    if (isfinite(state->score)) json_object_set_new(json, "score", json_real(state->score));
    if (state->best.step > 0) json_object_set_new(json, "best", write_best(state));
    if (state->plateau.begun) json_object_set_new(json, "plateau", write_plateau(&state->plateau));
    if (state->interval.tasks > 0) json_object_set_new(json, "interval", write_interval(&state->interval));
    if (state->interval.loss_names) json_object_set_new(json, "interval_losses", write_parts(&state->interval));
    const ups_update_state update = ups_optimizer_state(optimizer);
    if (ups_optimizer_scales_losses(optimizer)) json_object_set_new(json, "loss_scale", write_loss_scale(&update));
    json_object_set_new(json, "taken", write_taken(parameters, &update, state->step));
    if (state->sampling) json_object_set_new(json, "sampling", ups_task_sampling_to_json(state->sampling));
    char *latest = path_in(directory, latest_name);
    ups_status status =
        latest ? ups_json_publish(latest, json, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    json_decref(json);
    free(latest);
    return status;
}

ups_status ups_checkpoint_save(const char *directory, const ups_training_state *state, ups_parameters *parameters,
                               ups_optimizer *optimizer, const ups_parameter_gather *gather, ups_error *error) {
    const bool writes = !gather || gather->writes;
    char file[FILE_NAME], path[4096];
    if (writes) UPS_TRY(ups_make_directories(directory, error));
    if (writes) UPS_TRY(ups_remove_partials(directory, error));
    name_file(state->step, file);
    snprintf(path, sizeof path, "%s/%s", directory, file);
    ups_parameter_buffer buffers[MOST_BUFFERS];
    int count = find_buffers(parameters, optimizer, buffers);
    UPS_TRY(save_tensors(path, state, parameters, buffers, count, gather, error));
    if (!writes) return UPS_OK;
    UPS_TRY(publish_latest(directory, file, state, parameters, optimizer, error));
    remove_older(directory, state);
    return UPS_OK;
}

ups_status ups_checkpoint_save_best(const char *directory, const ups_training_state *state, ups_parameters *parameters,
                                    ups_optimizer *optimizer, const ups_parameter_gather *gather, ups_error *error) {
    char path[4096], step[24], score[40];
    if (!gather || gather->writes) UPS_TRY(ups_make_directories(directory, error));
    snprintf(path, sizeof path, "%s/" BEST_FILE, directory);
    snprintf(step, sizeof step, "%lld", (long long)state->best.step);
    snprintf(score, sizeof score, "%.17g", state->best.score);
    ups_parameter_buffer buffers[2] = {{.prefix = "", .values = ups_parameters_values(parameters)},
                                       ups_optimizer_average_buffer(optimizer)};
    json_t *metadata = state->origin ? json_copy((json_t *)state->origin) : json_object();
    bool had = metadata && json_object_set_new(metadata, STEP_KEY, json_string(step)) == 0 &&
               json_object_set_new(metadata, SCORE_KEY, json_string(score)) == 0;
    ups_status status = had ? ups_parameters_save_buffers(parameters, NULL, buffers, buffers[1].values ? 2 : 1, gather,
                                                          metadata, path, error)
                            : ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", path);
    json_decref(metadata);
    return status;
}

ups_status ups_checkpoint_read(const char *directory, ups_training_state *state, ups_parameters *parameters,
                               ups_optimizer *optimizer, ups_error *error) {
    char path[4096];
    const bool scales = ups_optimizer_scales_losses(optimizer);
    ups_update_state update = {.loss_scale = 1};
    record r;
    ups_status status = open_record(directory, &r, error);
    if (status == UPS_OK) {
        snprintf(path, sizeof path, "%s/%s", directory, r.file);
        status = take_state(&r, state, error);
        if (status == UPS_OK && scales) status = read_loss_scale(&r, &update, error);
        if (status == UPS_OK) status = read_taken(&r, parameters, &update, error);
        if (status == UPS_ERR_FORMAT) ups_fail_within(error, "%s", damaged);
    }
    close_record(&r);
    UPS_TRY(status);
    ups_parameter_buffer buffers[MOST_BUFFERS];
    int count = find_buffers(parameters, optimizer, buffers);
    status = check_step(path, state->step, error);
    if (status == UPS_OK) status = ups_origin_check(path, state->origin, error);
    if (status == UPS_OK) status = ups_parameters_load_buffers(parameters, NULL, buffers, count, path, true, error);
    if (status == UPS_ERR_FORMAT || status == UPS_ERR_STALE) {
        ups_fail_within(error,
                        "the checkpoint does not fit this configuration (restore it, or begin anew with --restart)");
    }
    return status == UPS_OK ? ups_optimizer_restore(optimizer, &update, error) : status;
}

ups_status ups_checkpoint_load(const char *directory, ups_training_state *state, ups_parameters *parameters,
                               ups_optimizer *optimizer, ups_error *error) {
    UPS_TRY(ups_checkpoint_read(directory, state, parameters, optimizer, error));
    remove_older(directory, state); /* a run killed while saving may have left these */
    return ups_remove_partials(directory, error);
}

ups_status ups_checkpoint_file(const char *directory, char **path, ups_error *error) {
    record r;
    *path = NULL;
    ups_status status = open_record(directory, &r, error);
    if (status == UPS_OK && asprintf(path, "%s/%s", directory, r.file) < 0) {
        *path = NULL;
        status = ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    }
    close_record(&r);
    return status;
}

/* The score that best.safetensors tells; NaN where it tells none. */
static ups_status read_best_score(const char *path, double *score, ups_error *error) {
    ups_safetensors *file = NULL;
    UPS_TRY(ups_safetensors_open(path, &file, error));
    const char *told = ups_safetensors_metadata(file, SCORE_KEY);
    *score = told ? strtod(told, NULL) : (double)NAN;
    ups_safetensors_close(file);
    return UPS_OK;
}

ups_status ups_checkpoint_best_file(const char *directory, char **path, ups_error *error) {
    double score = NAN;
    *path = NULL;
    char *best = NULL;
    if (asprintf(&best, "%s/" BEST_FILE, directory) < 0) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    ups_status status = UPS_OK;
    bool there = ups_path_exists(best), later = false;
    if (there) status = read_best_score(best, &score, error);
    if (status == UPS_OK && (!there || ups_checkpoint_exists(directory))) {
        record r;
        status = open_record(directory, &r, error);
        later = status == UPS_OK && (!there || r.score < score);
        if (later && asprintf(path, "%s/%s", directory, r.file) < 0) {
            *path = NULL;
            status = ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        }
        close_record(&r);
    }
    if (status == UPS_OK && !later)
        *path = best;
    else
        free(best);
    return status;
}

static ups_status step_told(const char *directory, const char *name, int64_t *step, ups_error *error) {
    *step = -1;
    if (!is_in(directory, name)) return UPS_OK;
    record r;
    ups_status status = open_record_of(directory, name, &r, error);
    if (status == UPS_OK) *step = r.step;
    close_record(&r);
    return status;
}

ups_status ups_checkpoint_step(const char *directory, int64_t *step, ups_error *error) {
    return step_told(directory, latest_name, step, error);
}

ups_status ups_checkpoint_stable_step(const char *directory, int64_t *step, ups_error *error) {
    return step_told(directory, stable_name, step, error);
}

/* ---- the stable part -------------------------------------------------------------------------------------------- */

/* `to` becomes what `from` is, or is removed where there is none. */
static ups_status replace_file(const char *directory, const char *from, const char *to, ups_error *error) {
    char *source = path_in(directory, from), *target = path_in(directory, to);
    ups_status status = source && target ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK && ups_path_exists(source))
        status = ups_publish_copy(source, target, error);
    else if (status == UPS_OK && unlink(target) != 0 && !ups_errno_is_absent(errno))
        status = ups_fail_errno(error, "%s: cannot be removed", target);
    free(source);
    free(target);
    return status;
}

static ups_status publish_record(const char *directory, const record *r, const char *name, ups_error *error) {
    char *path = path_in(directory, name);
    ups_status status =
        path ? ups_json_publish(path, r->json, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    free(path);
    return status;
}

ups_status ups_checkpoint_keep_stable(const char *directory, ups_error *error) {
    record r;
    ups_status status = open_record(directory, &r, error);
    if (status == UPS_OK) status = replace_file(directory, BEST_FILE, STABLE_BEST_FILE, error);
    if (status == UPS_OK) status = publish_record(directory, &r, stable_name, error);
    close_record(&r);
    return status;
}

ups_status ups_checkpoint_go_back(const char *directory, ups_error *error) {
    record r;
    ups_status status = open_record_of(directory, stable_name, &r, error);
    if (status == UPS_OK && !is_in(directory, r.file))
        status = ups_fail(error, UPS_ERR_IO, "%s/%s, which %s names, is gone", directory, r.file, stable_name);
    if (status == UPS_OK) status = replace_file(directory, STABLE_BEST_FILE, BEST_FILE, error);
    if (status == UPS_OK) status = publish_record(directory, &r, latest_name, error);
    close_record(&r);
    return status;
}

ups_status ups_checkpoint_batch_size(const char *directory, int64_t *batch_size, ups_error *error) {
    *batch_size = 0;
    if (!ups_checkpoint_exists(directory)) return UPS_OK;
    record r;
    ups_status status = open_record(directory, &r, error);
    if (status == UPS_OK) *batch_size = r.batch_size;
    close_record(&r);
    return status;
}

ups_status ups_checkpoint_precision(const char *directory, ups_precision *precision, ups_error *error) {
    *precision = UPS_PRECISION_AUTO;
    if (!ups_checkpoint_exists(directory)) return UPS_OK;
    record r;
    ups_status status = open_record(directory, &r, error);
    if (status == UPS_OK) *precision = r.precision;
    close_record(&r);
    return status;
}

ups_status ups_model_export(const char *path, ups_parameters *parameters, ups_optimizer *optimizer,
                            const ups_parameter_gather *gather, const json_t *origin, ups_error *error) {
    ups_parameter_buffer weights = {.values = ups_parameters_values(parameters)};
    if (optimizer && ups_optimizer_average(optimizer)) weights = ups_optimizer_average_buffer(optimizer);
    weights.prefix = "";
    return ups_parameters_save_buffers(parameters, NULL, &weights, 1, gather, origin, path, error);
}
