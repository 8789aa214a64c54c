/* Latents out of the cache, for tools that read neither Zarr nor ups.latent: one group as one file. */
#ifndef UPS_CACHE_EXPORT_H
#define UPS_CACHE_EXPORT_H

#include "base/error.h"
#include <stdint.h>

typedef enum ups_export_format {
    UPS_EXPORT_NPY,  /* the array (sample, time, token, dim) float16, alone */
    UPS_EXPORT_HDF5, /* dataset `latent` likewise, `time`, `condition`, `source_sample`, and attributes.ups as the text
                        dataset `ups` */
} ups_export_format;

/* Writes `path` atomically. Samples that the build skipped are NaN throughout, as a Zarr reader sees them. `progress`
 * (may be NULL) is called after each sample. An unfinished cache is refused. */
ups_status ups_cache_export(const char *directory, ups_export_format format, const char *path,
                            void (*progress)(void *context, int64_t done, int64_t samples), void *context,
                            ups_error *error);

#endif
