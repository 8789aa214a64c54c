/* Both directions work on tiles of 16 frames × WIDTH series, WIDTH being the bytes of a vector: on one side a tile lies
 * time-fastest in the planes, on the other it is 16 rows of WIDTH values in the frames. Turning one into the other is a
 * transposition of 16 × 16 bytes in each 16-byte lane of the registers; prediction is then a vertical sum or difference
 * along the tile's frames.
 *
 * What may surprise. A series' row of 8 low and 8 middle bytes is transposed as one row of 16: two frames lie in a
 * byte, so the 16 registers are then the low and the middle nibbles of 8 pairs of frames. Series are dealt to lanes so
 * that unpacking bytes to 16-bit words, which stays within lanes, leaves them in order (series_of). The last tile along
 * time overlaps the one before it when the number of frames, made even, is not a multiple of 16; its first frames are
 * read but not used again. */
#include "cache/planes_kernel.h"

#include <string.h>

#if defined(__AVX512BW__)
#include <immintrin.h>
#define WIDTH 64
#define KERNEL ups_planes_avx512
#define NAME "avx512"
#define LANES(of) of(0, 64), of(16, 64), of(32, 64), of(48, 64)
#elif defined(__AVX2__)
#include <immintrin.h>
#define WIDTH 32
#define KERNEL ups_planes_avx2
#define NAME "avx2"
#define LANES(of) of(0, 32), of(16, 32)
#else
#define WIDTH 16
#define KERNEL ups_planes_baseline
#define NAME "baseline"
#define LANES(of) of(0, 16)
#endif

#define TILE UPS_PLANES_TILE
#define LANE 16 /* bytes of a lane */
#define HALF (WIDTH / 2)

typedef uint8_t bytes __attribute__((vector_size(WIDTH)));
typedef uint16_t words __attribute__((vector_size(WIDTH)));
typedef int16_t signed_words __attribute__((vector_size(WIDTH)));

/* WIDTH series of one frame, in order. */
typedef struct row {
    words first, second;
} row;

/* Carried along time: the last integers and their last differences. */
typedef struct predictor {
    row value, slope;
} predictor;

/* Shuffles within lanes; `at` is the lane's first byte, `w` where the second operand begins. */
#define LOW_OF(at, w)                                                                                                  \
    at, w + at, at + 1, w + at + 1, at + 2, w + at + 2, at + 3, w + at + 3, at + 4, w + at + 4, at + 5, w + at + 5,    \
        at + 6, w + at + 6, at + 7, w + at + 7
#define HIGH_OF(at, w) LOW_OF(at + 8, w)
#define EVEN_OF(at, w)                                                                                                 \
    at, at + 2, at + 4, at + 6, at + 8, at + 10, at + 12, at + 14, w + at, w + at + 2, w + at + 4, w + at + 6,         \
        w + at + 8, w + at + 10, w + at + 12, w + at + 14
#define ODD_OF(at, w) EVEN_OF(at + 1, w)

static inline bytes interleave_low(bytes a, bytes b) {
    return __builtin_shufflevector(a, b, LANES(LOW_OF));
}

static inline bytes interleave_high(bytes a, bytes b) {
    return __builtin_shufflevector(a, b, LANES(HIGH_OF));
}

static inline bytes low_bytes(row r) {
    return __builtin_shufflevector((bytes)r.first, (bytes)r.second, LANES(EVEN_OF));
}

static inline bytes high_bytes(row r) {
    return __builtin_shufflevector((bytes)r.first, (bytes)r.second, LANES(ODD_OF));
}

/* The series whose bytes are row `i` of lane `lane`. */
static inline int series_of(int i, int lane) {
    return i < 8 ? 8 * lane + i : HALF + 8 * lane + i - 8;
}

