#include "train/checkpoint.h"

#include "base/files.h"
#include "base/json.h"
#include "model/safetensors.h"
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES 512

/* One flat buffer as a family of tensors: `prefix` before each parameter's name. */
typedef struct family {
    const char *prefix;
    float *buffer; /* device memory; NULL: this run has none */
} family;

enum { FAMILIES = 4 };

static void find_families(ups_parameters *parameters, ups_optimizer *optimizer, family families[FAMILIES]) {
    families[0] = (family){"", ups_parameters_values(parameters)};
    families[1] = (family){"adamw.first_moment.", ups_optimizer_first_moment(optimizer)};
    families[2] = (family){"adamw.second_moment.", ups_optimizer_second_moment(optimizer)};
    families[3] = (family){"ema.", ups_optimizer_average(optimizer)};
}

static ups_status write_families(const char *path, const family *families, int family_count, ups_device *device,
                                 ups_parameters *parameters, ups_error *error) {
    int32_t count = ups_parameters_count(parameters);
    size_t bytes = (size_t)ups_parameters_elements(parameters) * sizeof(float);
    float *host = malloc(bytes);
    if (!host)
        return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for a copy of the weights (%zu bytes)", path, bytes);

    ups_safetensors_writer *writer = ups_safetensors_writer_create();
    for (int f = 0; f < family_count; f++) {
        if (!families[f].buffer) continue;
        for (int32_t i = 0; i < count; i++) {
            const ups_parameter *parameter = ups_parameters_get(parameters, i);
            char name[NAME_BYTES];
            snprintf(name, sizeof name, "%s%s", families[f].prefix, parameter->name);
            ups_safetensors_writer_declare(writer, name, UPS_F32, parameter->rank, parameter->size);
        }
    }
    ups_status status = ups_safetensors_writer_begin(writer, path, error);
    for (int f = 0; f < family_count && status == UPS_OK; f++) {
        if (!families[f].buffer) continue;
        status = device->class->download(device, host, families[f].buffer, bytes, error);
        for (int32_t i = 0; i < count && status == UPS_OK; i++) {
            const ups_parameter *parameter = ups_parameters_get(parameters, i);
            status = ups_safetensors_writer_append(writer, host + parameter->offset,
                                                   (size_t)parameter->elements * sizeof(float), error);
        }
    }
    free(host);
    if (status == UPS_OK) return ups_safetensors_writer_commit(writer, error);
    ups_safetensors_writer_abandon(writer);
    return status;
}

static ups_status read_family(const ups_safetensors *file, const char *path, const family *wanted, ups_device *device,
                              ups_parameters *parameters, ups_error *error) {
    size_t bytes = (size_t)ups_parameters_elements(parameters) * sizeof(float);
    float *host = calloc(1, bytes);
    if (!host)
        return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for a copy of the weights (%zu bytes)", path, bytes);
    ups_status status = UPS_OK;
    for (int32_t i = 0; i < ups_parameters_count(parameters) && status == UPS_OK; i++) {
        const ups_parameter *parameter = ups_parameters_get(parameters, i);
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%s%s", wanted->prefix, parameter->name);
        const ups_safetensor *tensor = ups_safetensors_find(file, name);
        uint64_t expected = (uint64_t)parameter->elements * sizeof(float);
        bool fits = tensor && tensor->known_dtype && tensor->dtype == UPS_F32 && tensor->bytes == expected &&
                    tensor->rank == parameter->rank &&
                    memcmp(tensor->size, parameter->size, (size_t)parameter->rank * sizeof(int64_t)) == 0;
        if (!fits) {
            status = ups_fail(error, UPS_ERR_FORMAT,
                              "%s: tensor '%s' is %s; the checkpoint was made with another model configuration (start "
                              "without --resume, or restore the configuration)",
                              path, name, tensor ? "of another shape or type" : "missing");
            break;
        }
        status = ups_safetensors_read(file, tensor, host + parameter->offset, error);
    }
    if (status == UPS_OK) status = device->class->upload(device, wanted->buffer, host, bytes, error);
    free(host);
    return status;
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

ups_status ups_checkpoint_save(const char *directory, const ups_training_state *state, ups_device *device,
                               ups_parameters *parameters, ups_optimizer *optimizer, ups_error *error) {
    UPS_TRY(ups_make_directories(directory, error));
    UPS_TRY(ups_remove_partials(directory, error));
    char file[64], path[4096];
    snprintf(file, sizeof file, "step-%08lld.safetensors", (long long)state->step);
    snprintf(path, sizeof path, "%s/%s", directory, file);
    family families[FAMILIES];
    find_families(parameters, optimizer, families);
    UPS_TRY(write_families(path, families, FAMILIES, device, parameters, error));

    json_t *json = json_pack("{s:i, s:I, s:I, s:f, s:s}", "format", 1, "step", (json_int_t)state->step, "seed",
                             (json_int_t)state->seed, "running_loss", state->running_loss, "file", file);
    if (!json) return ups_fail(error, UPS_ERR_NUMERIC, "%s: the training state is not finite", directory);
    if (isfinite(state->score)) json_object_set_new(json, "score", json_real(state->score));
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
    if (status == UPS_OK && strchr(file, '/')) {
        status = ups_fail(error, UPS_ERR_FORMAT, "%s: 'file' must name a file beside it, not '%s'", latest, file);
    }
    if (status == UPS_OK) {
        const json_t *score = json_object_get(json, "score");
        state->score = json_is_number(score) ? json_number_value(score) : (double)NAN;
        state->seed = (uint64_t)seed;
        snprintf(path, 4096, "%s/%s", directory, file);
    }
    json_decref(json);
    free(latest);
    return status;
}

ups_status ups_checkpoint_load(const char *directory, ups_training_state *state, ups_device *device,
                               ups_parameters *parameters, ups_optimizer *optimizer, ups_error *error) {
    char path[4096];
    UPS_TRY(read_state(directory, state, path, error));
    ups_safetensors *file = NULL;
    UPS_TRY(ups_safetensors_open(path, &file, error));
    family families[FAMILIES];
    find_families(parameters, optimizer, families);
    ups_status status = UPS_OK;
    for (int f = 0; f < FAMILIES && status == UPS_OK; f++) {
        if (families[f].buffer) status = read_family(file, path, &families[f], device, parameters, error);
    }
    ups_safetensors_close(file);
    if (status == UPS_OK && ups_parameters_bf16(parameters)) status = ups_parameters_refresh_bf16(parameters, error);
    return status;
}

ups_status ups_model_export(const char *path, ups_device *device, ups_parameters *parameters, ups_optimizer *optimizer,
                            ups_error *error) {
    float *average = optimizer ? ups_optimizer_average(optimizer) : NULL;
    family weights = {"", average ? average : ups_parameters_values(parameters)};
    return write_families(path, &weights, 1, device, parameters, error);
}
