/* What a matrix product multiplies: see matmul.h. */
#ifndef UPS_MODEL_CPU_MATMUL_SHAPE_H
#define UPS_MODEL_CPU_MATMUL_SHAPE_H

#include "base/dtype.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct ups_matmul_shape {
    int64_t m, n, k;
    bool transpose_a;           /* A is stored (k, m) */
    bool transpose_b;           /* B is stored (n, k) */
    bool accumulate;            /* add to what C holds */
    bool streamed;              /* a large C bypasses the caches where it can: it will not be read at once */
    ups_dtype operands, result; /* float32, bf16 or fp16 */
} ups_matmul_shape;

#endif
