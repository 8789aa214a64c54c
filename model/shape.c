#include "model/shape.h"

int64_t ups_shape_elements(ups_shape shape) {
    int64_t elements = 1;
    for (int i = 0; i < shape.rank; i++) elements *= shape.size[i];
    return elements;
}

int64_t ups_shape_last(ups_shape shape) {
    return shape.rank ? shape.size[shape.rank - 1] : 1;
}

int64_t ups_shape_rows(ups_shape shape) {
    int64_t rows = 1;
    for (int i = 0; i + 1 < shape.rank; i++) rows *= shape.size[i];
    return rows;
}
