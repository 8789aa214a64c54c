/* The cache that a run builds to take the place of its own: DIR/.next within the cache's directory DIR, where it can be
 * renamed from. Runs may share a directory, so DIR/.next/owner.json says whose it is; and a cache there may be another
 * run's, which its encoder tells. */
#ifndef UPS_TRAIN_RUN_STAGED_CACHE_H
#define UPS_TRAIN_RUN_STAGED_CACHE_H

#include "train/config/config.h"

/* Whether the run `config` (its output is where it lies) may build a cache there that replaces what is there.
 * UPS_ERR_ARGUMENT, with the remedy: another run is building one there, or a group there was made by another encoder
 * than this run's. Nothing is written. */
ups_status ups_staged_cache_check(const ups_run_config *config, ups_error *error);
/* The same, of what is there when RUN/next has finished: its groups were made by its own encoder, too. */
ups_status ups_staged_cache_check_finished(const ups_run_config *config, ups_error *error);

/* Makes CACHE/.next this run's, after RUN/next was made. `fresh`: empty, otherwise with what this run built there.
 * UPS_ERR_ARGUMENT as above, or when what was built there is gone. */
ups_status ups_staged_cache_claim(const ups_run_config *config, bool fresh, ups_error *error);

/* Removes this run's CACHE/.next, where it is there; another run's is left alone. */
ups_status ups_staged_cache_clear(const ups_run_config *config, ups_error *error);

/* Whether nobody goes on with CACHE/.next: its run, which *reason names, has no RUN/next. One whose run is not known is
 * not given up. */
bool ups_staged_cache_is_given_up(const char *next_cache, char reason[600]);

#endif
