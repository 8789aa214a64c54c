/* What rings.cu launches, for test_rings.c, and the faults of rings_faults.cu. */
#ifndef UPS_TESTS_CUDA_RINGS_H
#define UPS_TESTS_CUDA_RINGS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { RING_M = 64, RING_N = 128, RING_K = 32 }; /* of a tile, and of one step */

/* d (tiles M, N) = a (tiles M, k) b (N, k)^T in bf16; k a multiple of RING_K. */
typedef struct ring_task {
    const uint16_t *a, *b;
    float *d;
    int tiles, k;
} ring_task;
void launch_ring(const ring_task *task, cudaStream_t stream);
/* The same, whose copying threads never wait for a copy: copies arrive, and the multiplying threads fence. */
void launch_arriving_ring(const ring_task *task, cudaStream_t stream);
/* Copies arrive in addition to their thread, beside groups that are waited for, and after their thread ended. y (256)
 * of x (256): y[i] = x[i] + 1 + x[2 i], and y[128 + i] = x[2 i] of odd i. Warps that ask whether copies arrived
 * go on together where they `meet`. */
void launch_arrivals(const float *x, float *y, bool meets, cudaStream_t stream);
/* A whole warpgroup waits by mbarrier.test_wait for all threads of another, round by round: y (128) = the sum of what
 * that wrote, 0 to 127 and the round each time. */
void launch_rounds(float *y, int rounds, cudaStream_t stream);
/* d (64, n) = 16 a b: as many products under way at once, of a (64, 16) and b (n, 16)^T. n: 128 or 256. */
enum { PRODUCTS_AT_ONCE = 16 };
void launch_many_products(const uint16_t *a, const uint16_t *b, float *d, int n, cudaStream_t stream);

/* What may be wrong with a ring. */
#define RING_FAULTS(X)                                                                                                 \
    X(full_not_waited)                                                                                                 \
    X(empty_not_waited)                                                                                                \
    X(fence_missing)                                                                                                   \
    X(fence_too_early)                                                                                                 \
    X(released_early)                                                                                                  \
    X(filled_by_one_lane)                                                                                              \
    X(released_by_one_lane)                                                                                            \
    X(waited_by_one_lane)                                                                                              \
    X(asked_once)                                                                                                      \
    X(waits_for_the_wrong_parity)
/* With one whose copies arrive. */
#define ARRIVING_RING_FAULTS(X)                                                                                        \
    X(readers_fence_missing)                                                                                           \
    X(readers_fence_missing_in_one)                                                                                    \
    X(readers_fence_too_early)                                                                                         \
    X(arrives_before_its_last_copy)                                                                                    \
    X(arriving_empty_not_waited)
/* And with single mbarriers and registers. */
#define MBARRIER_FAULTS(X)                                                                                             \
    X(mbarrier_not_initialised)                                                                                        \
    X(mbarrier_initialised_late)                                                                                       \
    X(mbarrier_misaligned)                                                                                             \
    X(mbarrier_of_none)                                                                                                \
    X(mbarrier_overwritten)                                                                                            \
    X(mbarrier_multiplied)                                                                                             \
    X(mbarrier_never_over)                                                                                             \
    X(mbarrier_too_many)                                                                                               \
    X(mbarrier_too_many_at_once)                                                                                       \
    X(mbarrier_too_many_copies)                                                                                        \
    X(mbarrier_copies_not_waited)                                                                                      \
    X(registers_not_given)                                                                                             \
    X(registers_differ)                                                                                                \
    X(registers_taken_that_are_there)
#define DECLARE_RING_FAULT(name) void launch_ring_##name(float *x, cudaStream_t stream);
RING_FAULTS(DECLARE_RING_FAULT)
ARRIVING_RING_FAULTS(DECLARE_RING_FAULT)
#define DECLARE_MBARRIER_FAULT(name) void launch_##name(float *x, cudaStream_t stream);
MBARRIER_FAULTS(DECLARE_MBARRIER_FAULT)

#ifdef __cplusplus
}
#endif
#endif
