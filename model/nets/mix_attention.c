/* Mixing by attention: over all tokens, over those of a window of the grid, or by groups of features. */
#include "model/nets/core_blocks.h"

#include "model/nets/blocks.h"
#include "model/nets/core.h"

#include <math.h>
#include <stdio.h>

enum { BIAS_HIDDEN = 32 };

/* Whether each sample tells where its tokens lie. */
static bool is_told(const ups_token_grid *grid) {
    return grid->scattered && !grid->places;
}

/* How far the k-th pair of an axis is turned: round k times in a period, that of the domain, or twice its length where
 * it is not periodic. So angles between tokens are the same on both sides of a periodic border. */
static double turn_of_cell(const ups_token_grid *grid, int axis, int64_t cell, int64_t k) {
    const int64_t period = (grid->periodic ? 1 : 2) * grid->cells[axis];
    return 2.0 * M_PI * (double)(k * cell % period) / (double)period;
}

/* Where a token's row of the table begins with no turn at all, and the angles of its pairs: axes share a head's pairs
 * equally. */
static void turn_token(const ups_token_grid *grid, int64_t token, int64_t pairs, float *row) {
    const int dims = grid->scattered ? grid->place_dims : grid->dims;
    const int64_t each = pairs / dims;
    int64_t rest = token;
    for (int64_t pair = 0; pair < pairs; pair++) row[pair] = 1.0f, row[pairs + pair] = 0.0f;
    for (int axis = dims - 1; axis >= 0; axis--) {
        const int64_t cell = grid->scattered ? 0 : rest % grid->cells[axis];
        if (!grid->scattered) rest /= grid->cells[axis];
        for (int64_t k = 1; k <= each; k++) {
            const double angle = grid->scattered ? M_PI * (double)k * (double)grid->places[token * dims + axis]
                                                 : turn_of_cell(grid, axis, cell, k);
            row[axis * each + k - 1] = (float)cos(angle);
            row[pairs + axis * each + k - 1] = (float)sin(angle);
        }
    }
}

/* (tokens, width): cosines, then sines, of the angles that a token's queries and keys are turned by. */
static ups_value rotary(ups_graph *g, const ups_token_grid *grid, int64_t width) {
    char name[96];
    int64_t tokens = 1;
    for (int axis = 0; axis < grid->dims; axis++) tokens *= grid->cells[axis];
    snprintf(name, sizeof name, "rotary.%s.%lld.%lld.%lld.%lld",
             grid->scattered  ? "scattered"
             : grid->periodic ? "periodic"
                              : "padded",
             (long long)width, (long long)grid->cells[0], grid->dims > 1 ? (long long)grid->cells[1] : 0,
             grid->dims > 2 ? (long long)grid->cells[2] : 0);
    ups_value found = ups_graph_find(g, name);
    if (found != UPS_NO_VALUE) return found;
    float *host = UPS_ARENA_ARRAY(g->arena, float, tokens *width);
    for (int64_t token = 0; token < tokens; token++) turn_token(grid, token, width / 2, host + token * width);
    return ups_graph_constant(g, name, UPS_F32, UPS_SHAPE(tokens, width), host);
}

ups_value ups_core_angles(ups_graph *g, const ups_operator_options *o, ups_value places) {
    if (places == UPS_NO_VALUE || o->positions != UPS_POSITIONS_ROTARY) return UPS_NO_VALUE;
    return ups_angles(g, places, o->hidden / o->heads);
}

/* (offsets, dims): sign(d) ln(1 + |d|) of every offset d of two cells of a window along each axis, as Swin v2 (arXiv
 * 2111.09883) spaces them: what is learned of near cells reaches far ones. */
static ups_value window_offsets(ups_graph *g, int dims, int64_t window) {
    char name[64];
    snprintf(name, sizeof name, "window_offsets.%dd.%lld", dims, (long long)window);
    ups_value found = ups_graph_find(g, name);
    if (found != UPS_NO_VALUE) return found;
    int64_t side = 2 * window - 1, count = 1;
    for (int axis = 0; axis < dims; axis++) count *= side;
    float *host = UPS_ARENA_ARRAY(g->arena, float, count *dims);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i;
        for (int axis = dims - 1; axis >= 0; axis--, rest /= side) {
            double offset = (double)(rest % side - (window - 1));
            host[i * dims + axis] = (float)copysign(log1p(fabs(offset)), offset);
        }
    }
    return ups_graph_constant(g, name, UPS_F32, UPS_SHAPE(count, dims), host);
}

