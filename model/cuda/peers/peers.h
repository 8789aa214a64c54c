/* Cards of several processes, which exchange gradients and weights in their own memory by NCCL (ups_peers_class of
 * model/device.h). */
#ifndef UPS_MODEL_CUDA_PEERS_PEERS_H
#define UPS_MODEL_CUDA_PEERS_PEERS_H

#include "model/device.h"

extern const ups_peers_class ups_cuda_peers;

#endif
