#include "train/optimizer.h"

#include "model/update_channel.h"
#include "train/learning_rate.h"
#include <stdlib.h>

enum { MOMENTS = 2 };
static const char *const moment_names[MOMENTS] = {"adamw.first_moment.", "adamw.second_moment."};

typedef enum group_kind { DECAYED, UNDECAYED, GROUPS } group_kind;

typedef struct group {
    ups_range *ranges; /* device memory */
    int32_t count;
    float weight_decay;
} group;

struct ups_optimizer {
    ups_optimizer_config config;
    ups_device *device;
    ups_parameters *parameters;
    float *moments[MOMENTS], *average;
    group groups[GROUPS];
    int64_t growth_steps; /* 0: the loss scale is fixed */
    ups_update_channel *channel;
    ups_update_state state;
};

/* Parameters lie in the flat buffers in the reverse order of their indices; ranges run to the next parameter, padding
 * included, and neighbours of a group are one. */
static int32_t find_ranges(const ups_parameters *parameters, group_kind kind, ups_range *ranges) {
    int32_t count = 0;
    int64_t end = ups_parameters_elements(parameters);
    for (int32_t i = 0; i < ups_parameters_count(parameters); i++) { /* from the end of the buffers to their start */
        const ups_parameter *parameter = ups_parameters_get(parameters, i);
        ups_range *last = count ? &ranges[count - 1] : NULL;
        bool ours = (parameter->init.no_decay ? UNDECAYED : DECAYED) == kind;
        if (ours && last && end == last->offset) {
            last->count += last->offset - parameter->offset;
            last->offset = parameter->offset;
        } else if (ours) {
            ranges[count++] = (ups_range){parameter->offset, end - parameter->offset};
        }
        end = parameter->offset;
    }
    return count;
}

static ups_status make_groups(ups_optimizer *optimizer, ups_error *error) {
    ups_device *device = optimizer->device;
    ups_range *ranges = calloc((size_t)ups_parameters_count(optimizer->parameters) + 1, sizeof *ranges);
    ups_status status = ranges ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "no memory for the optimizer's table");
    for (int kind = 0; kind < GROUPS && status == UPS_OK; kind++) {
        group *made = &optimizer->groups[kind];
        made->weight_decay = kind == DECAYED ? (float)optimizer->config.weight_decay : 0;
        made->count = find_ranges(optimizer->parameters, (group_kind)kind, ranges);
        size_t bytes = (size_t)made->count * sizeof *ranges;
        if (bytes == 0) continue;
        status = device->class->allocate(device, bytes, (void **)&made->ranges, error);
        if (status == UPS_OK) status = device->class->upload(device, made->ranges, ranges, bytes, error);
        if (status == UPS_OK) status = device->class->synchronize(device, error); /* `ranges` is used again */
    }
    free(ranges);
    return status;
}

size_t ups_optimizer_bytes(const ups_optimizer_config *config, const ups_parameters *parameters) {
    size_t buffer = (size_t)ups_parameters_elements(parameters) * sizeof(float);
    return buffer * (MOMENTS + (config->ema_decay > 0));
}

ups_status ups_optimizer_create(const ups_optimizer_config *config, ups_device *device, ups_parameters *parameters,
                                ups_optimizer **optimizer, ups_error *error) {
    ups_optimizer *made = calloc(1, sizeof *made);
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the optimizer");
    made->config = *config;
    made->device = device;
    made->parameters = parameters;
    size_t bytes = (size_t)ups_parameters_elements(parameters) * sizeof(float);
    ups_status status = make_groups(made, error);
    if (status == UPS_OK) status = ups_update_open(device, &made->channel, error);
    made->state.loss_scale = 1;
    bool scales = ups_parameters_weights(parameters)->compute_dtype == UPS_F16;
    if (status == UPS_OK && scales) {
        status = ups_optimizer_scale_losses(made, UPS_LOSS_SCALE_FIRST, UPS_LOSS_SCALE_GOOD_STEPS, error);
    }
    for (int i = 0; i < MOMENTS && status == UPS_OK; i++)
        status = device->class->allocate(device, bytes, (void **)&made->moments[i], error);
    if (status == UPS_OK && config->ema_decay > 0) {
        status = device->class->allocate(device, bytes, (void **)&made->average, error);
        const float *values = ups_parameters_values(parameters); /* where the average begins */
        if (status == UPS_OK) status = device->class->copy(device, made->average, values, bytes, error);
    }
    if (status != UPS_OK) {
        ups_optimizer_destroy(made);
        return status;
    }
    *optimizer = made;
    return UPS_OK;
}

