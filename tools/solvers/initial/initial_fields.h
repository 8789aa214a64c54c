/* Fields that samples begin from, given in a file instead of drawn: sample i begins as the file's i-th.
 *
 * The file is one of the layouts that UPS recognises (pipeline/layouts/layouts.h), of which each sample's first frame
 * counts; or plain arrays, in NPY, NPZ, HDF5 or Zarr: one array a field with the field's name, (sample, x[, y[, z]]),
 * or a single array, with a last axis of channels where the solver has several fields, in the solver's order. */
#ifndef UPS_SOLVERS_INITIAL_FIELDS_H
#define UPS_SOLVERS_INITIAL_FIELDS_H

#include "tools/solvers/solver.h"

typedef struct ups_initial_fields ups_initial_fields;

/* Opens `path` for a solver that has `state` and works on `resolution` cells along each axis. UPS_ERR_ARGUMENT when the
 * solver draws nothing that could be given, or when the file's fields or grid are others; UPS_ERR_FORMAT and UPS_ERR_IO
 * when it cannot be read. */
ups_status ups_initial_fields_open(const char *path, const ups_solver *solver, int64_t resolution,
                                   ups_initial_fields **fields, ups_error *error);
void ups_initial_fields_close(ups_initial_fields *fields); /* NULL is fine */

int64_t ups_initial_fields_samples(const ups_initial_fields *fields);

/* The file's path as it was given, and what tells its contents from another's: for a record of how data were made. */
const char *ups_initial_fields_path(const ups_initial_fields *fields);
const char *ups_initial_fields_digest(const ups_initial_fields *fields);

/* Sample `sample` into planes[f] (resolution^dims), one for each of the solver's fields in their order. UPS_ERR_NUMERIC
 * when a value is NaN or infinite. Thread-safe. */
ups_status ups_initial_fields_read(const ups_initial_fields *fields, int64_t sample, double *const *planes,
                                   ups_error *error);

/* UPS_ERR_NUMERIC when a value of `plane`, which was read as field `name`, is not positive. */
ups_status ups_initial_fields_check_positive(const ups_initial_fields *fields, int64_t sample, const char *name,
                                             const double *plane, ups_error *error);

#endif
