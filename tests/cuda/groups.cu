// Products of warpgroups that are right, in the forms that nvcc gives them: for sm_90a alone (groups.h).
#include "tests/cuda/groups.h"
#include "tests/cuda/groups.cuh"
#include <math.h>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Where an element lies: place `outer` of M or N, `k` of K.
static __device__ uint32_t element_offset(const group_layout &l, bool turned, uint32_t outer, uint32_t k) {
    uint32_t row = 16 * l.width, elements = 8 * l.width, at;
    if (turned && l.width == 1)
        at = k / 16 * l.next + outer / 8 * l.stride + k % 16 / 8 * l.leading + k % 8 * 16 + outer % 8 * 2;
    else if (turned)
        at = k / 16 * l.next + outer / elements * l.leading + k % 16 / 8 * l.stride + k % 8 * row + outer % elements * 2;
    else if (l.width == 1)
        at = k / 16 * l.next + outer / 8 * l.stride + k % 16 / 8 * l.leading + outer % 8 * 16 + k % 8 * 2;
    else
        at = k / elements * l.next + outer / 8 * l.stride + outer % 8 * row + k % elements * 2;
    at += l.start;
    return at ^ (at >> 7 & (l.width - 1)) << 4;
}

static __device__ uint64_t step_descriptor(const group_layout &l, uint32_t memory, bool turned, uint32_t k) {
    uint32_t start = memory + l.start;
    if (turned || l.width == 1) start += k / 16 * l.next;
    else start += k / (8 * l.width) * l.next + k % (8 * l.width) * 2;
    return descriptor(start, l.leading, l.stride, l.width == 1 ? 0 : l.width == 8 ? 1 : l.width == 4 ? 2 : 3);
}

// By the number of accumulators, which is half of N.
#define PRODUCTS(N, COUNT)                                                                                             \
    template <bool F16, int A_MAJOR, int B_MAJOR>                                                                      \
    static __device__ __forceinline__ void product(float (&d)[COUNT], uint64_t a, uint64_t b, bool accumulates) {      \
        if (F16) PRODUCT_SHARED(N, "f16.f16", COUNT, d, a, b, accumulates, A_MAJOR, B_MAJOR);                          \
        else PRODUCT_SHARED(N, "bf16.bf16", COUNT, d, a, b, accumulates, A_MAJOR, B_MAJOR);                            \
    }                                                                                                                  \
    template <bool F16, int A_MAJOR, int B_MAJOR>                                                                      \
    static __device__ __forceinline__ void product(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b,              \
                                                   bool accumulates) {                                                 \
        if (F16) PRODUCT_REGISTERS(N, "f16.f16", COUNT, d, a, b, accumulates, B_MAJOR);                                \
        else PRODUCT_REGISTERS(N, "bf16.bf16", COUNT, d, a, b, accumulates, B_MAJOR);                                  \
    }
PRODUCTS(8, 4)
PRODUCTS(48, 24)
PRODUCTS(64, 32)
PRODUCTS(128, 64)
PRODUCTS(256, 128)
#endif

template <int N, bool F16, bool REGISTERS, int A_MAJOR, int B_MAJOR, group_mode MODE>
static __global__ void __launch_bounds__(256, 1) product_kernel(group_task t) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(1024) char memory[];
    enum { COUNT = N / 2, STEPS = GROUP_K / 16 };
    int thread = threadIdx.x % 128, group = threadIdx.x / 128;
    const uint16_t *a = t.a + group * 64 * GROUP_K;
    char *own = memory + group * t.shared_bytes_of_a;
    for (int i = thread; !REGISTERS && i < 64 * GROUP_K; i += 128)
        *(uint16_t *)(own + element_offset(t.a_layout, A_MAJOR, i / GROUP_K, i % GROUP_K)) = a[i];
    for (int i = threadIdx.x; i < GROUP_K * N; i += blockDim.x)
        *(uint16_t *)(memory + element_offset(t.b_layout, B_MAJOR, i % N, i / N)) = t.b[i];
    PROXY_FENCE();
    __syncthreads();
    int row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
    uint32_t fragments[STEPS][4];
    for (int k = 0; k < STEPS; k++)
        for (int i = 0; i < 4; i++)
            fragments[k][i] = *(const uint32_t *)(a + (row + i % 2 * 8) * GROUP_K + 16 * k + column + i / 2 * 8);
    float d[COUNT], e[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        d[i] = MODE == GROUP_FRESH ? NAN : t.c[(64 * group + row + i / 2 % 2 * 8) * N + column + i / 4 * 8 + i % 2];
        e[i] = 0.0f;
    }
    uint64_t of_a[STEPS], of_b[STEPS];
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        of_a[k] = step_descriptor(t.a_layout, shared_address(own), A_MAJOR, 16 * k);
        of_b[k] = step_descriptor(t.b_layout, shared_address(memory), B_MAJOR, 16 * k);
    }
    auto step = [&](float(&sum)[COUNT], int k, bool accumulates) {
        if constexpr (REGISTERS) product<F16, A_MAJOR, B_MAJOR>(sum, fragments[k], of_b[k], accumulates);
        else product<F16, A_MAJOR, B_MAJOR>(sum, of_a[k], of_b[k], accumulates);
    };
    GROUP_FENCE();
