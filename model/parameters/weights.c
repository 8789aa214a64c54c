#include "model/parameters/weights.h"

#include "model/device.h"

ups_status ups_weights_allocate(ups_device *device, int64_t offset, int64_t count, ups_dtype compute, bool gradients,
                                ups_weights *weights, ups_error *error) {
    const ups_device_class *class = device->class;
    size_t bytes = sizeof(float) * (size_t)count;
    *weights = (ups_weights){.compute_dtype = compute, .offset = offset, .count = count};
    UPS_TRY(class->allocate(device, bytes, (void **)&weights->values, error));
    if (gradients) UPS_TRY(class->allocate(device, bytes, (void **)&weights->gradients, error));
    if (compute == UPS_F32) return UPS_OK;
    return class->allocate(device, ups_dtype_size(compute) * (size_t)count, (void **)&weights->compute, error);
}

void ups_weights_release(ups_device *device, ups_weights *weights) {
    void *const buffers[] = {weights->values, weights->gradients, weights->compute};
    for (int i = 0; i < 3; i++) {
        if (buffers[i]) device->class->release(device, buffers[i]);
    }
    *weights = (ups_weights){0};
}

ups_status ups_weights_refresh(ups_device *device, const ups_weights *weights, ups_error *error) {
    if (!weights->compute) return UPS_OK;
    return device->class->convert(device, weights->values, weights->compute_dtype, weights->compute, weights->count,
                                  error);
}
