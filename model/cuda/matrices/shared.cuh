// What PTX has for products of matrices and CUDA C++ has not: copies to shared memory behind a thread's back, matrices from there to
// the registers of a warp, pairs of half floats in a word.
#pragma once
#include "model/cuda/elements.cuh"

static __device__ __forceinline__ uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

// 16 or 4 bytes, or as many zeros.
static __device__ __forceinline__ void copy_async_16(void *shared, const void *global, bool present) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(present ? 16 : 0)
                 : "memory");
}
static __device__ __forceinline__ void copy_async_4(void *shared, const void *global, bool present) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(present ? 4 : 0)
                 : "memory");
}
static __device__ __forceinline__ void copy_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int GROUPS> static __device__ __forceinline__ void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}

// Four matrices of 8 x 8, a row's address from each lane.
static __device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
static __device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Two elements in a word.
template <ups_dtype TYPE> static __device__ __forceinline__ uint32_t pack_pair(float low, float high) {
    if (TYPE == UPS_BF16) {
        __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        return *(const uint32_t *)&pair;
    }
    __half2 pair = __floats2half2_rn(low, high);
    return *(const uint32_t *)&pair;
}
template <ups_dtype TYPE> static __device__ __forceinline__ float2 unpack_pair(uint32_t pair) {
    if (TYPE == UPS_BF16) return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
    return make_float2(__half2float(__ushort_as_half((uint16_t)pair)), __half2float(__ushort_as_half((uint16_t)(pair >> 16))));
}
