/* NetCDF-C, for what we do not read ourselves: variables of NetCDF-4 that end within a chunk of their unlimited
 * dimension. Never for the classic formats: it takes a read that comes back short for the end of the file, and gives
 * zeros. A build may lack it. It uses HDF5 and is no more thread-safe, so that it shares HDF5's lock. */
#ifndef UPS_PIPELINE_NETCDF_LIBRARY_H
#define UPS_PIPELINE_NETCDF_LIBRARY_H

#include "base/arena.h"
#include "pipeline/storage/stored_array.h"
#include <sys/stat.h>

/* Its version as it tells it, "4.9.0 of …", or NULL when this build is without it. */
const char *ups_netcdf_library_version(void);

/* Makes NetCDF-C read `array`, which is variable `name` of the file at `path`, and says in `fallback_reason` why. The
 * file is opened anew for each read, which is UPS_ERR_STALE when it is not, or no longer, as it was `opened`.
 * UPS_ERR_UNSUPPORTED when this build is without the library. */
ups_status ups_netcdf_leave_to_library(const char *path, const struct stat *opened, const char *name,
                                       const char *fallback_reason, ups_arena *arena, ups_stored_array *array,
                                       ups_error *error);

#endif
