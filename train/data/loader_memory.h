/* Where a loader's batches lie. */
#ifndef UPS_TRAIN_DATA_LOADER_MEMORY_H
#define UPS_TRAIN_DATA_LOADER_MEMORY_H

#include "model/device.h"
#include "pipeline/loader/loader.h"

/* In host memory that the device's copies are fast from, which must outlive the loader: pinned for a card. */
void ups_loader_use_memory_of(ups_device *device, ups_loader_options *options);

#endif
