/* Prediction and planes: what makes FP16 latents of a smooth evolution small, without losing a bit.
 *
 * A block of a trajectory (time, series), series = token × dim, becomes bytes that an entropy coder likes:
 *   1. FP16 bits are mapped to integers in the order of the numbers (negative ones have their magnitude bits flipped);
 *   2. each series is predicted along time: order 0 predicts nothing, 1 the last value, 2 the straight line through the
 * last two; integers wrap around at 16 bits, so that any bit pattern (NaN and Inf too) survives;
 *   3. residuals are zigzagged (small magnitudes of either sign become small numbers) and cut into three planes, each
 * time-fastest: the low and the middle four bits, two frames a byte, and the high byte.
 * Time-fastest because a series has its own scale: neighbours then look alike, which is worth 10–25 % over frame order.
 * Two frames a byte because neighbours in time are large or small together, which an entropy coder of bytes sees only
 * so, and because it then has half the bytes to decode: smaller by 1–9 % and faster than a plane of low bytes.
 *
 * Vectorised for AVX-512, AVX2 and anything else that has 16-byte vectors; chosen when the program starts. */
#ifndef UPS_CACHE_PLANES_H
#define UPS_CACHE_PLANES_H

#include "base/half.h"
#include <stdbool.h>
#include <stdint.h>

#define UPS_PLANES_MAX_ORDER 2
#define UPS_PLANES_SLACK 16 /* bytes after a plane that must be readable and writable */

/* Planes of `series` × `times` values. Series n's rows: low and middle from n · pairs, pairs = ⌈times / 2⌉, byte k
 * holding frame 2k in its low four bits and frame 2k + 1 (0 past the end) in its high four; high from n · times. */
typedef struct ups_planes {
    uint8_t *low, *middle, *high; /* UPS_PLANES_SLACK bytes follow each */
} ups_planes;

static inline int64_t ups_planes_pairs(int64_t times) {
    return (times + 1) / 2;
}

/* The order whose residuals promise the smallest entropy; looks at one in sixteen series. `latents` (times, series),
 * rows `stride` values apart. */
int ups_planes_choose_order(const ups_f16 *latents, int64_t stride, int64_t times, int64_t series);

/* `latents` (times, series), rows `stride` values apart, into planes. */
void ups_planes_split(const ups_f16 *latents, int64_t stride, int64_t times, int64_t series, int order,
                      ups_planes planes);

/* Frames [start, end) of planes into `out` (end − start, series), rows `stride` values apart; false when NaN or Inf is
 * among them. `past_caches`: `out` is large and not read soon, so it is written around the caches (where rows are
 * aligned to 64 bytes). */
bool ups_planes_join_f16(ups_planes planes, int64_t times, int64_t series, int order, int64_t start, int64_t end,
                         ups_f16 *out, int64_t stride);
bool ups_planes_join_f32(ups_planes planes, int64_t times, int64_t series, int order, int64_t start, int64_t end,
                         bool past_caches, float *out, int64_t stride);

/* The instruction set in use: "avx512", "avx2" or "baseline". */
const char *ups_planes_instruction_set(void);

/* For tests that compare them: the vectorised forms by number from 0 (false past the last that runs here); a negative
 * number takes the plain loops alone. Not thread-safe. */
bool ups_planes_use(int form);

#endif
