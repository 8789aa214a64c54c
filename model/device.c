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

ups_status ups_device_capture(ups_device *device, ups_status (*issue)(void *context, ups_error *error), void *context,
                              ups_capture **capture, ups_error *error) {
    const ups_device_class *class = device->class;
    ups_error after;
    *capture = NULL;
    UPS_TRY(class->capture_begin(device, error));
    ups_status status = issue(context, error);
    ups_status ended = class->capture_end(device, capture, status == UPS_OK ? error : &after);
    if (status == UPS_OK) status = ended;
    if (status != UPS_OK && *capture) { /* of a part */
        class->capture_release(device, *capture);
        *capture = NULL;
    }
    return status;
}

void ups_device_range_begin(const ups_device *device, const char *name) {
    if (device->class->range_begin) device->class->range_begin(name);
}

void ups_device_range_end(const ups_device *device) {
    if (device->class->range_end) device->class->range_end();
}
