/* The encoder runs on this thread (its kernels use all cores); compressing and writing happens on threads of its own
 * behind a short queue, so that neither waits for the other. */
#include "tools/encode.h"

#include "base/cancel.h"
#include "base/files.h"
#include "base/progress.h"
#include "base/threads.h"
#include "train/batches.h"
#include "train/latents.h"
#include "train/networks.h"
#include "train/origin.h"
#include "train/state.h"
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FRAMES_A_STEP 32    /* frames encoded at once: enough rows to fill the matmuls */
#define ENCODED_IN_FLIGHT 4 /* trajectories between the encoder and the writers */

typedef struct encoder {
    ups_parameters *parameters;
    ups_graph *graph;
    ups_step *step;
    ups_value field, latents;
    int64_t frames; /* a run */
    int64_t frame_elements, latent_elements;
} encoder;

typedef struct encoded_trajectory {
    int64_t sample; /* in the cache */
    const char *name;
    float *latents; /* (times, tokens, dim); from the pool of buffers, to which it goes back */
} encoded_trajectory;

/* The writers' side. */
typedef struct pouring {
    ups_cache_writer *writer;
    ups_queue *full, *empty; /* encoded_trajectory; float * */
    pthread_mutex_t lock;
    ups_status status; /* first failure */
    ups_error error;
} pouring;

static void encoder_close(encoder *e) {
    ups_step_destroy(e->step);
    ups_graph_destroy(e->graph);
    ups_parameters_destroy(e->parameters);
}

static ups_status encoder_open(const ups_stage_request *request, const ups_task *task, encoder *e, ups_error *error) {
    const ups_model_config *model = &request->config->model;
    *e = (encoder){.frame_elements = ups_sample_frame_elements(&task->geometry),
                   .latent_elements = model->tokens * model->dim};
    e->frames = task->geometry.times < FRAMES_A_STEP ? task->geometry.times : FRAMES_A_STEP;
    e->parameters = ups_parameters_create();
    e->graph = ups_graph_create(e->parameters, UPS_AUTOENCODER_COMPUTE);
    e->field = ups_graph_input(e->graph, "field", UPS_F32, UPS_SHAPE(e->frames, e->frame_elements));
    e->latents = ups_networks_encode(e->graph, request->config, task, e->field);
    ups_graph_keep(e->graph, e->latents);
    char *path = ups_run_model_path(request->config, UPS_STAGE_AUTOENCODER);
    json_t *origin = ups_origin_autoencoder(request->config, request->tasks);
    ups_status status = path && origin ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "cache: out of memory");
    if (status == UPS_OK) status = ups_origin_check(path, origin, error);
    if (status == UPS_OK) {
        status = ups_networks_load(e->parameters, request->device, UPS_AUTOENCODER_COMPUTE, path, error);
    }
    json_decref(origin);
    free(path);
    if (status == UPS_OK) status = ups_step_create(e->graph, request->device, &e->step, error);
    if (status != UPS_OK) encoder_close(e);
    return status;
}

/* Encodes `times` frames; the last run is moved back so that it is full, its first frames then encoded twice to the
 * same latents. */
static ups_status encode(encoder *e, const float *fields, int64_t times, float *latents, ups_error *error) {
    ups_step_run_options options = {.loss_scale = 1};
    for (int64_t t = 0; t < times; t += e->frames) {
        int64_t first = t + e->frames <= times ? t : times - e->frames;
        UPS_TRY(ups_step_upload(e->step, e->field, fields + first * e->frame_elements,
                                (size_t)(e->frames * e->frame_elements) * sizeof(float), error));
        UPS_TRY(ups_step_run(e->step, &options, error));
        UPS_TRY(ups_step_download(e->step, e->latents, latents + first * e->latent_elements,
                                  (size_t)(e->frames * e->latent_elements) * sizeof(float), error));
    }
    return UPS_OK;
}

