/* What a build of a cache has in memory at once, and how that is made to fit: trajectories of raw fields are as large
 * as their files have them (512 × 512 points × 1,000 frames × 3 channels: 3 GB), and are read, and held as float32, as
 * wholes.
 *
 * Where memory is short, the next lot is not read while the last is still encoded, fewer trajectories are read ahead,
 * and fewer encoders, on more processors each, work beside each other; at the least one trajectory is read, then
 * encoded, then the next. What is built is the same to the byte. */
#ifndef UPS_TRAIN_CACHE_BUILD_MEMORY_H
#define UPS_TRAIN_CACHE_BUILD_MEMORY_H

#include "train/session.h"

typedef struct ups_encode_plan {
    int workers, threads;      /* encoders beside each other; processors of each */
    int64_t batch;             /* trajectories that are handed over together, at most */
    int slots, decode_threads; /* of a lot's loader */
    bool overlapping;          /* a lot is read while the one before it is still encoded */
    uint64_t bytes;            /* of the host's memory: encoders that lie there, latents, loaders */
} ups_encode_plan;

/* Within cache.memory_limit, or half of what is free now, of the host's memory, and with no more encoders than a device
 * that has memory of its own has room for, or than device.memory allows. UPS_ERR_MEMORY where not even one trajectory
 * at a time fits, or not one encoder. */
ups_status ups_encode_plan_make(const ups_session *session, const ups_task *task, ups_encode_plan *plan,
                                ups_error *error);

#endif
