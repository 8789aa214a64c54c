#include "model/cuda/products/stationary.h"

#include <stdlib.h>
#include <string.h>

bool ups_cuda_takes_stationary(ups_device *device, const ups_cuda_stationary *p, const ups_cuda_product *library,
                               bool bias) {
    (void)library, (void)bias;
    const char *wanted = getenv("UPS_CUDA_PRODUCTS");
    if (!ups_cuda_stationary_fits(device, p) || ups_cuda_kernels_by_shape(device)) return false;
    return wanted && strcmp(wanted, "stationary") == 0;
}
