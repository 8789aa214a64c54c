/* Writes a declared layout (file_layout.h) as HDF5, piece by piece, from any number of threads.
 *
 * The HDF5 library lays the file out once (metadata, small arrays, room for the large ones) and closes it; after that
 * frames are plain writes at known offsets, so its lock is never on the way and no sample waits for another. The space
 * is reserved first: a disk that is too full is found before anything is computed. The file carries no time stamps: the
 * same numbers are the same bytes. Which name it has while it is incomplete is the caller's affair (unfinished.h). */
#ifndef UPS_TOOLS_SOLVERS_WRITER_PDEBENCH_WRITER_H
#define UPS_TOOLS_SOLVERS_WRITER_PDEBENCH_WRITER_H

#include "base/error.h"
#include "tools/solvers/solver.h"
#include "tools/solvers/writer/file_layout.h"

typedef struct ups_pdebench_content {
    const ups_file_layout *layout;
    const ups_solver *solver; /* for its `configure` */
    const ups_solver_setup *setup;
    int64_t samples;
    const char *provenance; /* JSON text, kept as the root's string attribute "ups_datagen" */
} ups_pdebench_content;

typedef struct ups_pdebench_file ups_pdebench_file;

/* Lays out the file `storage`, replacing what was there; messages call it `name`. UPS_ERR_IO: no rights, no such
 * directory, not enough space; `storage` may then exist in part. */
ups_status ups_pdebench_create(const char *storage, const char *name, const ups_pdebench_content *content,
                               ups_pdebench_file **file, ups_error *error);

/* Opens a file that ups_pdebench_create laid out, to write more of it. UPS_ERR_FORMAT when it is not the one that
 * `content` describes. */
ups_status ups_pdebench_reopen(const char *storage, const char *name, const ups_pdebench_content *content,
                               ups_pdebench_file **file, ups_error *error);

/* Writes `count` values of sample `sample` of array `array`, from its value `first` on. Thread-safe. */
ups_status ups_pdebench_write(const ups_pdebench_file *file, int array, int64_t sample, int64_t first,
                              const float *values, int64_t count, ups_error *error);

/* Bytes of the whole file. */
uint64_t ups_pdebench_bytes(const ups_pdebench_file *file);

void ups_pdebench_close(ups_pdebench_file *file); /* NULL is fine */

#endif
