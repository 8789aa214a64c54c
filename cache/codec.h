/* ups.latent: what makes FP16 latents of a smooth evolution small, without losing a bit.
 *
 * A trajectory (time, series), series = token × dim, becomes bytes that an entropy coder likes:
 *   1. FP16 bits are mapped to integers in the order of the numbers (negative ones have their magnitude bits flipped);
 *   2. each series is predicted along time: order 0 predicts nothing, 1 the last value, 2 the straight line through the
 * last two; integers wrap around at 16 bits, so that any bit pattern (NaN and Inf too) survives;
 *   3. residuals are zigzagged (small magnitudes of either sign become small numbers) and written time-fastest, as a
 * plane of all high bytes and then a plane of all low bytes. Time-fastest because a series has its own scale:
 * neighbours then look alike, which is worth 10–25 % over frame order.
 *
 * Encoded: byte 0 format version (1), byte 1 order, bytes 2 and 3 zero; `times × series` high bytes; as many low bytes.
 */
#ifndef UPS_CACHE_CODEC_H
#define UPS_CACHE_CODEC_H

#include "base/error.h"
#include "base/half.h"
#include <stdint.h>

#define UPS_LATENT_VERSION 1
#define UPS_LATENT_HEADER_BYTES 4
#define UPS_LATENT_MAX_ORDER 2

size_t ups_latent_encoded_bytes(int64_t times, int64_t series);

/* The order whose byte planes promise the smallest entropy; looks at an eighth of the series. */
int ups_latent_choose_order(const ups_f16 *latents, int64_t times, int64_t series);

/* `latents` (times, series); `out` holds ups_latent_encoded_bytes. */
void ups_latent_encode(const ups_f16 *latents, int64_t times, int64_t series, int order, uint8_t *out);

/* Frames [start, start + count) of `encoded` into `out` (count, series). Refuses (UPS_ERR_FORMAT) a length or header
 * that does not fit the shape; whatever the planes hold is a valid trajectory. */
ups_status ups_latent_decode(const uint8_t *encoded, size_t length, int64_t times, int64_t series, int64_t start,
                             int64_t count, ups_f16 *out, ups_error *error);

/* The plain form of the decoder, one value after the other: what the fast one is tested against. */
ups_status ups_latent_decode_scalar(const uint8_t *encoded, size_t length, int64_t times, int64_t series, int64_t start,
                                    int64_t count, ups_f16 *out, ups_error *error);

#endif
