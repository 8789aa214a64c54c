/* The CPU's kernels, compiled several times from the same sources: once for each instruction set in
 * model/CMakeLists.txt. One binary then runs on every x86-64 and still uses all that the processor has. device.c
 * chooses the variant when the program starts.
 *
 * UPS_CPU(name) gives a symbol its variant's own name, so nothing in these files may be visible outside under another.
 * Shared helpers are `static inline`, in vector.h.
 *
 * Determinism: a kernel's result may not depend on the number of threads. What is summed over rows is therefore summed
 * over blocks whose number depends on the shape alone, and the blocks' partial sums are added in order. */
#ifndef UPS_MODEL_CPU_KERNELS_H
#define UPS_MODEL_CPU_KERNELS_H

#include "model/cpu/host.h"

#define UPS_CPU_JOIN_(variant, name) ups_cpu_##variant##_##name
#define UPS_CPU_JOIN(variant, name) UPS_CPU_JOIN_(variant, name)
#define UPS_CPU(name) UPS_CPU_JOIN(UPS_CPU_VARIANT, name)
#define UPS_CPU_TABLE_(variant) ups_cpu_##variant
#define UPS_CPU_TABLE_OF(variant) UPS_CPU_TABLE_(variant)
#define UPS_CPU_TABLE UPS_CPU_TABLE_OF(UPS_CPU_VARIANT) /* the variant itself: ups_cpu_avx2 */

typedef struct ups_cpu_kernel {
    ups_kernel_run *forward, *backward;
    size_t (*workspace)(const ups_device *device, const ups_op_call *call, bool backward); /* bytes; NULL: none */
} ups_cpu_kernel;

/* One instruction set's kernels. */
typedef struct ups_cpu_variant {
    const char *name;
    const ups_cpu_kernel *kernels[UPS_OP_COUNT];
    void (*optimize)(int threads, const ups_optimizer_call *call);
    size_t (*muon_workspace)(int threads, const ups_matrices *matrices, int32_t count, ups_dtype compute);
    void (*sum_of_squares)(int threads, const float *x, int64_t count, double *sum, int64_t *non_finite);
    void (*convert)(int threads, const float *from, ups_dtype dtype, uint16_t *to, int64_t count);
} ups_cpu_variant;

extern const ups_cpu_variant ups_cpu_baseline, ups_cpu_avx2, ups_cpu_avx512, ups_cpu_avx512_bf16, ups_cpu_amx;

#ifdef UPS_CPU_VARIANT
#define UPS_CPU_VARIANT_TEXT_(variant) #variant
#define UPS_CPU_VARIANT_TEXT(variant) UPS_CPU_VARIANT_TEXT_(variant)

#define UPS_OP_KERNEL(KIND, name) extern const ups_cpu_kernel UPS_CPU(name);
UPS_OPS(UPS_OP_KERNEL)
#undef UPS_OP_KERNEL
void UPS_CPU(optimize)(int threads, const ups_optimizer_call *call);
void UPS_CPU(muon)(int threads, const ups_optimizer_call *call); /* the values; what follows them is optimize's */
size_t UPS_CPU(muon_workspace)(int threads, const ups_matrices *matrices, int32_t count, ups_dtype compute);
void UPS_CPU(sum_of_squares)(int threads, const float *x, int64_t count, double *sum, int64_t *non_finite);
void UPS_CPU(convert)(int threads, const float *from, ups_dtype dtype, uint16_t *to, int64_t count);
#endif

#endif
