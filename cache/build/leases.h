/* Leases on shards: how several processes, on one host or on many that share a file system, build one group
 * concurrently without a lock server. Everything lies in `<group>/.building/`, which goes with the last of them:
 *
 *   builder-4f0c…   a builder: JSON that says host, process and purpose. Its modification time is the heartbeat.
 *   shard-17        a lease: a symbolic link to the record of the builder that holds it
 *
 * A symbolic link is made in one step with all it says, or not at all, on NFS too. A lease whose target is gone is
 * free. A process of this host that has ended is known at once: its id, start time and boot are in the record. Of
 * others only the heartbeat is known. A builder whose record did not change for `timeout` seconds has expired, and its
 * leases may be taken over. The seconds are of *our* clock, so clocks need not agree.
 *
 * A lease saves work; it does not guard bytes. Two builders may hold the same one: a process that was suspended for
 * longer than the timeout, or two that take over an expired lease in the same instant. Both then build the same shard
 * and publish the same bytes by renaming; nothing is lost but time. On a file system without symbolic links every lease
 * is granted, and all builders build everything. */
#ifndef UPS_CACHE_BUILD_LEASES_H
#define UPS_CACHE_BUILD_LEASES_H

#include "base/error.h"
#include <stdbool.h>

#define UPS_LEASES_FOLDER ".building"

typedef struct ups_leases ups_leases;

typedef struct ups_leases_timing {
    double heartbeat; /* seconds between heartbeats; 0: 2 */
    double timeout;   /* seconds without one after which a builder elsewhere has expired; 0: 30 */
} ups_leases_timing;

/* Enters the builders of the group in `directory`, which exists. `purpose` (at most 63 letters, copied) tells builders
 * of the same thing from others. Starts the thread of the heartbeat. UPS_ERR_IO: the directory cannot be written. */
ups_status ups_leases_join(const char *directory, const char *purpose, ups_leases_timing timing, ups_leases **leases,
                           ups_error *error);
/* Gives all leases back, removes what expired builders left, frees. NULL is fine. */
void ups_leases_leave(ups_leases *leases);
/* Removes what expired builders of this host left in a group, without entering; what cannot be removed stays. A builder
 * that is killed when all was done leaves its record, and nobody may come after it to build. */
void ups_leases_clear(const char *directory);

/* *ours: this builder holds `name` now (or did already); otherwise a living one does. Thread-safe. */
ups_status ups_leases_take(ups_leases *leases, const char *name, bool *ours, ups_error *error);
void ups_leases_release(ups_leases *leases, const char *name); /* thread-safe */

/* The other living builders, as far as is known. Thread-safe. */
typedef struct ups_leases_others {
    int count;
    int other_purpose; /* of them, those that build something else */
    char example[96];  /* "process 4711 on node3": one of those with another purpose, else any; "" when none */
} ups_leases_others;
ups_leases_others ups_leases_look(ups_leases *leases);

#endif
