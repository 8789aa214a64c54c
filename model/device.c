#include "model/device.h"

void ups_device_close(ups_device *device) {
    if (device) device->class->destroy(device);
}

int ups_device_threads(const ups_device *device) {
    return device->class->threads(device);
}

ups_kernel_choice ups_device_choose_kernels(ups_device *device, ups_kernel_choice how) {
    return device->class->choose ? device->class->choose(device, how) : UPS_KERNELS_BY_SHAPE;
}

void ups_device_range_begin(const ups_device *device, const char *name) {
    if (device->class->range_begin) device->class->range_begin(name);
}

void ups_device_range_end(const ups_device *device) {
    if (device->class->range_end) device->class->range_end();
}
