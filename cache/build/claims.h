/* Who builds what: how several processes, on one host or on many that share a file system, build one group without a
 * lock server. Everything lies in `<group>/.building/`, which is gone when the last of them has left:
 *
 *   builder-4f0c…   a builder: JSON that says host, process and purpose. Its modification time is the heartbeat.
 *   shard-17        a claim: a symbolic link to the record of the builder that holds it
 *
 * A symbolic link is made in one step with all it says, or not at all, on NFS too; where its target is gone, so is its
 * holder. A process of this host that has ended is known at once (its id, start time and boot are in the record). Of
 * others only the heartbeat is known: a builder is given up when its record did not change for `patience` seconds of
 * *our* clock, so clocks need not agree.
 *
 * A claim saves work; it does not guard bytes. When two builders believe that they hold one (a process that was
 * suspended for longer than the patience, two that take over the same dead one's claim in the same instant), both build
 * the same shard, publish the same bytes by renaming, and nothing is lost but time. On a file system without symbolic
 * links every claim succeeds, and all builders build everything. */
#ifndef UPS_CACHE_BUILD_CLAIMS_H
#define UPS_CACHE_BUILD_CLAIMS_H

#include "base/error.h"
#include <stdbool.h>

#define UPS_CLAIMS_FOLDER ".building"

typedef struct ups_claims ups_claims;

typedef struct ups_claims_timing {
    double beat;     /* seconds between heartbeats; 0: 2 */
    double patience; /* seconds without one after which a builder elsewhere is given up; 0: 30 */
} ups_claims_timing;

/* Enters the builders of the group in `directory`, which exists. `purpose` (at most 63 letters, copied) tells builders
 * of the same thing from others. Starts a thread that beats. UPS_ERR_IO: the directory cannot be written. */
ups_status ups_claims_join(const char *directory, const char *purpose, ups_claims_timing timing, ups_claims **claims,
                           ups_error *error);
/* Gives all claims back, clears away what dead builders left, frees. NULL is fine. */
void ups_claims_leave(ups_claims *claims);
/* Clears away what dead builders of this host left in a group, without entering; what cannot be removed stays. A
 * builder that is killed when all was done leaves its record, and nobody may come after it to build. */
void ups_claims_clear(const char *directory);

/* *ours: this builder holds `name` now (or did already); otherwise a living one does. Thread-safe. */
ups_status ups_claims_take(ups_claims *claims, const char *name, bool *ours, ups_error *error);
void ups_claims_release(ups_claims *claims, const char *name); /* thread-safe */

/* The other builders that live, as far as is known. Thread-safe. */
typedef struct ups_claims_others {
    int count;
    int other_purpose; /* of them, those that build something else */
    char example[96];  /* "process 4711 on node3": one of those with another purpose, else any; "" when none */
} ups_claims_others;
ups_claims_others ups_claims_look(ups_claims *claims);

#endif
