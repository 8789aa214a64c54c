#include "train/losses.h"

unsigned ups_losses_due(const ups_loss_config losses[UPS_MAX_LOSSES], int64_t step) {
    unsigned mask = 0;
    for (int i = 0; i < UPS_MAX_LOSSES; i++) {
        bool due = losses[i].weight > 0 && step >= losses[i].from && step % losses[i].every == 0;
        if (due) mask |= 1u << i;
    }
    return mask;
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
int ups_losses_masks(const ups_loss_config losses[UPS_MAX_LOSSES], int64_t steps, unsigned *masks) {
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
            if (!known) masks[found++] = mask;
        }
    }
    return found;
}

void ups_objective_add(ups_graph *graph, ups_objective *objective, ups_value term, double weight) {
    if (objective->count == UPS_MAX_TERMS) ups_graph_abort(graph, "loss", "more than %d terms", UPS_MAX_TERMS);
    ups_graph_keep(graph, term);
    objective->term[objective->count] = term;
    objective->weight[objective->count++] = (float)weight;
}

/* A weighted sum takes few inputs; longer ones are summed in groups, whose results are summed in turn. */
void ups_objective_close(ups_graph *graph, ups_objective *objective) {
    ups_value sums[UPS_MAX_TERMS];
    float ones[UPS_MAX_TERMS];
    int groups = 0;
    for (int at = 0; at < objective->count; at += UPS_MAX_INPUTS) {
        int size = objective->count - at < UPS_MAX_INPUTS ? objective->count - at : UPS_MAX_INPUTS;
        ones[groups] = 1;
        sums[groups++] = ups_weighted_sum(graph, &objective->term[at], &objective->weight[at], size);
    }
    objective->total = groups == 1 ? sums[0] : ups_weighted_sum(graph, sums, ones, groups);
}

ups_status ups_objective_add_losses(const ups_objective *objective, const ups_step *step, ups_device *device,
                                    int64_t batch, ups_value tasks, ups_update *update, ups_error *error) {
    ups_losses_call call = {
        .term_count = objective->count, .windows = batch, .tasks = ups_step_data(step, tasks), .update = update};
    for (int i = 0; i < objective->count; i++) {
        call.terms[i] = ups_step_data(step, objective->term[i]);
        call.weights[i] = objective->weight[i];
    }
    return device->class->add_losses(device, &call, error);
}
