/* Rollouts on points that lie anywhere, as pictures need them: on a regular grid. Values between points are linear in
 * the triangles of a mesh (quadrilaterals are two), where the file tells cells; elsewhere a value is that of the
 * nearest point, if one is near. What lies outside of the mesh, or far from all points, is NaN, which pictures leave
 * blank. Of points in space it is the plane through the middle of the last axis. Points that move are where each
 * frame says: prediction and truth each have their own. */
#ifndef UPS_TOOLS_REPORT_ROLLOUTS_RASTER_H
#define UPS_TOOLS_REPORT_ROLLOUTS_RASTER_H

#include "train/evaluation/rollout.h"

typedef struct ups_rollout_raster {
    ups_rollouts rollouts; /* of one trajectory, on the grid; times, errors and names are borrowed from the original */
    ups_task task;         /* that it says it is of */
    ups_rollout rollout;
} ups_rollout_raster;

/* Trajectory `index` of rollouts whose task has points. */
ups_status ups_rollout_raster_make(const ups_rollouts *rollouts, int64_t index, ups_rollout_raster *raster,
                                   ups_error *error);
void ups_rollout_raster_free(ups_rollout_raster *raster);

#endif
