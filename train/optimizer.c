#include "train/optimizer.h"

#include "train/learning_rate.h"
#include <math.h>
#include <stdlib.h>

typedef struct stretch {
    int64_t offset, count;
    bool decay;
} stretch;

struct ups_optimizer {
    ups_optimizer_config config;
    ups_device *device;
    ups_parameters *parameters;
    float *first_moment, *second_moment, *average;
    stretch *stretches;
    int32_t stretch_count;
};

/* Parameters lie in the flat buffers in the reverse order of their indices; stretches run to the next parameter,
 * padding included. */
static ups_status find_stretches(ups_optimizer *optimizer, ups_error *error) {
    int32_t count = ups_parameters_count(optimizer->parameters);
    optimizer->stretches = calloc((size_t)count + 1, sizeof *optimizer->stretches);
    if (!optimizer->stretches) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the optimizer's table");
    int64_t end = ups_parameters_elements(optimizer->parameters);
    for (int32_t i = 0; i < count; i++) { /* from the end of the buffers to their start */
        const ups_parameter *parameter = ups_parameters_get(optimizer->parameters, i);
        stretch *last = optimizer->stretch_count ? &optimizer->stretches[optimizer->stretch_count - 1] : NULL;
        bool decay = !parameter->init.no_decay;
        if (last && last->decay == decay && end == last->offset) {
            last->count += last->offset - parameter->offset;
            last->offset = parameter->offset;
        } else {
            optimizer->stretches[optimizer->stretch_count++] =
                (stretch){parameter->offset, end - parameter->offset, decay};
        }
        end = parameter->offset;
    }
    return UPS_OK;
}

size_t ups_optimizer_bytes(const ups_optimizer_config *config, const ups_parameters *parameters) {
    size_t buffer = (size_t)ups_parameters_elements(parameters) * sizeof(float);
    return buffer * (config->ema_decay > 0 ? 3 : 2);
}

/* The average begins at the weights. */
static ups_status begin_average(ups_optimizer *optimizer, ups_error *error) {
    size_t bytes = (size_t)ups_parameters_elements(optimizer->parameters) * sizeof(float);
    float *host = malloc(bytes);
    if (!host) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a copy of the weights (%zu bytes)", bytes);
    ups_device *device = optimizer->device;
    ups_status status =
        device->class->download(device, host, ups_parameters_values(optimizer->parameters), bytes, error);
    if (status == UPS_OK) status = device->class->upload(device, optimizer->average, host, bytes, error);
    free(host);
    return status;
}

ups_status ups_optimizer_create(const ups_optimizer_config *config, ups_device *device, ups_parameters *parameters,
                                ups_optimizer **optimizer, ups_error *error) {
    ups_optimizer *made = calloc(1, sizeof *made);
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the optimizer");
    made->config = *config;
    made->device = device;
    made->parameters = parameters;
    size_t bytes = (size_t)ups_parameters_elements(parameters) * sizeof(float);
    ups_status status = find_stretches(made, error);
    if (status == UPS_OK) status = device->class->allocate(device, bytes, (void **)&made->first_moment, error);
    if (status == UPS_OK) status = device->class->allocate(device, bytes, (void **)&made->second_moment, error);
    if (status == UPS_OK && config->ema_decay > 0) {
        status = device->class->allocate(device, bytes, (void **)&made->average, error);
        if (status == UPS_OK) status = begin_average(made, error);
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
    if (optimizer->first_moment) device->class->release(device, optimizer->first_moment);
    if (optimizer->second_moment) device->class->release(device, optimizer->second_moment);
    if (optimizer->average) device->class->release(device, optimizer->average);
    free(optimizer->stretches);
    free(optimizer);
}

ups_status ups_optimizer_step(ups_optimizer *optimizer, int64_t step, int64_t steps, const ups_loss_scale *loss_scale,
                              ups_optimizer_result *result, ups_error *error) {
    const ups_optimizer_config *config = &optimizer->config;
    ups_device *device = optimizer->device;
    const ups_weights *weights = ups_parameters_weights(optimizer->parameters);
    const double factor = (double)ups_loss_scale_factor(loss_scale);

    double squares = 0;
    *result = (ups_optimizer_result){0};
    UPS_TRY(device->class->sum_of_squares(device, weights->gradients, weights->count, &squares, &result->non_finite,
                                          error));
    result->gradient_norm = sqrt(squares) / factor;
    if (result->non_finite > 0) return UPS_OK;

    double scale = config->clip > 0 && result->gradient_norm > config->clip ? config->clip / result->gradient_norm : 1;
    ups_adamw_call call = {
        .learning_rate = (float)ups_schedule_rate(config, step, steps),
        .beta1 = (float)config->beta1,
        .beta2 = (float)config->beta2,
        .epsilon = (float)config->epsilon,
        .gradient_scale = (float)(scale / factor),
        .ema_decay = (float)config->ema_decay,
        .step = step + 1 - loss_scale->skipped,
        .compute_dtype = weights->compute_dtype,
    };
    for (int32_t i = 0; i < optimizer->stretch_count; i++) {
        const stretch *part = &optimizer->stretches[i];
        call.count = part->count;
        call.weight_decay = part->decay ? (float)config->weight_decay : 0;
        call.values = weights->values + part->offset;
        call.gradients = weights->gradients + part->offset;
        call.first_moment = optimizer->first_moment + part->offset;
        call.second_moment = optimizer->second_moment + part->offset;
        call.ema = optimizer->average ? optimizer->average + part->offset : NULL;
        call.compute = weights->compute ? weights->compute + part->offset : NULL;
        UPS_TRY(device->class->adamw(device, &call, error));
    }
    return UPS_OK;
}

float *ups_optimizer_first_moment(ups_optimizer *optimizer) {
    return optimizer->first_moment;
}

float *ups_optimizer_second_moment(ups_optimizer *optimizer) {
    return optimizer->second_moment;
}

float *ups_optimizer_average(ups_optimizer *optimizer) {
    return optimizer->average;
}
