#include "train/cache_build/latents_writer.h"

#include "base/files.h"
#include "cache/store/group.h"
#include "train/data/latents.h"
#include "train/networks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Time grids and parameters of the split's samples, as the cache keeps them. */
static ups_status gather(const ups_task *task, ups_split split, double *time, double *parameters, bool *per_sample,
                         ups_error *error) {
    int64_t times = task->geometry.times;
    int parameter_count = task->source->parameter_count;
    *per_sample = false;
    for (int64_t i = 0; i < task->splits.count[split]; i++) {
        ups_sample sample;
        UPS_TRY(ups_source_describe(task->source, task->splits.samples[split][i], &sample, error));
        memcpy(time + i * times, sample.time, (size_t)times * sizeof *time);
        if (memcmp(time, sample.time, (size_t)times * sizeof *time) != 0) *per_sample = true;
        for (int p = 0; p < parameter_count; p++) parameters[i * parameter_count + p] = sample.parameters[p];
    }
    return UPS_OK;
}

/* Whose latents the group is to have: this device's, or, where it is whole and there is nothing to add, those of the
 * device that made it. */
static void choose_device(const char *cache, const ups_task *task, ups_split split, const ups_latents_writing *writing,
                          ups_fingerprint *fingerprint) {
    char *directory = NULL;
    ups_cache_group *group = NULL;
    snprintf(fingerprint->device, sizeof fingerprint->device, "%s", writing->device ? writing->device : "cpu");
    if (writing->repair || writing->broken_count > 0) return;
    if (asprintf(&directory, "%s/%s/%s", cache, task->name, ups_split_name(split)) < 0) return;
    if (ups_path_exists(directory) && ups_cache_group_open(directory, &group, NULL) == UPS_OK && group->complete &&
        strcmp(group->fingerprint.source, fingerprint->source) == 0)
        memcpy(fingerprint->device, group->fingerprint.device, sizeof fingerprint->device);
    ups_cache_group_close(group);
    free(directory);
}

ups_status ups_latents_write(const ups_run_config *config, const ups_task *task, ups_split split,
                             ups_latents_writing writing, ups_cache_writer **writer, ups_error *error) {
    int64_t samples = task->splits.count[split], times = task->geometry.times;
    int parameter_count = task->source->parameter_count;
    double *time = malloc((size_t)(samples * times) * sizeof *time);
    double *parameters = malloc((size_t)(samples * parameter_count + 1) * sizeof *parameters);
    char *directory = ups_run_cache_directory(config);
    json_t *source = json_array(), *encoder_json = ups_latents_describe_encoder(config, task),
           *normalisation = ups_networks_describe_normalisation(task);
    for (int64_t f = 0; f < task->source->file_count; f++) {
        json_array_append_new(source, json_string(task->source->files[f]));
    }
    ups_cache_description description = {
        .task = task->name,
        .split = ups_split_name(split),
        .samples = samples,
        .times = times,
        .tokens = ups_task_latents(config, task).tokens,
        .dim = ups_task_latents(config, task).dim,
        .time = time,
        .parameter_count = parameter_count,
        .parameter_names = task->source->parameter_names,
        .parameters = parameters,
        .source_samples = task->splits.samples[split],
        .files = task->source->files,
        .file_count = task->source->file_count,
        .source = source,
        .encoder = encoder_json,
        .normalisation = normalisation,
        .codec = {.portable = config->cache.codec == UPS_CACHE_PORTABLE, .level = (int)config->cache.level},
        .max_abs_error = ups_latents_error_bound(config),
        .samples_per_shard = config->cache.samples_per_shard,
        .on_bad_sample = config->cache.on_bad_sample,
        .repair = writing.repair,
        .broken = writing.broken,
        .broken_count = writing.broken_count,
        .rank = writing.rank,
        .ranks = writing.ranks,
    };
    ups_status status =
        time && parameters && directory ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "cache: out of memory");
    if (status == UPS_OK) status = gather(task, split, time, parameters, &description.time_per_sample, error);
    if (status == UPS_OK) status = ups_latents_fingerprint(config, task, split, &description.fingerprint, error);
    if (status == UPS_OK) choose_device(directory, task, split, &writing, &description.fingerprint);
    if (status == UPS_OK) status = ups_cache_writer_open(directory, &description, writer, error);
    json_decref(source);
    json_decref(encoder_json);
    json_decref(normalisation);
    free(directory);
    free(parameters);
    free(time);
    return status;
}
