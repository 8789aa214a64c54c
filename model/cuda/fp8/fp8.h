/* Operands in FP8 with delayed scaling: what the products of a linear layer are given, and what is remembered of them
 * from step to step. E4M3 for values, E5M2 for gradients, whose range is wider. */
#ifndef UPS_MODEL_CUDA_FP8_FP8_H
#define UPS_MODEL_CUDA_FP8_FP8_H

#include "model/cuda/host.h"

enum { UPS_CUDA_FP8_BEFORE = UPS_FP8_NUMBERS - 4 /* steps that a scale is decided by */ };

/* Of an operand, in device memory. Elements are multiplied by `scale` and rounded; a product multiplies by `inverse`,
 * which begins the state, since the library wants what it multiplies by at multiples of 16 bytes (product.h).
 * The scale stays for a step. It is a power of two, so that nothing but the rounding to eight bits changes: the largest
 * by which the largest magnitude of the steps before stays within the format's range, or that of the very operand,
 * where no step before is known of. What is larger than that becomes the format's largest number. */
typedef struct ups_cuda_fp8_state {
    float inverse, scale;              /* all zeros at first */
    float step;                        /* that the scale is of, counted from 1, modulo 2^20; 0: none yet */
    float now;                         /* largest magnitude in this step so far */
    float before[UPS_CUDA_FP8_BEFORE]; /* of steps before, the last one first; 0: not known */
} ups_cuda_fp8_state;

/* An operand (rows, columns), both multiples of UPS_FP8_MULTIPLE, row-major, in float32, bf16 or fp16. `to` has its
 * shape, `transposed` is (columns, rows); either may be NULL. */
typedef struct ups_cuda_fp8_cast {
    const ups_tensor *from;
    int64_t rows, columns;
    ups_dtype dtype; /* UPS_E4M3, UPS_E5M2 */
    ups_cuda_fp8_state *state;
    void *to, *transposed;
} ups_cuda_fp8_cast;

/* Decides the scales of `count` operands, at most two, where the update's step is another one than they are of. */
ups_status ups_cuda_fp8_begin(ups_device *device, const ups_cuda_fp8_cast *casts, int count, const ups_update *update,
                              ups_error *error);
/* Writes `to` and `transposed`, and remembers the largest finite magnitude. What is not finite becomes NaN, so that a
 * step of such numbers is noticed as in other precisions. */
ups_status ups_cuda_fp8_run(ups_device *device, const ups_cuda_fp8_cast *cast, ups_error *error);

#endif
