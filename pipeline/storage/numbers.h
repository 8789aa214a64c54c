/* Small arrays and attributes, read: what coordinates and parameters are in any format. */
#ifndef UPS_PIPELINE_STORAGE_NUMBERS_H
#define UPS_PIPELINE_STORAGE_NUMBERS_H

#include "pipeline/storage/placing.h"

/* A small array of numbers. A scalar has rank 1 and one entry. */
typedef struct ups_numbers {
    int rank;
    int64_t shape[UPS_ARRAY_MAX_RANK];
    int64_t count;  /* of all entries */
    double *values; /* (shape), in the arena */
} ups_numbers;

/* One attribute: a list, or a single entry, of texts or of numbers (truth values are 0 and 1). */
typedef struct ups_attribute {
    bool present; /* false: the object has none of that name */
    int64_t count;
    const char *const *texts; /* (count), in the arena; NULL where it holds numbers, or nothing */
    const double *numbers;    /* likewise */
} ups_attribute;

#endif
