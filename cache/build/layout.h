/* The directories and documents of a group, as the writer makes them: who made the cache, of what, with which settings.
 * Kept apart from the writer, which is about shards. */
#ifndef UPS_CACHE_BUILD_LAYOUT_H
#define UPS_CACHE_BUILD_LAYOUT_H

#include "cache/build/writer.h"
#include "cache/store/group.h"

/* attributes.ups of a group under construction: all that is known before the first trajectory. A new reference. */
json_t *ups_cache_attributes(const ups_cache_description *description, ups_cache_shape shape);

/* What a group is to be. */
typedef struct ups_cache_layout {
    const char *root, *directory; /* of the cache; of the group, <root>/<task>/<split> */
    const ups_cache_description *description;
    ups_cache_shape shape;
    json_t *attributes;   /* of ups_cache_attributes */
    const char *building; /* who builds something else in the group at this moment, in words; NULL: nobody */
} ups_cache_layout;

/* Makes the group and all its metadata, or checks that what is there was made from the same attributes, or can be
 * extended to them (*extended_from: the samples it had; otherwise 0). UPS_ERR_STALE when not; UPS_ERR_IO when it could
 * be extended, but is being built. To repair, documents that are damaged or lost are written again; *shards_unknown:
 * what made the shards is then not known, all are to be built again. */
ups_status ups_cache_lay_out(const ups_cache_layout *layout, int64_t *extended_from, bool *shards_unknown,
                             ups_error *error);

/* Publishes the group's zarr.json with `result` added to its attributes and complete = true; and without. Neither
 * writes what is there already. */
ups_status ups_cache_seal(const char *directory, json_t *attributes, json_t *result, ups_error *error);
ups_status ups_cache_unseal(const char *directory, const json_t *attributes, ups_error *error);

/* Whether the group on disk can be extended to the description (extend.h), whose attributes these are. */
ups_status ups_cache_can_extend(const char *directory, const json_t *attributes,
                                const ups_cache_description *description, ups_cache_shape shape, ups_error *error);

/* Is the group on disk, finished or not, made from these attributes? */
ups_status ups_cache_is_of(const char *directory, const json_t *attributes, bool *same, ups_error *error);

/* Removes temporary files of killed writers anywhere below `directory`. `alone`: the caller holds the lease on the
 * group's documents and no other builder is alive, so every temporary name may go. */
ups_status ups_cache_sweep(const char *directory, bool alone, ups_error *error);

#endif
