/* Rollouts as PNG pictures: prediction, truth and error side by side. */
#ifndef UPS_TOOLS_REPORT_ROLLOUTS_PICTURES_H
#define UPS_TOOLS_REPORT_ROLLOUTS_PICTURES_H

#include "tools/report/html.h"
#include "train/evaluation/rollout.h"

/* For every trajectory and every field that changes in time, into `directory` (made when absent), named by task,
 * `ids[position]` and field. 1D: TASK-ID-FIELD.png over space and time, TASK-ID-FIELD-profiles.png at a few times. 2D:
 * TASK-ID-FIELD.png at the first, middle and last predicted frame, with the field it was made from where one never
 * changes (Darcy's coefficient). 3D: the same of the middle plane across z. Without a truth: the prediction alone; of
 * frames beyond it the other plots are blank. `count` receives how many were written. */
ups_status ups_rollout_pictures(const char *directory, const ups_rollouts *rollouts, const int64_t *ids, int *count,
                                ups_error *error);

/* The same on a page, of 1D fields over space and time alone. */
ups_status ups_rollout_show(ups_html *page, const ups_rollouts *rollouts, int *count, ups_error *error);

#endif
