/* Threads: a pool for parallel loops, and a bounded queue between a producer and a consumer.
 *
 * `model/` uses OpenMP inside its kernels; the pool is for the data side (decode, encode, solvers), whose work items
 * are large and independent. */
#ifndef UPS_BASE_SYSTEM_THREADS_H
#define UPS_BASE_SYSTEM_THREADS_H

#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

/* Processors for this process, at least 1: those that it may run on (affinity), or its part of them where others were
 * started beside it (launcher.h). */
int ups_cpu_count(void);

typedef struct ups_pool ups_pool;
/* `thread` is 0 … threads-1 and is fixed for the duration of one call: index scratch with it. */
typedef ups_status (*ups_pool_task)(void *context, int64_t index, int thread, ups_error *error);

ups_pool *ups_pool_create(int threads); /* 0: ups_cpu_count(); NULL when threads cannot be had */
void ups_pool_destroy(ups_pool *pool);
int ups_pool_threads(const ups_pool *pool);

/* Runs task(context, i, …) for i in [0, count), each once, handed out in order, and waits for all. The first failure
 * stops handing out new indices and is returned (the one of the lowest index that failed). */
ups_status ups_pool_run(ups_pool *pool, int64_t count, ups_pool_task task, void *context, ups_error *error);

/* A bounded multi-producer multi-consumer queue of fixed-size items, copied in and out. */
typedef struct ups_queue ups_queue;
ups_queue *ups_queue_create(size_t item_bytes, size_t capacity);
void ups_queue_destroy(ups_queue *queue);
bool ups_queue_push(ups_queue *queue, const void *item); /* waits while full; false once closed */
bool ups_queue_pop(ups_queue *queue, void *item);        /* waits while empty; false once closed and drained */
void ups_queue_close(ups_queue *queue);                  /* wakes all waiters; items already in can still be popped */

double ups_now(void);             /* seconds on the monotonic clock */
double ups_thread_seconds(void);  /* CPU seconds of the calling thread */
double ups_process_seconds(void); /* the same of the process: all threads, ended ones too */

#endif
