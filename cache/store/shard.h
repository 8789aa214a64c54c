/* A shard: the chunks of S consecutive trajectories, one after the other with nothing between; then its seal, which
 * says what the shard is and which chunks belong in it; then the index: an (offset, length) pair of 64-bit
 * little-endian integers for each of the S, then the index's CRC32C. A trajectory that was skipped has both at 2^64 −
 * 1, as have those past the end of the array in the last shard. For Zarr v3 this is `sharding_indexed` with the index
 * at the end; it does not look at the seal. docs/cache-format.md has every byte. */
#ifndef UPS_CACHE_STORE_SHARD_H
#define UPS_CACHE_STORE_SHARD_H

#include "base/error.h"
#include "base/hash.h"
#include <stdbool.h>
#include <stdint.h>

#define UPS_CHUNK_ABSENT UINT64_MAX

typedef struct ups_chunk_place {
    uint64_t offset, length; /* bytes from the start of the shard; UPS_CHUNK_ABSENT both when there is no chunk */
    uint32_t crc;            /* the chunk's last four bytes, as the seal has them */
} ups_chunk_place;

static inline bool ups_chunk_present(ups_chunk_place place) {
    return place.offset != UPS_CHUNK_ABSENT;
}

#define UPS_SHARD_OWNER_BYTES 64

/* Which shard of which group. */
typedef struct ups_shard_identity {
    char group[33];                        /* attributes.ups.group: 32 hex digits */
    char owner[UPS_SHARD_OWNER_BYTES + 1]; /* "task/split", for messages; cut where it is longer */
    int64_t shard;
} ups_shard_identity;

ups_shard_identity ups_shard_identity_of(const char *group, const char *task, const char *split, int64_t shard);

typedef struct ups_shard_facts {
    uint64_t bytes;          /* of the file */
    uint32_t statistics_crc; /* CRC32C of the chunk of statistics that was made with it */
    ups_hash digest;         /* over seal and index: tells the shard from all others, content included */
} ups_shard_facts;

size_t ups_shard_index_bytes(int64_t chunks);
size_t ups_shard_tail_bytes(int64_t chunks); /* seal and index */

/* Writes a shard of `chunks` chunks atomically under `path`; `bytes[i]` NULL leaves chunk i out. */
ups_status ups_shard_publish(const char *path, const ups_shard_identity *identity, uint32_t statistics_crc,
                             const uint8_t *const *bytes, const size_t *lengths, int64_t chunks, ups_error *error);

/* Reads seal and index of a shard of `chunks` chunks into `places`, and `facts` (NULL is fine). Refused, with the first
 * entry that is wrong: an index or seal whose CRC does not match (UPS_ERR_CHECKSUM), chunks that do not tile the file
 * exactly, another shard than `identity` says, or one of another group (UPS_ERR_FORMAT). `first_sample` is for
 * messages. */
ups_status ups_shard_read_index(const char *path, const ups_shard_identity *identity, int64_t chunks,
                                int64_t first_sample, ups_chunk_place *places, ups_shard_facts *facts,
                                ups_error *error);

/* Are these the bytes of the chunk that lies in `place`? That they are sound is for whoever decodes them. */
ups_status ups_chunk_check_place(ups_chunk_place place, const uint8_t *bytes, size_t length, ups_error *error);

#endif
