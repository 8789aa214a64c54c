/* What the formats of export share: trajectories come one after the other and go where the format says. For the
 * export*.c files of this folder alone. */
#ifndef UPS_CACHE_INSPECT_EXPORT_SINK_H
#define UPS_CACHE_INSPECT_EXPORT_SINK_H

#include "base/files.h"
#include "cache/inspect/export.h"
#include "cache/store/reader.h"

typedef struct ups_export_sink ups_export_sink;
struct ups_export_sink {
    const ups_cache_group *group;
    const ups_export_request *request;
    int64_t samples; /* to write */
    /* `row` counts the samples written; latents of one that is not present are NaN. */
    ups_status (*write)(ups_export_sink *to, int64_t row, ups_cache_trajectory *trajectory, ups_error *error);
    ups_publication *publication; /* NPY, HDF5 */
    int64_t dataset;              /* HDF5: a hid_t */
    struct ups_zarr_store *store; /* Zarr */
};

/* Index in the cache of the row-th sample written. */
static inline int64_t ups_export_index(const ups_export_sink *to, int64_t row) {
    return to->request->samples ? to->request->samples[row] : row;
}

/* Reads every sample and hands it to `write`. */
ups_status ups_export_each(ups_export_sink *to, ups_error *error);

/* The rows of the samples written, of an array with a row a sample; malloc, NULL when out of memory. */
void *ups_export_rows(const ups_export_sink *to, const void *values, size_t row_bytes);

ups_status ups_export_hdf5(ups_export_sink *to, ups_error *error); /* into the open publication */
ups_status ups_export_zarr(ups_export_sink *to, ups_error *error); /* publishes the directory itself */

#endif
