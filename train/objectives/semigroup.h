/* Consistency in time: one step of twice the length leads where two steps lead. No data is asked, so any window has it;
 * the operator is told the length of a step, and learns what it means. */
#ifndef UPS_TRAIN_OBJECTIVES_SEMIGROUP_H
#define UPS_TRAIN_OBJECTIVES_SEMIGROUP_H

#include "model/nets/operator.h"
#include "train/losses.h"

/* What the operator is applied to: as ups_operator_rollout takes it, with a time for each of two steps where these
 * differ. */
typedef struct ups_semigroup_input {
    ups_value z, dt, parameters, task;
} ups_semigroup_input;

/* Of an operator that reads one frame and gives one. Adds half the relative error of f(z, dt + dt') to f(f(z, dt),
 * dt'), and half that of the latter to the former; gradients go into both, each by the half in which it is no target.
 * `states`: what steps of dt from z made, at least one. */
void ups_semigroup_add(ups_graph *graph, ups_objective *objective, const ups_operator_options *options,
                       const ups_semigroup_input *input, const ups_value *states, int steps, double weight);

#endif
