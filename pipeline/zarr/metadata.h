/* What the metadata of a Zarr array say, version 2 (`.zarray`) or 3 (`zarr.json`), of stores that others wrote.
 * Sources: Zarr storage specification version 2; Zarr core specification 3.0 with sharding_indexed 1.0
 * (https://zarr-specs.readthedocs.io). Documents may come from anyone: sizes are checked before anything is computed
 * with them. */
#ifndef UPS_PIPELINE_ZARR_METADATA_H
#define UPS_PIPELINE_ZARR_METADATA_H

#include "base/json.h"
#include "pipeline/zarr/array.h"

/* The shape and the type, which are there even where the array cannot be read. `where` names the document. */
ups_status ups_zarr_outline_parse(const json_t *document, int version, const char *where, ups_zarr_outline *outline,
                                  ups_error *error);

/* UPS_ERR_FORMAT where it is damaged, UPS_ERR_UNSUPPORTED with its name where a codec or an extension is not read. */
ups_status ups_zarr_array_parse(const json_t *document, int version, const char *where, ups_zarr_array *array,
                                ups_error *error);

#endif
