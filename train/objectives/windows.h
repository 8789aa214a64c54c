/* What training of the operator does to windows at random, where tokens are the cells of a grid: shifts of periodic
 * domains, noise on the first state. A validation's windows stay as they are. */
#ifndef UPS_TRAIN_OBJECTIVES_WINDOWS_H
#define UPS_TRAIN_OBJECTIVES_WINDOWS_H

#include "model/ops.h"
#include "train/data/tasks.h"

/* With operator.augment: shift, UPS_ERR_CONFIG where no task's windows can be shifted. */
ups_status ups_windows_check(const ups_run_config *config, const ups_tasks *tasks, ups_error *error);
/* Logs which tasks' windows stay where they are, and why. */
void ups_windows_say(const ups_run_config *config, const ups_tasks *tasks);

/* A window's latents (B, frames, tokens, dim), each window moved by whole tokens along every axis. A field moved by
 * whole patches has these latents: the encoder looks at each patch alone. The window itself for a task whose domain is
 * not periodic, or whose last patch reaches beyond the grid. */
ups_value ups_windows_shift(ups_graph *graph, const ups_run_config *config, const ups_task *task, ups_value window);

/* A state (B, tokens, dim) + operator.noise · change · normal numbers; change is what a step changes each number of a
 * token, operator.TASK.change of the model. The state itself without noise. */
ups_value ups_windows_noise(ups_graph *graph, const ups_run_config *config, const ups_task *task,
                            const ups_operator_options *options, ups_value state);

#endif
