// A ring of stages between warpgroups that have different tasks, for the emulator's tests: one fills the stages by
// asynchronous copies, two multiply them, taking turns tile by tile. Copies are waited for by the threads that make them,
// which fence and arrive, or ARRIVE themselves, and the threads that multiply fence. What is wrong with it is a parameter, and the lines
// where that may be found say so (find_fault.py): it depends on the order of threads whether a copy or a product comes
// too early. For sm_90a alone.
#pragma once
#include "tests/cuda/groups.cuh"
#include "tests/cuda/rings.h"

// A statement of a kernel each, so that faults have its line.
#define MBARRIER_INIT(BARRIER, COUNT)                                                                                  \
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(BARRIER)), "r"(COUNT) : "memory")
#define MBARRIER_ARRIVE(BARRIER)                                                                                       \
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(BARRIER)) : "memory")
#define MBARRIER_ASK(HOW, IS_OVER, BARRIER, PARITY)                                                                    \
    asm volatile("{\n.reg .pred p;\nmbarrier." HOW "_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}" \
                 : "=r"(IS_OVER)                                                                                       \
                 : "r"(shared_address(BARRIER)), "r"(PARITY)                                                           \
                 : "memory")
#define MBARRIER_WAIT(BARRIER, PARITY)                                                                                 \
    for (uint32_t is_over = 0; !is_over;) MBARRIER_ASK("try", is_over, BARRIER, PARITY)
#define COPY_ASYNC_16(SHARED, GLOBAL)                                                                                  \
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(SHARED)), "l"(GLOBAL) : "memory")
#define COPIES_ARRIVE(BARRIER)                                                                                         \
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(BARRIER)) : "memory")
#define GIVE_REGISTERS(LEFT) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(LEFT))
#define TAKE_REGISTERS(WANTED) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(WANTED))

#define RING_FAULT_NAME(name) ring_##name,
enum ring_fault { ring_without_fault, RING_FAULTS(RING_FAULT_NAME) ARRIVING_RING_FAULTS(RING_FAULT_NAME) };

enum { RING_STAGES = 3, RING_CONSUMERS = 2, RING_THREADS = 128 * (1 + RING_CONSUMERS) };
enum { WARPS_OF_GROUP = 4, BLOCK_OF_A = RING_M * 16, BLOCK_OF_B = RING_N * 16 }; // of 16 columns of K

