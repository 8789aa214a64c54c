#include "pipeline/loader/ring.h"

#include "base/system/threads.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { SLOT_FREE, SLOT_FILLING, SLOT_READY, SLOT_HELD };

struct ups_ring {
    ups_ring_options options;
    ups_slot *slots;      /* (options.slots) */
    pthread_mutex_t lock; /* guards all below and the slots' states */
    pthread_cond_t freed, ready;
    int64_t begun, handed_out; /* indices of the next batch to begin, and to hand out */
    bool finished, closed;
    bool filler_waits, consumer_waits;
    double accounted; /* the times below are up to here */
    double seconds_full, seconds_waiting;
};

static void *take_memory(const ups_ring_options *options) {
    return options->allocate ? options->allocate(options->context, options->slot_bytes)
                             : ups_pages_take(options->pages, options->slot_bytes);
}

static void give_memory(const ups_ring_options *options, void *memory) {
    if (!memory) return;
    if (!options->allocate)
        ups_pages_give(options->pages, memory);
    else if (options->release)
        options->release(options->context, memory);
}

void ups_ring_destroy(ups_ring *ring) {
    if (!ring) return;
    for (int i = 0; ring->slots && i < ring->options.slots; i++) give_memory(&ring->options, ring->slots[i].data);
    pthread_mutex_destroy(&ring->lock);
    pthread_cond_destroy(&ring->freed);
    pthread_cond_destroy(&ring->ready);
    free(ring->slots);
    free(ring);
}

ups_status ups_ring_create(const ups_ring_options *options, int64_t first_index, ups_ring **out, ups_error *error) {
    *out = NULL;
    ups_ring *ring = calloc(1, sizeof *ring);
    if (!ring) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a ring of %d batches", options->slots);
    ring->options = *options;
    ring->begun = ring->handed_out = first_index;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&ring->lock, NULL);
    pthread_cond_init(&ring->freed, NULL);
    pthread_cond_init(&ring->ready, &monotonic);
    pthread_condattr_destroy(&monotonic);
    ring->slots = calloc((size_t)options->slots, sizeof *ring->slots);
    for (int i = 0; i < options->slots; i++) {
        if (ring->slots) ring->slots[i] = (ups_slot){.number = i, .data = take_memory(options)};
        if (ring->slots && ring->slots[i].data) continue;
        ups_ring_destroy(ring);
        return ups_fail(
            error, UPS_ERR_MEMORY,
            "no memory for %d batches of %.1f MiB in flight; a smaller batch, window or number of slots needs less",
            options->slots, (double)options->slot_bytes / (1 << 20));
    }
    *out = ring;
    return UPS_OK;
}

static ups_slot *find(ups_ring *ring, int state, int64_t index) {
    for (int i = 0; i < ring->options.slots; i++)
        if (ring->slots[i].state == state && (index < 0 || ring->slots[i].index == index)) return &ring->slots[i];
    return NULL;
}

/* Books the time since the last change of who waits. A filler that waits while the consumer waits too is not held up by
 * it: all slots are being filled. */
static void account(ups_ring *ring) {
    double now = ups_now(), passed = now - ring->accounted;
    if (ring->consumer_waits)
        ring->seconds_waiting += passed;
    else if (ring->filler_waits)
        ring->seconds_full += passed;
    ring->accounted = now;
}

static void set_waiting(ups_ring *ring, bool *who, bool waits) {
    account(ring);
    *who = waits;
}

ups_slot *ups_ring_begin(ups_ring *ring, int64_t parts, bool wait) {
    pthread_mutex_lock(&ring->lock);
    ups_slot *slot = find(ring, SLOT_FREE, -1);
    if (!slot && wait && !ring->closed) {
        set_waiting(ring, &ring->filler_waits, true);
        while (!ring->closed && !(slot = find(ring, SLOT_FREE, -1))) pthread_cond_wait(&ring->freed, &ring->lock);
        set_waiting(ring, &ring->filler_waits, false);
    }
    if (ring->closed) slot = NULL;
    if (slot) {
        slot->index = ring->begun++;
        slot->state = SLOT_FILLING;
        slot->pending = parts;
        slot->failed_part = INT64_MAX;
        slot->status = UPS_OK;
    }
    pthread_mutex_unlock(&ring->lock);
    return slot;
}

