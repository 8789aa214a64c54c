/* Processes that train one model together: started by mpirun or srun, one a node or several, they exchange what lies in
 * the host's memory.
 *
 * Calls are collective: every rank makes the same ones in the same order. A thread of the communicator's own carries
 * them out, so that an exchange goes on while others compute; sums are taken in the order of ranks, so that they have
 * the same bits in every run. NULL stands for a process by itself: rank 0 of 1.
 *
 * Beside exchanges go notices, which the threads give each other whatever the processes are doing: a signal that one
 * got is passed on to all (base/system/cancel.h), and rank 0 is told why another rank fails.
 *
 * A process that fails ends all (ups_comm_fail): nobody waits for one that is gone. */
#ifndef UPS_TRAIN_COMM_COMM_H
#define UPS_TRAIN_COMM_COMM_H

#include "model/parameters/shares.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ups_comm ups_comm;

/* What the launcher started; *comm is NULL where that is one process. From here on this process takes its part of its
 * machine alone (base/system/launcher.h), and its log tells its rank. UPS_ERR_UNSUPPORTED where several were started
 * and there is no MPI, or they do not find each other. */
ups_status ups_comm_open(ups_comm **comm, ups_error *error);
/* Waits for all ranks. NULL is fine. */
void ups_comm_close(ups_comm *comm);
/* Ends the processes of all ranks with this exit code. Where this is not rank 0, that is told why first, and is waited
 * for some seconds: it may have something to do before all end. On rank 0 `error` may be NULL. */
_Noreturn void ups_comm_fail(ups_comm *comm, int exit_code, const ups_error *error);
/* What rank 0 does once it is told so: called by the communicator's thread, whatever this process is doing meanwhile.
 * Then all end with that rank's exit code, unless it returns false: this process is about to end all by itself. */
typedef bool ups_comm_told(void *context, int rank, const ups_error *error);
void ups_comm_on_failure(ups_comm *comm, ups_comm_told *told, void *context);

int ups_comm_rank(const ups_comm *comm);
int ups_comm_size(const ups_comm *comm);
const char *ups_comm_library(const ups_comm *comm); /* "Open MPI v4.1.4" */

/* The MPI that this build has; UPS_ERR_UNSUPPORTED says why there is none. */
ups_status ups_comm_find_library(char *name, size_t bytes, ups_error *error);

/* Whether a failure of this process ends the others, too: not while they wait for what is to be done next, and not
 * where all fail with the same. True in the beginning. */
void ups_comm_end_together(ups_comm *comm, bool together);
bool ups_comm_ended_together(const ups_comm *comm);

ups_status ups_comm_barrier(ups_comm *comm, ups_error *error);
ups_status ups_comm_broadcast(ups_comm *comm, void *data, int64_t bytes, ups_error *error); /* from rank 0 */
/* all: (size, bytes). */
ups_status ups_comm_gather(ups_comm *comm, const void *own, void *all, int64_t bytes, ups_error *error);

/* Begins to sum `values` over the ranks, in place; they are left alone until ups_comm_finish. Fails only as it
 * finishes. */
void ups_comm_sum(ups_comm *comm, float *values, int64_t count);
/* Begins a sum that is as long as its terms are many: this rank's slice of every rank's `values` is added to `slice`,
 * in the order of ranks; `first`: to nothing. `slice` has ups_comm_slice elements. Then `values` may be filled anew,
 * after ups_comm_finish. */
void ups_comm_add(ups_comm *comm, const float *values, int64_t count, float *slice, bool first);
/* Begins to bring the slices of all ranks together in `values`. */
void ups_comm_collect(ups_comm *comm, const float *slice, float *values, int64_t count);
int64_t ups_comm_slice(const ups_comm *comm, int64_t count);

/* Begin to exchange elements of a flat buffer of which each rank has a share, in place: the elements [from, from +
 * count), the first of which lies at `values`; others of that buffer are left alone. `shares` must live until they are
 * finished.
 *   reduce_scatter  sums what is this rank's, in the order of ranks; what is others' keeps its terms
 *   all_gather      what is a rank's becomes what that rank has, on all
 *   bring           the same on rank 0 */
void ups_comm_reduce_scatter(ups_comm *comm, const ups_shares *shares, float *values, int64_t from, int64_t count);
void ups_comm_all_gather(ups_comm *comm, const ups_shares *shares, float *values, int64_t from, int64_t count);
void ups_comm_bring(ups_comm *comm, const ups_shares *shares, float *values, int64_t from, int64_t count);
/* Waits for all that was begun. */
ups_status ups_comm_finish(ups_comm *comm, ups_error *error);

#endif
