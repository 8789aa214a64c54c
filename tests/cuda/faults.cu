// Planted faults: kernels and host code that are wrong, one way each. The emulator must end the program with a message that
// begins with the line marked `fault: NAME` (find_fault.py). Never run on a card.
#include "tests/cuda/faults.h"
#include "tests/cuda/warp.cuh"

enum { THREADS = 64 };

static __global__ void missing_barrier(float *x) {
    __shared__ float s[THREADS];
    s[threadIdx.x] = x[threadIdx.x];               // fault: missing_barrier (by what came later)
    x[threadIdx.x] = s[THREADS - 1 - threadIdx.x]; // fault: missing_barrier
}

static __global__ void beyond_global(float *x) {
    x[threadIdx.x + 1] = 1.0f; // fault: beyond_global
}

static __global__ void beyond_shared(float *x) {
    extern __shared__ float s[];
    s[2 * threadIdx.x] = x[threadIdx.x]; // fault: beyond_shared
    __syncthreads();
    x[threadIdx.x] = s[threadIdx.x];
}

static __global__ void misaligned(float *x) {
    *(float4 *)(x + 1) = make_float4(1.0f, 2.0f, 3.0f, 4.0f); // fault: misaligned
}

static __global__ void divergent_shuffle(float *x) {
    if (threadIdx.x % 32 < 16) x[threadIdx.x] = __shfl_xor_sync(0xffffffffu, x[threadIdx.x], 1); // fault: divergent_shuffle
    __syncthreads();
}

static __global__ void missing_copy_wait(float *x) {
    __shared__ __align__(16) float s[4 * THREADS];
    copy_async_16(&s[4 * threadIdx.x], x + 4 * threadIdx.x);
    copy_async_commit();
    x[4 * threadIdx.x] = s[4 * threadIdx.x + 1]; // fault: missing_copy_wait
    copy_async_wait<0>();
}

static __global__ void race_between_blocks(float *x) {
    if (threadIdx.x == 0) x[0] += 1.0f; // fault: race_between_blocks
}

// What blocks publish for the last one to take a ticket: x is (blocks, THREADS) and, in its last place, the ticket.
enum { TICKET = 255 };
static __device__ bool is_last(float *x) {
    return atomicAdd((unsigned *)x + TICKET, 1) == gridDim.x - 1;
}

static __global__ void release_without_barrier(float *x) {
    __shared__ bool last;
    x[blockIdx.x * THREADS + threadIdx.x] = 1.0f;
    if (threadIdx.x == 0) {
        __threadfence();
        last = is_last(x);
        __threadfence();
    }
    __syncthreads();
    if (last) x[2 * THREADS + threadIdx.x] = x[(1 - blockIdx.x) * THREADS + threadIdx.x]; // fault: release_without_barrier
}

static __global__ void release_without_fence(float *x) {
    __shared__ bool last;
    x[blockIdx.x * THREADS + threadIdx.x] = 1.0f;
    __syncthreads();
    if (threadIdx.x == 0) {
        last = is_last(x);
        __threadfence();
    }
    __syncthreads();
    if (last) x[2 * THREADS + threadIdx.x] = x[(1 - blockIdx.x) * THREADS + threadIdx.x]; // fault: release_without_fence
}

static __global__ void acquire_without_fence(float *x) {
    __shared__ bool last;
    x[blockIdx.x * THREADS + threadIdx.x] = 1.0f;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = is_last(x);
    }
    __syncthreads();
    if (last) x[2 * THREADS + threadIdx.x] = x[(1 - blockIdx.x) * THREADS + threadIdx.x]; // fault: acquire_without_fence
}

static __global__ void write_behind_the_fence(float *x) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        __threadfence();
        x[blockIdx.x] = 1.0f;
        last = is_last(x);
        __threadfence();
    }
    __syncthreads();
    if (last) x[2 + threadIdx.x] = x[1 - blockIdx.x]; // fault: write_behind_the_fence
}

static __global__ void release_by_shared_atomic(float *x) {
    __shared__ unsigned ticket;
    if (threadIdx.x == 0) ticket = 0;
    x[blockIdx.x * THREADS + threadIdx.x] = 1.0f; // fault: release_by_shared_atomic (where the reader came first)
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(&ticket, 1);
        __threadfence();
    }
    __syncthreads();
    float other = x[(1 - blockIdx.x) * THREADS + threadIdx.x]; // fault: release_by_shared_atomic
    if (other == 2.0f * ticket) x[2 * THREADS] = other;
}

static __global__ void release_by_volatile(float *x) {
    volatile float *flag = x + TICKET;
    if (threadIdx.x != 0) return;
    __threadfence();
    if (blockIdx.x == 0) *flag = 1.0f; // fault: release_by_volatile
    else x[0] = *flag;                 // fault: release_by_volatile
}

static __global__ void endless_loop(volatile float *x) {
    while (x[threadIdx.x] < 1.0f) { // fault: endless_loop
    }
}

static __global__ void barrier_not_met(float *x) {
    asm volatile("bar.sync 1, 96;" ::: "memory"); // fault: barrier_not_met (a block has 64 threads)
    x[threadIdx.x] = 1.0f;
}

static __global__ void right(float *x, float by) {
    x[threadIdx.x] += by; // fault: missing_stream_wait use_after_free
}

#define LAUNCHED(X)                                                                                                    \
    X(missing_barrier)                                                                                                 \
    X(beyond_global)                                                                                                   \
    X(misaligned)                                                                                                      \
    X(divergent_shuffle)                                                                                               \
    X(missing_copy_wait)                                                                                               \
    X(endless_loop)                                                                                                    \
    X(barrier_not_met)
#define LAUNCH(name)                                                                                                   \
    void launch_##name(float *x, cudaStream_t stream) { name<<<1, THREADS, 0, stream>>>(x); }
LAUNCHED(LAUNCH)

void launch_beyond_shared(float *x, cudaStream_t stream) {
    beyond_shared<<<1, THREADS, THREADS * sizeof(float), stream>>>(x);
}
void launch_race_between_blocks(float *x, cudaStream_t stream) {
    race_between_blocks<<<2, THREADS, 0, stream>>>(x);
}
#define LAUNCH_TWO(name)                                                                                               \
    void launch_##name(float *x, cudaStream_t stream) { name<<<2, THREADS, 0, stream>>>(x); }
LAUNCH_TWO(release_without_barrier)
LAUNCH_TWO(release_without_fence)
LAUNCH_TWO(acquire_without_fence)
LAUNCH_TWO(write_behind_the_fence)
LAUNCH_TWO(release_by_shared_atomic)
LAUNCH_TWO(release_by_volatile)
void launch_right(float *x, cudaStream_t stream) {
    right<<<1, THREADS, 0, stream>>>(x, 1.0f);
}
