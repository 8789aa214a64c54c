/* Cards of several processes, which exchange gradients and weights in their own memory by NCCL (ups_peers_class of
 * model/device.h).
 *
 * Shares differ in length, and lie in any order: each piece is a sum on one card, or goes from one card to all, and
 * those of a call are issued to NCCL as one group. */
#ifndef UPS_MODEL_CUDA_PEERS_PEERS_H
#define UPS_MODEL_CUDA_PEERS_PEERS_H

#include "model/device.h"

extern const ups_peers_class ups_cuda_peers;

#endif
