/* What made a cache. A cache is only as good as the match between its maker and its reader: latents of another encoder
 * look like latents and train to nonsense. So each part of the maker is hashed on its own, kept with the cache, and
 * compared at opening; a refusal names the part. Hashes (of all but the last part, which is a number in words) are
 * XXH3-128 as 32 hex digits: they tell contents apart, they are no protection against malice. */
#ifndef UPS_CACHE_STORE_FINGERPRINT_H
#define UPS_CACHE_STORE_FINGERPRINT_H

#include "base/error.h"
#include "base/json.h"
#include <stdint.h>

#define UPS_CACHE_FORMAT 4 /* raised when a reader of the old format would misread the new one */

typedef struct ups_fingerprint {
    char encoder_weights[33];
    char encoder_configuration[33];
    char normalisation[33];
    char source[33];
    char max_abs_error[33]; /* what latents may change when they are stored, beyond nothing: "0.001"; "0": FP16 alone */
    char device[33];        /* what computed the latents: "cpu" where a document says nothing. Only who adds to a cache
                               asks for the same: readers may be on any */
} ups_fingerprint;

/* Identity of source files and of the samples taken from them (NULL: all). A file is known by its name without
 * directories, its size, its first and last MiB and 64 pages spread evenly between: reading all of hundreds of
 * gigabytes would take longer than the build. */
ups_status ups_fingerprint_source(const char *const *files, int64_t file_count, const int64_t *samples,
                                  int64_t sample_count, char hex[33], ups_error *error);

/* The words for an error bound (statistics.h). */
void ups_fingerprint_bound(double max_abs_error, char words[33]);

/* Identity of a JSON document: the hash of its compact form with sorted keys. For configuration and normalisation. */
void ups_fingerprint_json(const json_t *document, char hex[33]);

/* {"format": 3, "encoder_weights": "…", …}: a new reference. */
json_t *ups_fingerprint_to_json(const ups_fingerprint *fingerprint);
/* UPS_ERR_STALE when the document is of another format version. `where` names the document in messages. */
ups_status ups_fingerprint_from_json(const json_t *object, const char *where, ups_fingerprint *fingerprint,
                                     ups_error *error);

/* UPS_ERR_STALE when a part differs, naming all that do. An empty part of `expected` is not compared. */
ups_status ups_fingerprint_compare(const ups_fingerprint *expected, const ups_fingerprint *found, const char *where,
                                   ups_error *error);

#endif
