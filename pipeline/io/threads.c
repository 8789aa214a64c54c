/* The engine that needs nothing from the kernel but pread: a few threads take requests from a list and put them onto
 * another. */
#include "pipeline/io/engine.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct request_list {
    ups_io_request *head, *tail;
} request_list;

typedef struct thread_engine {
    pthread_mutex_t lock; /* guards the lists and `closing` */
    pthread_cond_t work, finished;
    request_list waiting, done;
    bool closing;
    int running;
    pthread_t threads[];
} thread_engine;

static void append(request_list *list, ups_io_request *request) {
    request->next = NULL;
    if (list->tail)
        list->tail->next = request;
    else
        list->head = request;
    list->tail = request;
}

static ups_io_request *take(request_list *list) {
    ups_io_request *request = list->head;
    if (!request) return NULL;
    list->head = request->next;
    if (!list->head) list->tail = NULL;
    return request;
}

static void *serve(void *context) {
    ups_io *io = context;
    thread_engine *engine = io->engine;
    pthread_mutex_lock(&engine->lock);
    for (;;) {
        ups_io_request *request = NULL;
        while (!engine->closing && !(request = take(&engine->waiting))) pthread_cond_wait(&engine->work, &engine->lock);
        if (!request) break;
        pthread_mutex_unlock(&engine->lock);
        ups_io_read_all(io, request);
        pthread_mutex_lock(&engine->lock);
        append(&engine->done, request);
        pthread_cond_signal(&engine->finished);
    }
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

static void threads_close(ups_io *io) {
    thread_engine *engine = io->engine;
    pthread_mutex_lock(&engine->lock);
    engine->closing = true;
    pthread_cond_broadcast(&engine->work);
    pthread_mutex_unlock(&engine->lock);
    for (int i = 0; i < engine->running; i++) pthread_join(engine->threads[i], NULL);
    pthread_cond_destroy(&engine->work);
    pthread_cond_destroy(&engine->finished);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
    io->engine = NULL;
}

static ups_status threads_open(ups_io *io, ups_error *error) {
    int threads = io->options.threads;
    thread_engine *engine = calloc(1, sizeof *engine + (size_t)threads * sizeof *engine->threads);
    if (!engine) return ups_fail(error, UPS_ERR_MEMORY, "no memory for %d reading threads", threads);
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->work, NULL);
    pthread_cond_init(&engine->finished, NULL);
    io->engine = engine;
    while (engine->running < threads && pthread_create(&engine->threads[engine->running], NULL, serve, io) == 0)
        engine->running++;
    if (engine->running > 0) return UPS_OK; /* fewer than wished for still read everything */
    threads_close(io);
    return ups_fail(error, UPS_ERR_MEMORY,
                    "not one reading thread could be started; is the limit of `ulimit -u` reached?");
}

static void threads_start(ups_io *io, ups_io_request *request) {
    thread_engine *engine = io->engine;
    pthread_mutex_lock(&engine->lock);
    append(&engine->waiting, request);
    pthread_cond_signal(&engine->work);
    pthread_mutex_unlock(&engine->lock);
}

static ups_status threads_collect(ups_io *io, bool wait, ups_io_request **finished, int room, int *count,
                                  ups_error *error) {
    thread_engine *engine = io->engine;
    pthread_mutex_lock(&engine->lock);
    while (wait && !engine->done.head) pthread_cond_wait(&engine->finished, &engine->lock);
    while (*count < room && engine->done.head) finished[(*count)++] = take(&engine->done);
    pthread_mutex_unlock(&engine->lock);
    return UPS_OK;
}

const ups_io_backend ups_io_threads_backend = {
    .open = threads_open,
    .close = threads_close,
    .start = threads_start,
    .collect = threads_collect,
};
