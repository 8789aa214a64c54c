#include "train/stages/stage.h"

#include "base/system/memory_limit.h"
#include "train/checkpoint.h"
#include <stdlib.h>

#define MAX_BATCH (INT64_C(1) << 14)
#define GIB ((double)(1 << 30))

#define CARD_SHARE 0.9 /* of a card's free memory: the rest is for what its libraries take later */

/* What may be planned for, in bytes. */
typedef struct room {
    bool apart;          /* the device has memory of its own */
    double device, host; /* apart: of either; otherwise host */
} room;

/* Of a device with memory of its own, what may be used of it; 0: it has none. */
static ups_status find_device_room(const ups_session *session, double *bytes, ups_error *error) {
    ups_device *device = session->device;
    const double limit = session->config->device.memory * GIB;
    uint64_t total, available;
    *bytes = 0;
    if (!device->class->memory) return UPS_OK;
    UPS_TRY(device->class->memory(device, &total, &available, error));
    *bytes = CARD_SHARE * (double)available;
    if (limit > 0 && limit < (double)total) *bytes = limit < (double)available ? limit : (double)available;
    return UPS_OK;
}

static ups_status find_room(const ups_session *session, const ups_training_config *training, room *found,
                            ups_error *error) {
    const double limit = training->memory_limit * GIB;
    *found = (room){.host = 0.5 * (double)ups_memory_free()};
    UPS_TRY(find_device_room(session, &found->device, error));
    found->apart = session->device->class->memory != NULL;
    if (limit > 0 && found->apart && limit < found->device) found->device = limit;
    if (limit > 0 && !found->apart) found->host = limit;
    return UPS_OK;
}

/* What the batch size decides; samples that stay in memory have a limit of their own. */
static double of_batch(const ups_stage_plan *plan) {
    return (double)(plan->total - plan->resident - plan->on_device);
}

static bool fits(const ups_stage_plan *plan, const room *in) {
    return of_batch(plan) <= in->host && (double)plan->on_device <= in->device;
}

static ups_status smallest_is_too_large(const ups_stage_plan *plan, const char *stage, const room *in,
                                        ups_error *error) {
    const long long batch = (long long)plan->batch_size;
    if ((double)plan->on_device > in->device)
        return ups_fail(error, UPS_ERR_MEMORY,
                        "%s: the smallest batch (%lld) takes %.2f GiB of the card's memory, and %.2f GiB of it may be "
                        "used; raise device.memory or %s.memory_limit where they are set, or make the model smaller",
                        stage, batch, (double)plan->on_device / GIB, in->device / GIB, stage);
    return ups_fail(error, UPS_ERR_MEMORY,
                    "%s: the smallest batch (%lld) takes %.2f GiB, and %.2f GiB may be used; raise %s.memory_limit or "
                    "make the model smaller",
                    stage, batch, of_batch(plan) / GIB, in->host / GIB, stage);
}

/* For `batch_size: auto`: the largest multiple of pairs_per_trajectory whose plan has room. UPS_ERR_MEMORY when not
 * even one has, saying what it would take. */
static ups_status find_batch(const ups_session *session, const ups_training_config *training, const char *stage,
                             ups_stage_measure measure, void *context, ups_stage_plan *plan, ups_error *error) {
    int64_t unit = training->pairs_per_trajectory, fitting = 0, too_large = 0;
    ups_stage_plan found = {0};
    room in;
    UPS_TRY(find_room(session, training, &in, error));
    for (int64_t batch = unit; batch <= MAX_BATCH * unit && !too_large;
         batch *= 2) { /* double until it no longer fits … */
        UPS_TRY(measure(context, batch, plan, error));
        if (!fits(plan, &in)) {
            too_large = batch;
        } else {
            fitting = batch;
            found = *plan;
        }
    }
    if (fitting == 0) return smallest_is_too_large(plan, stage, &in, error);
    while (too_large && too_large - fitting > unit) { /* … then halve the gap */
        int64_t middle = fitting + (too_large - fitting) / (2 * unit) * unit;
        UPS_TRY(measure(context, middle, plan, error));
        if (!fits(plan, &in)) {
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
    int64_t batch = training->batch_size;
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
    const size_t on_host = plan->total - plan->on_device;
    double card;
    UPS_TRY(find_device_room(session, &card, error));
    const uint64_t available = ups_memory_free();
    if ((double)plan->on_device > card)
        return ups_fail(error, UPS_ERR_MEMORY,
                        "%s: batches of %lld take %.1f GiB of the card's memory, and %.1f GiB of it may be used; lower "
                        "%s.batch_size (auto finds the largest that fits), set %s.activation_checkpointing, or make "
                        "the model smaller",
                        name, (long long)plan->batch_size, (double)plan->on_device / GIB, card / GIB, name, name);
    if (available == 0 || on_host <= available) return UPS_OK;
    return ups_fail(error, UPS_ERR_MEMORY,
                    "%s: batches of %lld take %.1f GiB, and %.1f GiB are free; lower %s.batch_size (auto finds the "
                    "largest that fits), or make the model smaller",
                    name, (long long)plan->batch_size, (double)on_host / GIB, (double)available / GIB, name);
}
