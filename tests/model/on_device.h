/* What tests do with device memory, which no host may touch. */
#ifndef UPS_TESTS_MODEL_ON_DEVICE_H
#define UPS_TESTS_MODEL_ON_DEVICE_H

#include "model/device.h"
#include <stdio.h>
#include <stdlib.h>

static inline void check_device(ups_status status, const ups_error *error) {
    if (status == UPS_OK) return;
    fprintf(stderr, "%s\n", error->message);
    abort();
}

/* A copy on the host; free with free(). */
static inline void *read_device(ups_device *device, const void *memory, size_t bytes) {
    ups_error error;
    void *host = malloc(bytes + 1);
    check_device(device->class->download(device, host, memory, bytes, &error), &error);
    return host;
}

/* Waits: `host` may be changed at once. */
static inline void write_device(ups_device *device, void *memory, const void *host, size_t bytes) {
    ups_error error;
    check_device(device->class->upload(device, memory, host, bytes, &error), &error);
    check_device(device->class->synchronize(device, &error), &error);
}

#endif
