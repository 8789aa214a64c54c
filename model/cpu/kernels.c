/* The table of one instruction set. */
#include "model/cpu/kernels.h"

const ups_cpu_variant UPS_CPU_TABLE = {
    .name = UPS_CPU_VARIANT_TEXT(UPS_CPU_VARIANT),
    .kernels =
        {
            [UPS_OP_LINEAR] = &UPS_CPU(linear),
            [UPS_OP_LAYER_NORM] = &UPS_CPU(layer_norm),
            [UPS_OP_RMS_NORM] = &UPS_CPU(rms_norm),
            [UPS_OP_MODULATE] = &UPS_CPU(modulate),
            [UPS_OP_RESIDUAL] = &UPS_CPU(residual),
            [UPS_OP_ADD] = &UPS_CPU(add),
            [UPS_OP_BROADCAST] = &UPS_CPU(broadcast),
            [UPS_OP_GELU] = &UPS_CPU(gelu),
            [UPS_OP_SILU] = &UPS_CPU(silu),
            [UPS_OP_SCALE] = &UPS_CPU(scale),
            [UPS_OP_ATTENTION] = &UPS_CPU(attention),
            [UPS_OP_SLICE] = &UPS_CPU(slice),
            [UPS_OP_SELECT_FRAME] = &UPS_CPU(select_frame),
            [UPS_OP_PATCHIFY] = &UPS_CPU(patchify),
            [UPS_OP_NEIGHBORHOOD] = &UPS_CPU(neighborhood),
            [UPS_OP_POOL_TOKENS] = &UPS_CPU(pool_tokens),
            [UPS_OP_GATHER_POINTS] = &UPS_CPU(gather_points),
            [UPS_OP_FOURIER] = &UPS_CPU(fourier),
            [UPS_OP_LOSS_MSE] = &UPS_CPU(loss_mse),
            [UPS_OP_LOSS_RELATIVE] = &UPS_CPU(loss_relative),
            [UPS_OP_WEIGHTED_SUM] = &UPS_CPU(weighted_sum),
            [UPS_OP_CAST] = &UPS_CPU(cast),
        },
    .adamw = UPS_CPU(adamw),
    .sum_of_squares = UPS_CPU(sum_of_squares),
    .convert = UPS_CPU(convert),
};
