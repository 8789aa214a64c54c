// wgmma as inline assembly, for the emulator's tests. A statement of a kernel each, so that faults have its line.
#pragma once
#include "tests/cuda/warp.cuh"

#define GROUP_FENCE() asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define GROUP_COMMIT() asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define GROUP_WAIT(LEFT) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory")
#define PROXY_FENCE() asm volatile("fence.proxy.async.shared::cta;" ::: "memory")

// The first so many operands of an instruction, as numbers and as constraints.
#define NUMBERS_4 "%0, %1, %2, %3"
#define NUMBERS_24 NUMBERS_4 ", %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23"
#define NUMBERS_32 NUMBERS_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define NUMBERS_64                                                                                                     \
    NUMBERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, " \
               "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NUMBERS_128                                                                                                    \
    NUMBERS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, " \
               "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, "     \
               "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, " \
               "%120, %121, %122, %123, %124, %125, %126, %127"
#define FLOATS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define FLOATS_8(d, i) FLOATS_4(d, i), FLOATS_4(d, i + 4)
#define FLOATS_24(d, i) FLOATS_8(d, i), FLOATS_8(d, i + 8), FLOATS_8(d, i + 16)
#define FLOATS_32(d, i) FLOATS_24(d, i), FLOATS_8(d, i + 24)
#define FLOATS_64(d, i) FLOATS_32(d, i), FLOATS_32(d, i + 32)
#define FLOATS_128(d, i) FLOATS_64(d, i), FLOATS_64(d, i + 64)

#define SCALES "1, 1" // of A and of B; -1 turns their signs
// d (COUNT = N / 2 a thread) = A B + (accumulates ? d : 0); TYPES "bf16.bf16" or "f16.f16". The last arguments are the
// numbers of the operands behind d.
#define GROUP_PRODUCT(N, TYPES, COUNT, d, a, b, accumulates, A_MAJOR, B_MAJOR, A, B, P, TA, TB)                        \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\n"                                                        \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPES " {" NUMBERS_##COUNT "}, " A ", " B           \
                 ", p, " SCALES ", " TA ", " TB ";\n}\n"                                                               \
                 : FLOATS_##COUNT(d, 0)                                                                                \
                 : "l"(a), "l"(b), "r"((int)(accumulates)), "n"(A_MAJOR), "n"(B_MAJOR))
#define GROUP_PRODUCT_OF_REGISTERS(N, TYPES, COUNT, d, a, b, accumulates, B_MAJOR, A0, A1, A2, A3, B, P, TB)           \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\n"                                                        \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPES " {" NUMBERS_##COUNT "}, {" A0 ", " A1 ", " A2 \
                 ", " A3 "}, " B ", p, " SCALES ", " TB ";\n}\n"                                                       \
                 : FLOATS_##COUNT(d, 0)                                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)(accumulates)), "n"(B_MAJOR))

#define BEHIND_4 "%4", "%5", "%6", "%7", "%8"
#define BEHIND_24 "%24", "%25", "%26", "%27", "%28"
#define BEHIND_32 "%32", "%33", "%34", "%35", "%36"
#define BEHIND_64 "%64", "%65", "%66", "%67", "%68"
#define BEHIND_128 "%128", "%129", "%130", "%131", "%132"
#define BEHIND_REGISTERS_4 BEHIND_4, "%9", "%10"
#define BEHIND_REGISTERS_24 BEHIND_24, "%29", "%30"
#define BEHIND_REGISTERS_32 BEHIND_32, "%37", "%38"
#define BEHIND_REGISTERS_64 BEHIND_64, "%69", "%70"
#define BEHIND_REGISTERS_128 BEHIND_128, "%133", "%134"
#define EXPAND(MACRO, ...) MACRO(__VA_ARGS__)

#define PRODUCT_SHARED(N, TYPES, COUNT, d, a, b, accumulates, A_MAJOR, B_MAJOR)                                        \
    EXPAND(GROUP_PRODUCT, N, TYPES, COUNT, d, a, b, accumulates, A_MAJOR, B_MAJOR, BEHIND_##COUNT)
#define PRODUCT_REGISTERS(N, TYPES, COUNT, d, a, b, accumulates, B_MAJOR)                                              \
    EXPAND(GROUP_PRODUCT_OF_REGISTERS, N, TYPES, COUNT, d, a, b, accumulates, B_MAJOR, BEHIND_REGISTERS_##COUNT)

// A matrix descriptor. Offsets in bytes; swizzle: its field, 0 none, 1 128 bytes, 2 64, 3 32.
static __device__ __forceinline__ uint64_t descriptor(uint32_t address, uint32_t leading, uint32_t stride, uint32_t swizzle) {
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 |
           (uint64_t)swizzle << 62;
}
