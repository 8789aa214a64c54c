/* The loops of rans.c, compiled once for each instruction set. */
#ifndef UPS_CACHE_CODEC_RANS_KERNEL_H
#define UPS_CACHE_CODEC_RANS_KERNEL_H

#include "cache/codec/rans.h"

typedef struct ups_rans_kernel {
    const char *name;
    void (*prepare)(void); /* once, before any other; on a processor that has these instructions */
    void (*residuals)(const ups_f16 *latents, int64_t stride, int64_t times, int64_t series, int order,
                      uint16_t *codes);
    void (*count)(const uint16_t *codes, int64_t times, int64_t series, ups_rans_histogram counts);
    uint16_t *(*encode)(const uint32_t *tables, const uint16_t *codes, int64_t stride, int64_t times, int width,
                        uint32_t *state, uint16_t *top);
    const uint8_t *(*decode)(const uint32_t *tables, const uint8_t *at, const uint8_t *end, int64_t times, int width,
                             int order, ups_rans_frames to, uint32_t *state, bool *finite);
} ups_rans_kernel;

extern const ups_rans_kernel ups_rans_baseline, ups_rans_avx2, ups_rans_avx512;
extern const ups_rans_kernel ups_rans_avx2_by_loads; /* where gathers are slow */

#endif
