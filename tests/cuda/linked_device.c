/* "cuda", in every program that links this file, is the CUDA device that the program links, in the place of the
 * module's: in tests the one over the emulated runtime. It does not try cuBLASLt's algorithms unless it is told where
 * to keep them; attention is by groups of warps where the emulated card has them. "auto" opens it where the
 * environment's UPS_TEST_DEVICE names it. */
#include "model/cuda/libraries/cublaslt.h"
#include "model/cuda/module.h"
#include "model/devices/devices.h"
#include <stdlib.h>
#include <string.h>

/* cuBLASLt is linked as well. */
ups_status ups_cuda_library_load(ups_error *error) {
    return UPS_OK;
}

static ups_status open_linked(const ups_device_options *options, ups_device **device, ups_error *error) {
    const ups_cuda_module *module = ups_cuda_module_4();
    if (options->planned_memory > 0) return module->open_to_plan(options->planned_memory, device, error);
    return module->open(device, error);
}

static const ups_device_entry by_name = {"cuda", false, open_linked};
static const ups_device_entry automatic = {"cuda", true, open_linked};

__attribute__((constructor)) static void register_device(void) {
    const char *wanted = getenv("UPS_TEST_DEVICE");
    setenv("UPS_CUDA_CHOICES", "", 0); /* products are slow here, and the user's files the user's */
    setenv("UPS_CUDA_ATTENTION", "groups", 0);
    setenv("UPS_CUDA_PRODUCTS", "stationary", 0);
    ups_device_register(wanted && strcmp(wanted, by_name.name) == 0 ? &automatic : &by_name);
}
