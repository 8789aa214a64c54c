/* Cached latents as a source: the loader reads them exactly as it reads raw fields. A sample's grid has one axis, its
 * tokens; its channels are the latent's dim; its values are FP16. One trajectory is one extent. */
#ifndef UPS_CACHE_STORE_SOURCE_H
#define UPS_CACHE_STORE_SOURCE_H

#include "base/json.h"
#include "cache/store/fingerprint.h"
#include "pipeline/source.h"

/* Opens the group of one task and split, such as cache/advection1d/train. Trajectories that the build skipped are left
 * out: samples of the source are those present, in the cache's order. `expected` NULL: any fingerprint; otherwise parts
 * that are not empty must agree (UPS_ERR_STALE), and the directory must have the names of task and split. A cache whose
 * build did not finish is refused (UPS_ERR_FORMAT).
 *
 * Every decode checks the chunk's CRC32C and zstd's checksum: UPS_ERR_CHECKSUM names file and sample. */
ups_status ups_cache_source_open(const char *directory, const ups_fingerprint *expected, ups_source **source,
                                 ups_error *error);

/* For a source of kind "latent"; borrowed. attributes.ups of the group (encoder, normalisation, …), and the index of
 * `sample` in the data it was encoded from. */
const json_t *ups_cache_source_attributes(const ups_source *source);
int64_t ups_cache_source_origin(const ups_source *source, int64_t sample);

#endif
