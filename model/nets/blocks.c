/* Blocks: see the header. In a bf16 or fp16 graph everything between a norm and the addition to the residual stream has
 * the compute dtype; the stream is what it was begun as, float32 unless the operator's options say otherwise. */
#include "model/nets/blocks.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>

/* A hidden layer that the graph's patterns name, of sizes that FP8 is multiplied in. */
static bool is_fp8(const ups_graph *graph, int64_t inputs, int64_t outputs, ups_dense_options options) {
    if (options.matrices == 0) return false;
    if (inputs % UPS_FP8_MULTIPLE || outputs % UPS_FP8_MULTIPLE) return false;
    for (unsigned i = 0; i < graph->fp8_layer_count; i++) {
        if (fnmatch(graph->fp8_layers[i], graph->scope, 0) == 0) return true;
    }
    return false;
}

ups_value ups_dense(ups_graph *graph, const char *prefix, const char *name, ups_value x, int64_t outputs,
                    ups_dense_options options) {
    int64_t inputs = ups_shape_last(ups_graph_info(graph, x)->shape);
    ups_init init = {.kind = options.zero ? UPS_INIT_ZEROS : UPS_INIT_UNIFORM,
                     .scale = 1 / sqrtf((float)inputs),
                     .no_decay = options.no_decay,
                     .matrices = options.matrices};
    ups_graph_scope(graph, "%s.%s", prefix, name);
    ups_value weight = ups_graph_parameter(graph, "weight", UPS_SHAPE(outputs, inputs), init);
    init = (ups_init){.kind = init.kind, .scale = init.scale, .no_decay = true};
    ups_value bias = options.no_bias ? UPS_NO_VALUE : ups_graph_parameter(graph, "bias", UPS_SHAPE(outputs), init);
    if (!is_fp8(graph, inputs, outputs, options)) return ups_linear(graph, x, weight, bias, options.output_f32);
    init = (ups_init){.kind = UPS_INIT_ZEROS, .no_decay = true, .fixed = true};
    ups_value state = ups_graph_parameter(graph, "fp8", UPS_SHAPE(UPS_FP8_OPERANDS, UPS_FP8_NUMBERS), init);
    return ups_linear_fp8(graph, x, weight, bias, state, options.output_f32);
}

static const ups_init ones = {.kind = UPS_INIT_ONES, .no_decay = true};
static const ups_init zeros = {.kind = UPS_INIT_ZEROS, .no_decay = true};

ups_value ups_norm(ups_graph *graph, const char *prefix, const char *name, ups_value x, bool output_f32) {
    int64_t width = ups_shape_last(ups_graph_info(graph, x)->shape);
    ups_graph_scope(graph, "%s.%s", prefix, name);
    ups_value gain = ups_graph_parameter(graph, "weight", UPS_SHAPE(width), ones);
    ups_value bias = ups_graph_parameter(graph, "bias", UPS_SHAPE(width), zeros);
    return ups_layer_norm(graph, x, gain, bias, output_f32);
}

/* Attention between projections; `kv` is absent for self-attention. */
static ups_value heads(ups_graph *graph, const char *prefix, const ups_block_options *options, ups_value q,
                       ups_value kv, int64_t width) {
    ups_value gain_q = UPS_NO_VALUE, gain_k = UPS_NO_VALUE;
    if (options->qk_norm) {
        ups_graph_scope(graph, "%s.attention", prefix);
        gain_q = ups_graph_parameter(graph, "query_norm.weight", UPS_SHAPE(width / options->heads), ones);
        gain_k = ups_graph_parameter(graph, "key_norm.weight", UPS_SHAPE(width / options->heads), ones);
    }
    ups_value attended = ups_attention(graph, q, kv, gain_q, gain_k, options->heads);
    return ups_dense(graph, prefix, "attention.output", attended, width, (ups_dense_options){.matrices = 1});
}

