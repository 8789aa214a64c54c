/* Objectives: weighted sums of losses, and which losses are taken when.
 *
 * A loss that is not taken at every step (`every`, `from`) changes the graph; graphs are static, so a stage builds one
 * for each set of losses that occurs, and a step picks the one whose mask is due. */
#ifndef UPS_TRAIN_LOSSES_H
#define UPS_TRAIN_LOSSES_H

#include "model/step/step.h"
#include "train/config/config.h"

/* Which losses are taken at a step, as a mask: bit i for losses[i]. */
unsigned ups_losses_due(const ups_loss_config losses[UPS_MAX_LOSSES], int64_t step);
/* The distinct masks that occur in `steps` steps, in the order in which they first occur; returns how many, and
 * UPS_MAX_LOSS_SETS + 1 where there are more than `masks` holds. */
int ups_losses_masks(const ups_loss_config losses[UPS_MAX_LOSSES], int64_t steps, unsigned masks[UPS_MAX_LOSS_SETS]);

/* By how much of its weight a loss counts at a step: all of it, but in its warm-up. */
float ups_losses_ramp(const ups_loss_config *loss, int64_t step);

/* Σ weight · mean over the batch of terms; each term is a loss op's output (B). What is told of losses (add_losses) is
 * with their whole weights, and so is the same curve whether a loss warms up or not. */
typedef struct ups_objective {
    int count;
    const ups_value *ramp; /* (UPS_MAX_LOSSES): inputs (B) that a loss's terms are multiplied by; UPS_NO_VALUE where it
                              does not warm up; NULL: none does */
    ups_value term[UPS_MAX_TERMS], ramped[UPS_MAX_TERMS];
    float weight[UPS_MAX_TERMS];
    int loss_of[UPS_MAX_TERMS];
    int loss;        /* of the stage's own enumeration: what the terms added next belong to */
    ups_value total; /* (1); set by ups_objective_close */
} ups_objective;

void ups_objective_add(ups_graph *graph, ups_objective *objective, ups_value term, double weight);
void ups_objective_close(ups_graph *graph, ups_objective *objective); /* at least one term was added */
/* After a run was issued: adds the objective of every window to the update's losses by task. `tasks`: the graph's input
 * (batch) of int32 that tells a window's task. */
ups_status ups_objective_add_losses(const ups_objective *objective, const ups_step *step, ups_device *device,
                                    int64_t batch, ups_value tasks, ups_update *update, ups_error *error);

#endif
