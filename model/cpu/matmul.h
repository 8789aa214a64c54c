/* Matrix products on the CPU: C (m, n) (+)= op(A) op(B) + bias, row-major, with A, B of one dtype and C of another.
 *
 * One product is made once per node, when the step is prepared, and run in every step. Products run on oneDNN; bf16
 * products of the "amx" variant on our own kernels (matmul_amx.h), which take less time for copying than oneDNN. */
#ifndef UPS_MODEL_CPU_MATMUL_H
#define UPS_MODEL_CPU_MATMUL_H

#include "base/dtype.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ups_matmul_shape {
    int64_t m, n, k;
    bool transpose_a; /* A is stored (k, m) */
    bool transpose_b; /* B is stored (n, k) */
    bool bias;        /* float32 (n), added to every row */
    bool accumulate;  /* add to what C holds */
    bool streamed;    /* a large C bypasses the caches where it can: it will not be read at once */
    ups_dtype operands, result;
} ups_matmul_shape;

typedef struct ups_matmul ups_matmul;

/* `scratch_bytes`: what ups_matmul_run wants, aligned to 64 bytes. Freed by ups_matmul_destroy. */
ups_status ups_matmul_create(const ups_matmul_shape *shape, int threads, ups_matmul **matmul, size_t *scratch_bytes,
                             ups_error *error);
void ups_matmul_destroy(ups_matmul *matmul); /* NULL is fine */
ups_status ups_matmul_run(ups_matmul *matmul, const void *a, const void *b, const float *bias, void *c, void *scratch,
                          ups_error *error);

#endif
