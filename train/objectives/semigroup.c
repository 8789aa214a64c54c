#include "train/objectives/semigroup.h"

#include "train/config/config.h"

void ups_semigroup_add(ups_graph *graph, ups_objective *objective, const ups_operator_options *options,
                       const ups_semigroup_input *input, const ups_value *states, int steps, double weight) {
    ups_value at_once, after_two;
    ups_value first = input->dt, longer;
    if (ups_shape_last(ups_graph_info(graph, first)->shape) > 1 && steps > 1)
        longer = ups_add(graph, ups_slice(graph, first, 0, 1), ups_slice(graph, first, 1, 1));
    else
        longer = ups_scale(graph, first, 2, UPS_NO_VALUE);
    ups_operator_rollout(graph, options, &input->z, longer, input->parameters, input->task, 1, &at_once);
    if (steps > 1)
        after_two = states[1];
    else
        ups_operator_rollout(graph, options, &states[0], input->dt, input->parameters, input->task, 1, &after_two);
    objective->loss = UPS_OPERATOR_SEMIGROUP;
    ups_objective_add(graph, objective, ups_loss_relative(graph, at_once, after_two), weight / 2);
    ups_objective_add(graph, objective, ups_loss_relative(graph, after_two, at_once), weight / 2);
}
