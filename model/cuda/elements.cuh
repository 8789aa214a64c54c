// Elements of any float dtype, read and written as float32, a thread several at once: 16-byte accesses where all
// tensors of a kernel allow them (a launch with WIDE), one element otherwise.
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

// N elements as they lie in memory: asked for but not looked at, so that a thread can have several on their way.
// Reading one after the other would wait for each, since what becomes of it depends on the dtype.
template <int N> struct raw_elements {
    static_assert(N == WIDE, "a thread has WIDE elements or one");
    uint4 low, high; // high: of float32 alone
};
template <> struct raw_elements<1> { uint32_t bits; };

template <int N> static __device__ __forceinline__ raw_elements<N> load_elements(elements from, int64_t at) {
    raw_elements<N> raw;
    const bool whole = from.dtype == UPS_F32;
    if constexpr (N == WIDE) {
        const uint4 *p = (const uint4 *)((const char *)from.data + (at << (whole ? 2 : 1)));
        raw.low = p[0];
        if (whole) raw.high = p[1];
    } else {
        raw.bits = whole ? ((const uint32_t *)from.data)[at] : ((const uint16_t *)from.data)[at];
    }
    return raw;
}

// What was loaded, as float32. Pairs of 16-bit floats lie in a word, the first in its lower half; one branch chooses
// their kind for all.
template <int N>
static __device__ __forceinline__ void convert_elements(ups_dtype dtype, const raw_elements<N> &raw, float (&x)[N]) {
    if constexpr (N == WIDE) {
        const uint32_t words[] = {raw.low.x, raw.low.y, raw.low.z, raw.low.w};
        if (dtype == UPS_F32) {
            const uint32_t more[] = {raw.high.x, raw.high.y, raw.high.z, raw.high.w};
#pragma unroll
            for (int i = 0; i < N / 2; i++) {
                x[i] = __uint_as_float(words[i]);
                x[N / 2 + i] = __uint_as_float(more[i]);
            }
        } else if (dtype == UPS_BF16) {
#pragma unroll
            for (int i = 0; i < N / 2; i++) {
                x[2 * i] = __uint_as_float(words[i] << 16);
                x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
            }
        } else {
#pragma unroll
            for (int i = 0; i < N / 2; i++) {
                const float2 pair = __half22float2(*(const __half2 *)&words[i]);
                x[2 * i] = pair.x;
                x[2 * i + 1] = pair.y;
            }
        }
    } else {
        x[0] = dtype == UPS_F32    ? __uint_as_float(raw.bits)
               : dtype == UPS_BF16 ? __uint_as_float(raw.bits << 16)
                                   : __half2float(__ushort_as_half((uint16_t)raw.bits));
    }
}

// One after the other, which takes fewer registers.
template <int N> static __device__ __forceinline__ void read_elements(elements from, int64_t at, float (&x)[N]) {
    if (from.dtype == UPS_F32) return convert_elements<N>(UPS_F32, load_elements<N>({from.data, UPS_F32}, at), x);
    convert_elements<N>(from.dtype, load_elements<N>(from, at), x);
}

static __device__ __forceinline__ uint16_t half_bits(ups_dtype dtype, float x) {
    return dtype == UPS_BF16 ? __bfloat16_as_ushort(__float2bfloat16(x)) : __half_as_ushort(__float2half(x));
}

// As convert_elements, back. A pair is rounded by one instruction.
template <int N> static __device__ __forceinline__ raw_elements<N> pack_elements(ups_dtype dtype, const float (&x)[N]) {
    raw_elements<N> raw;
    if constexpr (N == WIDE) {
        uint32_t words[N / 2];
        if (dtype == UPS_F32) {
            raw.high =
                make_uint4(__float_as_uint(x[4]), __float_as_uint(x[5]), __float_as_uint(x[6]), __float_as_uint(x[7]));
#pragma unroll
            for (int i = 0; i < N / 2; i++) words[i] = __float_as_uint(x[i]);
        } else if (dtype == UPS_BF16) {
#pragma unroll
            for (int i = 0; i < N / 2; i++) {
                const __nv_bfloat162 pair = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
                words[i] = *(const uint32_t *)&pair;
            }
        } else {
#pragma unroll
            for (int i = 0; i < N / 2; i++) {
                const __half2 pair = __floats2half2_rn(x[2 * i], x[2 * i + 1]);
                words[i] = *(const uint32_t *)&pair;
            }
        }
        raw.low = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
        raw.bits = dtype == UPS_F32 ? __float_as_uint(x[0]) : half_bits(dtype, x[0]);
    }
    return raw;
}

template <int N>
static __device__ __forceinline__ void store_elements(elements to, int64_t at, const raw_elements<N> &raw) {
    const bool whole = to.dtype == UPS_F32;
    if constexpr (N == WIDE) {
        uint4 *p = (uint4 *)((char *)to.data + (at << (whole ? 2 : 1)));
        p[0] = raw.low;
        if (whole) p[1] = raw.high;
    } else if (whole) {
        ((uint32_t *)to.data)[at] = raw.bits;
    } else {
        ((uint16_t *)to.data)[at] = (uint16_t)raw.bits;
    }
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
    store_elements<N>(to, at, pack_elements<N>(to.dtype, x));
}

// Blocks for `count` elements, `each` a thread; grids stride over what is left.
static inline unsigned blocks_for(int64_t count, int each) {
    enum { MOST = 1 << 16 };
    int64_t blocks = (count + (int64_t)THREADS * each - 1) / ((int64_t)THREADS * each);
    return (unsigned)(blocks < MOST ? blocks : MOST);
}
