/* What kernels.cu launches: kernels that are right, for test_emulator.c. Pointers are device memory. */
#ifndef UPS_TESTS_CUDA_KERNELS_H
#define UPS_TESTS_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* y[row] = sum of row `row` of x (rows, n). */
void launch_reduce(const float *x, float *y, int rows, int n, cudaStream_t stream);
/* *y = sum of x (n): the last block adds what the others left. `partials` (blocks), `*ticket` 0. */
void launch_sum(const float *x, float *y, float *partials, unsigned *ticket, int n, int blocks, cudaStream_t stream);
/* y (256) = 2 Σ over blocks of x (blocks, 256), reversed: the last block adds what all threads of the others left in
 * `left` (blocks, 256). `*ticket` 0, before and after. `in_one`: the atomic releases and acquires, with no fences. */
void launch_publish(const float *x, float *left, float *y, unsigned *ticket, bool in_one, int blocks,
                    cudaStream_t stream);
/* y (rows, d) bf16 = (x - mean) / sqrt(variance + epsilon) gain + bias */
void launch_layer_norm(const float *x, const float *gain, const float *bias, uint16_t *y, int rows, int d,
                       float epsilon, cudaStream_t stream);
/* Functions of CUDA's own library, one a row of y (FUNCTIONS, n). */
enum { FUNCTIONS = 16 };
void launch_functions(const float *x, float *y, int n, cudaStream_t stream);
/* c (m, n) = a (m, k) b (n, k)^T; m and n multiples of 16, k of 32. Operands bf16, fp16, or float32 read as tf32. */
typedef enum product_kind { PRODUCT_BF16, PRODUCT_F16, PRODUCT_TF32, PRODUCT_BF16_TRANSPOSED } product_kind;
/* Of PRODUCT_BF16_TRANSPOSED: b is (k, n), read through ldmatrix.trans. */
void launch_product(product_kind kind, const void *a, const void *b, float *c, int m, int n, int k,
                    cudaStream_t stream);
/* y = factor x, by asynchronous copies in two stages; n a multiple of 1024. */
void launch_staged(const float *x, float *y, float factor, int n, cudaStream_t stream);
/* y[i] = y[i] + by; n elements */
void launch_add(float *y, float by, int n, cudaStream_t stream);
/* y[i] = y[i] * by */
void launch_scale(float *y, float by, int n, cudaStream_t stream);
/* Integers: one operation a row of y (OPERATIONS, n). */
enum { OPERATIONS = 16 };
void launch_integers(const int32_t *a, const int32_t *b, uint64_t *y, int n, cudaStream_t stream);
/* Votes, shuffles, counts at barriers: y (WARP_RESULTS, 64), of 64 threads */
enum { WARP_RESULTS = 10 };
void launch_warp(uint32_t *y, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
