/* The CPU as a device. */
#ifndef UPS_MODEL_CPU_DEVICE_H
#define UPS_MODEL_CPU_DEVICE_H

#include "model/device.h"
#include <stdbool.h>

/* `threads` 0: one a processor that this process may use. Freed by ups_device_close. */
ups_status ups_cpu_device_open(int threads, ups_device **device, ups_error *error);

/* The instruction set whose kernels run here: "amx", "avx512", "avx2" or "baseline": the best that the processor has,
 * or a lesser one named by the environment variable UPS_CPU. */
const char *ups_cpu_instruction_set(void);
/* Whether products of bf16 are faster here than those of float32. Without AMX they are float32 products of converted
 * operands. */
bool ups_cpu_bf16_is_fast(void);

#endif
