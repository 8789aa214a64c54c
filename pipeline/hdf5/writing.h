/* What failed while the HDF5 library was writing, as a sentence. */
#ifndef UPS_PIPELINE_HDF5_WRITING_H
#define UPS_PIPELINE_HDF5_WRITING_H

#include "base/error.h"

/* As ups_hdf5_enter; and notes why the first call fails, until ups_hdf5_leave. (The library forgets it with the next
 * call, which often only closes what was opened.) */
void ups_hdf5_enter_to_write(void);

/* After a failed call: UPS_ERR_IO with the system's reason (no space, quota, …) where the library knows it, otherwise
 * with its own. `what`, of the file `name`, was to be written. */
ups_status ups_hdf5_write_failed(const char *name, const char *what, ups_error *error);

#endif
