/* A group of the latent cache filled as a by-product: trajectories that training encodes anyway are put into it, in the
 * order in which they are drawn. Once the last is there the group is complete, as `ups cache build` makes it, to the
 * byte; until then it is a build that was interrupted, which that command or the next run goes on with.
 *
 * What may surprise: a shard is written when all of its trajectories are there, and draws come in no order. Encoded
 * trajectories of unfinished shards wait in memory, so only as many shards are begun as fit into what is allowed for
 * that; the others wait for a later epoch.
 *
 * The cache is never in training's way: where it cannot be written, the log says why, filling ends and training goes
 * on. All functions but open and close are thread-safe. */
#ifndef UPS_TRAIN_DATA_CACHE_FILL_H
#define UPS_TRAIN_DATA_CACHE_FILL_H

#include "train/data/tasks.h"

typedef struct ups_cache_fill ups_cache_fill;

/* Begins the group of a task and split, or goes on with one. `most_bytes`: of encoded trajectories that wait; one shard
 * may always be begun. UPS_ERR_STALE where something else made what is there. */
ups_status ups_cache_fill_open(const ups_run_config *config, const ups_task *task, ups_split split, uint64_t most_bytes,
                               ups_cache_fill **fill, ups_error *error);
void ups_cache_fill_close(ups_cache_fill *fill); /* what is complete stays; NULL is fine */

/* Bytes that wait at most when nothing limits them: all of a split's latents as FP16. */
uint64_t ups_cache_fill_bytes(const ups_run_config *config, const ups_task *task, ups_split split);

bool ups_cache_fill_has(ups_cache_fill *fill, int64_t sample); /* it needs no put */

/* Whether the sample's whole trajectory is to be put; then it is the caller's to put, or to give up. */
bool ups_cache_fill_wants(ups_cache_fill *fill, int64_t sample);
/* `latents` (times, tokens, dim) before rounding; NULL: its fields are not finite, and it is left out as a build with
 * `on_bad_sample: skip` leaves it out; with `stop`, where a build stops, filling ends. `name` for messages. */
void ups_cache_fill_put(ups_cache_fill *fill, int64_t sample, const char *name, const float *latents);
void ups_cache_fill_give_up(ups_cache_fill *fill, int64_t sample);

#endif
