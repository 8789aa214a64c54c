#include "tools/encode_workers.h"

#include "base/threads.h"
#include "train/networks.h"
#include "train/origin.h"
#include "train/state.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Frames encoded at once. Their number is the same on every machine and for any number of threads, since the order in
 * which a matrix product sums may depend on it. */
#define FRAMES_A_STEP 8
#define MOST_MEMORY ((size_t)3 << 30) /* of all encoders and the trajectories they hold, about */

typedef struct encoder {
    ups_device *device; /* its own */
    ups_parameters *parameters;
    ups_graph *graph;
    ups_step *step;
    ups_value field, latents;
    int64_t frames; /* a run */
    int64_t frame_elements, latent_elements;
    float *trajectory; /* (times, tokens, dim) */
} encoder;

typedef struct loaded_trajectory {
    ups_loader *loader;
    const ups_batch *batch;
    int64_t sample; /* in the cache */
    const char *name;
} loaded_trajectory;

typedef struct worker {
    struct ups_encode_workers *all;
    encoder encoder;
    pthread_t thread;
} worker;

struct ups_encode_workers {
    const ups_stage_request *request;
    const ups_task *task;
    ups_cache_writer *writer;
    ups_queue *queue; /* loaded_trajectory */
    worker *workers;
    int count, running;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t released;
    int64_t outstanding; /* handed over, not yet released */
    ups_status status;   /* first failure */
    ups_error error;
};

static void encoder_close(encoder *e) {
    ups_aligned_free(e->trajectory);
    ups_step_destroy(e->step);
    ups_graph_destroy(e->graph);
    ups_parameters_destroy(e->parameters);
    ups_device_close(e->device);
}

static ups_status encoder_open(const ups_stage_request *request, const ups_task *task, int threads, encoder *e,
                               ups_error *error) {
    const ups_model_config *model = &request->config->model;
    int64_t times = task->geometry.times;
    *e = (encoder){.frame_elements = ups_sample_frame_elements(&task->geometry),
                   .latent_elements = model->tokens * model->dim,
                   .frames = times < FRAMES_A_STEP ? times : FRAMES_A_STEP};
    ups_device_options options = {.name = request->device->class->name, .threads = threads};
    UPS_TRY(ups_device_open(&options, &e->device, error));
    e->parameters = ups_parameters_create();
    e->graph = ups_graph_create(e->parameters, UPS_AUTOENCODER_COMPUTE);
    e->field = ups_graph_input(e->graph, "field", UPS_F32, UPS_SHAPE(e->frames, e->frame_elements));
    e->latents = ups_networks_encode(e->graph, request->config, task, e->field);
    ups_graph_keep(e->graph, e->latents);
    size_t bytes = (size_t)(times * e->latent_elements) * sizeof(float);
    e->trajectory = ups_aligned_alloc(64, bytes);
    char *path = ups_run_model_path(request->config, UPS_STAGE_AUTOENCODER);
    json_t *origin = ups_origin_autoencoder(request->config, request->tasks);
    ups_status status = path && origin && e->trajectory
                            ? UPS_OK
                            : ups_fail(error, UPS_ERR_MEMORY, "cache: no memory for a trajectory of %zu bytes", bytes);
    if (status == UPS_OK) status = ups_origin_check(path, origin, error);
    if (status == UPS_OK) status = ups_networks_load(e->parameters, e->device, UPS_AUTOENCODER_COMPUTE, path, error);
    json_decref(origin);
    free(path);
    if (status == UPS_OK) status = ups_step_create(e->graph, e->device, &e->step, error);
    return status;
}

/* The last run is moved back so that it is full, its first frames then encoded twice to the same latents. */
static ups_status encode(encoder *e, const float *fields, int64_t times, ups_error *error) {
    ups_step_run_options options = {.loss_scale = 1};
    for (int64_t t = 0; t < times; t += e->frames) {
        int64_t first = t + e->frames <= times ? t : times - e->frames;
        UPS_TRY(ups_step_upload(e->step, e->field, fields + first * e->frame_elements,
                                (size_t)(e->frames * e->frame_elements) * sizeof(float), error));
        UPS_TRY(ups_step_run(e->step, &options, error));
        UPS_TRY(ups_step_download(e->step, e->latents, e->trajectory + first * e->latent_elements,
                                  (size_t)(e->frames * e->latent_elements) * sizeof(float), error));
    }
    return UPS_OK;
}

static bool has_failed(ups_encode_workers *all) {
    pthread_mutex_lock(&all->lock);
    bool failed = all->status != UPS_OK;
    pthread_mutex_unlock(&all->lock);
    return failed;
}

