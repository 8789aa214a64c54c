/* Two runs side by side, for someone who changed one thing: what was changed, and what it did to speed, memory and
 * learning. Errors of their rollouts are train/evaluation/scores/paired.h's. */
#ifndef UPS_TRAIN_RUN_COMPARISON_H
#define UPS_TRAIN_RUN_COMPARISON_H

#include "base/json.h"
#include "train/config/config.h"

typedef struct ups_compared_run {
    const json_t *evaluation; /* as document.h has it; borrowed */
    json_t *metrics;          /* the lines of metrics.jsonl; NULL: there is an evaluation alone */
    json_t *cache;            /* {"samples", "raw_bytes", "bytes", "ratio"} of all tasks and splits; NULL: none */
    unsigned given;           /* a mask: stages that began from another run's weights (`ups train --fork`) */
} ups_compared_run;

/* Looks at what lies in the run's directory; of a cache that is damaged or unfinished nothing is told. `evaluation`
 * stays as it is. Errors: those of reading metrics.jsonl, which name it. Free with ups_compared_run_free, whatever the
 * outcome. */
ups_status ups_compared_run_read(const ups_run_config *config, ups_compared_run *run, ups_error *error);
void ups_compared_run_free(ups_compared_run *run);

/* *comparison, a new reference, of A and B; what a run does not tell is absent:
 *
 *   "a", "b"         {"stages": {STAGE: ups_stage_summary, and "from_given_weights"}, "cache": as above,
 *                    "tasks": {TASK: {"latents_per_frame", "frame_seconds" (evaluate.h)}}, "evaluated_on": [machine]}
 *   "ratio"          numbers of b over those of a, in the same places; of validation losses where these are of the same
 *                    kind
 *   "machines"       {STAGE or "evaluation": {"same": true, false, or null where one is not recorded, "a", "b": lists}}
 *   "differences"    of the configurations that trained the operators: [{"key", "a", "b", "neutral": no result
 *                    depends on it}]
 *   "learning"       of stages that both trained: [{"stage", "comparable": whether losses are of the same kind,
 *                    "reason": why there is nothing of the following, "loss": the lowest that both have got to, "of":
 *                    "a" or "b", whose lowest it is, "a", "b": ups_stage_reaches, "ratio": {"step", "seconds"}}]
 */
ups_status ups_comparison_make(const ups_compared_run run[2], json_t **comparison, ups_error *error);

/* Whether losses of a stage's validations of two runs are of the same kind: *reason stays empty, or tells why not. */
ups_status ups_validations_alike(const ups_run_config *a, const ups_run_config *b, ups_stage stage, char reason[],
                                 size_t bytes, ups_error *error);

#endif
