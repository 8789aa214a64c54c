/* What of another model's file each parameter of this one begins as (model.from, `--fork`): by the same name; and
 * halves of blocks that are a task's own (model.operator.task_specific) as those that all tasks of the file share,
 * where it has none of the task's own, those of a new task as those of the file's task that it is most like. */
#ifndef UPS_TRAIN_STAGES_TRAINING_COUNTERPARTS_H
#define UPS_TRAIN_STAGES_TRAINING_COUNTERPARTS_H

#include "base/json.h"
#include "model/parameters/parameters.h"
#include "model/parameters/safetensors.h"
#include "train/data/tasks.h"

typedef struct ups_counterparts {
    const ups_tasks *tasks;
    const ups_parameters *parameters;
    const ups_safetensors *file;
    json_t *names;     /* tasks that the file's model was trained on, in the order of their columns; NULL: not told */
    const char **like; /* of each task, the file's task that blocks of its own begin as, of `names`; NULL: none */
} ups_counterparts;

/* `file` and the others are borrowed. */
ups_status ups_counterparts_find(const ups_tasks *tasks, const ups_parameters *parameters, const ups_safetensors *file,
                                 ups_counterparts *counterparts, ups_error *error);
void ups_counterparts_free(ups_counterparts *counterparts);

/* Index of the task whose own the parameter is; −1: all share it. */
int ups_counterparts_owner(const ups_counterparts *counterparts, const ups_parameter *parameter);
/* Whether it is part of a block that is a task's own. */
bool ups_counterparts_in_own_block(const ups_counterparts *counterparts, const ups_parameter *parameter);
/* Which of the file's tasks has this name; −1: none. */
int64_t ups_counterparts_task(const ups_counterparts *counterparts, const char *name);
/* What a parameter begins as; NULL: the file lacks it. `as_like`: whether it is that of the task which its own is like.
 */
const ups_safetensor *ups_counterparts_tensor(const ups_counterparts *counterparts, const ups_parameter *parameter,
                                              bool *as_like);
/* Whether the operator of a model that has this one's blocks may lack it: what that was told nothing of, since none of
 * its tasks had borders, parameters or as many axes; of a block that does one or the other as tasks have few or many
 * tokens, what none of them had done: all of it, then; and what is a task's own but its blocks, which begins anew with
 * the task. */
bool ups_counterparts_may_lack(const ups_counterparts *counterparts, const ups_parameter *parameter);

#endif
