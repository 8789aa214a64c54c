/* The decisions of a training step. Compiled once, for any processor: they are a few operations, and their bits should
 * not depend on the instruction set. */
#include "model/cpu/device.h"

#include <math.h>

ups_status ups_cpu_add_losses(ups_device *device, const ups_losses_call *call, ups_error *error) {
    ups_update_result *result = &call->update->result;
    bool finite = true, taken[UPS_UPDATE_MAX_LOSSES] = {false};
    for (int term = 0; term < call->term_count; term++) taken[call->loss_of[term]] = true;
    for (int loss = 0; loss < UPS_UPDATE_MAX_LOSSES; loss++) result->part_windows[loss] += taken[loss] * call->windows;
    for (int64_t window = 0; window < call->windows; window++) {
        float loss = 0;
        for (int term = 0; term < call->term_count; term++) {
            float value = call->weights[term] * call->terms[term][window];
            loss += value;
            result->part[call->loss_of[term]] += (double)value;
        }
        int32_t task = call->tasks[window];
        result->loss[task] += (double)loss;
        result->windows[task]++;
        finite = finite && isfinite(result->loss[task]);
    }
    if (!finite && !result->bad_micro_batch) result->bad_micro_batch = call->update->input.micro_batch + 1;
    return UPS_OK;
}

ups_status ups_cpu_seed_backward(ups_device *device, const ups_update *update, float *gradient, ups_error *error) {
    *gradient = update->state.loss_scale * update->input.share;
    return UPS_OK;
}

void ups_cpu_bias_corrections(const ups_optimizer_call *call, float *rate, float *second) {
    const double taken = (double)call->update->state.taken[call->set];
    *rate = (float)((double)call->update->input.learning_rate / (1.0 - pow((double)call->beta1, taken)));
    *second = (float)(1.0 / sqrt(1.0 - pow((double)call->beta2, taken)));
}

ups_status ups_cpu_decide(ups_device *device, const ups_update_rules *rules, ups_update *update, ups_error *error) {
    ups_update_result *result = &update->result;
    ups_update_state *state = &update->state;
    const bool scaling = rules->growth_steps > 0, finite = !result->bad_micro_batch;
    result->gradient_norm = sqrt(result->squared_norm) / (double)state->loss_scale;
    result->skipped = result->non_finite > 0 || !finite || state->failed;
    if (result->skipped && scaling && finite && !state->failed && state->loss_scale > UPS_LOSS_SCALE_MINIMUM) {
        state->loss_scale /= 2;
        state->good_steps = 0;
        state->skipped++;
        return UPS_OK;
    }
    result->failed = state->failed = result->skipped;
    if (result->skipped) return UPS_OK;

    const double norm = result->gradient_norm;
    double clip = rules->clip > 0 && norm > rules->clip ? rules->clip / norm : 1;
    result->gradient_scale = (float)(clip / (double)state->loss_scale);
    for (int set = 0; set < UPS_UPDATE_MAX_SETS; set++) state->taken[set] += rules->trained[set];
    if (scaling && ++state->good_steps >= rules->growth_steps) {
        if (state->loss_scale < UPS_LOSS_SCALE_MAXIMUM) state->loss_scale *= 2;
        state->good_steps = 0;
    }
    return UPS_OK;
}
