/* Decoded chunks that several samples have parts of. A file whose chunks span samples (h5py chunks so by itself when it
 * is asked to compress) would else have each of them decoded once for every sample in it.
 *
 * Chunk c has one place, c modulo their number, which it holds until another comes for it: neighbours in the file never
 * meet, and a pass in the file's order decodes every chunk once. Places are filled as they are needed; their memory is
 * bounded by their number. A draw in random order finds its chunks here only by luck. */
#ifndef UPS_PIPELINE_STORAGE_SHARED_CHUNKS_H
#define UPS_PIPELINE_STORAGE_SHARED_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ups_shared_chunks ups_shared_chunks;

/* `places` of `chunk_bytes` each; NULL when out of memory. */
ups_shared_chunks *ups_shared_chunks_create(size_t chunk_bytes, int64_t places);
void ups_shared_chunks_destroy(ups_shared_chunks *shared); /* nobody may hold a chunk; NULL is fine */

typedef enum ups_shared_chunk {
    UPS_SHARED_THERE,  /* *bytes are the chunk: give it back with ups_shared_chunks_release */
    UPS_SHARED_FILL,   /* *bytes are to become the chunk: say when with ups_shared_chunks_filled */
    UPS_SHARED_BUSY,   /* another thread fills it; only where the caller does not wait */
    UPS_SHARED_REFUSED /* its place is in use for another: the caller decodes for itself */
} ups_shared_chunk;

/* Any thread, at any time. `wait`: for whoever fills it. */
ups_shared_chunk ups_shared_chunks_take(ups_shared_chunks *shared, int64_t chunk, bool wait, uint8_t **bytes);
void ups_shared_chunks_filled(ups_shared_chunks *shared, int64_t chunk, bool well); /* it is not held afterwards */
void ups_shared_chunks_release(ups_shared_chunks *shared, int64_t chunk);

#endif
