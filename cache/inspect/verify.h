/* Is a cache sound? Reads every byte: metadata, small arrays, the index and every chunk of every shard; decodes each
 * trajectory and holds it against the statistics kept from the build. What belongs to another shard, group or cache is
 * found by seals, checks and digests (docs/cache-format.md). */
#ifndef UPS_CACHE_INSPECT_VERIFY_H
#define UPS_CACHE_INSPECT_VERIFY_H

#include "base/error.h"
#include "base/system/threads.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct ups_verify_finding {
    int64_t shard, sample; /* −1: not in a shard, or not one sample's */
    ups_status code;
    bool unread; /* it could not be looked at (no rights, no descriptors, a failing disk): it may well be sound */
    char message[1000];
} ups_verify_finding;

typedef struct ups_verify_report {
    int64_t shards, samples, skipped; /* examined */
    uint64_t bytes;                   /* of shards examined */
    ups_verify_finding *findings;     /* in the order of shards and samples */
    int64_t finding_count;            /* 0: the cache is sound */
} ups_verify_report;

/* Examines one group, its shards in parallel. `progress` (may be NULL) is called from any thread after each shard.
 * UPS_OK: the examination was finished, whatever it found; errors: UPS_ERR_MEMORY, UPS_ERR_CANCELLED. */
ups_status ups_cache_verify(const char *directory, ups_pool *pool,
                            void (*progress)(void *context, int64_t shards_done, int64_t shards), void *context,
                            ups_verify_report *report, ups_error *error);
/* The same of some shards alone, beside the group's documents and small arrays. */
ups_status ups_cache_verify_shards(const char *directory, const int64_t *shards, int64_t count, ups_pool *pool,
                                   ups_verify_report *report, ups_error *error);

/* The first finding of something that could not be read; NULL: all was. What was not read is not known to be broken. */
const ups_verify_finding *ups_verify_unread(const ups_verify_report *report);

/* The shards that are known to be broken or missing, ascending, each once: *count of them, at most finding_count, into
 * `shards`. */
void ups_verify_broken_shards(const ups_verify_report *report, int64_t *shards, int64_t *count);

void ups_verify_report_free(ups_verify_report *report);

#endif
