/* Rollouts as an HDF5 file in PDEBench's layouts, so that whatever reads the data reads predictions too. */
#ifndef UPS_TOOLS_ROLLOUT_FILE_H
#define UPS_TOOLS_ROLLOUT_FILE_H

#include "tools/rollout_facts.h"

/* One field in 1D, where all trajectories share their times and PDE parameters: `tensor` (trajectory, t, x) with x- and
 * t-coordinate, the truth beside it as `truth`. Otherwise one group a trajectory, 0000, 0001, …: `data` (t, x, [y,
 * [z,]] field), `truth`, `grid/t`, `grid/x`, …. Axes have names as HDF5's
 * dimension scales: trajectory (its place in the task's data), t, x, y, z and field; t_truth where the truth is
 * shorter. Numbers are float32; the truth is absent at another resolution, and shorter than the prediction where that
 * goes beyond the data. Root attributes ups.* say what made it; PDE parameters and the boundary (`bc`) are attributes
 * of the root, or of each group. Published: complete or absent. Errors: UPS_ERR_IO. */
ups_status ups_rollout_file_write(const char *path, const ups_rollouts *rollouts, const ups_rollout_origin *origin,
                                  ups_error *error);

#endif
