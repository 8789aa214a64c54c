/* A safetensors file: its header, every tensor, and as the weights of a small model. */
#include "tests/fuzz/fuzz.h"

#include "model/device.h"
#include "model/devices/devices.h"
#include "model/parameters/parameters.h"
#include "model/parameters/safetensors.h"
#include <stdlib.h>

static void read_all(const ups_safetensors *file, size_t size) {
    uint64_t total = 0;
    for (int32_t i = 0; i < ups_safetensors_count(file); i++) {
        const ups_safetensor *tensor = ups_safetensors_get(file, i);
        FUZZ_CHECK(ups_safetensors_find(file, tensor->name) != NULL);
        FUZZ_CHECK(tensor->offset <= size && tensor->bytes <= size - tensor->offset);
        total += tensor->bytes;
        void *out = fuzz_room(tensor->bytes);
        ups_error error = {0};
        FUZZ_CHECK(fuzz_accepted(ups_safetensors_read(file, tensor, out, &error), &error));
        free(out);
    }
    FUZZ_CHECK(total <= size);
    ups_safetensors_metadata(file, "origin");
}

static ups_parameters *small_model(void) {
    static ups_parameters *model;
    if (model) return model;
    ups_error error;
    ups_device *device = NULL;
    FUZZ_CHECK(ups_device_open(&(ups_device_options){.name = "cpu", .threads = 1}, &device, &error) == UPS_OK);
    model = ups_parameters_create();
    ups_parameters_add(model, "weight", 2, (int64_t[]){3, 4}, (ups_init){.kind = UPS_INIT_ZEROS});
    ups_parameters_add(model, "bias", 1, (int64_t[]){3}, (ups_init){.kind = UPS_INIT_ZEROS, .no_decay = true});
    FUZZ_CHECK(ups_parameters_allocate(model, device, false, UPS_BF16, 1, &error) == UPS_OK);
    return model;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = fuzz_file(data, size);
    ups_error error = {0};
    ups_safetensors *file;
    if (!fuzz_accepted(ups_safetensors_open(path, &file, &error), &error)) return 0;
    read_all(file, size);
    ups_safetensors_close(file);
    fuzz_accepted(ups_parameters_load(small_model(), path, size % 2, &error), &error);
    return 0;
}
