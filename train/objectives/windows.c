#include "train/objectives/windows.h"

#include "base/log.h"

/* Why a task's windows are not shifted; NULL: they are. */
static const char *objection(const ups_task *task) {
    if (!task->geometry.periodic) return "its domain is not periodic";
    for (int a = 0; a < task->geometry.dims; a++) {
        if (task->geometry.grid[a] % task->patch[a] != 0) return "its last patch reaches beyond the grid";
    }
    return NULL;
}

ups_status ups_windows_check(const ups_run_config *config, const ups_tasks *tasks, ups_error *error) {
    if (config->op.augment != UPS_AUGMENT_SHIFT) return UPS_OK;
    for (int t = 0; t < tasks->count; t++) {
        if (!objection(&tasks->task[t])) return UPS_OK;
    }
    return ups_fail(error, UPS_ERR_CONFIG,
                    "operator.augment: shift can be used with none of the tasks (%s: %s); set it to none",
                    tasks->task[0].name, objection(&tasks->task[0]));
}

void ups_windows_say(const ups_run_config *config, const ups_tasks *tasks) {
    for (int t = 0; t < tasks->count && config->op.augment == UPS_AUGMENT_SHIFT; t++) {
        const char *why = objection(&tasks->task[t]);
        if (why) ups_log(UPS_LOG_WARNING, "operator: windows of %s are not shifted: %s", tasks->task[t].name, why);
    }
}

ups_value ups_windows_shift(ups_graph *graph, const ups_run_config *config, const ups_task *task, ups_value window) {
    int64_t cells[UPS_MAX_GRID_DIMS];
    if (config->op.augment != UPS_AUGMENT_SHIFT || objection(task)) return window;
    for (int a = 0; a < task->geometry.dims; a++) cells[a] = task->geometry.grid[a] / task->patch[a];
    return ups_shift(graph, window, task->geometry.dims, cells);
}

ups_value ups_windows_noise(ups_graph *graph, const ups_run_config *config, const ups_task *task,
                            const ups_operator_options *options, ups_value state) {
    if (config->op.noise <= 0) return state;
    const long long stride = (long long)options->grid.stride;
    if (stride > 0)
        ups_graph_scope(graph, "operator.%s.stride%lld", task->name, stride);
    else
        ups_graph_scope(graph, "operator.%s", task->name);
    const ups_init one = {.kind = UPS_INIT_ONES, .no_decay = true};
    const int64_t dim = ups_task_latents(config, task).dim, bundle = options->bundle;
    ups_value change = ups_graph_parameter(graph, "change", UPS_SHAPE(bundle * dim), one);
    if (bundle > 1) change = ups_slice(graph, change, 0, dim); /* of the first step of a bundle */
    return ups_noise(graph, state, (float)config->op.noise, change, 0);
}
