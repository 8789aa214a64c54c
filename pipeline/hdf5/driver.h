/* The file driver through which the HDF5 library reads, and LZF for it.
 *
 * The driver reads with pread and takes no file lock (locks fail on many cluster file systems, and we only read). It
 * can also be asked to note where raw data lies instead of reading it: while a note is armed, a read of raw data
 * records offset and length and touches nothing. That makes H5Dread_chunk a look-up of a chunk's address in O(log n).
 * HDF5's own H5Dget_chunk_info walks all chunks before the one asked for, which takes minutes for the 10⁵ chunks of a
 * PDEBench file. */
#ifndef UPS_PIPELINE_HDF5_DRIVER_H
#define UPS_PIPELINE_HDF5_DRIVER_H

#include "pipeline/hdf5/library.h"

/* Opens a file for reading through our driver; negative on failure, with the `reason`. `note` stays valid until the
 * file is closed. Call within the lock. */
hid_t ups_hdf5_driver_open(const char *path, ups_hdf5_note *note, char reason[300]);

#endif
