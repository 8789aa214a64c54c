/* The ring of batch slots between those who fill batches and the one who consumes them.
 *
 * A slot goes free → filling → ready → held → free. One filler begins batches in order (waiting while no slot is free:
 * that is the back-pressure); any thread completes parts of them; the consumer gets them in the order they were begun,
 * whichever is complete first. An error in a part travels with its batch and reaches the consumer in its turn. */
#ifndef UPS_PIPELINE_LOADER_RING_H
#define UPS_PIPELINE_LOADER_RING_H

#include "base/error.h"
#include "base/system/pages.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ups_ring ups_ring;

typedef struct ups_ring_options {
    int slots;                                      /* ≥ 1 */
    size_t slot_bytes;                              /* memory of each */
    void *(*allocate)(void *context, size_t bytes); /* 4096-byte aligned; NULL: ordinary memory on huge pages */
    void (*release)(void *context, void *memory);
    void *context;
    ups_pages_store *pages; /* where ordinary memory comes from; NULL is fine */
} ups_ring_options;

typedef struct ups_slot {
    int64_t index; /* of the batch in it */
    int number;    /* of the slot, 0 … slots − 1: what else belongs to a slot can be kept in an array */
    void *data;    /* (slot_bytes) */
    /* Of the part with the lowest number that failed; for the consumer, once the slot was handed out. */
    ups_status status;
    ups_error error;
    /* The ring's own, under its lock. */
    int state;
    int64_t pending, failed_part;
} ups_slot;

ups_status ups_ring_create(const ups_ring_options *options, int64_t first_index, ups_ring **ring, ups_error *error);
void ups_ring_destroy(ups_ring *ring); /* all threads must be done with it; NULL is fine */

/* Takes a free slot for the next batch, which is ready once `parts` ≥ 1 parts are done. NULL when closed or, without
 * `wait`, when no slot is free. */
ups_slot *ups_ring_begin(ups_ring *ring, int64_t parts, bool wait);
void ups_ring_finish(ups_ring *ring); /* no batch will be begun any more */

/* One part is done: `status` is UPS_OK or the failure that `error` describes. Wakes the consumer with the last part. */
void ups_ring_part_done(ups_ring *ring, ups_slot *slot, int64_t part, ups_status status, const ups_error *error);

/* The next batch in order, waiting for it; NULL at the end or when closed. */
ups_slot *ups_ring_next(ups_ring *ring);
/* Waits for at most `seconds` until ups_ring_next would not wait; false when it still would. */
bool ups_ring_wait(ups_ring *ring, double seconds);
void ups_ring_release(ups_ring *ring, ups_slot *slot);
ups_slot *ups_ring_slot(ups_ring *ring, int number);

void ups_ring_close(ups_ring *ring); /* wakes all waiters, who get NULL */

double ups_ring_seconds_full(ups_ring *ring);    /* the filler waited for slots while the consumer had batches */
double ups_ring_seconds_waiting(ups_ring *ring); /* the consumer waited for a batch */

#endif
