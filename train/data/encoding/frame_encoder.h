/* The trained encoder at work: frames of fields in, float32 latents out. What fills a cache and what takes its place
 * both encode here, so that their numbers are the same to the last bit.
 *
 * On some devices the order in which a matrix product sums depends on how many rows it has. So frames are encoded in
 * blocks of a size that is the same on every machine and for any number of threads, and a frame's block depends on its
 * place in the trajectory alone: whoever wants some frames encodes the blocks that they lie in. */
#ifndef UPS_TRAIN_DATA_ENCODING_FRAME_ENCODER_H
#define UPS_TRAIN_DATA_ENCODING_FRAME_ENCODER_H

#include "train/session.h"

/* A copy of the encoder with a device, weights and graphs of its own: for one thread at a time, beside others. */
typedef struct ups_frame_encoder ups_frame_encoder;

/* The run's trained autoencoder (UPS_ERR_IO where there is none, UPS_ERR_STALE where it is of another configuration),
 * for `only` that task, or with NULL for all of the session's. `threads`: those of its kernels. Everything is
 * borrowed until close. */
ups_status ups_frame_encoder_open(const ups_session *session, const ups_task *only, int threads,
                                  ups_frame_encoder **encoder, ups_error *error);
void ups_frame_encoder_close(ups_frame_encoder *encoder); /* NULL is fine */

/* Bytes that such an encoder takes, weights included, known before there is a trained one. */
ups_status ups_frame_encoder_measure(const ups_session *session, const ups_task *only, size_t *bytes, ups_error *error);

/* How many processors encoders beside each other have: the kernels' own, or all of the host where the device has memory
 * of its own, since a thread that feeds a card also rounds and compresses what comes back. */
int ups_frame_encoder_processors(const ups_device *device);

/* How many encoders of `each` bytes run beside each other, and on how many processors each: one a processor, fewer
 * where all together would take more than a few GiB. */
typedef struct ups_encoder_shares {
    int count, threads;
} ups_encoder_shares;
ups_encoder_shares ups_frame_encoder_share(size_t each, int processors);

/* The frames whose fields are needed to encode `wanted`: the blocks that these lie in. Not longer than `wanted.count`
 * and two blocks less two frames. */
ups_frames ups_frame_encoder_span(const ups_task *task, ups_frames wanted);
#define UPS_ENCODER_BLOCK 8 /* frames at most: as few as make all blocks of a task alike */

/* `fields` (the span's frames, elements) as stored; `latents` (wanted.count, tokens, dim). */
ups_status ups_frame_encoder_run(ups_frame_encoder *encoder, const ups_task *task, ups_frames wanted,
                                 const float *fields, float *latents, ups_error *error);

/* A whole trajectory, whose latents are handed to `take` as they come, a block or less at a time in the order of
 * frames, while they are in a near cache: (count, tokens, dim), valid during the call. */
typedef void ups_latents_taker(void *context, const float *latents, int64_t count);
ups_status ups_frame_encoder_stream(ups_frame_encoder *encoder, const ups_task *task, const float *fields,
                                    ups_latents_taker *take, void *context, ups_error *error);

#endif