static void *write_trajectories(void *context) {
    pouring *p = context;
    encoded_trajectory item;
    while (ups_queue_pop(p->full, &item)) {
        ups_error error;
        ups_status status = ups_cache_writer_put(p->writer, item.sample, item.name, item.latents, &error);
        if (status != UPS_OK) {
            pthread_mutex_lock(&p->lock);
            if (p->status == UPS_OK) {
                p->status = status;
                p->error = error;
            }
            pthread_mutex_unlock(&p->lock);
            ups_queue_close(p->empty); /* the encoder stops asking for buffers */
        }
        ups_queue_push(p->empty, &item.latents);
    }
    return NULL;
}

/* Everything from the loader to the queue, for the samples that the writer lacks. */
static ups_status encode_missing(const ups_stage_request *request, const ups_task *task, const int64_t *missing,
                                 const int64_t *cache_index, int64_t count, pouring *p, encoder *e,
                                 ups_progress *progress, int64_t done, ups_error *error) {
    ups_loader_options options = ups_sequential_loader_options(request->config);
    ups_loader_task loader_task = {
        .name = task->name, .source = task->source, .samples = missing, .sample_count = count};
    ups_loader *loader = NULL;
    UPS_TRY(ups_loader_open(&options, &loader_task, 1, &loader, error));
    ups_status status = UPS_OK;
    while (status == UPS_OK) {
        const ups_batch *batch = NULL;
        if (ups_cancel_requested()) {
            status = ups_fail(error, UPS_ERR_CANCELLED,
                              "cache: stopped after %lld trajectories of task %s; the same command goes on from there",
                              (long long)done, task->name);
            break;
        }
        status = ups_loader_next(loader, &batch, error);
        if (status != UPS_OK || !batch) break;
        if (batch->window[0].sample == UPS_NO_SAMPLE) { /* a bad one */
            status = ups_cache_writer_skip(p->writer, cache_index[batch->index], error);
        } else {
            encoded_trajectory item = {.sample = cache_index[batch->index]};
            ups_sample sample;
            status = ups_source_describe(task->source, missing[batch->index], &sample, error);
            item.name = sample.name;
            if (status == UPS_OK && !ups_queue_pop(p->empty, &item.latents)) break; /* a writer failed */
            if (status == UPS_OK) status = encode(e, batch->data, batch->frames, item.latents, error);
            if (status == UPS_OK) ups_queue_push(p->full, &item);
        }
        ups_loader_release(loader, batch);
        ups_progress_update(progress, ++done, NULL);
    }
    ups_loader_report_bad(loader, 0);
    ups_loader_close(loader);
    return status;
}

static ups_status pour(const ups_stage_request *request, const ups_task *task, const int64_t *missing,
                       const int64_t *cache_index, int64_t count, int64_t done, ups_cache_writer *writer,
                       ups_progress *progress, ups_error *error) {
    encoder e;
    UPS_TRY(encoder_open(request, task, &e, error));
    size_t bytes = (size_t)(task->geometry.times * e.latent_elements) * sizeof(float);
    float *buffers[ENCODED_IN_FLIGHT] = {0};
    pthread_t threads[2];
    int thread_count = 0, wanted = ups_cpu_count() > 1 ? 2 : 1;
    pouring p = {.writer = writer,
                 .full = ups_queue_create(sizeof(encoded_trajectory), ENCODED_IN_FLIGHT),
                 .empty = ups_queue_create(sizeof(float *), ENCODED_IN_FLIGHT)};
    pthread_mutex_init(&p.lock, NULL);
    ups_status status = p.full && p.empty ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "cache: out of memory");
    for (int i = 0; i < ENCODED_IN_FLIGHT && status == UPS_OK; i++) {
        buffers[i] = ups_aligned_alloc(64, bytes);
        if (!buffers[i])
            status = ups_fail(error, UPS_ERR_MEMORY, "cache: no memory for a trajectory of %zu bytes", bytes);
        if (buffers[i]) ups_queue_push(p.empty, &buffers[i]);
    }
    while (status == UPS_OK && thread_count < wanted) {
        if (pthread_create(&threads[thread_count], NULL, write_trajectories, &p) != 0) {
            status = ups_fail(error, UPS_ERR_MEMORY, "cache: a thread could not be started");
            break;
        }
        thread_count++;
    }
    if (status == UPS_OK) {
        status = encode_missing(request, task, missing, cache_index, count, &p, &e, progress, done, error);
    }
    if (p.full) ups_queue_close(p.full);
    for (int i = 0; i < thread_count; i++) pthread_join(threads[i], NULL);
    if (p.status != UPS_OK) { /* came first: whatever the encoder said followed from it */
        status = p.status;
        if (error) *error = p.error;
    }
    for (int i = 0; i < ENCODED_IN_FLIGHT; i++) ups_aligned_free(buffers[i]);
    ups_queue_destroy(p.full);
    ups_queue_destroy(p.empty);
    pthread_mutex_destroy(&p.lock);
    encoder_close(&e);
    return status;
}