/* Four perfect shuffles of 16 registers transpose 16 × 16 bytes in each lane. */
static inline __attribute__((always_inline)) void transpose(bytes m[16]) {
    bytes n[16];
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < 8; i++)
            n[2 * i] = interleave_low(m[i], m[i + 8]), n[2 * i + 1] = interleave_high(m[i], m[i + 8]);
        for (int i = 0; i < 8; i++)
            m[2 * i] = interleave_low(n[i], n[i + 8]), m[2 * i + 1] = interleave_high(n[i], n[i + 8]);
    }
}

/* FP16 bits to order-preserving two's complement and back: its own inverse. */
static inline words ordered(words bits) {
    return bits ^ (words)(((signed_words)bits >> 15) & 0x7fff);
}

static inline words zigzag(words residual) {
    return (residual << 1) ^ (words)((signed_words)residual >> 15);
}

static inline words unzigzag(words code) {
    return (code >> 1) ^ -(code & 1);
}

static inline bytes load_high(const uint8_t *high, int64_t times, int i) {
    uint8_t lanes[WIDTH];
    for (int g = 0; g < WIDTH / LANE; g++) memcpy(lanes + g * LANE, high + series_of(i, g) * times, LANE);
    bytes v;
    memcpy(&v, lanes, sizeof v);
    return v;
}

static inline bytes load_nibbles(const uint8_t *low, const uint8_t *middle, int64_t pairs, int i) {
    uint8_t lanes[WIDTH];
    for (int g = 0; g < WIDTH / LANE; g++) {
        memcpy(lanes + g * LANE, low + series_of(i, g) * pairs, 8);
        memcpy(lanes + g * LANE + 8, middle + series_of(i, g) * pairs, 8);
    }
    bytes v;
    memcpy(&v, lanes, sizeof v);
    return v;
}

/* Planes at (first series of the group, first frame of the tile) → codes of the tile's frames. */
static inline __attribute__((always_inline)) void gather(const uint8_t *low, const uint8_t *middle, const uint8_t *high,
                                                         int64_t times, row codes[TILE]) {
    bytes nibbles[16], h[16];
    for (int i = 0; i < 16; i++) nibbles[i] = load_nibbles(low, middle, ups_planes_pairs(times), i);
    transpose(nibbles);
    for (int i = 0; i < 16; i++) h[i] = load_high(high, times, i);
    transpose(h);
    for (int k = 0; k < TILE / 2; k++) {
        bytes even = (nibbles[k] & 0x0f) | (nibbles[k + 8] << 4), odd = (nibbles[k] >> 4) | (nibbles[k + 8] & 0xf0);
        codes[2 * k] = (row){(words)interleave_low(even, h[2 * k]), (words)interleave_high(even, h[2 * k])};
        codes[2 * k + 1] = (row){(words)interleave_low(odd, h[2 * k + 1]), (words)interleave_high(odd, h[2 * k + 1])};
    }
}

/* `frames`: how many of the tile there are, TILE or, past an odd end, one less. */
static inline __attribute__((always_inline)) void scatter(const row codes[TILE], int64_t times, int64_t frames,
                                                          uint8_t *low, uint8_t *middle, uint8_t *high) {
    int64_t pairs = ups_planes_pairs(times);
    bytes nibbles[16], h[16];
    for (int k = 0; k < TILE / 2; k++) {
        bytes even = low_bytes(codes[2 * k]), odd = low_bytes(codes[2 * k + 1]);
        nibbles[k] = (even & 0x0f) | (odd << 4);
        nibbles[k + 8] = (even >> 4) | (odd & 0xf0);
        h[2 * k] = high_bytes(codes[2 * k]);
        h[2 * k + 1] = high_bytes(codes[2 * k + 1]);
    }
    transpose(nibbles);
    transpose(h);
    for (int i = 0; i < 16; i++) {
        for (int g = 0; g < WIDTH / LANE; g++) {
            const uint8_t *n = (const uint8_t *)&nibbles[i] + g * LANE;
            memcpy(low + series_of(i, g) * pairs, n, 8);
            memcpy(middle + series_of(i, g) * pairs, n + 8, 8);
            const uint8_t *from = (const uint8_t *)&h[i] + g * LANE;
            uint8_t *to = high + series_of(i, g) * times;
            if (frames == TILE)
                memcpy(to, from, TILE);
            else
                memcpy(to, from, TILE - 1);
        }
    }
}

