#include "tools/task_option.h"

#include "base/nearest.h"
#include <stdio.h>
#include <string.h>

ups_status ups_task_named(const ups_tasks *tasks, const char *name, const ups_task **task, ups_error *error) {
    char names[512] = "";
    ups_nearest nearest = {.word = name};
    for (int t = 0; t < tasks->count; t++) {
        *task = &tasks->task[t];
        if (!name || strcmp((*task)->name, name) == 0) return UPS_OK;
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", t ? ", " : "", (*task)->name);
        ups_nearest_try(&nearest, (*task)->name);
    }
    if (nearest.name)
        return ups_fail(error, UPS_ERR_ARGUMENT, "--task: the configuration has no task '%s'; did you mean '%s'?", name,
                        nearest.name);
    return ups_fail(error, UPS_ERR_ARGUMENT, "--task: the configuration has no task '%s'; it has %s", name, names);
}
