#include "model/devices/devices.h"
#include "model/cpu/device.h"
#include "model/devices/cuda.h"
#include <pthread.h>
#include <string.h>

static ups_status open_cpu(const ups_device_options *options, ups_device **device, ups_error *error) {
    return ups_cpu_device_open(options->threads, device, error);
}

static ups_status open_cuda(const ups_device_options *options, ups_device **device, ups_error *error) {
    const bool plans = options->planned_memory > 0;
    const ups_cuda_module *module;
    if ((plans ? ups_cuda_load_to_plan(&module, error) : ups_cuda_load(&module, error)) != UPS_OK) {
        ups_fail_within(error, plans ? "the device 'cuda' cannot be planned for"
                                     : "the device 'cuda' cannot be used; choose 'cpu' or 'auto'");
        return UPS_ERR_UNSUPPORTED;
    }
    return plans ? module->open_to_plan(options->planned_memory, device, error) : module->open(device, error);
}

static const ups_device_entry cpu = {"cpu", false, open_cpu}, cuda = {"cuda", false, open_cuda};
static const ups_device_entry *registered; /* before those */
static pthread_once_t tried = PTHREAD_ONCE_INIT;
static const char *automatic;

void ups_device_register(const ups_device_entry *entry) {
    registered = entry;
}

bool ups_device_can_plan(const char *name) {
    const ups_cuda_module *module;
    return name && strcmp(name, cuda.name) == 0 && ups_cuda_load_to_plan(&module, NULL) == UPS_OK;
}

static void try_card(void) {
    const ups_cuda_module *module;
    automatic = ups_cuda_load(&module, NULL) == UPS_OK && module->has_card() ? cuda.name : cpu.name;
}

const char *ups_device_automatic(void) {
    if (registered && registered->automatic) return registered->name;
    pthread_once(&tried, try_card);
    return automatic;
}

ups_status ups_device_open(const ups_device_options *options, ups_device **device, ups_error *error) {
    const ups_device_entry *const table[] = {registered, &cuda, &cpu};
    const char *name = options->name ? options->name : "auto";
    *device = NULL;
    if (strcmp(name, "auto") == 0) name = ups_device_automatic();
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i] && strcmp(name, table[i]->name) == 0) return table[i]->open(options, device, error);
    }
    return ups_fail(error, UPS_ERR_ARGUMENT, "device '%s' is not known; it is one of auto, cpu, cuda", name);
}