void ups_ring_finish(ups_ring *ring) {
    pthread_mutex_lock(&ring->lock);
    ring->finished = true;
    pthread_cond_broadcast(&ring->ready);
    pthread_mutex_unlock(&ring->lock);
}

void ups_ring_part_done(ups_ring *ring, ups_slot *slot, int64_t part, ups_status status, const ups_error *error) {
    pthread_mutex_lock(&ring->lock);
    if (status != UPS_OK && part < slot->failed_part) {
        slot->failed_part = part;
        slot->status = status;
        slot->error = *error;
    }
    if (--slot->pending == 0) {
        slot->state = SLOT_READY;
        pthread_cond_signal(&ring->ready);
    }
    pthread_mutex_unlock(&ring->lock);
}

ups_slot *ups_ring_next(ups_ring *ring) {
    pthread_mutex_lock(&ring->lock);
    ups_slot *slot = NULL;
    while (!ring->closed && !(slot = find(ring, SLOT_READY, ring->handed_out))) {
        if (ring->finished && ring->handed_out == ring->begun) break;
        if (!ring->consumer_waits) set_waiting(ring, &ring->consumer_waits, true);
        pthread_cond_wait(&ring->ready, &ring->lock);
    }
    if (ring->consumer_waits) set_waiting(ring, &ring->consumer_waits, false);
    if (ring->closed) slot = NULL;
    if (slot) {
        slot->state = SLOT_HELD;
        ring->handed_out++;
    }
    pthread_mutex_unlock(&ring->lock);
    return slot;
}

static bool has_news(ups_ring *ring) {
    return ring->closed || find(ring, SLOT_READY, ring->handed_out) ||
           (ring->finished && ring->handed_out == ring->begun);
}

bool ups_ring_wait(ups_ring *ring, double seconds) {
    const double longest = 86400.0;
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    double until = (double)end.tv_nsec * 1e-9 + (seconds > longest ? longest : seconds > 0 ? seconds : 0);
    end.tv_sec += (time_t)until;
    end.tv_nsec = (long)((until - (double)(time_t)until) * 1e9);
    pthread_mutex_lock(&ring->lock);
    bool news = has_news(ring);
    if (!news) {
        set_waiting(ring, &ring->consumer_waits, true);
        int waited = 0;
        while (!(news = has_news(ring)) && waited == 0)
            waited = pthread_cond_timedwait(&ring->ready, &ring->lock, &end);
        set_waiting(ring, &ring->consumer_waits, false);
    }
    pthread_mutex_unlock(&ring->lock);
    return news;
}

void ups_ring_release(ups_ring *ring, ups_slot *slot) {
    pthread_mutex_lock(&ring->lock);
    slot->state = SLOT_FREE;
    pthread_cond_signal(&ring->freed);
    pthread_mutex_unlock(&ring->lock);
}

ups_slot *ups_ring_slot(ups_ring *ring, int number) {
    return &ring->slots[number];
}

void ups_ring_close(ups_ring *ring) {
    pthread_mutex_lock(&ring->lock);
    ring->closed = true;
    pthread_cond_broadcast(&ring->freed);
    pthread_cond_broadcast(&ring->ready);
    pthread_mutex_unlock(&ring->lock);
}

double ups_ring_seconds_full(ups_ring *ring) {
    pthread_mutex_lock(&ring->lock);
    account(ring);
    double seconds = ring->seconds_full;
    pthread_mutex_unlock(&ring->lock);
    return seconds;
}

double ups_ring_seconds_waiting(ups_ring *ring) {
    pthread_mutex_lock(&ring->lock);
    account(ring);
    double seconds = ring->seconds_waiting;
    pthread_mutex_unlock(&ring->lock);
    return seconds;
}
