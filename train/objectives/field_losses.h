/* The operator's losses on decoded fields, for tasks whose tokens are the cells of a grid (field.h). All are of
 * normalised fields, so that fields of different size count alike:
 *
 *   decoded       mean over channels of ‖p − t‖ / ‖t‖ of a frame, t in the field's own units: nRMSE. ‖t‖ is at least a
 *                 thousandth of that of a field of deviation 1, so that a field of zeros gives no infinity
 *   spectral      mean over octaves of wavenumbers and channels of ‖P − T‖ / ‖T‖, P and T the Fourier modes (cosine
 *                 modes along axes that are not periodic) of an octave: 0 to 1, 1 to 2, 2 to 4, … waves in the domain.
 *                 The norm of T is at least a hundredth of the whole field's, so that octaves without anything in them
 *                 do not count more than a hundred times as much
 *   conservation  mean over fields of (mean p − mean t)², means over grid points
 *   positivity    mean over points of min(p, 0)², p in the field's own units over its deviation
 *   divergence    mean over points of (div p − div t)², by central differences: of the grid's interior where the domain
 *                 is not periodic; times the finest grid spacing, over the velocities' deviation
 *   boundary      mean over the grid's outermost points of (p − t)²; nothing where the domain is periodic
 *
 * decoded is taken of the first step, rollout_decoded of the later ones; the others are means over all steps that a
 * window is rolled out. */
#ifndef UPS_TRAIN_OBJECTIVES_FIELD_LOSSES_H
#define UPS_TRAIN_OBJECTIVES_FIELD_LOSSES_H

#include "train/losses.h"
#include "train/objectives/field.h"

/* Whether the run takes any of them. */
bool ups_field_losses_wanted(const ups_run_config *config);

/* Whether tasks have the fields that they name. A field that no task has is an error, with the name that was meant; a
 * loss that has nothing to hold on to in any task, too. */
ups_status ups_field_losses_check(const ups_run_config *config, const ups_tasks *tasks, ups_error *error);

/* A window's latents (B, frames, tokens, dim): those that the operator reads, and then the truth of its states. */
typedef struct ups_field_window {
    ups_value latents;
    int given;  /* frames that it reads */
    int bundle; /* states that an application gives: "the first step" above is all of the first one's */
} ups_field_window;

/* Adds those of `losses` (a mask by UPS_OPERATOR_…) that concern the task, for states[k] (B, tokens, dim), k < steps.
 * maps NULL: for a plan. */
void ups_field_losses_add(const ups_run_config *config, const ups_tasks *tasks, int task, const ups_field_maps *maps,
                          unsigned losses, ups_graph *graph, ups_objective *objective, const ups_field_window *window,
                          const ups_value *states, int steps);

#endif
