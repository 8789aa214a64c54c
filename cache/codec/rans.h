/* Prediction and entropy coding: what makes FP16 latents of a smooth evolution small, without losing a bit.
 *
 * A block of a trajectory (time, series), series = token × dim:
 *   1. FP16 bits are mapped to integers in the order of the numbers (negative ones have their magnitude bits flipped);
 *   2. each series is predicted along time: order 0 predicts nothing, 1 the last value, 2 the straight line through the
 * last two; integers wrap around at 16 bits, so that any bit pattern (NaN and Inf too) survives;
 *   3. residuals are zigzagged (small magnitudes of either sign become small numbers) into codes;
 *   4. a code is a token, which an entropy coder sees, and for large codes extra bits, which it does not;
 *   5. tokens are coded by range variants of asymmetric numeral systems (rANS, arXiv 1311.2540), with a table of
 * frequencies for each context. The context is how large the last two codes of the same series were: noise that
 * changes with series and time is coded at its own scale, without a word being said about it.
 *
 * Why so. A general compressor after prediction (planes of bits, then zstd) was 15–20 % larger and half as fast: it
 * sees one scale a block, and takes two symbols a value. Here a value is one symbol, series are lanes of a vector, each
 * lane with a coder's state of its own (interleaved as in arXiv 1402.3392), and a frame's lanes lie side by side in
 * memory: nothing is transposed.
 *
 * Vectorised for AVX-512 and for AVX2; otherwise plain loops; chosen when the program starts: the best that the
 * processor has, or that UPS_CPU names. */
#ifndef UPS_CACHE_CODEC_RANS_H
#define UPS_CACHE_CODEC_RANS_H

#include "base/dtype.h"
#include "base/half.h"
#include <stdbool.h>
#include <stdint.h>

#define UPS_RANS_MAX_ORDER 2
#define UPS_RANS_LANES 64     /* series side by side at most; few in a small block, since a lane costs 4 bytes */
#define UPS_RANS_FEW_LANES 16 /* the kernels are vectorised for these two widths */
#define UPS_RANS_CONTEXTS 32
#define UPS_RANS_TOKENS 64 /* room for */
#define UPS_RANS_USED_TOKENS 40
#define UPS_RANS_PLAIN_TOKENS 16 /* codes below are tokens by themselves */
#define UPS_RANS_BITS 10         /* of a frequency */
#define UPS_RANS_TOTAL (1 << UPS_RANS_BITS)
#define UPS_RANS_FLOOR 65536u /* states are at least this; they start with it, and end there when decoded */

/* How often each token came in each context. */
typedef uint32_t ups_rans_histogram[UPS_RANS_CONTEXTS][UPS_RANS_TOKENS];

/* For encoding, of (context, token): frequency | what those before it sum up to << 16. */
#define UPS_RANS_ENCODER_ENTRIES (UPS_RANS_CONTEXTS * UPS_RANS_TOKENS)
/* For decoding, of (context, slot): frequency | slot less where its token begins << 11 | the bits of a code that its
 * token says << 21 | how many more bits it has << 21 + UPS_RANS_DECODED_EXTRA. */
#define UPS_RANS_DECODED_EXTRA 7
#define UPS_RANS_DECODER_ENTRIES (UPS_RANS_CONTEXTS * UPS_RANS_TOTAL)

/* Where decoded frames [start, end) go: `out` is the first of them, rows `stride` values apart. `past_caches`: large
 * and not read soon, so it is written around the caches (where rows are aligned to 64 bytes). */
typedef struct ups_rans_frames {
    ups_dtype dtype; /* UPS_F16 or UPS_F32 */
    bool past_caches;
    int64_t start, end, stride;
    void *out;
} ups_rans_frames;

/* FP16 bits to integers in the order of the numbers, as 16 bits of two's complement: its own inverse. */
static inline uint16_t ups_rans_ordered(uint16_t bits) {
    return (uint16_t)(bits ^ ((bits >> 15) * 0x7fffu));
}

/* `latents` (times, series), rows `stride` apart, into codes (times, series). */
void ups_rans_residuals(const ups_f16 *latents, int64_t stride, int64_t times, int64_t series, int order,
                        uint16_t *codes);

/* Adds the tokens of codes (times, series) to `counts`. */
void ups_rans_count(const uint16_t *codes, int64_t times, int64_t series, ups_rans_histogram counts);

/* Bits that an ideal coder would spend on these tokens if it knew no contexts, extra bits included: what tells which
 * order is best. */
uint64_t ups_rans_bits(ups_rans_histogram counts);

/* Likewise with contexts: what these tokens become, to a byte or so in a hundred. */
uint64_t ups_rans_bits_in_contexts(ups_rans_histogram counts);

/* A context that is too rare or too like the one before it to be worth a table gives its counts to that one. */
void ups_rans_merge(ups_rans_histogram counts);

/* Counts become frequencies that sum up to UPS_RANS_TOTAL in each context that occurs. */
void ups_rans_normalise(ups_rans_histogram counts);

/* A context without frequencies has those of the nearest one before it that has some.
 *
 * Frequencies to bytes, at most UPS_RANS_MAX_TABLE_BYTES, and back. Returns what was written or read; reading 0: there
 * is no sound table. */
#define UPS_RANS_MAX_TABLE_BYTES (4 + UPS_RANS_CONTEXTS * (1 + 2 * UPS_RANS_USED_TOKENS))
size_t ups_rans_write_frequencies(ups_rans_histogram frequencies, uint8_t *out);
size_t ups_rans_read_frequencies(const uint8_t *bytes, size_t length, ups_rans_histogram frequencies);

/* The first context that series of so many times come to: those of static latents come to few. */
static inline int ups_rans_first_context(int64_t times) {
    return times == 1 ? 31 : times == 2 ? 29 : 0; /* 13 + the bits of 3 · 65535, and of 65535 */
}

/* Tables of contexts before `first` are left as they are. */
void ups_rans_encoder_tables(ups_rans_histogram frequencies, uint32_t tables[UPS_RANS_ENCODER_ENTRIES]);
void ups_rans_decoder_tables(ups_rans_histogram frequencies, int first, uint32_t tables[UPS_RANS_DECODER_ENTRIES]);

#define UPS_RANS_SLACK 8

/* `width` ≤ UPS_RANS_LANES series of codes (times, …), rows `stride` apart. Words are written downwards from `top`, at
 * most two a code, with UPS_RANS_SLACK more that may be written over; returns the new top. Groups of series are encoded
 * from the last to the first, with the same states.
 */
uint16_t *ups_rans_encode(const uint32_t *tables, const uint16_t *codes, int64_t stride, int64_t times, int width,
                          uint32_t state[UPS_RANS_LANES], uint16_t *top);

/* The words from `at` on become `width` series of frames in `to`; returns where the next group's words are. Words past
 * `end` are zeros; nothing is read there. *finite is cleared when NaN or Inf is among the frames. */
const uint8_t *ups_rans_decode(const uint32_t *tables, const uint8_t *at, const uint8_t *end, int64_t times, int width,
                               int order, ups_rans_frames to, uint32_t state[UPS_RANS_LANES], bool *finite);

/* The instruction set in use: "avx512", "avx2" or "baseline". */
const char *ups_rans_instruction_set(void);

/* For tests that compare them: forms by number from 0; false past the last that runs here. Not thread-safe. */
bool ups_rans_use(int form);

#endif
