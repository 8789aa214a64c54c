/* Opens a device, 'cuda' unless another is named, as any program does, and says which it is or why it cannot be. */
#include "model/devices/devices.h"
#include <stdio.h>

int main(int argc, char **argv) {
    ups_device *device;
    ups_error error;
    if (ups_device_open(&(ups_device_options){.name = argc > 1 ? argv[1] : "cuda"}, &device, &error) == UPS_OK) {
        printf("%s was opened\n", device->class->name);
        ups_device_close(device);
        return 0;
    }
    puts(error.message);
    return 1;
}
