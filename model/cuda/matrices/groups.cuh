// Products of four warps at once (PTX ISA, wgmma), which cards of compute capability 9.0 have. The second operand comes from
// shared memory without taking registers; the first does, or is fragments that the warps hold. Each warp has sixteen rows of the
// 64; of lane l, results are rows l / 4 and l / 4 + 8, and in every eight columns 2 (l % 4) and the next.
//
// Rows in shared memory lie in slabs: eight columns of all rows, a row's sixteen bytes behind those of the row before. Eight
// rows of a slab are what the matrix units call a core matrix, whichever way they read it. Between slabs are 64 bytes, so that
// lanes that write two slabs at once meet different banks.
#pragma once
#include "model/cuda/matrices/shared.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_GROUPS 1
#else
#define HAS_GROUPS 0 // kernels are empty, and nobody starts them
#endif

enum { GROUP_THREADS = 128, GROUP_ROWS = 64, SLAB_PADDING = 64 };

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
// What this thread has come to know of shared memory, products that it begins from here on read.
static __device__ __forceinline__ void see_for_groups() {
    show_to_groups();
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

// ---- products ---------------------------------------------------------------------------------------------------------

#define FOUR_SUMS(b) "+f"(d[0][2 * (b)]), "+f"(d[0][2 * (b) + 1]), "+f"(d[1][2 * (b)]), "+f"(d[1][2 * (b) + 1])
#define SUMS_32 FOUR_SUMS(0), FOUR_SUMS(1), FOUR_SUMS(2), FOUR_SUMS(3)
#define SUMS_48 SUMS_32, FOUR_SUMS(4), FOUR_SUMS(5)
#define SUMS_64 SUMS_48, FOUR_SUMS(6), FOUR_SUMS(7)
#define SUMS_128                                                                                                               \
    SUMS_64, FOUR_SUMS(8), FOUR_SUMS(9), FOUR_SUMS(10), FOUR_SUMS(11), FOUR_SUMS(12), FOUR_SUMS(13), FOUR_SUMS(14), FOUR_SUMS(15)
#define NAMES_32 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define NAMES_48                                                                                                               \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}"
#define NAMES_64                                                                                                               \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "     \
    "%25, %26, %27, %28, %29, %30, %31}"
#define NAMES_128                                                                                                              \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "     \
    "%25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "      \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
// The operands behind the sums by number: a's, b's, and whether b lies transposed.
#define GROUP_PRODUCT(n, type, of_a, of_b, add, adds, ...)                                                                     \
    asm volatile("{ .reg .pred add; setp.ne.b32 add, %" #add ", 0; wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type       \
                 "." type " " NAMES_##n ", " of_a ", " of_b "; }"                                                              \
                 : SUMS_##n                                                                                                    \
                 : __VA_ARGS__, "l"(b_place), "n"((int)TRANSPOSED), adds)
#define HELD_PRODUCT(n, type, a0, a1, a2, a3, b, t, add)                                                                       \
    GROUP_PRODUCT(n, type, "{%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}", "%" #b ", add, 1, 1, %" #t, add, "n"((int)ADD),         \
                  "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]))
#define PLACED_PRODUCT(n, type, a, b, t, add, adds)                                                                            \
    GROUP_PRODUCT(n, type, "%" #a, "%" #b ", add, 1, 1, 0, %" #t, add, adds, "l"(a_place))

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
    if constexpr (TYPE == UPS_BF16 && N == 32) PLACED_PRODUCT(32, "bf16", 16, 17, 18, 19, "n"((int)ADD));
    if constexpr (TYPE == UPS_BF16 && N == 64) PLACED_PRODUCT(64, "bf16", 32, 33, 34, 35, "n"((int)ADD));
    if constexpr (TYPE == UPS_F16 && N == 32) PLACED_PRODUCT(32, "f16", 16, 17, 18, 19, "n"((int)ADD));
    if constexpr (TYPE == UPS_F16 && N == 64) PLACED_PRODUCT(64, "f16", 32, 33, 34, 35, "n"((int)ADD));
}
// The same of 128 columns, where only the run knows whether to add.
template <ups_dtype TYPE, bool TRANSPOSED>
static __device__ __forceinline__ void group_multiply(float (&d)[2][32], uint64_t a_place, uint64_t b_place, bool add) {
    if constexpr (TYPE == UPS_BF16) PLACED_PRODUCT(128, "bf16", 64, 65, 66, 67, "r"((int)add));
    if constexpr (TYPE == UPS_F16) PLACED_PRODUCT(128, "f16", 64, 65, 66, 67, "r"((int)add));
}

// ---- barriers in memory -----------------------------------------------------------------------------------------------

// An mbarrier (PTX ISA): a phase is over when so many have arrived, and what they did before is then seen by those who wait for
// it. Phases count from 0; who waits names the lowest bit of the one that is to be over.
static __device__ __forceinline__ void phases_begin(uint64_t *barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
static __device__ __forceinline__ void phase_arrive(uint64_t *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// This thread arrives when all that it has begun to copy is there, and goes on.
static __device__ __forceinline__ void phase_arrive_when_copied(uint64_t *barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
static __device__ __forceinline__ void phase_wait(uint64_t *barrier, uint32_t phase) {
    uint32_t over;
    do {
        asm volatile("{ .reg .pred over; mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2; selp.u32 %0, 1, 0, over; }"
                     : "=r"(over)
                     : "r"(shared_address(barrier)), "r"(phase)
                     : "memory");
    } while (!over);
}

// Registers of a thread from here on: those that a group gives up are there for another one to take. All of a group come.
template <int COUNT> static __device__ __forceinline__ void give_up_registers_but() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> static __device__ __forceinline__ void take_registers_up_to() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
