/* What kernels know of the CPU as a device. */
#ifndef UPS_MODEL_CPU_HOST_H
#define UPS_MODEL_CPU_HOST_H

#include "model/device.h"

typedef struct ups_cpu_device {
    ups_device device;
    int threads; /* that its kernels use */
} ups_cpu_device;

static inline int ups_cpu_threads(const ups_device *device) {
    return ((const ups_cpu_device *)(const void *)device)->threads;
}

#endif
