/* Windows of the operator's training as the symmetries of their grid show them (operator.augment: symmetries):
 * reflected along axes, and with axes that are alike exchanged, at random. What solves an equation without a direction
 * of its own then still solves it, so that a trajectory shows up to 2^dims · dims! of them.
 *
 * On a grid of tokens encoder and decoder are linear maps of a patch: a window is decoded, moved, and the change
 * encoded. Fields are scalars, which keep their values, or components of vectors (operator.vectors), which change their
 * sign with their axis and go with it to another one. Each window is moved as a whole; a validation's stay as they are.
 */
#ifndef UPS_TRAIN_OBJECTIVES_SYMMETRIES_H
#define UPS_TRAIN_OBJECTIVES_SYMMETRIES_H

#include "train/objectives/field.h"

/* UPS_ERR_CONFIG where no task's windows can be moved so, or operator.vectors is given and names a field of no task.
 * Data whose vectors have a large mean are no error: their windows stay as they are. */
ups_status ups_symmetries_check(const ups_run_config *config, const ups_tasks *tasks, ups_error *error);
/* Logs how each task's windows are seen, and which of its fields are vectors; or why they are not. */
void ups_symmetries_say(const ups_run_config *config, const ups_tasks *tasks);

/* A window's latents (B, frames, tokens, dim) float32, each window by a symmetry of its own; the window itself for a
 * task without any, or where the run takes none. maps NULL: for a plan. */
ups_value ups_symmetries_build(ups_graph *graph, const ups_run_config *config, const ups_tasks *tasks, int task,
                               const ups_field_maps *maps, ups_value window);

#endif
