// Products of four warps at once (PTX ISA, wgmma), which cards of compute capability 9.0 have. The second operand comes from
// shared memory without taking registers; the first does, or is fragments that the warps hold. Each warp has sixteen rows of the
// 64: fragments and results are those of matrix_tiles.
//
// Rows in shared memory lie in slabs: eight columns of all rows, a row's sixteen bytes behind those of the row before. Eight
// rows of a slab are what the matrix units call a core matrix, whichever way they read it. Between slabs are 64 bytes, so that
// lanes that write two slabs at once meet different banks.
#pragma once
#include "model/cuda/attention/attention_short.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_GROUPS 1
#else
#define HAS_GROUPS 0 // kernels are empty, and nobody starts them
#endif

enum { GROUP_THREADS = 128, GROUP_ROWS = 64, BLOCK_GROUPS = 2, BLOCK_WARPS = 4 * BLOCK_GROUPS, SLAB_PADDING = 64 };

// Bytes from one slab to the next, and of a tensor of `width` columns.
static constexpr __host__ __device__ int slab_stride(int rows) {
    return rows * 16 + SLAB_PADDING;
}
static constexpr __host__ __device__ size_t slabs_bytes(int rows, int width) {
    return (size_t)slab_stride(rows) * (width / 8);
}

// The same in all lanes of a warp, as it is: for the compiler to know.
static __device__ __forceinline__ int uniform(int x) {
    return __shfl_sync(0xffffffffu, x, 0);
}

// ---- waiting ----------------------------------------------------------------------------------------------------------

// Before the first product after a thread has changed what it gives to products in registers.
static __device__ __forceinline__ void group_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void group_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until all but the last LEFT commits are done.
template <int LEFT> static __device__ __forceinline__ void group_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
// What this thread has written to shared memory is what products read after the next barrier.
static __device__ __forceinline__ void show_to_groups() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// The compiler does not move what uses these across.
template <int N> static __device__ __forceinline__ void hold(float (&x)[2][N]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int j = 0; j < N; j++) asm volatile("" : "+f"(x[i][j])::"memory");
    }
}

// The four warps of the group wait for each other; `group` counts from 0 in a block.
static __device__ __forceinline__ void meet_group(int group) {
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"((int)GROUP_THREADS) : "memory");
}

// ---- operands ---------------------------------------------------------------------------------------------------------

// Rows in slabs, from one of them on.
struct slab_rows {
    unsigned char *data;
    int stride; // bytes from one slab to the next

    __device__ __forceinline__ slab_rows from(int row) const {
        return {data + row * 16, stride};
    }
    // Where they are, as products are told: the address, and the strides along both axes, in units of sixteen bytes. Rows whose
    // columns are summed over, and rows that sums run across (`transposed`), name the strides the other way round.
    __device__ __forceinline__ uint64_t place(bool transposed) const {
        enum { EIGHT_ROWS = 8 * 16 };
        const uint64_t leading = transposed ? EIGHT_ROWS : stride, other = transposed ? stride : EIGHT_ROWS;
        return (uint64_t)(shared_address(data) >> 4) | leading >> 4 << 16 | other >> 4 << 32;
    }
    // The same, so many rows and times sixteen columns further.
    __device__ __forceinline__ uint64_t moved(uint64_t place, int rows, int columns) const {
        return place + (uint64_t)(uint32_t)(rows + columns * (stride >> 3));
    }
};

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

#define FOUR_SUMS(b) "+f"(d[0][2 * (b)]), "+f"(d[0][2 * (b) + 1]), "+f"(d[1][2 * (b)]), "+f"(d[1][2 * (b) + 1])
#define SUMS_32 FOUR_SUMS(0), FOUR_SUMS(1), FOUR_SUMS(2), FOUR_SUMS(3)
#define SUMS_48 SUMS_32, FOUR_SUMS(4), FOUR_SUMS(5)
#define SUMS_64 SUMS_48, FOUR_SUMS(6), FOUR_SUMS(7)
#define NAMES_32 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define NAMES_48                                                                                                               \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}"
#define NAMES_64                                                                                                               \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "     \
    "%25, %26, %27, %28, %29, %30, %31}"
// The operands behind the sums by number: a's, b's, and whether b lies transposed.
#define GROUP_PRODUCT(n, type, of_a, of_b, add, ...)                                                                                \
    asm volatile("{ .reg .pred add; setp.ne.b32 add, %" #add ", 0; wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " "  \
                 NAMES_##n ", " of_a ", " of_b "; }"                                                                           \
                 : SUMS_##n                                                                                                    \
                 : __VA_ARGS__, "l"(b_place), "n"((int)TRANSPOSED), "n"((int)ADD))
#define HELD_PRODUCT(n, type, a0, a1, a2, a3, b, t, add)                                                                            \
    GROUP_PRODUCT(n, type, "{%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}", "%" #b ", add, 1, 1, %" #t, add, "r"(a[0]), "r"(a[1]),       \
                  "r"(a[2]), "r"(a[3]))
#define PLACED_PRODUCT(n, type, a, b, t, add)                                                                                  \
    GROUP_PRODUCT(n, type, "%" #a, "%" #b ", add, 1, 1, 0, %" #t, add, "l"(a_place))

// d = a b, or with ADD d += a b, of N columns and sixteen terms; b lies `transposed` where its rows are what is summed over. It is
// done after a wait.
template <ups_dtype TYPE, int N, bool TRANSPOSED, bool ADD>
static __device__ __forceinline__ void group_multiply(float (&d)[2][N / 4], const uint32_t (&a)[4], uint64_t b_place) {
    static_assert(N == 32 || N == 48 || N == 64, "columns that are written below");
    if constexpr (TYPE == UPS_BF16 && N == 32) HELD_PRODUCT(32, "bf16", 16, 17, 18, 19, 20, 21, 22);
    if constexpr (TYPE == UPS_BF16 && N == 48) HELD_PRODUCT(48, "bf16", 24, 25, 26, 27, 28, 29, 30);
    if constexpr (TYPE == UPS_BF16 && N == 64) HELD_PRODUCT(64, "bf16", 32, 33, 34, 35, 36, 37, 38);
    if constexpr (TYPE == UPS_F16 && N == 32) HELD_PRODUCT(32, "f16", 16, 17, 18, 19, 20, 21, 22);
    if constexpr (TYPE == UPS_F16 && N == 48) HELD_PRODUCT(48, "f16", 24, 25, 26, 27, 28, 29, 30);
    if constexpr (TYPE == UPS_F16 && N == 64) HELD_PRODUCT(64, "f16", 32, 33, 34, 35, 36, 37, 38);
}
// The same with a from shared memory, of which sums run along the columns.
template <ups_dtype TYPE, int N, bool TRANSPOSED, bool ADD>
static __device__ __forceinline__ void group_multiply(float (&d)[2][N / 4], uint64_t a_place, uint64_t b_place) {
    static_assert(N == 32 || N == 64, "columns that are written below");
    if constexpr (TYPE == UPS_BF16 && N == 32) PLACED_PRODUCT(32, "bf16", 16, 17, 18, 19);
    if constexpr (TYPE == UPS_BF16 && N == 64) PLACED_PRODUCT(64, "bf16", 32, 33, 34, 35);
    if constexpr (TYPE == UPS_F16 && N == 32) PLACED_PRODUCT(32, "f16", 16, 17, 18, 19);
    if constexpr (TYPE == UPS_F16 && N == 64) PLACED_PRODUCT(64, "f16", 32, 33, 34, 35);
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
