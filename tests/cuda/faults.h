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
void launch_right(float *x, cudaStream_t stream); /* x + 1: nothing is wrong with it */

#ifdef __cplusplus
}
#endif
#endif
