/* What is known of an op: its name, its attributes, and what its backward reads and gives. Differentiation, the plan,
 * the schedule and the step ask here; none of them has an op's name in it. What an op computes is said above its
 * constructor (ops.h). */
#ifndef UPS_MODEL_OP_H
#define UPS_MODEL_OP_H

#include "base/dtype.h"
#include <stdbool.h>
#include <stdint.h>

#define UPS_MAX_INPUTS 8
#define UPS_MAX_SAVED 2

/* The list: X(KIND, name). A device has one kernel a line, tests one reference and at least one case. */
#define UPS_OPS(X)                                                                                                     \
    X(LINEAR, linear)                                                                                                  \
    X(LINEAR_GELU, linear_gelu)                                                                                        \
    X(LAYER_NORM, layer_norm)                                                                                          \
    X(RMS_NORM, rms_norm)                                                                                              \
    X(MODULATE, modulate)                                                                                              \
    X(RESIDUAL, residual)                                                                                              \
    X(ADD, add)                                                                                                        \
    X(BROADCAST, broadcast)                                                                                            \
    X(GELU, gelu)                                                                                                      \
    X(SILU, silu)                                                                                                      \
    X(BOUND, bound)                                                                                                    \
    X(ROUND_F16, round_f16)                                                                                            \
    X(SCALE, scale)                                                                                                    \
    X(ATTENTION, attention)                                                                                            \
    X(SLICE, slice)                                                                                                    \
    X(SELECT_FRAME, select_frame)                                                                                      \
    X(PATCHIFY, patchify)                                                                                              \
    X(NEIGHBORHOOD, neighborhood)                                                                                      \
    X(DEPTHWISE, depthwise)                                                                                            \
    X(COARSEN, coarsen)                                                                                                \
    X(REFINE, refine)                                                                                                  \
    X(POOL_TOKENS, pool_tokens)                                                                                        \
    X(GATHER_POINTS, gather_points)                                                                                    \
    X(WEIGH, weigh)                                                                                                    \
    X(READ_PATCHES, read_patches)                                                                                      \
    X(FOURIER, fourier)                                                                                                \
    X(ANGLES, angles)                                                                                                  \
    X(SPECTRAL, spectral)                                                                                              \
    X(FIELD_MODES, field_modes)                                                                                        \
    X(LOSS_MSE, loss_mse)                                                                                              \
    X(LOSS_RELATIVE, loss_relative)                                                                                    \
    X(LOSS_GROUPED, loss_grouped)                                                                                      \
    X(LOSS_NEGATIVE, loss_negative)                                                                                    \
    X(LOSS_COVARIANCE, loss_covariance)                                                                                \
    X(NOISE, noise)                                                                                                    \
    X(SHIFT, shift)                                                                                                    \
    X(SYMMETRY, symmetry)                                                                                              \
    X(WEIGHTED_SUM, weighted_sum)                                                                                      \
    X(CAST, cast)

typedef enum ups_op_kind {
#define UPS_OP_KIND(KIND, name) UPS_OP_##KIND,
    UPS_OPS(UPS_OP_KIND)
#undef UPS_OP_KIND
        UPS_OP_COUNT
} ups_op_kind;

#define UPS_MAX_FREQUENCIES 16

/* FP8 with delayed scaling (Micikevicius et al., arXiv 2209.05433): elements are rounded after multiplication by a
 * scale, which the largest magnitudes of steps before decide. What is remembered of each operand of a layer's products,
 * all float32: it lies in a parameter (UPS_FP8_OPERANDS, UPS_FP8_NUMBERS) that kernels write and no gradient moves, so
 * that it is in checkpoints and resuming is exact. */
typedef enum ups_fp8_operand { UPS_FP8_X, UPS_FP8_WEIGHT, UPS_FP8_GRADIENT, UPS_FP8_OPERANDS } ups_fp8_operand;
#define UPS_FP8_NUMBERS 16
#define UPS_FP8_MULTIPLE 16 /* rows and features of a layer that is multiplied so */

typedef struct ups_op_attributes {
    float epsilon;          /* norms, relative loss */
    bool output_f32;        /* linear, norms */
    bool tf32;              /* linear, spectral: a device that multiplies TF32 may round float32 operands to it */
    bool fp8;               /* linear: a device that multiplies FP8 rounds operands to it in training */
    bool inverse;           /* bound: of it */
    bool diagonal;          /* covariance loss: variances, or what is beside them */
    int heads, groups;      /* attention; groups of heads that q, k and v are packed by: 0 is 1 */
    float drop_path;        /* residual: probability of dropping a sample's branch */
    uint32_t layer;         /* residual, noise: separates random streams */
    int64_t batch;          /* broadcast */
    float factor;           /* scale; bound: from where on; noise: deviation; grouped loss: least norm of a target */
    int64_t offset, length; /* slice; weigh: rows that make one, length; spectral: 0, or of lines: how many lie side by
                               side, length */
    int64_t frame;          /* select_frame */
    ups_dtype dtype;        /* cast */
    bool channels_first;    /* patchify, gather_points */
    bool periodic;          /* neighborhood, depthwise, refine, read_patches, attention, field_modes */
    int dims; /* patchify, read_patches, neighborhood, depthwise, coarsen, refine, spectral, field_modes, shift,
                 symmetry: grid axes; of attention: 0: over all tokens */
    int64_t grid[3], patch[3]; /* patchify, read_patches: points along each axis and points a patch; neighborhood,
                                  shift, symmetry: grid = cells; depthwise: cells, and the kernel's size; attention:
                                  cells, and cells a window; coarsen, refine: cells of the finer grid; field_modes:
                                  points. Slowest axis first; only `dims` used */
    int64_t shift[3];          /* attention: cells before the first window */
    int64_t modes[3];          /* spectral: of the weight along each grid axis */
    int64_t channels;          /* patchify, read_patches, gather_points: C */
    int frequency_count;
    float frequencies[UPS_MAX_FREQUENCIES]; /* fourier */
    float weights[UPS_MAX_INPUTS];          /* weighted_sum */
} ups_op_attributes;

typedef struct ups_op_description {
    uint8_t gradient_inputs;          /* bit i: backward gives a gradient to input i; 0: the op has no backward */
    uint8_t read_for[UPS_MAX_INPUTS]; /* backward reads input i for the gradients of these inputs */
    bool backward_output;             /* backward reads the output */
    bool saved_like_output;           /* what is saved has the output's dtype; otherwise it is float32 */
    bool backward_saved;              /* and what forward saved */
    uint8_t passes_gradient;          /* bit i: the gradient of input i is the output's, unchanged */
    uint8_t compute_inputs;           /* bit i: a parameter at input i is read in the graph's compute precision, unless
                                         it is fixed */
    bool product; /* costs far more than reading its operands: not recomputed where it can be kept */
} ups_op_description;

const char *ups_op_name(ups_op_kind kind); /* "linear" */
const ups_op_description *ups_op_describe(ups_op_kind kind);

/* The inputs that backward reads to give the gradients `wanted` (bits of inputs). */
uint32_t ups_op_backward_inputs(ups_op_kind kind, uint32_t wanted);

#endif
