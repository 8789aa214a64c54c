/* ups.latent: a trajectory (time, series), series = token × dim, of FP16 latents to bytes and back, lossless.
 *
 * The series are cut into blocks, each predicted and entropy-coded (rans.h) by itself with its own frequencies, or
 * stored as it is where that is smaller. docs/cache-format.md describes the bytes. */
#ifndef UPS_CACHE_CODEC_CODEC_H
#define UPS_CACHE_CODEC_CODEC_H

#include "base/dtype.h"
#include "base/error.h"
#include "cache/codec/rans.h"
#include <stddef.h>

#define UPS_LATENT_VERSION 3

/* Frames that a trajectory has at most: the length of a block, of 64 series or more, is written in 32 bits. */
#define UPS_LATENT_MAX_TIMES ((int64_t)((UINT32_MAX - 3) / (UPS_RANS_LANES * sizeof(ups_f16))))

/* Tables and buffers of one encoding thread, reused from trajectory to trajectory. NULL: out of memory. */
typedef struct ups_latent_encoder ups_latent_encoder;
ups_latent_encoder *ups_latent_encoder_create(int64_t times, int64_t series);
void ups_latent_encoder_destroy(ups_latent_encoder *encoder); /* NULL is fine */

/* The most bytes that a trajectory becomes, a little more than it has; and what none is below. */
size_t ups_latent_bound(int64_t times, int64_t series);
size_t ups_latent_least_bytes(int64_t times, int64_t series);

/* `latents` (times, series) into `out` of ups_latent_bound bytes; returns how many it took. */
size_t ups_latent_encode(ups_latent_encoder *encoder, const ups_f16 *latents, uint8_t *out);

/* How the blocks of one trajectory were predicted; those stored as they are count as order 0. */
typedef struct ups_latent_orders {
    int64_t blocks[UPS_RANS_MAX_ORDER + 1]; /* of each order */
} ups_latent_orders;

/* Frames [start, start + count) of `encoded` as `dtype`, UPS_F16 or UPS_F32, into `out` (count, series). *finite (NULL
 * is fine) says whether all of them are neither NaN nor Inf; `orders` may be NULL. `scratch`: ups_latent_scratch_bytes,
 * 64-byte aligned; nothing is allocated. UPS_ERR_FORMAT: never was a trajectory of this shape, or a damaged one. */
size_t ups_latent_scratch_bytes(int64_t times);
ups_status ups_latent_decode(const uint8_t *encoded, size_t length, int64_t times, int64_t series, int64_t start,
                             int64_t count, void *scratch, ups_dtype dtype, void *out, bool *finite,
                             ups_latent_orders *orders, ups_error *error);

#endif
