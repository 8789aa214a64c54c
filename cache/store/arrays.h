/* The small arrays that every group has beside its latents, as they are stored, and what is hashed of them. */
#ifndef UPS_CACHE_STORE_ARRAYS_H
#define UPS_CACHE_STORE_ARRAYS_H

#include "cache/store/zarr.h"

/* Samples [shard × samples_per_shard, …) in a shard: fewer in the last. */
int64_t ups_cache_shard_samples(ups_cache_shape shape, int64_t shard);

/* The small arrays that every group has, as they are stored. */
ups_small_array ups_cache_time_array(ups_cache_shape shape, bool per_sample);
ups_small_array ups_cache_condition_array(ups_cache_shape shape, int parameter_count);
ups_small_array ups_cache_source_sample_array(ups_cache_shape shape);
ups_small_array ups_cache_shards_array(ups_cache_shape shape); /* digests of shards, of a finished group */

/* attributes.ups.arrays: XXH3-128 over times, parameters and source samples, as 32 hex digits. */
void ups_cache_hash_arrays(ups_cache_shape shape, const double *time, bool time_per_sample, const double *parameters,
                           int parameter_count, const int64_t *source_samples, char hex[33]);
/* attributes.ups.result.shards, the same over digests. */
void ups_cache_hash_digests(ups_cache_shape shape, uint64_t (*digests)[2], char hex[33]);

#endif
