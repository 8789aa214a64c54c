/* The threads that turn fields into cached latents. Each owns a copy of the encoder whose kernels run on its own
 * processor, and takes a trajectory the whole way: encode, round, compress, and, when it was its shard's last, publish.
 * One more than there are processors, since now and then one waits for the disk. Copies, not one encoder on all
 * processors: trajectories are many, and threads that never wait for each other keep all processors busy.
 *
 * Encoders that would take more memory than a few GiB together are fewer, each on several processors. */
#ifndef UPS_TOOLS_ENCODE_WORKERS_H
#define UPS_TOOLS_ENCODE_WORKERS_H

#include "cache/writer.h"
#include "train/stage.h"

typedef struct ups_encode_workers ups_encode_workers;

/* All arguments are borrowed until stop. */
ups_status ups_encode_workers_start(const ups_stage_request *request, const ups_task *task, ups_cache_writer *writer,
                                    ups_encode_workers **workers, ups_error *error);
int ups_encode_workers_count(const ups_encode_workers *workers);

/* Hands over a batch of one whole trajectory, which is released once it is encoded; `sample` is its index in the cache,
 * `name` (borrowed from the source) what messages call it. Waits while all are busy. False once any has failed: the
 * batch is then the caller's. */
bool ups_encode_workers_push(ups_encode_workers *workers, ups_loader *loader, const ups_batch *batch, int64_t sample,
                             const char *name);
/* Waits until all that was handed over is encoded and released: then its loader may be closed. */
void ups_encode_workers_drain(ups_encode_workers *workers);
/* Drains, ends the threads, frees; returns the first failure of any. NULL is fine. */
ups_status ups_encode_workers_stop(ups_encode_workers *workers, ups_error *error);

#endif
