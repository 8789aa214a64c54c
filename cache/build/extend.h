/* Whether a group on disk can grow into another: more files of the same task, encoded by the same encoder. */
#ifndef UPS_CACHE_BUILD_EXTEND_H
#define UPS_CACHE_BUILD_EXTEND_H

#include "cache/build/writer.h"
#include "cache/store/zarr.h"

/* `found` is attributes.ups of the group in `directory`, `wanted` what the description asks for; they differ. UPS_OK:
 * the group holds the first *samples samples of the description: the same encoder, normalisation and settings, its
 * source files the first of the description's and unchanged, each of its samples where it was, with the times and
 * parameters that it had. Otherwise UPS_ERR_STALE, with what stands against it. */
ups_status ups_cache_check_extension(const char *directory, const json_t *found, const json_t *wanted,
                                     const ups_cache_description *description, ups_cache_shape shape, int64_t *samples,
                                     ups_error *error);

/* The settings of `wanted` against those of a group on disk: UPS_ERR_STALE names the first that differs. `extending`
 * leaves out what a group and its extension do not share. */
ups_status ups_cache_compare_settings(const char *directory, const json_t *found, const json_t *wanted, bool extending,
                                      ups_error *error);

#endif
