/* Names to devices. */
#include "model/device.h"
#include "model/cpu/device.h"
#include <string.h>

static ups_status open_cpu(const ups_device_options *options, ups_device **device, ups_error *error) {
    return ups_cpu_device_open(options->threads, device, error);
}

static ups_status open_cuda(const ups_device_options *options, ups_device **device, ups_error *error) {
    return ups_fail(error, UPS_ERR_UNSUPPORTED, "this build has no CUDA; choose the device 'cpu' or 'auto'");
}

static const ups_device_entry cpu = {"cpu", true, open_cpu}, cuda = {"cuda", false, open_cuda};
static const ups_device_entry *registered; /* before those */

void ups_device_register(const ups_device_entry *entry) {
    registered = entry;
}

ups_status ups_device_open(const ups_device_options *options, ups_device **device, ups_error *error) {
    const ups_device_entry *const table[] = {registered, &cuda, &cpu};
    const char *name = options->name ? options->name : "auto";
    *device = NULL;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (!table[i]) continue;
        bool wanted = strcmp(name, "auto") == 0 ? table[i]->automatic : strcmp(name, table[i]->name) == 0;
        if (wanted) return table[i]->open(options, device, error);
    }
    return ups_fail(error, UPS_ERR_ARGUMENT, "device '%s' is not known; it is one of auto, cpu, cuda", name);
}

void ups_device_close(ups_device *device) {
    if (device) device->class->destroy(device);
}

int ups_device_threads(const ups_device *device) {
    return device->class->threads(device);
}
