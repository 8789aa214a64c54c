/* Matrix products on the CPU: C (m, n) (+)= op(A) op(B) + bias, row-major, with A, B of one dtype and C of another.
 *
 * All products are our own: an element of C is summed in an order that depends on the shape alone, so the bits depend
 * neither on the number of threads nor on a library's version. bf16 and fp16 operands become float32 while they are
 * packed; the variant "avx512_bf16" multiplies bf16 in pairs (product.h), "amx" on tiles (amx/matmul.h). */
#ifndef UPS_MODEL_CPU_MATMUL_H
#define UPS_MODEL_CPU_MATMUL_H

#include "model/cpu/kernels.h"
#include "model/cpu/matmul_shape.h"
#include <stddef.h>

/* Bytes of scratch that a product wants, aligned to 64 bytes. */
size_t UPS_CPU(matmul_scratch)(const ups_matmul_shape *shape, int threads);

/* `bias`: float32 (n), added to every row; or NULL. `gelu`: (m, n) of C's dtype, becomes GELU(C); or NULL. */
void UPS_CPU(matmul)(const ups_matmul_shape *shape, int threads, const void *a, const void *b, const float *bias,
                     void *c, void *gelu, void *scratch);

#endif
