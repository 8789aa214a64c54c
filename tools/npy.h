/* NPY, NumPy's own file of one array: format version 1.0, C order, this machine's byte order.
 * Source: numpy.lib.format, https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#ifndef UPS_TOOLS_NPY_H
#define UPS_TOOLS_NPY_H

#include "base/dtype.h"
#include "base/error.h"
#include <stdint.h>

/* Publishes (shape[0], …, shape[rank − 1]) elements of float32, float64, float16 or int32; UPS_ERR_UNSUPPORTED for
 * types NumPy has not. */
ups_status ups_npy_write(const char *path, ups_dtype dtype, int rank, const int64_t *shape, const void *elements,
                         ups_error *error);

#endif