/* One frame forward: codes → integers in p->value. */
static inline __attribute__((always_inline)) void undo(predictor *p, row code, int order, int64_t frame) {
    row residual = {unzigzag(code.first), unzigzag(code.second)};
    if (order == 0 || frame == 0) {
        p->value = residual;
    } else if (order == 1) {
        p->value.first += residual.first, p->value.second += residual.second;
    } else {
        p->slope.first += residual.first, p->slope.second += residual.second;
        p->value.first += p->slope.first, p->value.second += p->slope.second;
    }
}

static inline __attribute__((always_inline)) row predict(predictor *p, const ups_f16 *in, int order, int64_t frame) {
    row value;
    memcpy(&value, in, sizeof value);
    value = (row){ordered(value.first), ordered(value.second)};
    row slope = {value.first - p->value.first, value.second - p->value.second};
    row residual = value;
    if (frame == 0)
        slope = (row){{0}, {0}};
    else if (order == 1)
        residual = slope;
    else if (order == 2)
        residual = (row){slope.first - p->slope.first, slope.second - p->slope.second};
    *p = (predictor){value, slope};
    return (row){zigzag(residual.first), zigzag(residual.second)};
}

/* Where the frames go: FP16 as it is, float32, or float32 around the caches. */
typedef enum target { TO_F16, TO_F32, TO_F32_PAST_CACHES } target;

static inline __attribute__((always_inline)) void put(words bits, target to, void *out) {
    if (to == TO_F16) {
        memcpy(out, &bits, sizeof bits);
        return;
    }
#if WIDTH == 64
    for (int i = 0; i < 2; i++) {
        __m256i half;
        memcpy(&half, (const char *)&bits + 32 * i, sizeof half);
        __m512 floats = _mm512_cvtph_ps(half);
        if (to == TO_F32_PAST_CACHES)
            _mm512_stream_ps((float *)out + 16 * i, floats);
        else
            _mm512_storeu_ps((float *)out + 16 * i, floats);
    }
#elif WIDTH == 32
    for (int i = 0; i < 2; i++) {
        __m128i half;
        memcpy(&half, (const char *)&bits + 16 * i, sizeof half);
        __m256 floats = _mm256_cvtph_ps(half);
        if (to == TO_F32_PAST_CACHES)
            _mm256_stream_ps((float *)out + 8 * i, floats);
        else
            _mm256_storeu_ps((float *)out + 8 * i, floats);
    }
#else
    ups_f16 halves[HALF];
    memcpy(halves, &bits, sizeof bits);
    ups_f16_to_f32(halves, out, HALF);
#endif
}

/* A group of WIDTH series, tile after tile along time. Adds to *carry: bit 15 of a word is set when a value's exponent
 * was all ones. `order` and `to` are constants in each caller. */
static inline __attribute__((always_inline)) void join_group(const uint8_t *low, const uint8_t *middle,
                                                             const uint8_t *high, int64_t times, int order, target to,
                                                             int64_t start, int64_t end, char *out, int64_t stride,
                                                             words *carry) {
    size_t size = to == TO_F16 ? sizeof(ups_f16) : sizeof(float);
    int64_t even_times = 2 * ups_planes_pairs(times);
    predictor p = {0};
    row codes[TILE];
    for (int64_t done = 0; done < end; done += TILE) {
        int64_t first = done + TILE <= even_times ? done : even_times - TILE;
        gather(low + first / 2, middle + first / 2, high + first, times, codes);
        int64_t stop = first + TILE < end ? first + TILE : end;
        for (int64_t t = done; t < stop; t++) {
            undo(&p, codes[t - first], order, t);
            if (t < start) continue;
            row bits = {ordered(p.value.first), ordered(p.value.second)};
            *carry |= ((bits.first & 0x7c00) + 0x0400) | ((bits.second & 0x7c00) + 0x0400);
            char *at = out + (size_t)((t - start) * stride) * size;
            put(bits.first, to, at);
            put(bits.second, to, at + HALF * size);
        }
    }
}

