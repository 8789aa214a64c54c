/* The grid encoder: a field becomes `tokens` latent tokens.
 *
 *   field (B, points·C) → patches → stem of the task (3^d convolution, GELU, 1×1 convolution that starts at zero, plus
 * identity) → linear to `width` → + linear(Fourier features of the patch centres) → pooled to `tokens` → `depth`
 * transformer blocks → linear to `dim`
 *
 * The stem and the linear to `width` are the task's own, encoder.TASK.*, since patches of different tasks have
 * different lengths; what follows is shared, encoder.trunk.*, but for the linear of the positions, one for each number
 * of axes. Pooling stands before the last linear: for averages the order makes no difference but in cost.
 *
 * After the stem all is linear: what a field adds to a latent does not depend on what else is in it. Latents then move
 * as smoothly as their fields, which is what the codec compresses and what the operator learns (a GELU here made
 * Darcy's squared latent error 3.6 times larger). */
#ifndef UPS_MODEL_NETS_ENCODER_H
#define UPS_MODEL_NETS_ENCODER_H

#include "model/ops.h"

typedef enum ups_pooling {
    UPS_POOL_MEAN,    /* adaptive average over the token axis (row-major patches) */
    UPS_POOL_QUERIES, /* cross-attention of `tokens` learned queries onto the patches (Perceiver, arXiv 2103.03206) */
} ups_pooling;

typedef struct ups_encoder_options {
    int64_t patch[3];   /* points of a patch along each grid axis, slowest first */
    int64_t width;      /* of the trunk */
    int64_t stem_width; /* channels between the stem's convolutions; 0: no stem */
    int64_t tokens, dim;
    ups_pooling pooling;
    int depth; /* transformer blocks on the pooled tokens */
    int heads; /* of the blocks and of query pooling */
    float mlp_ratio;
    int frequency_count;
    float frequencies[UPS_MAX_FREQUENCIES];
} ups_encoder_options;

/* One task's fields. */
typedef struct ups_field_shape {
    const char *task; /* names its parameters */
    int dims;
    int64_t grid[3]; /* points along each axis, slowest first; only `dims` used */
    int64_t channels;
    bool channels_first;
    bool periodic; /* border of the stem's convolution */
} ups_field_shape;

/* Patch 8, 8 × 8, 4 × 4 × 4; width 128, stem 64; tokens 128, dim 128; mean pooling; depth 0; frequencies 1, 2, 4, 8. */
ups_encoder_options ups_encoder_defaults(void);
ups_status ups_encoder_check(const ups_encoder_options *options, ups_error *error);

/* Latents (B, tokens, dim) float32 of a field (B, points·C) float32 with statistics (C, 2) float32 of mean and
 * 1/standard deviation, or UPS_NO_VALUE when the field is normalised already. */
ups_value ups_encoder_build(ups_graph *graph, const ups_encoder_options *options, const ups_field_shape *field,
                            ups_value values, ups_value statistics);

int64_t ups_encoder_patches(const ups_encoder_options *options, const ups_field_shape *field);

/* Where a field's tokens lie: (tokens, dims) float32 in `out`, the mean of the centres of the patches that each
 * averages. For decoders that are told positions; learned queries have none. */
void ups_encoder_token_coordinates(const ups_encoder_options *options, const ups_field_shape *field, float *out);

#endif
