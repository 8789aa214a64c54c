/* Opens the device 'cuda' as any program does, and says why it cannot be. */
#include "model/devices/devices.h"
#include <stdio.h>

int main(void) {
    ups_device *device;
    ups_error error;
    if (ups_device_open(&(ups_device_options){.name = "cuda"}, &device, &error) == UPS_OK) {
        puts("it was opened");
        ups_device_close(device);
        return 0;
    }
    puts(error.message);
    return 1;
}
