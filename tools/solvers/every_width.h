/* UPS_EVERY_WIDTH before a function: it is compiled for several widths of vectors, and the widest that the processor
 * has is taken when the program starts. As long as products and sums are not fused (-ffp-contract=off) and sums keep
 * their order, all give the same bits.
 *
 * Thread sanitizer would watch the choice itself, which is made before it has started: no choice there. Nor with clang,
 * which until version 17 gives the function another name (NAME.ifunc) than its callers look for. */
#ifndef UPS_SOLVERS_EVERY_WIDTH_H
#define UPS_SOLVERS_EVERY_WIDTH_H

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UPS_ONE_WIDTH
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(__clang__)
#define UPS_ONE_WIDTH
#endif

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(UPS_ONE_WIDTH)
#define UPS_EVERY_WIDTH __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define UPS_EVERY_WIDTH
#endif
#define UPS_ALWAYS_INLINE static inline __attribute__((always_inline))

/* Before loops that write where they read, but only at the same index. Needs -fopenmp-simd. */
#define UPS_SAME_PLACE _Pragma("omp simd")

#endif
