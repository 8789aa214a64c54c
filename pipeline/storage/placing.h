/* Boxes of elements from where they are stored to where they belong, swapped and unpacked on the way. */
#ifndef UPS_PIPELINE_STORAGE_PLACING_H
#define UPS_PIPELINE_STORAGE_PLACING_H

#include "pipeline/storage/packing.h"
#include <stddef.h>

#define UPS_ARRAY_MAX_RANK 8 /* sample, time, three of a grid, two of a tensor, and one to spare */

/* A box to copy, in elements; axes slowest first. */
typedef struct ups_box {
    int rank;
    int64_t count[UPS_ARRAY_MAX_RANK], from_stride[UPS_ARRAY_MAX_RANK], to_stride[UPS_ARRAY_MAX_RANK];
} ups_box;

/* How elements are copied: their size, and what is done to them on the way. */
typedef struct ups_element_form {
    size_t size, stored_size; /* the same, unless they are unpacked */
    bool swapped;
    const ups_packing *packing;
    ups_dtype dtype;
} ups_element_form;

/* What lies between the elements of `to` keeps its values, but is read and written back. `shape` is spoilt. */
void ups_box_copy(ups_box *shape, uint8_t *to, const uint8_t *from, ups_element_form form);

#endif