static ups_value mlp(ups_graph *graph, const char *prefix, const ups_block_options *options, ups_value x) {
    int64_t width = ups_shape_last(ups_graph_info(graph, x)->shape);
    int64_t hidden = (int64_t)lrintf(options->mlp_ratio * (float)width);
    ups_value up = ups_dense(graph, prefix, "mlp.up", x, hidden, (ups_dense_options){.matrices = 1});
    return ups_dense(graph, prefix, "mlp.down", ups_gelu(graph, up), width, (ups_dense_options){.matrices = 1});
}

static ups_value residual(ups_graph *graph, const ups_block_options *options, ups_value x, ups_value branch,
                          uint32_t half) {
    return ups_residual(graph, x, branch, UPS_NO_VALUE, options->drop_path, options->layer + half);
}

ups_value ups_conditioned_norm(ups_graph *graph, const char *prefix, const char *name, ups_value x,
                               ups_value condition) {
    ups_value normed = ups_norm(graph, prefix, name, x, false);
    if (condition == UPS_NO_VALUE) return normed;
    int64_t width = ups_shape_last(ups_graph_info(graph, x)->shape);
    char key[64];
    snprintf(key, sizeof key, "%s.condition", name);
    const ups_dense_options zero = {.output_f32 = true, .zero = true};
    ups_value both = ups_dense(graph, prefix, key, condition, 2 * width, zero);
    return ups_modulate(graph, normed, ups_slice(graph, both, 0, width), ups_slice(graph, both, width, width));
}

ups_value ups_block_mlp(ups_graph *graph, const char *prefix, const ups_block_options *options, ups_value x) {
    ups_value normed = ups_conditioned_norm(graph, prefix, "mlp.norm", x, options->condition);
    return residual(graph, options, x, mlp(graph, prefix, options, normed), 1);
}

ups_value ups_block_self(ups_graph *graph, const char *prefix, const ups_block_options *options, ups_value x) {
    int64_t width = ups_shape_last(ups_graph_info(graph, x)->shape);
    ups_graph_begin_block(graph);
    ups_value normed = ups_conditioned_norm(graph, prefix, "attention.norm", x, options->condition);
    ups_value qkv = ups_dense(graph, prefix, "attention.qkv", normed, 3 * width, (ups_dense_options){.matrices = 3});
    x = residual(graph, options, x, heads(graph, prefix, options, qkv, UPS_NO_VALUE, width), 0);
    x = ups_block_mlp(graph, prefix, options, x);
    ups_graph_end_block(graph);
    return x;
}

ups_value ups_block_cross(ups_graph *graph, const char *prefix, const ups_block_options *options, ups_value x,
                          ups_value context) {
    int64_t width = ups_shape_last(ups_graph_info(graph, x)->shape);
    ups_graph_begin_block(graph);
    ups_value q = ups_dense(graph, prefix, "attention.query", x, width, (ups_dense_options){.matrices = 1});
    ups_value kv =
        ups_dense(graph, prefix, "attention.key_value", context, 2 * width, (ups_dense_options){.matrices = 2});
    x = residual(graph, options, x, heads(graph, prefix, options, q, kv, width), 0);
    x = ups_norm(graph, prefix, "attention.norm", x, true);
    x = residual(graph, options, x, mlp(graph, prefix, options, x), 1);
    x = ups_norm(graph, prefix, "mlp.norm", x, true);
    ups_graph_end_block(graph);
    return x;
}

ups_value ups_position(ups_graph *graph, const char *prefix, const char *name, ups_value coordinates,
                       const float *frequencies, int frequency_count, int64_t width) {
    ups_graph_scope(graph, "%s.%s", prefix, name);
    ups_value features = ups_fourier(graph, coordinates, frequencies, frequency_count);
    return ups_dense(graph, prefix, name, features, width, (ups_dense_options){.output_f32 = true});
}

void ups_grid_coordinates(int dims, const int64_t *grid, float *out) {
    int64_t points = 1;
    for (int axis = 0; axis < dims; axis++) points *= grid[axis];
    for (int64_t point = 0; point < points; point++) {
        int64_t rest = point;
        for (int axis = dims - 1; axis >= 0; axis--) {
            out[point * dims + axis] = ((float)(rest % grid[axis]) + 0.5f) / (float)grid[axis];
            rest /= grid[axis];
        }
    }
}
