/* Latents out of the cache, for tools that read no ups.latent: one group as one file, or as a Zarr store that needs no
 * plug-in. */
#ifndef UPS_CACHE_INSPECT_EXPORT_H
#define UPS_CACHE_INSPECT_EXPORT_H

#include "base/error.h"
#include <stdint.h>

typedef enum ups_export_format {
    UPS_EXPORT_NPY,  /* the array (sample, time, token, dim) float16, alone */
    UPS_EXPORT_HDF5, /* dataset `latent` likewise, `time`, `condition`, `source_sample`, and attributes.ups as the text
                        dataset `ups` */
    UPS_EXPORT_ZARR  /* a group as docs/cache-format.md describes it, `portable`: a directory, and a cache in itself */
} ups_export_format;

typedef struct ups_export_request {
    ups_export_format format;
    const char *
        path; /* replaced when it is a file, which the command asks for; a directory that is there already is refused */
    const int64_t *samples; /* (sample_count) indices to write, in this order; NULL: all */
    int64_t sample_count;
    void (*progress)(void *context, int64_t done, int64_t samples); /* as rows are written; may be NULL */
    void *context;
} ups_export_request;

/* Writes `path` atomically. Samples that the build skipped are NaN throughout, as a Zarr reader sees them. An
 * unfinished cache is refused. A selection has another fingerprint of its source, so that it is never taken for the
 * whole. */
ups_status ups_cache_export(const char *directory, const ups_export_request *request, ups_error *error);

#endif
