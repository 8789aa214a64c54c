/* Drop-path (stochastic depth, Huang et al., arXiv 1603.09382), as every device and the tests compute it. */
#ifndef UPS_MODEL_RANDOM_DROP_PATH_H
#define UPS_MODEL_RANDOM_DROP_PATH_H

#include "base/random.h"
#include "model/op.h"

/* keep_b of a residual op: in training: 0 with probability p = attributes.drop_path, else 1/(1 - p). Sample b of layer
 * l draws number l * 2^32 + b of the stream (seed, drop path, item). */
UPS_ON_DEVICE_TOO static inline float ups_drop_path_keep(const ups_op_attributes *attributes, uint64_t seed,
                                                         uint64_t item, int64_t sample) {
    if (attributes->drop_path <= 0.0f) return 1.0f;
    if (attributes->drop_path >= 1.0f) return 0.0f;
    ups_random stream = ups_random_stream(seed, UPS_RANDOM_DROP_PATH, (uint32_t)item);
    double draw = ups_random_uniform(stream, (uint64_t)attributes->layer << 32 | (uint64_t)sample);
    return draw < (double)attributes->drop_path ? 0.0f : 1.0f / (1.0f - attributes->drop_path);
}

#endif