void ups_optimizer_destroy(ups_optimizer *optimizer) {
    if (!optimizer) return;
    ups_device *device = optimizer->device;
    for (int i = 0; i < MOMENTS; i++) {
        if (optimizer->moments[i]) device->class->release(device, optimizer->moments[i]);
    }
    if (optimizer->average) device->class->release(device, optimizer->average);
    for (int i = 0; i < GROUPS; i++) {
        if (optimizer->groups[i].ranges) device->class->release(device, optimizer->groups[i].ranges);
    }
    ups_update_close(optimizer->channel);
    free(optimizer);
}

ups_status ups_optimizer_scale_losses(ups_optimizer *optimizer, float first, int64_t good_steps, ups_error *error) {
    optimizer->growth_steps = good_steps;
    return ups_optimizer_restore(optimizer, &(ups_update_state){.loss_scale = first}, error);
}

bool ups_optimizer_scales_losses(const ups_optimizer *optimizer) {
    return optimizer->growth_steps > 0;
}

ups_update *ups_optimizer_update(const ups_optimizer *optimizer) {
    return ups_update_memory(optimizer->channel);
}

ups_update_state ups_optimizer_state(const ups_optimizer *optimizer) {
    return optimizer->state;
}

ups_status ups_optimizer_restore(ups_optimizer *optimizer, const ups_update_state *state, ups_error *error) {
    optimizer->state = *state;
    return ups_update_restore(optimizer->channel, &optimizer->state, error);
}

ups_status ups_optimizer_begin(ups_optimizer *optimizer, ups_update_input *micro, int64_t steps, ups_error *error) {
    micro->learning_rate = (float)ups_schedule_rate(&optimizer->config, micro->step, steps);
    return ups_update_give(optimizer->channel, micro, error);
}

ups_status ups_optimizer_step(ups_optimizer *optimizer, ups_error *error) {
    const ups_optimizer_config *config = &optimizer->config;
    ups_device *device = optimizer->device;
    ups_update *update = ups_optimizer_update(optimizer);
    ups_update_rules rules = {.clip = config->clip,
                              .beta1 = (float)config->beta1,
                              .beta2 = (float)config->beta2,
                              .growth_steps = optimizer->growth_steps};
    const ups_weights *weights = ups_parameters_weights(optimizer->parameters);
    ups_optimizer_call call = {
        .rule = UPS_RULE_ADAMW,
        .values = weights->values,
        .gradients = weights->gradients,
        .moments = {optimizer->moments[0], optimizer->moments[1]},
        .ema = optimizer->average,
        .compute = weights->compute,
        .compute_dtype = weights->compute_dtype,
        .beta1 = rules.beta1,
        .beta2 = rules.beta2,
        .epsilon = (float)config->epsilon,
        .ema_decay = (float)config->ema_decay,
        .update = update,
    };
    UPS_TRY(device->class->norm(device, weights->gradients, weights->count, update, error));
    UPS_TRY(device->class->decide(device, &rules, update, error));
    for (int i = 0; i < GROUPS; i++) {
        const group *of = &optimizer->groups[i];
        if (of->count == 0) continue;
        call.ranges = of->ranges;
        call.range_count = of->count;
        call.weight_decay = of->weight_decay;
        UPS_TRY(device->class->optimize(device, &call, error));
    }
    return ups_update_take(optimizer->channel, error);
}

ups_status ups_optimizer_result(ups_optimizer *optimizer, ups_update *result, ups_error *error) {
    UPS_TRY(ups_update_read(optimizer->channel, result, error));
    optimizer->state = result->state;
    return UPS_OK;
}

int ups_optimizer_buffers(const ups_optimizer *optimizer, ups_parameter_buffer buffers[UPS_OPTIMIZER_MAX_BUFFERS]) {
    int count = 0;
    for (int i = 0; i < MOMENTS; i++) buffers[count++] = (ups_parameter_buffer){moment_names[i], optimizer->moments[i]};
    if (optimizer->average) buffers[count++] = (ups_parameter_buffer){"ema.", optimizer->average};
    return count;
}

float *ups_optimizer_average(const ups_optimizer *optimizer) {
    return optimizer->average;
}
