/* The codecs of an array, from its metadata. For metadata.c alone. */
#ifndef UPS_PIPELINE_ZARR_CODECS_H
#define UPS_PIPELINE_ZARR_CODECS_H

#include "base/json.h"
#include "pipeline/zarr/array.h"

/* Fill in filters, byte order, order of axes and shards. */
ups_status ups_zarr_codecs_version_2(const json_t *document, const char *where, ups_zarr_array *array,
                                     ups_error *error);
ups_status ups_zarr_codecs_version_3(const json_t *document, const char *where, ups_zarr_array *array,
                                     ups_error *error);

#endif
