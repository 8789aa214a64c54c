// What optimizers share: ordered sums, and what follows a weight that was moved.
#pragma once
#include "model/cuda/elements.cuh"

// Of `count` partial sums in shared memory, a power of 2 and as many threads: to the first.
static __device__ __forceinline__ void add_in_order(ups_cuda_norm_partial *sums, int count) {
    for (int half = count / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[threadIdx.x].sum += sums[threadIdx.x + half].sum;
            sums[threadIdx.x].non_finite += sums[threadIdx.x + half].non_finite;
        }
    }
    __syncthreads();
}

static __device__ __forceinline__ float average_decay(const ups_optimizer_call &call) {
    return fminf(call.ema_decay, ups_update_ema_decay(call.update->state.taken[call.set] - 1));
}

// A weight, its average and its copy.
static __device__ __forceinline__ void put_value(const ups_optimizer_call &call, int64_t at, float value, float decay) {
    call.values[at] = value;
    if (call.ema) call.ema[at] = decay * call.ema[at] + (1.0f - decay) * value;
    if (call.compute) call.compute[at] = half_bits(call.compute_dtype, value);
}