static void *work(void *context) {
    worker *w = context;
    ups_encode_workers *all = w->all;
    loaded_trajectory item;
    while (ups_queue_pop(all->queue, &item)) {
        ups_error error;
        ups_status status =
            has_failed(all) ? UPS_OK : encode(&w->encoder, item.batch->data, item.batch->frames, &error);
        bool encoded = status == UPS_OK && !has_failed(all);
        ups_loader_release(item.loader, item.batch);
        if (encoded) {
            status = ups_cache_writer_put(all->writer, item.sample, item.name, w->encoder.trajectory, &error);
        }
        pthread_mutex_lock(&all->lock);
        if (status != UPS_OK && all->status == UPS_OK) {
            all->status = status;
            all->error = error;
        }
        all->outstanding--;
        pthread_cond_broadcast(&all->released);
        pthread_mutex_unlock(&all->lock);
    }
    return NULL;
}

bool ups_encode_workers_push(ups_encode_workers *workers, ups_loader *loader, const ups_batch *batch, int64_t sample,
                             const char *name) {
    loaded_trajectory item = {loader, batch, sample, name};
    pthread_mutex_lock(&workers->lock);
    bool well = workers->status == UPS_OK;
    workers->outstanding += well;
    pthread_mutex_unlock(&workers->lock);
    return well && ups_queue_push(workers->queue, &item);
}

void ups_encode_workers_drain(ups_encode_workers *workers) {
    pthread_mutex_lock(&workers->lock);
    while (workers->outstanding > 0) pthread_cond_wait(&workers->released, &workers->lock);
    pthread_mutex_unlock(&workers->lock);
}

int ups_encode_workers_count(const ups_encode_workers *workers) {
    return workers->count;
}

ups_status ups_encode_workers_stop(ups_encode_workers *workers, ups_error *error) {
    if (!workers) return UPS_OK;
    if (workers->queue) ups_queue_close(workers->queue);
    for (int i = 0; i < workers->running; i++) pthread_join(workers->workers[i].thread, NULL);
    for (int i = 0; workers->workers && i < workers->count; i++) encoder_close(&workers->workers[i].encoder);
    ups_status status = workers->status;
    if (status != UPS_OK && error) *error = workers->error;
    ups_queue_destroy(workers->queue);
    pthread_cond_destroy(&workers->released);
    pthread_mutex_destroy(&workers->lock);
    free(workers->workers);
    free(workers);
    return status;
}

/* How many encoders, and on how many processors each, from what the first takes. */
static void share_processors(const encoder *first, const ups_task *task, int processors, int *count, int *threads) {
    ups_plan_memory memory = ups_step_memory(first->step);
    size_t each =
        memory.inputs + memory.activations + memory.workspace +
        (size_t)task->geometry.times * sizeof(float) * (size_t)(first->frame_elements + first->latent_elements);
    size_t fitting = each > 0 ? MOST_MEMORY / each : (size_t)processors;
    *count = processors;
    *threads = 1;
    if (fitting < (size_t)processors) {
        *count = fitting > 0 ? (int)fitting : 1;
        *threads = processors / *count;
    }
    *count += *threads == 1; /* one may wait for the disk */
}

ups_status ups_encode_workers_start(const ups_stage_request *request, const ups_task *task, ups_cache_writer *writer,
                                    ups_encode_workers **result, ups_error *error) {
    *result = NULL;
    ups_encode_workers *all = calloc(1, sizeof *all);
    if (!all) return ups_fail(error, UPS_ERR_MEMORY, "cache: out of memory");
    *all = (ups_encode_workers){.request = request, .task = task, .writer = writer};
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->released, NULL);
    int wanted = 1, threads = 1;
    encoder first;
    ups_status status = encoder_open(request, task, 1, &first, error);
    if (status == UPS_OK) share_processors(&first, task, request->device->threads, &wanted, &threads);
    all->queue = ups_queue_create(sizeof(loaded_trajectory), 1);
    all->workers = calloc((size_t)wanted, sizeof *all->workers);
    if (status == UPS_OK && (!all->queue || !all->workers)) {
        status = ups_fail(error, UPS_ERR_MEMORY, "cache: out of memory");
    }
    if (status == UPS_OK && threads == 1) {
        all->workers[all->count++].encoder = first;
    } else {
        encoder_close(&first);
    }
    while (status == UPS_OK && all->count < wanted) {
        status = encoder_open(request, task, threads, &all->workers[all->count++].encoder, error);
    }
    while (status == UPS_OK && all->running < all->count) {
        worker *w = &all->workers[all->running];
        w->all = all;
        if (pthread_create(&w->thread, NULL, work, w) == 0)
            all->running++;
        else
            status = ups_fail(error, UPS_ERR_MEMORY, "cache: a thread could not be started");
    }
    if (status != UPS_OK) {
        ups_encode_workers_stop(all, NULL);
        return status;
    }
    *result = all;
    return UPS_OK;
}
