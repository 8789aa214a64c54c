/* How stages that are done again take the place of the old ones: they are made in RUN/next, which is a run of its own,
 * while the run stays as it was and can be used. Once all of them have finished, RUN/next becomes RUN/replacing by one
 * rename, and from then on what lies there is the run's: its parts are moved to their places, by this process, or,
 * where that was killed, by the next command that opens the run. The cache of RUN/next lies in the run's cache
 * directory, as .next, since that may be another file system. */
#ifndef UPS_TRAIN_RUN_REPLACE_H
#define UPS_TRAIN_RUN_REPLACE_H

#include "train/config/config.h"

/* OUTPUT/next. Free with free(). */
char *ups_run_next(const char *output);
bool ups_run_has_next(const char *output);
/* Where a cache that is to replace the one in `cache` is built. Free with free(). */
char *ups_run_next_cache(const char *cache);

/* Which stages RUN/next does again (a mask), as next/redo.json keeps them. */
ups_status ups_run_redo_publish(const char *directory, unsigned stages, ups_error *error);
ups_status ups_run_redo_read(const char *directory, unsigned *stages, ups_error *error);

/* RUN/next, whose stages have finished, becomes the run. The caller has the run's lock. */
ups_status ups_run_replace(const char *output, ups_error *error);
/* Ends a replacement that was cut short; nothing where there is none. Takes the run's lock. */
ups_status ups_run_settle(const char *output, ups_error *error);

#endif
