/* The threads that turn fields into cached latents. Each owns a copy of the encoder whose kernels run on its own
 * processor, and takes a trajectory the whole way: encode, round, compress, and, when it was its shard's last, publish.
 * One more than there are processors, since now and then one waits for the disk. Copies, not one encoder on all
 * processors: trajectories are many, and threads that never wait for each other keep all processors busy.
 *
 * Where they would take too much memory together they are fewer, each on several processors (memory.h). */
#ifndef UPS_TRAIN_CACHE_BUILD_WORKERS_H
#define UPS_TRAIN_CACHE_BUILD_WORKERS_H

#include "cache/build/writer.h"
#include "train/cache_build/memory.h"

typedef struct ups_encode_workers ups_encode_workers;

/* As many as the plan says. The others are borrowed until stop. */
ups_status ups_encode_workers_start(const ups_session *session, const ups_task *task, const ups_encode_plan *plan,
                                    ups_cache_writer *writer, ups_encode_workers **workers, ups_error *error);

/* Trajectories that come from one loader, in batches of whole ones. */
typedef struct ups_encode_lot {
    ups_loader *loader;
    int64_t batch;          /* trajectories in the loader's batches */
    const int64_t *samples; /* in the cache, in the loader's order */
    int64_t outstanding;    /* the workers' own: batches handed over and not yet released */
} ups_encode_lot;

/* Hands over a batch, which is released once it is encoded. Waits while all are busy. False once any has failed: the
 * batch is then the caller's. */
bool ups_encode_workers_push(ups_encode_workers *workers, ups_encode_lot *lot, const ups_batch *batch);
/* Whether all that was handed over of the lot is encoded and released, so that its loader may be closed; `wait`: until
 * it is. */
bool ups_encode_workers_finished(ups_encode_workers *workers, const ups_encode_lot *lot, bool wait);

/* Where the workers' time went, summed over them. */
typedef struct ups_encode_times {
    double encode, put, idle;   /* seconds: of the encoder; of rounding, compressing and publishing; without
                                   anything to do */
    double encode_cpu, put_cpu; /* of these, CPU seconds */
} ups_encode_times;

/* Drains, ends the threads, adds to `times`, frees; returns the first failure of any. NULL is fine. */
ups_status ups_encode_workers_stop(ups_encode_workers *workers, ups_encode_times *times, ups_error *error);

#endif
