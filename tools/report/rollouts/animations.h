/* Rollouts as animated PNGs: prediction, truth and error over time. */
#ifndef UPS_TOOLS_REPORT_ROLLOUTS_ANIMATIONS_H
#define UPS_TOOLS_REPORT_ROLLOUTS_ANIMATIONS_H

#include "train/evaluation/rollout.h"

enum { UPS_ANIMATION_FASTEST = 60 }; /* frames a second that may be asked for */

/* For every trajectory and every field that changes in time TASK-ID-FIELD-animation.png in `directory` (made when
 * absent), from the last given frame to the last predicted one: fields side by side in 2D, of the middle plane along
 * the last axis in 3D, curves in 1D. Scales and axes hold all frames, and stay. Without a truth: the prediction alone;
 * where it ends, the other plots are blank.
 *
 * With `rate` every frame is shown, so many a second. With 0 all of it takes about five seconds, at 10 to 30 frames a
 * second; of more frames than that some are chosen. The last one stays for a second. What has one predicted frame
 * alone, as Darcy flow, is no animation. `count` receives how many were written. */
ups_status ups_rollout_animations(const char *directory, const ups_rollouts *rollouts, const int64_t *ids, int rate,
                                  int *count, ups_error *error);

#endif
