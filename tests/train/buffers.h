/* Where parameters lie in the buffers that checkpoints keep. */
#ifndef UPS_TESTS_TRAIN_BUFFERS_H
#define UPS_TESTS_TRAIN_BUFFERS_H

#include "model/parameters/parameters.h"

/* Of a buffer that holds all of the parameter; −1: it has none of it. */
static inline int64_t place_in(const ups_parameter_buffer *buffer, const ups_parameters *parameters, int32_t index) {
    const ups_parameter *of = ups_parameters_get(parameters, index);
    ups_parameter_part part;
    if (buffer->has && !buffer->has[index]) return -1;
    if (!ups_parameter_find_part(buffer->parts, buffer->part_count, of->offset, of->offset + of->elements, &part) ||
        part.count != of->elements)
        return -1;
    return part.place;
}

#endif
