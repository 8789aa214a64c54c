/* Mixing by attention: over all tokens. */
#include "model/nets/core_blocks.h"

#include "model/nets/blocks.h"

ups_value ups_mix_attention(ups_graph *g, const char *prefix, const ups_core_block *block, ups_value x) {
    const ups_operator_options *o = block->options;
    const ups_init ones = {.kind = UPS_INIT_ONES, .no_decay = true};
    ups_value qkv = ups_dense(g, prefix, "attention.qkv", x, 3 * o->hidden, (ups_dense_options){0});
    ups_value gain_q = UPS_NO_VALUE, gain_k = UPS_NO_VALUE;
    ups_graph_scope(g, "%s.attention", prefix);
    if (o->qk_norm) {
        gain_q = ups_graph_parameter(g, "query_norm.weight", UPS_SHAPE(o->hidden / o->heads), ones);
        gain_k = ups_graph_parameter(g, "key_norm.weight", UPS_SHAPE(o->hidden / o->heads), ones);
    }
    ups_value attended = ups_attention(g, qkv, UPS_NO_VALUE, gain_q, gain_k, o->heads);
    return ups_dense(g, prefix, "attention.output", attended, o->hidden, (ups_dense_options){0});
}
