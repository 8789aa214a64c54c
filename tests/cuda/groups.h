/* What groups.cu launches: products of warpgroups, for test_groups.c. */
#ifndef UPS_TESTS_CUDA_GROUPS_H
#define UPS_TESTS_CUDA_GROUPS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The products that are compiled: name, N, in fp16 (else bf16), A in registers, A M-major, B N-major. */
#define GROUP_PRODUCTS(X)                                                                                              \
    X(n8, 8, false, false, 0, 0)                                                                                       \
    X(n48_f16_registers_turned, 48, true, true, 0, 1)                                                                  \
    X(n64, 64, false, false, 0, 0)                                                                                     \
    X(n64_turned, 64, false, false, 1, 1)                                                                              \
    X(n64_f16_a_turned, 64, true, false, 1, 0)                                                                         \
    X(n64_registers, 64, false, true, 0, 0)                                                                            \
    X(n128_f16_b_turned, 128, true, false, 0, 1)                                                                       \
    X(n128_registers_turned, 128, false, true, 0, 1)                                                                   \
    X(n256, 256, false, false, 0, 0)                                                                                   \
    X(n256_f16_registers, 256, true, true, 0, 0)
#define GROUP_PRODUCT_NAME(name, n, f16, registers, a_major, b_major) GROUP_##name,
typedef enum group_product { GROUP_PRODUCTS(GROUP_PRODUCT_NAME) GROUP_PRODUCT_COUNT } group_product;

enum { GROUP_K = 64 }; /* steps of 16 */

/* Where an operand lies in shared memory, in bytes. An atom is eight rows of `width` times 16 bytes; a width of 1 is
 * without swizzle. `leading` and `stride` are the descriptor's. What one descriptor cannot reach is `next` further: of
 * K-major operands the next 8 `width` columns of K (16 without swizzle), of others the next 16. */
typedef struct group_layout {
    uint32_t start, width, leading, stride, next;
} group_layout;

typedef enum group_mode {
    GROUP_FRESH,  /* D = A B, the first step without what was in the registers */
    GROUP_ADDED,  /* D = C + A B */
    GROUP_IN_TWO, /* D = C + A B: halves of K to two accumulators, as two groups under way; N at most 128 */
} group_mode;

/* d (64 groups, n) = c + a (64 groups, K) b (K, n), row-major, by blocks of `groups` warpgroups that share b. Layouts
 * of a: of the first warpgroup, the next one's `shared_bytes_of_a` further. */
typedef struct group_task {
    const uint16_t *a, *b;
    const float *c;
    float *d;
    group_layout a_layout, b_layout;
    uint32_t shared_bytes_of_a, shared_bytes;
    group_mode mode;
    int groups;
} group_task;
void launch_group_product(group_product product, const group_task *task, cudaStream_t stream);
/* d (64, 64) = a (64, k) b (64, k)^T in bf16, by asynchronous copies in two stages. */
void launch_staged_product(const uint16_t *a, const uint16_t *b, float *d, int k, cudaStream_t stream);
/* y (128, 32) = minus the sum of 16 products of ones, K = 16 each. */
void launch_handed_on(float *y, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
