/* Encoders for whoever comes: as many copies of the run's trained encoder as shall work beside each other, each lent to
 * one thread at a time. */
#ifndef UPS_TRAIN_DATA_ENCODING_ENCODER_POOL_H
#define UPS_TRAIN_DATA_ENCODING_ENCODER_POOL_H

#include "train/data/encoding/frame_encoder.h"

typedef struct ups_encoder_pool ups_encoder_pool;

/* For all tasks of the session, which is borrowed; `data.decode_threads` encoders, or fewer where they are large
 * (ups_frame_encoder_share). */
ups_status ups_encoder_pool_open(const ups_session *session, ups_encoder_pool **pool, ups_error *error);
void ups_encoder_pool_close(ups_encoder_pool *pool); /* all are given back; NULL is fine */

/* Bytes of all its encoders, known before there is a trained one. */
ups_status ups_encoder_pool_measure(const ups_session *session, size_t *bytes, ups_error *error);

/* Waits while all are lent. Thread-safe, both. */
ups_frame_encoder *ups_encoder_pool_take(ups_encoder_pool *pool);
void ups_encoder_pool_give_back(ups_encoder_pool *pool, ups_frame_encoder *encoder);

const ups_run_config *ups_encoder_pool_config(const ups_encoder_pool *pool);

#endif
