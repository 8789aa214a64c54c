/* Opening objects of an HDF5 file whose attributes can be trusted to the library. */
#ifndef UPS_PIPELINE_HDF5_OBJECT_H
#define UPS_PIPELINE_HDF5_OBJECT_H

#include "pipeline/hdf5_file.h"

/* H5Oopen of a path from the root ("" for the root itself), by whoever then looks at attributes. Negative when there is
 * none, or when its attributes are damaged, which ups_hdf5_reason then says. Call within the lock. */
hid_t ups_hdf5_open_for_attributes(const ups_hdf5_file *file, const char *name);

#endif
