/* What a dataset is, without where it lies: for listings. */
#ifndef UPS_PIPELINE_HDF5_OUTLINE_H
#define UPS_PIPELINE_HDF5_OUTLINE_H

#include "pipeline/hdf5/storage.h"

typedef struct ups_hdf5_outline {
    int rank; /* 0: a scalar */
    int64_t shape[UPS_ARRAY_MAX_RANK];
    const char *type; /* "float32", "big-endian int16", "text", … */
    bool numeric, integer;
} ups_hdf5_outline;

/* False for what cannot be opened, or has more axes than UPS reads. */
bool ups_hdf5_read_outline(ups_hdf5_file *file, const char *name, ups_arena *arena, ups_hdf5_outline *outline);

#endif
