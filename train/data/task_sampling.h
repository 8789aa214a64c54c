/* How often each task is drawn, as training goes on: by the strategy, by how difficult tasks are found to be, and by
 * when they enter.
 *
 *   share of task k  ∝  base_k · difficulty_k · ramp_k
 *
 * base: the strategy's (pipeline/sampling/sampler.h). difficulty (strategy `difficulty` alone): the exponential moving
 * average of the task's validation loss over the mean of all drawn tasks', to a power, between a floor and a ceiling; 1
 * until there is one. ramp: 0 before the step a task is drawn `from`, then rising to 1 over `ramp` steps.
 *
 * Shares change at settled places alone: what is known after step s decides how tasks are drawn from step s + lead on,
 * where the lead is more batches than a loader begins ahead. So the order does not depend on timing, threads, slots or
 * ranks; the phases decided so far and the averages are all that a checkpoint has to keep. */
#ifndef UPS_TRAIN_DATA_TASK_SAMPLING_H
#define UPS_TRAIN_DATA_TASK_SAMPLING_H

#include "base/json.h"
#include "pipeline/loader/loader.h"
#include "train/config/config.h"

/* Batches from a decision to its effect; loaders have fewer slots. */
#define UPS_SAMPLING_LEAD 64
/* Processes whose loaders, of two slots at least, begin fewer together. */
#define UPS_SAMPLING_MOST_RANKS 31

typedef struct ups_task_sampling ups_task_sampling;

typedef struct ups_sampled_task {
    const ups_task_config *config; /* name, weight, from, ramp */
    int64_t samples;               /* to train on */
} ups_sampled_task;

/* Whether shares change during training at all. */
bool ups_task_sampling_changes(const ups_run_config *config);

/* `draws`: of a global batch (windows over windows a draw, of all ranks). The configuration is borrowed. */
ups_status ups_task_sampling_create(const ups_run_config *config, const ups_training_config *training, int64_t draws,
                                    const ups_sampled_task *tasks, int count, ups_task_sampling **sampling,
                                    ups_error *error);
void ups_task_sampling_destroy(ups_task_sampling *sampling); /* NULL is fine */

/* The phases decided so far, for the loader's options; their shares are borrowed until the next call. */
const ups_sampler_phase *ups_task_sampling_phases(ups_task_sampling *sampling, int64_t *count);

/* To be called after every optimizer step, `step` of them being done, with the tasks' mean validation losses where a
 * validation fell due (count; NAN: none), else NULL. Returns the phase that was decided, borrowed until the next call;
 * NULL when shares stay as they are. UPS_ERR_MEMORY leaves it as it was. */
ups_status ups_task_sampling_advance(ups_task_sampling *sampling, int64_t step, const double *losses,
                                     const ups_sampler_phase **decided, ups_error *error);

/* "from step 564 on: advection 31 %, darcy 69 %": the latest phase. */
void ups_task_sampling_describe(const ups_task_sampling *sampling, char *text, size_t bytes);
/* {"from_step": …, "shares": {task: share}, "difficulty": {task: average of its loss}}: for the metrics. */
json_t *ups_task_sampling_report(const ups_task_sampling *sampling);

/* For checkpoints: all of it, to the last bit, and back. UPS_ERR_STALE when it is of other tasks, another strategy or
 * another batch size: the run could not go on in its order. */
json_t *ups_task_sampling_to_json(const ups_task_sampling *sampling);
ups_status ups_task_sampling_from_json(ups_task_sampling *sampling, const json_t *json, const char *where,
                                       ups_error *error);

#endif
