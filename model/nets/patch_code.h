/* Patches as tokens: a latent token holds what a linear map makes of its patch, and another one returns the patch. What
 * `model.tokens: grid` takes in place of the encoder and the decoder of a fixed number of tokens.
 *
 *   field (B, points·C) → patches (B, N, P·C) → linear to `dim` → latents (B, N, dim)
 *   latents (B, N, dim) → linear to P·C → field, read at any point (patch_reading.h)
 *
 * Both maps are the task's own: encoder.TASK.patch.weight (dim, P·C) and decoder.TASK.patch.weight (P·C, dim). They are
 * set before training: to the identity where a token has room for its patch's numbers, otherwise to the principal
 * components of patches (train/data/patch_basis.h). */
#ifndef UPS_MODEL_NETS_PATCH_CODE_H
#define UPS_MODEL_NETS_PATCH_CODE_H

#include "model/nets/encoder.h"
#include "model/nets/patch_reading.h"

typedef struct ups_patch_code {
    ups_field_shape field;
    int64_t patch[3]; /* points along each grid axis, slowest first */
    int64_t dim;      /* of a token: at most the numbers of a patch */
    int64_t between;  /* features of what corrects values between grid points; 0: none */
} ups_patch_code;

void ups_patch_code_cells(const ups_patch_code *code, int64_t cells[3]); /* patches along each grid axis */
int64_t ups_patch_code_tokens(const ups_patch_code *code);
int64_t ups_patch_code_numbers(const ups_patch_code *code); /* of a patch: P·C */

ups_patch_reading ups_patch_code_reading(const ups_patch_code *code);

/* Latents (B, N, dim) float32 of a field (B, points·C) float32 with statistics (C, 2), or UPS_NO_VALUE when it is
 * normalised already. */
ups_value ups_patch_encode(ups_graph *graph, const ups_patch_code *code, ups_value field, ups_value statistics);

/* Normalised values (B, Q, C) float32 at coordinates (Q, d) float32 of latents (B, N, dim) float32. */
ups_value ups_patch_decode(ups_graph *graph, const ups_patch_code *code, ups_value latents, ups_value coordinates);

#endif
