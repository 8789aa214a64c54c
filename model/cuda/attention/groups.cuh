// Attention by products of four warps at once (model/cuda/matrices/groups.cuh): rows of a head in slabs, and products of tiles of them.
// Fragments and results are those of matrix_tiles.
#pragma once
#include "model/cuda/attention/attention_short.cuh"
#include "model/cuda/matrices/groups.cuh"

enum { BLOCK_GROUPS = 2, BLOCK_WARPS = 4 * BLOCK_GROUPS };

// ---- rows in slabs ----------------------------------------------------------------------------------------------------

// Sixteen rows of a warp, as short_rows has them in a lane, to `rows`.
template <typename ROWS> static __device__ __forceinline__ void put_in_slabs(const typename ROWS::pieces &x, slab_rows rows) {
    unsigned char *to = rows.data + threadIdx.x % 32 / 2 * 16 + threadIdx.x % 2 * rows.stride;
#pragma unroll
    for (int i = 0; i < ROWS::PIECES; i++) *(uint4 *)(to + i * 2 * rows.stride) = x[i];
}
// From memory, behind the warp's back.
template <typename ROWS>
static __device__ __forceinline__ void copy_to_slabs(const head_rows &from, int width, int first, int count, slab_rows rows) {
    const int row = first + threadIdx.x % 32 / 2;
    const uint16_t *data = (const uint16_t *)from.from.data + from.base;
    const uint16_t *at = data + (int64_t)row * from.stride + threadIdx.x % 2 * WIDE;
    unsigned char *to = rows.data + threadIdx.x % 32 / 2 * 16 + threadIdx.x % 2 * rows.stride;
#pragma unroll
    for (int i = 0; i < ROWS::PIECES; i++) {
        const bool present = row < count && ROWS::column_of(i) < width;
        copy_async_16(to + i * 2 * rows.stride, present ? at + i * 2 * WIDE : data, present);
    }
}
// As fragments.
template <typename ROWS>
static __device__ __forceinline__ void read_slabs(slab_rows rows, typename ROWS::fragments &a) {
    const unsigned char *from = rows.data + threadIdx.x % 16 * 16 + threadIdx.x % 32 / 16 * rows.stride;
#pragma unroll
    for (int k = 0; k < ROWS::STEPS; k++) load_matrices(a[0][k], from + k * 2 * rows.stride);
}
// Results as fragments of the next product.
template <typename ROWS, int N>
static __device__ __forceinline__ void pack_results(const float (&x)[2][N], uint32_t (&a)[N / 4][4]) {
#pragma unroll
    for (int k = 0; k < N / 4; k++) {
#pragma unroll
        for (int r = 0; r < 4; r++)
            a[k][r] = pack_pair<ROWS::DTYPE>(x[r % 2][4 * k + r / 2 * 2], x[r % 2][4 * k + r / 2 * 2 + 1]);
    }
}

// ---- products of tiles ------------------------------------------------------------------------------------------------

// s = own rows^T, of N rows. own: the warp's fragments, or the group's 64 rows. It is done after a wait.
template <typename ROWS, int N>
static __device__ __forceinline__ void begin_product(const typename ROWS::fragments &own, slab_rows rows, float (&s)[2][N / 4]) {
    const uint64_t of_rows = rows.place(false);
    group_multiply<ROWS::DTYPE, N, false, false>(s, own[0][0], of_rows);
#pragma unroll
    for (int k = 1; k < ROWS::STEPS; k++)
        group_multiply<ROWS::DTYPE, N, false, true>(s, own[0][k], rows.moved(of_rows, 0, k));
}
template <typename ROWS, int N>
static __device__ __forceinline__ void begin_product(slab_rows own, slab_rows rows, float (&s)[2][N / 4]) {
    const uint64_t of_own = own.place(false), of_rows = rows.place(false);
    group_multiply<ROWS::DTYPE, N, false, false>(s, of_own, of_rows);
#pragma unroll
    for (int k = 1; k < ROWS::STEPS; k++)
        group_multiply<ROWS::DTYPE, N, false, true>(s, own.moved(of_own, 0, k), rows.moved(of_rows, 0, k));
}
// sums += p rows, of N rows. It is done after a wait.
template <typename ROWS, int N>
static __device__ __forceinline__ void begin_mix(const uint32_t (&p)[N / 16][4], slab_rows rows, float (&sums)[2][ROWS::RESULTS]) {
    const uint64_t of_rows = rows.place(true);
#pragma unroll
    for (int k = 0; k < N / 16; k++)
        group_multiply<ROWS::DTYPE, ROWS::D, true, true>(sums, p[k], rows.moved(of_rows, 16 * k, 0));
}
