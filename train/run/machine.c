#include "train/run/machine.h"

#include "base/system/cpu_features.h"
#include "model/cpu/device.h"
#include <stdio.h>

json_t *ups_machine_describe(const ups_device *device) {
    char processor[160], text[400];
    ups_cpu_model(processor, sizeof processor);
    const int threads = device->class->threads(device);
    snprintf(text, sizeof text, "%s%s%s, %s, %d thread%s", device->card ? device->card : "", device->card ? ", " : "",
             processor, ups_cpu_instruction_set(), threads, threads == 1 ? "" : "s");
    return ups_json_printable(text);
}
