/* --task NAME of commands that work on one task of a configuration. */
#ifndef UPS_TOOLS_TASK_OPTION_H
#define UPS_TOOLS_TASK_OPTION_H

#include "train/data/tasks.h"

/* The task of that name; with NULL the first. UPS_ERR_ARGUMENT names the nearest, or all there are: a mistake of the
 * command line. */
ups_status ups_task_named(const ups_tasks *tasks, const char *name, const ups_task **task, ups_error *error);

#endif
