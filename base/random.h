/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
 *
 * A number is a pure function of (seed, purpose, index): no state to save, the same on every thread count and every
 * device. `purpose` separates streams: use one of the constants below, combined with a step or sample number. */
#ifndef UPS_BASE_RANDOM_H
#define UPS_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

typedef struct ups_random {
    uint32_t key[2]; /* from the seed */
    uint32_t stream[2];
} ups_random;

enum { /* purposes; part of what makes results reproducible: never renumber */
       UPS_RANDOM_INIT = 1,
       UPS_RANDOM_SAMPLER = 2,
       UPS_RANDOM_WINDOW = 3,
       UPS_RANDOM_QUERY = 4,
       UPS_RANDOM_DROP_PATH = 5,
       UPS_RANDOM_DATAGEN = 6,
       UPS_RANDOM_TEST = 7,
       UPS_RANDOM_PARAMETER = 8,
       UPS_RANDOM_NOISE = 9,
       UPS_RANDOM_SHIFT = 10,
       UPS_RANDOM_HISTORY = 11,
       UPS_RANDOM_BOOTSTRAP = 12,
};

/* A stream keyed by (seed, purpose, item): `item` is a step, a sample, a parameter's index. */
ups_random ups_random_stream(uint64_t seed, uint32_t purpose, uint32_t item);

void ups_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]); /* ten rounds */

uint32_t ups_random_u32(ups_random stream, uint64_t index);
uint64_t ups_random_below(ups_random stream, uint64_t index,
                          uint64_t bound);                    /* unbiased enough: 64-bit multiply-shift; bound > 0 */
double ups_random_uniform(ups_random stream, uint64_t index); /* [0, 1) with 53 bits */
double ups_random_normal(ups_random stream, uint64_t index);  /* mean 0, variance 1 (Box–Muller) */
void ups_random_fill_normal(ups_random stream, float scale, float *out, size_t count);
void ups_random_fill_uniform(ups_random stream, float low, float high, float *out, size_t count);

#endif
