// Elements of any float dtype, read and written as float32, a thread several at once: 16-byte accesses where all tensors of
// a kernel allow them (a launch with WIDE), one element otherwise.
#pragma once
#include <cublasLt.h> // libraries in C++ come before the project's headers in C, which include them
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <stdint.h>
extern "C" {
#include "model/cuda/host.h"
}

enum { WIDE = 8, THREADS = 256 };

// A tensor as a kernel sees it.
struct elements {
    void *data;
    ups_dtype dtype;
};

static inline elements elements_of(const ups_tensor *tensor) {
    return {tensor->data, tensor->dtype};
}

static inline bool is_present(const ups_tensor *tensor) {
    return tensor->data != nullptr;
}

// Whether WIDE elements at a multiple of WIDE may be accessed at once.
static inline bool is_wide(const ups_tensor *tensor, int64_t width) {
    return width % WIDE == 0 && (uintptr_t)tensor->data % 16 == 0;
}

template <int N> static __device__ __forceinline__ void read_elements(elements from, int64_t at, float (&x)[N]) {
    if (from.dtype == UPS_F32) {
        const float *p = (const float *)from.data + at;
        if (N == WIDE) {
            float4 low = ((const float4 *)p)[0], high = ((const float4 *)p)[1];
            x[0] = low.x, x[1 % N] = low.y, x[2 % N] = low.z, x[3 % N] = low.w;
            x[4 % N] = high.x, x[5 % N] = high.y, x[6 % N] = high.z, x[7 % N] = high.w;
        } else {
            x[0] = *p;
        }
        return;
    }
    const uint16_t *p = (const uint16_t *)from.data + at;
    __align__(16) uint16_t bits[N];
    if (N == WIDE) *(uint4 *)bits = *(const uint4 *)p;
    else bits[0] = *p;
#pragma unroll
    for (int i = 0; i < N; i++) {
        x[i] = from.dtype == UPS_BF16 ? __uint_as_float((uint32_t)bits[i] << 16) : __half2float(__ushort_as_half(bits[i]));
    }
}

static __device__ __forceinline__ uint16_t half_bits(ups_dtype dtype, float x) {
    return dtype == UPS_BF16 ? __bfloat16_as_ushort(__float2bfloat16(x)) : __half_as_ushort(__float2half(x));
}

// Added to what is there with `accumulate`.
template <int N>
static __device__ __forceinline__ void write_elements(elements to, int64_t at, float (&x)[N], bool accumulate = false) {
    if (accumulate) {
        float before[N];
        read_elements<N>(to, at, before);
#pragma unroll
        for (int i = 0; i < N; i++) x[i] += before[i];
    }
    if (to.dtype == UPS_F32) {
        float *p = (float *)to.data + at;
        if (N == WIDE) {
            ((float4 *)p)[0] = make_float4(x[0], x[1 % N], x[2 % N], x[3 % N]);
            ((float4 *)p)[1] = make_float4(x[4 % N], x[5 % N], x[6 % N], x[7 % N]);
        } else {
            *p = x[0];
        }
        return;
    }
    __align__(16) uint16_t bits[N];
#pragma unroll
    for (int i = 0; i < N; i++) bits[i] = half_bits(to.dtype, x[i]);
    uint16_t *p = (uint16_t *)to.data + at;
    if (N == WIDE) *(uint4 *)p = *(const uint4 *)bits;
    else *p = bits[0];
}

// Blocks for `count` elements, `each` a thread; grids stride over what is left.
static inline unsigned blocks_for(int64_t count, int each) {
    enum { MOST = 1 << 16 };
    int64_t blocks = (count + (int64_t)THREADS * each - 1) / ((int64_t)THREADS * each);
    return (unsigned)(blocks < MOST ? blocks : MOST);
}
