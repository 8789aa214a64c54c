/* What the processes that train together compute and hold, for a line of the metrics. */
#ifndef UPS_TRAIN_COMM_USAGE_H
#define UPS_TRAIN_COMM_USAGE_H

#include "base/json.h"
#include "model/device.h"
#include "model/devices/cards.h"
#include "train/comm/comm.h"

typedef struct ups_usage {
    ups_arithmetic arithmetic;        /* of all processes together */
    uint64_t resident, resident_peak; /* bytes in the host's memory (memory_limit.h), of the process with the most */
    uint64_t device; /* bytes of a device's own memory that are taken, by whoever; of the fullest; 0: it has none */
} ups_usage;

/* Collective; `own` is this process's arithmetic. */
ups_status ups_usage_gather(ups_comm *comm, ups_device *device, const ups_arithmetic *own, ups_usage *usage,
                            ups_error *error);
/* Adds `flops_per_s`, `mfu` and `memory` to a line: of what was computed in `seconds`, by so many processes with a
 * device each. What is not known is left out. */
void ups_usage_describe(const ups_usage *usage, double seconds, int processes, json_t *line);

#endif
