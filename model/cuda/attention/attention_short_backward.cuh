// What the kernels of gradients of short sequences share: a block's memory, and what is done to rows before and after products.
#pragma once
#include "model/cuda/attention/attention_short.cuh"

enum { TOGETHER = 128 }; // tokens up to which a block makes all gradients of a head, which it reads once

static inline bool attention_is_together(const attention_call &c) {
    return c.queries <= TOGETHER && c.keys <= TOGETHER;
}

// Of SIDES: queries and keys, or the one that a block owns. Rows lie behind it.
template <int WIDTH, int WARPS, int OWN, int SIDES, int TOKENS> struct __align__(16) backward_memory {
    short_factors<WIDTH> factors;
    float sums[SIDES][WARPS][WIDTH];            // of the gradients of gains
    float inverse[SIDES][WARPS * OWN];          // 1/rms
    float lse[TOKENS], delta[TOKENS];           // -log2(e) lse and -D of queries; -infinity, 0 beyond them
    short_places at;
};

// What belongs to a warp's own sixteen rows.
struct own_numbers {
    const float *inverse; // 1/rms
    float *gain_sums;
};

// Sixteen rows of queries or keys into shared memory, normalised; 1/rms to inverse[row], where it is wanted.
template <typename ROWS>
static __device__ __forceinline__ void put_normalised(const attention_call &c, typename ROWS::pieces &x, float *inverse, uint16_t *rows) {
    if (c.rms) {
        const float by = ROWS::normalise(x, 1.0f / (float)c.width, c.epsilon);
        if (inverse && threadIdx.x % 2 == 0) inverse[threadIdx.x % 32 / 2] = by;
    }
    ROWS::put(x, rows);
}

// -D of sixteen queries.
template <typename ROWS>
static __device__ __forceinline__ void find_delta(const typename ROWS::pieces &out, const typename ROWS::pieces &upstream, float *delta) {
    const float sum = ROWS::product(out, upstream);
    if (threadIdx.x % 2 == 0) delta[threadIdx.x % 32 / 2] = -sum;
}

static __device__ __forceinline__ head_rows moved(head_rows rows, elements to) {
    rows.from = to;
    return rows;
}

// Sums of a gain's gradient over the warp's rows, of which a lane has those of two: by `staging`, where nothing is yet.
template <typename ROWS>
static __device__ __forceinline__ void add_to_gain(const float (&of_gain)[ROWS::RESULTS], float *staging, float *sums) {
    enum { PITCH = ROWS::D + 4 };
    static_assert(8 * PITCH * sizeof(float) <= 16 * ROWS::PITCH * 2, "sums are larger than the tile");
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < ROWS::RESULTS; j += 2)
        *(float2 *)(staging + lane / 4 * PITCH + ROWS::tiles::column(j)) = make_float2(of_gain[j], of_gain[j + 1]);
    __syncwarp();
#pragma unroll
    for (int column = lane; column < ROWS::D; column += 32) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) sum += staging[i * PITCH + column];
        sums[column] += sum;
    }
    __syncwarp();
}

// Gradient of the warp's rows, back through the norm, to `staging`. With y = h gain, h = x / rms(x) and dy from the product:
// g = dy gain, dx = (g - h mean(g h)) / rms(x), dgain += dy h. WHICH: queries, keys. Of a tile of sixteen rows, from `first` on.
template <int WHICH, typename ROWS, typename MEMORY>
static __device__ __forceinline__ void finish_short(const attention_call &c, MEMORY &m, float (&d)[2][ROWS::RESULTS],
                                                    const typename ROWS::fragments &h, int tile, int first, own_numbers of,
                                                    uint16_t *staging) {
    const int lane = threadIdx.x % 32, left = (WHICH ? c.keys : c.queries) - first;
    const bool wanted = WHICH ? c.gains_of_k : c.gains_of_q;
    if (!c.rms) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int j = 0; j < ROWS::RESULTS; j++) d[i][j] *= c.scale;
        }
        ROWS::keep(d, staging);
        return;
    }
    float product[2] = {}, of_gain[ROWS::RESULTS];
    if (left < 16) { // rows that are not there may have any
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int j = 0; j < ROWS::RESULTS; j++) d[i][j] = lane / 4 + 8 * i < left ? d[i][j] : 0.0f;
        }
    }
#pragma unroll
    for (int j = 0; j < ROWS::RESULTS; j += 2) {
        const int column = ROWS::tiles::column(j);
        const float2 g = *(const float2 *)(m.factors.gain[WHICH] + column), o = *(const float2 *)(m.factors.other[WHICH] + column);
        of_gain[j] = of_gain[j + 1] = 0.0f;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float2 x = unpack_pair<ROWS::DTYPE>(h[tile][j / 4][j / 2 % 2 * 2 + i]);
            const float first_dy = d[i][j] * o.x, second_dy = d[i][j + 1] * o.y;
            of_gain[j] += first_dy * x.x;
            of_gain[j + 1] += second_dy * x.y;
            d[i][j] = first_dy * g.x;
            d[i][j + 1] = second_dy * g.y;
            product[i] += d[i][j] * x.x + d[i][j + 1] * x.y;
        }
    }
    if (wanted) add_to_gain<ROWS>(of_gain, (float *)staging, of.gain_sums);
    const float inverse_width = 1.0f / (float)c.width;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float by = of.inverse[lane / 4 + 8 * i], mean = quad_sum(product[i]) * inverse_width;
#pragma unroll
        for (int j = 0; j < ROWS::RESULTS; j += 2) {
            const float2 x = unpack_pair<ROWS::DTYPE>(h[tile][j / 4][j / 2 % 2 * 2 + i]);
            d[i][j] = by * (d[i][j] - x.x * mean);
            d[i][j + 1] = by * (d[i][j + 1] - x.y * mean);
        }
    }
    ROWS::keep(d, staging);
}

template <typename MEMORY>
static __device__ __forceinline__ void begin_backward(const attention_call &c, MEMORY &m, const short_places &at) {
    constexpr int COUNT = sizeof m.sums / sizeof(float), TOKENS = sizeof m.lse / sizeof(float);
    if (threadIdx.x == 0) m.at = at;
    for (int i = threadIdx.x; i < TOKENS; i += blockDim.x) m.lse[i] = i < c.queries ? -LOG2E * at.lse[i] : -INFINITY;
    for (int i = threadIdx.x; i < COUNT; i += blockDim.x) (&m.sums[0][0][0])[i] = 0.0f;
    find_factors(c, m.factors);
}

// Sums of a block's warps, in order, to a row of a gain's.
template <typename MEMORY>
static __device__ __forceinline__ void add_gains(const attention_call &c, const MEMORY &m, int which, int warps, float *to) {
    if (!to) return;
    for (int i = threadIdx.x; i < c.width; i += blockDim.x) {
        float sum = 0.0f;
        for (int warp = 0; warp < warps; warp++) sum += m.sums[which][warp][i];
        to[(int64_t)blockIdx.x * c.width + i] = sum;
    }
}
