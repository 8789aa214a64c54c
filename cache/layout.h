/* The directories and documents of a group, as the writer lays them: who made the cache, of what, with which settings.
 * Kept apart from the writer, which is about shards. */
#ifndef UPS_CACHE_LAYOUT_H
#define UPS_CACHE_LAYOUT_H

#include "cache/group.h"
#include "cache/writer.h"

/* attributes.ups of a group under construction: all that is known before the first trajectory. A new reference. */
json_t *ups_cache_attributes(const ups_cache_description *description, ups_cache_shape shape);

/* Makes <root>/<task>/<split> and all its metadata, or checks that what is there was made from the same attributes:
 * UPS_ERR_STALE when not. `directory` is the group's. */
ups_status ups_cache_lay_out(const char *root, const char *directory, const ups_cache_description *description,
                             ups_cache_shape shape, json_t *attributes, ups_error *error);

/* Publishes the group's zarr.json with `result` added to its attributes and complete = true. */
ups_status ups_cache_seal(const char *directory, json_t *attributes, json_t *result, ups_error *error);

/* Removes what killed writers left anywhere below `directory`. `alone`: the caller holds the group's lock, so every
 * temporary name is a dead one's. */
ups_status ups_cache_sweep(const char *directory, bool alone, ups_error *error);

#endif
