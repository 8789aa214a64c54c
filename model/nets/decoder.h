/* The any-point decoder: latents are read at any coordinates, so at any resolution (Perceiver IO, arXiv 2107.14795).
 *
 *   coordinates (Q, d) → Fourier features → linear of that number of axes → `depth` layers of cross-attention onto the
 * latents and MLP, post-LayerNorm → the task's head → (B, Q, C)
 *
 * Values are normalised: those of a field less the mean, times 1/standard deviation. Coordinates are in [0, 1] on every
 * axis (ups_grid_coordinates). Parameters: decoder.query1d … decoder.layers.N.*, decoder.TASK.head. */
#ifndef UPS_MODEL_NETS_DECODER_H
#define UPS_MODEL_NETS_DECODER_H

#include "model/ops.h"

typedef struct ups_decoder_options {
    int64_t tokens, dim; /* of the latents */
    int64_t hidden;
    int depth, heads;
    float mlp_ratio;
    bool qk_norm;
    bool position; /* tokens are told where they lie: linear(Fourier features of their coordinates) is added to the
                      latents */
    int frequency_count;
    float frequencies[UPS_MAX_FREQUENCIES];
} ups_decoder_options;

/* tokens 128, dim 128; hidden 128, depth 3, heads 8, MLP ratio 4; frequencies 1, 2, 4, 8; without positions. */
ups_decoder_options ups_decoder_defaults(void);
ups_status ups_decoder_check(const ups_decoder_options *options, ups_error *error);

/* Normalised values (B, Q, channels) float32 at coordinates (Q, d) float32 from latents (B, tokens, dim) float32.
 * `token_coordinates` (tokens, d) float32, as ups_encoder_token_coordinates gives them: with options.position only,
 * else UPS_NO_VALUE. */
ups_value ups_decoder_build(ups_graph *graph, const ups_decoder_options *options, const char *task, int64_t channels,
                            ups_value latents, ups_value coordinates, ups_value token_coordinates);

#endif