#pragma unroll
    for (int k = 0; k < STEPS / 2; k++) step(d, k, k || MODE != GROUP_FRESH);
    if constexpr (MODE == GROUP_IN_TWO) {
        GROUP_COMMIT();
#pragma unroll
        for (int k = STEPS / 2; k < STEPS; k++) step(e, k, true);
        GROUP_COMMIT();
        GROUP_WAIT(1);
#pragma unroll
        for (int i = 0; i < COUNT; i++) d[i] *= 2.0f;
        GROUP_WAIT(0);
#pragma unroll
        for (int i = 0; i < COUNT; i++) d[i] = 0.5f * d[i] + e[i];
    } else {
#pragma unroll
        for (int k = STEPS / 2; k < STEPS; k++) step(d, k, true);
        GROUP_COMMIT();
        GROUP_WAIT(0);
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        t.d[(64 * group + row + i / 2 % 2 * 8) * N + column + i / 4 * 8 + i % 2] = d[i];
#endif
}

template <int N, bool F16, bool REGISTERS, int A_MAJOR, int B_MAJOR>
static void launch(const group_task *t, cudaStream_t stream) {
    auto kernel = product_kernel<N, F16, REGISTERS, A_MAJOR, B_MAJOR, GROUP_FRESH>;
    if (t->mode == GROUP_ADDED) kernel = product_kernel<N, F16, REGISTERS, A_MAJOR, B_MAJOR, GROUP_ADDED>;
    if constexpr (N <= 128)
        if (t->mode == GROUP_IN_TWO) kernel = product_kernel<N, F16, REGISTERS, A_MAJOR, B_MAJOR, GROUP_IN_TWO>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, t->shared_bytes);
    kernel<<<1, 128 * t->groups, t->shared_bytes, stream>>>(*t);
}

void launch_group_product(group_product product, const group_task *t, cudaStream_t stream) {
#define LAUNCH(name, n, f16, registers, a_major, b_major)                                                              \
    if (product == GROUP_##name) launch<n, f16, registers, a_major, b_major>(t, stream);
    GROUP_PRODUCTS(LAUNCH)
}

// The next step's operands are under way while this one's are multiplied.
static __global__ void staged_product_kernel(const uint16_t *a, const uint16_t *b, float *d, int k) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ __align__(128) uint16_t tiles[2][2][64 * 16];
    int row = threadIdx.x / 2, half = threadIdx.x % 2, place = row / 8 * 128 + half * 64 + row % 8 * 8;
    auto copy = [&](int stage, int at) {
        copy_async_16(&tiles[stage][0][place], a + row * k + at + half * 8);
        copy_async_16(&tiles[stage][1][place], b + row * k + at + half * 8);
    };
    float sums[32] = {};
    copy(0, 0);
    copy_async_commit();
    for (int at = 0, stage = 0; at < k; at += 16, stage ^= 1) {
        if (at + 16 < k) copy(stage ^ 1, at + 16);
        copy_async_commit();
        copy_async_wait<1>();
        PROXY_FENCE();
        __syncthreads();
        uint64_t of_a = descriptor(shared_address(tiles[stage][0]), 128, 256, 0);
        uint64_t of_b = descriptor(shared_address(tiles[stage][1]), 128, 256, 0);
        GROUP_FENCE();
        PRODUCT_SHARED(64, "bf16.bf16", 32, sums, of_a, of_b, true, 0, 0);
        GROUP_COMMIT();
        GROUP_WAIT(0);
        __syncthreads();
    }
    copy_async_wait<0>();
    for (int j = 0; j < 32; j++) {
        int lane = threadIdx.x % 32;
        d[(threadIdx.x / 32 * 16 + lane / 4 + j / 2 % 2 * 8) * 64 + j / 4 * 8 + lane % 4 * 2 + j % 2] = sums[j];
    }
#endif
}

void launch_staged_product(const uint16_t *a, const uint16_t *b, float *d, int k, cudaStream_t stream) {
    staged_product_kernel<<<1, 128, 0, stream>>>(a, b, d, k);
}

#undef SCALES
#define SCALES "-1, 1"
// What a product writes is handed on to the next step before it is there, as the compiler does where it renames registers.
static __global__ void handed_on_kernel(float *y, int steps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ __align__(128) uint16_t ones[2 * 64 * 16];
    for (int i = threadIdx.x; i < 2 * 64 * 16; i += 128) ones[i] = 0x3f80;
    PROXY_FENCE();
    __syncthreads();
    uint64_t a = descriptor(shared_address(ones), 128, 256, 0), b = descriptor(shared_address(ones + 64 * 16), 128, 256, 0);
    float sums[32] = {}, before[32] = {};
#pragma unroll 1
    for (int i = 0; i < steps; i++) {
        GROUP_WAIT(0);
        for (int j = 0; j < 32; j++) sums[j] += before[j];
        float d[32];
        for (int j = 0; j < 32; j++) d[j] = NAN;
        GROUP_FENCE();
        PRODUCT_SHARED(64, "bf16.bf16", 32, d, a, b, false, 0, 0);
        GROUP_COMMIT();
        for (int j = 0; j < 32; j++) asm volatile("mov.f32 %0, %1;" : "=f"(before[j]) : "f"(d[j]));
    }
    GROUP_WAIT(0);
    for (int j = 0; j < 32; j++) y[threadIdx.x * 32 + j] = sums[j] + before[j];
#endif
}

void launch_handed_on(float *y, cudaStream_t stream) {
    handed_on_kernel<<<1, 128, 0, stream>>>(y, 16);
}
