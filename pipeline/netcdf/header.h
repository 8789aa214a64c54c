/* What a NetCDF file holds: dimensions, variables, attributes; and, for the classic formats, where. The same
 * description serves NetCDF-4 (see netcdf_hdf5.h).
 *
 * The classic formats are CDF-1 (NetCDF-3), CDF-2 (64-bit offsets) and CDF-5 (64-bit counts and offsets). Source: "The
 * NetCDF Classic Format Specification" (Unidata, NetCDF User's Guide, appendix B) and "CDF-5 file format specification"
 * (PnetCDF). Everything is big-endian and padded to four bytes.
 *
 * The parser takes bytes that may come from anyone: every count is held against what is left of the input before memory
 * is asked for, sizes are computed rather than believed, and no arithmetic on them can wrap. */
#ifndef UPS_PIPELINE_NETCDF_HEADER_H
#define UPS_PIPELINE_NETCDF_HEADER_H

#include "base/arena.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ups_netcdf_type { /* numbered as in the file */
                               UPS_NETCDF_BYTE = 1,
                               UPS_NETCDF_CHAR,
                               UPS_NETCDF_SHORT,
                               UPS_NETCDF_INT,
                               UPS_NETCDF_FLOAT,
                               UPS_NETCDF_DOUBLE,
                               UPS_NETCDF_UBYTE, /* from here on CDF-5 and NetCDF-4 only */
                               UPS_NETCDF_USHORT,
                               UPS_NETCDF_UINT,
                               UPS_NETCDF_INT64,
                               UPS_NETCDF_UINT64,
                               UPS_NETCDF_OTHER, /* NetCDF-4's strings and types of the user's own */
} ups_netcdf_type;

size_t ups_netcdf_type_size(ups_netcdf_type type); /* bytes in the file; 0 for UPS_NETCDF_OTHER */

typedef struct ups_netcdf_attribute {
    const char *name;
    ups_netcdf_type type;
    int64_t count;
    const void *values; /* `count` numbers in this machine's byte order; of CHAR: a text with a NUL behind it */
} ups_netcdf_attribute;

typedef struct ups_netcdf_dimension {
    const char *name;
    int64_t length; /* of an unlimited one: the number of records */
    bool unlimited;
} ups_netcdf_dimension;

typedef struct ups_netcdf_variable {
    const char *name;
    ups_netcdf_type type;
    int rank;
    const int64_t *dimensions; /* (rank) indices */
    int64_t attribute_count;
    const ups_netcdf_attribute *attributes;

    /* classic formats only */
    bool record;     /* its first dimension is the unlimited one */
    uint64_t bytes;  /* of all of it, or of one record; without padding */
    uint64_t offset; /* of the first byte; not yet held against the file's size */

    const char *dataset; /* NetCDF-4 only: its name as HDF5 has it */
} ups_netcdf_variable;

typedef struct ups_netcdf_header {
    int version; /* 1, 2, 5; 4 for NetCDF-4 */
    int64_t dimension_count, variable_count, attribute_count;
    const ups_netcdf_dimension *dimensions;
    const ups_netcdf_variable *variables;
    const ups_netcdf_attribute *attributes; /* global */
    int64_t records;
    uint64_t record_bytes; /* from one record to the next, over all record variables */
} ups_netcdf_header;

#define UPS_NETCDF_LARGEST_HEADER ((size_t)16 << 20)

/* Parses the header at the start of a file of `file_bytes`, of which the first `length` are in `bytes`. Everything it
 * gives lives in `arena`. UPS_ERR_FORMAT, with a sentence that does not name the file, when it is damaged; when it goes
 * on beyond `length`, *wanted is set to how many bytes to come back with (more than `length`, at most file_bytes), and
 * else to 0. */
ups_status ups_netcdf_header_parse(const uint8_t *bytes, size_t length, uint64_t file_bytes, ups_arena *arena,
                                   ups_netcdf_header *header, size_t *wanted, ups_error *error);

/* An attribute by name, or NULL. */
const ups_netcdf_attribute *ups_netcdf_find(const ups_netcdf_attribute *attributes, int64_t count, const char *name);

/* Value `index` of a numeric attribute. */
double ups_netcdf_number(const ups_netcdf_attribute *attribute, int64_t index);

#endif
