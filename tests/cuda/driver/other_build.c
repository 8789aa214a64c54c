/* A module whose headers were others: its entry is there, and its hash is not the program's. */
#include "model/cuda/module.h"

const ups_cuda_module *ups_cuda_module_4(void) {
    static const ups_cuda_module module = {.headers = "those of another day"};
    return &module;
}
