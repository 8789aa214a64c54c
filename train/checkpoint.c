#include "train/checkpoint.h"

#include "base/files.h"
#include "train/origin.h"
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BUFFERS = 4 };

/* The flat buffers that a run has, each a family of tensors with its prefix. */
static int find_buffers(ups_parameters *parameters, ups_optimizer *optimizer, ups_parameter_buffer out[MOST_BUFFERS]) {
    int count = 0;
    out[count++] = (ups_parameter_buffer){"", ups_parameters_values(parameters)};
    out[count++] = (ups_parameter_buffer){"adamw.first_moment.", ups_optimizer_first_moment(optimizer)};
    out[count++] = (ups_parameter_buffer){"adamw.second_moment.", ups_optimizer_second_moment(optimizer)};
    if (ups_optimizer_average(optimizer)) {
        out[count++] = (ups_parameter_buffer){"ema.", ups_optimizer_average(optimizer)};
    }
    return count;
}

static char *latest_path(const char *directory) {
    char *path = NULL;
    return asprintf(&path, "%s/latest.json", directory) < 0 ? NULL : path;
}

bool ups_checkpoint_exists(const char *directory) {
    char *path = latest_path(directory);
    bool exists = path && ups_path_exists(path);
    free(path);
    return exists;
}

static void remove_older(const char *directory, const char *keep) {
    DIR *listing = opendir(directory);
    if (!listing) return;
    for (struct dirent *entry; (entry = readdir(listing));) {
        size_t length = strlen(entry->d_name);
        bool ours = strncmp(entry->d_name, "step-", 5) == 0 && length > 12 &&
                    strcmp(entry->d_name + length - 12, ".safetensors") == 0;
        if (ours && strcmp(entry->d_name, keep) != 0) unlinkat(dirfd(listing), entry->d_name, 0);
    }
    closedir(listing);
}

ups_status ups_checkpoint_save(const char *directory, const ups_training_state *state, ups_parameters *parameters,
                               ups_optimizer *optimizer, ups_error *error) {
    UPS_TRY(ups_make_directories(directory, error));
    UPS_TRY(ups_remove_partials(directory, error));
    char file[64], path[4096];
    snprintf(file, sizeof file, "step-%08lld.safetensors", (long long)state->step);
    snprintf(path, sizeof path, "%s/%s", directory, file);
    ups_parameter_buffer buffers[MOST_BUFFERS];
    int count = find_buffers(parameters, optimizer, buffers);
    UPS_TRY(ups_parameters_save_buffers(parameters, NULL, buffers, count, state->origin, path, error));

    json_t *json = json_pack("{s:i, s:I, s:I, s:I, s:f, s:s}", "format", 1, "step", (json_int_t)state->step, "seed",
                             (json_int_t)state->seed, "batch_size", (json_int_t)state->batch_size, "running_loss",
                             state->running_loss, "file", file);
    if (!json) return ups_fail(error, UPS_ERR_NUMERIC, "%s: the training state is not finite", directory);
    if (isfinite(state->score)) json_object_set_new(json, "score", json_real(state->score));
    if (state->sampling) json_object_set_new(json, "sampling", ups_task_sampling_to_json(state->sampling));
    char *latest = latest_path(directory);
    ups_status status =
        latest ? ups_json_publish(latest, json, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    json_decref(json);
    free(latest);
    if (status == UPS_OK) remove_older(directory, file);
    return status;
}

static ups_status read_state(const char *directory, ups_training_state *state, char path[4096], ups_error *error) {
    char *latest = latest_path(directory);
    if (!latest) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    json_t *json = NULL;
    const char *file = NULL;
    int64_t seed = 0;
    ups_status status = ups_json_read(latest, &json, error);
    if (status == UPS_OK) status = ups_json_integer(json, "step", latest, &state->step, error);
    if (status == UPS_OK) status = ups_json_integer(json, "seed", latest, &seed, error);
    if (status == UPS_OK) status = ups_json_real(json, "running_loss", latest, &state->running_loss, error);
    if (status == UPS_OK) status = ups_json_string(json, "file", latest, &file, error);
    if (status == UPS_OK && (uint64_t)seed != state->seed) {
        status =
            ups_fail(error, UPS_ERR_STALE,
                     "%s: the checkpoint is of a run with seed %llu, this one has seed %llu; go on with that seed, "
                     "or begin anew with --restart",
                     latest, (unsigned long long)seed, (unsigned long long)state->seed);
    }
    const json_t *sampling = json_object_get(json, "sampling");
    if (status == UPS_OK && sampling && state->sampling) {
        status = ups_task_sampling_from_json(state->sampling, sampling, latest, error);
    }
    if (status == UPS_OK && strchr(file, '/')) {
        status = ups_fail(error, UPS_ERR_FORMAT, "%s: 'file' must name a file beside it, not '%s'", latest, file);
    }
    if (status == UPS_OK) {
        const json_t *score = json_object_get(json, "score");
        state->score = json_is_number(score) ? json_number_value(score) : (double)NAN;
        snprintf(path, 4096, "%s/%s", directory, file);
    }
    json_decref(json);
    free(latest);
    return status;
}

ups_status ups_checkpoint_load(const char *directory, ups_training_state *state, ups_parameters *parameters,
                               ups_optimizer *optimizer, ups_error *error) {
    char path[4096];
    UPS_TRY(read_state(directory, state, path, error));
    ups_parameter_buffer buffers[MOST_BUFFERS];
    int count = find_buffers(parameters, optimizer, buffers);
    ups_status status = ups_origin_check(path, state->origin, error);
    if (status == UPS_OK) status = ups_parameters_load_buffers(parameters, NULL, buffers, count, path, true, error);
    if (status == UPS_ERR_FORMAT || status == UPS_ERR_STALE) {
        ups_fail_within(error,
                        "the checkpoint does not fit this configuration (restore it, or begin anew with --restart)");
    }
    if (status == UPS_OK) { /* a run killed while saving may have left these */
        remove_older(directory, strrchr(path, '/') + 1);
        status = ups_remove_partials(directory, error);
    }
    return status;
}

ups_status ups_checkpoint_batch_size(const char *directory, int64_t *batch_size, ups_error *error) {
    *batch_size = 0;
    if (!ups_checkpoint_exists(directory)) return UPS_OK;
    char *latest = latest_path(directory);
    if (!latest) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    json_t *json = NULL;
    ups_status status = ups_json_read(latest, &json, error);
    if (status == UPS_OK) status = ups_json_integer(json, "batch_size", latest, batch_size, error);
    json_decref(json);
    free(latest);
    return status;
}

ups_status ups_model_export(const char *path, ups_parameters *parameters, ups_optimizer *optimizer,
                            const json_t *origin, ups_error *error) {
    float *average = optimizer ? ups_optimizer_average(optimizer) : NULL;
    ups_parameter_buffer weights = {"", average ? average : ups_parameters_values(parameters)};
    return ups_parameters_save_buffers(parameters, NULL, &weights, 1, origin, path, error);
}
