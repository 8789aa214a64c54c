/* NetCDF files, classic or NetCDF-4: what they contain (netcdf_header.h) and where they keep it. The header is parsed
 * once; then bytes are fetched and decoded as those of any stored array. A variable without the unlimited dimension is
 * one extent; of one with it, every record is one; NetCDF-4 is mapped as the HDF5 that it is.
 *
 * Values come out as float32 or float64 as the CF conventions and the NetCDF User's Guide say: missing values, fill
 * values and what lies outside the valid range become NaN, and scale_factor and add_offset are applied.
 *
 * Errors name the file. */
#ifndef UPS_PIPELINE_NETCDF_STORAGE_H
#define UPS_PIPELINE_NETCDF_STORAGE_H

#include "pipeline/hdf5/storage.h"
#include "pipeline/netcdf/header.h"
#include "pipeline/storage/stored_array.h"

typedef struct ups_netcdf_file ups_netcdf_file;

/* The file begins as NetCDF-3 and CDF-5 files do. */
bool ups_netcdf_is_classic(const char *path);

/* Opens a classic file. */
ups_status ups_netcdf_open(const char *path, ups_netcdf_file **file, ups_error *error);

/* Looks at an open HDF5 file as NetCDF-4. `hdf5` is borrowed. */
ups_status ups_netcdf_open_hdf5(ups_hdf5_file *hdf5, ups_netcdf_file **file, ups_error *error);

void ups_netcdf_close(ups_netcdf_file *file); /* mapped arrays live on: they need only their arena. NULL is fine */

const char *ups_netcdf_path(const ups_netcdf_file *file);
const ups_netcdf_header *ups_netcdf_contents(const ups_netcdf_file *file); /* lives as long as the file */

/* The element type that a variable of numbers is read as. */
ups_dtype ups_netcdf_dtype(const ups_netcdf_variable *variable);

/* Finds out where a variable of numbers, of rank 1 to UPS_ARRAY_MAX_RANK, lies; `dtype` is what it shall decode to, its
 * ups_netcdf_dtype or a wider one. The array and what it points to live in `arena`. */
ups_status ups_netcdf_map(ups_netcdf_file *file, const ups_netcdf_variable *variable, ups_dtype dtype,
                          uint32_t file_index, ups_arena *arena, ups_stored_array *array, ups_error *error);

/* Reads a variable of rank 1, or of none, of at most `limit` numbers as doubles, into `arena`. */
ups_status ups_netcdf_read(ups_netcdf_file *file, const ups_netcdf_variable *variable, int64_t limit, ups_arena *arena,
                           double **values, int64_t *count, ups_error *error);

#endif
