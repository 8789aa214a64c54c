// Rings, mbarriers and many products at once that are right (rings.h).
#include "tests/cuda/rings.cuh"

void launch_ring(const ring_task *t, cudaStream_t stream) {
    ring_kernel<ring_without_fault><<<1, RING_THREADS, 0, stream>>>(*t);
}

void launch_arriving_ring(const ring_task *t, cudaStream_t stream) {
    ring_kernel<ring_without_fault, true><<<1, RING_THREADS, 0, stream>>>(*t);
}

#define COPY_ASYNC_4(SHARED, GLOBAL)                                                                                   \
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(SHARED)), "l"(GLOBAL) : "memory")

static __global__ void __launch_bounds__(256, 1) arrivals_kernel(const float *x, float *y, bool meets) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ float copied[256];
    __shared__ uint64_t both, copies;
    int thread = threadIdx.x % 128;
    if (threadIdx.x == 0) {
        MBARRIER_INIT(&both, 128);
        MBARRIER_INIT(&copies, 256);
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        COPY_ASYNC_4(&copied[thread], x + thread);
        asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(shared_address(&both)) : "memory");
        COPIES_ARRIVE(&copies);
        copy_async_commit();
        MBARRIER_ARRIVE(&both);
        COPY_ASYNC_4(&copied[128 + thread], x + 2 * thread);
        copy_async_commit();
        COPIES_ARRIVE(&copies);
        copy_async_wait<1>();
        copied[thread] += 1.0f;
    } else {
        MBARRIER_WAIT(&both, 0);
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        if (thread % 2 == 0) return;
        copy_async_wait<0>();
        y[128 + thread] = copied[128 + thread];
    } else {
        for (uint32_t is_over = 0; !is_over;) {
            MBARRIER_ASK("test", is_over, &copies, 0);
            if (meets) is_over = __all_sync(0xffffffffu, is_over);
        }
        y[thread] = copied[thread] + copied[128 + thread];
    }
#endif
}

void launch_arrivals(const float *x, float *y, bool meets, cudaStream_t stream) {
    arrivals_kernel<<<1, 256, 0, stream>>>(x, y, meets);
}

static __global__ void __launch_bounds__(256, 1) rounds_kernel(float *y, int rounds) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ float written[128];
    __shared__ uint64_t full, empty;
    int thread = threadIdx.x % 128;
    if (threadIdx.x == 0) {
        MBARRIER_INIT(&full, 128);
        MBARRIER_INIT(&empty, 1);
    }
    __syncthreads();
    float sum = 0.0f;
    for (int round = 0; round < rounds; round++) {
        if (threadIdx.x < 128) {
            MBARRIER_WAIT(&empty, ~round & 1);
            written[thread] = (float)(thread + round);
            MBARRIER_ARRIVE(&full);
        } else {
            for (uint32_t is_over = 0; !is_over;) MBARRIER_ASK("test", is_over, &full, round & 1);
            for (int i = 0; i < 128; i++) sum += written[i];
            asm volatile("bar.sync 1, 128;" ::: "memory");
            if (thread == 0) MBARRIER_ARRIVE(&empty);
        }
    }
    if (threadIdx.x >= 128) y[thread] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(&full)) : "memory");
        full = 0;
    }
#endif
}

void launch_rounds(float *y, int rounds, cudaStream_t stream) {
    rounds_kernel<<<1, 256, 0, stream>>>(y, rounds);
}

template <int N> static __global__ void __launch_bounds__(128, 1) many_products_kernel(const uint16_t *a, const uint16_t *b, float *d) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ __align__(128) uint16_t operands[(64 + N) * 16];
    for (int i = threadIdx.x; i < (64 + N) * 16; i += 128) {
        int row = i / 16, k = i % 16;
        operands[row / 8 * 128 + k / 8 * 64 + row % 8 * 8 + k % 8] = row < 64 ? a[i] : b[i - 64 * 16];
    }
    PROXY_FENCE();
    __syncthreads();
    uint64_t of_a = descriptor(shared_address(operands), 128, 256, 0), of_b = descriptor(shared_address(operands + 64 * 16), 128, 256, 0);
    float sums[N / 2] = {};
    GROUP_FENCE();
#pragma unroll
    for (int i = 0; i < PRODUCTS_AT_ONCE; i++) {
        if constexpr (N == 128) PRODUCT_SHARED(128, "bf16.bf16", 64, sums, of_a, of_b, true, 0, 0);
        else PRODUCT_SHARED(256, "bf16.bf16", 128, sums, of_a, of_b, true, 0, 0);
        GROUP_COMMIT();
    }
    GROUP_WAIT(0);
    for (int j = 0; j < N / 2; j++) {
        int lane = threadIdx.x % 32;
        d[(threadIdx.x / 32 * 16 + lane / 4 + j / 2 % 2 * 8) * N + j / 4 * 8 + lane % 4 * 2 + j % 2] = sums[j];
    }
#endif
}

void launch_many_products(const uint16_t *a, const uint16_t *b, float *d, int n, cudaStream_t stream) {
    if (n == 128) many_products_kernel<128><<<1, 128, 0, stream>>>(a, b, d);
    else many_products_kernel<256><<<1, 128, 0, stream>>>(a, b, d);
}
