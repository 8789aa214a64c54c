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

/* What a group of the split is to be, with what the description points to. */
typedef struct described {
    ups_cache_description description;
    double *time, *parameters;
    json_t *source, *encoder, *normalisation;
} described;

static void free_described(described *d) {
    json_decref(d->source);
    json_decref(d->encoder);
    json_decref(d->normalisation);
    free(d->parameters);
    free(d->time);
}

/* To be freed, whatever the outcome. The device is the caller's to tell. */
static ups_status describe(const ups_run_config *config, const ups_task *task, ups_split split, described *d,
                           ups_error *error) {
    int64_t samples = task->splits.count[split], times = task->geometry.times;
    int parameter_count = task->source->parameter_count;
    *d = (described){.time = malloc((size_t)(samples * times) * sizeof *d->time),
                     .parameters = malloc((size_t)(samples * parameter_count + 1) * sizeof *d->parameters),
                     .source = json_array(),
                     .encoder = ups_latents_describe_encoder(config, task),
                     .normalisation = ups_networks_describe_normalisation(task)};
    for (int64_t f = 0; f < task->source->file_count; f++) {
        json_array_append_new(d->source, json_string(task->source->files[f]));
    }
    d->description = (ups_cache_description){
        .task = task->name,
        .split = ups_split_name(split),
        .samples = samples,
        .times = times,
        .tokens = ups_task_latents(config, task).tokens,
        .dim = ups_task_latents(config, task).dim,
        .time = d->time,
        .parameter_count = parameter_count,
        .parameter_names = task->source->parameter_names,
        .parameters = d->parameters,
        .source_samples = task->splits.samples[split],
        .files = task->source->files,
        .file_count = task->source->file_count,
        .source = d->source,
        .encoder = d->encoder,
        .normalisation = d->normalisation,
        .codec = {.portable = config->cache.codec == UPS_CACHE_PORTABLE, .level = (int)config->cache.level},
        .max_abs_error = ups_latents_error_bound(config),
        .samples_per_shard = config->cache.samples_per_shard,
        .on_bad_sample = config->cache.on_bad_sample,
    };
    if (!d->time || !d->parameters) return ups_fail(error, UPS_ERR_MEMORY, "cache: out of memory");
    UPS_TRY(gather(task, split, d->time, d->parameters, &d->description.time_per_sample, error));
    return ups_latents_fingerprint(config, task, split, &d->description.fingerprint, error);
}

ups_status ups_latents_write(const ups_run_config *config, const ups_task *task, ups_split split,
                             ups_latents_writing writing, ups_cache_writer **writer, ups_error *error) {
    described d;
    ups_cache_description *description = &d.description;
    char *directory = ups_run_cache_directory(config);
    ups_status status = describe(config, task, split, &d, error);
    if (status == UPS_OK && !directory) status = ups_fail(error, UPS_ERR_MEMORY, "cache: out of memory");
    description->repair = writing.repair;
    description->broken = writing.broken;
    description->broken_count = writing.broken_count;
    description->rank = writing.rank;
    description->ranks = writing.ranks;
    if (status == UPS_OK) choose_device(directory, task, split, &writing, &description->fingerprint);
    if (status == UPS_OK) status = ups_cache_writer_open(directory, description, writer, error);
    free_described(&d);
    free(directory);
    return status;
}

ups_status ups_latents_check_extension(const ups_run_config *config, const ups_task *task, ups_split split,
                                       const char *group, const char *device, ups_error *error) {
    described d;
    ups_status status = describe(config, task, split, &d, error);
    snprintf(d.description.fingerprint.device, sizeof d.description.fingerprint.device, "%s", device);
    if (status == UPS_OK) status = ups_cache_would_extend(group, &d.description, error);
    free_described(&d);
    return status;
}