/* ---- the cache's description ----------------------------------------------------------------------------------- */

/* Time grids and parameters of the split's samples, as the cache keeps them. */
static ups_status gather(const ups_task *task, ups_split split, double *time, double *parameters, bool *per_sample,
                         ups_error *error) {
    int64_t times = task->geometry.times;
    int parameter_count = task->source->parameter_count;
    *per_sample = false;
    for (int64_t i = 0; i < task->sample_count[split]; i++) {
        ups_sample sample;
        UPS_TRY(ups_source_describe(task->source, task->samples[split][i], &sample, error));
        memcpy(time + i * times, sample.time, (size_t)times * sizeof *time);
        if (memcmp(time, sample.time, (size_t)times * sizeof *time) != 0) *per_sample = true;
        for (int p = 0; p < parameter_count; p++) parameters[i * parameter_count + p] = sample.parameters[p];
    }
    return UPS_OK;
}

static ups_status open_writer(const ups_run_config *config, const ups_task *task, ups_split split,
                              ups_cache_writer **writer, ups_error *error) {
    int64_t samples = task->sample_count[split], times = task->geometry.times;
    int parameter_count = task->source->parameter_count;
    double *time = malloc((size_t)(samples * times) * sizeof *time);
    double *parameters = malloc((size_t)(samples * parameter_count + 1) * sizeof *parameters);
    char *directory = ups_run_cache_directory(config);
    json_t *source = json_array(), *encoder_json = ups_networks_describe_encoder(config, task),
           *normalisation = ups_networks_describe_normalisation(task);
    for (int64_t f = 0; f < task->source->file_count; f++) {
        json_array_append_new(source, json_string(task->source->files[f]));
    }
    ups_cache_description description = {
        .task = task->name,
        .split = ups_split_name(split),
        .samples = samples,
        .times = times,
        .tokens = config->model.tokens,
        .dim = config->model.dim,
        .time = time,
        .parameter_count = parameter_count,
        .parameter_names = task->source->parameter_names,
        .parameters = parameters,
        .source_samples = task->samples[split],
        .source = source,
        .encoder = encoder_json,
        .normalisation = normalisation,
        .codec = {.portable = config->cache.codec == UPS_CACHE_PORTABLE, .level = (int)config->cache.level},
        .samples_per_shard = config->cache.samples_per_shard,
        .on_bad_sample = config->cache.on_bad_sample,
    };
    ups_status status =
        time && parameters && directory ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "cache: out of memory");
    if (status == UPS_OK) status = gather(task, split, time, parameters, &description.time_per_sample, error);
    if (status == UPS_OK) status = ups_latents_fingerprint(config, task, split, &description.fingerprint, error);
    if (status == UPS_OK) status = ups_cache_writer_open(directory, &description, writer, error);
    json_decref(source);
    json_decref(encoder_json);
    json_decref(normalisation);
    free(directory);
    free(parameters);
    free(time);
    return status;
}

