#include "train/stages/stage.h"

#include "base/system/memory_limit.h"
#include "train/checkpoint.h"
#include <math.h>
#include <stdlib.h>

#define MAX_BATCH (INT64_C(1) << 14)
#define GIB ((double)(1 << 30))

#define CARD_SHARE 0.9 /* of a card's free memory that is planned for: its libraries take some later */

/* Bytes that a plan may take: of the host's memory, and of a device's that has its own. */
typedef struct budget {
    double host, device;
} budget;

static bool has_memory(const ups_session *session) {
    return session->device->class->memory != NULL;
}

/* Of the device's own memory, `share` of what is free, or device.memory of it. */
static ups_status find_device_budget(const ups_session *session, double share, double *bytes, ups_error *error) {
    const double limit = session->config->device.memory * GIB;
    uint64_t total, available = 0;
    *bytes = 0;
    if (!has_memory(session)) return UPS_OK;
    UPS_TRY(session->device->class->memory(session->device, &total, &available, error));
    *bytes = limit > 0 ? fmin(limit, (double)available) : share * (double)available;
    return UPS_OK;
}

ups_status ups_stage_device_budget(const ups_session *session, const ups_training_config *training, double *bytes,
                                   ups_error *error) {
    const double limit = training->memory_limit * GIB;
    UPS_TRY(find_device_budget(session, CARD_SHARE, bytes, error));
    if (limit > 0 && has_memory(session)) *bytes = fmin(limit, *bytes);
    return UPS_OK;
}

/* An absent card is planned for whatever this machine's memory is. */
static double find_host_budget(const ups_session *session, double share) {
    const uint64_t available = ups_memory_free();
    const bool unknown = session->device->class->only_plans || (has_memory(session) && available == 0);
    return unknown ? INFINITY : share * (double)available;
}

static ups_status find_budget(const ups_session *session, const ups_training_config *training, budget *found,
                              ups_error *error) {
    const double limit = training->memory_limit * GIB;
    found->host = find_host_budget(session, 0.5);
    UPS_TRY(ups_stage_device_budget(session, training, &found->device, error));
    if (limit > 0 && !has_memory(session)) found->host = limit;
    return UPS_OK;
}

/* What the batch size decides of the host's memory; samples that stay there have a limit of their own. */
static double of_batch(const ups_stage_plan *plan) {
    return (double)(plan->total - plan->resident - plan->on_device - plan->offloaded);
}

/* Samples that are to stay on the device come before a larger batch. */
static bool fits(const ups_stage_plan *plan, const budget *within) {
    const double kept = (double)(plan->wanted_on_device - plan->resident_on_device);
    return of_batch(plan) <= within->host && (double)plan->on_device + kept <= within->device;
}

static ups_status smallest_is_too_large(const ups_session *session, const ups_stage_plan *plan, const char *stage,
                                        const budget *within, ups_error *error) {
    const long long batch = (long long)plan->batch_size;
    if ((double)plan->on_device > within->device)
        return ups_fail(error, UPS_ERR_MEMORY,
                        "%s: the smallest batch (%lld) takes %.2f GiB of the card's memory, and %.2f GiB of it may be "
                        "used; raise device.memory or %s.memory_limit where they are set, or make the model smaller",
                        stage, batch, (double)plan->on_device / GIB, within->device / GIB, stage);
    if (has_memory(session))
        return ups_fail(error, UPS_ERR_MEMORY,
                        "%s: the smallest batch (%lld) takes %.2f GiB of the host's memory, and %.2f GiB of it may be "
                        "used; lower data.slots, or end other programs",
                        stage, batch, of_batch(plan) / GIB, within->host / GIB);
    return ups_fail(error, UPS_ERR_MEMORY,
                    "%s: the smallest batch (%lld) takes %.2f GiB, and %.2f GiB may be used; raise %s.memory_limit or "
                    "make the model smaller",
                    stage, batch, of_batch(plan) / GIB, within->host / GIB, stage);
}

/* For `batch_size: auto`: the largest multiple of pairs_per_trajectory whose plan fits. UPS_ERR_MEMORY when not
 * even one does, saying what it would take. */
static ups_status find_batch(const ups_session *session, const ups_training_config *training, const char *stage,
                             ups_stage_measure measure, void *context, ups_stage_plan *plan, ups_error *error) {
    int64_t unit = training->pairs_per_trajectory, fitting = 0, too_large = 0;
    ups_stage_plan found = {0};
    budget within;
    UPS_TRY(find_budget(session, training, &within, error));
    for (int64_t batch = unit; batch <= MAX_BATCH * unit && !too_large;
         batch *= 2) { /* double until it no longer fits … */
        UPS_TRY(measure(context, batch, plan, error));
        if (!fits(plan, &within)) {
            too_large = batch;
        } else {
            fitting = batch;
            found = *plan;
        }
    }
    if (fitting == 0) { /* without room for all that should stay */
        UPS_TRY(measure(context, unit, plan, error));
        if (of_batch(plan) <= within.host && (double)plan->on_device <= within.device) return UPS_OK;
        return smallest_is_too_large(session, plan, stage, &within, error);
    }
    while (too_large && too_large - fitting > unit) { /* … then halve the gap */
        int64_t middle = fitting + (too_large - fitting) / (2 * unit) * unit;
        UPS_TRY(measure(context, middle, plan, error));
        if (!fits(plan, &within)) {
            too_large = middle;
        } else {
            fitting = middle;
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
    int64_t batch = request->batch_size > 0 ? request->batch_size : training->batch_size;
    if (batch == 0 && request->resume) {
        char *checkpoints = ups_run_path(config, "checkpoints/%s", name);
        if (!checkpoints) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        ups_status status = ups_checkpoint_batch_size(checkpoints, &batch, error);
        free(checkpoints);
        UPS_TRY(status);
    }
    if (batch > 0) return measure(context, batch, plan, error);
    return find_batch(request->session, training, name, measure, context, plan, error);
}

ups_status ups_stage_check_memory(const ups_session *session, ups_stage stage, const ups_stage_plan *plan,
                                  ups_error *error) {
    const char *name = ups_stage_name(stage);
    const long long batch = (long long)plan->batch_size;
    const double on_host = (double)(plan->total - plan->on_device), host = find_host_budget(session, 1);
    double card;
    UPS_TRY(find_device_budget(session, 1, &card, error));
    if ((double)plan->on_device > card)
        return ups_fail(
            error, UPS_ERR_MEMORY,
            "%s: batches of %lld take %.2f GiB of the card's memory, and %.2f GiB of it may be used%s; lower "
            "%s.batch_size (auto finds the largest that fits), set %s.activation_checkpointing or "
            "%s.optimizer.offload, or make the model smaller",
            name, batch, (double)plan->on_device / GIB, card / GIB,
            session->config->device.memory > 0 ? " (device.memory)" : "", name, name, name);
    if (host == 0 || on_host <= host) return UPS_OK;
    if (has_memory(session))
        return ups_fail(error, UPS_ERR_MEMORY,
                        "%s: it takes %.1f GiB of the host's memory (samples that are kept, batches on their way, "
                        "offloaded moments), and %.1f GiB are free; lower data.residency_memory or data.slots",
                        name, on_host / GIB, host / GIB);
    return ups_fail(error, UPS_ERR_MEMORY,
                    "%s: batches of %lld take %.1f GiB, and %.1f GiB are free; lower %s.batch_size (auto finds the "
                    "largest that fits), or make the model smaller",
                    name, batch, on_host / GIB, host / GIB, name);
}
