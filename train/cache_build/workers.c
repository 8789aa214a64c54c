#include "train/cache_build/workers.h"

#include "base/system/threads.h"
#include "train/data/encoding/frame_encoder.h"
#include <pthread.h>
#include <stdlib.h>

typedef struct loaded_batch {
    ups_encode_lot *lot;
    const ups_batch *batch;
} loaded_batch;

typedef struct worker {
    struct ups_encode_workers *all;
    ups_frame_encoder *encoder;
    ups_cache_entry *entry; /* the trajectory at work */
    ups_encode_times times;
    pthread_t thread;
} worker;

struct ups_encode_workers {
    const ups_session *session;
    const ups_task *task;
    ups_cache_writer *writer;
    ups_queue *queue; /* loaded_batch */
    worker *workers;
    int count, running;
    pthread_mutex_t lock; /* guards all below, and what is outstanding of the lots */
    pthread_cond_t released;
    ups_status status; /* first failure */
    ups_error error;
};

static bool has_failed(ups_encode_workers *all) {
    pthread_mutex_lock(&all->lock);
    bool failed = all->status != UPS_OK;
    pthread_mutex_unlock(&all->lock);
    return failed;
}

static void put_frames(void *context, const float *latents, int64_t count) {
    worker *w = context;
    double began = ups_now(), used = ups_thread_seconds();
    ups_cache_writer_add(w->all->writer, w->entry, latents, count);
    double took = ups_now() - began, took_used = ups_thread_seconds() - used;
    w->times.put += took, w->times.put_cpu += took_used;
    w->times.encode -= took, w->times.encode_cpu -= took_used;
}

/* Window `window` of a batch: a whole trajectory. */
static ups_status encode_one(worker *w, const loaded_batch *item, int64_t window, ups_error *error) {
    ups_cache_writer *writer = w->all->writer;
    const ups_task *task = w->all->task;
    const ups_batch *batch = item->batch;
    int64_t sample = item->lot->samples[batch->index * item->lot->batch + window];
    if (batch->window[window].sample == UPS_NO_SAMPLE) return ups_cache_writer_skip(writer, sample, error);
    ups_sample source;
    UPS_TRY(ups_source_describe(task->source, batch->window[window].sample, &source, error));
    UPS_TRY(ups_cache_writer_begin(writer, sample, &w->entry, error));
    double began = ups_now(), used = ups_thread_seconds();
    ups_status status = ups_frame_encoder_stream(w->encoder, task, batch->window[window].frames, put_frames, w, error);
    double encoded = ups_now(), used_encoded = ups_thread_seconds();
    if (status == UPS_OK)
        status = ups_cache_writer_end(writer, w->entry, source.name, error);
    else
        ups_cache_writer_abandon(writer, w->entry);
    w->times.encode += encoded - began;
    w->times.encode_cpu += used_encoded - used;
    w->times.put += ups_now() - encoded;
    w->times.put_cpu += ups_thread_seconds() - used_encoded;
    return status;
}

static void *work(void *context) {
    worker *w = context;
    ups_encode_workers *all = w->all;
    loaded_batch item;
    for (;;) {
        double since = ups_now();
        if (!ups_queue_pop(all->queue, &item)) break;
        w->times.idle += ups_now() - since;
        ups_error error;
        ups_status status = UPS_OK;
        for (int64_t i = 0; i < item.batch->windows && status == UPS_OK && !has_failed(all); i++)
            status = encode_one(w, &item, i, &error);
        ups_loader_release(item.lot->loader, item.batch);
        pthread_mutex_lock(&all->lock);
        if (status != UPS_OK && all->status == UPS_OK) {
            all->status = status;
            all->error = error;
        }
        if (--item.lot->outstanding == 0) pthread_cond_broadcast(&all->released);
        pthread_mutex_unlock(&all->lock);
    }
    return NULL;
}

bool ups_encode_workers_push(ups_encode_workers *workers, ups_encode_lot *lot, const ups_batch *batch) {
    loaded_batch item = {lot, batch};
    pthread_mutex_lock(&workers->lock);
    bool well = workers->status == UPS_OK;
    lot->outstanding += well;
    pthread_mutex_unlock(&workers->lock);
    return well && ups_queue_push(workers->queue, &item);
}

bool ups_encode_workers_finished(ups_encode_workers *workers, const ups_encode_lot *lot, bool wait) {
    pthread_mutex_lock(&workers->lock);
    while (wait && lot->outstanding > 0) pthread_cond_wait(&workers->released, &workers->lock);
    bool finished = lot->outstanding == 0;
    pthread_mutex_unlock(&workers->lock);
    return finished;
}

ups_status ups_encode_workers_stop(ups_encode_workers *workers, ups_encode_times *times, ups_error *error) {
    if (!workers) return UPS_OK;
    if (workers->queue) ups_queue_close(workers->queue);
    for (int i = 0; i < workers->running; i++) pthread_join(workers->workers[i].thread, NULL);
    for (int i = 0; workers->workers && i < workers->count; i++) {
        ups_frame_encoder_close(workers->workers[i].encoder);
        const ups_encode_times *of = &workers->workers[i].times;
        times->encode += of->encode;
        times->encode_cpu += of->encode_cpu;
        times->put += of->put;
        times->put_cpu += of->put_cpu;
        times->idle += of->idle;
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

static ups_status start_worker(ups_encode_workers *all, int threads, ups_error *error) {
    worker *w = &all->workers[all->count++];
    w->all = all;
    UPS_TRY(ups_frame_encoder_open(all->session, all->task, threads, &w->encoder, error));
    if (pthread_create(&w->thread, NULL, work, w) != 0) {
        return ups_fail(error, UPS_ERR_MEMORY, "cache: a thread could not be started");
    }
    all->running++;
    return UPS_OK;
}

ups_status ups_encode_workers_start(const ups_session *session, const ups_task *task, const ups_encode_plan *plan,
                                    ups_cache_writer *writer, ups_encode_workers **result, ups_error *error) {
    *result = NULL;
    ups_encode_workers *all = calloc(1, sizeof *all);
    if (!all) return ups_fail(error, UPS_ERR_MEMORY, "cache: out of memory");
    *all = (ups_encode_workers){.session = session, .task = task, .writer = writer};
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->released, NULL);
    ups_status status = UPS_OK;
    all->queue = ups_queue_create(sizeof(loaded_batch), 1);
    all->workers = calloc((size_t)plan->workers + 1, sizeof *all->workers);
    if (!all->queue || !all->workers) status = ups_fail(error, UPS_ERR_MEMORY, "cache: out of memory");
    while (status == UPS_OK && all->count < plan->workers) status = start_worker(all, plan->threads, error);
    if (status != UPS_OK) {
        ups_encode_workers_stop(all, &(ups_encode_times){0}, NULL);
        return status;
    }
    *result = all;
    return UPS_OK;
}