struct ring {
    uint16_t a[RING_STAGES][RING_K / 16][BLOCK_OF_A], b[RING_STAGES][RING_K / 16][BLOCK_OF_B];
    uint64_t full[RING_STAGES][RING_CONSUMERS], empty[RING_STAGES];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Steps are counted through all tiles; step i lies in stage i % RING_STAGES. Begins the copies of a part of one.
enum { COPIES_OF_A_STEP = (RING_M + RING_N) * RING_K / 8 };
template <ring_fault FAULT> static __device__ __forceinline__ void copy_step(ring &r, const ring_task &t, int i, int begin, int end) {
    int steps = t.k / RING_K, stage = i % RING_STAGES;
    for (int j = begin + threadIdx.x; j < end; j += 128) {
        int row = j / (RING_K / 8), eight = j % (RING_K / 8), column = i % steps * RING_K + eight * 8;
        bool is_a = row < RING_M;
        row -= is_a ? 0 : RING_M;
        const uint16_t *from = (is_a ? t.a + (size_t)i / steps * RING_M * t.k : t.b) + row * t.k + column;
        uint16_t *to = is_a ? r.a[stage][eight / 2] : r.b[stage][eight / 2];
        to += row / 8 * 128 + eight % 2 * 64 + row % 8 * 8;
        COPY_ASYNC_16(to, from); // fault: ring_full_not_waited ring_empty_not_waited ring_released_early ring_released_by_one_lane ring_filled_by_one_lane ring_waited_by_one_lane ring_arrives_before_its_last_copy ring_arriving_empty_not_waited
    }
}

template <ring_fault FAULT> static __device__ __forceinline__ void fill_ring(ring &r, const ring_task &t) {
    int thread = threadIdx.x, steps = t.k / RING_K, count = t.tiles * steps;
    for (int i = 0; i <= count; i++) {
        int stage = i % RING_STAGES, before = (i + RING_STAGES - 1) % RING_STAGES;
        uint32_t lap = i / RING_STAGES;
        if (i < count) {
            if (FAULT == ring_waits_for_the_wrong_parity) MBARRIER_WAIT(&r.empty[stage], lap & 1); // fault: ring_waits_for_the_wrong_parity
            else if (FAULT != ring_empty_not_waited) MBARRIER_WAIT(&r.empty[stage], ~lap & 1);
            copy_step<FAULT>(r, t, i, 0, COPIES_OF_A_STEP);
        }
        copy_async_commit();
        if (FAULT == ring_fence_too_early) PROXY_FENCE();
        copy_async_wait<1>();
        if (i == 0) continue;
        if (FAULT != ring_fence_missing && FAULT != ring_fence_too_early) PROXY_FENCE();
        if (FAULT != ring_filled_by_one_lane) __syncwarp();
        uint64_t *full = &r.full[before][(i - 1) / steps % RING_CONSUMERS];
        if (thread % 32 == 0) MBARRIER_ARRIVE(full);
    }
    copy_async_wait<0>();
}

// The same, whose threads wait for free stages alone, and end before the last are there.
template <ring_fault FAULT> static __device__ __forceinline__ void fill_ring_by_arrivals(ring &r, const ring_task &t) {
    int steps = t.k / RING_K, before_arrival = COPIES_OF_A_STEP - (FAULT == ring_arrives_before_its_last_copy ? 128 : 0);
    for (int i = 0; i < t.tiles * steps; i++) {
        int stage = i % RING_STAGES;
        uint32_t lap = i / RING_STAGES;
        if (FAULT != ring_arriving_empty_not_waited) MBARRIER_WAIT(&r.empty[stage], ~lap & 1);
        copy_step<FAULT>(r, t, i, 0, before_arrival);
        COPIES_ARRIVE(&r.full[stage][i / steps % RING_CONSUMERS]);
        copy_step<FAULT>(r, t, i, before_arrival, COPIES_OF_A_STEP);
    }
}

template <ring_fault FAULT, bool ARRIVE>
static __device__ __forceinline__ void multiply_ring(ring &r, const ring_task &t, int consumer) {
    int thread = threadIdx.x % 128, lane = thread % 32, steps = t.k / RING_K;
    uint32_t parities = 0; // of the stages' next phase, a bit each
    auto release = [&](int step) {
        if (FAULT != ring_released_by_one_lane) __syncwarp();
        if (lane == 0) MBARRIER_ARRIVE(&r.empty[step % RING_STAGES]);
    };
    for (int tile = consumer; tile < t.tiles; tile += RING_CONSUMERS) {
        float d[RING_N / 2] = {};
        for (int i = tile * steps; i < (tile + 1) * steps; i++) {
            int stage = i % RING_STAGES;
            uint32_t parity = parities >> stage & 1, once;
            uint64_t *full = &r.full[stage][consumer];
            if (FAULT == ring_readers_fence_too_early) PROXY_FENCE();
            if (FAULT == ring_asked_once) MBARRIER_ASK("try", once, full, parity);
            else if (FAULT != ring_full_not_waited && (FAULT != ring_waited_by_one_lane || lane == 0)) MBARRIER_WAIT(full, parity);
            parities ^= 1u << stage;
            if (ARRIVE && FAULT != ring_readers_fence_missing && FAULT != ring_readers_fence_too_early &&
                (FAULT != ring_readers_fence_missing_in_one || thread != 77)) PROXY_FENCE();
            GROUP_FENCE();
#pragma unroll
            for (int k = 0; k < RING_K / 16; k++) {
                uint64_t a = descriptor(shared_address(r.a[stage][k]), 128, 256, 0);
                uint64_t b = descriptor(shared_address(r.b[stage][k]), 128, 256, 0);
                PRODUCT_SHARED(128, "bf16.bf16", 64, d, a, b, true, 0, 0); // fault: ring_full_not_waited ring_empty_not_waited ring_fence_missing ring_fence_too_early ring_filled_by_one_lane ring_waited_by_one_lane ring_asked_once ring_readers_fence_missing ring_readers_fence_missing_in_one ring_readers_fence_too_early ring_arrives_before_its_last_copy
            }
            GROUP_COMMIT();
            if (FAULT == ring_released_early) release(i);
            if (i == tile * steps) continue;
            GROUP_WAIT(1);
            if (FAULT != ring_released_early) release(i - 1);
        }
        GROUP_WAIT(0);
        if (FAULT != ring_released_early) release((tile + 1) * steps - 1);
        for (int j = 0; j < RING_N / 2; j++) {
            int row = tile * RING_M + thread / 32 * 16 + lane / 4 + j / 2 % 2 * 8;
            t.d[row * RING_N + j / 4 * 8 + lane % 4 * 2 + j % 2] = d[j];
        }
    }
}
#endif

template <ring_fault FAULT, bool ARRIVE = false> static __global__ void __launch_bounds__(RING_THREADS, 1) ring_kernel(ring_task t) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ __align__(128) ring r;
    for (int i = threadIdx.x; i < RING_STAGES; i += RING_THREADS) {
        for (int consumer = 0; consumer < RING_CONSUMERS; consumer++) MBARRIER_INIT(&r.full[i][consumer], ARRIVE ? 128 : WARPS_OF_GROUP);
        MBARRIER_INIT(&r.empty[i], WARPS_OF_GROUP);
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        GIVE_REGISTERS(40);
        if (ARRIVE) fill_ring_by_arrivals<FAULT>(r, t);
        else fill_ring<FAULT>(r, t);
    } else {
        TAKE_REGISTERS(232);
        multiply_ring<FAULT, ARRIVE>(r, t, threadIdx.x / 128 - 1);
    }
#endif
}
