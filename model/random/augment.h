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

/* Which of `count` symmetries a sample is seen by. A symmetry is 2^dims times the order of axes, and a bit for each
 * axis that is reflected. */
UPS_ON_DEVICE_TOO static inline int64_t ups_symmetry_of(uint64_t seed, uint64_t item, int64_t sample, int64_t count) {
    ups_random stream = ups_random_stream(seed, UPS_RANDOM_SYMMETRY, (uint32_t)item);
    return (int64_t)ups_random_below(stream, (uint64_t)sample, (uint64_t)count);
}

/* What lies along an axis afterwards lay along this one. */
UPS_ON_DEVICE_TOO static inline int ups_symmetry_axis(int dims, int64_t symmetry, int axis) {
    const int order = (int)(symmetry >> dims); /* of three axes 012, 021, 102, 120, 201, 210 */
    if (dims < 3) return order ? 1 - axis : axis;
    const int first = order / 2, low = first == 0 ? 1 : 0, high = 3 - first - low;
    if (axis == 0) return first;
    return (axis == 1) == (order % 2 == 0) ? low : high;
}

/* Whether an axis then runs backwards. */
UPS_ON_DEVICE_TOO static inline bool ups_symmetry_reflects(int64_t symmetry, int axis) {
    return symmetry >> axis & 1;
}

/* Where what comes to lie in a cell, or at a point, lay. n: along each axis. */
UPS_ON_DEVICE_TOO static inline int64_t ups_symmetry_from(int dims, const int64_t n[3], int64_t symmetry,
                                                          int64_t cell) {
    int64_t from = 0;
    for (int axis = dims - 1; axis >= 0; axis--) {
        const int64_t at = cell % n[axis], placed = ups_symmetry_reflects(symmetry, axis) ? n[axis] - 1 - at : at;
        const int was = ups_symmetry_axis(dims, symmetry, axis);
        int64_t step = 1;
        for (int behind = was + 1; behind < dims; behind++) step *= n[behind];
        from += placed * step;
        cell /= n[axis];
    }
    return from;
}

#endif
