#include "base/system/threads.h"

#include "base/system/launcher.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double seconds_on(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double ups_now(void) {
    return seconds_on(CLOCK_MONOTONIC);
}

double ups_thread_seconds(void) {
    return seconds_on(CLOCK_THREAD_CPUTIME_ID);
}

double ups_process_seconds(void) {
    return seconds_on(CLOCK_PROCESS_CPUTIME_ID);
}

/* Processes that may run on the same processors share them. */
int ups_cpu_count(void) {
    cpu_set_t set;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    int count = online > 0 ? (int)online : 1; /* more than 1024 processors: cpu_set_t is too small */
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) count = CPU_COUNT(&set);
    count /= ups_launch_processes_on_same();
    return count > 0 ? count : 1;
}

/* The pool: the caller of ups_pool_run works too, as thread 0; threads-1 workers sleep until `generation` moves on. */
typedef struct worker {
    ups_pool *pool;
    pthread_t thread;
    int number;
} worker;

struct ups_pool {
    int threads;
    worker *workers;      /* threads - 1 of them, numbered from 1 */
    pthread_mutex_t turn; /* held for the length of one ups_pool_run */
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t start, done;
    uint64_t generation;
    int busy; /* workers that have not finished this generation */
    bool quit;

    ups_pool_task task; /* the loop being run */
    void *context;
    int64_t count;
    atomic_int_fast64_t next;
    int64_t failed_index; /* lowest so far; count when none failed */
    ups_status status;
    ups_error error;
};

static _Thread_local const ups_pool *pool_of_this_thread;

static void work(ups_pool *pool, int thread) {
    const ups_pool *outer = pool_of_this_thread;
    pool_of_this_thread = pool;
    for (;;) {
        int64_t index = atomic_fetch_add(&pool->next, 1);
        if (index >= pool->count) break;
        ups_error error;
        error.code = UPS_OK;
        error.message[0] = '\0';
        ups_status status = pool->task(pool->context, index, thread, &error);
        if (status == UPS_OK) continue;
        atomic_store(&pool->next, pool->count);
        pthread_mutex_lock(&pool->lock);
        if (index < pool->failed_index) {
            pool->failed_index = index;
            pool->status = status;
            pool->error = error;
            pool->error.code = status;
        }
        pthread_mutex_unlock(&pool->lock);
        break;
    }
    pool_of_this_thread = outer;
}

static void *worker_main(void *argument) {
    worker *self = argument;
    ups_pool *pool = self->pool;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->generation == seen && !pool->quit) pthread_cond_wait(&pool->start, &pool->lock);
        if (pool->quit) break;
        seen = pool->generation;
        pthread_mutex_unlock(&pool->lock);
        work(pool, self->number);
        pthread_mutex_lock(&pool->lock);
        if (--pool->busy == 0) pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

ups_pool *ups_pool_create(int threads) {
    ups_pool *pool = calloc(1, sizeof *pool);
    if (!pool) return NULL;
    if (threads <= 0) threads = ups_cpu_count();
    pool->workers = calloc((size_t)threads, sizeof *pool->workers);
    if (!pool->workers) {
        free(pool);
        return NULL;
    }
    pthread_mutex_init(&pool->turn, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->start, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->threads = 1;
    for (int i = 0; i < threads - 1; i++) {
        worker *w = &pool->workers[i];
        w->pool = pool;
        w->number = i + 1;
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) {
            ups_pool_destroy(pool);
            return NULL;
        }
        pool->threads++;
    }
    return pool;
}

void ups_pool_destroy(ups_pool *pool) {
    if (!pool) return;
    pthread_mutex_lock(&pool->lock);
    pool->quit = true;
    pthread_cond_broadcast(&pool->start);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->threads - 1; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->start);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->turn);
    free(pool->workers);
    free(pool);
}

int ups_pool_threads(const ups_pool *pool) {
    return pool->threads;
}

ups_status ups_pool_run(ups_pool *pool, int64_t count, ups_pool_task task, void *context, ups_error *error) {
    if (count <= 0) return UPS_OK;
    if (pool_of_this_thread == pool) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "a parallel loop was started on a pool from inside a task of the same pool; it would wait for "
                        "itself: use another pool");
    }
    pthread_mutex_lock(&pool->turn);
    pthread_mutex_lock(&pool->lock);
    pool->task = task;
    pool->context = context;
    pool->count = count;
    pool->failed_index = count;
    pool->status = UPS_OK;
    atomic_store(&pool->next, 0);
    pool->busy = pool->threads - 1;
    pool->generation++;
    pthread_cond_broadcast(&pool->start);
    pthread_mutex_unlock(&pool->lock);

    work(pool, 0);

    pthread_mutex_lock(&pool->lock);
    while (pool->busy > 0) pthread_cond_wait(&pool->done, &pool->lock);
    ups_status status = pool->status;
    if (status != UPS_OK && error) *error = pool->error;
    pthread_mutex_unlock(&pool->lock);
    pthread_mutex_unlock(&pool->turn);
    return status;
}

struct ups_queue {
    pthread_mutex_t lock;
    pthread_cond_t not_empty, not_full;
    size_t item_bytes, capacity, first, count;
    bool closed;
    unsigned char items[]; /* a ring of `capacity` items; the oldest at `first` */
};

ups_queue *ups_queue_create(size_t item_bytes, size_t capacity) {
    if (capacity == 0) capacity = 1;
    if (item_bytes > 0 && capacity > (SIZE_MAX - sizeof(ups_queue)) / item_bytes) return NULL;
    ups_queue *queue = calloc(1, sizeof *queue + item_bytes * capacity);
    if (!queue) return NULL;
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->not_empty, NULL);
    pthread_cond_init(&queue->not_full, NULL);
    queue->item_bytes = item_bytes;
    queue->capacity = capacity;
    return queue;
}

void ups_queue_destroy(ups_queue *queue) {
    if (!queue) return;
    pthread_cond_destroy(&queue->not_full);
    pthread_cond_destroy(&queue->not_empty);
    pthread_mutex_destroy(&queue->lock);
    free(queue);
}

bool ups_queue_push(ups_queue *queue, const void *item) {
    pthread_mutex_lock(&queue->lock);
    while (queue->count == queue->capacity && !queue->closed) pthread_cond_wait(&queue->not_full, &queue->lock);
    bool open = !queue->closed;
    if (open) {
        size_t place = (queue->first + queue->count++) % queue->capacity;
        memcpy(queue->items + place * queue->item_bytes, item, queue->item_bytes);
        pthread_cond_signal(&queue->not_empty);
    }
    pthread_mutex_unlock(&queue->lock);
    return open;
}

static bool take(ups_queue *queue, void *item) { /* with the lock held */
    if (queue->count == 0) return false;
    memcpy(item, queue->items + queue->first * queue->item_bytes, queue->item_bytes);
    queue->first = (queue->first + 1) % queue->capacity;
    queue->count--;
    pthread_cond_signal(&queue->not_full);
    return true;
}

bool ups_queue_pop(ups_queue *queue, void *item) {
    pthread_mutex_lock(&queue->lock);
    while (queue->count == 0 && !queue->closed) pthread_cond_wait(&queue->not_empty, &queue->lock);
    bool taken = take(queue, item);
    pthread_mutex_unlock(&queue->lock);
    return taken;
}

void ups_queue_close(ups_queue *queue) {
    pthread_mutex_lock(&queue->lock);
    queue->closed = true;
    pthread_cond_broadcast(&queue->not_empty);
    pthread_cond_broadcast(&queue->not_full);
    pthread_mutex_unlock(&queue->lock);
}