/* (offsets, heads): an MLP of the offset, which starts at zero. Tasks with as many axes share it. Its last layer has no
 * bias: what is added to all scores changes none of their shares. */
static ups_value relative_bias(ups_graph *g, const char *prefix, int dims, int64_t window, int heads) {
    char name[48];
    snprintf(name, sizeof name, "attention.bias%dd.hidden", dims);
    ups_value offsets = window_offsets(g, dims, window);
    ups_value hidden = ups_gelu(g, ups_dense(g, prefix, name, offsets, BIAS_HIDDEN, (ups_dense_options){0}));
    snprintf(name, sizeof name, "attention.bias%dd.output", dims);
    return ups_dense(g, prefix, name, hidden, heads,
                     (ups_dense_options){.no_bias = true, .output_f32 = true, .zero = true});
}

/* Whether windows of the block are shifted: every second one that attends. */
static bool is_shifted(const ups_core_block *block) {
    int before = 0;
    for (int i = 0; i < block->index; i++) before += ups_core_told_mixing(block->options, i) != UPS_MIXING_SPECTRAL;
    return before % 2 == 1;
}

/* A dense layer of every group of features, `groups` of them side by side, by the same weights. */
static ups_value dense_by_group(ups_graph *g, const char *prefix, const char *name, ups_value x, int64_t groups,
                                int64_t times) {
    ups_shape shape = ups_graph_info(g, x)->shape;
    int64_t batch = shape.size[0], tokens = shape.size[1], width = shape.size[2] / groups;
    if (groups > 1) x = ups_graph_reshape(g, x, UPS_SHAPE(batch, tokens * groups, width));
    ups_value y = ups_dense(g, prefix, name, x, times * width, (ups_dense_options){.matrices = times});
    return groups > 1 ? ups_graph_reshape(g, y, UPS_SHAPE(batch, tokens, times * groups * width)) : y;
}

ups_value ups_mix_attention(ups_graph *g, const char *prefix, const ups_core_block *block, ups_value x) {
    const ups_operator_options *o = block->options;
    const ups_token_grid *grid = &block->grid;
    const ups_init ones = {.kind = UPS_INIT_ONES, .no_decay = true};
    const int64_t width = o->hidden / o->heads;
    ups_attention_options options = {.heads = o->heads, .groups = 1, .periodic = grid->periodic};
    options.gain_q = options.gain_k = options.rotary = options.bias = UPS_NO_VALUE;
    if (o->attention == UPS_ATTENTION_CHANNEL_SEPARATED) options.groups = (int)(o->hidden / UPS_GROUP_WIDTH);
    ups_value qkv = dense_by_group(g, prefix, "attention.qkv", x, options.groups, 3);
    if (o->qk_norm) {
        ups_graph_scope(g, "%s.attention", prefix);
        options.gain_q = ups_graph_parameter(g, "query_norm.weight", UPS_SHAPE(width), ones);
        options.gain_k = ups_graph_parameter(g, "key_norm.weight", UPS_SHAPE(width), ones);
    }
    options.rotary = block->angles;
    if (o->positions == UPS_POSITIONS_ROTARY && !is_told(grid)) options.rotary = rotary(g, grid, width);
    if (o->attention == UPS_ATTENTION_WINDOW) {
        const int64_t window = o->window[grid->dims - 1];
        options.dims = grid->dims;
        for (int axis = 0; axis < grid->dims; axis++) {
            options.cells[axis] = grid->cells[axis];
            options.window[axis] = window;
            options.shift[axis] = is_shifted(block) ? window / 2 : 0;
        }
        options.bias = relative_bias(g, prefix, grid->dims, window, o->heads);
    }
    ups_graph_scope(g, "%s.attention", prefix);
    return dense_by_group(g, prefix, "attention.output", ups_self_attention(g, qkv, &options), options.groups, 1);
}
