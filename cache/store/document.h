/* A group's own document, `zarr.json`, whose attributes.ups say what made the group. It carries what tells that it and
 * the documents of its arrays are as they were written:
 *
 *   documents  for each array XXH3-128 over the bytes of its zarr.json
 *   check      XXH3-128 over the bytes of this document, these 32 digits taken as zeros
 *
 * Array documents follow from the attributes, so they are written, and written again, from nothing else. That of the
 * latents keeps a copy of the attributes as they were before the build was finished: where the group's own document is
 * lost, that copy tells what made the shards. */
#ifndef UPS_CACHE_STORE_DOCUMENT_H
#define UPS_CACHE_STORE_DOCUMENT_H

#include "base/json.h"
#include "cache/store/shard.h"
#include "cache/store/zarr.h"

/* attributes.group: what tells the shards of this group from those of others; the same for a cache and its extension.
 * 32 hex digits over the attributes that both share. To be set last. */
void ups_document_name_group(json_t *attributes);
ups_shard_identity ups_document_identity(const json_t *attributes, int64_t shard);

/* Publishes the group's document with `attributes` as attributes.ups, completed by `documents` and `check`. */
ups_status ups_document_publish_group(const char *directory, const json_t *attributes, ups_error *error);
/* Publishes the documents of all its arrays where they are not there as they should be, and makes their directories. */
ups_status ups_document_publish_arrays(const char *directory, const json_t *attributes, ups_error *error);

/* attributes.ups without the checks: a new reference. *changed is told when the document is not as it was written;
 * UPS_ERR_CHECKSUM with the sentence, else UPS_OK. */
ups_status ups_document_read_group(const char *directory, json_t **attributes, ups_error *changed, ups_error *error);
/* The copy that the latents' document keeps: a new reference. */
ups_status ups_document_read_copy(const char *directory, json_t **attributes, ups_error *error);
/* Are the documents of the arrays those that `attributes` ask for? UPS_ERR_CHECKSUM names the first that is not. */
ups_status ups_document_check_arrays(const char *directory, const json_t *attributes, ups_error *error);

/* The documents above a group, `<task>/zarr.json` and the root's: without attributes. */
ups_status ups_document_publish_parent(const char *directory, ups_error *error);
ups_status ups_document_check_parent(const char *directory, ups_error *error);

#endif
