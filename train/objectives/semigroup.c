#include "train/objectives/semigroup.h"

#include "train/config/config.h"

void ups_semigroup_add(ups_graph *graph, ups_objective *objective, const ups_operator_options *options,
                       const ups_semigroup_input *input, const ups_value *states, int steps, double weight) {
    ups_value at_once, after_two;
    ups_value longer = ups_scale(graph, input->dt, 2, UPS_NO_VALUE);
    ups_operator_rollout(graph, options, &input->z, longer, input->parameters, input->task, 1, &at_once);
    if (steps > 1)
        after_two = states[1];
    else
        ups_operator_rollout(graph, options, &states[0], input->dt, input->parameters, input->task, 1, &after_two);
    objective->loss = UPS_OPERATOR_SEMIGROUP;
    ups_objective_add(graph, objective, ups_loss_relative(graph, at_once, after_two), weight / 2);
    ups_objective_add(graph, objective, ups_loss_relative(graph, after_two, at_once), weight / 2);
}
