// Operands of products in FP8: scales decided once a step, elements rounded by them, as they lie and transposed in one
// pass, since the library multiplies matrices whose sums run along rows alone.
#include "model/cuda/elements.cuh"
#include <stddef.h>
extern "C" {
#include "model/cuda/fp8/fp8.h"
#include "model/cuda/products/product.h"
}

static_assert(sizeof(ups_cuda_fp8_state) == UPS_FP8_NUMBERS * sizeof(float), "a parameter holds it");
static_assert(offsetof(ups_cuda_fp8_state, inverse) % UPS_CUDA_PROMISED == 0 &&
                  sizeof(ups_cuda_fp8_state) % UPS_CUDA_PROMISED == 0,
              "`inverse` of each operand lies as the library wants it");

// A format by its bits: exponents are `bias` more than they say, and `mantissa` bits follow.
template <ups_dtype DTYPE> struct format;
template <> struct format<UPS_E4M3> {
    enum { BIAS = 7, MANTISSA = 3, MOST = 0x7e, NOT_A_NUMBER = 0x7f };
    static constexpr float most = 448.0f;
};
template <> struct format<UPS_E5M2> {
    enum { BIAS = 15, MANTISSA = 2, MOST = 0x7b, NOT_A_NUMBER = 0x7f };
    static constexpr float most = 57344.0f;
};

// ---- rounding

// To the nearest, of two the even one; what is too large becomes the largest.
template <ups_dtype DTYPE> static __device__ __forceinline__ uint32_t fp8_bits(float x) {
    using f = format<DTYPE>;
    const uint32_t bits = __float_as_uint(x), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
    enum { SHIFT = 23 - f::MANTISSA };
    if (magnitude >= 0x7f800000) return sign | f::NOT_A_NUMBER;
    if (__uint_as_float(magnitude) >= f::most) return sign | f::MOST;
    if (magnitude < (uint32_t)(128 - f::BIAS) << 23) { // below the smallest normal number: in units of the smallest
        const float units = __uint_as_float((uint32_t)(127 + f::BIAS - 1 + f::MANTISSA) << 23);
        return sign | (uint32_t)__float2int_rn(__uint_as_float(magnitude) * units);
    }
    const uint32_t rounded = magnitude + (1u << (SHIFT - 1)) - 1 + (magnitude >> SHIFT & 1);
    return sign | ((rounded >> SHIFT) - ((127 - f::BIAS) << f::MANTISSA));
}

// The first in the low byte.
template <ups_dtype DTYPE> static __device__ __forceinline__ uint32_t fp8_pair(float low, float high) {
#if __CUDA_ARCH__ >= 890
    uint16_t pair;
    low = fmaf(low, 0.0f, low); // what is not finite is NaN: the instruction would make the largest number of an infinity
    high = fmaf(high, 0.0f, high);
    if (DTYPE == UPS_E4M3) asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    else asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return fp8_bits<DTYPE>(low) | fp8_bits<DTYPE>(high) << 8;
#endif
}

// ---- scales

enum { BEGIN_THREADS = 1024 };

struct operand {
    elements from;
    int64_t count;
    float most; // of the format
    ups_cuda_fp8_state *state;
};

struct operands {
    operand first, second;
};

// The largest power of two that leaves `magnitude` within the format.
static __device__ __forceinline__ int scale_exponent(float most, float magnitude) {
    enum { LIMIT = 60 }; // so that what grows a billion times over is not made infinite by its scale
    if (magnitude == 0.0f) return 0;
    const int exponent = (int)(__float_as_uint(most / magnitude) >> 23) - 127;
    return exponent < -LIMIT ? -LIMIT : exponent > LIMIT ? LIMIT : exponent;
}

static __device__ __forceinline__ float power_of_two(int exponent) {
    return __uint_as_float((uint32_t)(127 + exponent) << 23);
}

static __device__ __forceinline__ float larger_finite(float most, float x) {
    const float magnitude = fabsf(x);
    return isfinite(magnitude) && magnitude > most ? magnitude : most;
}

