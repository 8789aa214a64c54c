#include "pipeline/storage/shared_chunks.h"

#include <pthread.h>
#include <stdlib.h>

enum { NO_CHUNK = -1 };

typedef struct place {
    int64_t chunk; /* in it, or on its way; NO_CHUNK: none */
    int users;     /* who read it now */
    bool filling;
    uint8_t *bytes; /* (chunk_bytes), from the first time it is filled */
} place;

struct ups_shared_chunks {
    size_t chunk_bytes;
    int64_t count;
    pthread_mutex_t lock; /* guards the places, but not bytes that are being filled or read */
    pthread_cond_t filled;
    place places[];
};

ups_shared_chunks *ups_shared_chunks_create(size_t chunk_bytes, int64_t places) {
    ups_shared_chunks *shared = calloc(1, sizeof *shared + (size_t)places * sizeof *shared->places);
    if (!shared) return NULL;
    shared->chunk_bytes = chunk_bytes;
    shared->count = places;
    for (int64_t i = 0; i < places; i++) shared->places[i].chunk = NO_CHUNK;
    pthread_mutex_init(&shared->lock, NULL);
    pthread_cond_init(&shared->filled, NULL);
    return shared;
}

void ups_shared_chunks_destroy(ups_shared_chunks *shared) {
    if (!shared) return;
    for (int64_t i = 0; i < shared->count; i++) free(shared->places[i].bytes);
    pthread_cond_destroy(&shared->filled);
    pthread_mutex_destroy(&shared->lock);
    free(shared);
}

/* Under the lock. */
static ups_shared_chunk take(ups_shared_chunks *shared, place *p, int64_t chunk, bool wait) {
    while (wait && p->filling && p->chunk == chunk) pthread_cond_wait(&shared->filled, &shared->lock);
    if (p->filling) return p->chunk == chunk ? UPS_SHARED_BUSY : UPS_SHARED_REFUSED;
    if (p->chunk == chunk) {
        p->users++;
        return UPS_SHARED_THERE;
    }
    if (p->users > 0) return UPS_SHARED_REFUSED;
    if (!p->bytes) p->bytes = malloc(shared->chunk_bytes);
    if (!p->bytes) return UPS_SHARED_REFUSED;
    p->chunk = chunk;
    p->filling = true;
    return UPS_SHARED_FILL;
}

ups_shared_chunk ups_shared_chunks_take(ups_shared_chunks *shared, int64_t chunk, bool wait, uint8_t **bytes) {
    place *p = &shared->places[chunk % shared->count];
    pthread_mutex_lock(&shared->lock);
    ups_shared_chunk result = take(shared, p, chunk, wait);
    *bytes = p->bytes;
    pthread_mutex_unlock(&shared->lock);
    return result;
}

void ups_shared_chunks_filled(ups_shared_chunks *shared, int64_t chunk, bool well) {
    place *p = &shared->places[chunk % shared->count];
    pthread_mutex_lock(&shared->lock);
    p->filling = false;
    if (!well) p->chunk = NO_CHUNK;
    pthread_cond_broadcast(&shared->filled);
    pthread_mutex_unlock(&shared->lock);
}

void ups_shared_chunks_release(ups_shared_chunks *shared, int64_t chunk) {
    pthread_mutex_lock(&shared->lock);
    shared->places[chunk % shared->count].users--;
    pthread_mutex_unlock(&shared->lock);
}
