/* Devices by name. */
#ifndef UPS_MODEL_DEVICES_DEVICES_H
#define UPS_MODEL_DEVICES_DEVICES_H

#include "model/device.h"

typedef struct ups_device_options {
    const char *name; /* "auto", "cpu", "cuda" */
    int threads;      /* CPU: 0 for one a core */
    /* Bytes of an absent card: the device only plans (class->only_plans). 0, and always on the CPU: one that runs. */
    uint64_t planned_memory;
} ups_device_options;

/* What "auto" is here: "cuda" where there is a card that kernels are for, else "cpu"; found once, and nothing is
 * opened. */
const char *ups_device_automatic(void);
bool ups_device_can_plan(const char *name); /* for absent hardware: planned_memory */
ups_status ups_device_open(const ups_device_options *options, ups_device **device, ups_error *error);

/* A program that is built for tests adds a device of its own before it opens one; `automatic`: "auto" opens that.
 * `entry` is borrowed. */
typedef struct ups_device_entry {
    const char *name;
    bool automatic;
    ups_status (*open)(const ups_device_options *options, ups_device **device, ups_error *error);
} ups_device_entry;
void ups_device_register(const ups_device_entry *entry);

#endif
