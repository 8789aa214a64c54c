/* Objectives: weighted sums of losses, and which losses are taken when.
 *
 * A loss that is not taken at every step (`every`, `from`) changes the graph; graphs are static, so a stage builds one
 * for each set of losses that occurs, and a step picks the one whose mask is due. */
#ifndef UPS_TRAIN_LOSSES_H
#define UPS_TRAIN_LOSSES_H

#include "model/step.h"
#include "train/config/config.h"

#define UPS_MAX_TERMS 64

/* Which losses are taken at a step, as a mask: bit i for losses[i]. */
unsigned ups_losses_due(const ups_loss_config losses[UPS_MAX_LOSSES], int64_t step);
/* The distinct masks that occur in `steps` steps, at most 2^UPS_MAX_LOSSES, in the order in which they first occur;
 * returns how many. */
int ups_losses_masks(const ups_loss_config losses[UPS_MAX_LOSSES], int64_t steps, unsigned *masks);

/* Σ weight · mean over the batch of terms; each term is a loss op's output (B). */
typedef struct ups_objective {
    int count;
    ups_value term[UPS_MAX_TERMS];
    float weight[UPS_MAX_TERMS];
    ups_value total; /* (1); set by ups_objective_close */
} ups_objective;

void ups_objective_add(ups_graph *graph, ups_objective *objective, ups_value term, double weight);
void ups_objective_close(ups_graph *graph, ups_objective *objective); /* at least one term was added */
/* The objective of every window of the batch after a run: (batch) in `out`; `scratch` holds batch floats as well. */
ups_status ups_objective_read(const ups_objective *objective, const ups_step *step, int64_t batch, float *scratch,
                              float *out, ups_error *error);

#endif
