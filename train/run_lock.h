/* One `ups train` at a time on a run's directory: a second one would mix its checkpoints and metrics with the first
 * one's.
 *
 * The lock is the kernel's (flock) on output/lock, so it goes with the process however that ends. The file says who
 * has it; one that a killed process left hinders nobody. On file systems without locks (some network ones) nothing
 * keeps two apart: then there is a warning in the log. */
#ifndef UPS_TRAIN_RUN_LOCK_H
#define UPS_TRAIN_RUN_LOCK_H

#include "base/error.h"

typedef struct ups_run_lock ups_run_lock;

/* Makes the directory where it is missing. UPS_ERR_IO when another process has the lock, naming it and its host. */
ups_status ups_run_lock_take(const char *directory, ups_run_lock **lock, ups_error *error);
void ups_run_lock_release(ups_run_lock *lock); /* NULL is fine */

#endif
