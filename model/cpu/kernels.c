/* The table of one instruction set. */
#include "model/cpu/kernels.h"

const ups_cpu_variant UPS_CPU_TABLE = {
    .name = UPS_CPU_VARIANT_TEXT(UPS_CPU_VARIANT),
    .kernels =
        {
#define UPS_OP_KERNEL(KIND, name) [UPS_OP_##KIND] = &UPS_CPU(name),
            UPS_OPS(UPS_OP_KERNEL)
#undef UPS_OP_KERNEL
        },
    .optimize = UPS_CPU(optimize),
    .muon_workspace = UPS_CPU(muon_workspace),
    .sum_of_squares = UPS_CPU(sum_of_squares),
    .convert = UPS_CPU(convert),
};
