/* Repairs caches: what verification found broken is built again from the source, with the same encoder, and comes out
 * with the bytes that it had. What `ups cache verify --repair` does. */
#ifndef UPS_TRAIN_CACHE_BUILD_REPAIR_H
#define UPS_TRAIN_CACHE_BUILD_REPAIR_H

#include "base/system/threads.h"
#include "cache/inspect/verify.h"
#include "train/session.h"

typedef struct ups_repair_report {
    int64_t shards;          /* built again, those that were missing included */
    int64_t encoded;         /* trajectories that this took */
    ups_verify_report after; /* what is still wrong: no findings when the group is sound now. Freed by the caller */
} ups_repair_report;

/* The run whose cache lies at or above `path`: a configuration, or a directory of a cache, whose run's config.yaml is
 * looked for in it and above it. *config is the path of the configuration, which the caller frees. */
ups_status ups_repair_find_config(const char *path, char **config, ups_error *error);

/* `group` is the directory of a task and split of the run, in which `found` has findings. UPS_ERR_ARGUMENT:
 * it is none of the run's; UPS_ERR_STALE: another encoder or other data made it; UPS_ERR_IO: something could not be
 * read, and nothing was touched. A repair that fails leaves what it had not replaced yet as it was. */
ups_status ups_repair_group(const ups_session *session, const char *group, const ups_verify_report *found,
                            ups_pool *pool, ups_repair_report *report, ups_error *error);

#endif
