#include "cache/store/arrays.h"

#include "base/hash.h"

int64_t ups_cache_shard_samples(ups_cache_shape shape, int64_t shard) {
    int64_t left = shape.samples - shard * shape.samples_per_shard;
    return left < shape.samples_per_shard ? left : shape.samples_per_shard;
}

ups_small_array ups_cache_time_array(ups_cache_shape shape, bool per_sample) {
    int64_t times = shape.trajectory.times;
    if (!per_sample) {
        return (ups_small_array){UPS_CACHE_TIME, UPS_SMALL_F64, times, 0, times, {"time", NULL}};
    }
    return (ups_small_array){UPS_CACHE_TIME, UPS_SMALL_F64, shape.samples, times, shape.samples, {"sample", "time"}};
}

ups_small_array ups_cache_condition_array(ups_cache_shape shape, int parameter_count) {
    return (ups_small_array){UPS_CACHE_CONDITION, UPS_SMALL_F64, shape.samples,
                             parameter_count,     shape.samples, {"sample", "parameter"}};
}

ups_small_array ups_cache_source_sample_array(ups_cache_shape shape) {
    return (ups_small_array){UPS_CACHE_SOURCE_SAMPLE, UPS_SMALL_I64, shape.samples, 0, shape.samples, {"sample", NULL}};
}

ups_small_array ups_cache_shards_array(ups_cache_shape shape) {
    int64_t shards = ups_cache_shard_count(shape);
    return (ups_small_array){UPS_CACHE_SHARDS, UPS_SMALL_I64, shards, 2, shards, {"shard", "half"}};
}

void ups_cache_hash_arrays(ups_cache_shape shape, const double *time, bool time_per_sample, const double *parameters,
                           int parameter_count, const int64_t *source_samples, char hex[33]) {
    ups_hasher *hasher = ups_hasher_create();
    size_t samples = (size_t)shape.samples, grids = time_per_sample ? samples : 1;
    ups_hasher_update(hasher, time, grids * (size_t)shape.trajectory.times * sizeof *time);
    if (parameter_count) ups_hasher_update(hasher, parameters, samples * (size_t)parameter_count * sizeof *parameters);
    ups_hasher_update(hasher, source_samples, samples * sizeof *source_samples);
    ups_hash_hex(ups_hasher_finish(hasher), hex);
}

void ups_cache_hash_digests(ups_cache_shape shape, uint64_t (*digests)[2], char hex[33]) {
    ups_hash_hex(ups_hash_bytes(digests, (size_t)ups_cache_shard_count(shape) * sizeof *digests), hex);
}
