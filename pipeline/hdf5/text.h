/* Texts of variable length in attributes of an HDF5 file, fetched from the file's global heaps by UPS itself. */
#ifndef UPS_PIPELINE_HDF5_TEXT_H
#define UPS_PIPELINE_HDF5_TEXT_H

#include "pipeline/hdf5/file.h"

/* The `count` texts of an attribute whose type is a string of variable length: `texts` (count) receives them, each to
 * be freed, NULL for one that the file has none of. False when one cannot be had, or is longer than `longest`; all are
 * NULL then. Call within the lock. */
bool ups_hdf5_read_texts(ups_hdf5_file *file, hid_t attribute, int64_t count, uint64_t longest, char **texts);

#endif