static inline __attribute__((always_inline)) bool join(ups_planes planes, int64_t times, int64_t series, int order,
                                                       target to, int64_t start, int64_t end, char *out,
                                                       int64_t stride) {
    size_t size = to == TO_F16 ? sizeof(ups_f16) : sizeof(float);
    int64_t pairs = ups_planes_pairs(times);
    words carry = {0};
    for (int64_t s = 0; s + WIDTH <= series; s += WIDTH) {
        const uint8_t *low = planes.low + s * pairs, *middle = planes.middle + s * pairs;
        const uint8_t *high = planes.high + s * times;
        char *at = out + (size_t)s * size;
        if (order == 2)
            join_group(low, middle, high, times, 2, to, start, end, at, stride, &carry);
        else if (order == 1)
            join_group(low, middle, high, times, 1, to, start, end, at, stride, &carry);
        else
            join_group(low, middle, high, times, 0, to, start, end, at, stride, &carry);
    }
    uint16_t any = 0;
    for (int i = 0; i < HALF; i++) any |= carry[i];
    return !(any & 0x8000);
}

static bool join_f16(ups_planes planes, int64_t times, int64_t series, int order, int64_t start, int64_t end,
                     ups_f16 *out, int64_t stride) {
    return join(planes, times, series, order, TO_F16, start, end, (char *)out, stride);
}

static bool join_f32(ups_planes planes, int64_t times, int64_t series, int order, int64_t start, int64_t end,
                     bool past_caches, float *out, int64_t stride) {
    if (!past_caches || WIDTH == LANE || (uintptr_t)out % 64 != 0 || stride % 16 != 0)
        return join(planes, times, series, order, TO_F32, start, end, (char *)out, stride);
    bool finite = join(planes, times, series, order, TO_F32_PAST_CACHES, start, end, (char *)out, stride);
#if WIDTH > 16
    _mm_sfence(); /* other threads see it once they are told of it */
#endif
    return finite;
}

static inline __attribute__((always_inline)) void split_group(const ups_f16 *in, int64_t stride, int64_t times,
                                                              int order, uint8_t *low, uint8_t *middle, uint8_t *high) {
    int64_t even_times = 2 * ups_planes_pairs(times);
    predictor p = {0};
    row codes[TILE];
    int64_t previous = 0; /* the frame that codes[0] holds */
    for (int64_t done = 0; done < even_times; done += TILE) {
        int64_t first = done + TILE <= even_times ? done : even_times - TILE;
        for (int64_t t = first; t < done; t++) codes[t - first] = codes[t - previous]; /* what the last tile overlaps */
        for (int64_t t = done; t < first + TILE; t++)
            codes[t - first] = t < times ? predict(&p, in + t * stride, order, t) : (row){{0}, {0}};
        scatter(codes, times, times - first < TILE ? times - first : TILE, low + first / 2, middle + first / 2,
                high + first);
        previous = first;
    }
}

static void split(const ups_f16 *latents, int64_t stride, int64_t times, int64_t series, int order, ups_planes planes) {
    int64_t pairs = ups_planes_pairs(times);
    for (int64_t s = 0; s + WIDTH <= series; s += WIDTH) {
        uint8_t *low = planes.low + s * pairs, *middle = planes.middle + s * pairs, *high = planes.high + s * times;
        if (order == 2)
            split_group(latents + s, stride, times, 2, low, middle, high);
        else if (order == 1)
            split_group(latents + s, stride, times, 1, low, middle, high);
        else
            split_group(latents + s, stride, times, 0, low, middle, high);
    }
}

const ups_planes_kernel KERNEL = {NAME, WIDTH, split, join_f16, join_f32};
