/* Which machine computes, in words, for what is kept of speeds: those of unlike machines say nothing of a
 * configuration. Not its name: two of a kind are as good as one. */
#ifndef UPS_TRAIN_RUN_MACHINE_H
#define UPS_TRAIN_RUN_MACHINE_H

#include "base/json.h"
#include "model/device.h"

/* "AMD EPYC 9V74 80-Core Processor, avx512, 2 threads"; of a card "NVIDIA H200, AMD EPYC …". A new reference; NULL: no
 * memory. */
json_t *ups_machine_describe(const ups_device *device);

#endif
