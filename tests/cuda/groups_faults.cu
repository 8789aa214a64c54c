// Planted faults of products of warpgroups, as those of faults.cu: for sm_90a alone.
#include "tests/cuda/faults.h"
#include "tests/cuda/groups.cuh"

enum { THREADS = 128, COUNT = 32, OPERAND = 64 * 16 };

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define OF_SM90(...) __VA_ARGS__

static __device__ __forceinline__ uint64_t dense(const uint16_t *operand) {
    return descriptor(shared_address(operand), 128, 256, 0);
}

static __device__ __forceinline__ void fill(uint16_t *ones) {
    for (int i = threadIdx.x; i < 2 * OPERAND; i += THREADS) ones[i] = 0x3f80;
}

static __device__ __forceinline__ void store(float *x, const float (&d)[COUNT]) {
    float sum = 0.0f;
    for (int i = 0; i < COUNT; i++) sum += d[i];
    x[threadIdx.x] = sum;
}
#else
#define OF_SM90(...)
#endif

// D of one step of K, without the waiting, whose operands are those of `ones`.
#define PRODUCT PRODUCT_SHARED(64, "bf16.bf16", 32, d, a, b, true, 0, 0)
#define OPERANDS                                                                                                       \
    __shared__ __align__(128) uint16_t ones[2 * OPERAND];                                                              \
    float d[COUNT] = {};                                                                                               \
    uint64_t a = dense(ones), b = dense(ones + OPERAND)
#define FILLED                                                                                                         \
    OPERANDS;                                                                                                          \
    fill(ones);                                                                                                        \
    PROXY_FENCE();                                                                                                     \
    __syncthreads()

static __global__ void group_read_early(float *x) {
    OF_SM90(FILLED; GROUP_FENCE(); PRODUCT; GROUP_COMMIT();)
    OF_SM90(x[threadIdx.x] = 2.0f * d[5];) // fault: group_read_early
    OF_SM90(GROUP_WAIT(0);)
}

static __global__ void group_waited_for_too_few(float *x) {
    OF_SM90(FILLED; float e[COUNT] = {}; GROUP_FENCE(); PRODUCT; GROUP_COMMIT();)
    OF_SM90(PRODUCT_SHARED(64, "bf16.bf16", 32, e, a, b, true, 0, 0); GROUP_COMMIT(); GROUP_WAIT(1);)
    OF_SM90(x[threadIdx.x] = d[5] + d[6];)
    OF_SM90(x[threadIdx.x] = 2.0f * e[5];) // fault: group_waited_for_too_few
    OF_SM90(GROUP_WAIT(0);)
}

static __global__ void group_proxy_fence_missing(float *x) {
    OF_SM90(OPERANDS; fill(ones); __syncthreads(); GROUP_FENCE();)
    OF_SM90(PRODUCT;) // fault: group_proxy_fence_missing
    OF_SM90(GROUP_COMMIT(); GROUP_WAIT(0); store(x, d);)
}

static __global__ void group_proxy_fence_too_early(float *x) {
    OF_SM90(OPERANDS; PROXY_FENCE(); fill(ones); __syncthreads(); if (threadIdx.x != 77) PROXY_FENCE(); GROUP_FENCE();)
    OF_SM90(PRODUCT;) // fault: group_proxy_fence_too_early
    OF_SM90(GROUP_COMMIT(); GROUP_WAIT(0); store(x, d);)
}

static __global__ void group_barrier_missing(float *x) {
    OF_SM90(OPERANDS;)
    OF_SM90(for (int i = threadIdx.x; i < 2 * OPERAND; i += THREADS) ones[i] = 0x3f80;) // fault: group_barrier_missing
    OF_SM90(PROXY_FENCE(); GROUP_FENCE();)
    OF_SM90(PRODUCT;) // fault: group_barrier_missing (where its last thread came late)
    OF_SM90(GROUP_COMMIT(); GROUP_WAIT(0); store(x, d);)
}

