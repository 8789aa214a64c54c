/* How the attributes of a NetCDF variable say that its numbers are to be read. */
#ifndef UPS_PIPELINE_NETCDF_CF_H
#define UPS_PIPELINE_NETCDF_CF_H

#include "pipeline/netcdf/header.h"
#include "pipeline/storage/packing.h"

/* Attributes _FillValue, missing_value, valid_range, valid_min, valid_max, scale_factor, add_offset and _Unsigned;
 * where there is no _FillValue, the fill value that NetCDF itself writes counts as missing, except for bytes. A missing
 * value that the variable's integer type cannot hold means nothing and is left out.
 *
 * `number` is what the values will be when they are unpacked: the variable's stored type, or a float type when a
 * library has read them already. The packing lives in `arena`. */
const ups_packing *ups_netcdf_packing(const ups_netcdf_variable *variable, ups_number number, ups_arena *arena);

/* The stored type of a variable of numbers, _Unsigned heeded. */
ups_number ups_netcdf_stored_number(const ups_netcdf_variable *variable);

/* The value of places never written, as one element of `number` in this machine's byte order. */
void ups_netcdf_fill(const ups_netcdf_variable *variable, ups_number number, uint8_t fill[8]);

/* Seconds in a unit of time ("s", "hours", "days since 1900-01-01"), or 0 when the text is none. */
double ups_netcdf_seconds(const char *units);

#endif
