#include "model/op.h"

enum { BIT_0 = 1, BIT_1 = 2, BIT_2 = 4, BIT_3 = 8, BIT_5 = 32, ANY = 0xFF };

/* clang-format off */
static const ups_op_description descriptions[UPS_OP_COUNT] = {
    [UPS_OP_LINEAR]        = {.gradient_inputs = BIT_0 | BIT_1 | BIT_2, .read_for = {BIT_1, BIT_0, 0, BIT_0 | BIT_1}, .compute_inputs = BIT_1, .product = true},
    [UPS_OP_LINEAR_GELU]   = {.gradient_inputs = BIT_0 | BIT_1 | BIT_2, .read_for = {BIT_1, BIT_0, 0, BIT_0 | BIT_1}, .saved_like_output = true, .backward_saved = true, .compute_inputs = BIT_1, .product = true},
    [UPS_OP_LAYER_NORM]    = {.gradient_inputs = BIT_0 | BIT_1 | BIT_2, .read_for = {ANY, ANY}, .backward_saved = true},
    [UPS_OP_RMS_NORM]      = {.gradient_inputs = BIT_0 | BIT_1, .read_for = {ANY, ANY}, .backward_saved = true},
    [UPS_OP_MODULATE]      = {.gradient_inputs = BIT_0 | BIT_1 | BIT_2, .read_for = {BIT_1, BIT_0}},
    [UPS_OP_RESIDUAL]      = {.gradient_inputs = BIT_0 | BIT_1 | BIT_2, .read_for = {0, BIT_2, BIT_1 | BIT_2}, .passes_gradient = BIT_0},
    [UPS_OP_ADD]           = {.gradient_inputs = BIT_0 | BIT_1, .passes_gradient = BIT_0 | BIT_1},
    [UPS_OP_BROADCAST]     = {.gradient_inputs = BIT_0},
    [UPS_OP_GELU]          = {.gradient_inputs = BIT_0, .read_for = {BIT_0}},
    [UPS_OP_SILU]          = {.gradient_inputs = BIT_0, .read_for = {BIT_0}},
    [UPS_OP_BOUND]         = {.gradient_inputs = BIT_0, .read_for = {BIT_0}},
    [UPS_OP_ROUND_F16]         = {.gradient_inputs = BIT_0, .passes_gradient = BIT_0},
    [UPS_OP_SCALE]         = {.gradient_inputs = BIT_0, .read_for = {0, BIT_0}},
    [UPS_OP_ATTENTION]     = {.gradient_inputs = BIT_0 | BIT_1 | BIT_2 | BIT_3 | BIT_5, .read_for = {ANY, ANY, ANY, ANY, ANY, ANY}, .backward_output = true, .backward_saved = true, .product = true},
    [UPS_OP_SLICE]         = {.gradient_inputs = BIT_0},
    [UPS_OP_SELECT_FRAME]  = {.gradient_inputs = BIT_0},
    [UPS_OP_PATCHIFY]      = {.gradient_inputs = BIT_0, .read_for = {0, BIT_0}},
    [UPS_OP_NEIGHBORHOOD]  = {.gradient_inputs = BIT_0},
    [UPS_OP_DEPTHWISE]     = {.gradient_inputs = BIT_0 | BIT_1, .read_for = {BIT_1, BIT_0}},
    [UPS_OP_COARSEN]       = {.gradient_inputs = BIT_0},
    [UPS_OP_REFINE]        = {.gradient_inputs = BIT_0},
    [UPS_OP_POOL_TOKENS]   = {.gradient_inputs = BIT_0},
    [UPS_OP_GATHER_POINTS] = {.gradient_inputs = BIT_0, .read_for = {0, BIT_0, BIT_0}},
    [UPS_OP_READ_PATCHES]  = {.gradient_inputs = BIT_0, .read_for = {0, BIT_0}},
    [UPS_OP_WEIGH]         = {.gradient_inputs = BIT_0 | BIT_1, .read_for = {BIT_1, BIT_0}},
    [UPS_OP_FOURIER]       = {.gradient_inputs = 0},
    [UPS_OP_ANGLES]        = {.gradient_inputs = 0},
    [UPS_OP_SPECTRAL]      = {.gradient_inputs = BIT_0 | BIT_1, .read_for = {0, BIT_0, ANY, ANY, ANY}, .backward_saved = true, .product = true},
    [UPS_OP_FIELD_MODES]   = {.gradient_inputs = BIT_0},
    [UPS_OP_LOSS_MSE]      = {.gradient_inputs = BIT_0 | BIT_1, .read_for = {ANY, ANY}},
    [UPS_OP_LOSS_RELATIVE] = {.gradient_inputs = BIT_0, .read_for = {BIT_0, BIT_0}, .backward_output = true},
    [UPS_OP_LOSS_GROUPED]  = {.gradient_inputs = BIT_0, .read_for = {BIT_0, BIT_0, BIT_0, BIT_0}},
    [UPS_OP_LOSS_NEGATIVE] = {.gradient_inputs = BIT_0, .read_for = {BIT_0}},
    [UPS_OP_LOSS_COVARIANCE] = {.gradient_inputs = BIT_0, .read_for = {BIT_0}, .backward_saved = true},
    [UPS_OP_NOISE]         = {.gradient_inputs = BIT_0, .passes_gradient = BIT_0},
    [UPS_OP_SHIFT]         = {.gradient_inputs = BIT_0},
    [UPS_OP_SYMMETRY]      = {.gradient_inputs = 0},
    [UPS_OP_WEIGHTED_SUM]  = {.gradient_inputs = ANY},
    [UPS_OP_CAST]          = {.gradient_inputs = BIT_0},
};
/* clang-format on */

static const char *const names[UPS_OP_COUNT] = {
#define UPS_OP_NAME(KIND, name) [UPS_OP_##KIND] = #name,
    UPS_OPS(UPS_OP_NAME)
#undef UPS_OP_NAME
};

const char *ups_op_name(ups_op_kind kind) {
    return names[kind];
}

const ups_op_description *ups_op_describe(ups_op_kind kind) {
    return &descriptions[kind];
}

uint32_t ups_op_backward_inputs(ups_op_kind kind, uint32_t wanted) {
    uint32_t reads = 0;
    for (int i = 0; i < UPS_MAX_INPUTS; i++) reads |= (descriptions[kind].read_for[i] & wanted) ? 1u << i : 0;
    return reads;
}
