/* PDE parameters beyond those that an operator was trained on: one rule, by which evaluations and rollouts warn, and
 * predictions refuse what has no meaning to the operator and warn of the rest. */
#ifndef UPS_TRAIN_DATA_CONDITIONS_UNLEARNT_H
#define UPS_TRAIN_DATA_CONDITIONS_UNLEARNT_H

#include "train/data/tasks.h"

/* Warns of samples (count) of the task's source with parameters that do not fit: for each parameter, and each way of
 * not fitting, one message that names a value, its sample and how many others there are. Errors: those of the source.
 */
ups_status ups_unlearnt_warn(const ups_task *task, const int64_t *samples, int64_t count, ups_error *error);

/* Of parameters that are handed in, (count, parameter_count of the task's source): */
ups_status ups_unlearnt_refuse(const ups_task *task, const double *parameters, int64_t count,
                               ups_error *error); /* UPS_ERR_ARGUMENT where one is infinite or should be positive */
/* Warns of the rest. Whether it did. */
bool ups_unlearnt_warn_of(const ups_task *task, const double *parameters, int64_t count);

#endif
