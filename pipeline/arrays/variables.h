/* Variables of a NetCDF file as arrays: what the classic formats and NetCDF-4 share. */
#ifndef UPS_PIPELINE_ARRAYS_VARIABLES_H
#define UPS_PIPELINE_ARRAYS_VARIABLES_H

#include "pipeline/arrays/format.h"
#include "pipeline/netcdf/storage.h"

const ups_netcdf_variable *ups_variables_find(const ups_netcdf_file *file,
                                              const char *name); /* NULL: none of numbers */
void ups_variables_list(const ups_netcdf_file *file, ups_outline_list *list);
ups_status ups_variables_read(ups_netcdf_file *file, const ups_netcdf_variable *variable, int64_t limit,
                              ups_arena *arena, ups_numbers *numbers, ups_error *error);

#endif
