/* The list of ops: each exists once, here, with its name, shapes, what it computes, and its gradient. Devices implement
 * the list; the test `tests/model/test_ops` runs all of it on every device against a float64 reference: that is how a
 * new kernel is trusted.
 *
 * Notation: B batch, T tokens, D features, N the rows of all leading axes together, H heads. "compute" is the graph's
 * compute dtype (float32, bf16 or fp16). An input marked ? may be UPS_NO_VALUE. Unless said otherwise backward gives
 * gradients to all float inputs that need them.
 */
#ifndef UPS_MODEL_OPS_H
#define UPS_MODEL_OPS_H

#include "model/graph.h"

typedef enum ups_op_kind {
    UPS_OP_LINEAR, /* y (…, M) = x (…, K) Wᵀ + b?; W (M, K), b (M). y: compute, or float32 when attributes.output_f32. x
                      is cast to compute when it is not */
    UPS_OP_LAYER_NORM, /* y = (x − mean) / √(var + ε) · gain? + bias? over the last axis; saves mean and 1/√ (N, 2). y:
                          compute, or as output_f32 says */
    UPS_OP_RMS_NORM, /* y = x / √(mean(x²) + ε) · gain over the last axis; saves 1/√ (N) */
    UPS_OP_MODULATE, /* y (B,T,D) = x · (1 + scale) + shift; scale, shift (B, D): AdaLN */
    UPS_OP_RESIDUAL, /* y (B,T,D) = x + keep_b · σ(gate + 2)? · f; gate? (B, D); keep_b: drop-path, 0 or 1/(1−p) a
                        sample, Philox (seed, step, layer). y: dtype of x */
    UPS_OP_ADD, /* y = x + z; z has x's shape, or (D), or (T, D) repeated over the batch, or (B, 1, D) repeated over
                   tokens. y: dtype of x */
    UPS_OP_BROADCAST, /* y (B, T, D) = x (T, D) for every sample of attributes.batch */
    UPS_OP_GELU,      /* exact: x Φ(x) */
    UPS_OP_SILU,      /* x σ(x) */
    UPS_OP_SCALE,     /* y = factor · x */
    UPS_OP_ATTENTION, /* softmax(q kᵀ / √d) v by head. Inputs: q, kv?, gain_q?, gain_k?. Self: q is packed (B, T, 3·D) =
                         [q | k | v], kv absent. Cross: q (B, Tq, D), kv (B, Tk, 2·D) = [k | v]. With gains (D/H): q and
                         k are RMS-normalised a head first. y (B, Tq, D). d = D/H. Saves what backward wants
                         (log-sum-exp (B, H, Tq), and 1/rms of q and k) */
    UPS_OP_SLICE,        /* y (…, length) = x (…, offset : offset + length) */
    UPS_OP_SELECT_FRAME, /* y (B, …) = x (B, W, …) [:, frame] */
    UPS_OP_PATCHIFY, /* y (B, N, P·C): patches of a field x (B, points·C) in channel order `channels_first` or last, P
                        points a patch; each value (v − mean_c) · inverse_std_c with statistics? (C, 2). The grid is
                        padded at the end of each axis by repeating the last point when the patch does not divide it. y:
                        compute */
    UPS_OP_NEIGHBORHOOD, /* y (B, N, taps·C): each cell of a grid of cells beside its 3^dims neighbours (taps in
                            row-major order, zero or periodic border): a 3×3 convolution is this + linear */
    UPS_OP_POOL_TOKENS, /* y (B, T, D): adaptive average over the token axis of x (B, N, D): token t averages [⌊tN/T⌋,
                           ⌈(t+1)N/T⌉) */
    UPS_OP_GATHER_POINTS, /* y (B, Q, C) = normalised field x (B, points·C) at index (Q) int32 grid points; statistics?
                             (C, 2). float32. No gradient to index and statistics */
    UPS_OP_FOURIER, /* y (Q, d·(1 + 2F)) = [c, sin 2πfc, cos 2πfc …] of coordinates c (Q, d) float32; no gradient. y:
                       compute */
    UPS_OP_LOSS_MSE, /* y (B) = mean over a sample of (prediction − target)²; float32; gradient to the prediction, and
                        to the target if it needs one */
    UPS_OP_LOSS_RELATIVE, /* y (B) = ‖prediction − target‖ / (‖target‖ + ε) of a sample: nRMSE; gradient to the
                             prediction */
    UPS_OP_WEIGHTED_SUM, /* y (1) = Σ_k weight_k · mean(x_k), x_k (B): the total loss */
    UPS_OP_CAST,         /* y = x in attributes.dtype */
    UPS_OP_COUNT
} ups_op_kind;

