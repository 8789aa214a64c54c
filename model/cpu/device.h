/* The CPU as a device. */
#ifndef UPS_MODEL_CPU_DEVICE_H
#define UPS_MODEL_CPU_DEVICE_H

#include "model/cpu/host.h"
#include <stdbool.h>

/* `threads` 0: one a processor that this process may use. Freed by ups_device_close. */
ups_status ups_cpu_device_open(int threads, ups_device **device, ups_error *error);

/* The instruction set whose kernels run here: "amx", "avx512_bf16", "avx512", "avx2" or "baseline": the best that the
 * processor has, or a lesser one named by the environment variable UPS_CPU. */
const char *ups_cpu_instruction_set(void);
/* Whether products of bf16 are faster here than those of float32. Below "avx512_bf16" they are float32 products of
 * converted operands. */
bool ups_cpu_bf16_is_fast(void);

/* The decisions of a training step, a few operations each (update.c). */
ups_status ups_cpu_add_losses(ups_device *device, const ups_losses_call *call, ups_error *error);
ups_status ups_cpu_seed_backward(ups_device *device, const ups_update *update, float *gradient, ups_error *error);
ups_status ups_cpu_decide(ups_device *device, const ups_update_rules *rules, ups_update *update, ups_error *error);
/* AdamW's learning rate and second correction for the call's set of parameters. */
void ups_cpu_bias_corrections(const ups_optimizer_call *call, float *rate, float *second);

#endif
