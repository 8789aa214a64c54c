/* Plain reading of a group, one trajectory after the other on the calling thread: for `inspect`, `verify` and `export`.
 * Training reads through the source and the loader. One reader a thread; it owns its buffers and keeps the last shard
 * open. */
#ifndef UPS_CACHE_STORE_READER_H
#define UPS_CACHE_STORE_READER_H

#include "cache/store/group.h"

typedef struct ups_cache_reader ups_cache_reader;

ups_cache_reader *ups_cache_reader_create(const ups_cache_group *group); /* `group` is borrowed; NULL: out of memory */
void ups_cache_reader_destroy(ups_cache_reader *reader);                 /* NULL is fine */

typedef struct ups_cache_trajectory {
    bool present;          /* false: the build skipped this sample */
    uint64_t stored_bytes; /* its chunk */
    int order;             /* of prediction, the one that most blocks have; −1 when the cache is portable */
    ups_f16 *latents;      /* (times, tokens, dim), borrowed until the next read; NULL when not present */
} ups_cache_trajectory;

/* Reads and fully checks sample `index` of the cache. Errors name shard and sample. */
ups_status ups_cache_read(ups_cache_reader *reader, int64_t index, ups_cache_trajectory *trajectory, ups_error *error);

/* The buffer of the next read, for whoever writes something else where a sample was skipped. */
ups_status ups_cache_reader_room(ups_cache_reader *reader, ups_f16 **latents, ups_error *error);

#endif
