/* Names to devices. */
#include "model/device.h"
#include "model/cpu/device.h"
#include <string.h>

ups_status ups_device_open(const ups_device_options *options, ups_device **device, ups_error *error) {
    const char *name = options->name ? options->name : "auto";
    *device = NULL;
    if (strcmp(name, "auto") == 0 || strcmp(name, "cpu") == 0) {
        return ups_cpu_device_open(options->threads, device, error);
    }
    if (strcmp(name, "cuda") == 0) {
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "this build has no CUDA; choose the device 'cpu' or 'auto'");
    }
    return ups_fail(error, UPS_ERR_ARGUMENT, "device '%s' is not known; it is one of auto, cpu, cuda", name);
}

void ups_device_close(ups_device *device) {
    if (device) device->class->destroy(device);
}
