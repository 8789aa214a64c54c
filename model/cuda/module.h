/* The module libups_cuda.so: what `ups` loads where there is a driver, or to plan, and its one
 * entry.
 *
 * It is a file of its own since it is larger than the program, which runs on machines without CUDA as well. cuBLASLt
 * is loaded with the first card (libraries/cublaslt.h). The entry's name carries the version of this contract; module
 * and program must be of one build, since they share the structs and enumerations of the headers that this one
 * includes, and the entry tells a hash of these. */
#ifndef UPS_MODEL_CUDA_MODULE_H
#define UPS_MODEL_CUDA_MODULE_H

#include "model/device.h"

#define UPS_CUDA_MODULE_ENTRY "ups_cuda_module_4"

typedef struct ups_cuda_module {
    const char *headers;        /* their hash, UPS_CUDA_HEADERS */
    int op_count, kernel_count; /* ops there are, and those that have kernels */
    bool (*has_kernel)(ups_op_kind kind);
    /* Whether there is a card that kernels are for, and cuBLASLt; no card is opened. */
    bool (*has_card)(void);
    /* Opens the first card that the driver shows. Freed by ups_device_close. */
    ups_status (*open)(ups_device **device, ups_error *error);
    /* The same for an absent card of so many bytes: the device only plans. */
    ups_status (*open_to_plan)(uint64_t memory, ups_device **device, ups_error *error);
    const ups_peers_class *peers; /* of its cards */
} ups_cuda_module;

typedef const ups_cuda_module *ups_cuda_module_get(void);
ups_cuda_module_get ups_cuda_module_4;

#endif
