/* What the parts of the writer share: opening and taking part (writer_open.c, writer_share.c), pending entries
 * (writer_put.c), finishing (writer_finish.c).
 *
 * State of a sample: open → taken (a thread encodes it) → done. State of a shard: its encoded chunks wait in `bytes`
 * until `missing` reaches zero; the thread that brought the last one publishes, statistics first, so that a shard on
 * disk always has them. */
#ifndef UPS_CACHE_BUILD_WRITER_STATE_H
#define UPS_CACHE_BUILD_WRITER_STATE_H

#include "cache/build/leases.h"
#include "cache/build/writer.h"
#include "cache/store/group.h"
#include <pthread.h>

typedef enum sample_state { SAMPLE_OPEN, SAMPLE_TAKEN, SAMPLE_DONE } sample_state;

/* A pending entry: a trajectory on its way into the cache, and what encoding it needs. A free list hands them out. */
struct ups_cache_entry {
    int64_t sample, frames; /* that are here */
    ups_chunk_encoder *encoder;
    ups_cache_rounding rounding;
    ups_f16 *rounded; /* (times, tokens, dim) */
    struct ups_cache_entry *next;
};

typedef struct pending_shard {
    int64_t missing;            /* samples not yet put */
    bool held;                  /* its lease is ours */
    bool broken;                /* what is there is to be replaced, not adopted */
    uint8_t **bytes;            /* (samples_per_shard) encoded chunks, NULL: absent; allocated with the first put */
    size_t *lengths;            /* (samples_per_shard) */
    ups_cache_statistics *rows; /* (samples_per_shard) */
} pending_shard;

struct ups_cache_writer {
    char *directory; /* of the group */
    ups_cache_shape shape;
    ups_chunk_codec codec;
    double max_abs_error;
    bool skip_bad;
    json_t *attributes, *added; /* to the result, by who builds; NULL: nothing */
    int64_t *source_samples;
    int64_t extended_from;
    uint64_t (*digests)[2]; /* of the first `digest_count` shards, with which an earlier build ended; NULL: unknown */
    int64_t digest_count;
    ups_leases *leases;
    pthread_mutex_t mutex; /* guards all below */
    ups_cache_entry *idle;
    unsigned char *state; /* (samples) */
    int64_t done;
    double publishing, publishing_processor; /* seconds */
    int64_t cursor;                          /* the shard where the next take looks first */
    pending_shard *shards;                   /* (shard count) */
};

ups_status ups_writer_no_memory(const ups_cache_writer *writer, ups_error *error);
void ups_writer_free_entry(ups_cache_entry *entry); /* NULL is fine */
void ups_writer_free_pending(ups_cache_shape shape, pending_shard *shard);

/* The lease on the group's documents: waits until it is ours. UPS_ERR_CANCELLED. */
ups_status ups_writer_lock_group(ups_cache_writer *writer, ups_error *error);
void ups_writer_unlock_group(ups_cache_writer *writer);

/* Does a shard on disk hold all its samples, with their statistics? One that lacks statistics or has another's, that is
 * not the one with which an earlier build ended, or was made when the group had fewer samples, does not; a damaged
 * index and another group's shard are errors. */
ups_status ups_writer_shard_is_whole(const ups_cache_writer *writer, int64_t shard, bool *whole, ups_error *error);
/* Notes that it does, whoever made it. Holds the mutex. */
void ups_writer_adopt(ups_cache_writer *writer, int64_t shard);
void ups_writer_release_shard(ups_cache_writer *writer, int64_t shard);

/* In words, what is wrong with a sample that was left out. */
void ups_writer_describe_bad(const ups_cache_statistics *row, char *text, size_t size);

#endif
