/* Devices of all ranks, joined so that they exchange what lies in their own memories (ups_peers_class of
 * model/device.h). */
#ifndef UPS_TRAIN_COMM_JOIN_H
#define UPS_TRAIN_COMM_JOIN_H

#include "model/device.h"
#include "train/comm/comm.h"

/* Collective: all ranks' devices join, or none does, *peers is NULL, and the log says which rank could not, and why;
 * that is an error where it is `required`. `most_blocks`: ups_peers_place. The caller leaves by
 * device->class->peers->leave. */
ups_status ups_join_devices(ups_comm *comm, ups_device *device, bool required, int most_blocks, ups_peers **peers,
                            ups_error *error);

#endif
