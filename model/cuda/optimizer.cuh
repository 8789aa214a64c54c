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

enum { QUAD = 4 /* floats of 16 bytes */ };

template <int N> static __device__ __forceinline__ void get_floats(const float *from, float (&x)[N]) {
    static_assert(N == 1 || N == QUAD);
    if constexpr (N == QUAD) {
        const float4 four = *(const float4 *)from;
        x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
    } else {
        x[0] = *from;
    }
}

// In global memory. Of a plain store of a float4 the compiler was seen to make four.
template <int N> static __device__ __forceinline__ void put_floats(float *to, const float (&x)[N]) {
    if constexpr (N == QUAD)
        asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
    else *to = x[0];
}

// N weights side by side, their averages (from `kept_at` on) and their copies; more than one at a multiple of as many.
template <int N>
static __device__ __forceinline__ void put_values(const ups_optimizer_call &call, int64_t at, int64_t kept_at,
                                                  const float (&values)[N], float decay) {
    put_floats(call.values + at, values);
    if (call.ema) {
        float average[N];
        get_floats(call.ema + kept_at, average);
#pragma unroll
        for (int i = 0; i < N; i++) average[i] = fmaf(1.0f - decay, values[i], decay * average[i]); // the same bits for any N
        put_floats(call.ema + kept_at, average);
    }
    if (!call.compute) return;
    uint16_t bits[N];
#pragma unroll
    for (int i = 0; i < N; i++) bits[i] = half_bits(call.compute_dtype, values[i]);
    if constexpr (N == QUAD) {
        const uint32_t low = bits[0] | (uint32_t)bits[1] << 16, high = bits[2] | (uint32_t)bits[3] << 16;
        asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(call.compute + at), "r"(low), "r"(high) : "memory");
    } else {
        call.compute[at] = bits[0];
    }
}
