/* A part of a run takes the place of another one, also on another file system: people keep checkpoints, say, on a
 * larger disk, and the run has a symbolic link to it. The old part stays until the new one lies ready beside it; killed
 * at any moment, the same call ends it. */
#ifndef UPS_TRAIN_RUN_MOVE_H
#define UPS_TRAIN_RUN_MOVE_H

#include "base/error.h"

/* `from`, a file or a directory, takes the place of `to`, whose directory is made where it is missing. Where `from` is
 * not there, it has been moved already. A directory goes where a link of the name `to` leads. */
ups_status ups_run_move(const char *from, const char *to, ups_error *error);

/* The files below a directory, but for what is unfinished (hidden names), also as `to`: hard links where the file
 * system permits them, since what is published is never written again; otherwise copies, synced. */
ups_status ups_run_share_file(const char *from, const char *to, ups_error *error);
ups_status ups_run_share_tree(const char *from, const char *to, ups_error *error);

#endif
