/* Rollouts as an HDF5 file in PDEBench's layouts, so that whatever reads the data reads predictions too. */
#ifndef UPS_TOOLS_ROLLOUT_FILE_H
#define UPS_TOOLS_ROLLOUT_FILE_H

#include "base/json.h"
#include "train/evaluation/rollout.h"

typedef struct ups_rollout_origin {
    const char *config;     /* the configuration of this command as YAML */
    const json_t *training; /* the run that trained the operator (train/run/provenance.h), or null */
    const char *split;
    const ups_surrogate_files *files;
    const int64_t *samples; /* of the task's source, by a rollout's position */
} ups_rollout_origin;

/* One field in 1D, where all trajectories share their times and PDE parameters: `tensor` (trajectory, t, x) with x- and
 * t-coordinate, the truth beside it as `truth`. Otherwise one group a trajectory, 0000, 0001, …: `data` (t, x, [y,
 * [z,]] field), `truth`, `grid/t`, `grid/x`, …. Everything is float32; the truth is absent at another resolution, and
 * shorter than the prediction where that goes beyond the data. Root attributes ups.* say what made it; PDE parameters
 * and the boundary (`bc`) are attributes of the root, or of each group. Published: complete or absent. Errors:
 * UPS_ERR_IO. */
ups_status ups_rollout_file_write(const char *path, const ups_rollouts *rollouts, const ups_rollout_origin *origin,
                                  ups_error *error);

#endif