static __device__ __forceinline__ float warp_most(float x) {
#pragma unroll
    for (int by = 16; by; by >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, by));
    return x;
}

// Of the operand itself, by one block: in the first step of a run alone, and where an operand was all zeros since.
static __device__ float most_of(const operand &o, float *scratch) {
    enum { WARPS = BEGIN_THREADS / 32 };
    float most = 0.0f;
    for (int64_t at = (int64_t)threadIdx.x * WIDE; at < o.count; at += BEGIN_THREADS * WIDE) {
        float x[WIDE];
        read_elements<WIDE>(o.from, at, x);
#pragma unroll
        for (int i = 0; i < WIDE; i++) most = larger_finite(most, x[i]);
    }
    most = warp_most(most);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = most;
    __syncthreads();
    return warp_most(threadIdx.x % 32 < WARPS ? scratch[threadIdx.x % 32] : 0.0f);
}

// A block an operand.
static __global__ void __launch_bounds__(BEGIN_THREADS) fp8_begin_kernel(operands all, const ups_update *update) {
    __shared__ float scratch[BEGIN_THREADS / 32];
    const operand o = blockIdx.x == 0 ? all.first : all.second;
    const float step = (float)(1 + (int)(update->input.step & 0xfffff));
    ups_cuda_fp8_state s = *o.state;
    if (s.step == step) return;
    float most = s.now;
#pragma unroll
    for (int i = UPS_CUDA_FP8_BEFORE - 1; i > 0; i--) {
        s.before[i] = s.before[i - 1];
        most = fmaxf(most, s.before[i]);
    }
    s.before[0] = s.now;
    if (most == 0.0f) most = most_of(o, scratch);
    const int exponent = scale_exponent(o.most, most);
    s.step = step;
    s.scale = power_of_two(exponent);
    s.inverse = power_of_two(-exponent);
    s.now = 0.0f;
    __syncthreads(); // all have read it
    if (threadIdx.x == 0) *o.state = s;
}

static operand operand_of(const ups_cuda_fp8_cast *cast) {
    const float most = cast->dtype == UPS_E4M3 ? format<UPS_E4M3>::most : format<UPS_E5M2>::most;
    return {elements_of(cast->from), cast->rows * cast->columns, most, cast->state};
}

ups_status ups_cuda_fp8_begin(ups_device *device, const ups_cuda_fp8_cast *casts, int count, const ups_update *update,
                              ups_error *error) {
    if (count < 1 || count > 2) return ups_fail(error, UPS_ERR_ARGUMENT, "scales of %d operands at once", count);
    const operands all = {operand_of(&casts[0]), count > 1 ? operand_of(&casts[1]) : operand{}};
    fp8_begin_kernel<<<(unsigned)count, BEGIN_THREADS, 0, ups_cuda_stream(device)>>>(all, update);
    return ups_cuda_launched("scales of FP8", error);
}

// ---- casting: a block a tile, a thread WIDE columns of four rows

enum { TILE_COLUMNS = 64, TILE_ROWS = 128, QUADS = TILE_ROWS / 4, LANES = TILE_COLUMNS / WIDE };
static_assert(QUADS * LANES == THREADS, "a thread a piece of the tile");

struct cast {
    elements from;
    int64_t rows, columns;
    ups_cuda_fp8_state *state;
    uint8_t *to, *transposed;
};

// Words of four bytes along a row become words of four along a column.
static __device__ __forceinline__ void turn(const uint32_t (&rows)[4], uint32_t (&columns)[4]) {
    const uint32_t low_01 = __byte_perm(rows[0], rows[1], 0x5140), high_01 = __byte_perm(rows[0], rows[1], 0x7362);
    const uint32_t low_23 = __byte_perm(rows[2], rows[3], 0x5140), high_23 = __byte_perm(rows[2], rows[3], 0x7362);
    columns[0] = __byte_perm(low_01, low_23, 0x5410);
    columns[1] = __byte_perm(low_01, low_23, 0x7632);
    columns[2] = __byte_perm(high_01, high_23, 0x5410);
    columns[3] = __byte_perm(high_01, high_23, 0x7632);
}

