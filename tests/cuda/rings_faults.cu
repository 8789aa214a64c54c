// Planted faults of rings, mbarriers and registers, as those of faults.cu: for sm_90a alone.
#include "tests/cuda/rings.cuh"

enum { THREADS = 128, STEPS = 3, TILES = 4 };

#define LAUNCH_RING_OF(name, ARRIVE)                                                                                              \
    void launch_ring_##name(float *x, cudaStream_t stream) {                                                           \
        enum { K = STEPS * RING_K, A = TILES * RING_M * K, B = RING_N * K };                                           \
        ring_task t = {.tiles = TILES, .k = K};                                                                        \
        uint16_t *operands;                                                                                            \
        cudaMalloc(&operands, (A + B) * sizeof *operands);                                                             \
        cudaMalloc(&t.d, TILES *RING_M *RING_N * sizeof *t.d);                                                         \
        cudaMemsetAsync(operands, 0, (A + B) * sizeof *operands, stream);                                              \
        t.a = operands;                                                                                                \
        t.b = operands + A;                                                                                            \
        ring_kernel<ring_##name, ARRIVE><<<1, RING_THREADS, 0, stream>>>(t);                                                   \
    }
#define LAUNCH_RING(name) LAUNCH_RING_OF(name, false)
#define LAUNCH_ARRIVING_RING(name) LAUNCH_RING_OF(name, true)
RING_FAULTS(LAUNCH_RING)
ARRIVING_RING_FAULTS(LAUNCH_ARRIVING_RING)

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define OF_SM90(...) __VA_ARGS__
#else
#define OF_SM90(...)
#endif

#define KERNEL(NAME, BOUND) static __global__ void __launch_bounds__(BOUND, 1) NAME(float *x)
#define INITIALISED(COUNT)                                                                                             \
    __shared__ uint64_t barrier;                                                                                       \
    if (threadIdx.x == 0) MBARRIER_INIT(&barrier, COUNT);                                                              \
    __syncthreads()

KERNEL(mbarrier_not_initialised, THREADS) {
    OF_SM90(__shared__ uint64_t barrier;)
    OF_SM90(MBARRIER_ARRIVE(&barrier);) // fault: mbarrier_not_initialised
    x[threadIdx.x] = 1.0f;
}

KERNEL(mbarrier_initialised_late, THREADS) {
    OF_SM90(__shared__ uint64_t barrier; if (threadIdx.x == 0) MBARRIER_INIT(&barrier, THREADS);)
    OF_SM90(MBARRIER_ARRIVE(&barrier);) // fault: mbarrier_initialised_late
    x[threadIdx.x] = 1.0f;
}

KERNEL(mbarrier_misaligned, THREADS) {
    OF_SM90(__shared__ __align__(8) uint32_t words[4];)
    OF_SM90(if (threadIdx.x == 0) MBARRIER_INIT(&words[1], 1);) // fault: mbarrier_misaligned
    x[threadIdx.x] = 1.0f;
}

KERNEL(mbarrier_of_none, THREADS) {
    OF_SM90(__shared__ uint64_t barrier;)
    OF_SM90(if (threadIdx.x == 0) MBARRIER_INIT(&barrier, (uint32_t)x[0]);) // fault: mbarrier_of_none
    x[threadIdx.x] = 1.0f;
}

KERNEL(mbarrier_overwritten, THREADS) {
    OF_SM90(INITIALISED(THREADS); MBARRIER_ARRIVE(&barrier);)
    OF_SM90(if (threadIdx.x == 5) barrier = 0;) // fault: mbarrier_overwritten
    x[threadIdx.x] = 1.0f;
}

KERNEL(mbarrier_multiplied, THREADS) {
    OF_SM90(__shared__ __align__(128) uint64_t operands[2 * 64 * 16 / 4]; float d[32] = {};)
    OF_SM90(for (int i = threadIdx.x; i < 2 * 64 * 16 / 4; i += THREADS) operands[i] = 0; PROXY_FENCE(); __syncthreads();)
    OF_SM90(if (threadIdx.x == 0) MBARRIER_INIT(&operands[70], 1); PROXY_FENCE(); __syncthreads(); GROUP_FENCE();)
    OF_SM90(uint64_t a = descriptor(shared_address(operands), 128, 256, 0), b = descriptor(shared_address(operands + 256), 128, 256, 0);)
    OF_SM90(PRODUCT_SHARED(64, "bf16.bf16", 32, d, a, b, true, 0, 0);) // fault: mbarrier_multiplied
    OF_SM90(GROUP_COMMIT(); GROUP_WAIT(0); x[threadIdx.x] = d[0];)
}

KERNEL(mbarrier_never_over, THREADS) {
    OF_SM90(INITIALISED(THREADS); if (threadIdx.x != 7) MBARRIER_ARRIVE(&barrier);)
    OF_SM90(MBARRIER_WAIT(&barrier, 0);) // fault: mbarrier_never_over
    x[threadIdx.x] = 1.0f;
}

KERNEL(mbarrier_too_many, THREADS) {
    OF_SM90(INITIALISED(3);)
    OF_SM90(if (threadIdx.x % 32 == 0) MBARRIER_ARRIVE(&barrier);) // fault: mbarrier_too_many
    x[threadIdx.x] = 1.0f;
}

KERNEL(mbarrier_too_many_at_once, THREADS) {
    OF_SM90(INITIALISED(2);)
    OF_SM90(if (threadIdx.x == 0) asm volatile("mbarrier.arrive.shared.b64 _, [%0], 3;" ::"r"(shared_address(&barrier)));) // fault: mbarrier_too_many_at_once
    x[threadIdx.x] = 1.0f;
}

KERNEL(mbarrier_too_many_copies, THREADS) {
    OF_SM90(INITIALISED(THREADS - 1);)
    OF_SM90(COPIES_ARRIVE(&barrier);) // fault: mbarrier_too_many_copies
    OF_SM90(MBARRIER_WAIT(&barrier, 0);)
    x[threadIdx.x] = 1.0f;
}

// A barrier of the block says nothing of copies that arrive.
KERNEL(mbarrier_copies_not_waited, THREADS) {
    OF_SM90(__shared__ __align__(16) float copied[THREADS * 4]; INITIALISED(THREADS);)
    OF_SM90(COPY_ASYNC_16(&copied[threadIdx.x * 4], x + threadIdx.x % 2 * 4); COPIES_ARRIVE(&barrier);)
    OF_SM90(if (threadIdx.x == 0) MBARRIER_WAIT(&barrier, 0);)
    OF_SM90(if (threadIdx.x >= 32) x[threadIdx.x] = copied[threadIdx.x * 4];) // fault: mbarrier_copies_not_waited
}

KERNEL(registers_not_given, 3 * THREADS) {
    OF_SM90(TAKE_REGISTERS(232);) // fault: registers_not_given
    x[threadIdx.x] = 1.0f;
}

KERNEL(registers_differ, 3 * THREADS) {
    if (threadIdx.x < 96) {
        OF_SM90(GIVE_REGISTERS(40);) // fault: registers_differ
    } else {
        OF_SM90(GIVE_REGISTERS(48);) // fault: registers_differ
    }
    x[threadIdx.x] = 1.0f;
}

KERNEL(registers_taken_that_are_there, 3 * THREADS) {
    OF_SM90(TAKE_REGISTERS(160);) // fault: registers_taken_that_are_there
    x[threadIdx.x] = 1.0f;
}

#define LAUNCH(name)                                                                                                   \
    void launch_##name(float *x, cudaStream_t stream) { name<<<1, THREADS, 0, stream>>>(x); }
MBARRIER_FAULTS(LAUNCH)
