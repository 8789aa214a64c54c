/* What a group holds, told from its indexes and statistics alone, without decoding a trajectory: for looking into
 * caches, finished or not. And the latents themselves, measured on some of them. */
#ifndef UPS_CACHE_INSPECT_SURVEY_H
#define UPS_CACHE_INSPECT_SURVEY_H

#include "cache/store/group.h"

typedef enum ups_sample_state {
    UPS_SAMPLE_MISSING, /* its shard is not there yet */
    UPS_SAMPLE_SKIPPED, /* left out by the build */
    UPS_SAMPLE_PRESENT
} ups_sample_state;

typedef struct ups_surveyed_sample {
    ups_sample_state state;
    uint64_t stored_bytes; /* of its chunk; 0 when not present */
    ups_cache_statistics statistics;
} ups_surveyed_sample;

typedef struct ups_cache_survey {
    int64_t shards, shard_count;      /* there; in all */
    int64_t present, skipped;         /* samples */
    uint64_t raw_bytes, stored_bytes; /* FP16 latents of those present; shards as files */
    ups_cache_totals totals;          /* of those present */
    ups_surveyed_sample *samples;     /* (samples of the group) */
} ups_cache_survey;

/* Errors are those of a damaged index or of damaged statistics, naming the file. On failure nothing is held. */
ups_status ups_cache_survey_take(const ups_cache_group *group, ups_cache_survey *survey, ups_error *error);
void ups_cache_survey_free(ups_cache_survey *survey);

/* Latents of a number of trajectories, spread evenly over those present. */
#define UPS_LATENT_BINS 64
typedef struct ups_channel_statistics {
    double minimum, maximum, mean, deviation;
} ups_channel_statistics;

typedef struct ups_latent_measurement {
    int64_t trajectories;            /* decoded */
    int64_t orders[3];               /* how many were predicted by order 0, 1, 2; all 0 when portable */
    double low, high;                /* ends of the histogram */
    int64_t bins[UPS_LATENT_BINS];   /* values in each */
    int64_t values, non_finite;      /* counted; NaN and Inf are in no bin */
    ups_channel_statistics *channel; /* (dim) */
    int64_t dead;                    /* channels that say nothing: see ups_channel_is_dead */
    double typical_deviation;        /* the channels' median */
} ups_latent_measurement;

/* Decodes at most `most` trajectories, and at most 2^26 values (but one trajectory at least). Errors: those of reading;
 * UPS_ERR_CANCELLED. */
ups_status ups_latent_measure(const ups_cache_group *group, const ups_cache_survey *survey, int64_t most,
                              ups_latent_measurement *measurement, ups_error *error);
void ups_latent_measurement_free(ups_latent_measurement *measurement);

/* A channel that varies less than a thousandth of the typical one: the model pays for it, and it carries nothing. */
bool ups_channel_is_dead(const ups_latent_measurement *measurement, int64_t channel);

#endif
