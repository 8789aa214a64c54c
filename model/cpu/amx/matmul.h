/* bf16 matrix products on Intel's AMX tiles; see matmul.h. Only where the instruction set is "amx". */
#ifndef UPS_MODEL_CPU_AMX_MATMUL_H
#define UPS_MODEL_CPU_AMX_MATMUL_H

#include "model/cpu/matmul_shape.h"
#include <stddef.h>

#if defined(__x86_64__)
size_t ups_amx_matmul_scratch(const ups_matmul_shape *shape, int threads);
void ups_amx_matmul_run(const ups_matmul_shape *shape, int threads, const uint16_t *a, const uint16_t *b,
                        const float *bias, void *c, void *scratch);
#else /* never called */
static inline size_t ups_amx_matmul_scratch(const ups_matmul_shape *shape, int threads) {
    return 0;
}
static inline void ups_amx_matmul_run(const ups_matmul_shape *shape, int threads, const uint16_t *a, const uint16_t *b,
                                      const float *bias, void *c, void *scratch) {}
#endif

#endif
