/* An array of a Zarr store, as its metadata describe it. */
#ifndef UPS_PIPELINE_ZARR_ARRAY_H
#define UPS_PIPELINE_ZARR_ARRAY_H

#include "pipeline/storage/filters.h"
#include "pipeline/storage/packing.h"
#include "pipeline/storage/placing.h"

/* What a listing tells. */
typedef struct ups_zarr_outline {
    int rank; /* 0: a scalar */
    int64_t shape[UPS_ARRAY_MAX_RANK];
    char type[32]; /* "float32", ">f4", … */
    bool numeric;  /* the next two are set */
    ups_number number;
    bool swapped; /* of version 2 only: there the type says it */
} ups_zarr_outline;

/* An array. Its chunks may hold the axes in another order than the array has; "stored" is that order. */
typedef struct ups_zarr_array {
    ups_zarr_outline outline;
    int axis_of[UPS_ARRAY_MAX_RANK]; /* the array's axis that each stored one is */
    int64_t
        file_shape[UPS_ARRAY_MAX_RANK]; /* elements of one file, along the array's axes: of a chunk, or of a shard */
    int64_t chunk_shape[UPS_ARRAY_MAX_RANK];       /* of what is decoded at once, along the array's axes */
    bool sharded, index_first, index_stored_order; /* where a shard's index is, and how its chunks are counted */
    bool index_crc;
    uint8_t fill[8]; /* one element, in stored byte order */
    ups_filters filters;
    bool swapped;
    char separator; /* of the parts of a chunk's name */
    bool prefixed;  /* they begin with "c" */
} ups_zarr_array;

#endif
