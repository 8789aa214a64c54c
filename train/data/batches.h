/* A stage's loaders: the training stream that resumes at any step, and the validation stream that is the same each
 * time. */
#ifndef UPS_TRAIN_DATA_BATCHES_H
#define UPS_TRAIN_DATA_BATCHES_H

#include "train/data/tasks.h"

/* Options common to a stage's loaders: the data section, the stage's batch of so many windows, in `dtype`. */
ups_loader_options ups_training_loader_options(const ups_run_config *config, const ups_training_config *training,
                                               int64_t batch_size, ups_dtype dtype, int64_t first_step);
/* The same windows at each validation: `validation_batches` of every task, one task a batch. */
ups_loader_options ups_validation_loader_options(const ups_run_config *config, const ups_training_config *training,
                                                 int64_t batch_size, ups_dtype dtype, int tasks);

/* Whole trajectories one by one, in the order of the task's samples, once. */
ups_loader_options ups_sequential_loader_options(const ups_run_config *config);

/* Logs a warning for every sample that the loader skipped, from the `reported`-th on; returns how many there are by
 * now.
 */
int64_t ups_loader_report_bad(const ups_loader *loader, int64_t reported);

/* "advection1d: tensor[7] frame 12, …": what a batch of windows held, for messages. */
void ups_windows_describe(const ups_window *windows, int64_t count, const ups_loader_task *tasks, char *text,
                          size_t bytes);

#endif
