/* What is to be said of a cache, as JSON: gathered once, shown as text, as JSON or as a page. */
#ifndef UPS_TOOLS_REPORT_CACHE_FACTS_H
#define UPS_TOOLS_REPORT_CACHE_FACTS_H

#include "base/json.h"
#include "cache/inspect/survey.h"
#include "cache/store/reader.h"
#include "train/evaluation/reconstruction.h"
#include "train/metrics.h"

/* Facts of a group: where it is, task, split, complete, samples, shape, codec and the orders chosen (from
 * `measurement`), shards, sizes, ratio, range, rounding errors, what made it. A new reference; NULL when out of memory.
 */
json_t *ups_cache_group_facts(const ups_cache_group *group, const ups_cache_survey *survey,
                              const ups_latent_measurement *measurement);

/* Facts of one trajectory that was just read. */
ups_status ups_cache_sample_facts(const ups_cache_group *group, int64_t index, const ups_cache_trajectory *trajectory,
                                  json_t **facts, ups_error *error);

/* What rounding to FP16 does to decoded fields, measured on `trajectories` of those present: {"trajectories", "frames",
 * "latent_distance", "fields": [{"name", "deviation", "fp16_error": {"max", "rms"}, "nrmse"}]}. Errors: those of
 * ups_reconstruct. */
ups_status ups_cache_field_facts(const ups_cache_group *group, const ups_cache_survey *survey,
                                 ups_reconstructor *reconstructor, int64_t trajectories, json_t **facts,
                                 ups_error *error);

/* The largest rms that FP16 costs in any decoded field of a group, as a share of how the field deviates; −1: unknown.
 */
double ups_fact_decoded_share(const json_t *facts);

/* "3.3 MB", "2.0 days"; the buffer is the caller's. */
const char *ups_size_text(uint64_t bytes, char text[24]);
const char *ups_age_text(double seconds, char text[24]);

/* Typed look-ups in facts; 0 or NULL where there is nothing. */
const char *ups_fact_text(const json_t *object, const char *key);
long long ups_fact_integer(const json_t *object, const char *key);
double ups_fact_real(const json_t *object, const char *key);

#endif
