/* Takes optimizer steps with given weights and gradients, so that a second implementation can do the same.
 *
 *   optimizer_steps IN.safetensors OUT.safetensors [option=value …]
 *
 * IN holds "weights.NAME", and of each step "gradients.STEP.NAME"; its metadata tells for NAME how many matrices lie in
 * it ("3"), where Muon may move them. OUT gets the weights and what the optimizer keeps, as a checkpoint has them. */
#include "model/devices/devices.h"
#include "model/parameters/safetensors.h"
#include "train/optimizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char weights_prefix[] = "weights.";

typedef struct settings {
    ups_optimizer_config optimizer;
    ups_dtype compute;
    int steps, threads;
} settings;

static ups_error failure; /* of the last call that failed */

static void check(ups_status status) {
    if (status == UPS_OK) return;
    fprintf(stderr, "optimizer_steps: %s\n", failure.message);
    exit(1);
}

static bool take(settings *s, const char *key, double value) {
    ups_optimizer_config *o = &s->optimizer;
    if (strcmp(key, "muon") == 0) return o->kind = value != 0 ? UPS_OPTIMIZER_MUON : UPS_OPTIMIZER_ADAMW, true;
    if (strcmp(key, "rate") == 0) return o->learning_rate = value, true;
    if (strcmp(key, "decay") == 0) return o->weight_decay = value, true;
    if (strcmp(key, "momentum") == 0) return o->momentum = value, true;
    if (strcmp(key, "clip") == 0) return o->clip = value, true;
    if (strcmp(key, "ema") == 0) return o->ema_decay = value, true;
    if (strcmp(key, "bf16") == 0) return s->compute = value != 0 ? UPS_BF16 : UPS_F32, true;
    if (strcmp(key, "steps") == 0) return s->steps = (int)value, true;
    if (strcmp(key, "threads") == 0) return s->threads = (int)value, true;
    return false;
}

/* The tensor PREFIX + the parameter's name, to its place in a flat buffer. */
static void put(const ups_safetensors *file, const char *prefix, const ups_parameter *parameter, ups_device *device,
                float *buffer) {
    char name[200];
    snprintf(name, sizeof name, "%s%s", prefix, parameter->name);
    const ups_safetensor *tensor = ups_safetensors_find(file, name);
    if (!tensor || tensor->bytes != sizeof(float) * (size_t)parameter->elements) {
        fprintf(stderr, "optimizer_steps: there is no tensor '%s' of float32 in this size\n", name);
        exit(1);
    }
    float *values = malloc(tensor->bytes);
    check(ups_safetensors_read(file, tensor, values, &failure));
    check(device->class->upload(device, buffer + parameter->offset, values, tensor->bytes, &failure));
    check(device->class->synchronize(device, &failure));
    free(values);
}

static void add_parameters(const ups_safetensors *file, ups_parameters *parameters) {
    for (int32_t i = 0; i < ups_safetensors_count(file); i++) {
        const ups_safetensor *tensor = ups_safetensors_get(file, i);
        if (strncmp(tensor->name, weights_prefix, strlen(weights_prefix)) != 0) continue;
        const char *name = tensor->name + strlen(weights_prefix), *told = ups_safetensors_metadata(file, name);
        ups_init init = {.kind = UPS_INIT_ZEROS, .no_decay = tensor->rank == 1, .matrices = told ? atoll(told) : 0};
        ups_parameters_add(parameters, name, tensor->rank, tensor->size, init);
    }
}

int main(int argc, char **argv) {
    settings s = {.optimizer = {.learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .momentum = 0.95},
                  .steps = 1,
                  .threads = 1};
    for (int i = 3; i < argc; i++) {
        char key[32];
        double value;
        if (sscanf(argv[i], "%31[a-z0-9_]=%lf", key, &value) != 2 || !take(&s, key, value)) {
            fprintf(stderr, "optimizer_steps: '%s' is no option=value that is known\n", argv[i]);
            return 2;
        }
    }
    if (argc < 3) {
        fprintf(stderr, "optimizer_steps IN.safetensors OUT.safetensors [option=value ...]\n");
        return 2;
    }
    ups_safetensors *file;
    ups_device *device;
    ups_optimizer *optimizer;
    ups_parameters *parameters = ups_parameters_create();
    check(ups_safetensors_open(argv[1], &file, &failure));
    add_parameters(file, parameters);
    check(ups_device_open(&(ups_device_options){.name = "auto", .threads = s.threads}, &device, &failure));
    check(ups_parameters_allocate(parameters, device, true, s.compute, 0, &failure));
    const int32_t count = ups_parameters_count(parameters);
    for (int32_t i = 0; i < count; i++)
        put(file, weights_prefix, ups_parameters_get(parameters, i), device, ups_parameters_values(parameters));
    check(ups_parameters_refresh(parameters, &failure));
    check(ups_optimizer_create(&s.optimizer, device, parameters, NULL, &optimizer, &failure));
    for (int step = 0; step < s.steps; step++) {
        char prefix[40];
        ups_update update;
        snprintf(prefix, sizeof prefix, "gradients.%d.", step);
        for (int32_t i = 0; i < count; i++)
            put(file, prefix, ups_parameters_get(parameters, i), device, ups_parameters_gradients(parameters));
        ups_update_input input = {.step = step, .share = 1, .learning_rate = (float)s.optimizer.learning_rate};
        check(ups_optimizer_begin(optimizer, &input, &failure));
        check(ups_optimizer_step(optimizer, NULL, &failure));
        check(ups_optimizer_result(optimizer, &update, &failure));
    }
    ups_parameter_buffer buffers[1 + UPS_OPTIMIZER_MAX_BUFFERS] = {
        {.prefix = "", .values = ups_parameters_values(parameters)}};
    int buffer_count = 1 + ups_optimizer_buffers(optimizer, buffers + 1);
    check(ups_parameters_save_buffers(parameters, NULL, buffers, buffer_count, NULL, NULL, argv[2], &failure));
    ups_optimizer_destroy(optimizer);
    ups_parameters_destroy(parameters);
    ups_device_close(device);
    ups_safetensors_close(file);
    return 0;
}
