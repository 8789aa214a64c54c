/* Zarr v3 metadata, as far as a cache needs it (https://zarr-specs.readthedocs.io, core 3.0 and sharding_indexed 1.0),
 * and the small arrays beside the latents, which are stored as plain little-endian bytes with a CRC32C so that anyone
 * can read them. */
#ifndef UPS_CACHE_STORE_ZARR_H
#define UPS_CACHE_STORE_ZARR_H

#include "base/json.h"
#include "cache/codec/chunk.h"

#define UPS_CACHE_MAX_SAMPLES_PER_SHARD (1 << 20) /* an index of 16 MiB; no real cache comes near */

#define UPS_CACHE_MAX_VALUES (INT64_C(1) << 40) /* along an axis, and in a trajectory; no real cache comes near */

typedef struct ups_cache_shape {
    int64_t samples;
    ups_chunk_shape trajectory;
    int64_t samples_per_shard;
} ups_cache_shape;

/* Directory names within a group. */
#define UPS_CACHE_LATENT "latent"
#define UPS_CACHE_CONDITION "condition"
#define UPS_CACHE_TIME "time"
#define UPS_CACHE_SOURCE_SAMPLE "source_sample"
#define UPS_CACHE_STATISTICS "statistics"
#define UPS_CACHE_SHARDS "shards"

int64_t ups_cache_shard_count(ups_cache_shape shape);
/* "<directory>/latent/c/<shard>/0/0/0", with malloc; NULL: out of memory. */
char *ups_cache_shard_path(const char *directory, int64_t shard);

/* Metadata documents: new references. `attributes` is borrowed and may be NULL. */
json_t *ups_zarr_group(json_t *attributes);
json_t *ups_zarr_latent(ups_cache_shape shape, ups_chunk_codec codec, json_t *attributes);

/* The other way: checks that a document describes latents as ups_zarr_latent writes them. */
ups_status ups_zarr_latent_parse(const json_t *document, const char *where, ups_cache_shape *shape,
                                 ups_chunk_codec *codec, ups_error *error);

/* A small array of 8-byte elements, of rank 1 or 2, cut into chunks of rows. */
typedef enum ups_small_type { UPS_SMALL_F64, UPS_SMALL_I64 } ups_small_type;
typedef struct ups_small_array {
    const char *name; /* directory within the group */
    ups_small_type type;
    int64_t rows, columns; /* columns 0: rank 1 */
    int64_t chunk_rows;    /* rows in a chunk file */
    const char *dimensions[2];
} ups_small_array;

json_t *ups_small_document(const ups_small_array *array, json_t *attributes); /* its zarr.json: a new reference */
ups_status ups_small_publish_metadata(const char *directory, const ups_small_array *array, json_t *attributes,
                                      ups_error *error);
/* Rows of chunk `chunk`; the last chunk's rows past the end are stored as zeros. */
ups_status ups_small_publish_chunk(const char *directory, const ups_small_array *array, int64_t chunk, const void *rows,
                                   ups_error *error);
/* CRC32C of that chunk: of its values and zeros, as it is stored behind them. */
uint32_t ups_small_chunk_crc(const ups_small_array *array, int64_t chunk, const void *rows);
ups_status ups_small_read_chunk(const char *directory, const ups_small_array *array, int64_t chunk, void *rows,
                                ups_error *error);
/* The array's zarr.json must agree with `array`, its attributes aside: UPS_ERR_FORMAT when not. */
ups_status ups_small_check_metadata(const char *directory, const ups_small_array *array, ups_error *error);
/* Checks the metadata; all chunks into `values` (rows, columns). */
ups_status ups_small_read(const char *directory, const ups_small_array *array, void *values, ups_error *error);
char *ups_small_chunk_path(const char *directory, const ups_small_array *array, int64_t chunk); /* malloc */

#endif
