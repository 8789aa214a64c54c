/* Philox4x32-10 and what is drawn from it. A stream's counter is (index low, index high, purpose, item), its key the
 * seed.
 *
 * The bulk fills use their own logarithm and sine in single precision, in plain IEEE operations that the compiler may
 * vectorize but not fuse (see CMakeLists.txt): the bits do not depend on the machine or on its math library. Element i
 * of a fill is drawn from word i % 4 (normal: from a pair of words) of block i / 4. */
#include "base/random.h"

#include <math.h>
#include <string.h>

enum { LANES = 64 /* blocks computed side by side, for the vector units */ };

double ups_random_normal(ups_random stream, uint64_t index) {
    uint64_t block[2];
    ups_random_block(stream, index, block);
    double radius = sqrt(-2.0 * log(1.0 - ups_random_unit(block[0]))); /* 1 - u is in (0, 1] */
    return radius * cos(2.0 * M_PI * ups_random_unit(block[1]));
}

/* LANES blocks from number `first` on, word by word: words[w][lane]. */
static void blocks_at(ups_random stream, uint64_t first, uint32_t words[4][LANES]) {
    for (int lane = 0; lane < LANES; lane++) {
        uint64_t index = first + (uint64_t)lane;
        ups_philox_words((uint32_t)index, (uint32_t)(index >> 32), stream.stream[0], stream.stream[1], stream.key[0],
                         stream.key[1], &words[0][lane], &words[1][lane], &words[2][lane], &words[3][lane]);
    }
}

/* A word as a number in (0, 1], on a grid of 2^-24. */
static inline float unit_above_zero(uint32_t word) {
    return ((float)(int32_t)(word >> 8) + 1.0f) * 0x1p-24f;
}

/* Natural logarithm of x in (0, 1], normal numbers only; absolute error below 2e-7. With x = 2^e m, m in [1/sqrt 2,
 * sqrt 2): log m = 2 artanh(s), s = (m - 1)/(m + 1), by its odd series. */
static inline float log_of(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int32_t exponent = (bits - 0x3f3504f3) >> 23; /* 0x3f3504f3 is sqrt(1/2) */
    int32_t mantissa_bits = bits - exponent * (1 << 23);
    float m;
    memcpy(&m, &mantissa_bits, sizeof m);
    float s = (m - 1.0f) / (m + 1.0f), t = s * s;
    float series = 2.0f + t * (2.0f / 3.0f + t * (2.0f / 5.0f + t * (2.0f / 7.0f + t * (2.0f / 9.0f))));
    return (float)exponent * 0.693147181f + s * series;
}

/* Cosine and sine of 2 pi word / 2^32; absolute error below 2e-7. Reduced to a quadrant exactly, in integers; Taylor
 * series. */
static inline void cos_sin_of_turn(uint32_t word, float *cosine, float *sine) {
    uint32_t quadrant = (word + 0x20000000u) >> 30;
    float x = (float)(int32_t)(word - (quadrant << 30)) * (float)(2.0 * M_PI * 0x1p-32); /* in [-pi/4, pi/4) */
    float t = x * x;
    float s = x * (1.0f + t * (-1.0f / 6.0f + t * (1.0f / 120.0f + t * (-1.0f / 5040.0f))));
    float c = 1.0f + t * (-1.0f / 2.0f + t * (1.0f / 24.0f + t * (-1.0f / 720.0f + t * (1.0f / 40320.0f))));
    int32_t swap = -(int32_t)(quadrant & 1), s_bits, c_bits;
    memcpy(&s_bits, &s, sizeof s_bits);
    memcpy(&c_bits, &c, sizeof c_bits);
    int32_t sine_bits = (s_bits & ~swap) | (c_bits & swap), cosine_bits = (c_bits & ~swap) | (s_bits & swap);
    sine_bits ^= (int32_t)((quadrant & 2) << 30);
    cosine_bits ^= (int32_t)(((quadrant + 1) & 2) << 30);
    memcpy(sine, &sine_bits, sizeof *sine);
    memcpy(cosine, &cosine_bits, sizeof *cosine);
}

/* Copies LANES blocks of four values, given value by value, to out in block order; at most `left` values. */
static void interleave(const float values[4][LANES], float *out, size_t left) {
    if (left >= 4 * LANES) {
        for (int lane = 0; lane < LANES; lane++) {
            for (int w = 0; w < 4; w++) out[4 * lane + w] = values[w][lane];
        }
        return;
    }
    for (size_t i = 0; i < left; i++) out[i] = values[i % 4][i / 4];
}

void ups_random_fill_normal(ups_random stream, float scale, float *out, size_t count) {
    uint32_t words[4][LANES];
    float values[4][LANES];
    for (size_t done = 0; done < count; done += 4 * LANES) {
        blocks_at(stream, done / 4, words);
        for (int pair = 0; pair < 4; pair += 2) {
            for (int lane = 0; lane < LANES; lane++) {
                float radius = scale * sqrtf(-2.0f * log_of(unit_above_zero(words[pair][lane])));
                float cosine, sine;
                cos_sin_of_turn(words[pair + 1][lane], &cosine, &sine);
                values[pair][lane] = radius * cosine;
                values[pair + 1][lane] = radius * sine;
            }
        }
        interleave((const float(*)[LANES])values, out + done, count - done);
    }
}

void ups_random_fill_uniform(ups_random stream, float low, float high, float *out, size_t count) {
    uint32_t words[4][LANES];
    float values[4][LANES];
    for (size_t done = 0; done < count; done += 4 * LANES) {
        blocks_at(stream, done / 4, words);
        for (int w = 0; w < 4; w++) {
            for (int lane = 0; lane < LANES; lane++) {
                values[w][lane] = low + (high - low) * ((float)(int32_t)(words[w][lane] >> 8) * 0x1p-24f);
            }
        }
        interleave((const float(*)[LANES])values, out + done, count - done);
    }
}
