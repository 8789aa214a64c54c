#include "model/nets/core_blocks.h"

#include "model/nets/blocks.h"
#include "model/nets/core.h"

#include <stdio.h>

/* Rises linearly from 0 at the first block to options->drop_path at the last. */
static float drop_path_of(const ups_core_block *block) {
    return block->count > 1 ? block->options->drop_path * (float)block->index / (float)(block->count - 1) : 0;
}

/* A kernel is shared by tasks with as many axes, whatever their borders. */
static ups_value convolve(ups_graph *g, const char *prefix, const ups_core_block *block, ups_value x) {
    const ups_operator_options *o = block->options;
    const ups_token_grid *grid = &block->grid;
    int64_t taps = 1;
    for (int axis = 0; axis < grid->dims; axis++) taps *= o->convolution;
    ups_graph_scope(g, "%s.convolution.%dd", prefix, grid->dims);
    const ups_init zero = {.kind = UPS_INIT_ZEROS, .no_decay = true};
    ups_value weight = ups_graph_parameter(g, "weight", UPS_SHAPE(taps, o->hidden), zero);
    return ups_depthwise(g, x, weight, grid->dims, grid->cells, o->convolution, grid->periodic);
}

/* PREFIX.blocks.INDEX, where tasks share this half of the block; otherwise PREFIX.TASK.blocks.INDEX. */
static void name_half(char name[UPS_BLOCK_NAME], const char *prefix, const ups_core_block *block, ups_block_half half) {
    const ups_operator_options *o = block->options;
    if (o->task_specific[half])
        snprintf(name, UPS_BLOCK_NAME, "%s.%s.blocks.%d", prefix, o->grid.task, block->index);
    else
        snprintf(name, UPS_BLOCK_NAME, "%s.blocks.%d", prefix, block->index);
}

ups_value ups_core_block_build(ups_graph *g, const char *prefix, const ups_core_block *block, ups_value x) {
    const ups_operator_options *o = block->options;
    char name[UPS_BLOCK_NAME];
    name_half(name, prefix, block, UPS_HALF_MIXING);
    const ups_block_options rest = {.mlp_ratio = o->mlp_ratio,
                                    .drop_path = drop_path_of(block),
                                    .condition = block->condition,
                                    .layer = block->layer};
    const bool spectral = ups_core_mixing(o, block->index) == UPS_MIXING_SPECTRAL;
    ups_graph_begin_block(g);
    ups_value normed =
        ups_conditioned_norm(g, name, spectral ? "spectral.norm" : "attention.norm", x, block->condition);
    ups_value mixed = spectral ? ups_mix_spectral(g, name, block, normed) : ups_mix_attention(g, name, block, normed);
    if (o->convolution > 0) mixed = ups_add(g, mixed, convolve(g, name, block, normed));
    ups_graph_scope(g, "%s", name);
    x = ups_residual(g, x, mixed, UPS_NO_VALUE, rest.drop_path, rest.layer);
    name_half(name, prefix, block, UPS_HALF_MLP);
    x = ups_block_mlp(g, name, &rest, x);
    ups_graph_end_block(g);
    return x;
}

ups_value ups_core_blocks(ups_graph *g, const char *prefix, const ups_operator_options *o,
                          const ups_core_input *input) {
    ups_core_block block = {.options = o, .grid = o->grid, .count = o->depth, .condition = input->condition};
    block.angles = ups_core_angles(g, o, input->places);
    ups_value x = input->x;
    for (; block.index < o->depth; block.index++) {
        block.layer = input->first_layer + 2 * (uint32_t)block.index;
        x = ups_core_block_build(g, prefix, &block, x);
    }
    return x;
}
