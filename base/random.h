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
       UPS_RANDOM_SYMMETRY = 13,
};

/* Kernels of CUDA draw by the same code. */
#ifdef __CUDACC__
#define UPS_ON_DEVICE_TOO __host__ __device__
#else
#define UPS_ON_DEVICE_TOO
#endif

/* A stream keyed by (seed, purpose, item): `item` is a step, a sample, a parameter's index. */
UPS_ON_DEVICE_TOO static inline ups_random ups_random_stream(uint64_t seed, uint32_t purpose, uint32_t item) {
    ups_random stream;
    stream.key[0] = (uint32_t)seed, stream.key[1] = (uint32_t)(seed >> 32);
    stream.stream[0] = purpose, stream.stream[1] = item;
    return stream;
}

/* Ten rounds over the counter (c0, c1, c2, c3) with the key (k0, k1). Constants: Salmon et al., table 2. */
UPS_ON_DEVICE_TOO static inline void ups_philox_words(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0,
                                                      uint32_t k1, uint32_t *out0, uint32_t *out1, uint32_t *out2,
                                                      uint32_t *out3) {
    const int rounds = 10;
    for (int round = 0; round < rounds; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53 * c0, p1 = (uint64_t)0xCD9E8D57 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    *out0 = c0, *out1 = c1, *out2 = c2, *out3 = c3;
}

UPS_ON_DEVICE_TOO static inline void ups_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    ups_philox_words(counter[0], counter[1], counter[2], counter[3], key[0], key[1], &out[0], &out[1], &out[2],
                     &out[3]);
}

/* The words of number `index` of a stream as two of 64 bits. */
UPS_ON_DEVICE_TOO static inline void ups_random_block(ups_random stream, uint64_t index, uint64_t out[2]) {
    uint32_t words[4];
    ups_philox_words((uint32_t)index, (uint32_t)(index >> 32), stream.stream[0], stream.stream[1], stream.key[0],
                     stream.key[1], &words[0], &words[1], &words[2], &words[3]);
    out[0] = (uint64_t)words[1] << 32 | words[0];
    out[1] = (uint64_t)words[3] << 32 | words[2];
}

UPS_ON_DEVICE_TOO static inline uint32_t ups_random_u32(ups_random stream, uint64_t index) {
    uint64_t block[2];
    ups_random_block(stream, index, block);
    return (uint32_t)block[0];
}

/* Unbiased enough: 64-bit multiply-shift; bound > 0. */
UPS_ON_DEVICE_TOO static inline uint64_t ups_random_below(ups_random stream, uint64_t index, uint64_t bound) {
    __extension__ typedef unsigned __int128 wide;
    uint64_t block[2];
    ups_random_block(stream, index, block);
    return (uint64_t)((wide)block[0] * bound >> 64);
}

/* 53 random bits as a number in [0, 1). */
UPS_ON_DEVICE_TOO static inline double ups_random_unit(uint64_t bits) {
    return (double)(bits >> 11) * 0x1p-53;
}

/* [0, 1) with 53 bits */
UPS_ON_DEVICE_TOO static inline double ups_random_uniform(ups_random stream, uint64_t index) {
    uint64_t block[2];
    ups_random_block(stream, index, block);
    return ups_random_unit(block[0]);
}

/* Mean 0, variance 1 (Box–Muller). In kernels by cospi, since cos takes arguments of any size there: as float32 the
 * numbers are the same, but for one in 10^8 or so. */
#ifdef __CUDACC__
UPS_ON_DEVICE_TOO static inline double ups_random_normal(ups_random stream, uint64_t index) {
    uint64_t block[2];
    ups_random_block(stream, index, block);
    return sqrt(-2.0 * log(1.0 - ups_random_unit(block[0]))) * cospi(2.0 * ups_random_unit(block[1]));
}
#else
double ups_random_normal(ups_random stream, uint64_t index);
#endif
void ups_random_fill_normal(ups_random stream, float scale, float *out, size_t count);
void ups_random_fill_uniform(ups_random stream, float low, float high, float *out, size_t count);

#endif
