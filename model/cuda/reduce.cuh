// Sums within a block, and over rows in the order of rows. All depend on shapes alone: two runs give the same bits.
#pragma once
#include "model/cuda/elements.cuh"

static __device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int by = 16; by; by >>= 1) x += __shfl_xor_sync(0xffffffffu, x, by);
    return x;
}

// Of all THREADS threads, to all of them. `scratch`: THREADS / 32 floats of shared memory, free again when it returns.
static __device__ __forceinline__ float block_sum(float x, float *scratch) {
    enum { WARPS = THREADS / 32 };
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < WARPS; warp++) sum += scratch[warp];
    __syncthreads();
    return sum;
}

enum { ROW_BLOCKS = 64 }; // partial sums over rows, at most

static inline int64_t row_blocks(int64_t rows) {
    return rows < ROW_BLOCKS ? rows : ROW_BLOCKS;
}
static __host__ __device__ inline int64_t row_block_start(int64_t rows, int64_t blocks, int64_t block) {
    return rows * block / blocks;
}

// to[i] (+)= sum over blocks of partials[block * stride + i], i < width, in order (reduce.cu).
ups_status add_partials(ups_device *device, const float *partials, int64_t blocks, int64_t stride, int64_t width, float *to,
                        bool accumulate, ups_error *error);
