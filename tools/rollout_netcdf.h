/* Rollouts as a NetCDF-4 file with the CF conventions (CF-1.11), for xarray, ncview and the like.
 *
 * Dimensions: trajectory, time, and the grid's axes by the names that the data have (else x, y, z), each with a
 * coordinate variable. A field is a variable (trajectory, time, grid…) of float32 by its own name, its truth
 * NAME_truth, which is filled (_FillValue, NaN) where there is none. Where trajectories differ in their times, `time`
 * counts frames and t (trajectory, time) tells them. A PDE parameter is a global attribute, or, where trajectories
 * differ in it, a variable (trajectory). Global attributes ups.* say what made the file. */
#ifndef UPS_TOOLS_ROLLOUT_NETCDF_H
#define UPS_TOOLS_ROLLOUT_NETCDF_H

#include "tools/rollout_facts.h"

bool ups_rollout_is_netcdf(const char *path); /* it ends in .nc */

/* UPS_ERR_UNSUPPORTED, with a sentence, in a build without NetCDF-C. */
ups_status ups_rollout_netcdf_available(const char *path, ups_error *error);

/* Published: complete or absent. Errors: UPS_ERR_IO, UPS_ERR_UNSUPPORTED. */
ups_status ups_rollout_netcdf_write(const char *path, const ups_rollouts *rollouts, const ups_rollout_origin *origin,
                                    ups_error *error);

#endif
