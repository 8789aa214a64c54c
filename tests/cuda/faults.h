/* Launches of faults.cu: x is device memory of 64 floats, 256 where a kernel copies. */
#ifndef UPS_TESTS_CUDA_FAULTS_H
#define UPS_TESTS_CUDA_FAULTS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

void launch_missing_barrier(float *x, cudaStream_t stream);
void launch_beyond_global(float *x, cudaStream_t stream);
void launch_beyond_shared(float *x, cudaStream_t stream);
void launch_misaligned(float *x, cudaStream_t stream);
void launch_divergent_shuffle(float *x, cudaStream_t stream);
void launch_missing_copy_wait(float *x, cudaStream_t stream);
void launch_race_between_blocks(float *x, cudaStream_t stream);
void launch_release_without_barrier(float *x, cudaStream_t stream);
void launch_release_without_fence(float *x, cudaStream_t stream);
void launch_acquire_without_fence(float *x, cudaStream_t stream);
void launch_write_behind_the_fence(float *x, cudaStream_t stream);
void launch_release_by_shared_atomic(float *x, cudaStream_t stream);
void launch_release_by_volatile(float *x, cudaStream_t stream);
void launch_endless_loop(float *x, cudaStream_t stream);
void launch_barrier_not_met(float *x, cudaStream_t stream);
/* Of groups_faults.cu. */
#define GROUP_FAULTS(X)                                                                                                \
    X(group_read_early)                                                                                                \
    X(group_waited_for_too_few)                                                                                        \
    X(group_proxy_fence_missing)                                                                                       \
    X(group_proxy_fence_too_early)                                                                                     \
    X(group_barrier_missing)                                                                                           \
    X(group_copy_not_waited)                                                                                           \
    X(group_operand_overwritten)                                                                                       \
    X(group_operand_overwritten_without_barrier)                                                                       \
    X(group_without_a_warp)                                                                                            \
    X(group_descriptors_differ)                                                                                        \
    X(group_beyond_shared)                                                                                             \
    X(group_reserved_bits)                                                                                             \
    X(group_fence_missing)                                                                                             \
    X(group_not_waited)                                                                                                \
    X(group_not_committed)
#define DECLARE_LAUNCH(name) void launch_##name(float *x, cudaStream_t stream);
GROUP_FAULTS(DECLARE_LAUNCH)
void launch_right(float *x, cudaStream_t stream); /* x + 1: nothing is wrong with it */

#ifdef __cplusplus
}
#endif
#endif
