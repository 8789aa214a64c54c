/* An n-dimensional array as a file keeps it, and regions of it: which bytes a region needs (extents), and how those
 * bytes become the region's elements (decode). Knows chunks, filters and byte order, but no file format:
 * pipeline/hdf5/map.c fills the description in.
 *
 * A region decodes into contiguous memory in the array's own axis order, or into strided memory, where several arrays
 * make up one field. Chunks are fetched whole (of those without filters, what the region needs) and placed one after
 * the other, in row-major order of their coordinates; chunks never written take no extent and decode to the fill value.
 */
#ifndef UPS_PIPELINE_STORAGE_STORED_ARRAY_H
#define UPS_PIPELINE_STORAGE_STORED_ARRAY_H

#include "pipeline/source.h"
#include "pipeline/storage/filters.h"
#include "pipeline/storage/packing.h"
#include "pipeline/storage/placing.h"
#include "pipeline/storage/shared_chunks.h"

#define UPS_OFFSET_UNWRITTEN UINT64_MAX

typedef enum ups_storage {
    UPS_STORAGE_CONTIGUOUS,
    UPS_STORAGE_CHUNKED,
    UPS_STORAGE_RECORDS, /* each entry of the first axis is contiguous; others' lie between them */
    UPS_STORAGE_LIBRARY, /* no extents: read_through reads regions by itself */
    UPS_STORAGE_MEMORY,  /* no extents: in_memory gives all elements, as stored, one after the other */
} ups_storage;

typedef struct ups_stored_chunk {
    uint64_t offset; /* in the file, or UPS_OFFSET_UNWRITTEN */
    uint32_t length; /* as stored */
    uint32_t mask;   /* bit i set: filter i was not applied */
} ups_stored_chunk;

typedef struct ups_region {
    int64_t start[UPS_ARRAY_MAX_RANK], count[UPS_ARRAY_MAX_RANK];
} ups_region;

typedef struct ups_stored_array {
    const char *name; /* for messages: "0003/data" */
    uint32_t file;    /* index into the source's files */
    int rank;
    int64_t shape[UPS_ARRAY_MAX_RANK];
    ups_dtype dtype;            /* UPS_F32 or UPS_F64: what decode writes */
    bool swapped;               /* stored in the other byte order */
    const ups_packing *packing; /* how a stored element becomes a `dtype`; NULL: it is one already */
    uint8_t fill[8];            /* the fill value, one element in stored byte order */
    uint64_t stored_bytes;      /* what the file spends on it */
    ups_storage storage;
    const char *fallback_reason; /* why it is read through the library, or NULL */
    uint64_t offset;             /* contiguous, records: of the first byte */
    uint64_t record_stride;      /* records: bytes from one to the next */
    int run_axes;                /* contiguous, records: leading axes along which each entry is an extent of its own:
                                    what lies between two of them is not read */
    int64_t chunk_shape[UPS_ARRAY_MAX_RANK],
        chunk_grid[UPS_ARRAY_MAX_RANK]; /* chunked: elements of one, chunks along each axis */
    ups_stored_chunk *chunks;           /* (chunk_grid), row-major */
    const uint32_t *chunk_files;        /* (chunk_grid) the file of each; NULL: `file` */
    ups_shared_chunks *shared;          /* where decoded chunks are kept for other samples; NULL: nowhere */
    int shared_axis;                    /* of it: along which samples lie */
    ups_filters filters;
    /* Gives elements of `dtype`; `packing` is then applied to them, and its number is that type. */
    ups_status (*read_through)(const struct ups_stored_array *array, const ups_region *region, void *out,
                               ups_error *error);
    /* The elements stay where they are while the array's file is open. Thread-safe. */
    ups_status (*in_memory)(const struct ups_stored_array *array, const uint8_t **elements, ups_error *error);
    void *library; /* of read_through and in_memory */
} ups_stored_array;

/* All elements of a region; of the whole array with region = NULL. */
int64_t ups_array_elements(const ups_stored_array *array, const ups_region *region);
size_t ups_array_stored_size(const ups_stored_array *array);   /* bytes of one element, as stored */
uint64_t ups_array_chunk_bytes(const ups_stored_array *array); /* decoded; 0 unless chunked */
/* Bytes from one entry of an axis to the next, of an array that is not chunked. */
uint64_t ups_array_axis_stride(const ups_stored_array *array, int axis);

/* Lists the extents that decode wants, in its order; returns how many. `extents` may be NULL to count. */
int64_t ups_array_extents(const ups_stored_array *array, const ups_region *region, ups_extent *extents);

/* Decodes a region from the pieces of its extents into `out` (ups_array_elements × element size). *used says how many
 * pieces it took. `scratch`: ups_array_scratch bytes, 64-byte aligned. Damage is UPS_ERR_FORMAT or UPS_ERR_CHECKSUM and
 * names array and chunk. */
ups_status ups_array_decode(const ups_stored_array *array, const ups_region *region, const ups_piece *pieces,
                            int64_t count, void *scratch, void *out, int64_t *used, ups_error *error);

/* The same into memory where neighbours along axis a lie strides[a] elements apart (rank of them). What lies between
 * keeps its values, but is read and written back: nobody else may use it meanwhile. */
ups_status ups_array_decode_strided(const ups_stored_array *array, const ups_region *region, const int64_t *strides,
                                    const ups_piece *pieces, int64_t count, void *scratch, void *out, int64_t *used,
                                    ups_error *error);
size_t ups_array_scratch(const ups_stored_array *array);

/* Reads a region, or the whole array with NULL, with plain reads: for coordinates and other small ones. `fd` is the
 * array's file, `path` its name for messages; `out` has room for all elements of the region. */
ups_status ups_array_read(const ups_stored_array *array, const ups_region *region, int fd, const char *path, void *out,
                          ups_error *error);

#endif
