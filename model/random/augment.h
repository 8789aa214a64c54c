/* What is drawn where training changes its inputs at random, as every device and the tests compute it: a function of
 * the run's seed and the micro-batch, so that a run that was resumed draws the same, on any number of threads. */
#ifndef UPS_MODEL_RANDOM_AUGMENT_H
#define UPS_MODEL_RANDOM_AUGMENT_H

#include "base/random.h"
#include "model/op.h"

/* The normal number of an element of a noise op. Layer l draws from number l * 2^40 on of the stream (seed, noise,
 * item). */
UPS_ON_DEVICE_TOO static inline double ups_noise_at(const ups_op_attributes *attributes, uint64_t seed, uint64_t item,
                                                    int64_t element) {
    ups_random stream = ups_random_stream(seed, UPS_RANDOM_NOISE, (uint32_t)item);
    return ups_random_normal(stream, ((uint64_t)attributes->layer << 40) + (uint64_t)element);
}

/* By how many cells a shift op moves a sample along an axis: uniform below the cells there are. */
UPS_ON_DEVICE_TOO static inline int64_t ups_shift_of(const ups_op_attributes *attributes, uint64_t seed, uint64_t item,
                                                     int64_t sample, int axis) {
    ups_random stream = ups_random_stream(seed, UPS_RANDOM_SHIFT, (uint32_t)item);
    return (int64_t)ups_random_below(stream, (uint64_t)(3 * sample + axis), (uint64_t)attributes->grid[axis]);
}

/* Where a moved sample has what lay in a cell. */
UPS_ON_DEVICE_TOO static inline int64_t ups_shift_cell(const ups_op_attributes *attributes, const int64_t shift[3],
                                                       int64_t cell) {
    int64_t moved = 0, step = 1;
    for (int axis = 2; axis >= 0; axis--) { /* without an array, which kernels would have in slow memory */
        if (axis >= attributes->dims) continue;
        moved += (cell % attributes->grid[axis] + shift[axis]) % attributes->grid[axis] * step;
        step *= attributes->grid[axis];
        cell /= attributes->grid[axis];
    }
    return moved;
}

#endif
