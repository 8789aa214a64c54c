#include "train/stages/stage.h"

#include "base/system/memory_limit.h"
#include "train/checkpoint.h"
#include <stdlib.h>

#define MAX_BATCH (INT64_C(1) << 14)
#define GIB ((double)(1 << 30))

/* What the batch size decides; samples that stay in memory have a limit of their own. */
static double of_batch(const ups_stage_plan *plan) {
    return (double)(plan->total - plan->resident);
}

/* For `batch_size: auto`: the largest multiple of pairs_per_trajectory whose plan stays within the limit.
 * UPS_ERR_MEMORY when not even one fits, saying what it would take. */
static ups_status find_batch(const ups_training_config *training, const char *stage, ups_stage_measure measure,
                             void *context, ups_stage_plan *plan, ups_error *error) {
    double limit = training->memory_limit > 0 ? training->memory_limit * GIB : 0.5 * (double)ups_memory_free();
    int64_t unit = training->pairs_per_trajectory, fits = 0, too_large = 0;
    ups_stage_plan found = {0};
    for (int64_t batch = unit; batch <= MAX_BATCH * unit && !too_large;
         batch *= 2) { /* double until it no longer fits … */
        UPS_TRY(measure(context, batch, plan, error));
        if (of_batch(plan) > limit) {
            too_large = batch;
        } else {
            fits = batch;
            found = *plan;
        }
    }
    if (fits == 0) {
        return ups_fail(
            error, UPS_ERR_MEMORY,
            "%s: the smallest batch (%lld) takes %.2f GiB, and %.2f GiB may be used; raise %s.memory_limit or "
            "make the model smaller",
            stage, (long long)unit, of_batch(plan) / GIB, limit / GIB, stage);
    }
    while (too_large && too_large - fits > unit) { /* … then halve the gap */
        int64_t middle = fits + (too_large - fits) / (2 * unit) * unit;
        UPS_TRY(measure(context, middle, plan, error));
        if (of_batch(plan) > limit) {
            too_large = middle;
        } else {
            fits = middle;
            found = *plan;
        }
    }
    *plan = found;
    return UPS_OK;
}

ups_status ups_stage_choose_batch(const ups_stage_request *request, ups_stage stage, ups_stage_measure measure,
                                  void *context, ups_stage_plan *plan, ups_error *error) {
    const ups_run_config *config = request->session->config;
    const ups_training_config *training = ups_run_training(config, stage);
    const char *name = ups_stage_name(stage);
    int64_t batch = training->batch_size;
    if (batch == 0 && request->resume) {
        char *checkpoints = ups_run_path(config, "checkpoints/%s", name);
        if (!checkpoints) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        ups_status status = ups_checkpoint_batch_size(checkpoints, &batch, error);
        free(checkpoints);
        UPS_TRY(status);
    }
    if (batch > 0) return measure(context, batch, plan, error);
    return find_batch(training, name, measure, context, plan, error);
}

ups_status ups_stage_check_memory(ups_stage stage, const ups_stage_plan *plan, ups_error *error) {
    uint64_t available = ups_memory_free();
    if (available == 0 || plan->total <= available) return UPS_OK;
    const char *name = ups_stage_name(stage);
    return ups_fail(error, UPS_ERR_MEMORY,
                    "%s: batches of %lld take %.1f GiB, and %.1f GiB are free; lower %s.batch_size (auto finds the "
                    "largest that fits), or make the model smaller",
                    name, (long long)plan->batch_size, (double)plan->total / GIB, (double)available / GIB, name);
}
