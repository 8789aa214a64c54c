#include "cache/planes.h"

#include "cache/planes_kernel.h"
#include <math.h>
#include <string.h>

#define ORDER_BLOCK 64  /* series that choose_order looks at together, */
#define ORDER_STRIDE 16 /* one such block in this many */

/* What one series needs to be predicted or undone: the last integer and its last difference. */
typedef struct predictor {
    uint16_t value, slope;
} predictor;

static inline uint16_t ordered(uint16_t bits) {
    return bits ^ ((bits >> 15) * 0x7fffu);
}

static inline uint16_t zigzag(uint16_t residual) {
    return (uint16_t)((residual << 1) ^ (uint16_t) - (residual >> 15));
}

static inline uint16_t unzigzag(uint16_t code) {
    return (uint16_t)((code >> 1) ^ (uint16_t) - (code & 1));
}

static inline uint16_t predict(predictor *p, ups_f16 bits, int order, int64_t frame) {
    uint16_t value = ordered(bits);
    uint16_t slope = frame == 0 ? 0 : (uint16_t)(value - p->value);
    uint16_t residual = order == 0 || frame == 0 ? value : order == 1 ? slope : (uint16_t)(slope - p->slope);
    *p = (predictor){value, slope};
    return zigzag(residual);
}

static inline ups_f16 undo(predictor *p, uint16_t code, int order, int64_t frame) {
    uint16_t residual = unzigzag(code);
    if (order == 0 || frame == 0) {
        p->value = residual;
    } else {
        p->slope = order == 1 ? residual : (uint16_t)(p->slope + residual);
        p->value = (uint16_t)(p->value + p->slope);
    }
    return ordered(p->value);
}

/* The fastest form that runs here; NULL: the plain loops, one value after the other. */
static const ups_planes_kernel *fastest(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return &ups_planes_avx512;
    if (__builtin_cpu_supports("avx2") && ups_half_path_runs_here(UPS_HALF_F16C)) return &ups_planes_avx2;
#endif
    return &ups_planes_baseline;
}

static const ups_planes_kernel *kernel;

__attribute__((constructor)) static void choose_kernel(void) {
    kernel = fastest();
}

const char *ups_planes_instruction_set(void) {
    return kernel ? kernel->name : "plain";
}

bool ups_planes_use(int form) {
    const ups_planes_kernel *forms[3];
    int count = 0;
#if defined(__x86_64__)
    if (fastest() == &ups_planes_avx512) forms[count++] = &ups_planes_avx512;
    if (fastest() != &ups_planes_baseline) forms[count++] = &ups_planes_avx2;
#endif
    forms[count++] = &ups_planes_baseline;
    if (form >= count) return false;
    kernel = form < 0 ? NULL : forms[form];
    return true;
}

/* Series that the kernel takes; the rest goes through the plain loops. */
static int64_t vectorised(int64_t times, int64_t series) {
    return kernel && times >= UPS_PLANES_TILE ? series / kernel->width * kernel->width : 0;
}

void ups_planes_split(const ups_f16 *latents, int64_t stride, int64_t times, int64_t series, int order,
                      ups_planes planes) {
    int64_t done = vectorised(times, series), pairs = ups_planes_pairs(times);
    if (done) kernel->split(latents, stride, times, done, order, planes);
    for (int64_t s = done; s < series; s++) {
        predictor p = {0};
        uint8_t *low = planes.low + s * pairs, *middle = planes.middle + s * pairs, *high = planes.high + s * times;
        for (int64_t t = 0; t < times; t++) {
            uint16_t code = predict(&p, latents[t * stride + s], order, t);
            int shift = t % 2 ? 4 : 0;
            if (!shift) low[t / 2] = middle[t / 2] = 0;
            low[t / 2] |= (uint8_t)((code & 15) << shift);
            middle[t / 2] |= (uint8_t)((code >> 4 & 15) << shift);
            high[t] = (uint8_t)(code >> 8);
        }
    }
}

/* One series, plainly. Exactly one of `halves` and `floats` is there. */
static bool join_series(ups_planes planes, int64_t times, int64_t s, int order, int64_t start, int64_t end,
                        ups_f16 *halves, float *floats, int64_t stride) {
    const uint8_t *low = planes.low + s * ups_planes_pairs(times),
                  *middle = planes.middle + s * ups_planes_pairs(times);
    const uint8_t *high = planes.high + s * times;
    predictor p = {0};
    bool finite = true;
    for (int64_t t = 0; t < end; t++) {
        int shift = t % 2 ? 4 : 0;
        uint16_t code = (uint16_t)(high[t] << 8 | (middle[t / 2] >> shift & 15) << 4 | (low[t / 2] >> shift & 15));
        ups_f16 bits = undo(&p, code, order, t);
        if (t < start) continue;
        finite &= (bits & 0x7c00) != 0x7c00;
        if (halves)
            halves[(t - start) * stride + s] = bits;
        else
            ups_f16_to_f32(&bits, floats + (t - start) * stride + s, 1);
    }
    return finite;
}

bool ups_planes_join_f16(ups_planes planes, int64_t times, int64_t series, int order, int64_t start, int64_t end,
                         ups_f16 *out, int64_t stride) {
    int64_t done = vectorised(times, series);
    bool finite = !done || kernel->join_f16(planes, times, done, order, start, end, out, stride);
    for (int64_t s = done; s < series; s++)
        finite &= join_series(planes, times, s, order, start, end, out, NULL, stride);
    return finite;
}

bool ups_planes_join_f32(ups_planes planes, int64_t times, int64_t series, int order, int64_t start, int64_t end,
                         bool past_caches, float *out, int64_t stride) {
    int64_t done = vectorised(times, series);
    bool finite = !done || kernel->join_f32(planes, times, done, order, start, end, past_caches, out, stride);
    for (int64_t s = done; s < series; s++)
        finite &= join_series(planes, times, s, order, start, end, NULL, out, stride);
    return finite;
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

int ups_planes_choose_order(const ups_f16 *latents, int64_t stride, int64_t times, int64_t series) {
    int best = 0;
    double best_bits = INFINITY;
    for (int order = 0; order <= UPS_PLANES_MAX_ORDER; order++) {
        uint32_t high[256] = {0}, low[256] = {0};
        for (int64_t s = 0; s < series; s += (int64_t)ORDER_STRIDE * ORDER_BLOCK) {
            int width = series - s < ORDER_BLOCK ? (int)(series - s) : ORDER_BLOCK;
            predictor p[ORDER_BLOCK] = {0};
            for (int64_t t = 0; t < times; t++) {
                for (int i = 0; i < width; i++) {
                    uint16_t code = predict(&p[i], latents[t * stride + s + i], order, t);
                    high[code >> 8]++, low[code & 255]++;
                }
            }
        }
        double bits = entropy_bits(high) + entropy_bits(low);
        if (bits < best_bits) best_bits = bits, best = order;
    }
    return best;
}
