/* Latents without a cache: a source whose decode encodes. Raw fields are read as any source reads them; decoding goes
 * on through the run's trained encoder and rounds to FP16. To a loader it looks as a group of the cache does (one grid
 * axis, the tokens; `dim` channels; FP16; sample i is the split's i-th), and gives the same numbers to the last bit.
 *
 * Samples that a cache leaves out since they are not finite are there, and are treated as a loader treats bad samples;
 * so only without any does a run that goes on with a cache draw as it did before. A frame is bad, and holds NaN, when
 * its own fields are, whatever the encoder makes of them; windows of other frames of that sample are served. What else
 * was read with it or before does not count: that depends on what stays in memory, and on where a run was begun.
 *
 * Rounding is the cache's (cache/store/statistics.h), with cache.max_abs_error where that is set; values that a cache
 * would refuse come out as NaN.
 *
 * What may surprise: frames are encoded in blocks (frame_encoder.h), so a window of two frames costs eight or sixteen,
 * and a draw of a trajectory that stays in memory decoded costs nothing from the second on. */
#ifndef UPS_TRAIN_DATA_ENCODING_ENCODING_SOURCE_H
#define UPS_TRAIN_DATA_ENCODING_ENCODING_SOURCE_H

#include "train/data/encoding/encoder_pool.h"

/* The pool and the task are borrowed. */
ups_status ups_encoding_source_open(ups_encoder_pool *pool, const ups_task *task, ups_split split, ups_source **source,
                                    ups_error *error);

/* What loading windows of at most `frames` frames takes at most; known before there is an encoder. */
ups_source_limits ups_encoding_limits(const ups_run_config *config, const ups_task *task, int64_t frames);

#endif
