/* NetCDF-4 is HDF5 with rules: a dimension is a "dimension scale" dataset in the root group, whose REFERENCE_LIST
 * attribute says of which variables it is a dimension; names beginning with an underscore are for the format itself.
 * This reads that into the description that the classic formats have too. Groups below the root are not looked into.
 *
 * Source: "NetCDF-4 file format" (Unidata, NetCDF User's Guide, appendix C) and the HDF5 Dimension Scale specification.
 */
#ifndef UPS_PIPELINE_NETCDF_HDF5_H
#define UPS_PIPELINE_NETCDF_HDF5_H

#include "pipeline/hdf5/storage.h"
#include "pipeline/netcdf/header.h"

/* The file says that NetCDF wrote it (_NCProperties), or has a dimension scale at its root. */
bool ups_netcdf_hdf5_recognises(ups_hdf5_file *file);

/* Describes the root group; all of it in `arena`. Variables come in the order of their creation where the file keeps
 * it, else by name; one without dimension scales, of another type than numbers, or that cannot be opened is left out.
 */
ups_status ups_netcdf_hdf5_describe(ups_hdf5_file *file, ups_arena *arena, ups_netcdf_header *header, ups_error *error);

#endif