template <ups_dtype DTYPE> static __global__ void __launch_bounds__(THREADS) fp8_cast_kernel(cast c) {
    __shared__ uint32_t tile[TILE_COLUMNS][QUADS + 1]; // four rows a word
    __shared__ float scratch[THREADS / 32];
    const unsigned across = (unsigned)((c.columns + TILE_COLUMNS - 1) / TILE_COLUMNS);
    const int64_t first_row = (int64_t)(blockIdx.x / across) * TILE_ROWS;
    const int64_t first_column = (int64_t)(blockIdx.x % across) * TILE_COLUMNS;
    const int quad = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int64_t row = first_row + 4 * quad, column = first_column + WIDE * lane;
    const float scale = c.state->scale;
    float most = 0.0f;
    uint32_t words[WIDE / 4][4] = {}; // of four columns, by row
    if (row < c.rows && column < c.columns) {
        float x[4][WIDE];
#pragma unroll
        for (int r = 0; r < 4; r++) read_elements<WIDE>(c.from, (row + r) * c.columns + column, x[r]);
#pragma unroll
        for (int r = 0; r < 4; r++) {
#pragma unroll
            for (int i = 0; i < WIDE; i++) most = larger_finite(most, x[r][i]);
#pragma unroll
            for (int i = 0; i < WIDE; i += 2)
                words[i / 4][r] |= fp8_pair<DTYPE>(x[r][i] * scale, x[r][i + 1] * scale) << (i % 4 * 8);
            if (c.to) *(uint2 *)(c.to + (row + r) * c.columns + column) = make_uint2(words[0][r], words[1][r]);
        }
    }
    most = warp_most(most);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = most;
    if (c.transposed) {
#pragma unroll
        for (int half = 0; half < WIDE / 4; half++) {
            uint32_t columns[4];
            turn(words[half], columns);
#pragma unroll
            for (int i = 0; i < 4; i++) tile[WIDE * lane + 4 * half + i][quad] = columns[i];
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < THREADS / 32; warp++) most = fmaxf(most, scratch[warp]);
        atomicMax((int *)&c.state->now, __float_as_int(most)); // of numbers that are not negative, in any order
    }
    if (!c.transposed) return;
    enum { PARTS = THREADS / TILE_COLUMNS, WORDS = QUADS / PARTS };
    const int turned = threadIdx.x / PARTS, part = threadIdx.x % PARTS;
    uint8_t *to = c.transposed + (first_column + turned) * c.rows + first_row;
#pragma unroll
    for (int word = WORDS * part; word < WORDS * part + WORDS; word += 4) {
        if (first_column + turned >= c.columns || first_row + 4 * word >= c.rows) break;
        const uint32_t *from = tile[turned] + word;
        *(uint4 *)(to + 4 * word) = make_uint4(from[0], from[1], from[2], from[3]);
    }
}

ups_status ups_cuda_fp8_run(ups_device *device, const ups_cuda_fp8_cast *wanted, ups_error *error) {
    const cast c = {elements_of(wanted->from), wanted->rows, wanted->columns, wanted->state,
                    (uint8_t *)wanted->to, (uint8_t *)wanted->transposed};
    const int64_t tiles = (c.rows + TILE_ROWS - 1) / TILE_ROWS * ((c.columns + TILE_COLUMNS - 1) / TILE_COLUMNS);
    if (!is_wide(wanted->from, c.columns))
        return ups_fail(error, UPS_ERR_ARGUMENT, "operands of FP8 begin at multiples of 16 bytes");
    if (wanted->dtype == UPS_E4M3)
        fp8_cast_kernel<UPS_E4M3><<<(unsigned)tiles, THREADS, 0, ups_cuda_stream(device)>>>(c);
    else
        fp8_cast_kernel<UPS_E5M2><<<(unsigned)tiles, THREADS, 0, ups_cuda_stream(device)>>>(c);
    return ups_cuda_launched("rounding to FP8", error);
}
