#include "tools/encode_workers.h"

#include "base/threads.h"
#include "train/frame_encoder.h"
#include <pthread.h>
#include <stdlib.h>

typedef struct loaded_trajectory {
    ups_loader *loader;
    const ups_batch *batch;
    int64_t sample; /* in the cache */
    const char *name;
} loaded_trajectory;

typedef struct worker {
    struct ups_encode_workers *all;
    ups_frame_encoder *encoder;
    float *trajectory; /* (times, tokens, dim) */
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
        ups_status status = has_failed(all)
                                ? UPS_OK
                                : ups_frame_encoder_run(w->encoder, all->task, (ups_frames){0, item.batch->frames},
                                                        item.batch->data, w->trajectory, &error);
        bool encoded = status == UPS_OK && !has_failed(all);
        ups_loader_release(item.loader, item.batch);
        if (encoded) {
            status = ups_cache_writer_put(all->writer, item.sample, item.name, w->trajectory, &error);
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
    for (int i = 0; workers->workers && i < workers->count; i++) {
        ups_frame_encoder_close(workers->workers[i].encoder);
        ups_aligned_free(workers->workers[i].trajectory);
    }
    ups_status status = workers->status;
    if (status != UPS_OK && error) *error = workers->error;
    ups_queue_destroy(workers->queue);
    pthread_cond_destroy(&workers->released);
    pthread_mutex_destroy(&workers->lock);
    free(workers->workers);
    free(workers);
    return status;
}

static size_t latent_bytes(const ups_stage_request *request, const ups_task *task) {
    const ups_model_config *model = &request->config->model;
    return (size_t)(task->geometry.times * model->tokens * model->dim) * sizeof(float);
}

/* How many workers, and on how many processors each. */
static ups_status share_processors(const ups_stage_request *request, const ups_task *task, ups_encoder_shares *shares,
                                   ups_error *error) {
    size_t each = 0, fields = (size_t)(task->geometry.times * ups_sample_frame_elements(&task->geometry));
    UPS_TRY(ups_frame_encoder_measure(request, task, &each, error));
    each += latent_bytes(request, task) + fields * sizeof(float);
    *shares = ups_frame_encoder_share(each, request->device->threads);
    shares->count += shares->threads == 1; /* one may wait for the disk */
    return UPS_OK;
}

static ups_status start_worker(ups_encode_workers *all, int threads, ups_error *error) {
    worker *w = &all->workers[all->count++];
    w->all = all;
    w->trajectory = ups_aligned_alloc(64, latent_bytes(all->request, all->task));
    if (!w->trajectory) {
        return ups_fail(error, UPS_ERR_MEMORY, "cache: no memory for a trajectory of %zu bytes",
                        latent_bytes(all->request, all->task));
    }
    UPS_TRY(ups_frame_encoder_open(all->request, all->task, threads, &w->encoder, error));
    if (pthread_create(&w->thread, NULL, work, w) != 0) {
        return ups_fail(error, UPS_ERR_MEMORY, "cache: a thread could not be started");
    }
    all->running++;
    return UPS_OK;
}

ups_status ups_encode_workers_start(const ups_stage_request *request, const ups_task *task, ups_cache_writer *writer,
                                    ups_encode_workers **result, ups_error *error) {
    *result = NULL;
    ups_encode_workers *all = calloc(1, sizeof *all);
    if (!all) return ups_fail(error, UPS_ERR_MEMORY, "cache: out of memory");
    *all = (ups_encode_workers){.request = request, .task = task, .writer = writer};
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->released, NULL);
    ups_encoder_shares shares = {0};
    ups_status status = share_processors(request, task, &shares, error);
    all->queue = ups_queue_create(sizeof(loaded_trajectory), 1);
    all->workers = calloc((size_t)shares.count + 1, sizeof *all->workers);
    if (status == UPS_OK && (!all->queue || !all->workers)) {
        status = ups_fail(error, UPS_ERR_MEMORY, "cache: out of memory");
    }
    while (status == UPS_OK && all->count < shares.count) status = start_worker(all, shares.threads, error);
    if (status != UPS_OK) {
        ups_encode_workers_stop(all, NULL);
        return status;
    }
    *result = all;
    return UPS_OK;
}