#define UPS_MAX_FREQUENCIES 16

typedef struct ups_op_attributes {
    float epsilon;             /* norms, relative loss */
    bool output_f32;           /* linear, norms */
    int heads;                 /* attention */
    float drop_path;           /* residual: probability of dropping a sample's branch */
    uint32_t layer;            /* residual: separates random streams */
    int64_t batch;             /* broadcast */
    float factor;              /* scale */
    int64_t offset, length;    /* slice */
    int64_t frame;             /* select_frame */
    ups_dtype dtype;           /* cast */
    bool channels_first;       /* patchify, gather_points */
    bool periodic;             /* neighborhood */
    int dims;                  /* patchify, neighborhood: grid axes */
    int64_t grid[3], patch[3]; /* patchify: points along each axis and points a patch; neighborhood: grid = cells.
                                  Slowest axis first; only `dims` used */
    int64_t channels;          /* patchify, gather_points: C */
    int frequency_count;
    float frequencies[UPS_MAX_FREQUENCIES]; /* fourier */
    float weights[UPS_MAX_INPUTS];          /* weighted_sum */
} ups_op_attributes;

typedef struct ups_op_description {
    const char *name;         /* "linear" */
    uint32_t gradient_inputs; /* bit i: backward gives a gradient to input i; 0: the op has no backward */
    /* What backward reads beyond the output's gradient: the planner keeps only these alive. Bit i of inputs: input i.
     */
    uint32_t backward_inputs;
    bool backward_output;
    bool backward_saved;
} ups_op_description;

const ups_op_description *ups_op_describe(ups_op_kind kind);

/* The inputs that backward of this very node reads: those of its description, less what only an absent or unwanted
 * gradient would need (a residual without a gate reads nothing; a linear reads x for the gradient of W alone). After
 * differentiate. */
uint32_t ups_node_backward_inputs(const ups_graph *graph, const ups_node *node);
/* The inputs that backward of this node gives gradients to; 0 when it has no backward. After differentiate. */
uint32_t ups_node_gradient_inputs(const ups_graph *graph, const ups_node *node);

/* Constructors: one an op; they check shapes, decide dtypes, and append a node. */
ups_value ups_linear(ups_graph *g, ups_value x, ups_value weight, ups_value bias, bool output_f32);
ups_value ups_layer_norm(ups_graph *g, ups_value x, ups_value gain, ups_value bias, bool output_f32);
ups_value ups_rms_norm(ups_graph *g, ups_value x, ups_value gain);
ups_value ups_modulate(ups_graph *g, ups_value x, ups_value scale, ups_value shift);
ups_value ups_residual(ups_graph *g, ups_value x, ups_value branch, ups_value gate, float drop_path, uint32_t layer);
ups_value ups_add(ups_graph *g, ups_value x, ups_value z);
ups_value ups_broadcast(ups_graph *g, ups_value x, int64_t batch);
ups_value ups_gelu(ups_graph *g, ups_value x);
ups_value ups_silu(ups_graph *g, ups_value x);
ups_value ups_scale(ups_graph *g, ups_value x, float factor);
ups_value ups_attention(ups_graph *g, ups_value q, ups_value kv, ups_value gain_q, ups_value gain_k, int heads);
ups_value ups_slice(ups_graph *g, ups_value x, int64_t offset, int64_t length);
ups_value ups_select_frame(ups_graph *g, ups_value x, int64_t frame);
ups_value ups_patchify(ups_graph *g, ups_value field, ups_value statistics, int dims, const int64_t *grid,
                       const int64_t *patch, int64_t channels, bool channels_first);
ups_value ups_neighborhood(ups_graph *g, ups_value x, int dims, const int64_t *cells, bool periodic);
ups_value ups_pool_tokens(ups_graph *g, ups_value x, int64_t tokens);
ups_value ups_gather_points(ups_graph *g, ups_value field, ups_value index, ups_value statistics, int64_t channels,
                            bool channels_first);
ups_value ups_fourier(ups_graph *g, ups_value coordinates, const float *frequencies, int count);
ups_value ups_loss_mse(ups_graph *g, ups_value prediction, ups_value target);
ups_value ups_loss_relative(ups_graph *g, ups_value prediction, ups_value target);
ups_value ups_weighted_sum(ups_graph *g, const ups_value *losses, const float *weights, int count);
ups_value ups_cast(ups_graph *g, ups_value x, ups_dtype dtype);

#endif
