/* Attributes of an HDF5 file's objects, for those that read them by the library. Call within the lock. */
#ifndef UPS_PIPELINE_HDF5_ATTRIBUTES_H
#define UPS_PIPELINE_HDF5_ATTRIBUTES_H

#include "pipeline/hdf5/file.h"

/* H5Oopen of a path from the root ("" for the root itself), by whoever then looks at attributes. Negative when there is
 * none, or when its attributes are damaged in a way that the library may not survive; ups_hdf5_reason then says. */
hid_t ups_hdf5_open_for_attributes(const ups_hdf5_file *file, const char *name);

/* H5Aiterate2 over the attributes of an object so opened. Where the library cannot decode them all, a later one wrote
 * them, they are left out, which a line of the log says once a file. */
void ups_hdf5_each_attribute(ups_hdf5_file *file, hid_t object, H5A_operator2_t visit, void *context);

#endif
