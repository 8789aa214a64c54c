/* The run's latent cache, from the side of those who fill it: a group opened for writing, with everything it says of
 * where its latents come from. */
#ifndef UPS_TRAIN_CACHE_BUILD_LATENTS_WRITER_H
#define UPS_TRAIN_CACHE_BUILD_LATENTS_WRITER_H

#include "cache/build/writer.h"
#include "train/data/tasks.h"

/* How a group is written, beyond what the configuration says: see ups_cache_description. */
typedef struct ups_latents_writing {
    bool repair;           /* documents that are damaged are written again; ups_cache_description */
    const int64_t *broken; /* (broken_count) shards to be built again though they are there */
    int64_t broken_count;
    int64_t rank, ranks;
    const char *device; /* what computes the latents (ups_device_class.results); NULL: "cpu" */
} ups_latents_writing;

/* Opens <cache>/<task>/<split>, or begins it. Its sample i is the split's i-th. UPS_ERR_STALE where something else made
 * what is there. */
ups_status ups_latents_write(const ups_run_config *config, const ups_task *task, ups_split split,
                             ups_latents_writing writing, ups_cache_writer **writer, ups_error *error);

/* Whether writing would extend `group`, the directory of a group of this task and split, on the device that made it:
 * UPS_OK; otherwise UPS_ERR_STALE, with what stands against it. Nothing is written. */
ups_status ups_latents_check_extension(const ups_run_config *config, const ups_task *task, ups_split split,
                                       const char *group, const char *device, ups_error *error);

#endif
