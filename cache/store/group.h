/* A cache group open for reading: one task and split, its metadata checked, its small arrays in memory, its shards on
 * disk. What the source, `inspect`, `verify` and `export` share. A group under construction opens too; `complete`
 * tells. */
#ifndef UPS_CACHE_STORE_GROUP_H
#define UPS_CACHE_STORE_GROUP_H

#include "cache/store/arrays.h"
#include "cache/store/fingerprint.h"
#include "cache/store/shard.h"
#include "cache/store/statistics.h"
#include "cache/store/zarr.h"

typedef struct ups_cache_group {
    char *directory;
    json_t *attributes;       /* attributes.ups of the group's zarr.json */
    const char *task, *split; /* borrowed from attributes */
    bool complete;            /* the build finished */
    ups_fingerprint fingerprint;
    ups_cache_shape shape;
    ups_chunk_codec codec;
    bool time_per_sample;
    double *time; /* (times), or (samples, times) when time_per_sample */
    int parameter_count;
    const char **parameter_names; /* (parameter_count), borrowed from attributes */
    double *parameters;           /* (samples, parameter_count); NULL when there are none */
    int64_t *source_samples;      /* (samples): which sample of the source each trajectory is */
    uint64_t (*digests)[2];       /* (shards) ups_shard_facts.digest, low and high; NULL: not complete */
} ups_cache_group;

/* Errors: UPS_ERR_IO (no such directory), UPS_ERR_FORMAT (not a cache, or damaged metadata), UPS_ERR_CHECKSUM,
 * UPS_ERR_STALE (another format version). On failure *group is NULL. */
ups_status ups_cache_group_open(const char *directory, ups_cache_group **group, ups_error *error);
void ups_cache_group_close(ups_cache_group *group); /* NULL is fine */

/* Reads seal and index of a shard, which must be the one that belongs there: ups_shard_read_index, and of a finished
 * group the one with which its build ended (UPS_ERR_CHECKSUM). `facts` may be NULL. */
ups_status ups_cache_read_index(const ups_cache_group *group, int64_t shard, ups_chunk_place *places,
                                ups_shard_facts *facts, ups_error *error);

/* Can a chunk of so many bytes hold a trajectory of this group? Readers ask before they make room for one, so that a
 * shape which is claimed costs no memory. UPS_ERR_FORMAT. */
ups_status ups_cache_check_claim(const ups_cache_group *group, const char *path, uint64_t chunk_bytes,
                                 ups_error *error);

/* The directory's names must be those of task and split, since a group that was renamed is another one's to whoever
 * looks for it there. UPS_ERR_FORMAT. Stores that `export` wrote may lie anywhere. */
ups_status ups_cache_check_place(const ups_cache_group *group, ups_error *error);
bool ups_cache_is_exported(const ups_cache_group *group);

/* Rows of the statistics of one shard (ups_cache_shard_samples of them). */
ups_status ups_cache_read_statistics(const ups_cache_group *group, int64_t shard, ups_cache_statistics *rows,
                                     ups_error *error);

#endif
