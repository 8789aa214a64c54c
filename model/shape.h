/* Shapes of tensors. */
#ifndef UPS_MODEL_SHAPE_H
#define UPS_MODEL_SHAPE_H

#include <stdint.h>

#define UPS_MAX_RANK 4

typedef struct ups_shape {
    int rank;
    int64_t size[UPS_MAX_RANK];
} ups_shape; /* row-major, contiguous */

#define UPS_SHAPE(...) ((ups_shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})

int64_t ups_shape_elements(ups_shape shape);
int64_t ups_shape_rows(ups_shape shape); /* elements / last size: the leading axes taken together */
int64_t ups_shape_last(ups_shape shape);

#endif
