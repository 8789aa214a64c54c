/* What files of rollouts say of them, whatever their format. */
#ifndef UPS_TOOLS_ROLLOUT_FACTS_H
#define UPS_TOOLS_ROLLOUT_FACTS_H

#include "base/json.h"
#include "train/evaluation/rollout.h"

typedef struct ups_rollout_origin {
    const char *config;     /* the configuration of this command as YAML */
    const json_t *training; /* the run that trained the operator (train/run/provenance.h), or null */
    const char *split;
    const ups_surrogate_files *files;
    const int64_t *samples; /* of the task's source, by a rollout's position */
} ups_rollout_origin;

/* In words that the layouts read back to the same `periodic`. */
const char *ups_rollout_boundary(const ups_rollouts *rollouts, const ups_rollout_origin *origin,
                                 const ups_rollout *rollout);

/* Centres of the cells along an axis, malloc'ed; NULL when out of memory. */
double *ups_rollout_coordinates(const ups_rollouts *rollouts, int axis);

/* Tells "ups.task", "ups.fields", … and their texts one by one, until `write` says false. False then, and when out of
 * memory. */
typedef bool (*ups_rollout_write_fact)(void *context, const char *name, const char *text);
bool ups_rollout_tell(const ups_rollouts *rollouts, const ups_rollout_origin *origin, ups_rollout_write_fact write,
                      void *context);

#endif
