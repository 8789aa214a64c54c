/* The header of an NPY file, or of a member of an NPZ file: a magic, a version, and a Python dictionary of three keys.
 * Source: numpy.lib.format, https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html (versions 1.0 to
 * 3.0). The parser takes bytes that may come from anyone. */
#ifndef UPS_PIPELINE_NUMPY_HEADER_H
#define UPS_PIPELINE_NUMPY_HEADER_H

#include "base/error.h"
#include "pipeline/storage/packing.h"
#include "pipeline/storage/placing.h"

#define UPS_NPY_LONGEST_HEADER ((size_t)1 << 20)

typedef struct ups_npy_header {
    char type[32]; /* as NumPy writes it: "<f4"; "structured" where it is a list */
    bool numeric;  /* the next two are set */
    ups_number number;
    bool swapped; /* stored in the other byte order */
    bool fortran; /* the first axis varies fastest */
    int rank;
    int64_t shape[UPS_ARRAY_MAX_RANK];
    uint64_t elements; /* of all axes; 1 of a scalar */
    uint64_t data;     /* bytes from the magic to the first element */
} ups_npy_header;

/* Parses what begins with the magic, of which `length` bytes are there. UPS_ERR_FORMAT or UPS_ERR_UNSUPPORTED with a
 * sentence that does not name the file; when the header goes on beyond `length`, *wanted is how many bytes to come back
 * with, else 0. */
ups_status ups_npy_header_parse(const uint8_t *bytes, size_t length, ups_npy_header *header, size_t *wanted,
                                ups_error *error);

#endif
