/* Writes PDEBench's HDF5 layouts sample by sample, from any number of threads.
 *
 * The HDF5 library lays the file out once (metadata, small arrays, room for the large ones) and closes it; after that
 * samples are plain writes at known offsets, so its lock is never on the way and no sample waits for another. The space
 * is reserved first: a disk that is too full is found before anything is computed. The file is hidden until it is
 * committed, and carries no time stamps: the same numbers are the same bytes. */
#ifndef UPS_SOLVERS_PDEBENCH_WRITER_H
#define UPS_SOLVERS_PDEBENCH_WRITER_H

#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

#define UPS_PDEBENCH_MAX_RANK 4

/* A large float32 array, one slab a sample. */
typedef struct ups_pdebench_array {
    const char *name;
    int rank;
    uint64_t shape[UPS_PDEBENCH_MAX_RANK]; /* the first axis is the sample */
} ups_pdebench_array;

/* A coordinate: a float32 vector, written at once. */
typedef struct ups_pdebench_coordinate {
    const char *name;
    const float *values;
    uint64_t count;
} ups_pdebench_coordinate;

typedef struct ups_pdebench_layout {
    const ups_pdebench_array *arrays;
    int array_count;
    const ups_pdebench_coordinate *coordinates;
    int coordinate_count;
    const char *parameter_name; /* the PDE parameter kept as a float64 attribute of the root group */
    double parameter;
    const char *provenance; /* JSON text, kept as the string attribute "ups_datagen" */
} ups_pdebench_layout;

typedef struct ups_pdebench_file ups_pdebench_file;

/* Lays out `path`, not yet visible under that name. UPS_ERR_IO: no rights, no such directory, not enough space. */
ups_status ups_pdebench_create(const char *path, const ups_pdebench_layout *layout, ups_pdebench_file **file,
                               ups_error *error);

/* Writes sample `sample` of array `array`: shape[1] × shape[2] × … values. Thread-safe. */
ups_status ups_pdebench_write(const ups_pdebench_file *file, int array, int64_t sample, const float *values,
                              ups_error *error);

/* Bytes of the whole file. */
uint64_t ups_pdebench_bytes(const ups_pdebench_file *file);

/* Sync and rename into place, free. On failure nothing remains. */
ups_status ups_pdebench_commit(ups_pdebench_file *file, ups_error *error);
void ups_pdebench_abandon(ups_pdebench_file *file); /* removes what was written, frees; NULL is fine */

#endif
