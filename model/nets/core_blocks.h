/* Blocks of the operator's cores: x + mix(norm(x)), then x + mlp(norm(x)). What mixes tokens, attention or modes of
 * their grid, is the options' choice; a depthwise convolution over the grid may stand beside it, which starts at zero.
 */
#ifndef UPS_MODEL_NETS_CORE_BLOCKS_H
#define UPS_MODEL_NETS_CORE_BLOCKS_H

#include "model/nets/core.h"
#include "model/ops.h"

enum { UPS_BLOCK_NAME = 192 }; /* bytes */

typedef struct ups_core_block {
    const ups_operator_options *options;
    ups_token_grid grid; /* of the tokens that it works on; task NULL: they lie nowhere */
    int level;           /* of a core that has several, finest first */
    int index, count;    /* which of how many blocks of the core */
    ups_value condition; /* (B, C) that norms are modulated by, or UPS_NO_VALUE */
    ups_value angles;    /* (B, tokens, width of a head) of rotary places that each sample tells, or UPS_NO_VALUE */
    uint32_t layer;      /* separates random streams: the block uses `layer` and `layer` + 1 */
} ups_core_block;

/* x (B, tokens, hidden) float32 through the block, whose parameters are PREFIX.blocks.INDEX.…, or, of halves that
 * the options make task-specific, PREFIX.TASK.blocks.INDEX.…. */
ups_value ups_core_block_build(ups_graph *graph, const char *prefix, const ups_core_block *block, ups_value x);

/* All blocks of the options, one after the other: the `build` of cores that do nothing else (core.h). */
ups_value ups_core_blocks(ups_graph *graph, const char *prefix, const ups_operator_options *options,
                          const ups_core_input *input);

/* What queries and keys of tokens are turned by that lie at `places`; UPS_NO_VALUE of that, or where none are. */
ups_value ups_core_angles(ups_graph *graph, const ups_operator_options *options, ups_value places);

/* What the first half of a block adds to x, from the norm's output: PREFIX.attention.… and PREFIX.spectral.…. */
ups_value ups_mix_attention(ups_graph *graph, const char *prefix, const ups_core_block *block, ups_value x);
ups_value ups_mix_spectral(ups_graph *graph, const char *prefix, const ups_core_block *block, ups_value x);

#endif
