/* How two groups differ: what made them, their shape, which samples each has, and the values of those that both have.
 * Samples are matched by their place in the source, so a cache that was extended can be held against the shorter one.
 * How the bytes are stored (codec, level, shards) is told, but is no difference. */
#ifndef UPS_CACHE_INSPECT_DIFF_H
#define UPS_CACHE_INSPECT_DIFF_H

#include "base/json.h"
#include "cache/store/group.h"

/* A sample of which both have latents, and they differ. */
typedef struct ups_sample_difference {
    int64_t source_sample, a, b; /* its index in either cache */
    double max_abs, rms;         /* over values finite in both */
    int64_t values, non_finite;  /* that differ in bits; of those, NaN or Inf on a side */
    int64_t first[3];            /* the first one: frame, token, dim */
    double first_a, first_b;     /* its values */
} ups_sample_difference;

typedef struct ups_cache_difference {
    bool shape;        /* times, tokens or dim differ: no values were compared */
    bool surroundings; /* time grids, or PDE parameters of common samples, differ */
    int64_t fingerprint_parts;
    int64_t common, equal, differing; /* samples with latents in both; bit for bit the same; not */
    int64_t only_a, only_b;           /* samples with latents on one side alone */
    double max_abs, rms;              /* over all differing samples' values; rms over all of the common ones */
    ups_sample_difference *list;      /* the first `differing` ones, at most as many as asked for */
    int64_t list_count;
    ups_sample_difference worst; /* largest max_abs */
} ups_cache_difference;

typedef struct ups_diff_options {
    int64_t list;        /* differing samples to keep */
    bool metadata_alone; /* no latents are read: common and below stay 0 */
    int threads;         /* 0: as many as processors; what is found does not depend on it */
    void (*progress)(void *context, int64_t done, int64_t samples);
    void *context;
} ups_diff_options;

/* Unfinished caches are compared as far as they go. Errors: those of opening and reading; UPS_ERR_CANCELLED. */
ups_status ups_cache_diff(const ups_cache_group *a, const ups_cache_group *b, const ups_diff_options *options,
                          ups_cache_difference *difference, ups_error *error);
void ups_cache_difference_free(ups_cache_difference *difference);

/* Anything that counts. */
bool ups_cache_differs(const ups_cache_difference *difference);

/* The parts of two fingerprints as {"encoder_weights": {"a": "…", "b": "…", "same": true}, …}; a new reference. */
json_t *ups_fingerprint_difference(const ups_fingerprint *a, const ups_fingerprint *b, int64_t *differing);

#endif
