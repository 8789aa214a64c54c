/* How UPS reads bytes of an HDF5 file beside the library: numbers, their sizes, and what went wrong when they were
 * read.
 */
#ifndef UPS_PIPELINE_HDF5_BYTES_H
#define UPS_PIPELINE_HDF5_BYTES_H

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>

/* A little-endian number of `count` ≤ 8 bytes. */
static inline uint64_t ups_hdf5_number(const uint8_t *bytes, int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; i++) value |= (uint64_t)bytes[i] << 8 * i;
    return value;
}

/* How a file writes addresses and lengths: nearly always in 8 bytes each, but its writer may have chosen others
 * (H5Pset_sizes). */
typedef struct ups_hdf5_sizes {
    int address, length; /* bytes of one; 0 of both: not known, or more than UPS takes */
    uint64_t base;       /* bytes before the HDF5 file proper (a user block); addresses count from there */
} ups_hdf5_sizes;

/* Call within the lock. */
ups_hdf5_sizes ups_hdf5_sizes_of(hid_t file);

/* A file that could not be read everywhere. The library goes on without what it could not read, and what it then says
 * to be absent may be there. */
typedef struct ups_hdf5_trouble {
    int error_number; /* of the first read that was refused; 0: none was */
    bool cut;         /* the file ended before the end that it had when it was opened */
} ups_hdf5_trouble;

/* Reads all of what lies within the file, of `end` bytes at opening; false when it is not there any more, or refused,
 * which is noted, or does not lie within. */
bool ups_hdf5_read(int fd, uint64_t end, uint64_t address, void *bytes, size_t length, ups_hdf5_trouble *trouble);

#endif
