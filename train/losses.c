#include "train/losses.h"

#include <string.h>

_Static_assert(UPS_MAX_LOSSES <= UPS_UPDATE_MAX_LOSSES, "an update has a sum for each loss");

unsigned ups_losses_due(const ups_loss_config losses[UPS_MAX_LOSSES], int64_t step) {
    unsigned mask = 0;
    for (int i = 0; i < UPS_MAX_LOSSES; i++) {
        bool due = losses[i].weight > 0 && step >= losses[i].from && step % losses[i].every == 0;
        if (due) mask |= 1u << i;
    }
    return mask;
}

float ups_losses_ramp(const ups_loss_config *loss, int64_t step) {
    const int64_t since = step - loss->from + 1;
    return since >= loss->warmup ? 1 : (float)since / (float)loss->warmup;
}

static int64_t common_multiple(int64_t a, int64_t b, int64_t maximum) {
    int64_t divisor = a;
    for (int64_t rest = b; rest != 0;) {
        int64_t next = divisor % rest;
        divisor = rest;
        rest = next;
    }
    return a / divisor > maximum / b ? maximum : a / divisor * b;
}

/* Until another loss begins, masks repeat with the common multiple of `every`: a run of any length is looked through at
 * once. */
int ups_losses_masks(const ups_loss_config losses[UPS_MAX_LOSSES], int64_t steps, unsigned masks[UPS_MAX_LOSS_SETS]) {
    int64_t period = 1;
    for (int i = 0; i < UPS_MAX_LOSSES; i++) {
        if (losses[i].weight > 0) period = common_multiple(period, losses[i].every, steps);
    }
    int found = 0;
    for (int64_t begin = 0, next; begin < steps; begin = next) {
        next = steps;
        for (int i = 0; i < UPS_MAX_LOSSES; i++) {
            if (losses[i].weight > 0 && losses[i].from > begin && losses[i].from < next) next = losses[i].from;
        }
        int64_t end = next - begin < period ? next : begin + period;
        for (int64_t step = begin; step < end; step++) {
            unsigned mask = ups_losses_due(losses, step);
            bool known = false;
            for (int i = 0; i < found; i++) known = known || masks[i] == mask;
            if (known) continue;
            if (found == UPS_MAX_LOSS_SETS) return found + 1;
            masks[found++] = mask;
        }
    }
    return found;
}

void ups_objective_add(ups_graph *graph, ups_objective *objective, ups_value term, double weight) {
    if (objective->count == UPS_MAX_TERMS) ups_graph_abort(graph, "loss", "more than %d terms", UPS_MAX_TERMS);
    ups_graph_keep(graph, term);
    const ups_value ramp = objective->ramp ? objective->ramp[objective->loss] : UPS_NO_VALUE;
    objective->term[objective->count] = term;
    objective->ramped[objective->count] = ramp == UPS_NO_VALUE ? term : ups_scale(graph, term, 1, ramp);
    objective->loss_of[objective->count] = objective->loss;
    objective->weight[objective->count++] = (float)weight;
}

/* A weighted sum takes few inputs; longer ones are summed in groups, whose results are summed in turn. */
void ups_objective_close(ups_graph *graph, ups_objective *objective) {
    ups_value values[UPS_MAX_TERMS];
    float weights[UPS_MAX_TERMS];
    int count = objective->count;
    memcpy(values, objective->ramped, (size_t)count * sizeof *values);
    memcpy(weights, objective->weight, (size_t)count * sizeof *weights);
    do {
        int groups = 0;
        for (int at = 0; at < count; at += UPS_MAX_INPUTS, groups++) {
            int size = count - at < UPS_MAX_INPUTS ? count - at : UPS_MAX_INPUTS;
            values[groups] = ups_weighted_sum(graph, &values[at], &weights[at], size);
            weights[groups] = 1;
        }
        count = groups;
    } while (count > 1);
    objective->total = values[0];
}

ups_status ups_objective_add_losses(const ups_objective *objective, const ups_step *step, ups_device *device,
                                    int64_t batch, ups_value tasks, ups_update *update, ups_error *error) {
    ups_losses_call call = {
        .term_count = objective->count, .windows = batch, .tasks = ups_step_data(step, tasks), .update = update};
    for (int i = 0; i < objective->count; i++) {
        call.terms[i] = ups_step_data(step, objective->term[i]);
        call.weights[i] = objective->weight[i];
        call.loss_of[i] = objective->loss_of[i];
    }
    return device->class->add_losses(device, &call, error);
}
