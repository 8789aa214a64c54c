/* Data layout messages of HDF5 files, looked into before the library takes them apart. */
#ifndef UPS_PIPELINE_HDF5_LAYOUT_MESSAGE_H
#define UPS_PIPELINE_HDF5_LAYOUT_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

/* False for chunks without axes, or without extent along one: HDF5 1.10 divides by it. What the library checks by
 * itself is not asked here. `address_bytes`: of an address in this file. *axes: of a chunk, one more than the dataset
 * has, and 0 for other layouts. */
bool ups_hdf5_sound_layout(const uint8_t *message, uint64_t length, int address_bytes, int *axes);

#endif
