/* Blocks that the builders share: dense layers, norms with parameters, transformer blocks.
 *
 * Names are absolute: a block built with prefix "operator.blocks.3" has parameters
 * "operator.blocks.3.attention.qkv.weight" and so on, and leaves the graph's scope at the last of them. Built twice
 * with the same prefix it shares its parameters. */
#ifndef UPS_MODEL_NETS_BLOCKS_H
#define UPS_MODEL_NETS_BLOCKS_H

#include "model/ops.h"

/* How a dense layer differs from the usual: bias, output in the compute dtype, weights and biases uniform in ±1/√K
 * (Kaiming's with a = √5, as PyTorch's nn.Linear). */
typedef struct ups_dense_options {
    bool no_bias;
    bool output_f32;
    bool zero;     /* starts at zero: the last layer of a branch that should begin as nothing */
    bool no_decay; /* the weight too: embeddings */
    int matrices;  /* of a hidden weight: how many lie in it, one below the other (ups_init); 0: it is none */
} ups_dense_options;

/* y (…, outputs) = x (…, K) Wᵀ + b; parameters PREFIX.NAME.weight (outputs, K) and PREFIX.NAME.bias (outputs). Hidden
 * ones (`matrices`) whose name PREFIX.NAME the graph's fp8_layers match have PREFIX.NAME.fp8, too. */
ups_value ups_dense(ups_graph *graph, const char *prefix, const char *name, ups_value x, int64_t outputs,
                    ups_dense_options options);

/* Layer norm with gain and bias, PREFIX.NAME.weight and PREFIX.NAME.bias. */
ups_value ups_norm(ups_graph *graph, const char *prefix, const char *name, ups_value x, bool output_f32);

typedef struct ups_block_options {
    int heads;
    float mlp_ratio;     /* hidden width of the MLP over the width of the tokens */
    bool qk_norm;        /* RMS norm with a gain on each head's queries and keys */
    float drop_path;     /* probability of dropping a sample's branch, in training */
    ups_value condition; /* (B, H) that the norms' outputs are scaled and shifted by (AdaLN), or UPS_NO_VALUE */
    uint32_t layer;      /* separates the random streams of blocks: each uses `layer` and `layer` + 1 */
} ups_block_options;

/* Layer norm, then, where there is a condition (B, H), times 1 + γ plus β: two linears of it that start at zero, in
 * one, PREFIX.NAME.condition. */
ups_value ups_conditioned_norm(ups_graph *graph, const char *prefix, const char *name, ups_value x,
                               ups_value condition);

/* The second half of a pre-LayerNorm block: x + mlp(norm(x)). */
ups_value ups_block_mlp(ups_graph *graph, const char *prefix, const ups_block_options *options, ups_value x);

/* Pre-LayerNorm transformer block: x + attention(norm(x)), then x + mlp(norm(x)); x (B, T, D) float32 stays float32. */
ups_value ups_block_self(ups_graph *graph, const char *prefix, const ups_block_options *options, ups_value x);

/* Post-LayerNorm block: norm(x + attention(x onto context)), then norm(x + mlp(x)); x (B, Q, D), context (B, T, E). */
ups_value ups_block_cross(ups_graph *graph, const char *prefix, const ups_block_options *options, ups_value x,
                          ups_value context);

/* linear(Fourier features of the coordinates (Q, d)) → (Q, width), parameters PREFIX.NAME…; float32. */
ups_value ups_position(ups_graph *graph, const char *prefix, const char *name, ups_value coordinates,
                       const float *frequencies, int frequency_count, int64_t width);

/* Coordinates, (points, dims) float32 in `out`, of the cells of a grid, slowest axis first: on every axis the domain is
 * [0, 1] and cell i of n is centred at (i + ½) / n. Both the encoder's patches and a field's points (what decoders are
 * asked at) are cells of such grids. */
void ups_grid_coordinates(int dims, const int64_t *grid, float *out);

#endif
