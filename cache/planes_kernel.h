/* The vectorised core of planes.c, compiled once for each instruction set. */
#ifndef UPS_CACHE_PLANES_KERNEL_H
#define UPS_CACHE_PLANES_KERNEL_H

#include "cache/planes.h"

#define UPS_PLANES_TILE 16 /* frames that a kernel takes at once, and the fewest it can do */

typedef struct ups_planes_kernel {
    const char *name;
    int64_t width; /* series at once; the kernels take multiples of it */
    void (*split)(const ups_f16 *latents, int64_t stride, int64_t times, int64_t series, int order, ups_planes planes);
    bool (*join_f16)(ups_planes planes, int64_t times, int64_t series, int order, int64_t start, int64_t end,
                     ups_f16 *out, int64_t stride);
    bool (*join_f32)(ups_planes planes, int64_t times, int64_t series, int order, int64_t start, int64_t end,
                     bool past_caches, float *out, int64_t stride);
} ups_planes_kernel;

extern const ups_planes_kernel ups_planes_baseline, ups_planes_avx2, ups_planes_avx512;

#endif
