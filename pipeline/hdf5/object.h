/* Opening objects of an HDF5 file, and attributes which the library can be trusted with. Call all within the lock. */
#ifndef UPS_PIPELINE_HDF5_OBJECT_H
#define UPS_PIPELINE_HDF5_OBJECT_H

#include "pipeline/hdf5/file.h"

/* H5Oopen of a path from the root ("" for the root itself), by whoever then looks at attributes. Negative when there is
 * none, or when its attributes are damaged in a way that the library may not survive; ups_hdf5_reason then says. */
hid_t ups_hdf5_open_for_attributes(const ups_hdf5_file *file, const char *name);

/* H5Aiterate2 over the attributes of an object so opened. Where the library cannot decode them all, a later one wrote
 * them, they are left out, which a line of the log says once a file. */
void ups_hdf5_each_attribute(ups_hdf5_file *file, hid_t object, H5A_operator2_t visit, void *context);

/* Why the library could not decode an attribute in its last call: ups_hdf5_failed, and what to do about it. */
void ups_hdf5_undecodable(ups_hdf5_file *file, char why[600]);

/* Whether an object or attribute lies in this file: behind an external link it does not. */
bool ups_hdf5_is_of(const ups_hdf5_file *file, hid_t part);

#endif
