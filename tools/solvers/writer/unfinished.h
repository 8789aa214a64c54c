/* A file made over hours, which may be interrupted at any moment and goes on from there.
 *
 * While `x.h5` is being made, two hidden files lie beside its place: `.x.h5.ups-unfinished`, the file itself, and
 * `.x.h5.ups-journal`, one line of JSON that says what is being made and one line for each complete sample. A line is
 * written only after the sample's numbers are on disk (data synced, then journal appended and synced, some times a
 * second): what the journal says is true even after a loss of power; what it does not say is made again. Making a
 * sample again writes the same bytes to the same place, so a file that was interrupted ends with the bytes of one that
 * was not.
 *
 * The journal carries a lock: two processes cannot make one file. A journal of other settings is never continued. */
#ifndef UPS_TOOLS_SOLVERS_WRITER_UNFINISHED_H
#define UPS_TOOLS_SOLVERS_WRITER_UNFINISHED_H

#include "base/error.h"
#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct ups_unfinished ups_unfinished;

/* Takes the lock for `path` and looks for an earlier run. `identity` is what the file is made from; it stays the
 * caller's. `restart` discards an earlier run, whatever it was; without it one of another identity is UPS_ERR_ARGUMENT.
 * The whole of this needs one bit of memory a sample. */
ups_status ups_unfinished_open(const char *path, const json_t *identity, int64_t samples, bool restart,
                               ups_unfinished **unfinished, ups_error *error);

/* The file that holds the data meanwhile. */
const char *ups_unfinished_storage(const ups_unfinished *unfinished);

/* Samples that an earlier run has completed; 0 when there is none: then the storage is to be made and
 * ups_unfinished_begin called. */
int64_t ups_unfinished_samples(const ups_unfinished *unfinished);
/* True when there is an earlier run to continue, even one without samples. */
bool ups_unfinished_continues(const ups_unfinished *unfinished);
/* The storage has been laid out: syncs it and starts the journal. */
ups_status ups_unfinished_begin(ups_unfinished *unfinished, ups_error *error);

/* Was it completed by an earlier run, or this one? Thread-safe as to samples that other threads complete. */
bool ups_unfinished_has(const ups_unfinished *unfinished, int64_t sample);
/* Every byte of the sample has been written. Now and then syncs and notes down. Thread-safe. */
ups_status ups_unfinished_complete(ups_unfinished *unfinished, int64_t sample, ups_error *error);

/* The end, one of three; each frees. Publish: all samples are complete: sync, rename into place, remove the journal; on
 * failure everything is kept. Keep: notes down what is complete, for a later run. Discard: removes both files. */
ups_status ups_unfinished_publish(ups_unfinished *unfinished, ups_error *error);
ups_status ups_unfinished_keep(ups_unfinished *unfinished, ups_error *error);
void ups_unfinished_discard(ups_unfinished *unfinished); /* NULL is fine */

#endif
