/* Both directions work on tiles of 16 frames × 64 series, small enough for L1: on one side a tile lies time-fastest in
 * the byte planes, on the other it is 16 pieces of 128 bytes in the frames. Turning one into the other is a
 * transposition of 16 × 16 bytes in registers; prediction is then a vertical sum or difference over the tile's frames,
 * which compilers vectorize.
 *
 * What may surprise: a last tile along time overlaps the one before it when `times` is not a multiple of 16; its first
 * frames are read but not used again. Trajectories shorter than 16 frames, and series beyond a multiple of 64, take the
 * plain loops. */
#include "cache/codec.h"

#include <math.h>
#include <string.h>

#define TILE_FRAMES 16
#define TILE_SERIES 64
#define ORDER_STRIDE 8 /* choose_order looks at one block of series in this many */

typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint16_t tile_t[TILE_FRAMES][TILE_SERIES];

/* Carried along time for a block of series: the last integer and its last difference. */
typedef struct predictor {
    uint16_t value[TILE_SERIES], slope[TILE_SERIES];
} predictor;

size_t ups_latent_encoded_bytes(int64_t times, int64_t series) {
    return UPS_LATENT_HEADER_BYTES + 2 * (size_t)times * (size_t)series;
}

/* FP16 bits to order-preserving two's complement and back: its own inverse. */
static inline uint16_t ordered(uint16_t bits) {
    return bits ^ ((bits >> 15) * 0x7fffu);
}

static inline uint16_t zigzag(uint16_t residual) {
    return (uint16_t)((residual << 1) ^ (uint16_t) - (residual >> 15));
}

static inline uint16_t unzigzag(uint16_t code) {
    return (uint16_t)((code >> 1) ^ (uint16_t) - (code & 1));
}

