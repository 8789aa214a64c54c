/* One trajectory as it lies in a shard: ups.latent (or plain bytes and zstd when `portable`), then a CRC32C of the
 * encoded bytes, so that no bit of a chunk can change unseen. */
#ifndef UPS_CACHE_CODEC_CHUNK_H
#define UPS_CACHE_CODEC_CHUNK_H

#include "base/error.h"
#include "base/half.h"
#include "cache/codec/codec.h"
#include <stdbool.h>
#include <stdint.h>

#define UPS_PORTABLE_DEFAULT_LEVEL 1

typedef struct ups_chunk_codec {
    bool portable; /* plain bytes + zstd: bigger, but readable without the ups.latent codec */
    int level;     /* of zstd, when portable; 0: UPS_PORTABLE_DEFAULT_LEVEL */
} ups_chunk_codec;

typedef struct ups_chunk_shape {
    int64_t times, tokens, dim;
} ups_chunk_shape;

size_t ups_chunk_raw_bytes(ups_chunk_shape shape); /* as FP16 */
/* False when so few bytes cannot be a chunk of this shape, whatever is in it. */
bool ups_chunk_may_hold(ups_chunk_codec codec, ups_chunk_shape shape, uint64_t bytes);

/* Contexts and buffers of one encoding thread, reused from chunk to chunk. */
typedef struct ups_chunk_encoder ups_chunk_encoder;
ups_chunk_encoder *ups_chunk_encoder_create(ups_chunk_codec codec, ups_chunk_shape shape); /* NULL: out of memory */
void ups_chunk_encoder_destroy(ups_chunk_encoder *encoder);                                /* NULL is fine */

/* `latents` (times, tokens, dim). *bytes is borrowed from the encoder until its next call. */
ups_status ups_chunk_encode(ups_chunk_encoder *encoder, const ups_f16 *latents, const uint8_t **bytes, size_t *length,
                            ups_error *error);

/* Frames [start, start + count) as `dtype`, UPS_F16 or UPS_F32, to `out` (count, tokens, dim). *finite says whether all
 * of them are neither NaN nor Inf. `orders` receives how blocks were predicted, when not portable; NULL is fine.
 * `scratch` holds ups_chunk_scratch_bytes, 64-byte aligned; nothing is allocated. UPS_ERR_CHECKSUM: changed since
 * written; UPS_ERR_FORMAT: never was a chunk of this shape. */
size_t ups_chunk_scratch_bytes(ups_chunk_codec codec, ups_chunk_shape shape);
ups_status ups_chunk_decode(ups_chunk_codec codec, ups_chunk_shape shape, const uint8_t *bytes, size_t length,
                            int64_t start, int64_t count, void *scratch, ups_dtype dtype, void *out, bool *finite,
                            ups_latent_orders *orders, ups_error *error);

#endif
