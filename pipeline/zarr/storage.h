/* Zarr stores in a folder, version 2 or 3: what they contain, and where they keep it. A chunk is a file, or a part of a
 * shard, whose index is read once. Chunks that are not there are the fill value.
 *
 * Names are folders below the store's, "group/u"; "" is the store itself, which may be an array. Errors name the
 * file. */
#ifndef UPS_PIPELINE_ZARR_STORAGE_H
#define UPS_PIPELINE_ZARR_STORAGE_H

#include "base/arena.h"
#include "pipeline/storage/stored_array.h"
#include "pipeline/zarr/metadata.h"

typedef struct ups_zarr_store ups_zarr_store;

/* UPS_ERR_FORMAT for a folder without a store's document. */
ups_status ups_zarr_open(const char *path, ups_zarr_store **store, ups_error *error);
void ups_zarr_close(ups_zarr_store *store);                 /* NULL is fine */
const char *ups_zarr_document(const ups_zarr_store *store); /* the path of the root's, as long as the store is open */

/* Calls `visit` for every array, in the order of their names, groups followed; stops when it returns false. */
typedef bool (*ups_zarr_visitor)(void *context, const char *name, const ups_zarr_outline *outline,
                                 const json_t *dimensions);
ups_status ups_zarr_each_array(ups_zarr_store *store, ups_zarr_visitor visit, void *context, ups_error *error);

/* Attributes of an array or group: a new reference, an object. NULL where there is no such node. */
ups_status ups_zarr_attributes(ups_zarr_store *store, const char *name, json_t **attributes, ups_error *error);

/* Gives a path an index among a source's files. */
typedef ups_status (*ups_zarr_add_file)(void *context, const char *path, uint32_t *index, ups_error *error);

/* Finds out where an array's chunks are; `array->file` is left as it is. axis_of[i] is the array's axis that stored
 * axis i is. *is_there false: there is no array of that name. */
ups_status ups_zarr_map(ups_zarr_store *store, const char *name, ups_zarr_add_file add, void *context, ups_arena *arena,
                        ups_stored_array *array, int *axis_of, bool *is_there, ups_error *error);

#endif