static inline bytes16 load16(const uint8_t *from) {
    bytes16 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline bytes16 interleave_low(bytes16 a, bytes16 b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

static inline bytes16 interleave_high(bytes16 a, bytes16 b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/* Four perfect shuffles of 16 registers transpose 16 × 16 bytes. */
static inline __attribute__((always_inline)) void transpose16(bytes16 m[16]) {
    bytes16 n[16];
    for (int i = 0; i < 8; i++)
        n[2 * i] = interleave_low(m[i], m[i + 8]), n[2 * i + 1] = interleave_high(m[i], m[i + 8]);
    for (int i = 0; i < 8; i++)
        m[2 * i] = interleave_low(n[i], n[i + 8]), m[2 * i + 1] = interleave_high(n[i], n[i + 8]);
    for (int i = 0; i < 8; i++)
        n[2 * i] = interleave_low(m[i], m[i + 8]), n[2 * i + 1] = interleave_high(m[i], m[i + 8]);
    for (int i = 0; i < 8; i++)
        m[2 * i] = interleave_low(n[i], n[i + 8]), m[2 * i + 1] = interleave_high(n[i], n[i + 8]);
}

/* high, low: planes at (first series of the block, first frame of the tile); rows lie `times` bytes apart. */
static inline __attribute__((always_inline)) void gather_tile(const uint8_t *high, const uint8_t *low, int64_t times,
                                                              tile_t tile) {
    for (int group = 0; group < TILE_SERIES; group += 16) {
        bytes16 h[16], l[16];
        for (int i = 0; i < 16; i++) h[i] = load16(high + (group + i) * times);
        for (int i = 0; i < 16; i++) l[i] = load16(low + (group + i) * times);
        transpose16(h);
        transpose16(l);
        for (int t = 0; t < TILE_FRAMES; t++) {
            bytes16 first = interleave_low(l[t], h[t]), second = interleave_high(l[t], h[t]);
            memcpy(&tile[t][group], &first, 16);
            memcpy(&tile[t][group + 8], &second, 16);
        }
    }
}

static inline __attribute__((always_inline)) void scatter_tile(const tile_t tile, int64_t times, uint8_t *high,
                                                               uint8_t *low) {
    for (int group = 0; group < TILE_SERIES; group += 16) {
        bytes16 h[16], l[16];
        for (int t = 0; t < TILE_FRAMES; t++) {
            uint8_t split_low[16], split_high[16];
            for (int i = 0; i < 16; i++) {
                split_low[i] = (uint8_t)tile[t][group + i];
                split_high[i] = (uint8_t)(tile[t][group + i] >> 8);
            }
            l[t] = load16(split_low);
            h[t] = load16(split_high);
        }
        transpose16(h);
        transpose16(l);
        for (int i = 0; i < 16; i++) memcpy(high + (group + i) * times, &h[i], 16);
        for (int i = 0; i < 16; i++) memcpy(low + (group + i) * times, &l[i], 16);
    }
}

/* One frame of a block forward: codes → FP16 bits. Written out per order so that each loop vectorizes. */
static inline __attribute__((always_inline)) void undo_frame(predictor *p, const uint16_t *codes, int order,
                                                             int64_t frame, ups_f16 *out) {
    if (order == 0 || frame == 0) {
        for (int i = 0; i < TILE_SERIES; i++) p->value[i] = unzigzag(codes[i]);
    } else if (order == 1) {
        for (int i = 0; i < TILE_SERIES; i++) p->value[i] = (uint16_t)(p->value[i] + unzigzag(codes[i]));
    } else {
        for (int i = 0; i < TILE_SERIES; i++) {
            p->slope[i] = (uint16_t)(p->slope[i] + unzigzag(codes[i]));
            p->value[i] = (uint16_t)(p->value[i] + p->slope[i]);
        }
    }
    if (out) {
        for (int i = 0; i < TILE_SERIES; i++) out[i] = ordered(p->value[i]);
    }
}

/* One frame of `width` series: FP16 bits → codes. */
static inline void predict_frame(predictor *p, const ups_f16 *in, int width, int order, int64_t frame,
                                 uint16_t *codes) {
    for (int i = 0; i < width; i++) {
        uint16_t value = ordered(in[i]);
        uint16_t slope = frame == 0 ? 0 : (uint16_t)(value - p->value[i]);
        uint16_t residual = order == 0 || frame == 0 ? value : order == 1 ? slope : (uint16_t)(slope - p->slope[i]);
        codes[i] = zigzag(residual);
        p->value[i] = value;
        p->slope[i] = slope;
    }
}

static ups_status check_header(const uint8_t *encoded, size_t length, int64_t times, int64_t series, ups_error *error) {
    if (length != ups_latent_encoded_bytes(times, series)) {
        return ups_fail(error, UPS_ERR_FORMAT, "a chunk holds %zu bytes where %zu were expected", length,
                        ups_latent_encoded_bytes(times, series));
    }
    if (encoded[0] != UPS_LATENT_VERSION) {
        return ups_fail(error, UPS_ERR_FORMAT, "a chunk has version %d of ups.latent; this reader knows version %d",
                        encoded[0], UPS_LATENT_VERSION);
    }
    if (encoded[1] > UPS_LATENT_MAX_ORDER || encoded[2] || encoded[3]) {
        return ups_fail(error, UPS_ERR_FORMAT, "a chunk's ups.latent header is wrong: order %d, reserved bytes %d %d",
                        encoded[1], encoded[2], encoded[3]);
    }
    return UPS_OK;
}

static void decode_series_scalar(const uint8_t *high, const uint8_t *low, int64_t series, int64_t s, int order,
                                 int64_t start, int64_t end, ups_f16 *out) {
    uint16_t value = 0, slope = 0;
    for (int64_t t = 0; t < end; t++) {
        uint16_t residual = unzigzag((uint16_t)(high[t] << 8 | low[t]));
        if (order == 0 || t == 0) {
            value = residual;
        } else {
            slope = order == 1 ? residual : (uint16_t)(slope + residual);
            value = (uint16_t)(value + slope);
        }
        if (t >= start) out[(t - start) * series + s] = ordered(value);
    }
}

ups_status ups_latent_decode_scalar(const uint8_t *encoded, size_t length, int64_t times, int64_t series, int64_t start,
                                    int64_t count, ups_f16 *out, ups_error *error) {
    UPS_TRY(check_header(encoded, length, times, series, error));
    const uint8_t *high = encoded + UPS_LATENT_HEADER_BYTES, *low = high + times * series;
    for (int64_t s = 0; s < series; s++) {
        decode_series_scalar(high + s * times, low + s * times, series, s, encoded[1], start, start + count, out);
    }
    return UPS_OK;
}

/* A block of 64 series, tile after tile along time. `order` is a constant in each caller, so that undo_frame
 * specialises. */
static inline __attribute__((always_inline)) void decode_block(const uint8_t *high, const uint8_t *low, int64_t times,
                                                               int64_t series, int order, int64_t start, int64_t end,
                                                               ups_f16 *out) {
    predictor p = {0};
    tile_t tile;
    for (int64_t done = 0; done < end; done += TILE_FRAMES) {
        int64_t first = done + TILE_FRAMES <= times ? done : times - TILE_FRAMES;
        gather_tile(high + first, low + first, times, tile);
        int64_t stop = first + TILE_FRAMES < end ? first + TILE_FRAMES : end;
        for (int64_t t = done; t < stop; t++) {
            undo_frame(&p, tile[t - first], order, t, t >= start ? out + (t - start) * series : NULL);
        }
    }
}

/* Plain x86-64 (SSE2) code: versions for AVX2 and AVX-512 were measured and are no faster, memory being the limit. */
static void decode_blocks(const uint8_t *high, const uint8_t *low, int64_t times, int64_t series, int order,
                          int64_t start, int64_t end, ups_f16 *out) {
    for (int64_t s = 0; s + TILE_SERIES <= series; s += TILE_SERIES) {
        const uint8_t *h = high + s * times, *l = low + s * times;
        if (order == 2)
            decode_block(h, l, times, series, 2, start, end, out + s);
        else if (order == 1)
            decode_block(h, l, times, series, 1, start, end, out + s);
        else
            decode_block(h, l, times, series, 0, start, end, out + s);
    }
}

ups_status ups_latent_decode(const uint8_t *encoded, size_t length, int64_t times, int64_t series, int64_t start,
                             int64_t count, ups_f16 *out, ups_error *error) {
    UPS_TRY(check_header(encoded, length, times, series, error));
    const uint8_t *high = encoded + UPS_LATENT_HEADER_BYTES, *low = high + times * series;
    int order = encoded[1];
    int64_t blocked = 0;
    if (times >= TILE_FRAMES) {
        blocked = series / TILE_SERIES * TILE_SERIES;
        decode_blocks(high, low, times, series, order, start, start + count, out);
    }
    for (int64_t s = blocked; s < series; s++) {
        decode_series_scalar(high + s * times, low + s * times, series, s, order, start, start + count, out);
    }
    return UPS_OK;
}

static void encode_block(const ups_f16 *in, int64_t times, int64_t series, int order, uint8_t *high, uint8_t *low) {
    predictor p = {0};
    tile_t tile;
    int64_t previous = 0; /* the frame that tile[0] holds */
    for (int64_t done = 0; done < times; done += TILE_FRAMES) {
        int64_t first = done + TILE_FRAMES <= times ? done : times - TILE_FRAMES;
        memmove(tile[0], tile[first - previous < TILE_FRAMES ? first - previous : 0],
                (size_t)(done - first) * sizeof tile[0]); /* frames of the tile before that the last one overlaps */
        for (int64_t t = done; t < first + TILE_FRAMES; t++) {
            predict_frame(&p, in + t * series, TILE_SERIES, order, t, tile[t - first]);
        }
        scatter_tile((const uint16_t(*)[TILE_SERIES])tile, times, high + first, low + first);
        previous = first;
    }
}

void ups_latent_encode(const ups_f16 *latents, int64_t times, int64_t series, int order, uint8_t *out) {
    out[0] = UPS_LATENT_VERSION;
    out[1] = (uint8_t)order;
    out[2] = out[3] = 0;
    uint8_t *high = out + UPS_LATENT_HEADER_BYTES, *low = high + times * series;
    int64_t s = 0;
    if (times >= TILE_FRAMES) {
        for (; s + TILE_SERIES <= series; s += TILE_SERIES) {
            encode_block(latents + s, times, series, order, high + s * times, low + s * times);
        }
    }
    for (; s < series; s++) {
        predictor p = {0};
        for (int64_t t = 0; t < times; t++) {
            uint16_t code;
            predict_frame(&p, latents + t * series + s, 1, order, t, &code);
            high[s * times + t] = (uint8_t)(code >> 8);
            low[s * times + t] = (uint8_t)code;
        }
    }
}

/* Bits that an ideal order-0 coder would spend on these bytes. */
static double entropy_bits(const uint32_t histogram[256]) {
    double total = 0, sum = 0;
    for (int i = 0; i < 256; i++) {
        if (!histogram[i]) continue;
        total += histogram[i];
        sum += histogram[i] * log2(histogram[i]);
    }
    return total > 0 ? total * log2(total) - sum : 0;
}

int ups_latent_choose_order(const ups_f16 *latents, int64_t times, int64_t series) {
    int best = 0;
    double best_bits = INFINITY;
    for (int order = 0; order <= UPS_LATENT_MAX_ORDER; order++) {
        uint32_t high[256] = {0}, low[256] = {0};
        for (int64_t s = 0; s < series; s += (int64_t)ORDER_STRIDE * TILE_SERIES) {
            int width = series - s < TILE_SERIES ? (int)(series - s) : TILE_SERIES;
            predictor p = {0};
            for (int64_t t = 0; t < times; t++) {
                uint16_t codes[TILE_SERIES];
                predict_frame(&p, latents + t * series + s, width, order, t, codes);
                for (int i = 0; i < width; i++) high[codes[i] >> 8]++, low[codes[i] & 255]++;
            }
        }
        double bits = entropy_bits(high) + entropy_bits(low);
        if (bits < best_bits) best_bits = bits, best = order;
    }
    return best;
}