static __global__ void group_copy_not_waited(float *x) {
    OF_SM90(OPERANDS; fill(ones); __syncthreads(); copy_async_16(ones + 8 * threadIdx.x, x); copy_async_commit();)
    OF_SM90(PROXY_FENCE(); __syncthreads(); GROUP_FENCE();)
    OF_SM90(PRODUCT;) // fault: group_copy_not_waited
    OF_SM90(GROUP_COMMIT(); GROUP_WAIT(0); copy_async_wait<0>(); store(x, d);)
}

static __global__ void group_operand_overwritten(float *x) {
    OF_SM90(FILLED; GROUP_FENCE(); PRODUCT; GROUP_COMMIT();)
    OF_SM90(ones[threadIdx.x] = 0;) // fault: group_operand_overwritten
    OF_SM90(GROUP_WAIT(0); store(x, d);)
}

static __global__ void group_operand_overwritten_without_barrier(float *x) {
    OF_SM90(FILLED; GROUP_FENCE(); PRODUCT; GROUP_COMMIT(); GROUP_WAIT(0);)
    OF_SM90(ones[OPERAND + threadIdx.x] = 0;) // fault: group_operand_overwritten_without_barrier
    OF_SM90(store(x, d);)
}

static __global__ void group_without_a_warp(float *x) {
    OF_SM90(FILLED; if (threadIdx.x / 32 != 2) { GROUP_FENCE(); PRODUCT; GROUP_COMMIT();)
    OF_SM90(GROUP_WAIT(0); }) // fault: group_without_a_warp
    OF_SM90(__syncthreads(); store(x, d);)
}

static __global__ void group_descriptors_differ(float *x) {
    OF_SM90(FILLED; if (threadIdx.x >= 96) b = a; GROUP_FENCE();)
    OF_SM90(PRODUCT;) // fault: group_descriptors_differ
    OF_SM90(GROUP_COMMIT(); GROUP_WAIT(0); store(x, d);)
}

static __global__ void group_beyond_shared(float *x) {
    OF_SM90(FILLED; b = descriptor(shared_address(ones + OPERAND), 128, 1024, 0); GROUP_FENCE();)
    OF_SM90(PRODUCT;) // fault: group_beyond_shared
    OF_SM90(GROUP_COMMIT(); GROUP_WAIT(0); store(x, d);)
}

static __global__ void group_reserved_bits(float *x) {
    OF_SM90(FILLED; a |= (uint64_t)1 << 46; GROUP_FENCE();)
    OF_SM90(PRODUCT;) // fault: group_reserved_bits
    OF_SM90(GROUP_COMMIT(); GROUP_WAIT(0); store(x, d);)
}

static __global__ void group_fence_missing(float *x) {
    OF_SM90(FILLED; GROUP_FENCE(); for (int i = 0; i < COUNT; i++) d[i] = x[i] * x[32 + threadIdx.x % 32];)
    OF_SM90(PRODUCT;) // fault: group_fence_missing
    OF_SM90(GROUP_COMMIT(); GROUP_WAIT(0); store(x, d);)
}

static __global__ void group_not_waited(float *x) {
    OF_SM90(FILLED; GROUP_FENCE();)
    OF_SM90(PRODUCT;) // fault: group_not_waited
    OF_SM90(GROUP_COMMIT();)
}

static __global__ void group_not_committed(float *x) {
    OF_SM90(FILLED; GROUP_FENCE(); PRODUCT;)
    OF_SM90(__syncthreads();) // fault: group_not_committed
    OF_SM90(GROUP_COMMIT(); GROUP_WAIT(0); store(x, d);)
}

#define LAUNCH(name)                                                                                                   \
    void launch_##name(float *x, cudaStream_t stream) { name<<<1, THREADS, 0, stream>>>(x); }
GROUP_FAULTS(LAUNCH)