ups_status ups_encode_split(const ups_stage_request *request, const ups_task *task, ups_split split,
                            ups_encode_report *report, ups_error *error) {
    *report = (ups_encode_report){.task = task->name, .split = ups_split_name(split)};
    double began = ups_now();
    int64_t samples = task->sample_count[split], count = 0;
    ups_cache_writer *writer = NULL;
    UPS_TRY(open_writer(request->config, task, split, &writer, error));
    int64_t *missing = malloc((size_t)samples * sizeof *missing),
            *cache_index = malloc((size_t)samples * sizeof *cache_index);
    ups_status status = missing && cache_index ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "cache: out of memory");
    for (int64_t i = 0; i < samples && status == UPS_OK; i++) {
        if (ups_cache_writer_done(writer, i)) continue;
        missing[count] = task->samples[split][i];
        cache_index[count++] = i;
    }
    if (status == UPS_OK && count > 0) {
        char title[128];
        snprintf(title, sizeof title, "cache %s/%s", task->name, report->split);
        ups_progress *progress = ups_progress_begin(title, "trajectories", samples, samples - count);
        status = pour(request, task, missing, cache_index, count, samples - count, writer, progress, error);
        ups_progress_end(progress);
    }
    if (status == UPS_OK) status = ups_cache_writer_finish(writer, &report->summary, error);
    ups_cache_writer_close(writer);
    free(missing);
    free(cache_index);
    report->encoded = count;
    report->seconds = ups_now() - began;
    return status;
}

ups_status ups_encode_run(const ups_stage_request *request,
                          void (*visit)(void *context, const ups_encode_report *report), void *context,
                          ups_error *error) {
    for (int t = 0; t < request->tasks->count; t++) {
        const ups_task *task = &request->tasks->task[t];
        for (int s = 0; s < UPS_SPLIT_COUNT; s++) {
            if (task->sample_count[s] == 0) continue;
            ups_encode_report report;
            ups_status status = ups_encode_split(request, task, (ups_split)s, &report, error);
            if (status == UPS_ERR_STALE) {
                return ups_fail_within(error,
                                       "the cache there is another one (`ups cache build --restart` replaces it)");
            }
            if (status != UPS_OK) return status;
            if (visit) visit(context, &report);
        }
    }
    return UPS_OK;
}

/* ---- removal --------------------------------------------------------------------------------------------------- */

static ups_status remove_tree(const char *path, ups_error *error) {
    DIR *listing = opendir(path);
    if (!listing) return ups_fail_errno(error, "%s: cannot be listed", path);
    ups_status status = UPS_OK;
    for (struct dirent *entry; status == UPS_OK && (entry = readdir(listing));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char *child = NULL;
        if (asprintf(&child, "%s/%s", path, entry->d_name) < 0)
            status = ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        else if (entry->d_type == DT_DIR)
            status = remove_tree(child, error);
        else if (unlink(child) != 0)
            status = ups_fail_errno(error, "%s: cannot be removed", child);
        free(child);
    }
    closedir(listing);
    if (status == UPS_OK && rmdir(path) != 0) status = ups_fail_errno(error, "%s: cannot be removed", path);
    return status;
}

ups_status ups_encode_remove(const ups_run_config *config, ups_error *error) {
    char *cache = ups_run_cache_directory(config);
    ups_status status = cache ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    for (unsigned t = 0; t < config->task_count && status == UPS_OK; t++) {
        for (int s = 0; s < UPS_SPLIT_COUNT && status == UPS_OK; s++) {
            char *group = NULL, *metadata = NULL;
            if (asprintf(&group, "%s/%s/%s", cache, config->tasks[t].name, ups_split_name((ups_split)s)) < 0 ||
                asprintf(&metadata, "%s/latent/zarr.json", group) < 0) {
                status = ups_fail(error, UPS_ERR_MEMORY, "out of memory");
            } else if (ups_path_exists(metadata)) { /* nothing that is not a cache is removed */
                status = remove_tree(group, error);
            }
            free(group);
            free(metadata);
        }
    }
    free(cache);
    return status;
}
