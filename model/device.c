#include "model/device.h"

void ups_device_close(ups_device *device) {
    if (device) device->class->destroy(device);
}

int ups_device_threads(const ups_device *device) {
    return device->class->threads(device);
}
