/* Where a source's samples stay between one draw and the next: on disk alone, or in memory after they were first read.
 *
 *   stream           nothing is kept: each draw reads and decodes
 *   ram_compressed   what the file stores is kept: each draw decodes
 *   ram              decoded trajectories are kept in the batches' type: a draw is a copy of its window, or with
 *                    ups_loader_options.in_place no copy at all
 *
 * A store keeps the samples of one source and outlives the loaders that fill it and read from it, so that validation,
 * which opens a loader each time, finds what an earlier one read. Every sample has its place from the beginning: which
 * samples are kept depends on sizes alone, nothing is moved or thrown out, and the memory of a store is its reservation
 * (the system provides it as places are first written, within the first pass).
 *
 * Samples that do not fit are streamed, as are those with NaN or infinite values and those that a source reads by
 * itself (no extents) when they would be kept compressed. All functions but open and close are thread-safe. */
#ifndef UPS_PIPELINE_LOADER_RESIDENCY_H
#define UPS_PIPELINE_LOADER_RESIDENCY_H

#include "pipeline/source.h"

typedef enum ups_residency {
    UPS_RESIDENCY_AUTO,
    UPS_RESIDENCY_STREAM,
    UPS_RESIDENCY_RAM_COMPRESSED,
    UPS_RESIDENCY_RAM
} ups_residency;

const char *ups_residency_name(ups_residency residency);              /* "auto", "stream", … */
bool ups_residency_parse(const char *name, ups_residency *residency); /* false when it is none of them */

/* Bytes that keeping samples takes. Sums, so needs of several sources can be added. */
typedef struct ups_residency_need {
    uint64_t decoded; /* in the batches' type */
    uint64_t stored;  /* as the files keep them */
} ups_residency_need;

/* What `samples` (count; NULL: all of the source's) take, each place rounded up to UPS_STORE_ALIGNMENT. */
ups_status ups_residency_measure(const ups_source *source, const int64_t *samples, int64_t count, ups_dtype dtype,
                                 ups_residency_need *need, ups_error *error);

/* `auto` becomes ram where everything fits into `memory` bytes decoded, ram_compressed where it fits as stored, else
 * stream; any other is what was wanted. */
ups_residency ups_residency_choose(ups_residency wanted, ups_residency_need need, uint64_t memory);

uint64_t ups_residency_bytes(ups_residency residency, ups_residency_need need); /* stream: 0 */

#define UPS_STORE_ALIGNMENT 64

typedef struct ups_store ups_store;

typedef struct ups_store_options {
    ups_residency residency; /* ram or ram_compressed */
    ups_dtype dtype;         /* of decoded trajectories: the batches' */
    uint64_t max_bytes;      /* samples are kept as long as they fit, in the order given */
} ups_store_options;

/* `source` is borrowed. UPS_ERR_MEMORY when the memory cannot be reserved. */
ups_status ups_store_open(const ups_source *source, const int64_t *samples, int64_t count,
                          const ups_store_options *options, ups_store **store, ups_error *error);
void ups_store_close(ups_store *store); /* no loader may use it any more; NULL is fine */

typedef struct ups_store_facts {
    ups_residency residency;
    ups_dtype dtype;
    uint64_t bytes;           /* reserved */
    int64_t places, resident; /* samples that have a place, and those that are in it by now */
} ups_store_facts;
ups_store_facts ups_store_look(const ups_store *store);

/* ---- the loader's side ------------------------------------------------------------------------------------------ */

/* The sample's bytes, valid until the store is closed; NULL when it is not there (yet). */
const uint8_t *ups_store_find(const ups_store *store, int64_t index);

/* The sample's place, to be filled by the caller and by nobody else until it says how that ended; NULL when the sample
 * has none, is there already, is being filled, or is not to be kept. */
uint8_t *ups_store_claim(ups_store *store, int64_t index);

typedef enum ups_claim {
    UPS_CLAIM_FILLED,  /* the sample can be found from now on */
    UPS_CLAIM_DROPPED, /* somebody else may try */
    UPS_CLAIM_REFUSED  /* nobody is to try again */
} ups_claim;
void ups_store_settle(ups_store *store, int64_t index, ups_claim how);

#endif
