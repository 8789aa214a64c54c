#include "train/data/loader_memory.h"

static void *allocate_slot(void *context, size_t bytes) {
    ups_device *device = context;
    ups_error error;
    void *memory = NULL;
    return device->class->allocate_host(device, bytes, &memory, &error) == UPS_OK ? memory : NULL;
}

static void release_slot(void *context, void *memory) {
    ups_device *device = context;
    device->class->release_host(device, memory);
}

void ups_loader_use_memory_of(ups_device *device, ups_loader_options *options) {
    options->allocate = allocate_slot;
    options->release = release_slot;
    options->allocator_context = device;
}
