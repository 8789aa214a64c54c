/* Datatype messages of HDF5 files, looked into before the library takes them apart. */
#ifndef UPS_PIPELINE_HDF5_TYPE_MESSAGE_H
#define UPS_PIPELINE_HDF5_TYPE_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether a datatype message of at most `length` bytes, types within it included, lies within them and has parts that
 * fit its size. What the library checks by itself is not asked here. */
bool ups_hdf5_sound_type(const uint8_t *bytes, uint64_t length);

#endif
