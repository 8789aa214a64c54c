/* A shard: the chunks of S consecutive trajectories, one after the other with nothing between, then the index: an
 * (offset, length) pair of 64-bit little-endian integers for each of the S, then the index's CRC32C. A trajectory that
 * was skipped has both at 2^64 − 1, as have those past the end of the array in the last shard. This is
 * `sharding_indexed` of Zarr v3 with the index at the end. */
#ifndef UPS_CACHE_SHARD_H
#define UPS_CACHE_SHARD_H

#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

#define UPS_CHUNK_ABSENT UINT64_MAX

typedef struct ups_chunk_place {
    uint64_t offset, length; /* bytes from the start of the shard; UPS_CHUNK_ABSENT both when there is no chunk */
} ups_chunk_place;

static inline bool ups_chunk_present(ups_chunk_place place) {
    return place.offset != UPS_CHUNK_ABSENT;
}

size_t ups_shard_index_bytes(int64_t chunks);

/* Writes a shard of `chunks` chunks atomically under `path`; `bytes[i]` NULL leaves chunk i out. */
ups_status ups_shard_publish(const char *path, const uint8_t *const *bytes, const size_t *lengths, int64_t chunks,
                             ups_error *error);

/* Reads the index of a shard of `chunks` chunks into `places`. Refused, with the first entry that is wrong: an index
 * whose CRC does not match (UPS_ERR_CHECKSUM), chunks that do not tile the file exactly (UPS_ERR_FORMAT).
 * `first_sample` is for messages. */
ups_status ups_shard_read_index(const char *path, int64_t chunks, int64_t first_sample, ups_chunk_place *places,
                                ups_error *error);

#endif
